"""Compiled k-d tree and search of :mod:`kmip_data.graphs.knn`.

A candidate is represented by an int64 *key*: the float32 bits of its distance above its index.
Distances are not negative, so the order of keys is the order (distance, index).

1. The points of a leaf share their candidates, all points within a *limit* of its box. They are
   copied together, so that one vectorised loop computes distances (0.75 instead of 2.7 µs per
   point, 100,000 uniform points, k = 16).
2. The limit is a guess from the previous leaf. If a point's k-th key is within it, the point is done.
3. Otherwise, or if the leaf has too many candidates, the point is searched individually: its k-th
   key among nearby points of the tree is a true limit. Without this, heavy tails cost 70 times as
   much.
4. Candidates are cut at a distance found by counting, then ranked by comparing all pairs.

Distances to boxes are computed in float32 by the same operations as distances to points. Rounding is
monotone, so a box is never farther than a point in it, and pruning by boxes is exact.

Some indices are unsigned, because numba guards signed ones against negative values at every access,
which prevents vectorisation (a quarter of the time). The fields ``bits`` and ``distance`` share
memory, as int32 and as float32.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, I32, I64
from kmip_data.runtime.parallel import njit_nogil

#: levels below the leaves by which points are sorted, so that nearby points are adjacent
SORTED_LEVELS = 2
INDEX_MASK = 0xFFFFFFFF  #: bits of a key that hold the index
LAST_KEY = 0x7F800000FFFFFFFF  #: key at infinite distance, after every other key
MAX_SHARED = 1024  #: maximum number of candidates, plus 8 k, that the points of a leaf share
#: Factors of a leaf's largest and smallest k-th squared distance that give the next limit.
FACTOR_OF_LARGEST = 1.5
FACTOR_OF_SMALLEST = 3.0
#: Maximum number of keys to rank by comparing all pairs, vectorised (0.07 instead of 0.10 s).
MAX_RANKED_KEYS = 256


class Tree(NamedTuple):
    """A k-d tree of n points with L leaves, a power of two."""

    points: F32  #: (3, n), in tree order
    order: I32  #: (n,), original index of each point
    low: F32  #: (2L, 3), lower corner of each node's box
    high: F32  #: (2L, 3), upper corner of each node's box
    min_index: I32  #: (2L,), smallest original index in each node


@njit_nogil()
def build_tree(tree: Tree) -> None:
    """Sort the points into tree order and compute the boxes of the nodes."""
    n = len(tree.order)
    nodes = len(tree.low)
    level = 0
    while 1 << level < nodes << SORTED_LEVELS:
        for position in range(1 << level):
            start = n * position >> level
            stop = n * (position + 1) >> level
            node = (1 << level) + position
            if stop - start < 2 and node >= nodes:
                continue
            widest_axis = np.int64(0)
            width = np.float32(-1)
            for axis in range(3):
                values = tree.points[axis, start:stop]
                low = values[0]
                high = values[0]
                for value in values:
                    low = min(low, value)
                    high = max(high, value)
                if high - low > width:
                    widest_axis = np.int64(axis)
                    width = high - low
                if node < nodes:
                    tree.low[node, axis] = low
                    tree.high[node, axis] = high
            if node < nodes:
                min_index = tree.order[start]
                for index in tree.order[start:stop]:
                    min_index = min(min_index, index)
                tree.min_index[node] = min_index
            middle = n * (2 * position + 1) >> (level + 1)
            _partition_points(tree, start, middle, stop, int(widest_axis))
        level += 1


@njit_nogil()
def _partition_points(tree: Tree, start: int, middle: int, stop: int, axis: int) -> None:
    """Partition ``start:stop`` so that ``middle`` has the point of that rank along ``axis``."""
    points = tree.points
    order = tree.order
    values = tree.points[axis]
    first = start
    last = stop - 1
    random = np.uint64(88172645463325252)
    while first < last:
        # Choose a random pivot (xorshift), so that no arrangement of points is a worst case.
        random ^= random << np.uint64(13)
        random ^= random >> np.uint64(7)
        random ^= random << np.uint64(17)
        a = values[first + np.int64(random % np.uint64(last - first + 1))]
        b = values[(first + last) >> 1]
        c = values[last]
        pivot = max(min(a, b), min(max(a, b), c))
        i = first
        j = last
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                for row in range(3):
                    points[row, i], points[row, j] = points[row, j], points[row, i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            last = j
        elif middle >= i:
            first = i
        else:
            return


class Candidates(NamedTuple):
    """Positions and indices of candidates; a leaf's own points come first."""

    x: F32  #: (n + 1,)
    y: F32
    z: F32
    indices: I32  #: (n + 1,), original index of each candidate


class Workspace(NamedTuple):
    """Buffers of a selection."""

    distance: F32  #: (n + leaf size,), distance of each candidate
    bits: I32  #: the same memory as int32
    position: I32  #: (n + 1,), positions of the candidates within the cut
    keys: I64  #: (n + 1,), their keys
    rank: I32  #: (n + 1,), their ranks
    nearest: I64  #: (k,), the result: the smallest keys in order


# Long: a compiled loop, in which a call would cost more than the rest of the work.
@njit_nogil()
def search_tree(tree: Tree, table: I32, start: int, stop: int) -> None:
    """Fill the rows of ``table`` (n, k) for the points in the leaves ``start:stop``."""
    n, k = table.shape
    leaves = len(tree.low) // 2
    levels = 0
    while 1 << levels < leaves:
        levels += 1
    xs = tree.points[0]
    ys = tree.points[1]
    zs = tree.points[2]
    capacity = n + 1  # the element after the last candidate is also written to
    coordinates = np.empty((6, capacity), np.float32)
    indices = np.empty((2, capacity), np.int32)
    candidates = Candidates(coordinates[0], coordinates[1], coordinates[2], indices[0])
    single_candidates = Candidates(coordinates[3], coordinates[4], coordinates[5], indices[1])
    distance = np.empty(capacity + n // leaves + 1, np.float32)
    work = Workspace(
        distance,
        distance.view(np.int32),
        np.empty(capacity, np.int32),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int32),
        np.empty(k, np.int64),
    )
    point = np.empty(3, np.float32)
    scalar = np.empty(1, np.float32)
    bits = scalar.view(np.int32)
    guess = np.int64(LAST_KEY)
    previous_distance = np.float32(np.inf)
    max_shared = MAX_SHARED + 8 * k
    for leaf in range(start, stop):
        first = n * leaf >> levels
        last = n * (leaf + 1) >> levels
        # Find the smallest node around the leaf with more than k points: k neighbours lie within
        # its diagonal.
        level = levels
        enclosing = leaf
        while (n * (enclosing + 1) >> level) - (n * enclosing >> level) <= k:
            level = level - 1
            enclosing = enclosing >> 1
        begin = n * enclosing >> level
        end = n * (enclosing + 1) >> level
        enclosing += 1 << level
        dx = tree.high[enclosing, 0] - tree.low[enclosing, 0]
        dy = tree.high[enclosing, 1] - tree.low[enclosing, 1]
        dz = tree.high[enclosing, 2] - tree.low[enclosing, 2]
        scalar[0] = (dx * dx + dy * dy) + dz * dz
        limit = min(guess, (np.int64(bits[0]) << 32) | INDEX_MASK)

        # Copy the candidates that the leaf's points share: all points within the limit of its box.
        node = leaves + leaf
        count = _gather_candidates(
            tree,
            leaf,
            tree.low[node],
            tree.high[node],
            limit,
            max_shared,
            candidates,
            distance,
            work.bits,
        )
        smallest_key = np.int64(LAST_KEY)
        largest_key = np.int64(0)
        for query in range(first, last):
            x = xs[query]
            y = ys[query]
            z = zs[query]
            key = np.int64(LAST_KEY)
            if count <= max_shared:
                key = _select_nearest(
                    x, y, z, query - first, candidates, count, limit, previous_distance, work
                )
            if count > max_shared or key > limit:
                # Search the point individually: its k-th key among nearby points of the tree is a
                # true limit.
                enclosed = Candidates(
                    xs[begin:end], ys[begin:end], zs[begin:end], tree.order[begin:end]
                )
                key = _select_nearest(
                    x,
                    y,
                    z,
                    query - begin,
                    enclosed,
                    end - begin,
                    np.int64(LAST_KEY),
                    previous_distance,
                    work,
                )
                point[0] = x
                point[1] = y
                point[2] = z
                single_count = _gather_candidates(
                    tree, leaf, point, point, key, n, single_candidates, distance, work.bits
                )
                key = _select_nearest(
                    x,
                    y,
                    z,
                    query - first,
                    single_candidates,
                    single_count,
                    key,
                    previous_distance,
                    work,
                )
            smallest_key = min(smallest_key, key)
            largest_key = max(largest_key, key)
            bits[0] = key >> 32
            previous_distance = scalar[0]
            row = table[tree.order[query]]
            for j in range(k):
                row[j] = work.nearest[j] & INDEX_MASK

        # Next limit: 1.5 times the largest k-th squared distance here, at most 3 times the smallest.
        bits[0] = smallest_key >> 32
        limit_by_smallest = scalar[0] * np.float32(FACTOR_OF_SMALLEST)
        bits[0] = largest_key >> 32
        scalar[0] = min(scalar[0] * np.float32(FACTOR_OF_LARGEST), limit_by_smallest)
        guess = (np.int64(bits[0]) << 32) | (largest_key & INDEX_MASK)


@njit_nogil()
def _gather_candidates(
    tree: Tree,
    leaf: int,
    low: F32,
    high: F32,
    limit: np.int64,
    max_count: int,
    candidates: Candidates,
    distance: F32,
    bits: I32,
) -> int:
    """Copy the points of ``leaf``, then all others with a key up to ``limit`` from a box.

    The box from ``low`` to ``high`` lies in the leaf. Returns the number of points, and stops once
    it exceeds ``max_count``.
    """
    n = len(tree.order)
    leaves = len(tree.low) // 2
    levels = 0
    while 1 << levels < leaves:
        levels += 1
    x0 = low[0]
    y0 = low[1]
    z0 = low[2]
    x1 = high[0]
    y1 = high[1]
    z1 = high[2]
    zero = np.float32(0)
    first = n * leaf >> levels
    last = n * (leaf + 1) >> levels

    # 1. Copy the points of the leaf itself, which are always candidates.
    count = np.uint64(last - first)
    candidates.x[:count] = tree.points[0, first:last]
    candidates.y[:count] = tree.points[1, first:last]
    candidates.z[:count] = tree.points[2, first:last]
    candidates.indices[:count] = tree.order[first:last]

    # 2. Descend from the root, skipping boxes whose nearest possible key exceeds the limit.
    stack = np.empty(64, np.int64)
    stack[0] = 1
    top = 1
    while top > 0 and count <= np.uint64(max_count):
        top -= 1
        node = stack[top]
        dx = max(tree.low[node, 0] - x1, x0 - tree.high[node, 0], zero)
        dy = max(tree.low[node, 1] - y1, y0 - tree.high[node, 1], zero)
        dz = max(tree.low[node, 2] - z1, z0 - tree.high[node, 2], zero)
        distance[0] = (dx * dx + dy * dy) + dz * dz
        if (np.int64(bits[0]) << 32) | tree.min_index[node] > limit or node == leaves + leaf:
            continue
        if node < leaves:
            stack[top] = 2 * node + 1
            stack[top + 1] = 2 * node
            top += 2
            continue

        # 3. Compute all distances of a leaf in one vectorised loop. Then write every point, but
        #    advance only past those within the limit, without a branch.
        first = n * (node - leaves) >> levels
        last = n * (node - leaves + 1) >> levels
        xs = tree.points[0, first:last]
        ys = tree.points[1, first:last]
        zs = tree.points[2, first:last]
        order = tree.order[first:last]
        for i in range(len(order)):
            dx = max(x0 - xs[i], xs[i] - x1, zero)
            dy = max(y0 - ys[i], ys[i] - y1, zero)
            dz = max(z0 - zs[i], zs[i] - z1, zero)
            distance[i] = (dx * dx + dy * dy) + dz * dz
        for i in range(len(order)):
            candidates.x[count] = xs[i]
            candidates.y[count] = ys[i]
            candidates.z[count] = zs[i]
            candidates.indices[count] = order[i]
            count = np.uint64(count + np.uint64(((np.int64(bits[i]) << 32) | order[i]) <= limit))
    return int(np.int64(count))


@njit_nogil()
def _select_nearest(
    x: np.float32,
    y: np.float32,
    z: np.float32,
    self_index: int,
    candidates: Candidates,
    count: int,
    limit: np.int64,
    previous_distance: np.float32,
    work: Workspace,
) -> np.int64:
    """Sort the k smallest keys of a point up to ``limit`` into ``work.nearest``; return the last.

    ``candidates[self_index]`` is the point itself; ``previous_distance`` is the k-th squared
    distance of the previous point. Returns a key above ``limit`` if fewer than k of the ``count``
    candidates are within it.
    """
    k = len(work.nearest)
    distance = work.distance
    bits = work.bits[:count]
    # Cut to between k and 2 k + 8 candidates. 1.35 times the previous distance works in four of
    # five cases; otherwise bisect the float32 bits, which sort like distances. More candidates
    # remain only if distances tie.
    distance[0] = previous_distance * np.float32(1.35)
    high = np.int32(limit >> 32)
    cut = min(high, bits[0])
    distance[0] = previous_distance * np.float32(0.5)
    low = bits[0]
    xs = candidates.x[:count]
    ys = candidates.y[:count]
    zs = candidates.z[:count]
    for i in range(len(xs)):
        dx = x - xs[i]
        dy = y - ys[i]
        dz = z - zs[i]
        distance[i] = (dx * dx + dy * dy) + dz * dz
    bits[self_index] = 0x7FFFFFFF  # a point is not its own neighbour
    while True:
        within = np.int32(0)
        for i in range(len(bits)):
            within = np.int32(within + np.int32(bits[i] <= cut))
        if within < k:
            if cut == high:
                return np.int64(LAST_KEY)
            low = cut
        elif within > 2 * k + 8 and cut > low + 1:
            high = cut
        else:
            break
        cut = np.int32(high - ((high - low) >> 1))

    # Compact without branches: write each candidate, but advance only past those within the cut,
    # then within the limit, which resolves ties of distance by index.
    position = work.position
    selected = np.uint64(0)
    for i in range(len(bits)):
        position[selected] = i
        selected = np.uint64(selected + np.uint64(bits[i] <= cut))
    total = selected
    selected = np.uint64(0)
    for i in range(total):
        candidate = np.uint32(position[i])
        key = (np.int64(bits[candidate]) << 32) | candidates.indices[candidate]
        work.keys[selected] = key
        selected = np.uint64(selected + np.uint64(key <= limit))
    if selected < np.uint64(k):
        return np.int64(LAST_KEY)
    return _sort_k_smallest_keys(work, selected)


@njit_nogil()
def _sort_k_smallest_keys(work: Workspace, count: np.uint64) -> np.int64:
    """Sort the k smallest of the keys ``work.keys[:count]`` into ``work.nearest``; return the last."""
    k = len(work.nearest)
    keys = work.keys[:count]
    if count > np.uint64(MAX_RANKED_KEYS):
        keys = np.partition(keys, k - 1)[:k]

    # The rank of a key is the number of smaller keys. All keys differ, because their indices do.
    rank = work.rank[: len(keys)]
    rank[:] = 0
    for key in keys:
        for i in range(len(rank)):
            rank[i] += keys[i] > key
    for i in range(len(rank)):
        if rank[i] < k:
            work.nearest[rank[i]] = keys[i]
    return np.int64(work.nearest[k - 1])
