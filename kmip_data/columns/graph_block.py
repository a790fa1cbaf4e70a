"""Consecutive graphs joined into one array per column, so that columns are treated all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.format.graph_record import GraphRecord


@dataclass(frozen=True)
class GraphBlock:
    """Graphs whose columns have equal names, dtypes and row shapes."""

    keys: list[str]  #: key of each graph
    node_counts: I64  #: (G,) nodes of each graph
    edge_counts: I64  #: (G,) edges of each graph
    columns: Mapping[str, Array]  #: rows of all graphs by column, in the order of the graphs
    row_counts: Mapping[str, I64]  #: (G,) rows of each graph by column
    scalars: frozenset[str] = frozenset()  #: columns with one number a graph, without an axis
    edge_index: Array | None = None  #: (2, E), nodes numbered from 0 in each graph

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def first_nodes(self) -> I64:
        """Position of each graph's first node among all nodes, (G,)."""
        return np.cumsum(self.node_counts) - self.node_counts

    def item_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a column's array in the first graph."""
        if name in self.scalars:
            return ()
        return (int(self.row_counts[name][0]), *self.columns[name].shape[1:])

    def arrays(self, name: str) -> list[Array]:
        """Return the rows of a column for each graph."""
        return np.split(self.columns[name], np.cumsum(self.row_counts[name])[:-1])

    def text(self, name: str) -> list[str]:
        """Return a column of UTF-8 bytes as a string for each graph."""
        return [array.tobytes().decode() for array in self.arrays(name)]

    def padded_text(self, name: str) -> Array:
        """Return a column of bytes as (G, longest), where zeros pad shorter strings."""
        lengths = self.row_counts[name]
        padded = np.zeros((len(self), lengths.max(initial=0)), np.uint8)
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = self.columns[name]
        return padded

    def union(self) -> GraphRecord:
        """Return one graph of all nodes and edges; there is no edge between two graphs."""
        edges = self.edge_index
        if edges is not None and len(self) > 1:
            edges = edges + self.first_nodes.repeat(self.edge_counts)
        nodes = int(self.node_counts.sum())
        key = self.keys[0]
        return GraphRecord(key=key, num_nodes=nodes, columns=self.columns, edge_index=edges)

    def with_edges_of(self, union: GraphRecord) -> GraphBlock:
        """Return the graphs with the edges and columns of a changed :meth:`union`.

        The edges of a graph must follow those of the previous graph.
        """
        edges = union.edge_index
        if edges is None:
            return replace(self, columns=union.columns)
        if len(self) == 1:
            counts = np.array([edges.shape[1]])
        else:
            graph_of_edge = np.arange(len(self)).repeat(self.node_counts)[edges[0]]
            counts = np.bincount(graph_of_edge, minlength=len(self))
            edges = edges - self.first_nodes.repeat(counts)
        return replace(self, columns=union.columns, edge_counts=counts, edge_index=edges)

    def records(self, k: int | None = None) -> Iterator[GraphRecord]:
        """Yield each graph, whose graph-level columns have one row less an axis.

        The keys of all columns begin with their level. With ``k`` sources of each node in order,
        edges become a neighbour table.
        """
        ends = {"node": np.cumsum(self.node_counts), "edge": np.cumsum(self.edge_counts)}
        starts = {
            level: (stop - counts).tolist()
            for (level, stop), counts in zip(
                ends.items(), (self.node_counts, self.edge_counts), strict=True
            )
        }
        stops = {level: stop.tolist() for level, stop in ends.items()}
        neighbor = None
        edges = self.edge_index
        if k is not None and edges is not None:
            neighbor = edges[0].reshape(-1, k)
            edges = None

        levels = {key: key.partition("/")[0] for key in self.columns}
        for number, key in enumerate(self.keys):
            rows = {level: slice(starts[level][number], stops[level][number]) for level in ends}
            columns = {}
            for name, array in self.columns.items():
                level = levels[name]
                columns[name] = array[number] if level == "graph" else array[rows[level]]
            yield GraphRecord(
                key=key,
                num_nodes=rows["node"].stop - rows["node"].start,
                columns=columns,
                neighbor=None if neighbor is None else neighbor[rows["node"]],
                edge_index=None if edges is None else edges[:, rows["edge"]],
            )
