"""What recorded work needs besides its own memory: a CUDA graph knows addresses and keeps nothing alive."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from kmip_data.runtime.threads import set_within

T = TypeVar("T")

_local = threading.local()


def keeping(objects: list[Any]) -> AbstractContextManager[None]:
    """Within it what this thread passes through :func:`kept` is added to ``objects``."""
    return set_within(_local, "objects", objects)


def kept(found: T) -> T:
    """Return ``found``, such as a plan from a cache that may drop it; recorded work keeps it."""
    objects: list[Any] | None = getattr(_local, "objects", None)
    if objects is not None:
        objects.append(found)
    return found
