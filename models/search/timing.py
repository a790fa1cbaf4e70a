"""Who wants to know how long the searches of a training step take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Clock = Callable[[], AbstractContextManager[None]]  #: a new context to run one search in

_local = threading.local()


@contextmanager
def searches_in(clock: Clock) -> Iterator[None]:
    """Within it each search of this thread runs inside ``clock()``; kept results are no searches."""
    before = getattr(_local, "clock", None)
    _local.clock = clock
    try:
        yield
    finally:
        _local.clock = before


def timed() -> AbstractContextManager[None]:
    """Return the context that a search runs in."""
    clock: Clock | None = getattr(_local, "clock", None)
    return nullcontext() if clock is None else clock()
