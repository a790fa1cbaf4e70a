"""Compiled kernels of :mod:`kmip_data.graphs.knn`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = NDArray[np.float32]


@njit(nogil=True, cache=True)
def brute_force(xs: F32, ys: F32, zs: F32, table: NDArray[np.int32], start: int, stop: int) -> Any:
    """Fill rows ``start`` to ``stop`` of ``table`` (N, k) by comparing each point with all others."""
    n, k = table.shape
    best = np.empty(k, np.float32)
    for i in range(start, stop):
        count = 0
        for j in range(n):
            if j == i:
                continue
            dx, dy, dz = xs[i] - xs[j], ys[i] - ys[j], zs[i] - zs[j]
            d = (dx * dx + dy * dy) + dz * dz
            if count == k and not d < best[k - 1]:
                continue
            at = count if count < k else k - 1
            while at > 0 and d < best[at - 1]:
                best[at] = best[at - 1]
                table[i, at] = table[i, at - 1]
                at -= 1
            best[at] = d
            table[i, at] = j
            count = min(count + 1, k)
