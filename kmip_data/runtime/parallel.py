"""Threads: compiled kernels and their pool, prefetching.

The pool is created on first use and again after a fork; a PyTorch data-loader worker uses one thread.
If PyTorch is loaded, its own threads run kernels instead of the pool: between two operations they
spin for milliseconds, and would leave a pool half of each core. Kernels are
``numba.njit(nogil=True)`` over a range of rows, never ``parallel=True``: numba's OpenMP layer kills a
forked child, and its workqueue layer aborts when two Python threads enter it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import glob
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

from kmip_data.errors import UsageError
from kmip_data.runtime import compiling

F = TypeVar("F", bound=Callable[..., object])

_pool: ThreadPoolExecutor | None = None
_thread_limit: int | None = None
_lock = threading.Lock()
_thread = threading.local()  #: ``is_running_ranges`` is true inside :func:`run_in_ranges`
_is_forked = False  #: True in a forked child, which has lost PyTorch's threads


def available_cores() -> int:
    """Return the number of cores in the CPU affinity of this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(count: int | None) -> None:
    """Limit compiled kernels to ``count`` threads; ``None`` restores all available cores."""
    global _thread_limit
    if count is not None and count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    _thread_limit = count


@contextlib.contextmanager
def restore_thread_limit() -> Iterator[None]:
    """Restore the limit of :func:`set_num_threads` at the end of the block."""
    limit_before = _thread_limit
    try:
        yield
    finally:
        set_num_threads(limit_before)


def num_threads() -> int:
    """Return the threads of :func:`run_in_ranges`: one in a loader worker, else the limit or all cores."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        return 1
    return _thread_limit if _thread_limit is not None else available_cores()


def run_in_ranges(
    function: Callable[[int, int], object],
    total: int,
    *,
    grain: int = 1,
    max_rows: int | None = None,
) -> None:
    """Call ``function(start, stop)`` for ranges that cover the rows ``0 … total``, on all threads.

    ``function`` writes its results in place, and must release the GIL to run in parallel. After an
    exception, no further range starts; it is raised when the running ones have ended. ``grain`` is
    the smallest number of rows worth a thread. With fewer rows, or in a nested call, everything runs
    in the caller's thread. ``max_rows`` is the largest number of rows of one range: an interrupt (Ctrl-C)
    takes effect between ranges.
    """
    max_ranges = total // max(1, grain)
    threads = min(num_threads(), max(1, max_ranges))
    # A nested call would wait for threads that may all be waiting for nested calls.
    if getattr(_thread, "is_running_ranges", False):
        threads = 1
    # Several ranges per thread balance rows of unequal cost.
    num_ranges = 1
    if threads > 1:
        num_ranges = min(threads * 4, max(threads, max_ranges))
    if max_rows is not None:
        num_ranges = max(num_ranges, -(-total // max(1, max_rows)))
    edges = [total * i // num_ranges for i in range(num_ranges + 1)]
    ranges = iter([(start, stop) for start, stop in pairwise(edges) if start < stop])
    if threads <= 1:
        for start, stop in ranges:
            function(start, stop)
        return

    errors = []

    def work(*_: object) -> None:
        """Run ranges until none is left."""
        _thread.is_running_ranges = True
        try:
            for start, stop in ranges:
                function(start, stop)
        except BaseException as error:  # noqa: BLE001 -- raised below; also an interrupt
            errors.append(error)
            deque(ranges, 0)  # exhaust the iterator: no other range starts
        finally:
            _thread.is_running_ranges = False

    try:
        _call_on_threads(work, threads)
    except BaseException:
        deque(ranges, 0)
        raise
    if errors:
        raise errors[0]


def _call_on_threads(work: Callable[..., None], threads: int) -> None:
    """Call ``work`` in ``threads`` threads: PyTorch's with the caller, or the pool's."""
    openmp = _torch_openmp(threads)
    if openmp is None:
        pool = _get_pool()
        wait([pool.submit(work) for _ in range(threads)])
        return

    # 1. The other threads of the region start, and enter Python through the callback.
    # 2. The caller, which is a thread of the region too, runs ranges as well.
    # 3. The region is closed even after an interrupt: an open region would keep PyTorch's threads,
    #    and the callback is freed when this function returns.
    body = _BODY(work)
    try:
        openmp.GOMP_parallel_start(body, None, threads)
        work()
    finally:
        openmp.GOMP_parallel_end()


#: type of the callback of an OpenMP region
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _torch_openmp(threads: int) -> ctypes.CDLL | None:
    """Return the OpenMP library of PyTorch, or ``None`` if its threads cannot be reused.

    A forked child has lost these threads. A thread other than the main one, or a different number of
    threads, would get new ones.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):  # not or only partially imported
        return None
    if _is_forked or torch.get_num_threads() != threads:
        return None
    if threading.current_thread() is not threading.main_thread():
        return None
    return _load_openmp(torch._C.__file__)  # noqa: SLF001


@functools.cache
def _load_openmp(extension: str) -> ctypes.CDLL | None:
    """Return the OpenMP library linked to an extension module; ``None`` if it is not GNU's."""
    library = ctypes.CDLL(extension)
    return library if hasattr(library, "GOMP_parallel_start") else None


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None or _pool._max_workers < num_threads():  # noqa: SLF001
            _pool = ThreadPoolExecutor(num_threads(), thread_name_prefix="kmip-data")
        return _pool


def _reset_after_fork() -> None:
    # A forked child has only the current thread: no pool, and no thread that could release the lock.
    global _pool, _lock, _is_forked
    _pool = None
    _lock = threading.Lock()
    _thread.is_running_ranges = False
    _is_forked = True


os.register_at_fork(after_in_child=_reset_after_fork)


def njit_nogil(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles with :func:`numba.njit` and ``options``, releasing the GIL.

    Machine code is cached next to the source or in the user's cache folder. If neither is writable
    (a read-only install without a home folder), the function is compiled once per process.
    """
    from numba import njit  # takes half a second, so only commands with kernels import it

    _watch_compilations()

    def decorate(function: F) -> F:
        try:
            compiled: Any = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # "no locator available": no writable cache
            return cast("F", njit(nogil=True, **options)(function))
        # A cached kernel includes the kernels that it calls, but numba checks only its own file. So
        # the version includes the time of all kernels. It is compared before the index is unpickled,
        # which may name a class that no longer exists.
        file = compiled._cache._cache_file  # noqa: SLF001
        file._version = (file._version, _newest_kernel_time())  # noqa: SLF001
        return cast("F", compiled)

    return decorate


_watch_compilations = functools.cache(compiling.watch_numba)


@functools.cache
def _newest_kernel_time() -> int:
    """Return the modification time, in ns, of the newest source file with compiled kernels."""
    package = Path(__file__).resolve().parents[1]
    newest = 0
    # Unlike glob, Path.rglob does not follow the links of a checkout.
    for name in glob.iglob(f"{package}/**/*.py", recursive=True):  # noqa: PTH207
        source = Path(name)
        if b"njit_nogil" in source.read_bytes():
            newest = max(newest, source.stat().st_mtime_ns)
    return newest


T = TypeVar("T")
R = TypeVar("R")

_PREFETCH_THREAD = "kmip-data-ahead"


def prepare_ahead(
    items: Iterable[T],
    prepare: Callable[[T], R],
    *,
    threads: int,
    depth: int,
) -> Iterator[R]:
    """Yield ``prepare(item)`` for each item in order, preparing up to ``depth`` of them ahead.

    Threads run in parallel as far as ``prepare`` releases the GIL. An exception is raised at the
    position of its item. The threads end when the iterator is exhausted, closed or collected. Using
    the iterator in a child forked meanwhile raises ``UsageError``, because the child has no threads.
    """
    executor = ThreadPoolExecutor(threads, thread_name_prefix=_PREFETCH_THREAD)
    owner = os.getpid()
    futures: deque[Future[R]] = deque()  # in the order of the items

    def next_result() -> R:
        if os.getpid() != owner:
            raise UsageError(
                f"This iterator was started by process {owner}, and {os.getpid()} is a fork of it.",
                steps="start a new iterator in the fork",
            )
        return futures.popleft().result()

    try:
        for item in items:
            futures.append(executor.submit(prepare, item))
            if len(futures) > depth:
                yield next_result()
        while futures:
            yield next_result()
    finally:
        if os.getpid() == owner:
            # If garbage collection closes the iterator in one of its threads, do not wait for it.
            is_own_thread = threading.current_thread().name.startswith(_PREFETCH_THREAD)
            executor.shutdown(wait=not is_own_thread, cancel_futures=True)


#: Iterators with threads, closed before the interpreter tears down modules.
_open_iterators: weakref.WeakSet[Generator[object, None, None]] = weakref.WeakSet()


def close_at_exit(iterator: Generator[T, None, None]) -> Generator[T, None, None]:
    """Return ``iterator``, and close it when the interpreter exits if it is still in use."""
    _open_iterators.add(iterator)
    return iterator


@atexit.register
def _close_all() -> None:
    for iterator in list(_open_iterators):
        with contextlib.suppress(ValueError):  # a thread is inside it
            iterator.close()
