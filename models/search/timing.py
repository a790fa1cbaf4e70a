"""Who wants to know how long the searches of a training step take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from kmip_data.runtime.threads import set_within

Clock = Callable[[], AbstractContextManager[None]]  #: a new context to run one search in

_local = threading.local()


def searches_in(clock: Clock) -> AbstractContextManager[None]:
    """Within it each search of this thread runs inside ``clock()``; kept results are no searches."""
    return set_within(_local, "clock", clock)


def timed() -> AbstractContextManager[None]:
    """Return the context that a search runs in."""
    clock: Clock | None = getattr(_local, "clock", None)
    return nullcontext() if clock is None else clock()
