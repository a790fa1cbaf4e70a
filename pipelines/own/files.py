"""Files of a dataset as tables: a reader for each suffix, and one table of files with the same columns."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import InflateError, first_problem, open_gzip
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.formats.file_heads import (
    WORKBOOK_SUFFIXES,
    decompressed_head,
    is_gzip,
    is_workbook,
)
from kmip_data.pipelines.formats.text import decode_text
from kmip_data.pipelines.own.headers import NoTable, TopRow, name_columns
from kmip_data.pipelines.own.names import end_pairs
from kmip_data.pipelines.own.table import (
    FILE_COLUMNS,
    Table,
    concatenated,
    names_of_file,
    table_of_arrays,
    table_of_rows,
)
from kmip_data.pipelines.own.texts.lines import BYTES_READ
from kmip_data.pipelines.own.texts.tables import read_text
from kmip_data.pipelines.own.workbooks import names_in_workbook, read_workbook
from kmip_data.text import list_names

_BYTES_PER_JSON_BYTE = 16  #: peak memory of parsing, measured with 200,000 edges of two numbers
_BLOCK_BYTES = 2**20
_ARROW_MAGIC = b"ARROW1"  #: begins a file, and not a stream
_PARQUET = (".parquet", ".pq")
_ARROW = (".arrow", ".feather", ".ipc")
_JSON_LINES = (".jsonl", ".ndjson")
#: Facts of a table whose rows messages number from 0.
ROWS_FROM_0: Any = {"row_word": "row", "lines": 0}
_INDEX = re.compile(r"__index_level_\d+__")  #: name that pandas writes for an index without one

Reader = Callable[[Path, str, ReadOptions, Notices], Sequence[Table | TopRow]]


def read_tables(
    folder: Path,
    files: Sequence[str],
    options: ReadOptions,
    notices: Notices,
    others: Sequence[Table] = (),
) -> list[Table]:
    """Return the tables of files as :func:`read_files`; those with the same columns are one table."""
    return join_tables(read_files(folder, files, options, notices, others))


def read_files(
    folder: Path,
    files: Sequence[str],
    options: ReadOptions,
    notices: Notices,
    others: Sequence[Table] = (),
) -> dict[tuple[str, str], Table]:
    """Return the tables of files, by the path of their file and their name.

    ``others`` are tables of the same dataset, which show whether a first line has names. A file that
    is no table is noted, unless it is the only one. Raises ``DamagedInput`` with the line of a fault.
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
            is_alone = len(files) == len(tables) == 1 and not others
            has_rows = not isinstance(table, TopRow) or table.below.rows or end_pairs(table.cells)
            if not is_alone and not has_rows:
                notices.ignored[table.name] = "no table: it has one line"
            else:
                found[file, table.name] = table
    if problems and not found and not others:
        raise problems[0]
    if not any(isinstance(table, TopRow) for table in found.values()):
        options.refuse_unread({"header": "the tables name their columns"})
    named = name_columns(found, options, notices, others)
    return dict(zip(found, named, strict=True))


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
                    options.check_memory(BYTES_READ * copy.tell(), name)
        except (InflateError, EOFError, OSError) as error:
            raise DamagedInput(f"{name} is a damaged gzip: {error}.") from error
        yield plain


# 1. Readers.
def _read_arrow(path: Path, name: str, options: ReadOptions, notices: Notices) -> Sequence[Table]:
    """Return the table of a file of Parquet or Arrow; an index of pandas that numbers rows is none."""
    try:
        table = _arrow_table(path, name, options)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedInput(
            f"{name} cannot be read as Parquet or Arrow.",
            found=first_problem(error),
            steps=f"write it with pandas: frame.to_parquet({path.with_suffix('.parquet').name!r})",
        ) from error
    return [table_of_arrow(name, table, notices.ignored)]


def table_of_arrow(name: str, table: pa.Table, ignored: dict[str, str]) -> Table:
    """Return a table of Arrow without an index of pandas that numbers its rows."""
    table = table.unify_dictionaries()
    columns = dict(zip(table.column_names, table.columns, strict=True))
    for key in filter(_INDEX.fullmatch, table.column_names):
        index = columns.pop(key)
        if not pa.types.is_integer(index.type):
            columns["index"] = index
    return table_of_arrays(name, columns, ignored, **ROWS_FROM_0)


def _arrow_table(path: Path, name: str, options: ReadOptions) -> pa.Table:
    if path.suffix.lower() in _PARQUET:
        with parquet.ParquetFile(path) as file:
            groups = map(file.metadata.row_group, range(file.num_row_groups))
            options.check_memory(2 * sum(group.total_byte_size for group in groups), name)
            return file.read()
    size = 0
    batches = []
    with pa.memory_map(str(path)) as file:
        reader = _open_arrow(file)
        is_file = isinstance(reader, ipc.RecordBatchFileReader)
        numbers = range(reader.num_record_batches) if is_file else ()
        for batch in map(reader.get_batch, numbers) if is_file else reader:
            size += batch.nbytes
            options.check_memory(2 * size, name)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


def _open_arrow(file: pa.NativeFile) -> Any:
    is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
    file.seek(0)
    return ipc.open_file(file) if is_file else ipc.open_stream(file)


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
        found = getattr(error, "msg", first_problem(error))
        raise DamagedInput(f"{name}, line {line}: no JSON.", found=found) from error
    if isinstance(rows, dict) and not any(isinstance(row, list) for row in rows.values()):
        rows = [
            {"id": key, **(row if isinstance(row, dict) else {"label": row})}
            for key, row in rows.items()
        ]
    if isinstance(rows, dict) and rows and all(isinstance(row, list) for row in rows.values()):
        raise DamagedInput(
            f"{name} has a list for each of {len(rows):,} names, and is no table.",
            steps="write a row for each name, or move the file elsewhere",
        )
    are_objects = [isinstance(row, dict) for row in rows] if isinstance(rows, list) else [False]
    if not are_objects or not all(are_objects) or len(numbers) not in {0, len(rows)}:
        line = next((n for n, is_one in zip(numbers, are_objects, strict=False) if not is_one), 1)
        where = f", line {line}: no object" if numbers else " has no list of objects"
        raise NoTable(
            f"{name}{where}, such as [{{'source': 0, 'target': 1}}].",
            steps=f"write it with pandas: frame.to_json({name!r}, orient='records')",
        )
    facts = {"row_word": "line", "lines": np.array(numbers)} if is_lines else ROWS_FROM_0
    return [table_of_rows(name, rows, options, notices.ignored, **facts)]


def head_of_table(path: Path, memory: int | None) -> bytes:
    """Return the first bytes of a file, decompressed; of a typed table, the names of its columns."""
    names: Sequence[str] = ()
    with suppress(OSError, ValueError, pa.ArrowException):  # damage, which its reader names
        if is_workbook(path.name):
            names = names_in_workbook(path, memory)
        elif path.suffix.lower() in _PARQUET:
            names = parquet.read_schema(path).names
        elif path.suffix.lower() in _ARROW:
            with pa.memory_map(str(path)) as file:
                names = _open_arrow(file).schema.names
        else:
            return decompressed_head(path)
    return ",".join(names).encode()


#: Suffix -> reader; a file with any other is read as a text.
READERS: dict[str, Reader] = {
    **dict.fromkeys((*_PARQUET, *_ARROW), _read_arrow),
    **dict.fromkeys((*_JSON_LINES, ".json"), _read_json),
    **dict.fromkeys(WORKBOOK_SUFFIXES, read_workbook),
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".edges"), read_text),
}


#: Suffixes of tables whose cells have types, and which no other format has.
TYPED_SUFFIXES = (*_PARQUET, *_ARROW, *_JSON_LINES, *WORKBOOK_SUFFIXES)


def is_typed(name: str) -> bool:
    """True for the name of a table whose cells have types, and which no other format has."""
    return name.lower().removesuffix(".gz").endswith(TYPED_SUFFIXES)


# 2. Tables of several files.
def join_tables(tables: Mapping[tuple[str, str], Table]) -> list[Table]:
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
        stems = [
            (Path(file.removesuffix(".gz")).with_suffix(""), table.name.partition(", ")[2])
            for file, table in group
        ]
        if len({*stems}) < len(stems):
            raise DamagedInput(
                f"{list_names([table.name for _, table in group], 200)} have one name and the same columns.",
                steps="leave one of them out",
            )
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
    """Return the rows of several files, with the columns of their names."""
    tables = [table for _, table in group]
    counts = [table.rows for table in tables]
    columns = {
        column: concatenated([table.columns[column] for table in tables])
        for column in tables[0].columns
    }
    names = []
    for file, table in group:
        _, _, sheet = table.name.partition(f"{PurePosixPath(file).name}, ")
        names.append(names_of_file(file, sheet))
    for column in FILE_COLUMNS:
        texts = pa.array([names_of_row[column] for names_of_row in names])
        columns[column] = texts.take(np.repeat(np.arange(len(counts)), counts))
    locations = [table.name for table in tables for _ in range(table.rows)]
    return replace(
        tables[0],
        name=name,
        columns=columns,
        lines=np.concatenate([table.line_numbers for table in tables]),
        locations=locations,
    )
