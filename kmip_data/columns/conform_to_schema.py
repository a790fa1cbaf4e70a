"""Checked conversion of rows and records to the stored dtypes of a schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.columns.labels import InferredTarget
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord


def conform_rows(rows: Array, column: Column, where: str) -> Array:
    """Return rows (R, …) of a column in its stored dtype; ``where`` begins error messages.

    Raises ``DamagedInput`` for values that are out of bounds, not finite, or changed by the cast.
    """
    if problem := column.problem(rows):
        raise DamagedInput(f"{where}: {column.attribute} {problem}.")
    if rows.dtype == column.stored:
        return rows
    with np.errstate(all="ignore"):
        stored = rows.astype(column.stored)
    changed = (stored != rows) & ~((stored != stored) & (rows != rows))  # noqa: PLR0124 -- NaN stays NaN
    if changed.any():
        before = rows[changed][0].item()
        after = stored[changed][0].item()
        raise DamagedInput(
            f"{where}: {column.attribute} is stored as {column.stored}, which would change {before} to {after}.",
            expected=f"only values that {column.stored} holds exactly",
        )
    return stored


def conform_block(
    block: GraphBlock, schema: Schema, target: InferredTarget | None
) -> Iterator[GraphRecord]:
    """Yield graphs whose columns have the stored dtypes of a schema, as :func:`conform_record`."""
    columns = _conform_columns(block.columns, schema, target, f"Graph {block.keys[0]} or later")
    yield from replace(block, columns=columns).records(schema.k)


def _conform_columns(
    values: Mapping[str, Array], schema: Schema, target: InferredTarget | None, where: str
) -> dict[str, Array]:
    columns = {}
    for column in schema.columns:
        key = f"{column.level}/{column.attribute}"
        rows = values[column.key if column.key in values else key]
        if target is not None and column.key == target.column.key:
            rows = target.stored_rows(rows)
        if column.form == "text":
            rows = np.pad(rows, ((0, 0), (0, column.shape[0] - rows.shape[1])))
        columns[column.key] = conform_rows(rows, column, where)
    return columns


def conform_record(
    graph: GraphRecord, schema: Schema, target: InferredTarget | None
) -> GraphRecord:
    """Return a graph whose columns (rows, …) have the stored dtypes of a schema.

    Graph-level columns have one row. Edges become a neighbour table if the schema has one.
    """
    columns = _conform_columns(graph.columns, schema, target, graph.key)
    for column in schema.columns:
        if column.level == "graph":
            columns[column.key] = columns[column.key][0]
    edges = graph.edge_index
    if edges is None or schema.edges != "neighbor":
        return replace(graph, columns=columns)
    neighbor = edges[0].reshape(graph.num_nodes, -1)
    return replace(graph, columns=columns, neighbor=neighbor, edge_index=None)
