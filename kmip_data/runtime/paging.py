"""Prefetching of pages of memory-mapped files that are about to be read.

Reading scattered rows of a file that is not in memory causes one page fault after another: 5,000 to
8,000 rows a second here. If the pages are requested ahead, the disk works on many at a time: 75,000
rows a second.
"""

from __future__ import annotations

import mmap
import sys
from typing import Any

import numba.types
import numpy as np

from kmip_data.arrays import I64
from kmip_data.runtime.parallel import njit_nogil

types: Any = numba.types  # partially typed
#: Functions of the C library, called directly from compiled code.
_madvise = types.ExternalFunction("madvise", types.intc(types.uintp, types.uintp, types.intc))
_mincore = types.ExternalFunction("mincore", types.intc(types.uintp, types.uintp, types.uintp))

PAGE_BYTES = mmap.PAGESIZE
WILLNEED = int(getattr(mmap, "MADV_WILLNEED", 3))
#: Number of rows sampled to estimate how much of a file is in memory; requesting a resident page
#: costs 0.3 µs.
SAMPLED_ROWS = 256
RESIDENT_FRACTION = 0.98  #: resident fraction of sampled rows at which prefetching is skipped


def is_cold(start: int, stride: int, rows: I64) -> bool:
    """True if rows (n,) of a mapped file, at ``start + stride * row``, are not in memory, by a sample.

    False for fewer than 256 rows. Linux reports files of other users as resident.
    """
    if not sys.platform.startswith("linux") or len(rows) < SAMPLED_ROWS:
        return False
    return _resident_fraction(start, stride, rows, PAGE_BYTES) < RESIDENT_FRACTION


def request_pages(start: int, stride: int, width: int, rows: I64) -> None:
    """Request the pages of ``width`` bytes of each row (n,), without waiting; sorted rows are fastest."""
    _request_row_pages(start, stride, width, rows, PAGE_BYTES)


@njit_nogil()
def _resident_fraction(start: int, stride: int, rows: I64, page: int) -> float:
    status = np.ones(1, np.uint8)
    resident = 0
    for i in range(SAMPLED_ROWS):
        row = rows[i * len(rows) // SAMPLED_ROWS]
        address = (start + stride * row) // page * page
        _mincore(address, page, status.ctypes.data)
        resident += status[0] & 1
    return resident / SAMPLED_ROWS


@njit_nogil()
def _request_row_pages(start: int, stride: int, width: int, rows: I64, page: int) -> None:
    # Merge adjacent pages first … last into one request.
    first = -1
    last = -2
    for row in rows:
        address = start + stride * row
        first_of_row = address // page
        last_of_row = (address + width - 1) // page
        if first <= first_of_row <= last + 1:
            last = max(last, last_of_row)
            continue
        if first >= 0:
            _madvise(first * page, (last + 1 - first) * page, WILLNEED)
        first = first_of_row
        last = last_of_row
    if first >= 0:
        _madvise(first * page, (last + 1 - first) * page, WILLNEED)
