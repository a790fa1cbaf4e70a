"""Sheets of a workbook of Excel or OpenDocument as tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.formats.typed_tables.workbooks import sheets_of
from kmip_data.pipelines.own.headers import TopRow
from kmip_data.pipelines.own.table import Table, table_of_arrays


def read_workbook(path: Path, name: str, options: ReadOptions, notices: Notices) -> list[TopRow]:
    """Return the table of each sheet, even a hidden one, from its first row with two filled cells."""
    tables = []
    for sheet in sheets_of(path, options.memory, options.check_memory):
        table = f"{name}, {sheet.name}"
        if not sheet.rows:
            notices.ignored[table] = "no cell"
            continue
        if sheet.is_hidden:
            notices.warnings.append(f"{table} is hidden, and is read like the others")
        top = sheet.header
        sheet.fill_merged_cells(top)
        filled = [any(cell is not None for cell in row) for row in sheet.rows]
        numbers = np.flatnonzero(filled[top:]) + top + 1
        rows = [sheet.rows[number - 1] for number in numbers]
        make = partial(_table_of_rows, table, len(rows[0]), notices=notices)
        whole = partial(make, rows=rows, numbers=numbers)
        below = make(rows=rows[1:], numbers=numbers[1:])
        first = ["" if cell is None else str(cell).strip() for cell in rows[0]]
        tables.append(TopRow(first, below, whole))
    if not tables:
        raise DamagedInput(f"{name} has no cell.", steps="write a table into a sheet")
    return tables


def _table_of_rows(
    name: str, width: int, *, rows: Sequence[Sequence[Any]], numbers: Any, notices: Notices
) -> Table:
    columns = {str(i): [row[i] for row in rows] for i in range(width)}
    facts = {"has_names": False, "row_word": "row", "lines": numbers}
    return table_of_arrays(name, columns, notices.ignored, **facts)
