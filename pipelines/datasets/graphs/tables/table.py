"""Table of a user's file, with ids as they are written and errors that name the line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, SupportsInt

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, Setting, Step, UsageError
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.formats.delimited import Text
from kmip_data.pipelines.formats.typed_rows import parse_rows
from kmip_data.pipelines.formats.typed_tables.frames import FileFrame
from kmip_data.pipelines.formats.written_numbers import (
    DecimalSign,
    is_written_number,
    shown_decimal_signs,
    split_unit,
)
from kmip_data.text import is_likely_typo, list_names, nearest_name

_MAX_EXACT_FLOAT = 2**53  #: largest float64 below which all integers are exact
_BLOCK_BYTES = 2**20
_SAMPLED_CELLS = 100  #: cells that tell a column of numbers from one of texts
_CODE = re.compile("[0-9]{1,18}")
#: Strings that programs write for a missing id.
MISSING_IDS = ("nan", "NaN", "NA", "null", "None")

_MAX_PARSED_CELLS = 1_000_000  #: cells of the columns that are parsed as strings together: 60 MB


@dataclass(frozen=True, eq=False)
class Table:
    """Table of a file, with the dtypes that pandas infers."""

    name: str
    frame: pd.DataFrame
    first_number: int = 0  #: number of the first row if no line is skipped
    row_word: str = "line"  #: word for a row in messages
    has_names: bool = True  #: False if columns are numbered from 0
    lines_without_row: Sequence[int] = ()  #: numbers of lines without a row, ascending, from 1
    text: Text = b""  #: rows as they are written
    separator: str = ""  #: separator of their cells
    may_have_codes: bool = False  #: True if it may have codes such as 001, which are not integers
    locations: Sequence[str] = ()  #: file and line of each row, if the reader gives them
    #: Column whose dtype makes it one of categories -> their texts, in order.
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: First column -> columns that were last parsed as strings
    _parsed: dict[int, pd.DataFrame] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Column names."""
        return tuple(map(str, self.frame))

    @cached_property
    def _positions(self) -> dict[str, int]:
        """Position of each column."""
        return {name: position for position, name in enumerate(self.column_names)}

    @property
    def column_list(self) -> str:
        """Names of the file's columns, for messages."""
        return list_names([name for name in self.column_names if not name.startswith("\0")], 1_000)

    def location(self, row: SupportsInt) -> str:
        """Return the file and line of a row, for messages."""
        if self.locations:
            return self.locations[int(row)]
        line = self.first_number + int(row)
        for skipped_line in self.lines_without_row:
            line += skipped_line <= line
        return f"{self.name}, {self.row_word} {line}"

    def error_at(
        self, row: SupportsInt, problem: str, steps: Step | Sequence[Step] | None = None
    ) -> DamagedInput:
        """Return an error that names the file and line of a row."""
        return DamagedInput(f"{self.location(row)}: {problem}.", steps=steps)

    def ids(self, name: str) -> Array:
        """Return the ids in a column; refuse empty cells.

        Whole numbers are int64, so 1.0 and 1E0 are 1. If any id is a text or a code such as 001, all
        are strings; 2⁶³ is not 2⁶³ + 1.
        """
        remedy = "fill in the id, or remove the line"
        values = self.frame[name]
        empty = values.isna()
        if empty.any():
            raise self.error_at(empty.argmax(), f"{name!r} is empty", remedy)
        if self.text and (self.may_have_codes or values.dtype != np.int64):
            values = self.as_written(name)
        integers = whole_numbers(values)
        if integers is not None:
            return integers
        if values.dtype.kind in "iufb":
            return values.to_numpy()
        is_missing = values.isin(MISSING_IDS)
        if is_missing.any() and values[~is_missing].astype(str).str.fullmatch("-?[0-9]+").all():
            row = is_missing.argmax()
            raise self.error_at(row, f"{name!r} is {values[row]!r} among integers", remedy)
        if self._is_ascii:  # and stripped already
            return values.to_numpy(object)
        return normal_texts(values.astype(str).to_numpy(object))

    def id_cells(self, name: str) -> pd.Series:
        """Return the cells of a column as ids are written; numbers, if none is a code such as 001."""
        cells = self.frame[name]
        if not (self.text and self.may_have_codes) or cells.dtype.kind not in "iuf":
            return cells
        written = self.as_written(name)
        return written if written.dtype.kind == "i" else written.replace("", None)

    @cached_property
    def _is_ascii(self) -> bool:
        """True if the rows are a text of ASCII characters."""
        starts = range(0, len(self.text), _BLOCK_BYTES)
        blocks = (bytes(self.text[start : start + _BLOCK_BYTES]) for start in starts)
        return bool(self.text) and all(block.isascii() for block in blocks)

    def check_numbers(self) -> None:
        """Refuse cells that are not finite float32 numbers."""
        for name in self.column_names:
            values = pd.to_numeric(self.frame[name], errors="coerce").to_numpy(np.float64)
            is_bad = ~(np.abs(values) <= np.finfo(np.float32).max)
            if is_bad.any():
                row = is_bad.argmax()
                raise self.error_at(
                    row, f"{name!r} is {self.frame[name][row]}, not a finite number"
                )

    def zero_padded_codes(self, name: str) -> Array | None:
        """Return a column (R,) as strings if it has codes such as 01067; ``None`` otherwise."""
        cells = self.frame[name]
        if cells.dtype.kind in "iuf":
            if not (self.may_have_codes and self.text):
                return None
            cells = self.as_written(name)
        elif cells.dtype.kind != "O" or not _are_numbers(cells):
            return None
        if cells.dtype.kind in "iu" or not cells.str.fullmatch("0[0-9]+").any():
            return None
        return cells.fillna("").to_numpy(object)

    @cached_property
    def decimal_signs(self) -> set[DecimalSign]:
        """Decimal signs that the numbers of all columns prove."""
        signs: set[DecimalSign] = set()
        return signs.union(*map(self.shown_decimal_signs, self.column_names))

    @cached_property
    def has_decimal_commas(self) -> bool:
        """True if a column proves that the decimal sign is a comma."""
        # Such columns are strings for pandas, which parses numbers with points alone.
        strings = [name for name in self.column_names if self.frame[name].dtype.kind == "O"]
        return any("," in self.shown_decimal_signs(name) for name in strings)

    def shown_decimal_signs(self, name: str) -> set[DecimalSign]:
        """Return the decimal signs that the numbers of a column prove; none for other columns."""
        cells = self.frame[name]
        if cells.dtype.kind == "f":
            if not self.text:
                return set()
            thousandths = np.abs(cells.dropna().to_numpy()) * 1_000
            is_ambiguous = np.abs(thousandths - np.rint(thousandths)) < 1e-6
            is_ambiguous &= (thousandths >= 1_000) & (thousandths < 1_000_000)
            is_whole = np.abs(thousandths % 1_000) < 1e-6
            # Only three written decimals, as in 1.500, may be a group of thousands.
            if not (is_ambiguous | is_whole).all():
                return {"."}
            cells = self.as_written(name)
        elif cells.dtype.kind != "O":
            return set()
        cells = cells.dropna()
        sample = cells[:_SAMPLED_CELLS].map(str).str.strip()
        if sum(is_written_number(split_unit(text)[0]) for text in sample) <= len(sample) / 2:
            return set()
        texts = cells.map(str).str.strip().unique()
        return shown_decimal_signs(split_unit(text)[0] for text in texts)

    def as_written(self, name: str) -> pd.Series:
        """Return a column as integers if all are written canonically, and as strings otherwise."""
        strings: pd.Series[Any] = self._cells_as_written(self._positions[name]).str.strip()
        try:
            integers = strings.astype("int64")
        except (ValueError, TypeError, OverflowError):
            return strings
        is_canonical = bool((integers.astype(str) == strings).all())
        return integers if is_canonical else strings

    def _cells_as_written(self, position: int) -> pd.Series:
        """Parse a column as strings, together with its neighbours in a table of few rows.

        Columns are read in order, and each parse goes through the whole text.
        """
        width = max(_MAX_PARSED_CELLS // max(len(self.frame), 1), 1)
        first = position - position % width
        frame = self._parsed.get(first)
        if frame is None:
            columns = range(first, min(first + width, len(self.column_names)))
            frame = parse_rows(self.text, self.separator, dtype=str, usecols=columns, na_values=[])
            self._parsed.clear()
            if width > 1:
                self._parsed[first] = frame
        return frame[position]


def whole_numbers(values: pd.Series) -> I64 | None:
    """Return numbers without fractions as int64; ``None`` for others, codes and texts."""
    if values.dtype.kind in "iu":
        return values.to_numpy(np.int64) if values.max() < 2**63 else None
    if values.dtype.kind == "O":
        is_code = ~values.astype(str).str.fullmatch(
            r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?"
        )
        if is_code.any():
            return None
    elif values.dtype.kind != "f":
        return None
    numbers = values.astype(np.float64).to_numpy()
    if (np.abs(numbers) > _MAX_EXACT_FLOAT).any() or (numbers % 1 != 0).any():
        return None
    return numbers.astype(np.int64)


def normal_texts(texts: Array) -> Array:
    """Return texts (n,) without outer blanks, in Unicode's normal form NFC."""
    stripped = pd.Series(texts, dtype=object).str.strip()
    if not "".join(stripped).isascii():
        stripped = stripped.map(lambda text: unicodedata.normalize("NFC", text))
    return stripped.to_numpy(object)


def ids_as_strings(ids: Array) -> Array:
    """Return ids (n,) as an object array: fixed-width strings would all be as long as the longest."""
    return ids if ids.dtype == object else ids.astype(str).astype(object)


def comparable_ids(first: Array, second: Array) -> tuple[Array, Array]:
    """Return two arrays of ids, (n, …) each, in one form: as strings if their types differ.

    Integers and codes such as 007 have one value if no two codes do: a program has lost the zeros.
    """
    if first.dtype == second.dtype:
        return first, second
    first_values = _values_of_codes(first)
    second_values = _values_of_codes(second)
    if first_values is None or second_values is None:
        return ids_as_strings(first), ids_as_strings(second)
    return first_values, second_values


def _values_of_codes(ids: Array) -> I64 | None:
    """Return ids as integers; ``None`` if they are no integers, or two texts have one value."""
    if ids.dtype.kind == "i":
        return ids
    codes = pd.unique(ids.reshape(-1))
    if ids.dtype != object or not all(map(_CODE.fullmatch, codes)):
        return None
    return ids.astype(np.int64) if len({*map(int, codes)}) == len(codes) else None


def check_column_options(
    tables: Sequence[Table],
    options: ReadOptions,
    inputs: Collection[str] = (),
    left_out: Collection[str] = (),
) -> None:
    """Refuse options that name a column that no table has, or one of the ``inputs``.

    Labels and groups in a description may be missing from the files, and columns of lists or objects that are
    ``left_out`` anyway may be ignored.
    """
    params = options.params
    names = [column for table in tables for column in table.column_names if column not in inputs]
    # The described files may have needed a choice that this format makes itself.
    described_parameters = {} if options.described is None else options.described.parameters()
    for key, column_key in (
        ("node", known_columns.NODE_KEY),
        ("source", known_columns.SOURCE_KEY),
        ("target", known_columns.TARGET_KEY),
    ):
        name = getattr(params, key)
        if name and name != described_parameters.get(key) and column_key in names:
            raise UsageError(
                f"{key}={name} has no effect: this format has no column to choose for it.",
                steps=Setting({key: None}),
            )
    for key in ("label", "feature", "ignore", "rounded", "group"):
        given = getattr(params, key)
        for name in filter(None, [given] if key == "group" else given):
            if name in inputs:
                raise UsageError(
                    f"The column {name!r} is the input, so {key}={name} has no effect.",
                    found=list_names(names, 1_000),
                    steps=Setting({key: None}),
                )
            if name == "none" or name in names or (key == "ignore" and name in left_out):
                continue
            described = described_parameters.get(key, ())
            if name in ([described] if key == "group" else described):
                if key == "group" or (key == "label" and not {*params.label} & {*names}):
                    continue
                raise DamagedInput(
                    f"No table has the column {name!r} of the description.",
                    found=list_names(names, 1_000),
                    steps="add the column: a model needs it",
                )
            likely = names
            if key == "label":
                others = [
                    column
                    for table in tables
                    for column in table.column_names
                    if column in names and _may_be_label(table, column)
                ]
                likely = [*known_columns.matching_names(others, known_names.TABLE_LABELS), *others]
            raise unknown_column_error(tables, key, name, likely)


def _may_be_label(table: Table, name: str) -> bool:
    """True unless a column has the names of nodes, an end of edges or another value of edges.

    Names of nodes are texts in rows of many graphs, no two of which one graph has.
    """
    ends = known_columns.matching_end_pairs(table.column_names)
    if ends:
        is_label = bool(known_columns.matching_names([name], known_names.TABLE_LABELS))
        return is_label and name not in ends[0]
    key = known_columns.GRAPH_KEY
    if key not in table.frame or table.frame[name].dtype.kind != "O":
        return True
    are_distinct = not table.frame.duplicated([key, name]).any()
    return not (are_distinct and table.frame.duplicated(key).any())


def tables_from_frames(
    frames: Mapping[Level, pd.DataFrame], name: str, first_number: int
) -> dict[Level, Table]:
    """Return a table for each frame; messages number its rows from ``first_number``."""
    return {
        level: Table(f"{name}, {level}s", frame, first_number, "number")
        for level, frame in frames.items()
    }


def attribute_tables(
    rows: Mapping[Level, list[dict[str, object]]], name: str, notices: Notices
) -> dict[Level, Table]:
    """Return the tables of graphs, nodes and edges given as attribute dictionaries.

    Values may be strings: ``graphs_from_tables`` converts them to numbers or categories. Besides
    attributes, rows have keys of :mod:`known_columns`, written here without ``_KEY``, each in all
    rows of a level or in none:

    =====  ====================  ======================
    level  required              optional
    =====  ====================  ======================
    graph                        GRAPH, LOCATION
    node   GRAPH if many graphs  NODE, LOCATION
    edge   SOURCE, TARGET;       UNDIRECTED, LOCATION
           GRAPH if many graphs
    =====  ====================  ======================

    There may be many graphs if ``rows`` has the level graph or any row has GRAPH. LOCATION names a
    row in errors. Rows without NODE, or graphs without GRAPH, are numbered from 0 unless an
    attribute is named like an id. Edges without UNDIRECTED are directed unless the attribute
    ``type`` says otherwise.
    """
    frames: dict[Level, pd.DataFrame] = {}
    locations: dict[Level, Sequence[str]] = {}
    for level, items in rows.items():
        columns = (
            None
            if items
            else [
                known_columns.SOURCE_KEY,
                known_columns.TARGET_KEY,
                known_columns.GRAPH_KEY,
                known_columns.UNDIRECTED_KEY,
            ]
        )
        frame = pd.DataFrame(items, columns=columns)
        if known_columns.LOCATION_KEY in frame:
            locations[level] = frame.pop(known_columns.LOCATION_KEY).tolist()
        frames[level] = expand_lists(frame, notices)
    tables = tables_from_frames(frames, name, 0)
    return {
        level: replace(table, locations=locations.get(level, ())) for level, table in tables.items()
    }


def table_of_frame(table: FileFrame, notices: Notices) -> Table:
    """Return a table whose columns have types; lists of numbers become columns."""
    notices.warnings += table.warnings
    return Table(
        table.name,
        expand_lists(table.frame, notices),
        table.first_number,
        table.row_word,
        lines_without_row=table.numbers_without_row,
        categories=table.categories,
    )


def expand_lists(frame: pd.DataFrame, notices: Notices) -> pd.DataFrame:
    """Expand lists of numbers to one column per number; drop other lists and objects."""
    for name in list(frame):
        values = frame[name]
        if values.dtype != object:
            continue
        is_nested = values.map(lambda value: isinstance(value, list | tuple | dict | set))
        if not is_nested.any():
            continue
        frame = frame.drop(columns=name)
        widths = {len(value) if isinstance(value, list | tuple) else -1 for value in values}
        if len(widths) == 1 and -1 not in widths:
            columns = pd.DataFrame(values.tolist(), index=frame.index)
            if all(columns[column].dtype.kind in "biuf" for column in columns):
                frame = frame.join(columns.add_prefix(f"{name}_"))
                continue
        notices.ignored[str(name)] = "lists or objects"
    return frame


def unknown_column_error(
    tables: Sequence[Table], key: str, name: str, likely: Sequence[str]
) -> UsageError:
    """Return the error for the parameter ``key`` if no table has the column ``name``.

    It suggests the ``likely`` name closest to ``name``, or the first one.
    """
    likely = [other for other in likely if not other.startswith("\0")]
    close = nearest_name(name, likely)
    hint = f" Did you mean {close!r}?" if close else ""
    problem = f"No table has a column {name!r}.{hint}"
    columns = [f"{table.name}: {table.column_list or 'none'}" for table in tables]
    if len(tables) == 1:
        problem = f"{tables[0].name} has no column {name!r}.{hint}"
        columns = [tables[0].column_list or "none"]
    error = UsageError(
        problem,
        found=list_names(columns, 1_000, separator="; "),
        steps=Setting({key: close or [*likely, "none"][0]}),
    )
    if key == "label" and not likely:
        error.steps = [
            "add a table with the labels: a row a graph with its name, or a row a node with its id"
        ]
    listed_names = name.split(",")
    if len(listed_names) > 1 and {*listed_names} <= {*likely}:
        error.steps = [Setting({key: listed_names})]
    elif close and is_likely_typo(name, close):
        error.correction = (name, close)
    return error


def _are_numbers(cells: pd.Series) -> bool:
    """True if all cells are strings that are numbers, or missing."""
    strings = cells.dropna()
    are_strings = all(isinstance(cell, str) for cell in strings)
    return are_strings and bool(pd.to_numeric(strings, errors="coerce").notna().all())


def is_row_index(values: pd.Series) -> bool:
    """True if a column is 0, 1, 2, …."""
    return values.dtype.kind in "iu" and bool((values == np.arange(len(values))).all())


def counts_rows(values: pd.Series) -> bool:
    """True if a column is 0, 1, 2, … or 1, 2, 3, …."""
    return is_row_index(values) or (values.dtype.kind in "iu" and is_row_index(values - 1))
