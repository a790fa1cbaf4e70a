"""Compiled kernels of :mod:`kmip_data.graphs.knn`: a balanced k-d tree and its search.

The tree is implicit: node 1 is the root, node i has the children 2i and 2i + 1, and the node at place
p of level l holds the points ``n*p >> l`` to ``n*(p+1) >> l`` of the tree order. Points are split by
position in the order and not by value, so the tree is balanced whatever coincides.

All distances to boxes are computed in float32 by the same operations as distances to points. Rounding
is monotone, so a box is never farther than a point in it, and pruning by it is exact.

A candidate is one int64, the float32 bits of its distance above its index: since distances are not
negative, the order of these keys is the order (distance, index).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

BUCKETS = 64  #: of the selection by distance
FINER = 2  #: levels by which the order of points is finer than the leaves: near points follow each other
INDEX = 0xFFFFFFFF  #: the index part of a key


@njit(nogil=True, cache=True)
def build_tree(points: F32, order: I32, low: F32, high: F32, lowest: I32) -> None:
    """Reorder ``points`` (3, n) and ``order`` (n,) into tree order and describe the nodes.

    ``low``, ``high`` (2 * leaves, 3) become the box and ``lowest`` (2 * leaves,) the lowest original
    index of each node.
    """
    n, nodes = len(order), len(low)
    level = 0
    while 1 << level < nodes << FINER:
        for place in range(1 << level):
            start, stop = n * place >> level, n * (place + 1) >> level
            if stop - start < 2 and level > 0 and 1 << level >= nodes:
                continue
            widest, width = 0, np.float32(-1)
            node = (1 << level) + place
            for axis in range(3):
                values = points[axis, start:stop]
                least, most = values[0], values[0]
                for value in values:
                    least = min(least, value)
                    most = max(most, value)
                if most - least > width:
                    widest, width = axis, most - least
                if node < nodes:
                    low[node, axis], high[node, axis] = least, most
            if node < nodes:
                lowest[node] = order[start]
                for i in range(start + 1, stop):
                    lowest[node] = min(lowest[node], order[i])
            _split(points, order, start, n * (2 * place + 1) >> (level + 1), stop, widest)
        level += 1


@njit(nogil=True, cache=True)
def _split(points: F32, order: I32, start: int, middle: int, stop: int, axis: int) -> None:
    """Partition ``start`` to ``stop`` so that ``middle`` has what sorting by ``axis`` would put there."""
    values = points[axis]
    first, last = start, stop - 1
    noise = np.uint64(88172645463325252)
    while first < last:
        # A pivot from a random place (xorshift), so that no arrangement of points is a bad one.
        noise ^= noise << np.uint64(13)
        noise ^= noise >> np.uint64(7)
        noise ^= noise << np.uint64(17)
        a = values[first + np.int64(noise % np.uint64(last - first + 1))]
        b, c = values[(first + last) >> 1], values[last]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = first, last
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


@njit(nogil=True, cache=True)
def _bound(points: F32, order: I32, place: I32, best: I64, query: int) -> tuple[np.float32, np.int64]:
    """Return the last (distance, index) of k points other than ``query``.

    They are the k neighbours ``best`` of the point before it in the tree order, where ``query`` itself, if
    it is among them, gives way to that point. The k-th neighbour of ``query`` cannot come after the last of
    them.
    """
    bound, bound_index = np.float32(0), np.int64(0)
    for j in range(len(best)):
        other = place[best[j] & INDEX]
        if other == query:
            other = query - 1
        dx = points[0, query] - points[0, other]
        dy = points[1, query] - points[1, other]
        dz = points[2, query] - points[2, other]
        d = (dx * dx + dy * dy) + dz * dz
        if d > bound:
            bound, bound_index = d, np.int64(order[other])
        elif d == bound:
            bound_index = max(bound_index, np.int64(order[other]))
    return bound, bound_index


@njit(nogil=True, cache=True)
def search(
    points: F32, order: I32, place: I32, low: F32, high: F32, lowest: I32, table: I32, start: int, stop: int
) -> None:
    """Fill the rows of ``table`` (n, k) that belong to the points ``start`` to ``stop`` of the tree order.

    A query starts with a bound from the neighbours of the point before it (:func:`_bound`), so nearly all of
    the tree is pruned from the first step. ``place`` is the inverse of ``order``.
    """
    n, k = table.shape
    leaves = len(low) // 2
    levels = 0
    while 1 << levels < leaves:
        levels += 1
    room = 4 * k + 64
    leaf_size = n // leaves + 2
    keys = np.empty(room + leaf_size, np.int64)
    dist = np.empty(room + leaf_size, np.float32)
    sorting = np.empty(room + leaf_size, np.int64)
    count = np.empty(BUCKETS, np.int32)
    best = np.empty(k, np.int64)
    leaf_dist = np.empty(leaf_size, np.float32)
    leaf_bits = leaf_dist.view(np.int32)
    number = np.empty(1, np.float32)
    bits = number.view(np.int32)
    stack = np.empty(64, np.int64)
    zero, infinity = np.float32(0), np.float32(np.inf)
    xs, ys, zs = points[0], points[1], points[2]
    for query in range(start, stop):
        x, y, z = xs[query], ys[query], zs[query]
        bound, bound_index = infinity, np.int64(INDEX)
        if query > start:
            bound, bound_index = _bound(points, order, place, best, query)
        number[0] = bound
        limit = (np.int64(bits[0]) << 32) | bound_index
        found = 0
        stack[0], top = 1, 1
        while top > 0:
            top -= 1
            node = stack[top]
            dx = max(low[node, 0] - x, x - high[node, 0], zero)
            dy = max(low[node, 1] - y, y - high[node, 1], zero)
            dz = max(low[node, 2] - z, z - high[node, 2], zero)
            d = (dx * dx + dy * dy) + dz * dz
            if d > bound or (d == bound and lowest[node] > bound_index):
                continue
            if node < leaves:
                stack[top], stack[top + 1] = 2 * node + 1, 2 * node
                top += 2
                continue
            first, last = n * (node - leaves) >> levels, n * (node - leaves + 1) >> levels
            for i in range(last - first):
                dx, dy, dz = x - xs[first + i], y - ys[first + i], z - zs[first + i]
                leaf_dist[i] = (dx * dx + dy * dy) + dz * dz
            if first <= query < last:
                leaf_bits[query - first] = (
                    0x7FFFFFFF  # farther than anything: a point is not its own neighbour
                )
            for i in range(last - first):
                key = (np.int64(leaf_bits[i]) << 32) | order[first + i]
                keys[found], dist[found] = key, leaf_dist[i]
                found += key <= limit
            if found > room:
                _select(keys, dist, found, k, bound, count, sorting, best)
                found, limit = k, best[k - 1]
                for j in range(k):
                    bits[0] = best[j] >> 32
                    keys[j], dist[j] = best[j], number[0]
                bound, bound_index = number[0], limit & INDEX
        _select(keys, dist, found, k, bound, count, sorting, best)
        row = table[order[query]]
        for j in range(k):
            row[j] = best[j] & INDEX


@njit(nogil=True, cache=True)
def _select(
    keys: I64, dist: F32, found: int, k: int, bound: np.float32, count: I32, sorting: I64, best: I64
) -> None:
    """Put the k smallest of ``keys[:found]``, sorted, into ``best``; no distance exceeds ``bound``.

    Distances fall into buckets of equal width; buckets beyond the k-th key are dropped and the others
    are nearly sorted when they are laid out one after the other, so an insertion sort ends it.
    """
    scale = np.float32(BUCKETS - 1) / bound if bound > 0 else np.float32(0)
    kept = 0
    if found > k and 0 < scale < np.float32(1e30):
        for bucket in range(BUCKETS):
            count[bucket] = 0
        for i in range(found):
            count[np.int32(dist[i] * scale)] += 1
        beyond = np.float32(BUCKETS)
        for bucket in range(BUCKETS):
            size = count[bucket]
            count[bucket] = kept
            kept += size
            if kept >= k:
                beyond = np.float32(bucket + 1)
                break
        for i in range(found):
            scaled = dist[i] * scale
            if scaled < beyond:
                into = np.int32(scaled)
                sorting[count[into]] = keys[i]
                count[into] += 1
    else:
        kept = found
        for i in range(found):
            sorting[i] = keys[i]
    for i in range(1, kept):
        key = sorting[i]
        j = i
        while j > 0 and sorting[j - 1] > key:
            sorting[j] = sorting[j - 1]
            j -= 1
        sorting[j] = key
    for i in range(k):
        best[i] = sorting[i]
