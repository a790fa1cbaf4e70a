"""Directed edges, self-loops and isolated nodes of your own graphs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kmip_data.arrays import I64, U64, Array, Bools
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams

#: Most edges of a graph checked for reverse edges; larger graphs are sampled by pairs of nodes.
_MAX_PAIRS = 2**22
_ONE = np.uint64(1)


@dataclass
class EdgeCounts:
    """Edge counts of all graphs, as found in the files."""

    params: GraphParams
    edges: int = 0
    loops: int = 0
    repeated: int = 0  #: checked edges between two nodes that occur again
    isolated: int = 0  #: nodes without an edge to another
    looked_for: int = 0  #: distinct edges between two nodes that were checked for a reverse edge
    reversed: int = 0  #: checked edges that have their reverse
    unequal: int = 0  #: edges with other attributes than their reverse, if ``undirected``

    def add(self, edge_index: Array, nodes: int) -> None:
        """Count the edges (2, E) of one graph in bounded memory: 8 bytes an edge, and 200 MB."""
        is_loop = edge_index[0] == edge_index[1]
        has_edge = np.zeros(nodes, bool)
        for ends in edge_index:
            has_edge[ends[~is_loop]] = True
        self.edges += len(is_loop)
        self.loops += int(is_loop.sum())
        self.isolated += nodes - int(has_edge.sum())

        # 1. Sample pairs of nodes of a large graph, with all edges between them.
        chosen = ~is_loop
        if len(is_loop) > _MAX_PAIRS:
            # An odd number, as all edges of a grid or a bipartite graph may have odd sums.
            step = len(is_loop) // _MAX_PAIRS | 1
            chosen &= edge_index.sum(axis=0, dtype=np.int64) % step == 0

        # 2. Encode each edge as its pair of nodes, with the direction in the last bit, so that
        # sorting puts opposite edges next to each other.
        edges = np.sort(_edge_numbers(edge_index[:, chosen]))
        first = np.ones(len(edges), bool)
        first[1:] = edges[1:] != edges[:-1]
        self.repeated += len(edges) - int(first.sum())
        edges = edges[first]
        self.looked_for += len(edges)
        self.reversed += 2 * int((edges[1:] >> _ONE == edges[:-1] >> _ONE).sum())

    @property
    def directed(self) -> str:
        """Return True if the build's edges are directed, with the reason."""
        added = self.params.undirected
        if not self.looked_for:
            return "no: there is no edge between two nodes"
        if self.reversed == self.looked_for:
            return "no: the files have each edge both ways"
        if added:
            which = " that lacked it" if self.reversed else ""
            return f"no: undirected=true added the reverse of each edge{which}"
        if not self.reversed:
            return "yes: no edge of the files has its reverse"
        return f"yes: {self.reversed / self.looked_for:.1%} of the edges of the files have their reverse"

    def summary(self) -> dict[str, Any]:
        """Return directions and counts of the edges, for the card."""
        return {
            "directed": self.directed,
            "self_loops": self.loops,
            "isolated_nodes": self.isolated,
            "repeated_edges": self.repeated,
        }

    @property
    def warning(self) -> str:
        """Return the likely problem in edge directions; empty if there is none."""
        if not self.looked_for:
            return ""
        if self.unequal:
            return f"{self.unequal:,} edges have other attributes than their reverse: each keeps its own"
        if not self.params.undirected and not self.reversed:
            return (
                "no edge of the files has its reverse, so messages go one way;"
                " if an edge joins its nodes both ways: --set undirected=true"
            )
        return ""


def _edge_numbers(edge_index: Array) -> U64:
    """Return edges between two nodes as numbers, (E,): the pair of nodes, and the direction as last bit."""
    source, target = edge_index.astype(np.uint64)
    last = np.maximum(source, target)
    pairs = last * (last - _ONE) // np.uint64(2) + np.minimum(source, target)
    encoded: U64 = (pairs << _ONE) + (source > target)
    return encoded


def with_reverse_edges(graph: GraphRecord) -> tuple[GraphRecord, int]:
    """Add the reverse of each edge that lacks it, next to it and with its attributes.

    The first of several equal edges goes with the first of their reverses, the second with the
    second. An edge and its reverse keep their own attributes; a self-loop stays one edge. Also
    returns the number of edges that have other attributes than their reverse.
    """
    edges = graph.edge_index
    if edges is None:
        return graph, 0
    lacking, pairs = _match_reverses(edges)
    times = lacking + 1
    index = edges.repeat(times, axis=1)
    added = (np.cumsum(times) - 1)[lacking]
    index[:, added] = index[::-1, added]

    columns = dict(graph.columns)
    unequal = np.zeros(pairs.shape[1], bool)
    for key, array in columns.items():
        if key.startswith("edge/"):
            columns[key] = array.repeat(times, axis=0)
            forward, backward = array[pairs]
            differs = (forward != backward) & ((forward == forward) | (backward == backward))  # noqa: PLR0124 -- NaN
            unequal |= differs.any(axis=tuple(range(1, array.ndim)))
    return replace(graph, edge_index=index, columns=columns), 2 * int(unequal.sum())


def _match_reverses(edges: Array) -> tuple[Bools, I64]:
    """Return which edges lack their reverse, (E,), and positions of the others with theirs, (2, P)."""
    lacking = edges[0] != edges[1]
    rows = np.flatnonzero(lacking)
    encoded = _edge_numbers(edges[:, rows])
    # 1. In order of their numbers, equal edges are next to each other, in the order of the file.
    order = np.argsort(encoded, kind="stable")
    ordered = encoded[order]
    first = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))
    kinds = ordered[first]
    count = np.diff(first, append=len(ordered))
    # 2. Kinds of edges with both directions follow each other; as many as the rarer has are pairs.
    one = np.flatnonzero(kinds[1:] >> _ONE == kinds[:-1] >> _ONE)
    paired = np.minimum(count[one], count[one + 1])
    copy = np.arange(paired.sum()) - (np.cumsum(paired) - paired).repeat(paired)
    pairs = rows[order[np.stack([first[one], first[one + 1]]).repeat(paired, axis=1) + copy]]
    lacking[pairs] = False
    return lacking, pairs
