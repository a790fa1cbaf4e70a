"""Threads that help the calling thread with one piece of work after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise


class HelperThreads:
    """Some threads that take parts of what the calling thread does; they end with :meth:`close`.

    ``count`` besides the caller; 0: the caller does everything.
    """

    def __init__(self, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="kmip-data-help") if count else None
        self._owner = os.getpid()
        self.count = count

    def run(self, function: Callable[[int, int], object], bounds: Sequence[int]) -> None:
        """Call ``function(start, stop)`` for each pair of neighbouring bounds, the first in the caller.

        ``function`` releases the GIL for most of its time. All calls have ended when this returns,
        also by an exception. In a forked child, where there are no helpers, the caller does it all.
        """
        executor = self._executor if os.getpid() == self._owner else None
        if executor is None or len(bounds) == 2:
            function(bounds[0], bounds[-1])
            return
        futures = [executor.submit(function, start, stop) for start, stop in pairwise(bounds[1:])]
        try:
            function(bounds[0], bounds[1])
        finally:
            errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error

    def close(self) -> None:
        """End the threads."""
        if self._executor is not None and os.getpid() == self._owner:
            self._executor.shutdown(wait=False)
