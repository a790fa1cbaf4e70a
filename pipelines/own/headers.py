"""Names of columns in the first row of a table, told from data by what is below."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own.names import normalized
from kmip_data.pipelines.own.table import Table
from kmip_data.text import list_names

UNNAMED = "unnamed "  #: begins the names of columns without a name
SAMPLED_ROWS = 1_000  #: first rows, which show whether a column has values
_KNOWN = {
    *chain.from_iterable(known_names.END_NAMES),
    *known_names.NODE_ID_NAMES,
    *known_names.GRAPH_ID_NAMES,
    *known_names.TABLE_LABELS,
    *(known_names.PART_NAME, known_names.DIRECTION_NAME, "smiles", "weight", "x", "z"),
}
_MISSING = {
    "NA",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "NULL",
    "null",
    "None",
    "none",
    "?",
    "-",
    "#N/A",
    "<NA>",
}
#: Number in any notation, date, time or boolean.
_VALUE = re.compile(
    r"[-+−]?(?:\d[\d.,'\u2019\s]*|[.,]\d+)(?:[eE][-+]?\d+)?\s?%?"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T\s]\d.*)?|\d{1,2}:\d\d.*"
    r"|(?i:true|false|yes|no)"
)


@dataclass(frozen=True)
class TopRow:
    """Table without names, whose first row may have them."""

    table: Table  #: all rows
    comment: Sequence[str] = ()  #: cells of the comment above, which may be names, too
    rest: Table | None = None  #: rows below the first, if they have other types

    @cached_property
    def cells(self) -> list[str]:
        """Cells of the first row."""
        return [str(column[0].as_py() or "") for column in self.table.columns.values()]

    @cached_property
    def below(self) -> Table:
        """Rows below the first."""
        lines = self.table.lines
        columns = {name: column[1:] for name, column in self.table.columns.items()}
        lines = lines + 1 if isinstance(lines, int) else lines[1:]
        return self.rest or replace(self.table, columns=columns, lines=lines)


def name_columns(
    tables: Mapping[str, Table | TopRow], options: ReadOptions, notices: Notices
) -> dict[str, Table]:
    """Return the tables with the names in their first rows; what stays open is a question.

    The parameter ``header`` decides a single table, and each of several that is a question.
    """
    params = options.params
    known = {params.source, params.target, params.graph, params.group, params.node, params.smiles}
    known.update(params.label, params.feature, params.ignore)
    if options.described is not None:
        known.update(role.column for role in options.described.columns)
    given = {"yes": True, "no": False}.get(params.header or "")
    named: dict[str, Table] = {k: v for k, v in tables.items() if isinstance(v, Table)}
    open_tables: dict[str, TopRow] = {}
    for name, top in tables.items():
        if isinstance(top, Table):
            continue
        if top.comment and _has_known_name(top.comment, top.table, known):
            named[name] = with_names(top.table, top.comment)
            continue
        has_names = given if given is not None and len(tables) == 1 else _has_names(top, known)
        if has_names is None:
            open_tables[name] = top
        else:
            named[name] = with_names(top.below, top.cells) if has_names else top.table

    bodies = {**named, **{name: top.below for name, top in open_tables.items()}}
    for name, top in open_tables.items():
        others = [table for other, table in bodies.items() if other != name]
        has_names = given
        if given is None and any(_occurs(top.cells, table) for table in others):
            has_names = False
        elif given is None and _has_ids_of(top.below, others):
            has_names = True
        if has_names is None:
            has_names = not _occurs(top.cells, top.below)
            question = (
                f"{top.table.location(0)} may be names of columns or data: "
                f"{list_names(top.cells, 200)}: header=yes for names, header=no for data"
            )
            notices.questions[question] = Setting(header="yes" if has_names else "no")
        named[name] = with_names(top.below, top.cells) if has_names else top.table
    return {name: named[name] for name in tables}


def with_names(table: Table, names: Sequence[str]) -> Table:
    """Return a table with names; a column without a name and without a cell is left out.

    Raises ``DamagedInput`` if two columns have the same name.
    """
    columns: dict[str, pa.Array] = {}
    for position, (name, column) in enumerate(zip(names, table.columns.values(), strict=True)):
        if not name and column.null_count == len(column) > 0:
            continue
        if name in columns:
            raise DamagedInput(
                f"{table.name}: columns {names.index(name) + 1} and {position + 1} are called {name!r}.",
                found=list_names(names, 500),
                steps="rename one of them in the first line",
            )
        columns[name or f"{UNNAMED}{position}"] = column
    return replace(table, columns=columns, has_names=True)


def _has_names(top: TopRow, known: set[str]) -> bool | None:
    """True if the first row has names, False if it is data, and None if it may be both."""
    columns = [*top.below.columns.values()]
    filled = [cell for cell in top.cells if cell and cell not in _MISSING]
    numbers = [cell for cell in filled if _VALUE.fullmatch(cell)]
    if not top.below.rows:
        return False if numbers else _has_known_name(filled, top.below, known) or None
    if len(numbers) == len(filled):
        # A data frame of numbers has the names 0, 1, 2, …
        are_positions = top.cells == [*map(str, range(len(columns)))] and len(columns) > 1
        return are_positions and all(map(_has_fractions, columns))

    # 1. Years and numbers that count up may be names.
    counts_up = len(numbers) > 1 and all(map(str.isdecimal, numbers))
    counts_up = counts_up and all(int(b) - int(a) == 1 for a, b in pairwise(numbers))
    may_be_names = counts_up or all(re.fullmatch("[12][0-9]{3}", number) for number in numbers)
    # 2. A text above values, or a known name that is no value of the table.
    is_above_values = any(
        cell in filled and cell not in numbers and _has_only_values(column)
        for cell, column in zip(top.cells, columns, strict=True)
    )
    if is_above_values or _has_known_name(filled, top.below, known):
        return True if may_be_names else None
    # 3. Data is as the rows below, and its texts differ from categories.
    if not may_be_names or len({*filled}) < len(filled):
        return False
    if any(_occurs([cell], column) for cell, column in zip(top.cells, columns, strict=True)):
        return False
    texts = [column for column in columns if not _has_only_values(column)]
    if not _occurs(filled, top.below) and len(filled) == len(columns):
        repeat = all(2 * pc.count_distinct(column).as_py() <= len(column) for column in texts)
        if repeat:
            return True
    return None


def _has_known_name(names: Sequence[str], below: Table, known: set[str]) -> bool:
    likely = [name for name in names if normalized(name) in _KNOWN or name in known]
    likely = [name for name in likely if not _VALUE.fullmatch(name)]
    return bool(likely) and not _occurs(likely, below)


def _occurs(cells: Sequence[str], rows: Table | pa.Array) -> bool:
    """True if a column has one of these cells."""
    texts = pa.array([cell for cell in cells if cell and cell not in _MISSING], pa.string())
    columns = rows.columns.values() if isinstance(rows, Table) else [rows]
    return len(texts) > 0 and any(
        pc.any(pc.is_in(column, value_set=texts)).as_py()
        for column in columns
        if pa.types.is_string(column.type)
    )


def _has_ids_of(below: Table, others: Sequence[Table]) -> bool:
    """True if all first cells of a column of texts are in a column of another table."""
    heads = [
        c[:SAMPLED_ROWS].drop_null() for c in below.columns.values() if not _has_only_values(c)
    ]
    columns = [column for table in others for column in table.columns.values()]
    return any(
        len(head) > 0 and pc.all(pc.is_in(head, value_set=column)).as_py()
        for head in heads
        for column in columns
        if column.type == head.type
    )


def _has_only_values(column: pa.Array) -> bool:
    """True if all first cells of a column are numbers, dates or booleans, or missing."""
    head = column[:SAMPLED_ROWS].drop_null()
    if not pa.types.is_string(head.type):
        return len(head) > 0
    texts = {*pc.unique(head).to_pylist()} - _MISSING
    return bool(texts) and all(map(_VALUE.fullmatch, texts))


def _has_fractions(column: pa.Array) -> bool:
    if pa.types.is_floating(column.type):
        return True
    head = column[:SAMPLED_ROWS]
    return pa.types.is_string(head.type) and bool(pc.any(pc.match_substring(head, ".")).as_py())
