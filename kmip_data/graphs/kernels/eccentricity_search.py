# ruff: noqa: FURB136 -- min() treats NaN differently
"""Compiled search of :mod:`kmip_data.graphs.eccentricity`, for a group of nodes at once.

The nodes of a group are the *lanes* of a vector. The union of their balls is cut out of the graph
once. There every node has a row with one value per lane, and an edge is relaxed for all lanes by
one vector operation. Sweeps over the nodes, in breadth-first order and back, repeat until no row
changes; only rows with a changed neighbour are visited. The values are first hops, then lengths.

A node outside the ball of a lane has NaN in that lane. A comparison with NaN is false, so NaN is
never replaced and never propagated: the search stays inside each lane's ball without a test.

**Why this equals Dijkstra's result to the last bit.** Adding a length is monotone, even when
rounded. So the minimum over all paths, each summed from its source outwards in float64, is the only
fixed point reached from infinity, and Dijkstra's algorithm ends there, too.

Dead ends are first removed together with their trees, and added once their root is settled: no
shortest path between other nodes leads through them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, F64, I32, I64, Bools
from kmip_data.runtime.parallel import njit_nogil


@njit_nogil()
def group_nodes(
    pointer: I64, neighbor: I32, size: int, max_visited: int, order: I32, starts: I64
) -> int:
    """Fill ``order`` with all nodes, sorted by group, and ``starts`` with the bounds of the groups.

    A group consists of the first ``size`` ungrouped nodes among the first ``max_visited`` nodes of
    a breadth-first search. The next search starts near a previous group, so successive groups are
    close to each other. Groups of less than half the size are dissolved and their nodes combined:
    their balls may be far apart, but cost no more than separately.

    The graph, (N + 1,) and (E,), is symmetric and in compressed rows; ``order`` is (N,), ``starts``
    (N + 1,). Returns the number of groups G, with ``starts[:G + 1]`` filled.
    """
    n = len(pointer) - 1
    is_grouped = np.zeros(n, np.bool_)
    is_seed = np.zeros(n, np.bool_)
    last_search = np.full(n, -1, np.int32)
    queue = np.empty(n, np.int32)
    seeds = np.empty(n, np.int32)
    leftover_nodes = np.empty(n, np.int32)
    grouped = groups = searches = head = tail = leftovers = 0
    for node in range(n):
        if not is_seed[node]:
            is_seed[node] = True
            seeds[tail] = node
            tail += 1
        while head < tail:
            seed = seeds[head]
            head += 1
            if is_grouped[seed]:
                continue
            first = grouped
            queue[0] = seed
            last_search[seed] = searches
            queued = 1
            visited = 0
            while visited < queued and visited < max_visited and grouped < first + size:
                u = queue[visited]
                visited += 1
                if not is_grouped[u]:
                    is_grouped[u] = True
                    order[grouped] = u
                    grouped += 1
                for e in range(pointer[u], pointer[u + 1]):
                    v = neighbor[e]
                    if last_search[v] != searches:
                        last_search[v] = searches
                        queue[queued] = v
                        queued += 1
            searches += 1
            for i in range(queued):
                v = queue[i]
                if not is_seed[v]:
                    is_seed[v] = True
                    seeds[tail] = v
                    tail += 1
            if 2 * (grouped - first) < size:
                for i in range(first, grouped):
                    leftover_nodes[leftovers] = order[i]
                    leftovers += 1
                grouped = first
            else:
                starts[groups] = first
                groups += 1
    for i in range(leftovers):
        if i % size == 0:
            starts[groups] = grouped
            groups += 1
        order[grouped] = leftover_nodes[i]
        grouped += 1
    starts[groups] = grouped
    return groups


class Subgraph(NamedTuple):
    """A subgraph in compressed rows, with the workspace of a search.

    Functions read each field once, and inner loops call no functions: both count references, which
    took four fifths of the time.
    """

    pointer: I32  #: (nodes + 1,)
    neighbor: I32  #: (edges,), node numbers within the subgraph
    length: F64  #: (edges,)
    step: F32  #: (edges,), hops that an edge adds: 1, or infinity against its direction
    degree: I32  #: (nodes,), 0 for removed nodes
    dead_end: I32  #: (nodes,), removed nodes, in order of removal
    is_pending: Bools  #: (nodes,), True if a neighbour has changed
    hop: F32  #: (nodes · lanes,)
    distance: F64  #: (nodes · lanes,)


@njit_nogil()
def search_groups(
    pointer: I64,
    neighbor: I32,
    length: F64,
    step: F32,
    starts: I64,
    hops: int,
    lanes: int,
    farthest: F64,
    nodes: I32,
    local: I32,
    start: int,
    stop: int,
) -> None:
    """Fill ``farthest`` (N,), the largest distance in each node's ball, for groups ``start:stop``.

    The graph is symmetric, in compressed rows, with nodes numbered by group. ``step`` is 1, or
    infinity if no edge leads from the row's node to the neighbour. ``starts`` (G + 1,) has the
    first node of each group of at most ``lanes`` nodes. ``nodes`` and ``local`` (N,) are workspaces;
    ``local`` is -1 before and after.
    """
    subgraph = _allocate_subgraph(0, 0, lanes)
    largest = np.empty(lanes)
    width = np.uint64(lanes)
    max_hops = np.float32(hops)
    for group in range(start, stop):
        first = starts[group]
        seeds = starts[group + 1] - starts[group]

        # 1. List the union of the lanes' balls. If it does not fit, allocate twice its size, so that
        #    growing unions rarely reallocate.
        count = _nodes_within_hops(pointer, neighbor, first, seeds, hops, nodes, local)
        edges = 0
        for i in range(count):
            edges += pointer[nodes[i] + 1] - pointer[nodes[i]]
        if count > len(subgraph.degree) or edges > len(subgraph.step):
            subgraph = _allocate_subgraph(2 * count, 2 * edges, lanes)

        # 2. Cut it out of the graph, and remove the trees that end in dead ends.
        _copy_subgraph(pointer, neighbor, length, step, nodes, count, local, subgraph)
        ends = _remove_dead_ends(subgraph, seeds, count)

        # 3. Count hops: a node farther than ``hops`` from a lane is outside its ball.
        hop = subgraph.hop
        distance = subgraph.distance
        cells = np.uint64(count * lanes)
        for cell in range(cells):
            hop[cell] = np.inf
        _relax_distances(subgraph, hop, subgraph.step, seeds, count, ends, lanes)

        # 4. Add lengths only inside the balls: NaN outside is never replaced and never propagated.
        for cell in range(cells):
            distance[cell] = np.inf if hop[cell] <= max_hops else np.nan
        _relax_distances(subgraph, distance, subgraph.length, seeds, count, ends, lanes)

        # 5. Keep the largest distance of each lane; NaN compares false.
        for lane in range(width):
            largest[lane] = 0.0
        for i in range(count):
            row = np.uint64(i) * width
            for lane in range(width):
                value = distance[row + lane]
                largest[lane] = value if value > largest[lane] else largest[lane]
        for lane in range(seeds):
            farthest[first + lane] = largest[lane]

        # 6. Reset only the numbers of these nodes: resetting all would cost N per group.
        for i in range(count):
            local[nodes[i]] = -1


@njit_nogil()
def _allocate_subgraph(nodes: int, edges: int, lanes: int) -> Subgraph:
    return Subgraph(
        np.empty(nodes + 1, np.int32),
        np.empty(edges, np.int32),
        np.empty(edges),
        np.empty(edges, np.float32),
        np.empty(nodes, np.int32),
        np.empty(nodes, np.int32),
        np.empty(nodes, np.bool_),
        np.empty(nodes * lanes, np.float32),
        np.empty(nodes * lanes),
    )


@njit_nogil()
def _nodes_within_hops(
    pointer: I64, neighbor: I32, first: int, seeds: int, hops: int, nodes: I32, local: I32
) -> int:
    """List all nodes within ``hops`` of the group in ``nodes``, nearest first; return their number.

    Directions are ignored here, so the list may include nodes outside all balls.
    """
    count = 0
    for node in range(first, first + seeds):
        nodes[count] = node
        local[node] = count
        count += 1
    begin = 0
    for _ in range(hops):
        end = count
        for i in range(begin, end):
            for e in range(pointer[nodes[i]], pointer[nodes[i] + 1]):
                v = neighbor[e]
                if local[v] < 0:
                    nodes[count] = v
                    local[v] = count
                    count += 1
        if count == end:
            break
        begin = end
    return count


@njit_nogil()
def _copy_subgraph(
    pointer: I64,
    neighbor: I32,
    length: F64,
    step: F32,
    nodes: I32,
    count: int,
    local: I32,
    subgraph: Subgraph,
) -> None:
    """Copy the edges among the listed nodes into ``subgraph``."""
    rows = subgraph.pointer
    neighbors = subgraph.neighbor
    lengths = subgraph.length
    steps = subgraph.step
    degree = subgraph.degree
    is_pending = subgraph.is_pending
    edges = 0
    for i in range(count):
        u = nodes[i]
        rows[i] = edges
        is_pending[i] = False
        for e in range(pointer[u], pointer[u + 1]):
            j = local[neighbor[e]]
            if j >= 0:
                neighbors[edges] = j
                lengths[edges] = length[e]
                steps[edges] = step[e]
                edges += 1
        degree[i] = edges - rows[i]
    rows[count] = edges


@njit_nogil()
def _remove_dead_ends(subgraph: Subgraph, seeds: int, count: int) -> int:
    """Remove nodes with one neighbour repeatedly, except the group's; return their number."""
    pointer = subgraph.pointer
    neighbor = subgraph.neighbor
    degree = subgraph.degree
    dead_end = subgraph.dead_end
    ends = 0
    for i in range(seeds, count):
        if degree[i] == 1:
            dead_end[ends] = i
            ends += 1
    done = 0
    while done < ends:
        u = dead_end[done]
        done += 1
        degree[u] = 0
        for e in range(pointer[u], pointer[u + 1]):
            v = neighbor[e]
            if v >= seeds and degree[v] > 1:
                degree[v] -= 1
                if degree[v] == 1:
                    dead_end[ends] = v
                    ends += 1
    return ends


# Long: a compiled loop, in which a call would cost more than the rest of the work.
@njit_nogil()
def _relax_distances(
    subgraph: Subgraph,
    value: F32 | F64,
    length: F32 | F64,
    seeds: int,
    count: int,
    ends: int,
    lanes: int,
) -> None:
    """Relax ``value`` (count · lanes) until nothing changes, starting from 0 at the node of each lane.

    Two neighbours are relaxed at a time. ``lanes`` is not a constant, because a loop of constant
    length would be unrolled before it can be vectorised. It is converted to unsigned, because
    signed indices are tested for negative values.
    """
    pointer = subgraph.pointer
    neighbor = subgraph.neighbor
    degree = subgraph.degree
    is_pending = subgraph.is_pending
    dead_end = subgraph.dead_end
    width = np.uint64(lanes)
    for lane in range(seeds):
        value[lane * lanes + lane] = 0
        for e in range(pointer[lane], pointer[lane + 1]):
            is_pending[neighbor[e]] = True
    is_forward = True
    has_changed = True
    while has_changed:
        has_changed = False
        for step in range(count):
            u = step if is_forward else count - 1 - step
            if not is_pending[u]:
                continue
            is_pending[u] = False
            if degree[u] == 0:
                continue
            changed = np.int32(0)
            row = np.uint64(u) * width
            e = pointer[u]
            end = pointer[u + 1]
            while e < end:
                last = min(e + 1, end - 1)  # an odd last neighbour is relaxed twice
                row_a = np.uint64(neighbor[e]) * width
                row_b = np.uint64(neighbor[last]) * width
                length_a = length[e]
                length_b = length[last]
                for lane in range(width):
                    old = value[row + lane]
                    new = old
                    other = value[row_a + lane] + length_a
                    new = other if other < new else new
                    other = value[row_b + lane] + length_b
                    new = other if other < new else new
                    changed |= np.int32(new < old)
                    value[row + lane] = new
                e += 2
            if changed != 0:
                has_changed = True
                for e in range(pointer[u], pointer[u + 1]):
                    is_pending[neighbor[e]] = True
        is_forward = not is_forward
    for i in range(ends - 1, -1, -1):
        u = dead_end[i]
        row = np.uint64(u) * width
        for e in range(pointer[u], pointer[u + 1]):
            row_a = np.uint64(neighbor[e]) * width
            length_a = length[e]
            for lane in range(width):
                old = value[row + lane]
                other = value[row_a + lane] + length_a
                value[row + lane] = other if other < old else old
