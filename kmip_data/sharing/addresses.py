"""What an address is, and what leads on where it cannot be read from afar."""

from __future__ import annotations

import os
import re


def is_address(target: str | os.PathLike[str]) -> bool:
    """Whether a text is an address (``s3://bucket/name``), not a folder or a name."""
    return re.match(r"[a-z][a-z0-9+.-]+://", os.fspath(target)) is not None


def pull_command(address: str) -> str:
    """Return the command that brings all of an address here."""
    return f"kmip-data pull {address}, and open the copy"
