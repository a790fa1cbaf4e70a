"""Tree of cones over the keys of one graph, by which a search skips most of them.

Keys are shifted by their mean, which changes no ranking, and scaled so that the longest has length
1. Sorted by length they are cut into shells of :data:`SHELL`; within a shell their directions are
halved at the median of the coordinate that varies most, down to leaves of 16 keys, one SIMD
register. 16 leaves are a twig, 16 twigs a branch. A leaf and a twig know a cone that holds their
directions and the length R of their longest key: what the inner product with a query can reach
follows from the angle between query and cone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, F64, I32, I64
from kmip_data.runtime.threads import for_ranges, njit_nogil

LEAF = 16  #: keys of a leaf
TWIG = 16 * LEAF  #: keys of a twig
BRANCH = 16 * TWIG  #: keys of a branch
SHELL = 2048  #: keys of similar length whose directions are halved
CONE = 4  # numbers of a cone besides its axis: cosine and R cosine of its half-angle, R sine, R


class Tree(NamedTuple):
    """Keys and cones by leaves, twigs and branches; NaN behind the last key."""

    points: F32  #: (leaves, d, 16) flat: shifted and scaled keys
    number: I32  #: (leaves, 16) flat: row of each key in its graph, −1 if none
    leaf: F32  #: (twigs, d + 4, 16) flat: axis and :data:`CONE` numbers of each leaf
    twig: F32  #: (branches, d + 4, 16) flat: the same of each twig
    place: I32  #: (M,) position of each key in ``number``; empty unless requested
    reach: F32  #: (leaves,) see :attr:`ByLength.reach`; holds at the first leaf of a shell
    dim: int
    keys: int  #: M
    scale: float  #: a shifted key has at most this length
    longest: float  #: length of the longest key as it was given


class ByLength(NamedTuple):
    """Order of keys by length, once shifted, and how they are scaled."""

    order: I64  #: (M,) rows, the longest key first
    length: F64  #: (M,) of each row
    centre: F64  #: (d,) mean of the keys
    scale: float  #: a shifted key has at most this length
    longest: float  #: length of the longest key as it was given

    @property
    def factor(self) -> float:
        """Factor that scales the longest key to length 1."""
        return 1 / self.scale if self.scale else 0.0

    @property
    def reach(self) -> F32:
        """Bound on the scaled lengths of each 16 keys and of all behind, (M / 16,)."""
        first = self.length[self.order[::LEAF]] * self.factor
        return (first * (1 + 1e-6)).astype(np.float32)  # 1e-6: more than the rounding


def by_length(keys: F32) -> ByLength:
    """Sort (M, d) keys by length, M ≥ 1. Takes about 8 · M bytes besides the result."""
    centre = np.zeros(keys.shape[1])
    length = np.empty(len(keys))
    longest = _measure(keys, centre, length)
    order = np.argsort(-length)
    return ByLength(order, length, centre, float(length[order[0]]), longest)


@njit_nogil(fastmath={"reassoc", "contract", "nsz", "nnan"}, error_model="numpy")
def _measure(keys: F32, centre: F64, length: F64) -> float:
    """Set the mean of the keys and their lengths once shifted; return that of the longest as given."""
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


def grow(keys: F32, sorted_keys: ByLength, *, cones: bool = True, places: bool = False) -> Tree:
    """Build the tree of (M, d) keys.

    Without ``cones`` keys are by length alone; with ``places`` a search can take a hint. Takes
    about 8 · M · d bytes besides the result.
    """
    count, dim = keys.shape
    leaves = -(-count // LEAF)
    twigs = -(-count // TWIG)
    branches = -(-count // BRANCH)
    tree = Tree(
        points=np.empty((leaves + 3) * dim * 16, np.float32),
        number=np.full(leaves * 16, -1, np.int32),
        leaf=np.full(cones * twigs * (dim + CONE) * 16, np.nan, np.float32),
        twig=np.full(cones * branches * (dim + CONE) * 16, np.nan, np.float32),
        place=np.empty(count if places else 0, np.int32),
        reach=sorted_keys.reach,
        dim=dim,
        keys=count,
        scale=sorted_keys.scale,
        longest=sorted_keys.longest,
    )
    tree.points[-4 * dim * 16 :] = np.nan

    order = sorted_keys.order
    centre = sorted_keys.centre
    factor = sorted_keys.factor
    for_ranges(
        lambda start, stop: _grow_shells(keys, order, centre, factor, tree, start, stop),
        -(-count // SHELL),
        grain=4,
    )
    return tree


@njit_nogil(error_model="numpy")
def _grow_shells(
    keys: F32,
    order: I64,
    centre: F64,
    factor: float,
    tree: Tree,
    start: int,
    stop: int,
) -> None:
    dim = keys.shape[1]
    rows = np.empty((SHELL, dim), np.float32)
    direction = np.empty((SHELL, dim), np.float32)
    index = np.empty(SHELL, np.int64)
    value = np.empty(SHELL, np.float32)
    axis = np.empty(dim)
    for shell in range(start, stop):
        first = shell * SHELL
        n = min(SHELL, len(order) - first)

        # 1. Shift, scale and normalise the next 2048 keys by length.
        for i in range(n):
            index[i] = i
            square = 0.0
            for c in range(dim):
                rows[i, c] = (keys[order[first + i], c] - centre[c]) * factor
                square += np.float64(rows[i, c]) ** 2
            inverse = 1 / np.sqrt(square) if square > 0 else 0.0
            for c in range(dim):
                direction[i, c] = rows[i, c] * inverse

        # 2. Bring similar directions together.
        if len(tree.leaf):
            _halve(direction, index, value, n)

        # 3. Store the keys by leaves of 16, one lane a key.
        for i in range(n):
            position = first + i
            offset = (position // 16) * dim * 16 + position % 16
            for c in range(dim):
                tree.points[offset + c * 16] = rows[index[i], c]
            key = order[first + index[i]]
            tree.number[position] = key
            if len(tree.place):
                tree.place[key] = position

        # 4. A cone about each leaf and each twig.
        if not len(tree.leaf):
            continue
        for i in range(0, n, LEAF):
            stop_key = min(i + LEAF, n)
            _cone(rows, direction, index, i, stop_key, axis, tree.leaf, (first + i) // LEAF)
        for i in range(0, n, TWIG):
            stop_key = min(i + TWIG, n)
            _cone(rows, direction, index, i, stop_key, axis, tree.twig, (first + i) // TWIG)


@njit_nogil(error_model="numpy")
def _halve(direction: F32, index: I64, value: F32, n: int) -> None:
    """Order ``index`` so that halves, quarters … are apart in the coordinate that varies most."""
    dim = direction.shape[1]
    mean = np.empty(dim, np.float32)
    spread = np.empty(dim, np.float32)
    # Top down: 2048 keys of a shell into halves, quarters … of 16, at the median of the widest
    # coordinate: a principal axis would take a covariance for each part.
    size = LEAF
    while size < n:
        size *= 2
    while size > LEAF:
        for low in range(0, n, size):
            high = min(low + size, n)
            middle = low + size // 2
            if middle >= high:
                continue
            # 1. Sums and sums of squares of each coordinate, in one pass.
            mean[:] = 0
            spread[:] = 0
            for i in range(low, high):
                row = direction[index[i]]
                for c in range(dim):
                    mean[c] += row[c]
                    spread[c] += row[c] * row[c]
            # 2. The widest coordinate.
            widest = 0
            for c in range(dim):
                spread[c] -= mean[c] * mean[c] / np.float32(high - low)
                if spread[c] > spread[widest]:
                    widest = c
            # 3. Its median divides the part: linear work, where sorting is not.
            for i in range(low, high):
                value[i] = direction[index[i], widest]
            _select(value, index, low, high - 1, middle)
        size //= 2


@njit_nogil(error_model="numpy")
def _select(
    value: F32,
    index: I64,
    low: int,
    high: int,
    nth: int,
) -> None:
    """Hoare's selection: nothing before ``nth`` is larger than it, nothing after it smaller."""
    while low < high:
        middle = (low + high) // 2
        # The median of three: sorted data would cost a first-element pivot a quadratic time.
        a = value[low]
        b = value[middle]
        c = value[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while value[i] < pivot:
                i += 1
            while value[j] > pivot:
                j -= 1
            if i <= j:
                value[i], value[j] = value[j], value[i]
                index[i], index[j] = index[j], index[i]
                i += 1
                j -= 1
        if nth <= j:
            high = j
        elif nth >= i:
            low = i
        else:
            return


@njit_nogil(error_model="numpy")
def _cone(
    rows: F32,
    direction: F32,
    index: I64,
    low: int,
    high: int,
    axis: F64,
    cones: F32,
    number: int,
) -> None:
    """Write the narrowest cone about the mean direction of some keys into its lane of ``cones``."""
    dim = rows.shape[1]
    # 1. Axis: the mean direction, normalised.
    axis[:] = 0
    for i in range(low, high):
        for c in range(dim):
            axis[c] += direction[index[i], c]
    square = 0.0
    for c in range(dim):
        square += axis[c] ** 2
    if square < 1e-20:  # they cancel out, or all keys are zero: any axis will do
        axis[:] = 0
        axis[0] = 1
        square = 1.0
    inverse = 1 / np.sqrt(square)
    first = (number // 16) * (dim + CONE) * 16 + number % 16
    rounded = 0.0
    for c in range(dim):
        cones[first + c * 16] = axis[c] * inverse
        rounded += np.float64(cones[first + c * 16]) ** 2
    # Length of the axis as it is stored. It must not enter the cosine: in a narrow cone one too
    # large by 2⁻²⁵ makes the angle too small by up to 2⁻¹².
    rounded = np.sqrt(rounded)
    # 2. Half-angle and longest key in float64, from the axis as it was stored.
    reach = 0.0
    cosine = 1.0
    for i in range(low, high):
        dot = 0.0
        length = 0.0
        for c in range(dim):
            entry = np.float64(rows[index[i], c])
            dot += entry * cones[first + c * 16]
            length += entry * entry
        if length > 0:
            length = np.sqrt(length)
            reach = max(reach, length)
            cosine = min(cosine, dot / (length * rounded))
    # 3. Widen by more than the float64 arithmetic errs, and store what filter_scan._reach
    #    multiplies.
    cosine = max(cosine - 1e-12, -1.0)
    sine = np.sqrt(1 - cosine * cosine)
    for offset, entry in enumerate((cosine, reach * cosine, reach * sine, reach)):
        cones[first + (dim + offset) * 16] = entry
