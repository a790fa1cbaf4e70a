"""Table of a user's file: rows with their lines, ids as they are written, and errors that name a cell."""

from __future__ import annotations

import io
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsInt

import numpy as np
import pandas as pd

from kmip_data.arrays import Array
from kmip_data.columns.column_uses import Level
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.text import is_likely_typo, nearest_name

UNNAMED = "Unnamed: "  #: beginning of the name of a column without one, as in pandas
#: Texts that programs write for a missing id.
NO_IDS = ("nan", "NaN", "NA", "null", "None")


@dataclass(frozen=True)
class Table:
    """Table of a file, with the dtypes that pandas infers."""

    name: str
    frame: pd.DataFrame
    first: int = 0  #: number of the first row, were no line skipped
    row: str = "line"  #: word for a row
    has_names: bool = True  #: False if columns are called 0, 1 and so on
    skipped: Sequence[int] = ()  #: numbers of lines without a row, ascending, from 1
    text: str = ""  #: rows as they are written
    options: Mapping[str, Any] = field(default_factory=dict)  #: options of ``pandas.read_csv``
    may_have_codes: bool = False  #: True if integers such as 001 may occur, which are names
    locations: Sequence[str] = ()  #: file and line of each row, if the reader gives them

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(map(str, self.frame))

    @property
    def column_list(self) -> str:
        """Names of the columns of the file, for messages."""
        return ", ".join(name for name in self.names if not name.startswith("\0"))[:1_000]

    def location(self, row: SupportsInt) -> str:
        """Return file and line of a row, for messages."""
        if self.locations:
            return self.locations[int(row)]
        line = self.first + int(row)
        for skipped in self.skipped:
            line += skipped <= line
        return f"{self.name}, {self.row} {line}"

    def error_at(self, row: SupportsInt, problem: str, hint: str | None = None) -> DamagedInput:
        """Return the error for one row."""
        return DamagedInput(f"{self.location(row)}: {problem}.", next=hint)

    def ids(self, name: str, hint: str = "fill in the id, or remove the line") -> Array:
        """Return a column of ids, without empty cells.

        They are int64 if all are written canonically, else texts: 001 is not 1, 2⁶³ not 2⁶³ + 1.
        """
        values = self.frame[name]
        empty = values.isna()
        if empty.any():
            raise self.error_at(empty.argmax(), f"{name!r} is empty", hint)
        if self.text and (self.may_have_codes or values.dtype != np.int64):
            values = self.as_written(name)
        if values.dtype.kind in "iufb":
            return values.to_numpy()
        words = values.isin(NO_IDS)
        if words.any() and values[~words].astype(str).str.fullmatch("-?[0-9]+").all():
            row = words.argmax()
            raise self.error_at(row, f"{name!r} is {values[row]!r} among integers", hint)
        return values.to_numpy(object)

    def check_numbers(self) -> None:
        """Refuse a cell that is no finite float32."""
        for name in self.names:
            values = pd.to_numeric(self.frame[name], errors="coerce").to_numpy(np.float64)
            bad = ~(np.abs(values) <= np.finfo(np.float32).max)
            if bad.any():
                row = bad.argmax()
                raise self.error_at(
                    row, f"{name!r} is {self.frame[name][row]}, not a finite number"
                )

    def zero_padded_texts(self, name: str) -> Array | None:
        """Return the texts (R,) of integers of which one begins with 0, such as 01067; else ``None``."""
        if not (self.may_have_codes and self.text) or self.frame[name].dtype.kind not in "iuf":
            return None
        texts = self.as_written(name)
        if texts.dtype.kind in "iu" or not texts.str.fullmatch("0[0-9]+").any():
            return None
        return texts.fillna("").to_numpy(object)

    def as_written(self, name: str) -> pd.Series:
        """Return the cells of a column as texts, or as integers if all are written canonically."""
        position = self.names.index(name)
        options = {**self.options, "dtype": str, "usecols": [position], "na_values": []}
        texts: pd.Series[Any] = pd.read_csv(io.BytesIO(self.text.encode()), **options)[
            position
        ].str.strip()
        try:
            whole: pd.Series[Any] = texts.astype("int64")
        except (ValueError, TypeError, OverflowError):
            whole = texts
        is_canonical = bool((whole.astype(str) == texts).all())
        return whole if is_canonical else texts


def ids_as_texts(ids: Array) -> Array:
    """Return ids (n,) as texts, in an object array: fixed-width texts would all be as long as the longest."""
    return ids if ids.dtype == object else ids.astype(str).astype(object)


def check_columns(
    tables: Sequence[Table], options: ReadOptions, inputs: Collection[str] = ()
) -> None:
    """Refuse column names in parameters that no table has, or that are ``inputs`` themselves.

    Labels of a description may be absent.
    """
    params = options.params
    names = [column for table in tables for column in table.names if column not in inputs]
    for key in ("label", "feature", "ignore", "rounded"):
        for name in getattr(params, key):
            if name in inputs:
                raise UsageError(
                    f"The column {name!r} is the input, so --set {key}={name} has no effect.",
                    found=", ".join(names)[:1_000],
                    next=f"leave out --set {key}={shlex.quote(name)}, or name another of these columns",
                )
            if name == "none" or name in names:
                continue
            if options.described is not None:
                if key == "label" and not {*params.label} & {*names}:
                    continue
                raise DamagedInput(
                    f"No table has the column {name!r} of the description.",
                    found=", ".join(names)[:1_000],
                    next=f"add a column {name!r}: a model needs it",
                )
            usual = roles.matching_names(names, roles.LABELS) if key == "label" else []
            raise unknown_column(tables, key, name, [*usual, *names])


def tables_of_levels(
    frames: Mapping[Level, pd.DataFrame], name: str, first: int
) -> dict[Level, Table]:
    """Return a table for each frame; messages name its rows by number, from ``first``."""
    return {
        level: Table(f"{name}, {level}s", frame, first, "number") for level, frame in frames.items()
    }


def attribute_tables(
    rows: Mapping[Level, list[dict[str, object]]], name: str, notices: Notices
) -> dict[Level, Table]:
    """Return the tables of graphs, nodes and edges given as attribute dictionaries.

    Errors name a row by its ``roles.LOCATION`` if all rows of a level have one.
    """
    frames: dict[Level, pd.DataFrame] = {}
    locations: dict[Level, Sequence[str]] = {}
    for level, items in rows.items():
        columns = None if items else [roles.SOURCE, roles.TARGET, roles.GRAPH, roles.UNDIRECTED]
        frame = pd.DataFrame(items, columns=columns)
        if roles.LOCATION in frame:
            locations[level] = frame.pop(roles.LOCATION).tolist()
        frames[level] = _scalar_columns(frame, notices)
    tables = tables_of_levels(frames, name, 0)
    return {
        level: replace(table, locations=locations.get(level, ())) for level, table in tables.items()
    }


def _scalar_columns(frame: pd.DataFrame, notices: Notices) -> pd.DataFrame:
    """Expand lists of numbers to columns, and drop other lists and objects."""
    for name in list(frame):
        values = frame[name]
        if values.dtype != object:
            continue
        nested = values.map(lambda value: isinstance(value, list | tuple | dict | set))
        if not nested.any():
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


def unknown_column(
    tables: Sequence[Table], key: str, name: str, likely: Sequence[str]
) -> UsageError:
    """Return the error for a column ``name`` of a parameter that no table has.

    The nearest of the ``likely`` names is suggested, else the first one.
    """
    close = nearest_name(name, likely)
    hint = f" Did you mean {close!r}?" if close else ""
    problem = f"No table has a column {name!r}.{hint}"
    columns = [f"{table.name}: {table.column_list or 'none'}" for table in tables]
    if len(tables) == 1:
        problem = f"{tables[0].name} has no column {name!r}.{hint}"
        columns = [tables[0].column_list or "none"]
    error = UsageError(
        problem,
        found="; ".join(columns)[:1_000],
        next=f"one of these columns: --set {key}={shlex.quote(close or [*likely, 'none'][0])}",
    )
    several = name.split(",")
    if len(several) > 1 and all(part in {*likely} for part in several):
        options = [f"--set {key}={shlex.quote(part)}" for part in several]
        error.next = f"name each column by an option of its own: {' '.join(options)}"
    elif close and is_likely_typo(name, close):
        error.correction = (name, close)
    return error


def counts_from_zero(values: pd.Series) -> bool:
    """True if a column is 0, 1, 2 and so on."""
    return values.dtype.kind in "iu" and bool((values == np.arange(len(values))).all())
