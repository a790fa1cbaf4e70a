"""Tables joined to one: below each other, or column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import I64
from kmip_data.pipelines.own.table import Table


def stacked(parts: Sequence[tuple[Table, tuple[str, str]]]) -> Table:
    """Return tables of edges, each with its ends, as one of ``source``, ``target`` and other columns.

    The column ``table`` has the name of each row's table: the kind of its edge.
    """
    tables, _ = zip(*parts, strict=True)
    names = dict.fromkeys(
        name for table, ends in parts for name in table.column_names if name not in ends
    )
    columns: dict[str, list[pa.Array]] = {}
    for table, ends in parts:
        rows = {**table.columns, "source": table.columns[ends[0]], "target": table.columns[ends[1]]}
        rows["table"] = pa.array([table.name] * table.rows, pa.string())
        for name in ("source", "target", *names, "table"):
            cells = rows.get(name, pa.nulls(table.rows, pa.string()))
            columns.setdefault(name, []).append(cells)
    lines = [
        table.lines + np.arange(table.rows) if isinstance(table.lines, int) else table.lines
        for table in tables
    ]
    return Table(
        " and ".join(table.name for table in tables),
        {name: concatenated(cells) for name, cells in columns.items()},
        row_word=tables[0].row_word,
        lines=np.concatenate(lines),
        locations=[table.name for table in tables for _ in range(table.rows)],
    )


def concatenated(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the cells of several tables as one column (R,), as texts if their types differ."""
    if len({part.type for part in parts}) > 1:
        parts = [pc.cast(part, pa.string()) for part in parts]
    return pa.concat_arrays(parts)


def with_columns(table: Table, other: Table, rows: I64, key: str) -> Table:
    """Return a table with the columns of another at ``rows`` (R,), -1 for none, without its ``key``."""
    positions = pa.array(rows, mask=rows < 0)
    added = {
        f"{other.name} {name}" if name in table.columns else name: cells.take(positions)
        for name, cells in other.columns.items()
        if name != key and not name.startswith("\0")
    }
    return replace(table, columns={**table.columns, **added})
