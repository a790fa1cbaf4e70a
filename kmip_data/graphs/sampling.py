"""Sampled neighbourhoods of nodes of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F64, I64, Integers
from kmip_data.runtime.threads import njit_nogil

SMALL = 32  #: edges of a node that are sorted by insertion


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

    ``edge_index`` (2, E), of whole numbers, are sources and targets among ``num_nodes``. The
    sources are not copied, so that those of a mapped shard stay there.
    """

    def __init__(self, edge_index: Integers, num_nodes: int) -> None:
        self._source, target = edge_index
        self._nodes = num_nodes
        # Compressed rows: the incoming edges of node i are _edges[_start[i]:_start[i + 1]].
        edge_dtype = np.int32 if len(target) < 2**31 else np.int64
        self._edges = np.argsort(target, kind="stable").astype(edge_dtype)
        self._start = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=num_nodes))])
        self._free: list[I64] = []  #: arrays of numbers that no draw uses, −1 for every node

    def most(self, seeds: int, fanouts: Sequence[int]) -> tuple[int, int]:
        """Return upper bounds of the nodes and the edges of a draw around so many seeds."""
        degree = np.sort(np.diff(self._start))[::-1]
        nodes = seeds
        edges = 0
        reached = seeds
        for fanout in fanouts:
            reached = int(np.minimum(degree[:reached], fanout).sum())
            nodes = nodes + reached
            edges = edges + reached
        return min(nodes, self._nodes), min(edges, len(self._edges))

    def around(
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
        number = self._free.pop() if self._free else np.full(self._nodes, -1, np.int64)
        number[seeds] = np.arange(len(seeds))

        # Hop by hop: draw edges into the nodes of the last hop, and number the sources that are
        # new.
        nodes = [seeds]
        frontier = seeds
        count = len(seeds)
        edges = [np.empty(0, np.int64)]
        targets = [np.empty(0, np.int64)]
        for fanout in fanouts:
            sampled, owner = self._drawn(frontier, fanout, generator, replace)
            edges.append(sampled)
            targets.append(owner + (count - len(frontier)))
            sources = self._source[sampled].astype(np.int64, copy=False)
            frontier = _met(sources, number, count)
            count += len(frontier)
            nodes.append(frontier)
        met = np.concatenate(nodes)
        hop_nodes = list(map(len, nodes))
        hop_edges = list(map(len, edges[1:]))

        if induced:
            incoming, owner = self._drawn(met, -1, generator, replace=False)
            inside = number[self._source[incoming]] >= 0
            edges = [incoming[inside]]
            targets = [owner[inside]]
            hop_edges = []

        taken = np.concatenate(edges)
        source = number[self._source[taken]]
        target = np.concatenate(targets)

        number[met] = -1
        self._free.append(number)
        return Sampled(met, taken, source, target, hop_nodes, hop_edges)

    def _drawn(
        self,
        nodes: I64,
        fanout: int,
        generator: np.random.Generator,
        replace: bool,
    ) -> tuple[I64, I64]:
        """Incoming edges of ``nodes``, ``fanout`` of each, and the position in ``nodes`` of their target."""
        start = self._start[nodes]
        degree = self._start[nodes + 1] - start
        if replace and fanout >= 0:
            owner = np.repeat(np.flatnonzero(degree), fanout)
            position = start[owner] + generator.integers(degree[owner])
            return self._edges[position].astype(np.int64), owner

        # Without replacement: every edge gets a random rank, and the lowest of each node are taken.
        edges = int(degree.sum())
        if fanout < 0:
            fanout = edges
            rank = np.arange(edges, dtype=np.float64)
        else:
            rank = generator.random(edges)
        position, owner = _lowest(start, degree, fanout, rank)
        return self._edges[position].astype(np.int64), owner


@njit_nogil()
def _lowest(start: I64, degree: I64, most: int, rank: F64) -> tuple[I64, I64]:
    """Return the positions, from ``start``, of at most so many edges of each node, by ``rank``.

    The second array has the node of each edge.
    """
    taken = np.empty_like(rank, np.int64)
    owner = np.empty_like(rank, np.int64)
    order = np.empty(SMALL, np.int64)
    first = 0
    count = 0
    for i in range(len(start)):
        ranks = rank[first : first + degree[i]]
        first += degree[i]
        if len(ranks) > SMALL:
            order = np.argsort(ranks, kind="mergesort")
        else:  # a draw of 9,700 nodes takes 0.4 ms, sorting all its edges by node and rank 3.8 ms
            for j in range(len(ranks)):
                slot = j
                while slot > 0 and ranks[order[slot - 1]] > ranks[j]:
                    order[slot] = order[slot - 1]
                    slot -= 1
                order[slot] = j
        for j in range(min(most, len(ranks))):
            taken[count] = start[i] + order[j]
            owner[count] = i
            count += 1
    return taken[:count], owner[:count]


@njit_nogil()
def _met(sources: I64, number: I64, count: int) -> I64:
    """Nodes without a number, once each, in order; they get the numbers from ``count`` on."""
    met = np.empty_like(sources)
    new = 0
    for node in sources:
        if number[node] < 0:
            number[node] = count + new
            met[new] = node
            new += 1
    return met[:new]
