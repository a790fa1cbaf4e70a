"""Tables in the sheets of a workbook: Excel's and OpenDocument's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from kmip_data.errors import DamagedInput, OutOfResources, Setting
from kmip_data.pipelines.formats.header_line import UNNAMED_PREFIX
from kmip_data.pipelines.formats.typed_tables import workbook_process
from kmip_data.text import human_bytes, list_names

#: Peak memory per byte of JSON with the cells; 100,000 rows of five columns take 10.
_BYTES_PER_JSON_BYTE = 16
_HEAD_ROWS = 20  #: rows of each sheet in which the head of a file looks for names

Row = list[Any]


@dataclass
class Sheet:
    """Sheet of a workbook, with the cells as they are stored."""

    name: str
    is_hidden: bool
    merged: list[tuple[int, int, int, int]]  #: first row and column, last row and column
    rows: list[Row] = field(default_factory=list)  #: from the first row of the sheet

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


def names_in_workbook(path: Path, memory: int | None = None) -> list[str]:
    """Return the names of the columns of all sheets."""
    sheets = sheets_of(path, memory, lambda *_: None, _HEAD_ROWS)
    headers = [sheet.rows[sheet.header] for sheet in sheets if sheet.rows]
    return [str(cell) for header in headers for cell in header if cell is not None]


def read_sheets(
    path: Path, memory: int | None, check_memory: Callable[[int, str], None]
) -> list[Sheet]:
    """Return the sheets of a workbook that have a cell, hidden ones too."""
    sheets = [sheet for sheet in sheets_of(path, memory, check_memory) if sheet.rows]
    if not sheets:
        raise DamagedInput(f"{path.name} has no cell.", steps="write a table into a sheet")
    return sheets


def frame_of_sheet(sheet: Sheet, table: str) -> tuple[pd.DataFrame, list[int]]:
    """Return the rows below the names, and the numbers of rows of the sheet that are no data.

    A column without a name is called as in a text, and one without a cell, too, is left out. Raises
    ``DamagedInput`` if two have the same name, or if the row of names may be data.
    """
    header = sheet.header
    sheet.fill_merged_cells(header)
    width = max(map(len, sheet.rows))
    names = ["" if cell is None else str(cell).strip() for cell in sheet.rows[header]]
    names += [""] * (width - len(names))
    rows = []
    numbers_without_row = list(range(1, header + 1))
    for number, row in enumerate(sheet.rows[header + 1 :], header + 2):
        if any(cell is not None for cell in row):
            rows.append(row)
        else:
            numbers_without_row.append(number)
    _refuse_data_as_names(table, header + 1, names, rows, sheet.rows[header])
    columns = {}
    for column, name in enumerate(names):
        cells = [row[column] for row in rows]
        if name or any(cell is not None for cell in cells):
            columns[name or f"{UNNAMED_PREFIX}{column}"] = cells

    duplicates = [name for name, count in Counter(filter(None, names)).items() if count > 1]
    if duplicates:
        raise DamagedInput(
            f"{table} has two columns called {duplicates[0]!r}.",
            found=list_names(names, 500),
            steps=f"rename one of them in row {header + 1}",
        )
    return pd.DataFrame(columns), numbers_without_row


def _refuse_data_as_names(
    table: str, number: int, names: Sequence[str], rows: Sequence[Row], first: Row
) -> None:
    """Refuse a first row of numbers, and texts that also occur below: the sheet may have no names."""
    filled = [cell for cell in first if cell is not None]
    for column, name in enumerate(first):
        values = {type(row[column]) for row in rows if row[column] is not None}
        if isinstance(name, str) and values and values <= {int, float}:
            return  # a name above numbers
    texts = {cell for row in rows for cell in row if isinstance(cell, str)}
    are_numbers = all(isinstance(cell, int | float) for cell in filled)
    if are_numbers or not texts.isdisjoint(filter(None, names)):
        raise DamagedInput(
            f"{table}, row {number} may be data and no names of columns: {list_names(map(str, filled), 200)}.",
            steps="write the names of the columns into a row above it",
        )


def sheets_of(
    path: Path, memory: int | None, check_memory: Callable[[int, str], None], rows: int = 0
) -> list[Sheet]:
    """Return the sheets of a workbook, also those without a cell, with at most so many rows; 0: all.

    ``memory`` is the limit of the process that reads it, and ``check_memory`` takes the bytes that
    the cells need here. Raises ``DamagedInput`` for a damaged or protected workbook, and for a
    formula whose value is not stored.
    """
    sheets: list[Sheet] = []
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
            sheets.append(Sheet(value["sheet"], value["is_hidden"], value["merged"]))
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
