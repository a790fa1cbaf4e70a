"""Compiled kernel of :mod:`kmip_data.pipelines.formats.edge_text`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kmip_data.runtime.compiled import njit_nogil

DONE, BAD_LINE = 0, 1


@njit_nogil()
def parse(data: NDArray[np.uint8], at: int, limit: int, out: NDArray[np.int32]) -> tuple[int, int]:
    """Fill ``out`` (2, lines) with two numbers below ``limit`` a line from byte ``at`` on.

    Returns
    -------
    edges, status
        Complete lines read before the end or the bad one.
    """
    size = len(data)
    edge = 0
    while at < size:
        for column in range(2):
            while at < size and (data[at] == 32 or data[at] == 9):
                at += 1
            first, value = at, 0
            while at < size and 48 <= data[at] <= 57 and value < limit:
                value = value * 10 + data[at] - 48
                at += 1
            if at == first or value >= limit:
                return edge, BAD_LINE
            if column == 0 and (at == size or (data[at] != 32 and data[at] != 9)):
                return edge, BAD_LINE
            out[column, edge] = value
        while at < size and (data[at] == 32 or data[at] == 9 or data[at] == 13):
            at += 1
        if at < size and data[at] != 10:
            return edge, BAD_LINE
        at += 1
        edge += 1
    return edge, DONE
