"""Memory of this process: used and free memory, limits, failed allocations, and the C heap."""

from __future__ import annotations

import ctypes
import re
import resource
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import OutOfResources, Step
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
    # The value of getrusage starts at the parent's.
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


def require_memory(needed: int, purpose: str, remedy: Step | Sequence[Step]) -> None:
    """Raise ``OutOfResources`` if ``needed`` bytes, an estimate, exceed the free memory."""
    free = free_host_memory()
    if needed > free:
        raise OutOfResources(
            f"{purpose} needs about {human_bytes(needed)} of memory; {human_bytes(free)} are free.",
            steps=remedy,
        )


def limit_memory(limit: int) -> None:
    """Let allocations of this process fail beyond ``limit`` bytes; on Linux, mapped files do not count."""
    hard_limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard_limit >= 0:
        limit = min(limit, hard_limit)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))


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


M_MMAP_THRESHOLD = -3  #: parameter in malloc.h
MIN_MAPPED_BLOCK = (
    1 << 20
)  #: size in bytes above which :func:`map_large_blocks_separately` maps blocks
MAX_FREE_HEAP = 1 << 32  #: bytes; limit of the free heap during training, see :class:`HeapBound`


def map_large_blocks_separately() -> None:
    """Let the C library map each block of :data:`MIN_MAPPED_BLOCK` or more separately from now on.

    By default, glibc allocates blocks up to 32 MiB from a heap, whose holes take 0.4 of the peak of
    a step on 100,000 nodes. Fresh pages cost such a step a quarter more processor time.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(M_MMAP_THRESHOLD, MIN_MAPPED_BLOCK)


def return_free_heap() -> None:
    """Return all free memory of the C library's heap to the operating system."""
    if malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        malloc_trim(0)


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
        """Return all free heap if it exceeds the limit."""
        if private_memory() <= self.limit:
            return
        return_free_heap()
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
