"""Files of a dataset as tables: a reader for each suffix, and one table of files with the same columns."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc, parquet

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import InflateError, first_problem, open_gzip
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.formats.file_heads import is_gzip
from kmip_data.pipelines.formats.text import decode_text
from kmip_data.pipelines.own.headers import NoTable, TopRow, name_columns
from kmip_data.pipelines.own.table import FILE, FOLDER, STEM, Table, table_of_arrays
from kmip_data.pipelines.own.texts import read_text
from kmip_data.pipelines.own.workbooks import read_workbook

_BYTES_PER_JSON_BYTE = 16  #: peak memory of parsing, measured with 200,000 edges of two numbers
_BLOCK_BYTES = 2**20
_ARROW_MAGIC = b"ARROW1"  #: begins a file, and not a stream
_PARQUET = (".parquet", ".pq")
_JSON_LINES = (".jsonl", ".ndjson")
_ROWS_FROM_0: Any = {"row_word": "row", "lines": 0}
_INDEX = re.compile(r"__index_level_\d+__")  #: name that pandas writes for an index without one

Reader = Callable[[Path, str, ReadOptions, Notices], Sequence[Table | TopRow]]


def read_tables(
    folder: Path, files: Sequence[str], options: ReadOptions, notices: Notices
) -> list[Table]:
    """Return the tables of files; those with the same columns are one table.

    A file that is no table is noted, unless it is the only one. Raises ``DamagedInput`` with the line
    of a fault.
    """
    found: dict[tuple[str, str], Table | TopRow] = {}
    problems: list[NoTable] = []
    for file in files:
        try:
            with _decompressed(folder / file, file, options) as path:
                reader = READERS.get(path.suffix.lower(), read_text)
                tables = reader(path, Path(file).name, options, notices)
        except NoTable as error:
            problems.append(error)
            notices.ignored[file] = f"no table: {error.message}"
            continue
        for table in tables:
            if len(files) > 1 and isinstance(table, TopRow) and not table.below.rows:
                notices.ignored[table.name] = "no table: it has one line"
            else:
                found[file, table.name] = table
    if problems and not found:
        raise problems[0]
    named = name_columns(found, options, notices)
    return _joined(dict(zip(found, named, strict=True)))


@contextmanager
def _decompressed(path: Path, name: str, options: ReadOptions) -> Iterator[Path]:
    """Yield a file, or a temporary one with its bytes without gzip."""
    if not is_gzip(path):
        yield path
        return
    with tempfile.TemporaryDirectory(dir=options.workdir) as folder:
        plain = Path(folder, path.name.removesuffix(".gz"))
        try:
            with open_gzip(path) as source, plain.open("wb") as copy:
                while block := source.read(_BLOCK_BYTES):
                    copy.write(block)
                    options.check_memory(copy.tell(), name)
        except (InflateError, EOFError, OSError) as error:
            raise DamagedInput(f"{name} is a damaged gzip: {error}.") from error
        yield plain


# 1. Readers.
def _read_arrow(path: Path, name: str, options: ReadOptions, notices: Notices) -> Sequence[Table]:
    """Return the table of a file of Parquet or Arrow; an index of pandas that numbers rows is none."""
    try:
        columns = _arrow_columns(path, name, options)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedInput(
            f"{name} cannot be read as Parquet or Arrow.",
            found=first_problem(error),
            steps=f"write it with pandas: frame.to_parquet({path.with_suffix('.parquet').name!r})",
        ) from error
    for key in filter(_INDEX.fullmatch, [*columns]):
        index = columns.pop(key)
        if not pa.types.is_integer(index.type):
            columns["index"] = index
    return [table_of_arrays(name, columns, notices.ignored, **_ROWS_FROM_0)]


def _arrow_columns(path: Path, name: str, options: ReadOptions) -> dict[str, pa.ChunkedArray]:
    if path.suffix.lower() in _PARQUET:
        with parquet.ParquetFile(path) as file:
            groups = map(file.metadata.row_group, range(file.num_row_groups))
            options.check_memory(2 * sum(group.total_byte_size for group in groups), name)
            table = file.read()
    else:
        size = 0
        batches = []
        with pa.memory_map(str(path)) as file:
            is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
            file.seek(0)
            reader = ipc.open_file(file) if is_file else ipc.open_stream(file)
            numbers = range(reader.num_record_batches) if is_file else ()
            for batch in map(reader.get_batch, numbers) if is_file else reader:
                size += batch.nbytes
                options.check_memory(2 * size, name)
                batches.append(batch)
            table = pa.Table.from_batches(batches, reader.schema)
    table = table.unify_dictionaries()
    return dict(zip(table.column_names, table.columns, strict=True))


def _read_json(path: Path, name: str, options: ReadOptions, notices: Notices) -> Sequence[Table]:
    """Return the table of JSON: an object in each line, a list of objects, or objects by their id.

    Numbers and texts stay as they are: Arrow's parser reads texts as dates, and long numbers as floats.
    """
    options.check_memory(_BYTES_PER_JSON_BYTE * path.stat().st_size, name)
    text = decode_text(path.read_bytes(), name, options.params.encoding)
    is_lines = path.suffix.lower() in _JSON_LINES
    lines = text.split("\n")
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()] if is_lines else []
    if is_lines:
        text = ",\n".join(lines[number - 1] for number in numbers).join("[]")
    try:
        rows = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        line = [*numbers, *numbers[-1:]][line - 1] if numbers else line
        raise DamagedInput(f"{name}, line {line}: no JSON.", found=first_problem(error)) from error
    if isinstance(rows, dict) and not any(isinstance(row, list) for row in rows.values()):
        rows = [
            {"id": key, **(row if isinstance(row, dict) else {"label": row})}
            for key, row in rows.items()
        ]
    is_table = isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)
    if not is_table or len(numbers) not in {0, len(rows)}:
        raise NoTable(
            f"{name} has no list of objects, such as [{{'source': 0, 'target': 1}}].",
            steps=f"write it with pandas: frame.to_json({name!r}, orient='records')",
        )
    keys = dict.fromkeys(chain.from_iterable(rows))
    options.check_memory(8 * len(keys) * len(rows), name)
    columns = {key: [row.get(key) for row in rows] for key in keys}
    facts = {"row_word": "line", "lines": np.array(numbers)} if is_lines else _ROWS_FROM_0
    return [table_of_arrays(name, columns, notices.ignored, **facts)]


#: Suffix -> reader; a file with any other is read as a text.
READERS: dict[str, Reader] = {
    **dict.fromkeys((*_PARQUET, ".arrow", ".feather", ".ipc"), _read_arrow),
    **dict.fromkeys((*_JSON_LINES, ".json"), _read_json),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), read_workbook),
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".edges"), read_text),
}


# 2. Tables of several files.
def _joined(tables: Mapping[tuple[str, str], Table]) -> list[Table]:
    """Return one table for all files with the same column names, and each other table.

    Files without names are joined if there are three, and lists of one column if there are two.
    """
    groups: dict[Sequence[object], list[tuple[str, Table]]] = {}
    occurrences = Counter(name for _, name in tables)
    for (file, name), table in tables.items():
        path = str(PurePosixPath(file).parent / name) if occurrences[name] > 1 else name
        key = (table.has_names or table.separator, *table.columns)
        groups.setdefault(key, []).append((file, replace(table, name=path)))
    joined: dict[str, Table] = {}
    for (has_names, *columns), group in groups.items():
        if len(group) >= (2 if has_names is True or len(columns) == 1 else 3):
            folders = {PurePosixPath(file).parent.as_posix() for file, _ in group}
            name = ", ".join(table.name for _, table in group[:2])
            name += f" and {len(group) - 2:,} more" if len(group) > 2 else ""
            if len(folders) == 1 and folders.isdisjoint({".", *joined}):
                (name,) = folders
            joined[name] = _stacked(name, group)
        else:
            joined |= {table.name: table for _, table in group}
    return [*joined.values()]


def _stacked(name: str, group: Sequence[tuple[str, Table]]) -> Table:
    """Return the rows of several files, with the columns ``FILE``, ``STEM`` and ``FOLDER``."""
    tables = [table for _, table in group]
    counts = [table.rows for table in tables]
    columns = {}
    for column in tables[0].columns:
        parts = [table.columns[column] for table in tables]
        if len({part.type for part in parts}) > 1:
            parts = [pc.cast(part, pa.string()) for part in parts]
        columns[column] = pa.concat_arrays(parts)
    paths = [PurePosixPath(file) for file, _ in group]
    sheets = [t.name.partition(f"{path.name}, ")[2] for t, path in zip(tables, paths, strict=True)]
    stems = [
        sheet or path.name.partition(".")[0] for sheet, path in zip(sheets, paths, strict=True)
    ]
    folders = [str(path.parent).removeprefix(".") for path in paths]
    for column, texts in ((FILE, [*map(str, paths)]), (STEM, stems), (FOLDER, folders)):
        columns[column] = pa.array(texts).take(np.repeat(np.arange(len(counts)), counts))
    lines = [
        table.lines + np.arange(table.rows) if isinstance(table.lines, int) else table.lines
        for table in tables
    ]
    locations = [table.name for table in tables for _ in range(table.rows)]
    return replace(
        tables[0], name=name, columns=columns, lines=np.concatenate(lines), locations=locations
    )
