"""Directed edges, self-loops and isolated nodes of your own graphs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmip_data.arrays import Array
from kmip_data.pipelines.datasets.graphs.tables import GraphParams

#: Most edges of a graph checked for reverse edges; larger graphs are sampled by pairs of nodes.
_MAX_PAIRS = 2**22
_ONE = np.uint64(1)


@dataclass
class Links:
    """Edge counts of all graphs, as found in the files."""

    params: GraphParams
    edges: int = 0
    loops: int = 0
    isolated: int = 0  #: nodes without an edge to another
    looked_for: int = 0  #: distinct edges between two nodes that were checked for a reverse edge
    reversed: int = 0  #: those with a reverse edge

    def add(self, edge_index: Array, nodes: int) -> None:
        """Count the edges of one graph in bounded memory: 8 bytes an edge, and 200 MB."""
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
        source, target = edge_index[:, chosen].astype(np.uint64)
        last = np.maximum(source, target)
        pairs = last * (last - _ONE) // np.uint64(2) + np.minimum(source, target)
        edges = np.sort((pairs << _ONE) + (source > target))
        first = np.ones(len(edges), bool)
        first[1:] = edges[1:] != edges[:-1]
        edges = edges[first]
        self.looked_for += len(edges)
        self.reversed += 2 * int((edges[1:] >> _ONE == edges[:-1] >> _ONE).sum())

    @property
    def directed(self) -> str:
        """Return whether the build's edges are directed, with the reason."""
        added = self.params.undirected
        if not self.looked_for:
            return "no: there is no edge between two nodes"
        if self.reversed == self.looked_for:
            return "no: the files have each edge both ways"
        if added:
            return "no: undirected=true added the reverse of each edge"
        if not self.reversed:
            return "yes: no edge of the files has its reverse"
        return f"yes: {self.reversed / self.looked_for:.1%} of the edges of the files have their reverse"

    @property
    def warning(self) -> str:
        """Return the likely fault in edge directions; empty if there is none."""
        if not self.looked_for:
            return ""
        if self.params.undirected and self.reversed:
            return (
                f"{self.reversed / self.looked_for:.1%} of the edges of the files have their reverse, and"
                " undirected=true adds it again: leave it out"
            )
        if not self.params.undirected and not self.reversed:
            return (
                "no edge of the files has its reverse, so messages go one way;"
                " if an edge joins its nodes both ways: --set undirected=true"
            )
        return ""
