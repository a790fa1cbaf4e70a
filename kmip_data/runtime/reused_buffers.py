"""Buffers of large arrays that are reused by later batches and steps.

A batch of eight S3DIS graphs takes 17 MB. Mapping fresh pages for it costs more than filling them,
because the kernel zeroes each page at its first touch, and the C library returns freed blocks above
32 MB to the kernel at once. A buffer of :func:`reused_array` is reused as soon as its last tensor is
freed, and stays mapped.
"""

from __future__ import annotations

import math
import mmap
import weakref
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from kmip_data.arrays import U8, Array, DType

MIN_REUSED_BYTES = 1 << 20  #: below this size, ordinary allocation is as fast
#: limit of the free buffers of a process in bytes, raised by :func:`keep_used_buffers`
MAX_FREE_BUFFER_BYTES = 1 << 28

# Free buffers by size, and buffers in use by the id of the weak reference to their array. Each
# operation on them is atomic. The callback of a weak reference may run at any moment in any thread,
# and must not wait for a lock that its own thread may hold.
_free_buffers: defaultdict[int, deque[U8]] = defaultdict(deque)
_requested_sizes: dict[int, None] = {}  #: least recently requested first, which is released first
_used_buffers: dict[int, tuple[weakref.ref[Array], U8]] = {}
_kept_bytes = 0  #: free and used bytes to keep, even if more than MAX_FREE_BUFFER_BYTES are free


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
        buffer = _free_buffers[size].pop()
    except IndexError:
        _release_until_fits(size)
        buffer = _map_memory(size)
    array: Array = np.ndarray(shape, dtype, buffer)
    reference = weakref.ref(array, _return_buffer)
    _used_buffers[id(reference)] = (reference, buffer)
    return array


def free_buffer_bytes() -> int:
    """Return the bytes of free buffers kept for reuse."""
    return sum(size * len(buffers) for size, buffers in list(_free_buffers.items()))


def keep_used_buffers() -> None:
    """Keep at least the buffers in use now mapped for reuse, until :func:`release_buffers`.

    Call it at the memory peak of a training step: later steps then map no fresh pages.
    """
    global _kept_bytes
    _kept_bytes = max(_kept_bytes, _used_bytes())


def _used_bytes() -> int:
    return sum(buffer.size for _, buffer in list(_used_buffers.values()))


def release_buffers() -> None:
    """Return all free buffers to the operating system."""
    global _kept_bytes
    _kept_bytes = 0
    _free_buffers.clear()


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
    _, buffer = _used_buffers.pop(id(reference))
    _free_buffers[buffer.size].append(buffer)
    _release_until_fits()


def _release_until_fits(new_bytes: int = 0) -> None:
    """Release free buffers until ``new_bytes`` fit below the limit."""
    limit = max(MAX_FREE_BUFFER_BYTES, _kept_bytes - _used_bytes() - new_bytes)
    excess = free_buffer_bytes() - limit
    if excess <= 0:
        return
    for size in list(_requested_sizes):
        with suppress(IndexError):  # no free buffer of this size is left
            while excess > 0:
                _free_buffers[size].popleft()
                excess -= size
