"""Streets of directed edges: sorted by their ends, and each pair of ends once."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import I32, I64
from kmip_data.runtime.threads import njit_nogil


@njit_nogil()
def sorted_edges(there: I32, back: I32, edges: I32, num_nodes: int) -> I32:
    """Return the M ``edges`` stably sorted by one end, (M,) int32: a counting sort.

    Edge ``e`` below E has its end in ``there``, (E,); ``E + e``, the way back, has it in ``back``. Sorting by
    SciPy's sparse transpose needs copies of both ends, which were the peak of a build of 10⁷ intersections.
    """
    size = len(there)
    # 1. Count the edges of each end; running sums are where its edges begin.
    position = np.zeros(num_nodes + 1, np.int64)
    for edge in edges:
        position[1 + (there[edge] if edge < size else back[edge - size])] += 1
    position = np.cumsum(position)
    # 2. Put each edge at the next free position of its end: equal ends keep their order.
    order = np.empty_like(edges)
    for edge in edges:
        end = there[edge] if edge < size else back[edge - size]
        order[position[end]] = edge
        position[end] += 1
    return order


@njit_nogil()
def distinct(source: I32, target: I32, edges: I32) -> tuple[I64, I32]:
    """Return where each of the S pairs of ends begins among sorted edges, (S + 1,), and its ends, (2, S)."""
    size = len(source)
    start = -1
    end = -1
    new = np.empty(len(edges), np.bool_)  # counted first: no array is larger than it must be
    for at, edge in enumerate(edges):
        before = start, end
        start, end = (
            (source[edge], target[edge])
            if edge < size
            else (target[edge - size], source[edge - size])
        )
        new[at] = before[0] != start or before[1] != end
    first = np.append(np.flatnonzero(new), len(edges))
    index = np.empty((2, len(first) - 1), np.int32)
    for street in range(len(first) - 1):
        edge = edges[first[street]]
        index[0, street] = source[edge] if edge < size else target[edge - size]
        index[1, street] = target[edge] if edge < size else source[edge - size]
    return first, index
