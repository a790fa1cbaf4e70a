"""Reverse edges of your own graphs, and counts of directions, self-loops and isolated nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kmip_data.arrays import I64, U64, Array, Bools
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.format.graph_record import GraphRecord

#: Edges of a graph that are checked for reverse edges; larger graphs are sampled by node pair.
_MAX_CHECKED_EDGES = 2**22
_ONE = np.uint64(1)


@dataclass
class EdgeCounts:
    """Edge counts over all graphs, as the reader returned them."""

    adds_reverse_edges: bool  #: True if the build adds missing reverse edges
    self_loops: int = 0
    isolated_nodes: int = 0  #: nodes without an edge to another node
    #: Distinct edges, without self-loops, that were checked for a reverse edge.
    checked_edges: int = 0
    repeated_edges: int = 0  #: further copies of checked edges
    with_reverse: int = 0  #: checked edges that have a reverse edge
    #: Edges whose attributes differ from their reverse's, if reverse edges are added.
    unequal_reverses: int = 0

    def add(self, graph: GraphRecord) -> None:
        """Count the edges of a graph, or of a union of graphs.

        Memory is bounded: 16 bytes an edge, and 200 MB.
        """
        edge_index = np.asarray(graph.edge_index)
        nodes = graph.num_nodes
        is_loop = edge_index[0] == edge_index[1]
        is_checked = ~is_loop
        has_edge = np.zeros(nodes, bool)
        for ends in edge_index:
            # compress() takes a seventh of the time of an index of booleans.
            has_edge[ends.compress(is_checked)] = True
        self.self_loops += int(is_loop.sum())
        self.isolated_nodes += nodes - int(has_edge.sum())

        # 1. Sample node pairs of a large graph, with all edges between them.
        if len(is_loop) > _MAX_CHECKED_EDGES:
            # An odd step: all edges of a grid or a bipartite graph may have odd sums.
            step = len(is_loop) // _MAX_CHECKED_EDGES | 1
            is_checked &= edge_index.sum(axis=0, dtype=np.int64) % step == 0

        # 2. Encode each edge as its node pair, with the direction in the last bit, so that
        # sorting puts opposite edges next to each other.
        codes = _encode_edges(edge_index.compress(is_checked, axis=1))
        codes.sort()

        # 3. Neighbours with the same code are copies; the directions of a pair meet once.
        differing_bits = codes[1:] ^ codes[:-1]
        repeated = len(differing_bits) - int(np.count_nonzero(differing_bits))
        self.repeated_edges += repeated
        self.checked_edges += len(codes) - repeated
        self.with_reverse += 2 * int(np.count_nonzero(differing_bits == _ONE))

    @property
    def directedness(self) -> str:
        """Answer to "Are the edges of the build directed?", with the reason."""
        if not self.checked_edges:
            return "no: there is no edge between two nodes"
        if self.with_reverse == self.checked_edges:
            # Readers add reverse edges to undirected graphs, so the files may lack them.
            return "no: each edge has its reverse"
        if self.adds_reverse_edges:
            which = " that lacked it" if self.with_reverse else ""
            return f"no: undirected=true added the reverse of each edge{which}"
        if not self.with_reverse:
            return "yes: no edge has its reverse"
        return f"yes: {self.with_reverse / self.checked_edges:.1%} of the edges have their reverse"

    def summary(self) -> dict[str, Any]:
        """Return directions and counts of the edges, for the card."""
        return {
            "directed": self.directedness,
            "self_loops": self.self_loops,
            "isolated_nodes": self.isolated_nodes,
            "repeated_edges": self.repeated_edges,
        }

    @property
    def warning(self) -> str:
        """Likely problem in edge directions; empty if there is none."""
        if not self.checked_edges:
            return ""
        if self.unequal_reverses:
            return f"{self.unequal_reverses:,} edges have other attributes than their reverse: each keeps its own"
        if not self.adds_reverse_edges and not self.with_reverse:
            return (
                "no edge has its reverse, so messages go one way;"
                " if edges join their nodes both ways: undirected=True"
            )
        return ""


def _encode_edges(edge_index: Array) -> U64:
    """Encode edges between different nodes as integers (E,): node pair, and direction as the last bit."""
    source, target = edge_index
    last = np.maximum(source, target).astype(np.uint64)
    first = np.minimum(source, target).astype(np.uint64)
    # Twice the number of the pair, last * (last - 1) / 2 + first.
    codes: U64 = last * (last - _ONE)
    codes += first << _ONE
    codes += source > target
    return codes


def add_missing_reverse_edges(graph: GraphRecord) -> tuple[GraphRecord, int]:
    """Insert the missing reverse of each edge right after it, with the same attributes.

    Duplicate edges are paired in order: the first copy with the first copy of the reverse. Paired
    edges keep their own attributes, and a self-loop stays one edge. Also return the number of
    edges whose attributes differ from their reverse's.
    """
    edges = graph.edge_index
    if edges is None:
        return graph, 0
    lacks_reverse, pairs = _match_reverses(edges)
    copies = lacks_reverse + 1
    index = edges.repeat(copies, axis=1)
    added = (np.cumsum(copies) - 1)[lacks_reverse]
    index[:, added] = index[::-1, added]

    columns = dict(graph.columns)
    unequal = np.zeros(pairs.shape[1], bool)
    for key, array in columns.items():
        if key.startswith("edge/"):
            columns[key] = array.repeat(copies, axis=0)
            forward, backward = array[pairs]
            differs = (forward != backward) & ((forward == forward) | (backward == backward))  # noqa: PLR0124 -- NaN
            unequal |= differs.any(axis=tuple(range(1, array.ndim)))
    return replace(graph, edge_index=index, columns=columns), 2 * int(unequal.sum())


def add_reverses_to_block(block: GraphBlock) -> tuple[GraphBlock, int]:
    """Insert the missing reverse of each edge as :func:`add_missing_reverse_edges`."""
    union, unequal = add_missing_reverse_edges(block.union())
    return block.with_edges_of(union), unequal


def _match_reverses(edges: Array) -> tuple[Bools, I64]:
    """Return a mask (E,) of edges without a reverse, and the positions (2, P) of paired edges."""
    lacks_reverse = edges[0] != edges[1]
    rows = np.flatnonzero(lacks_reverse)
    codes = _encode_edges(edges[:, rows])
    # 1. Group equal edges; a stable sort keeps each group in file order.
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    start = np.flatnonzero(np.diff(ordered, prepend=~ordered[:1]))
    size = np.diff(start, append=len(ordered))
    # 2. The two directions of a node pair are adjacent groups; the smaller group limits the pairs.
    pair_codes = ordered[start] >> _ONE
    forward = np.flatnonzero(pair_codes[1:] == pair_codes[:-1])
    pair_count = np.minimum(size[forward], size[forward + 1])
    first_pair = np.cumsum(pair_count) - pair_count
    copy = np.arange(pair_count.sum()) - first_pair.repeat(pair_count)
    starts = np.stack([start[forward], start[forward + 1]]).repeat(pair_count, axis=1)
    pairs = rows[order[starts + copy]]
    lacks_reverse[pairs] = False
    return lacks_reverse, pairs
