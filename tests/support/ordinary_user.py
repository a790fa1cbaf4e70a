"""Become a user without rights for a while, because root may write anywhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

NOBODY = 65534


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Run the block as nobody when the tests run as root; modules must be imported before."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
