"""Compiled k-d tree of :mod:`kmip_data.graphs.knn`: implicit and balanced.

Node 1 is the root, node i has the children 2i and 2i + 1, and the node at position p of level l holds the
points ``n*p >> l`` to ``n*(p+1) >> l`` of the tree order. Points are split by their number and not by
their place, so the tree is balanced whatever coincides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, I32
from kmip_data.runtime.compiled import njit_nogil

FINER = 2  #: levels by which the order of points is finer than the leaves: near points follow each other


class Tree(NamedTuple):
    """A k-d tree of n points with L leaves, a power of two."""

    points: F32  #: (3, n), in tree order
    order: I32  #: (n,), original index of each
    place: I32  #: (n,), inverse of ``order``
    low: F32  #: (2L, 3), lower corner of each node's box
    high: F32  #: (2L, 3), upper corner
    lowest: I32  #: (2L,), lowest original index in each node


@njit_nogil()
def build_tree(tree: Tree) -> None:
    """Bring points in any order into tree order, and describe the nodes."""
    n, nodes = len(tree.order), len(tree.low)
    level = 0
    while 1 << level < nodes << FINER:
        for position in range(1 << level):
            start, stop = n * position >> level, n * (position + 1) >> level
            node = (1 << level) + position
            if stop - start < 2 and node >= nodes:
                continue
            widest, width = np.int64(0), np.float32(-1)
            for axis in range(3):
                values = tree.points[axis, start:stop]
                least, most = values[0], values[0]
                for value in values:
                    least = min(least, value)
                    most = max(most, value)
                if most - least > width:
                    widest, width = np.int64(axis), most - least
                if node < nodes:
                    tree.low[node, axis], tree.high[node, axis] = least, most
            if node < nodes:
                lowest = tree.order[start]
                for index in tree.order[start:stop]:
                    lowest = min(lowest, index)
                tree.lowest[node] = lowest
            _split(tree, start, n * (2 * position + 1) >> (level + 1), stop, int(widest))
        level += 1
    for position in range(n):
        tree.place[tree.order[position]] = position


@njit_nogil()
def _split(tree: Tree, start: int, middle: int, stop: int, axis: int) -> None:
    """Partition ``start`` to ``stop`` so that ``middle`` has what sorting by ``axis`` would put there."""
    points, order, values = tree.points, tree.order, tree.points[axis]
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
