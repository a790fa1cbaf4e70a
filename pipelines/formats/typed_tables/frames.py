"""Tables whose columns have names and types: Parquet, Arrow, JSON, workbooks, and frames in Python."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.formats.file_heads import (
    decompressed_head,
    is_gzip,
    is_workbook,
    read_checked,
)
from kmip_data.pipelines.formats.graph_texts.json_graphs import is_json_table
from kmip_data.pipelines.formats.typed_tables import SHEET_MARK
from kmip_data.pipelines.formats.typed_tables.arrow_tables import (
    CheckMemory,
    is_arrow_file,
    names_in_arrow_file,
    read_arrow_file,
)
from kmip_data.pipelines.formats.typed_tables.workbooks import (
    Sheet,
    frame_of_sheet,
    names_in_workbook,
    read_sheets,
)

_JSON_LINES = (".jsonl", ".ndjson")
#: Peak memory of parsing, measured with 200,000 edges of two numbers; six columns take 10.
_BYTES_PER_JSON_BYTE = 16
_DTYPE_OF_KIND: dict[str, Any] = {"i": "int64", "u": "uint64", "f": "float64", "b": "bool"}


@dataclass(frozen=True)
class FileFrame:
    """Table of a file, with the numbers of its rows for messages."""

    name: str  #: name of the file, and of the sheet of a workbook
    frame: pd.DataFrame
    row_word: str  #: word for a row in messages
    first_number: int  #: number of the first row if none is left out
    numbers_without_row: Sequence[int] = ()  #: of blank lines and rows, ascending
    warnings: Sequence[str] = ()  #: about a hidden sheet, and dates that are unknown
    #: Column whose dtype makes it one of categories -> their texts, in order.
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def is_frame_file(name: str, head: bytes) -> bool:
    """True for a file whose columns have names and types, given its name and first bytes."""
    lowered = name.lower()
    is_json_lines = lowered.removesuffix(".gz").endswith(_JSON_LINES)
    is_binary = is_arrow_file(name) or is_workbook(name)
    return is_json_lines or is_binary or is_json_table(head)


def read_frames(path: Path, memory: int | None, check_memory: CheckMemory) -> list[FileFrame]:
    """Return the table of a file, or those of all sheets of a workbook.

    ``memory`` limits the process that reads a workbook. Raises ``DamagedInput`` with the line if the
    file is damaged, ``MissingExtra`` without pyarrow.
    """
    if is_workbook(path.name):
        sheets = read_sheets(path, memory, check_memory)
        return [_frame_of_sheet(path, sheet) for sheet in sheets]
    numbers_without_row: list[int] = []
    row_word = "row"
    first_number = 0
    if is_arrow_file(path.name):
        frame = read_arrow_file(path, check_memory)
    elif path.name.lower().removesuffix(".gz").endswith(_JSON_LINES):
        row_word = "line"
        first_number = 1
        frame = pd.DataFrame(list(_json_objects(path, numbers_without_row, check_memory)))
    else:
        frame = pd.DataFrame(_json_records(path, check_memory))
    if not len(frame.columns):
        raise DamagedInput(f"{path.name} is empty.", steps="write a table into it")
    return [
        with_typed_columns(FileFrame(path.name, frame, row_word, first_number, numbers_without_row))
    ]


def _frame_of_sheet(path: Path, sheet: Sheet) -> FileFrame:
    name = f"{path.name}{SHEET_MARK}{sheet.name}"
    frame, numbers = frame_of_sheet(sheet, name)
    warnings = [f"{name} is hidden, and is read like the others"] if sheet.is_hidden else []
    return with_typed_columns(FileFrame(name, frame, "row", 2, numbers, warnings))


def _json_records(path: Path, check_memory: CheckMemory) -> list[dict[str, Any]]:
    """Return the objects of a list."""
    try:
        data = read_checked(path, lambda size: check_memory(_BYTES_PER_JSON_BYTE * size, path.name))
        rows = json.loads(data.decode("utf-8-sig"))
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise TypeError(f"record {number} is a {type(row).__name__}")  # noqa: TRY301
    except (OSError, EOFError, TypeError, ValueError, RecursionError) as error:
        raise _json_error(path, f"{path.name} is not a list of objects", error, "") from error
    return list(rows)


def _json_objects(
    path: Path, blank_lines: list[int], check_memory: CheckMemory
) -> Iterator[dict[str, Any]]:
    """Yield the object of each line; append the numbers of blank lines to ``blank_lines``."""
    number = 0
    size = 0
    try:
        with gzip.open(path) if is_gzip(path) else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                size += len(line)
                check_memory(_BYTES_PER_JSON_BYTE * size, path.name)
                if not line.strip():
                    blank_lines.append(number)
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise TypeError(f"a {type(row).__name__}")  # noqa: TRY301 -- with its line
                yield row
    except (OSError, EOFError, TypeError, ValueError, RecursionError) as error:
        location = f"{path.name}, line {number}: not an object"
        raise _json_error(path, location, error, ", lines=True") from error


def _json_error(path: Path, problem: str, error: Exception, option: str) -> DamagedInput:
    return DamagedInput(
        f"{problem} of JSON: an object for each row, such as {{'source': 0, 'target': 1}}.",
        found=first_problem(error),
        steps=f"write it with pandas: frame.to_json({path.name!r}, orient='records'{option})",
    )


def head_of_table(path: Path, memory: int | None) -> bytes:
    """Return the first bytes of a file, decompressed; of a binary table, the names of its columns."""
    if is_workbook(path.name):
        return ",".join(names_in_workbook(path, memory)).encode()
    if is_arrow_file(path.name):
        return ",".join(names_in_arrow_file(path)).encode()
    return decompressed_head(path)


def with_typed_columns(table: FileFrame) -> FileFrame:
    """Return a table with the dtypes of tables read from text, and with its categories.

    Categories without a row count only if their dtype is ordered.
    """
    columns = {}
    categories = {}
    for column, values in table.frame.items():
        converted = values
        if isinstance(values.dtype, pd.CategoricalDtype):
            used = values if values.dtype.ordered else values.cat.remove_unused_categories()
            numbers = used.cat.categories
            if numbers.dtype.kind == "f" and (numbers % 1 == 0).all():  # next to missing values
                used = used.cat.rename_categories(numbers.astype("int64").tolist())
            categories[str(column)] = tuple(used.cat.categories.map(str).str.strip())
            converted = used.astype(object)
        elif values.dtype.kind in "mM":
            converted = values.astype(str).where(values.notna())
        elif values.dtype.kind in "iufb" and not isinstance(values.dtype, np.dtype):
            # pandas' extension dtypes support missing values.
            dtype: Any = "float64" if values.hasnans else _DTYPE_OF_KIND[values.dtype.kind]
            converted = values.astype(dtype)
        elif values.dtype == object:
            converted = values.map(array_as_list)
        columns[str(column)] = converted
    frame = pd.DataFrame(columns).reset_index(drop=True)
    return replace(table, frame=frame, categories=categories)


def array_as_list(value: object) -> object:
    """Convert an array to a list, whose ``repr`` has all values."""
    return value.tolist() if isinstance(value, np.ndarray) else value
