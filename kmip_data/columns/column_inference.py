"""Inference of the schema of graphs from the records of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.column_statistics import ColumnStatistics
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import RESERVED_KEYS, Column, EdgeLayout, ItemForm, Schema

MAX_NODES = 2**32  #: largest graph of a shard


@dataclass
class InferredColumns:
    """Columns, totals and maxima of all graphs added so far.

    Columns (rows, …) must have the same row shape in every graph. Their dtypes may differ in width
    only; the widest is used. Graph-level columns have one row.
    """

    graphs: int = 0
    max_nodes: int = 0
    longest_key: int = 0
    nodes: int = 0
    edges: int = 0
    targets: list[Array] = field(default_factory=list)
    target: str = ""  #: key of the targets
    #: key of a graph-level column -> its form, unless ``axis``
    forms: dict[str, ItemForm] = field(default_factory=dict)
    _columns: dict[str, ColumnStatistics] = field(default_factory=dict)
    #: in-degree that all nodes of a graph share, or ``None``, for each graph
    _degrees: set[int | None] = field(default_factory=set)

    def add(self, block: GraphBlock, target: str, forms: Mapping[str, ItemForm]) -> None:
        """Add graphs, whose targets are in the column ``target`` if it exists.

        ``forms`` has the forms of all graph-level columns so far. Raises ``DamagedInput`` if the
        columns differ from those of earlier graphs.
        """
        is_first_block = not self.graphs
        self.forms |= forms
        self.graphs += len(block)
        self.nodes += int(block.node_counts.sum())
        self.edges += int(block.edge_counts.sum())
        self.max_nodes = max(self.max_nodes, int(block.node_counts.max()))
        self.longest_key = max(self.longest_key, *map(len, block.keys))
        if block.edge_index is not None:
            self._degrees.add(fixed_degree(block))

        # Targets are collected; their task is inferred from all graphs together.
        values = dict(block.columns)
        y = values.pop(target, None)
        is_first_target = y is not None and not self.target
        is_missing_target = y is None and bool(self.target)
        if not is_first_block and (is_first_target or is_missing_target):
            raise self._mismatch_error(target or self.target, block.keys[0], y)
        if y is not None:
            self.target = target
            self.targets.append(y)

        if is_first_block:
            for key, array in values.items():
                self._columns[key] = ColumnStatistics(array.dtype, array.shape[1:])
        for key in {**self._columns, **values}:
            column = self._columns.get(key)
            rows = values.get(key)
            if column is None or rows is None or not self._widen_column(key, column, rows):
                # The columns of a block are equal, so its first graph differs from earlier ones.
                raise self._mismatch_error(key, block.keys[0], rows)
            column.add(rows)

    def _widen_column(self, key: str, column: ColumnStatistics, rows: Array) -> bool:
        """Widen a column to hold ``rows``; False if row shapes or kinds of dtypes differ."""
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

    def _mismatch_error(self, key: str, graph: str, rows: Array | None) -> DamagedInput:
        level, _, attribute = key.partition("/")
        column = self._columns.get(key)
        expected = "none"
        if column is not None:
            expected = f"{column.dtype}, {list(column.shape)} per {level}"
        elif key == self.target:
            expected = "a target"
        found = "none"
        if rows is not None:
            found = f"{rows.dtype}, {list(rows.shape[1:])} per {level}"
        return DamagedInput(
            f"Graph {graph}: {attribute!r} differs from the earlier graphs.",
            expected=expected,
            found=found,
            steps="give it the same dtype and shape in every graph, or leave it out of all",
        )

    def columns(self) -> list[Column]:
        """Return all columns except the targets, in the order of the first graph."""
        columns = []
        for key, values in self._columns.items():
            level, _, attribute = key.partition("/")
            if not attribute.isidentifier():
                raise DamagedInput(f"{attribute!r} is not a valid column name.", steps="rename it")
            stored_key = f"{level}/column_{attribute}" if key in RESERVED_KEYS else key
            form = self.forms.get(key, "axis")
            column = values.to_column(stored_key, attribute, form)
            if form == "text":  # shorter strings are padded with zeros, below the bounds
                column = replace(column, low=None, high=None)
            columns.append(column)
        return columns

    def missing_values(self) -> dict[str, int]:
        """Return the number of NaN by attribute, where there are any; call :meth:`columns` first."""
        counts = {}
        for key, values in self._columns.items():
            if values.missing:
                counts[key.partition("/")[2]] = values.missing
        return counts

    def edge_layout(self) -> tuple[EdgeLayout, int | None]:
        """Return the layout of edges, and k if all nodes of all graphs have k sources in order."""
        if not self._degrees:
            return "none", None
        k = next(iter(self._degrees))
        if len(self._degrees) > 1 or k is None:
            return "index", None
        return "neighbor", k

    def schema(self, columns: list[Column], *, directed: bool) -> Schema:
        """Return the schema of all graphs, with the given columns."""
        edges, k = self.edge_layout()
        return Schema(
            columns=tuple(columns),
            edges=edges,
            k=k,
            max_nodes=65_536 if self.max_nodes <= 65_536 else MAX_NODES,
            directed=directed,
            key_length=max(8, self.longest_key),
        )


def fixed_degree(block: GraphBlock) -> int | None:
    """Return k if the edges of each graph list k sources of node 0, then of node 1, …; else ``None``."""
    nodes = block.node_counts
    edges = block.edge_counts
    k = int(edges[0] // max(nodes[0], 1))
    if not k or not nodes.all() or (edges != k * nodes).any():
        return None
    union = block.union()
    targets = np.asarray(union.edge_index)[1].reshape(-1, k)
    in_order = (targets == np.arange(union.num_nodes)[:, None]).all()
    return k if in_order else None
