"""Checked conversion of rows and graphs to the stored dtypes of a schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.columns.labels import InferredTarget
from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema


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
    """Yield graphs whose columns (rows, …) have the stored dtypes of a schema.

    Edges become a neighbour table if the schema has one.
    """
    where = f"Graph {block.keys[0]} or later"
    columns = {}
    for column in schema.columns:
        key = f"{column.level}/{column.attribute}"
        rows = block.columns[column.key if column.key in block.columns else key]
        if target is not None and column.key == target.column.key:
            rows = target.stored_rows(rows)
        if column.form == "text":
            rows = np.pad(rows, ((0, 0), (0, column.shape[0] - rows.shape[1])))
        columns[column.key] = conform_rows(rows, column, where)
    yield from replace(block, columns=columns).records(schema.k)
