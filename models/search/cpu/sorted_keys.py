"""Keys of one graph, sorted by length after subtracting their mean, so that scans can end early.

Subtracting the mean does not change the rankings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, F64, I64
from kmip_data.runtime.parallel import njit_nogil

LEAF = 16  #: keys of one SIMD register


class KeysByLength(NamedTuple):
    """Order of shifted keys by length, and their scale."""

    order: I64  #: (M,) rows, the longest key first
    length: F64  #: (M,) length of each row
    centre: F64  #: (d,) mean of the keys
    scale: float  #: length of the longest shifted key
    longest: float  #: length of the longest unshifted key
    factor: float  #: scales the longest shifted key to length 1
    max_length: F32  #: (M / 16,) bound on the scaled lengths of each 16 keys and all later ones


def sort_by_length(keys: F32) -> KeysByLength:
    """Sort keys (M, d) by length, M ≥ 1; takes about 8 · M bytes besides the result."""
    centre = np.zeros(keys.shape[1])
    length = np.empty(len(keys))
    longest = _measure_lengths(keys, centre, length)
    order = np.argsort(-length)
    scale = float(length[order[0]])
    factor = 1 / scale if scale else 0.0
    max_length = length[order[::LEAF]] * factor * (1 + 1e-6)  # more than the rounding
    return KeysByLength(
        order, length, centre, scale, longest, factor, max_length.astype(np.float32)
    )


@njit_nogil(fastmath={"reassoc", "contract", "nsz", "nnan"}, error_model="numpy")
def _measure_lengths(keys: F32, centre: F64, length: F64) -> float:
    """Write the mean of the keys and their shifted lengths; return the length of the longest key."""
    count, dim = keys.shape
    for row in range(count):
        for c in range(dim):
            centre[c] += np.float64(keys[row, c])
    for c in range(dim):
        centre[c] /= count

    longest = 0.0
    for row in range(count):
        total = 0.0
        square = 0.0
        for c in range(dim):
            value = np.float64(keys[row, c])
            total += value * value
            square += (value - centre[c]) ** 2
        longest = max(longest, total)
        length[row] = np.sqrt(square)
    return float(np.sqrt(longest))
