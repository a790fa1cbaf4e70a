"""Columns and sizes of graphs, inferred from all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from kmip_data.arrays import Array, Integers
from kmip_data.columns.column_values import ColumnValues
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import RESERVED, Column, EdgeLayout, ItemForm, Schema
from kmip_data.format.writer import GraphRecord

MAX_NODES = 2**32  #: most nodes of a graph in a shard


@dataclass
class InferredColumns:
    """Columns and sizes of all graphs, each a record whose columns, (rows, …), may have any dtype.

    A column has the same shape of a row in every graph, and of dtypes that differ in width the
    wider. Columns of graphs have one row.
    """

    graphs: int = 0
    most_nodes: int = 0
    longest_key: int = 0
    nodes: int = 0
    edges: int = 0
    bytes: int = 0  #: bytes of all values as given
    targets: list[Array] = field(default_factory=list)
    target: str = ""  #: key of the targets
    #: Key of a column of graphs -> its form, where it is not ``axis``.
    forms: dict[str, ItemForm] = field(default_factory=dict)
    _columns: dict[str, ColumnValues] = field(default_factory=dict)
    _degrees: set[int | None] = field(default_factory=set)  #: in-degree of all nodes of a graph

    def add(self, graph: GraphRecord, target: str, forms: Mapping[str, ItemForm]) -> None:
        """Look at one graph, whose targets are in the column ``target``, if it has that one.

        ``forms`` has the forms of the columns of graphs known so far.

        Raises ``DamagedInput`` if its columns differ from those of the graphs before it.
        """
        self.forms |= forms
        self.graphs += 1
        self.nodes += graph.num_nodes
        self.edges += graph.num_edges
        self.most_nodes = max(self.most_nodes, graph.num_nodes)
        self.longest_key = max(self.longest_key, len(graph.key))
        if graph.edge_index is not None:
            self._degrees.add(fixed_degree(graph.edge_index, graph.num_nodes))

        # The targets of all graphs are examined together.
        values = dict(graph.columns)
        y = values.pop(target, None)
        if (y is None) != (not self.target) and self.graphs > 1:
            raise self._mismatch_error(target or self.target, graph, y)
        if y is not None:
            self.target = target
            self.targets.append(y)
        self.bytes += sum(array.nbytes for array in values.values()) + 8 * graph.num_edges

        if self.graphs == 1:
            for key, rows in values.items():
                self._columns[key] = ColumnValues(rows.dtype, rows.shape[1:])
        for key in {**self._columns, **values}:
            column = self._columns.get(key)
            given = values.get(key)
            if column is None or given is None or not self._widen_dtype(key, column, given):
                raise self._mismatch_error(key, graph, given)
            column.add(given)

    def _widen_dtype(self, key: str, column: ColumnValues, rows: Array) -> bool:
        """Widen the dtype of a column to that of rows; False if shapes or kinds of dtypes differ."""
        if self.forms.get(key) == "text":
            column.shape = max(column.shape, rows.shape[1:])
        elif column.shape != rows.shape[1:]:
            return False
        if column.dtype == rows.dtype:
            return True
        wider = np.promote_types(column.dtype, rows.dtype)
        kinds = {dtype.kind.replace("u", "i") for dtype in (column.dtype, rows.dtype, wider)}
        column.dtype = wider
        return len(kinds) == 1

    def _mismatch_error(self, key: str, graph: GraphRecord, rows: Array | None) -> DamagedInput:
        level, _, attribute = key.partition("/")
        before = self._columns.get(key)
        expected = "none"
        if before is not None:
            expected = f"{before.dtype}, {list(before.shape)} for each {level}"
        elif key == self.target:
            expected = "a target"
        finding = "none"
        if rows is not None:
            finding = f"{rows.dtype}, {list(rows.shape[1:])} for each {level}"
        return DamagedInput(
            f"Graph {graph.key}: {attribute!r} is not as in the graphs before it.",
            expected=expected,
            found=finding,
            next=f"give every graph a {attribute!r} of the same dtype and as many numbers, or none",
        )

    def columns(self) -> list[Column]:
        """Return the columns except the targets, in the order of the first graph."""
        columns = []
        for key, values in self._columns.items():
            level, _, attribute = key.partition("/")
            if not attribute.isidentifier():
                raise DamagedInput(
                    f"{attribute!r} cannot be the name of a column.", next="rename it"
                )
            stored_key = f"{level}/column_{attribute}" if key in RESERVED else key
            form = self.forms.get(key, "axis")
            column = values.to_column(stored_key, attribute, form)
            if form == "text":  # a shorter one is padded with zeros
                column = replace(column, low=None, high=None)
            columns.append(column)
        return columns

    def missing_values(self) -> dict[str, int]:
        """Return the number of NaN by attribute, of columns with some; call :meth:`columns` first."""
        counts = {}
        for key, values in self._columns.items():
            if values.missing:
                counts[key.partition("/")[2]] = values.missing
        return counts

    def layout(self) -> tuple[EdgeLayout, int | None]:
        """Return how edges are stored: as neighbours if every node of all graphs has k sources."""
        if not self._degrees:
            return "none", None
        k = next(iter(self._degrees))
        if len(self._degrees) > 1 or k is None:
            return "index", None
        return "neighbor", k

    def schema(self, columns: list[Column], *, directed: bool) -> Schema:
        """Return the schema of graphs of these columns."""
        edges, k = self.layout()
        return Schema(
            columns=tuple(columns),
            edges=edges,
            k=k,
            max_nodes=65_536 if self.most_nodes <= 65_536 else MAX_NODES,
            directed=directed,
            key_length=max(8, self.longest_key),
        )


def fixed_degree(edge_index: Integers, nodes: int) -> int | None:
    """Return k if edges (2, E) are the k sources of node 0, then of node 1, …; else ``None``."""
    edges = edge_index.shape[1]
    if not nodes or not edges or edges % nodes:
        return None
    k = edges // nodes
    targets = edge_index[1].reshape(nodes, k)
    in_order = (targets == np.arange(nodes)[:, None]).all()
    return k if in_order else None
