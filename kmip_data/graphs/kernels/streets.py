"""Compiled kernels that sort directed edges by their ends and merge parallel ones to streets."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import F64, I8, I32, I64
from kmip_data.runtime.parallel import njit_nogil


@njit_nogil()
def sorted_edges(ends: I32, reverse_ends: I32, edges: I32, num_nodes: int) -> I32:
    """Sort the M ``edges`` stably by one end and return them, (M,) int32, by counting sort.

    The end of edge ``e`` < E is ``ends[e]``; the end of its reverse, ``E + e``, is
    ``reverse_ends[e]``. SciPy's sparse transpose would need copies of both ends, which were the
    memory peak of a build of 10⁷ intersections.
    """
    size = len(ends)
    # 1. Count the edges of each end; running sums give the position of its first edge.
    position = np.zeros(num_nodes + 1, np.int64)
    for edge in edges:
        position[1 + (ends[edge] if edge < size else reverse_ends[edge - size])] += 1
    position = np.cumsum(position)
    # 2. Put each edge at the next free position of its end, which keeps the order of equal ends.
    order = np.empty_like(edges)
    for edge in edges:
        end = ends[edge] if edge < size else reverse_ends[edge - size]
        order[position[end]] = edge
        position[end] += 1
    return order


@njit_nogil()
def group_edges_by_ends(source: I32, target: I32, edges: I32) -> tuple[I64, I32]:
    """Group edges with the same two ends into S streets.

    ``edges`` are sorted by their ends; a number from E on is the reverse of an edge. Returns the
    start of each group, (S + 1,), and its ends, (2, S).
    """
    size = len(source)
    start = -1
    end = -1
    starts_group = np.empty(len(edges), np.bool_)  # count groups first, to allocate exact sizes
    # Conditional expression: the whole function takes 1.1 times as long with assignments in branches.
    for position, edge in enumerate(edges):
        previous_ends = start, end
        start, end = (
            (source[edge], target[edge])
            if edge < size
            else (target[edge - size], source[edge - size])
        )
        starts_group[position] = previous_ends[0] != start or previous_ends[1] != end
    first = np.append(np.flatnonzero(starts_group), len(edges))
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
def add_street_fractions_to_end_nodes(
    category: I8, number: int, first: I64, target: I32, total: F64
) -> None:
    """Add the fraction of each street's edges in category ``number``, in float32, to its target's total.

    ``category`` (M,) has the category of each edge, sorted by street; street ``s`` has the edges
    from ``first[s]`` to ``first[s + 1]`` and ends at ``target[s]``, (S,).
    """
    for street in range(len(target)):
        count = 0
        for edge in range(first[street], first[street + 1]):
            if category[edge] == number:
                count += 1
        if count:
            total[target[street]] += np.float32(count / (first[street + 1] - first[street]))
