"""Deal the nodes of a graph into groups of neighbours, whose balls overlap almost wholly."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import I32, I64
from kmip_data.runtime.compiled import njit_nogil


@njit_nogil()
def group_nodes(pointer: I64, neighbor: I32, size: int, reach: int, order: I32, starts: I64) -> int:
    """Fill ``order`` with all nodes, group after group, and ``starts`` with the bounds of the groups.

    A group is the first ``size`` nodes without one that a breadth-first search meets, of the first
    ``reach`` nodes it meets at all. The next search begins beside an earlier group, so groups that
    follow one another lie near one another. What is left over, groups of less than half the size, is
    put together in the order found: their balls may be far apart, and cost no more than alone.

    The graph, (N + 1,) and (E,), is symmetric and in compressed rows; ``order`` is (N,), ``starts`` (N + 1,).
    Returns the number of groups G, with ``starts[:G + 1]`` filled.
    """
    n = len(pointer) - 1
    taken, listed = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    met_by = np.full(n, -1, np.int32)
    queue, begin_at, left_over = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    done = groups = searches = head = tail = left = 0
    for node in range(n):
        if not listed[node]:
            listed[node] = True
            begin_at[tail] = node
            tail += 1
        while head < tail:
            seed = begin_at[head]
            head += 1
            if taken[seed]:
                continue
            first = done
            queue[0], met_by[seed], met, seen = seed, searches, 1, 0
            while seen < met and seen < reach and done < first + size:
                u = queue[seen]
                seen += 1
                if not taken[u]:
                    taken[u] = True
                    order[done] = u
                    done += 1
                for e in range(pointer[u], pointer[u + 1]):
                    v = neighbor[e]
                    if met_by[v] != searches:
                        met_by[v] = searches
                        queue[met] = v
                        met += 1
            searches += 1
            for i in range(met):
                v = queue[i]
                if not listed[v]:
                    listed[v] = True
                    begin_at[tail] = v
                    tail += 1
            if 2 * (done - first) < size:
                for i in range(first, done):
                    left_over[left] = order[i]
                    left += 1
                done = first
            else:
                starts[groups] = first
                groups += 1
    for i in range(left):
        if i % size == 0:
            starts[groups] = done
            groups += 1
        order[done] = left_over[i]
        done += 1
    starts[groups] = done
    return groups
