"""Sampled neighbourhoods of nodes of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import I64, Integers
from kmip_data.runtime.paging import is_cold, request_pages
from kmip_data.runtime.parallel import njit_nogil

_STEP = np.uint64(0x9E3779B97F4A7C15)  #: increment of splitmix64


class Sampled(NamedTuple):
    """A sampled graph; its nodes are numbered in the order in which they were met, seeds first."""

    nodes: I64  #: (n,) nodes of the graph
    edges: I64  #: (e,) edges of the graph, hop after hop
    source: I64  #: (e,) their ends, numbered among ``nodes``
    target: I64  #: (e,)
    hop_nodes: list[int]  #: seeds, then nodes that each hop met first
    hop_edges: list[int]  #: edges of each hop


class Neighborhoods:
    """Incoming edges of every node, to draw from.

    ``edge_index`` (2, E), of integers, are sources and targets among ``num_nodes``. The
    sources are not copied, so the sources of a mapped shard stay in the map; where the edges are sorted
    by target, no array of their length is allocated. Several threads may draw at a time.
    """

    def __init__(self, edge_index: Integers, num_nodes: int) -> None:
        self._source, target = edge_index
        self._nodes = num_nodes
        # Compressed rows: the incoming edges of node i are _start[i] to _start[i + 1], of _edges
        # where the graph has another order.
        degree, ordered = _count_incoming_edges(target, num_nodes)
        edge_dtype = np.uint32 if len(target) < 2**32 else np.int64
        self._start: Integers = np.zeros(num_nodes + 1, edge_dtype)
        np.cumsum(degree, out=self._start[1:])
        self._edges: Integers | None = None
        if not ordered:
            self._edges = np.argsort(target, kind="stable").astype(edge_dtype)
        self._free: list[Integers] = []  #: arrays of numbers that no draw uses, −1 for every node

    def upper_bounds(self, seeds: int, fanouts: Sequence[int]) -> tuple[int, int]:
        """Return upper bounds of nodes and edges of a sample around ``seeds`` nodes."""
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
    ) -> Sampled:
        """Draw at most ``fanouts[hop]`` incoming edges of each node met in the hop before, −1: all.

        ``replace`` draws each of them from all edges of the node. ``induced`` takes, in the end,
        all edges between the nodes that were met; ``hop_edges`` is empty then.
        """
        # Number of each node in the sample, −1 outside it. The array is reused: filling one for 10⁷
        # nodes takes longer than a draw around a thousand of them.
        dtype = np.int32 if self._nodes < 2**31 else np.int64
        number: Integers
        number = self._free.pop() if self._free else np.full(self._nodes, -1, dtype)
        number[seeds] = np.arange(len(seeds))

        # Hop by hop: draw edges into the nodes of the last hop, and number the sources that are
        # new.
        nodes = [seeds]
        frontier = seeds
        count = len(seeds)
        edges = [np.empty(0, np.int64)]
        sources = [np.empty(0, np.int64)]
        targets = [np.empty(0, np.int64)]
        for fanout in fanouts:
            sampled, owner = self._draw_edges(frontier, fanout, generator, replace)
            edges.append(sampled)
            targets.append(owner + (count - len(frontier)))
            frontier, numbered = _number_sources(self._source, sampled, number, count)
            sources.append(numbered)
            count += len(frontier)
            nodes.append(frontier)
        met = np.concatenate(nodes)
        hop_nodes = list(map(len, nodes))
        hop_edges = list(map(len, edges[1:]))

        if induced:
            incoming, owner = self._draw_edges(met, -1, generator, replace=False)
            numbered = number[self._source[incoming]].astype(np.int64)
            inside = numbered >= 0
            edges = [incoming[inside]]
            sources = [numbered[inside]]
            targets = [owner[inside]]
            hop_edges = []

        number[met] = -1
        self._free.append(number)
        return Sampled(
            met,
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
        """Return ``fanout`` incoming edges of each node, and the position in ``nodes`` of their target."""
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
    """Return the incoming edges of every node, and True if the edges are sorted by target."""
    degree = np.zeros(num_nodes, np.int64)
    ordered = True
    previous = target[0] if len(target) else 0
    for node in target:
        degree[node] += 1
        ordered &= node >= previous
        previous = node
    return degree, ordered


@njit_nogil(inline="always")
def _mix_bits(state: np.uint64) -> np.uint64:
    """Finaliser of splitmix64 (Steele, Lea and Flood 2014)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit_nogil(inline="always")
def _random_below(state: np.uint64, bound: np.int64) -> np.int64:
    """Return a number below ``bound``, at most 2³², uniform but for one part in 2³² / ``bound``."""
    return np.int64(((_mix_bits(state) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit_nogil()
def _draw_positions(
    start: Integers,
    nodes: I64,
    fanout: int,
    replace: bool,
    key: np.uint64,
) -> tuple[I64, I64]:
    """Return the positions of at most ``fanout`` edges of each node (−1: all), and the node of each.

    The numbers of a node are a function of ``key`` and of its position in ``nodes``.
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

        # Mixed once more, or a node would have the numbers of the next node, one later.
        state = _mix_bits(key + np.uint64(i) * _STEP)
        if replace:
            for j in range(begin, end):
                state += _STEP
                drawn[j] = first + _random_below(state, degree)
        else:
            # Floyd: a number that was drawn before gives way to the last one, which cannot have
            # been. A hub of 10⁵ edges takes no longer than a node of 20.
            for j in range(begin, end):
                last = degree - end + j
                state += _STEP
                choice = first + _random_below(state, last + 1)
                for other in drawn[begin:j]:
                    if other == choice:
                        choice = first + last
                        break
                drawn[j] = choice
    return drawn, owner


@njit_nogil(inline="always")
def _drawn_edge_count(degree: np.int64, fanout: int, replace: bool) -> int:
    """Return the number of edges to draw of a node."""
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
    """Number the sources of some edges.

    Returns those that had no number, once each, in the order of their new ones from ``count`` on;
    and the numbers of all.
    """
    met = np.empty_like(edges)
    numbered = np.empty_like(edges)
    new = 0
    for e in range(len(edges)):
        node = source[edges[e]]
        if number[node] < 0:
            number[node] = count + new
            met[new] = node
            new += 1
        numbered[e] = number[node]
    return met[:new], numbered
