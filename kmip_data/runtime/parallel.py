"""Threads and processes: compiled kernels and their pool, work done ahead, ``kmip-data`` as a child.

The pool is made on first use, made again after a fork, and has one thread inside a PyTorch
data-loader worker. Where PyTorch is loaded its own threads run kernels instead of the pool's: between
two operations they spin for milliseconds and leave a pool half of each core. Kernels are
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
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from kmip_data.errors import UsageError
from kmip_data.runtime import compiling

F = TypeVar("F", bound=Callable[..., object])

_pool: ThreadPoolExecutor | None = None
_limit: int | None = None
_lock = threading.Lock()
_here = threading.local()  #: ``busy`` is set in a thread that runs ranges
_forked = False  #: True in a child, which has no threads of PyTorch


def available_cores() -> int:
    """Return the cores this process may use (its CPU affinity, not the machine's count)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(count: int | None) -> None:
    """Limit compiled kernels to ``count`` threads; ``None`` goes back to all available cores."""
    global _limit
    if count is not None and count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    _limit = count


@contextlib.contextmanager
def restore_thread_limit() -> Iterator[None]:
    """Put the limit of :func:`set_num_threads` back afterwards, whatever the block sets it to."""
    before = _limit
    try:
        yield
    finally:
        set_num_threads(before)


def num_threads() -> int:
    """Return the threads of :func:`run_in_ranges`: the limit, one in a loader worker, else all cores."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        return 1
    return _limit if _limit is not None else available_cores()


def run_in_ranges(
    function: Callable[[int, int], object],
    total: int,
    *,
    grain: int = 1,
    most: int | None = None,
) -> None:
    """Call ``function(start, stop)`` for ranges that cover the rows ``0 … total``, on all threads.

    ``function`` writes its results in place, and must release the GIL to gain anything. After an
    exception no further range begins, and it is raised here once those that have begun end.
    ``grain`` is the fewest rows worth a range of their own; below it everything runs in the caller's
    thread, and so does a call from inside ``function``. ``most`` is the most rows of one range: an
    interrupt (Ctrl-C) takes effect between ranges; what has begun ends.
    """
    worth = total // max(1, grain)
    threads = min(num_threads(), max(1, worth))
    # A range that waits for further ranges may hold the last thread they could run in.
    if getattr(_here, "busy", False):
        threads = 1
    # A few ranges per thread even out rows of unequal cost.
    pieces = 1
    if threads > 1:
        pieces = min(threads * 4, max(threads, worth))
    if most is not None:
        pieces = max(pieces, -(-total // max(1, most)))
    edges = [total * i // pieces for i in range(pieces + 1)]
    ranges = iter([(a, b) for a, b in pairwise(edges) if a < b])
    if threads <= 1:
        for a, b in ranges:
            function(a, b)
        return

    errors = []

    def work(*_: object) -> None:
        """Take one range after the other until none is left."""
        _here.busy = True
        try:
            for a, b in ranges:
                function(a, b)
        except BaseException as error:  # noqa: BLE001 -- raised below; also an interrupt
            errors.append(error)
            deque(ranges, 0)  # no other range begins
        finally:
            _here.busy = False

    try:
        _call_on_threads(work, threads)
    except BaseException:
        deque(ranges, 0)
        raise
    if errors:
        raise errors[0]


def _call_on_threads(work: Callable[..., None], threads: int) -> None:
    """Call ``work`` in ``threads`` threads: the caller and PyTorch's, or the pool's."""
    openmp = _openmp_of_torch(threads)
    if openmp is None:
        pool = _get_pool()
        wait([pool.submit(work) for _ in range(threads)])
        return

    # 1. The other threads of the region begin: each enters Python by the callback.
    # 2. The caller, which is one of them, takes ranges as well.
    # 3. The region ends when all have: also after an interrupt, as a region left open would hold
    #    PyTorch's threads, and the callback lives no longer than this function.
    body = _BODY(work)
    try:
        openmp.GOMP_parallel_start(body, None, threads)
        work()
    finally:
        openmp.GOMP_parallel_end()


#: Body of a parallel region of OpenMP.
_BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _openmp_of_torch(threads: int) -> ctypes.CDLL | None:
    """Return the OpenMP library of PyTorch, or None where its threads cannot be had.

    A forked child has lost them, another thread than the main one would get new ones, and so would
    another number of threads than PyTorch's.
    """
    torch = sys.modules.get("torch")
    if _forked or torch is None or not hasattr(torch, "get_num_threads"):  # imported in part
        return None
    if torch.get_num_threads() != threads:
        return None
    if threading.current_thread() is not threading.main_thread():
        return None
    return _openmp_of(torch._C.__file__)  # noqa: SLF001


@functools.cache
def _openmp_of(module: str) -> ctypes.CDLL | None:
    """Return the OpenMP library that an extension module links to; None: it has other entry points."""
    library = ctypes.CDLL(module)
    return library if hasattr(library, "GOMP_parallel_start") else None


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None or _pool._max_workers < num_threads():  # noqa: SLF001
            _pool = ThreadPoolExecutor(num_threads(), thread_name_prefix="kmip-data")
        return _pool


def _reset_after_fork() -> None:
    # A child process has neither the threads of the pool nor the thread that may have held the
    # lock. Its only thread belongs to no pool.
    global _pool, _lock, _forked
    _pool = None
    _lock = threading.Lock()
    _here.busy = False
    _forked = True


os.register_at_fork(after_in_child=_reset_after_fork)


def njit_nogil(**options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles with :func:`numba.njit` and ``options``, releasing the GIL.

    The machine code is cached next to the source or in the user's cache folder. Where neither can
    be written to (a read-only install and no home folder) numba refuses to cache at all; then the
    function is compiled once per process.
    """
    from numba import njit  # half a second, which commands without kernels do not pay

    _watch_compilations()

    def compile_it(function: F) -> F:
        try:
            compiled: Any = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # "no locator available"
            return cast("F", njit(nogil=True, **options)(function))
        # A compiled kernel includes the kernels that it calls, but numba only checks its own file.
        # (The version is compared first: a cached index may name a class that no longer exists.)
        file = compiled._cache._cache_file  # noqa: SLF001
        file._version = (file._version, _newest_kernel_time())  # noqa: SLF001
        return cast("F", compiled)

    return compile_it


_watch_compilations = functools.cache(compiling.watch_numba)


@functools.cache
def _newest_kernel_time() -> int:
    """Time in nanoseconds of the newest source file of the package with compiled kernels."""
    package = Path(__file__).resolve().parents[1]
    newest = 0
    # Path.rglob does not enter the links of a checkout.
    for name in glob.iglob(f"{package}/**/*.py", recursive=True):  # noqa: PTH207
        source = Path(name)
        if b"njit_nogil" in source.read_bytes():
            newest = max(newest, source.stat().st_mtime_ns)
    return newest


T = TypeVar("T")
R = TypeVar("R")

_NAME = "kmip-data-ahead"


def prepare_ahead(
    items: Iterable[T],
    make: Callable[[T], R],
    *,
    threads: int,
    depth: int,
) -> Iterator[R]:
    """Yield ``make(item)`` for each item in order, up to ``depth`` of them made ahead in the background.

    ``make`` profits from threads as far as it releases the GIL. An exception is raised at the
    position of its item. The threads end when the iterator is exhausted, closed or collected. A
    child that was forked while the iterator was in use has none of them: a ``UsageError`` there.
    """
    # Submit items until ``depth`` results wait; yield the oldest, so the order never depends on the
    # threads.
    executor = ThreadPoolExecutor(threads, thread_name_prefix=_NAME)
    owner = os.getpid()
    waiting: deque[Future[R]] = deque()

    def oldest() -> R:
        if os.getpid() != owner:
            raise UsageError(
                f"This iterator was begun by process {owner}, and {os.getpid()} is a fork of it.",
                next="begin a new one in the fork",
            )
        return waiting.popleft().result()

    try:
        for item in items:
            waiting.append(executor.submit(make, item))
            if len(waiting) > depth:
                yield oldest()
        while waiting:
            yield oldest()
    finally:
        if os.getpid() == owner:
            # Garbage collection in one of the threads may close the iterator; it must not wait for
            # itself.
            inside = threading.current_thread().name.startswith(_NAME)
            executor.shutdown(wait=not inside, cancel_futures=True)


#: Iterators that have threads, to be closed before the interpreter takes the modules apart.
_open: weakref.WeakSet[Generator[object, None, None]] = weakref.WeakSet()


def close_at_exit(iterator: Generator[T, None, None]) -> Generator[T, None, None]:
    """Return ``iterator``, which is closed when the interpreter exits, if it is still in use then."""
    _open.add(iterator)
    return iterator


@atexit.register
def _close_all() -> None:
    for iterator in list(_open):
        with contextlib.suppress(ValueError):  # a thread is inside it
            iterator.close()


PROGRAM = (sys.executable, "-m", "kmip_data")  #: the same as ``kmip-data``


def start_process(
    arguments: Sequence[str], output: IO[bytes], *, share: int = 1, **environment: str
) -> subprocess.Popen[bytes]:
    """Start ``kmip-data`` as a process without input that writes into ``output``.

    It uses 1/``share`` of the cores unless ``OMP_NUM_THREADS`` is set. Ctrl-C does not reach it: the
    caller ends it, once.
    """
    variables = {**os.environ, **environment}
    if share > 1:
        variables.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // share)))
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=variables,
        start_new_session=True,
    )
