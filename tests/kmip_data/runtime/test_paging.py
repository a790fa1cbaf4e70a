"""Pages of a mapped file that are requested ahead: the pages of the rows, and no others."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from kmip_data.runtime.paging import (
    PAGE_BYTES,
    SAMPLED_ROWS,
    _resident_fraction,
    is_cold,
    request_pages,
)


def shares(mapped, *rows):
    """Share of each group of rows that is in memory."""
    return [_resident_fraction(mapped.ctypes.data, 512, group, PAGE_BYTES) for group in rows]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="Linux alone drops a file's pages")
def test_only_pages_of_the_requested_rows_are_read(tmp_path):
    path = tmp_path / "rows"
    rng = np.random.default_rng(0)
    path.write_bytes(rng.bytes(4096 * PAGE_BYTES))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapped = np.memmap(path, np.uint8, "r")

    # Rows of two pages in eight; pages of the six others are never requested.
    pages = np.arange(4096).reshape(-1, 8)
    rows, others = (group.flatten() * (PAGE_BYTES // 512) for group in (pages[:, :2], pages[:, 2:]))
    rows = rng.permutation(rows)
    if shares(mapped, rows) != [0]:
        pytest.skip("this file system keeps the pages of its files")

    start = mapped.ctypes.data
    assert is_cold(start, 512, rows)
    assert not is_cold(start, 512, rows[: SAMPLED_ROWS - 1])  # too few to be worth it
    request_pages(start, 512, 512, np.sort(rows))
    deadline = time.monotonic() + 20
    while shares(mapped, rows) != [1] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert shares(mapped, rows, others) == [1, 0]
    assert not is_cold(start, 512, rows)
