"""Sheets of a workbook of Excel or OpenDocument as tables."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.errors import DamagedInput, OutOfResources, Setting
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own import workbook_process
from kmip_data.pipelines.own.headers import TopRow
from kmip_data.pipelines.own.table import Table, table_of_arrays
from kmip_data.text import human_bytes

#: Peak memory per byte of JSON with the cells; 100,000 rows of five columns take 10.
_BYTES_PER_JSON_BYTE = 16
_HEAD_ROWS = 20  #: rows of each sheet in which the head of a file looks for names


@dataclass
class _Sheet:
    """Sheet of a workbook, with the cells as they are stored."""

    name: str
    is_hidden: bool
    merged: list[tuple[int, int, int, int]]  #: first row and column, last row and column
    rows: list[list[Any]] = field(default_factory=list)  #: from the first row of the sheet

    def fill_merged_cells(self, header: int) -> None:
        """Give each cell of a merged range below the names the value of the first."""
        for first_row, first_column, last_row, last_column in self.merged:
            if header < first_row < len(self.rows) and first_column < len(self.rows[first_row]):
                value = self.rows[first_row][first_column]
                for row in self.rows[first_row : last_row + 1]:
                    for column in range(first_column, min(last_column + 1, len(row))):
                        row[column] = value

    @property
    def header(self) -> int:
        """Position of the row with the names: the first with two filled cells, or else with one."""
        for least in (2, 1):
            for position, row in enumerate(self.rows):
                if sum(cell is not None for cell in row) >= least:
                    return position
        return 0


def names_in_workbook(path: Path, memory: int | None) -> list[str]:
    """Return the names of the columns of all sheets."""
    sheets = _sheets_of(path, memory, lambda *_: None, _HEAD_ROWS)
    headers = [sheet.rows[sheet.header] for sheet in sheets if sheet.rows]
    return [str(cell) for header in headers for cell in header if cell is not None]


def read_workbook(path: Path, name: str, options: ReadOptions, notices: Notices) -> list[TopRow]:
    """Return the table of each sheet, even a hidden one, from its first row with two filled cells."""
    tables = []
    for sheet in _sheets_of(path, options.memory, options.check_memory):
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
        cells = [*zip_longest(*(sheet.rows[number - 1] for number in numbers))]
        whole = partial(_table_of_cells, table, cells, numbers, notices)
        below = [column[1:] for column in cells]
        first = ["" if cell is None else str(cell).strip() for cell, *_ in cells]
        tables.append(TopRow(first, _table_of_cells(table, below, numbers[1:], notices), whole))
    if not tables:
        raise DamagedInput(f"{name} has no cell.", steps="write a table into a sheet")
    return tables


def _table_of_cells(
    name: str, cells: Sequence[Sequence[Any]], numbers: Any, notices: Notices
) -> Table:
    columns = {str(i): column for i, column in enumerate(cells)}
    facts = {"has_names": False, "row_word": "row", "lines": numbers}
    return table_of_arrays(name, columns, notices.ignored, **facts)


def _sheets_of(
    path: Path, memory: int | None, check_memory: Callable[[int, str], None], rows: int = 0
) -> list[_Sheet]:
    """Return the sheets of a workbook, also those without a cell, with at most so many rows; 0: all.

    ``memory`` is the limit of the process that reads it, and ``check_memory`` takes the bytes that
    the cells need here. Raises ``DamagedInput`` for a damaged or protected workbook, and for a
    formula whose value is not stored.
    """
    sheets: list[_Sheet] = []
    size = 0
    for line in _lines_of_process(path, memory, rows):
        size += len(line)
        check_memory(_BYTES_PER_JSON_BYTE * size, path.name)
        value = json.loads(line)
        if isinstance(value, list):
            sheets[-1].rows += value
        elif "error" in value:
            raise _workbook_error(path, value)
        else:
            sheets.append(_Sheet(value["sheet"], value["is_hidden"], value["merged"]))
    return sheets


def _lines_of_process(path: Path, memory: int | None, rows: int) -> Iterator[bytes]:
    """Yield the lines that ``workbook_process.py`` writes."""
    arguments = [str(path), str(memory or 0), str(rows)]
    # Option -P keeps this folder, whose modules are named like some of Python, off the path.
    command = [sys.executable, "-P", workbook_process.__file__, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield from process.stdout or ()
        except BaseException:
            process.kill()
            raise
    if process.returncode == workbook_process.OUT_OF_MEMORY or process.returncode < 0:
        allowed = "the machine has"
        if memory is not None:
            allowed = f"the {human_bytes(memory)} that are allowed"
        gibibytes = -(-2 * (memory or 0) // 2**30)
        raise OutOfResources(
            f"{path.name} needs more memory than {allowed}.",
            steps=["save its sheets as CSV", Setting(memory=f"{gibibytes}GiB")],
        )
    if process.returncode:
        raise _workbook_error(path, {"error": f"exit code {process.returncode}"})


def _workbook_error(path: Path, fault: dict[str, Any]) -> DamagedInput:
    """Return the error for what the process reports."""
    if fault["error"] == "password":
        return DamagedInput(
            f"{path.name} is protected by a password.", steps="save it without the password"
        )
    if fault["error"] == "formula":
        sheet, cell = fault["cell"]
        return DamagedInput(
            f"{path.name}, sheet {sheet}, cell {cell}: a formula without a stored value.",
            steps="open the workbook in a spreadsheet program and save it, which stores the values",
        )
    return DamagedInput(
        f"{path.name} cannot be read as a workbook.",
        expected="a workbook of Excel (.xlsx, .xlsb, .xls) or OpenDocument (.ods)",
        found=fault["error"],
        steps="open it in a spreadsheet program and save it, or save its sheets as CSV",
    )
