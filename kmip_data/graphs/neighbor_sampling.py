"""Sample neighbourhoods of nodes in one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import I64, Integers
from kmip_data.runtime.paging import is_cold, request_pages
from kmip_data.runtime.parallel import njit_nogil

_SPLITMIX_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


class SampledGraph(NamedTuple):
    """A sampled subgraph, with nodes numbered in the order in which they were reached, seeds first."""

    nodes: I64  #: (n,) sampled nodes of the graph
    edges: I64  #: (e,) sampled edges of the graph, hop by hop
    source: I64  #: (e,) source of each edge, as a position in ``nodes``
    target: I64  #: (e,) target of each edge, as a position in ``nodes``
    hop_nodes: list[int]  #: number of seeds, then of new nodes in each hop
    hop_edges: list[int]  #: number of edges in each hop


class Neighborhoods:
    """Incoming edges of every node, for sampling.

    ``edge_index`` (2, E) has integer sources and targets below ``num_nodes``. The sources are not
    copied, so they may be a view of a mapped file. If the edges are sorted by target, no array of
    length E is allocated. Several threads may sample at a time.
    """

    def __init__(self, edge_index: Integers, num_nodes: int) -> None:
        self._source, target = edge_index
        self._nodes = num_nodes
        # Compressed rows: the incoming edges of node i are _start[i] to _start[i + 1], or these
        # positions of _edges if the edges are not sorted by target.
        degree, is_sorted = _count_incoming_edges(target, num_nodes)
        edge_dtype = np.uint32 if len(target) < 2**32 else np.int64
        self._start: Integers = np.zeros(num_nodes + 1, edge_dtype)
        np.cumsum(degree, out=self._start[1:])
        self._edges: Integers | None = None
        if not is_sorted:
            self._edges = np.argsort(target, kind="stable").astype(edge_dtype)
        self._idle_number_arrays: list[Integers] = []  #: unused arrays, −1 for every node

    def upper_bounds(self, seeds: int, fanouts: Sequence[int]) -> tuple[int, int]:
        """Return upper bounds of the nodes and edges in a sample around ``seeds`` nodes."""
        edges = 0
        reached = seeds
        for fanout in fanouts:
            reached *= fanout
            edges += reached
        return min(seeds + edges, self._nodes), min(edges, len(self._source))

    def sample_around(
        self,
        seeds: I64,
        fanouts: Sequence[int],
        generator: np.random.Generator,
        *,
        replace: bool = False,
        induced: bool = False,
    ) -> SampledGraph:
        """Sample at most ``fanouts[hop]`` incoming edges of each node from the previous hop, −1 for all.

        ``replace`` samples with replacement. ``induced`` returns all edges between the sampled nodes
        instead; ``hop_edges`` is then empty.
        """
        # Number of each node in the sample, −1 outside it. The array is reused, because filling one
        # for 10⁷ nodes takes longer than sampling around a thousand of them.
        number: Integers
        if self._idle_number_arrays:
            number = self._idle_number_arrays.pop()
        else:
            dtype = np.int32 if self._nodes < 2**31 else np.int64
            number = np.full(self._nodes, -1, dtype)
        number[seeds] = np.arange(len(seeds))

        # In each hop, draw edges into the nodes of the previous hop and number the new sources.
        nodes = [seeds]
        frontier = seeds
        count = len(seeds)
        edges = [np.empty(0, np.int64)]
        sources = [np.empty(0, np.int64)]
        targets = [np.empty(0, np.int64)]
        for fanout in fanouts:
            drawn, owner = self._draw_edges(frontier, fanout, generator, replace)
            edges.append(drawn)
            targets.append(owner + (count - len(frontier)))
            frontier, source_numbers = _number_sources(self._source, drawn, number, count)
            sources.append(source_numbers)
            count += len(frontier)
            nodes.append(frontier)
        sampled_nodes = np.concatenate(nodes)
        hop_nodes = list(map(len, nodes))
        hop_edges = list(map(len, edges[1:]))

        if induced:
            incoming, owner = self._draw_edges(sampled_nodes, -1, generator, replace=False)
            source_numbers = number[self._source[incoming]].astype(np.int64)
            is_inside = source_numbers >= 0
            edges = [incoming[is_inside]]
            sources = [source_numbers[is_inside]]
            targets = [owner[is_inside]]
            hop_edges = []

        number[sampled_nodes] = -1
        self._idle_number_arrays.append(number)
        return SampledGraph(
            sampled_nodes,
            np.concatenate(edges),
            np.concatenate(sources),
            np.concatenate(targets),
            hop_nodes,
            hop_edges,
        )

    def _draw_edges(
        self,
        nodes: I64,
        fanout: int,
        generator: np.random.Generator,
        replace: bool,
    ) -> tuple[I64, I64]:
        """Draw ``fanout`` incoming edges per node; return them and their targets' positions in ``nodes``."""
        key = generator.integers(2**64, dtype=np.uint64)
        position, owner = _draw_positions(self._start, nodes, fanout, replace, key)
        if self._edges is not None:
            position = self._edges[position].astype(np.int64)
        source = self._source
        address = source.ctypes.data
        if is_cold(address, source.strides[0], position):
            request_pages(address, source.strides[0], source.itemsize, position)
        return position, owner


@njit_nogil()
def _count_incoming_edges(target: Integers, num_nodes: int) -> tuple[I64, bool]:
    """Return the number of incoming edges per node, and True if the edges are sorted by target."""
    degree = np.zeros(num_nodes, np.int64)
    is_sorted = True
    previous = target[0] if len(target) else 0
    for node in target:
        degree[node] += 1
        is_sorted &= node >= previous
        previous = node
    return degree, is_sorted


@njit_nogil(inline="always")
def _mix_bits(state: np.uint64) -> np.uint64:
    """Mix the bits of ``state`` by the finaliser of splitmix64 (Steele, Lea and Flood 2014)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit_nogil(inline="always")
def _random_below(state: np.uint64, bound: np.int64) -> np.int64:
    """Return a number below ``bound`` ≤ 2³², uniform up to a bias of one part in 2³² / ``bound``."""
    return np.int64(((_mix_bits(state) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit_nogil()
def _draw_positions(
    start: Integers,
    nodes: I64,
    fanout: int,
    replace: bool,
    key: np.uint64,
) -> tuple[I64, I64]:
    """Draw the positions of at most ``fanout`` edges per node (−1 for all); also return their owners.

    The draws of a node depend only on ``key`` and on its position in ``nodes``.
    """
    count = 0
    for node in nodes:
        degree = np.int64(start[node + 1]) - np.int64(start[node])
        count += _drawn_edge_count(degree, fanout, replace)
    drawn = np.empty(count, np.int64)
    owner = np.empty(count, np.int64)

    end = 0
    for i in range(len(nodes)):
        first = np.int64(start[nodes[i]])
        degree = np.int64(start[nodes[i] + 1]) - first
        begin = end
        end += _drawn_edge_count(degree, fanout, replace)
        owner[begin:end] = i
        if end - begin == degree and not replace:
            for j in range(degree):
                drawn[begin + j] = first + j
            continue

        # Mix the state, or a node would draw the random numbers of the next node, shifted by one.
        state = _mix_bits(key + np.uint64(i) * _SPLITMIX_INCREMENT)
        if replace:
            for j in range(begin, end):
                state += _SPLITMIX_INCREMENT
                drawn[j] = first + _random_below(state, degree)
        else:
            # Floyd's algorithm: replace a repeated number by the last one, which was not drawn yet.
            # A hub with 10⁵ edges takes no longer than a node with 20.
            for j in range(begin, end):
                last = degree - end + j
                state += _SPLITMIX_INCREMENT
                choice = first + _random_below(state, last + 1)
                for previous in drawn[begin:j]:
                    if previous == choice:
                        choice = first + last
                        break
                drawn[j] = choice
    return drawn, owner


@njit_nogil(inline="always")
def _drawn_edge_count(degree: np.int64, fanout: int, replace: bool) -> int:
    """Return the number of edges to draw for a node."""
    if fanout < 0:
        return int(degree)
    if replace:
        return fanout * int(degree > 0)
    return min(int(degree), fanout)


@njit_nogil()
def _number_sources(
    source: Integers,
    edges: I64,
    number: Integers,
    count: int,
) -> tuple[I64, I64]:
    """Number the new sources of ``edges`` from ``count`` on; return them and the numbers of all sources."""
    new_nodes = np.empty_like(edges)
    source_numbers = np.empty_like(edges)
    new_count = 0
    for e in range(len(edges)):
        node = source[edges[e]]
        if number[node] < 0:
            number[node] = count + new_count
            new_nodes[new_count] = node
            new_count += 1
        source_numbers[e] = number[node]
    return new_nodes[:new_count], source_numbers
