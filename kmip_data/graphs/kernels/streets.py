"""Streets of directed edges: sorted by their ends, and each pair of ends once."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import F64, I8, I32, I64
from kmip_data.runtime.parallel import njit_nogil


@njit_nogil()
def sorted_edges(ends: I32, reverse_ends: I32, edges: I32, num_nodes: int) -> I32:
    """Return the M ``edges`` stably sorted by one end, (M,) int32: a counting sort.

    Edge ``e`` below E has its end in ``ends``, (E,); ``E + e``, the way back, has it in
    ``reverse_ends``. Sorting by SciPy's sparse transpose needs copies of both ends, which were the
    peak of a build of 10⁷ intersections.
    """
    size = len(ends)
    # 1. Count the edges of each end; running sums are where its edges begin.
    position = np.zeros(num_nodes + 1, np.int64)
    for edge in edges:
        position[1 + (ends[edge] if edge < size else reverse_ends[edge - size])] += 1
    position = np.cumsum(position)
    # 2. Put each edge at the next free position of its end: equal ends keep their order.
    order = np.empty_like(edges)
    for edge in edges:
        end = ends[edge] if edge < size else reverse_ends[edge - size]
        order[position[end]] = edge
        position[end] += 1
    return order


@njit_nogil()
def group_edges_by_ends(source: I32, target: I32, edges: I32) -> tuple[I64, I32]:
    """Group edges that have the same two ends, one group for each of S streets.

    ``edges`` are sorted by their ends; a number from E on is the reverse of an edge. Returns where
    each group begins, (S + 1,), and its ends, (2, S).
    """
    size = len(source)
    start = -1
    end = -1
    new = np.empty(len(edges), np.bool_)  # counted first: no array is larger than it must be
    # The ends as a conditional expression: with assignments in branches all of it takes 1.1 times
    # as long.
    for position, edge in enumerate(edges):
        before = start, end
        start, end = (
            (source[edge], target[edge])
            if edge < size
            else (target[edge - size], source[edge - size])
        )
        new[position] = before[0] != start or before[1] != end
    first = np.append(np.flatnonzero(new), len(edges))
    index = np.empty((2, len(first) - 1), np.int32)
    for street in range(len(first) - 1):
        edge = edges[first[street]]
        if edge < size:
            index[0, street] = source[edge]
            index[1, street] = target[edge]
        else:
            index[0, street] = target[edge - size]
            index[1, street] = source[edge - size]
    return first, index


@njit_nogil()
def add_street_shares(category: I8, number: int, first: I64, target: I32, total: F64) -> None:
    """Add the share of each street's edges that have a category, in float32, to the total of its end.

    ``category`` (M,) is the category of the edges, by street; street ``s`` has the edges from ``first[s]``,
    (S + 1,), on and ends at ``target[s]``, (S,).
    """
    for street in range(len(target)):
        count = 0
        for edge in range(first[street], first[street + 1]):
            if category[edge] == number:
                count += 1
        if count:
            total[target[street]] += np.float32(count / (first[street + 1] - first[street]))
