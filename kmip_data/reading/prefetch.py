"""Make results ahead in background threads, in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_NAME = "kmip-data-ahead"
_abandoned: list[ThreadPoolExecutor] = []  #: of the parent of a fork; their locks must not be touched


def ahead(items: Iterable[T], make: Callable[[T], R], *, threads: int, depth: int) -> Iterator[R]:
    """Yield ``make(item)`` for each item in order, up to ``depth`` of them made before they are asked for.

    ``make`` gains from threads as far as it releases the GIL. Its first exception is raised in its
    place in the order. The threads end when the iterator is used up, closed or collected, and are
    started anew in a child that was forked while it was in use.
    """
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
            # A collection in one of the threads may close the iterator: it cannot wait for itself.
            inside = threading.current_thread().name.startswith(_NAME)
            executor.shutdown(wait=not inside, cancel_futures=True)


def _executor(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix=_NAME)


def _result(waiting: deque[tuple[T, Future[R]]], make: Callable[[T], R], owner: int) -> R:
    item, future = waiting.popleft()
    return future.result() if os.getpid() == owner else make(item)
