"""Compiled kernel of :mod:`kmip_data.graphs.degree_profile`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kmip_data.runtime.compiled import njit_nogil


@njit_nogil()
def profile(
    source: NDArray[np.int64], target: NDArray[np.int64], degree: NDArray[np.int64], unbiased: bool
) -> NDArray[np.float32]:
    """Gather the out-degrees of the targets of each node; sums are of whole numbers, so exact."""
    nodes = len(degree)
    least = np.zeros(nodes, np.int64)
    most = np.zeros(nodes, np.int64)
    total = np.zeros(nodes, np.int64)
    square = np.zeros(nodes, np.int64)
    seen = np.zeros(nodes, np.bool_)
    for e in range(len(source)):
        i, d = source[e], degree[target[e]]
        least[i] = min(least[i], d) if seen[i] else d
        most[i] = max(most[i], d)
        total[i] += d
        square[i] += d * d
        seen[i] = True
    out = np.zeros((nodes, 5), np.float32)
    for i in range(nodes):
        n = degree[i]
        out[i, 0] = n
        if n == 0:
            continue
        spread = (n * square[i] - total[i] * total[i]) / n  # sum of squared differences from the mean
        out[i, 1], out[i, 2], out[i, 3] = least[i], most[i], total[i] / n
        if unbiased:
            out[i, 4] = np.sqrt(spread / (max(n - 1, 1) + 1e-6))
        elif spread / n > 1e-5:
            out[i, 4] = np.sqrt(spread / n)
    return out
