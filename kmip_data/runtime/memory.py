"""Memory of this process: used and free memory, failed allocations, and reusable buffers of batches.

A batch of eight S3DIS graphs takes 17 MB. Mapping fresh pages for it costs more than filling them,
because the kernel zeroes each page at its first touch, and the C library returns freed blocks above
32 MB to the kernel at once. A buffer of :func:`reused_array` is reused as soon as its last tensor is
freed, and stays mapped.
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

CGROUPS = Path("/sys/fs/cgroup")  #: control groups: version 2 here, version 1 in ``memory``
#: names of the files of limit and usage, in versions 2 and 1
_CGROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
MIN_MAPPED_BYTES = 2**26  #: smallest array that :func:`mapped_copy` writes to a file
_OUT_OF_MEMORY = re.compile(
    r"out of memory|can't allocate memory|not enough memory|bad_alloc", re.IGNORECASE
)


T = TypeVar("T")
_kept_for_capture: list[object] | None = None  # set while a CUDA graph is captured


@contextmanager
def keeping_alive_for_capture(objects: list[object]) -> Iterator[None]:
    """Collect the arguments of :func:`keep_alive_for_capture`, of all threads, in ``objects``.

    A captured CUDA graph stores only addresses, so cached tensors must live as long as the graph.
    """
    global _kept_for_capture
    _kept_for_capture = objects
    try:
        yield
    finally:
        _kept_for_capture = None


def keep_alive_for_capture(cached: T) -> T:
    """Return ``cached`` unchanged; keep it alive for the CUDA graph being captured, if any."""
    if _kept_for_capture is not None:
        _kept_for_capture.append(cached)
    return cached


def is_out_of_memory(error: BaseException | None) -> bool:
    """True if ``error`` is a failed allocation of a GPU, PyTorch, KeOps, Python or this package."""
    if isinstance(error, OutOfResources):
        return is_out_of_memory(error.__cause__)
    torch = sys.modules.get("torch")  # not imported: an unloaded torch raises no error
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.cuda.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None


def peak_host_memory() -> int:
    """Return the peak resident set size of this process in bytes."""
    # The value of getrusage starts at that of the parent process.
    with suppress(OSError):
        match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
        if match:
            return int(match[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def free_host_memory() -> int:
    """Return the bytes that this process can still allocate within all limits."""
    import psutil

    available = int(psutil.virtual_memory().available)
    return max(0, min([available, *(limit - used for limit, used in _memory_limits())]))


def require_memory(needed: int, purpose: str, remedy: str) -> None:
    """Raise ``OutOfResources`` if ``needed`` bytes, an estimate, exceed the free memory."""
    free = free_host_memory()
    if needed > free:
        raise OutOfResources(
            f"{purpose} needs about {human_bytes(needed)} of memory; {human_bytes(free)} are free.",
            next=remedy,
        )


def limit_memory(limit: int) -> None:
    """Let allocations of this process fail beyond ``limit`` bytes; on Linux, mapped files do not count."""
    hard_limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard_limit >= 0:
        limit = min(limit, hard_limit)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))


def half_of_memory() -> int:
    """Return half of the machine's memory in bytes."""
    import psutil

    return int(psutil.virtual_memory().total) // 2


def mapped_copy(values: Array, folder: Path) -> Array:
    """Copy a large array (n, …) to an unnamed mapped file in ``folder``, so that it can be paged out.

    Small arrays are returned unchanged. Raises ``OSError`` if the disk is full.
    """
    if values.nbytes < MIN_MAPPED_BYTES:
        return values
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(np.ascontiguousarray(values).data)
        file.flush()
        return np.memmap(file, values.dtype, "r+", shape=values.shape).view(np.ndarray)


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Yield limit and usage in bytes of each ``ulimit`` and control group of this process."""
    import psutil

    memory_info = psutil.Process().memory_info()
    for resource_limit, used in (
        (resource.RLIMIT_AS, memory_info.vms),
        (resource.RLIMIT_DATA, getattr(memory_info, "data", 0)),
    ):
        if (limit := resource.getrlimit(resource_limit)[0]) != resource.RLIM_INFINITY:
            yield limit, used
    for group in (CGROUPS, CGROUPS / "memory"):
        for names in _CGROUP_FILES:
            with suppress(OSError, ValueError):  # no such group, or no limit ("max")
                limit, used = (int((group / name).read_text("ascii")) for name in names)
                stat = dict(
                    line.split() for line in (group / "memory.stat").read_text("ascii").splitlines()
                )
                # Inactive pages of files are evicted first: they are free memory.
                yield limit, used - int(stat.get("inactive_file", 0))


MIN_REUSED_BYTES = 1 << 20  #: below this size, ordinary allocation is as fast
M_MMAP_THRESHOLD = -3  #: parameter in malloc.h
MAX_FREE_HEAP = 1 << 32  #: bytes; limit of the free heap during training, see :class:`HeapBound`
#: limit of the free buffers of a process in bytes, raised by :func:`keep_used_memory`
MAX_FREE_BUFFERS = 1 << 28

# Free buffers by size, and buffers in use by the id of the weak reference to their array. Each
# operation on them is atomic. The callback of a weak reference may run at any moment in any thread,
# and must not wait for a lock that its own thread may hold.
_free: defaultdict[int, deque[U8]] = defaultdict(deque)
_requested_sizes: dict[int, None] = {}  #: least recently requested first, which is released first
_used: dict[int, tuple[weakref.ref[Array], U8]] = {}
_kept_bytes = 0  #: free and used bytes to keep, even if more than MAX_FREE_BUFFERS are free


def reused_array(shape: Sequence[int], dtype: DType) -> Array:
    """Return an uninitialised array, reusing a free buffer if possible.

    ``torch.from_numpy`` of the array itself, not of a view, holds the buffer as long as any view of
    the tensor exists.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < MIN_REUSED_BYTES:
        return np.empty(shape, dtype)
    # Round up to a multiple of an eighth of the next lower power of two: at most 12.5 % is wasted.
    step = 1 << max(12, nbytes.bit_length() - 4)
    size = -(-nbytes // step) * step
    _requested_sizes.pop(size, None)
    _requested_sizes[size] = None
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
    """Keep at least the buffers in use now mapped for reuse, until :func:`release_buffers`.

    Call it at the memory peak of a training step: later steps then map no fresh pages.
    """
    global _kept_bytes
    _kept_bytes = max(_kept_bytes, _used_bytes())


def _used_bytes() -> int:
    return sum(buffer.size for _, buffer in list(_used.values()))


def return_freed_memory() -> None:
    """Let the C library map each block of :data:`MIN_REUSED_BYTES` or more separately from now on.

    By default, glibc allocates blocks up to 32 MiB from a heap, whose holes take 0.4 of the peak of
    a step on 100,000 nodes. Fresh pages cost such a step a quarter more processor time.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(M_MMAP_THRESHOLD, MIN_REUSED_BYTES)


class HeapBound:
    """Limit of the free memory in the C library's heap between two training steps.

    Batches of small graphs differ in size, so tensors do not fit the holes left by the previous
    step. A network that needs 1.3 GB held 3.2 GB after 40 steps and 6.3 GB after 300. Returning the
    holes costs the next step 0.2 to 1 s for fresh pages, so it is done rarely: when more than
    :data:`MAX_FREE_HEAP`, or a quarter of the free memory if that is less, has accumulated.
    """

    def __init__(self) -> None:
        self.slack = min(MAX_FREE_HEAP, free_host_memory() // 4)
        self.limit = private_memory() + self.slack

    def return_excess(self) -> None:
        """Return all free heap to the operating system if it exceeds the limit."""
        if private_memory() <= self.limit:
            return
        if malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            malloc_trim(0)
        self.limit = private_memory() + self.slack


def private_memory() -> int:
    """Return the resident bytes of this process without mapped files."""
    import psutil

    memory_info = psutil.Process().memory_info()
    return int(memory_info.rss - getattr(memory_info, "shared", 0))


def mapped_memory() -> int:
    """Return the resident bytes of mapped files; 0 if the system does not report them."""
    import psutil

    return int(getattr(psutil.Process().memory_info(), "shared", 0))


def release_buffers() -> None:
    """Return all free buffers to the operating system."""
    global _kept_bytes
    _kept_bytes = 0
    _free.clear()


def _map_memory(size: int) -> U8:
    try:  # MAP_PRIVATE: by default, Python shares the memory with forked children
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


def _release_until_fits(new_bytes: int = 0) -> None:
    """Release free buffers until ``new_bytes`` fit below the limit."""
    limit = max(MAX_FREE_BUFFERS, _kept_bytes - _used_bytes() - new_bytes)
    excess = free_buffer_bytes() - limit
    for size in list(_requested_sizes):
        with suppress(IndexError):  # no free buffer of this size is left
            while excess > 0:
                _free[size].popleft()
                excess -= size
