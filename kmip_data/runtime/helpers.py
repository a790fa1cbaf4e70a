"""Helper threads: some share the work of the calling thread, others make results ahead of it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar


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


T = TypeVar("T")
R = TypeVar("R")

_NAME = "kmip-data-ahead"
_abandoned: list[
    ThreadPoolExecutor
] = []  #: executors of the parent of a fork; their locks must not be touched


def ahead(items: Iterable[T], make: Callable[[T], R], *, threads: int, depth: int) -> Iterator[R]:
    """Yield ``make(item)`` for each item in order, up to ``depth`` of them made ahead in the background.

    ``make`` profits from threads as far as it releases the GIL. An exception is raised at the position of
    its item. The threads end when the iterator is exhausted, closed or collected, and start again in a child
    that was forked while the iterator was in use.
    """
    # (1) Submit items until ``depth`` results wait. (2) Yield the oldest, so the order never depends on the
    # threads. (3) After a fork the threads are gone: submit all waiting items to new ones.
    executor, owner = _executor(threads), os.getpid()
    waiting: deque[tuple[T, Future[R]]] = deque()
    try:
        for item in items:
            if os.getpid() != owner:
                _abandoned.append(executor)
                executor, owner = _executor(threads), os.getpid()
                waiting = deque((old, executor.submit(make, old)) for old, _ in waiting)
            waiting.append((item, executor.submit(make, item)))
            if len(waiting) > depth:
                yield _result(waiting, make, owner)
        while waiting:
            yield _result(waiting, make, owner)
    finally:
        if os.getpid() == owner:
            # Garbage collection in one of the threads may close the iterator; it must not wait for itself.
            inside = threading.current_thread().name.startswith(_NAME)
            executor.shutdown(wait=not inside, cancel_futures=True)


def _executor(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix=_NAME)


def _result(waiting: deque[tuple[T, Future[R]]], make: Callable[[T], R], owner: int) -> R:
    item, future = waiting.popleft()
    return future.result() if os.getpid() == owner else make(item)
