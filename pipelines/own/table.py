"""Table of a user's file: its columns as they are written, errors with lines, and tables joined to one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, SupportsInt

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import I64, Array, Bools
from kmip_data.errors import DamagedInput, Step
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.text import list_names

#: Column of a table of several files -> what it has of each row's file: its path, its name, this without
#: suffix, what is before "_" in it, and the folders above. No column of a user begins with this letter.
FILE, FILE_NAME, STEM, SUBJECT, FOLDER = "\0file", "\0name", "\0stem", "\0subject", "\0folder"
FILE_COLUMNS = (STEM, FILE_NAME, FILE, SUBJECT, FOLDER)  #: in the order in which ids are looked for
_ARROW = (pa.Array, pa.ChunkedArray)


@dataclass(frozen=True, eq=False)
class Table:
    """Table of one file, or of several files with the same columns.

    Texts are strings of pyarrow without outer blanks, and a cell without a text is null: nothing is
    guessed about a cell before its whole column is looked at. Files with types, such as Parquet, keep
    their numbers, booleans and dates.
    """

    name: str  #: name for messages and descriptions: ``nodes.csv``, or ``book.xlsx, Sheet``
    columns: Mapping[str, pa.Array]  #: column name -> cells (R,), in the order of the file
    has_names: bool = (
        True  #: False if the file does not name its columns, which are numbered from 0
    )
    row_word: str = "line"  #: word for a row in messages
    #: number or name of each row's line, (R,), or the number of the first row
    lines: Array | int = 1
    #: name of each row's file, if there are several
    locations: Sequence[str] = ()
    #: Column with a dtype of categories -> these in order.
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    separator: str = ""  #: separator of the cells of a text

    @cached_property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))

    @property
    def column_names(self) -> list[str]:
        """Names of the columns of the file."""
        return [name for name in self.columns if not name.startswith("\0")]

    @property
    def column_list(self) -> str:
        """Names of the columns, for messages."""
        return list_names(self.column_names, 1_000)

    @property
    def line_numbers(self) -> Array:
        """Number or name of each row's line, (R,)."""
        return self.lines + np.arange(self.rows) if isinstance(self.lines, int) else self.lines

    def location(self, row: SupportsInt) -> str:
        """Return the file and line of a row, for messages."""
        number = self.lines + int(row) if isinstance(self.lines, int) else self.lines[int(row)]
        name = self.locations[int(row)] if self.locations else self.name
        return f"{name}, {self.row_word} {number}"

    def error_at(
        self, row: SupportsInt, problem: str, steps: Step | Sequence[Step] | None = None
    ) -> DamagedInput:
        """Return an error that names the file and line of a row."""
        return DamagedInput(f"{self.location(row)}: {problem}.", steps=steps)

    def is_empty(self, name: str) -> Bools:
        """Mask (R,) of the empty cells of a column."""
        mask: Bools = pc.is_null(self.columns[name], nan_is_null=True).to_numpy(
            zero_copy_only=False
        )
        return mask

    def texts(self, name: str) -> list[str]:
        """Return the cells (R,) of a column as texts; empty if they are."""
        cells = self.columns[name]
        if not pa.types.is_string(cells.type):
            cells = pc.cast(cells, pa.string())
        return [text or "" for text in cells.to_pylist()]


def names_of_file(file: str, sheet: str = "") -> dict[str, str]:
    """Return the names of a file by column; a sheet of a workbook is called by its own.

    >>> names_of_file("rest/sub-01_run.csv")[SUBJECT]
    'sub-01'
    """
    path = PurePosixPath(file)
    stem = sheet or path.name.partition(".")[0]
    folder = str(path.parent).removeprefix(".")
    names = (stem, path.name, file, stem.partition("_")[0], folder)
    return dict(zip(FILE_COLUMNS, names, strict=True))


def table_of_rows(
    name: str,
    rows: Sequence[Mapping[Any, object]],
    options: ReadOptions,
    ignored: dict[str, str],
    **facts: object,
) -> Table:
    """Return a table of objects (R,) by the name of their column; a row may lack some."""
    keys = dict.fromkeys(chain.from_iterable(rows))
    options.check_memory(8 * len(keys) * len(rows), name)
    columns = {str(key): [row.get(key) for row in rows] for key in keys}
    return table_of_arrays(name, columns, ignored, **facts)


def table_of_arrays(
    name: str,
    arrays: Mapping[str, object],
    ignored: dict[str, str] | None = None,
    **facts: object,
) -> Table:
    """Return a table of arrays or lists (R,) of Arrow, numpy, pandas or Python.

    Lists of numbers of one length become a column for each position; other lists and objects are
    ``ignored``, with the reason. Categories without a row count only if their dtype is ordered.
    """
    columns: dict[str, pa.Array] = {}
    categories: dict[str, tuple[str, ...]] = {}
    for key, values in arrays.items():
        cells = _as_arrow(values)
        if pa.types.is_dictionary(cells.type):
            distinct = Table("", dict(_typed_columns(key, cells.dictionary)))
            texts = pa.array(distinct.texts(key), pa.string())
            used = np.unique(cells.indices.drop_null())
            categories[key] = (*(texts if cells.type.ordered else texts.take(used)).to_pylist(),)
            cells = texts.take(cells.indices)
        typed = dict(_typed_columns(key, cells))
        if key in categories:
            typed = {key: pc.cast(typed[key], pa.string())}
        if not typed and ignored is not None:
            ignored[key] = "lists or objects"
        columns |= typed
    return Table(name, columns, categories=categories, **facts)  # type: ignore[arg-type]


def _as_arrow(values: Any) -> pa.Array:
    """Return values (R,) as an array; values of several types become texts, and others structs."""
    try:
        array = values if isinstance(values, _ARROW) else pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        if any(isinstance(value, list | tuple | set | dict | np.ndarray) for value in values):
            return _objects(len(values))
        array = pa.array([None if pd.isna(value) else str(value) for value in values])
    if pa.types.is_list(array.type) and any(isinstance(value, set | frozenset) for value in values):
        return _objects(len(values))  # without an order
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _objects(count: int) -> pa.Array:
    return pa.array([{}] * count)


def _typed_columns(name: str, cells: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield a column of strings, numbers, booleans or dates, or several of lists of one length."""
    kind = cells.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        width, *others = pc.unique(pc.list_value_length(cells)).to_pylist() or [0]
        flat = cells.flatten()
        if width and not others and pa.types.is_primitive(flat.type):
            for position in range(width):
                yield f"{name}_{position}", flat[position:].take(np.arange(0, len(flat), width))
    elif pa.types.is_decimal(kind) or pa.types.is_float16(kind):
        yield name, pc.cast(cells, pa.float64())
    elif pa.types.is_timestamp(kind):
        days = pc.cast(cells, pa.date32())
        yield name, days if pc.cast(days, kind).equals(cells) else cells
    elif pa.types.is_primitive(kind) and not pa.types.is_duration(kind):
        yield name, cells
    elif pa.types.is_null(kind) or str(kind) in {"string", "large_string", "string_view"}:
        texts = pc.utf8_trim_whitespace(pc.cast(cells, pa.string()))
        yield name, pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


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
    return Table(
        " and ".join(table.name for table in tables),
        {name: concatenated(cells) for name, cells in columns.items()},
        row_word=tables[0].row_word,
        lines=np.concatenate([table.line_numbers for table in tables]),
        locations=[table.name for table in tables for _ in range(table.rows)],
    )


def concatenated(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the cells (R,) of several tables as one column, as texts if their types differ."""
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
