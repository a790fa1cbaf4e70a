"""Memory of this process: used and free memory, failed allocations, and buffers reused by batches.

A batch of eight S3DIS graphs takes 17 MB. Fresh pages for it cost more than filling it (the kernel
zeroes each at its first touch), and the C library returns what is freed above 32 MB to the kernel
at once. A buffer of :func:`reused_array` comes back as soon as its last tensor is gone, and stays mapped.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import re
import resource
import sys
import tempfile
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np

from kmip_data.arrays import U8, Array, DType
from kmip_data.errors import OutOfResources
from kmip_data.text import human_bytes

GROUPS = Path("/sys/fs/cgroup")  #: control groups, version 2; ``memory`` in it: version 1
_NAMES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
MAPPED = 2**26  #: bytes from which :func:`mapped_copy` takes a file
_WORDS = re.compile(
    r"out of memory|can't allocate memory|not enough memory|bad_alloc", re.IGNORECASE
)


T = TypeVar("T")
_alive: list[object] | None = None  # objects of the CUDA graph that is being captured


@contextmanager
def keeping_alive_for_capture(objects: list[object]) -> Iterator[None]:
    """Append what :func:`keep_alive_for_capture` is called with to ``objects`` inside the block, in every thread.

    A captured CUDA graph knows addresses alone: tensors of caches must live as long as it does.
    """
    global _alive
    _alive = objects
    try:
        yield
    finally:
        _alive = None


def keep_alive_for_capture(plan: T) -> T:
    """Return ``plan``, which a cache may drop, and keep it alive for a CUDA graph being captured."""
    if _alive is not None:
        _alive.append(plan)
    return plan


def is_out_of_memory(error: BaseException | None) -> bool:
    """True if ``error`` is a failed allocation of a GPU, PyTorch, KeOps, Python or one of ours."""
    if isinstance(error, OutOfResources):
        return is_out_of_memory(error.__cause__)
    torch = sys.modules.get("torch")  # if torch is not loaded, it raised no error
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.cuda.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and _WORDS.search(str(error)) is not None


def peak_host_memory() -> int:
    """Return the peak resident set of this process in bytes, since it began."""
    # getrusage's figure begins at the figure of the process that started this one.
    with suppress(OSError):
        match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
        if match:
            return int(match[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def free_host_memory() -> int:
    """Return the bytes that this process can still allocate, within its limits and the system's."""
    import psutil

    available = int(psutil.virtual_memory().available)
    return max(0, min([available, *(limit - used for limit, used in _memory_limits())]))


def require_memory(needed: int, purpose: str, remedy: str) -> None:
    """Raise OutOfResources if an estimate of ``needed`` bytes is more than this process can get."""
    free = free_host_memory()
    if needed > free:
        raise OutOfResources(
            f"{purpose} needs about {human_bytes(needed)} of memory; {human_bytes(free)} are free.",
            next=remedy,
        )


def limit_memory(most: int) -> None:
    """Let allocations of this process fail beyond ``most`` bytes.

    Mapped files do not count (Linux).
    """
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


def half_of_memory() -> int:
    """Return half of the bytes of memory that the machine has."""
    import psutil

    return int(psutil.virtual_memory().total) // 2


def mapped_copy(values: Array, folder: Path) -> Array:
    """Return a large array (n, …) mapped from a nameless file in ``folder``: the system can page it out.

    Raises ``OSError`` where the disk is full, before anything is mapped.
    """
    if values.nbytes < MAPPED:
        return values
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(np.ascontiguousarray(values).data)
        file.flush()
        return np.memmap(file, values.dtype, "r+", shape=values.shape).view(np.ndarray)


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Limits of this process and their use, by ``ulimit`` and by control groups."""
    import psutil

    held = psutil.Process().memory_info()
    for resource_limit, used in (
        (resource.RLIMIT_AS, held.vms),
        (resource.RLIMIT_DATA, getattr(held, "data", 0)),
    ):
        if (limit := resource.getrlimit(resource_limit)[0]) != resource.RLIM_INFINITY:
            yield limit, used
    for group in (GROUPS, GROUPS / "memory"):
        for names in _NAMES:
            with suppress(OSError, ValueError):  # no such group, or no limit ("max")
                limit, used = (int((group / name).read_text("ascii")) for name in names)
                stat = dict(
                    line.split() for line in (group / "memory.stat").read_text("ascii").splitlines()
                )
                # Pages of files are given up first: they do not count as memory in use.
                yield limit, used - int(stat.get("inactive_file", 0))


SMALLEST = 1 << 20  #: bytes; below, ordinary allocation is as fast
M_MMAP_THRESHOLD = -3  #: parameter in malloc.h
MAX_FREE_HEAP = 1 << 32  #: bytes; most free heap that a training holds, see :class:`HeapBound`
#: bytes of free buffers that a process keeps at most, see :func:`keep_used_memory`
MAX_FREE_BUFFERS = 1 << 28

# Free buffers by size, and the buffers in use by the identity of the weak reference to their array.
# Each step on them is atomic, so that the callback of a weak reference, which may run at any moment
# in any thread, needs no lock (and can never wait for one that its own thread holds).
_free: defaultdict[int, deque[U8]] = defaultdict(deque)
_requested: dict[int, None] = {}  #: sizes, the one requested last at the end; the first goes first
_used: dict[int, tuple[weakref.ref[Array], U8]] = {}
_most = 0  #: bytes, free and used, up to which more than MAX_FREE_BUFFERS may be free


def reused_array(shape: Sequence[int], dtype: DType) -> Array:
    """Return an uninitialised array, reusing a free buffer if possible.

    ``torch.from_numpy`` of the array itself (not of a view of it) holds the buffer for the life of
    the tensor's storage, whatever views are taken of the tensor.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < SMALLEST:
        return np.empty(shape, dtype)
    # Rounded up to a multiple of an eighth of the power of two below: at most 12.5 % is wasted.
    step = 1 << max(12, nbytes.bit_length() - 4)
    size = -(-nbytes // step) * step
    _requested.pop(size, None)
    _requested[size] = None
    try:
        buffer = _free[size].pop()
    except IndexError:
        _release_until_fits(size)
        buffer = _map_memory(size)
    array: Array = np.ndarray(shape, dtype, buffer)
    reference = weakref.ref(array, _return_buffer)
    _used[id(reference)] = (reference, buffer)
    return array


def free_buffer_bytes() -> int:
    """Return the bytes of free buffers kept for reuse."""
    return sum(size * len(buffers) for size, buffers in list(_free.items()))


def keep_used_memory() -> None:
    """Keep as much free memory for reuse as is in use now, until :func:`release_buffers`.

    Called where a training step has the most, it makes later steps find all of it mapped.
    """
    global _most
    _most = max(_most, _used_bytes())


def _used_bytes() -> int:
    return sum(buffer.size for _, buffer in list(_used.values()))


def return_freed_memory() -> None:
    """Let the C library map each block of :data:`SMALLEST` bytes or more separately from now on.

    By default glibc takes blocks up to 32 MiB from a heap, whose holes are 0.4 of the peak of a
    step on 100,000 nodes. A step there takes a quarter more processor time for its fresh pages.
    """
    if sys.platform == "linux" and (option := getattr(ctypes.CDLL(None), "mallopt", None)):
        option(M_MMAP_THRESHOLD, SMALLEST)


class HeapBound:
    """Bound of the free memory that the C library's heap holds between two training steps.

    Batches of small graphs differ in size, so tensors of one step do not fit the holes of the last:
    of a network that needs 1.3 GB, 40 steps held 3.2 GB and 300 steps 6.3 GB. Returning the holes
    costs the next step their pages, 0.2 to 1 s, so it is done seldom: each time that more than
    :data:`MAX_FREE_HEAP`, or a quarter of the free memory where that is less, has gathered.
    """

    def __init__(self) -> None:
        self.slack = min(MAX_FREE_HEAP, free_host_memory() // 4)
        self.limit = private_memory() + self.slack

    def return_excess(self) -> None:
        """Return all free heap to the operating system if too much of it has gathered."""
        if private_memory() <= self.limit:
            return
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)
        self.limit = private_memory() + self.slack


def private_memory() -> int:
    """Return the resident bytes of this process without mapped files."""
    import psutil

    held = psutil.Process().memory_info()
    return int(held.rss - getattr(held, "shared", 0))


def mapped_memory() -> int:
    """Return the resident bytes of mapped files; 0 where the system does not report them."""
    import psutil

    return int(getattr(psutil.Process().memory_info(), "shared", 0))


def release_buffers() -> None:
    """Return all free buffers to the operating system."""
    global _most
    _most = 0
    _free.clear()


def _map_memory(size: int) -> U8:
    try:  # private: Python's default is memory shared with forked children, whose writes would show here
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no {size:,} bytes of memory: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _return_buffer(reference: weakref.ref[Array]) -> None:
    _, buffer = _used.pop(id(reference))
    _free[buffer.size].append(buffer)
    _release_until_fits()


def _release_until_fits(more: int = 0) -> None:
    """Release free buffers until ``more`` bytes fit below the limit."""
    excess = free_buffer_bytes() - max(MAX_FREE_BUFFERS, _most - _used_bytes() - more)
    if excess <= 0:
        return
    for size in list(_requested):
        with suppress(IndexError):
            while excess > 0:
                _free[size].popleft()
                excess -= size
