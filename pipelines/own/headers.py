"""Names of columns in the first row of a table, told from data by what is below."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own.columns.facts import MISSING
from kmip_data.pipelines.own.names import normalized
from kmip_data.pipelines.own.table import Table
from kmip_data.text import list_names

UNNAMED = "unnamed "  #: begins the names of columns without a name
COMPARED = 20  #: first tables, and their first columns, in which cells are looked for
SAMPLED_ROWS = 1_000  #: first rows, which show whether a column has values
_KNOWN = {
    *chain.from_iterable(known_names.END_NAMES),
    *known_names.NODE_ID_NAMES,
    *known_names.GRAPH_ID_NAMES,
    *known_names.TABLE_LABELS,
    *(known_names.PART_NAME, known_names.DIRECTION_NAME, "smiles", "weight", "x", "z"),
}
_BOOLEAN = re.compile("(?i:true|false|yes|no)")
#: Number in any notation, date, time or boolean.
_VALUE = re.compile(
    r"[-+−]?(?:\d[\d.,'\u2019\s]*|[.,]\d+)(?:[eE][-+]?\d+)?\s?%?"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T\s]\d.*)?|\d{1,2}:\d\d.*"
    rf"|{_BOOLEAN.pattern}"
)


class NoTable(DamagedInput):
    """A file that is prose, no text, or a single line: other files may be the tables."""


@dataclass(frozen=True)
class TopRow:
    """Table without names, whose first row may have them."""

    cells: Sequence[str]  #: cells of the first row
    below: Table  #: rows below it
    whole: Callable[[], Table]  #: returns all rows
    comment: Sequence[str] = ()  #: cells of the comment above, which may be names, too

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.below.name

    def named(self, has_names: bool | None) -> Table:
        """Return the rows below the names, or all rows of a table without names."""
        return with_names(self.below, self.cells) if has_names else self.whole()


def name_columns(
    tables: Mapping[tuple[str, str], Table | TopRow],
    options: ReadOptions,
    notices: Notices,
    others: Sequence[Table] = (),
) -> list[Table]:
    """Return the tables with the names in their first rows; what stays open is a question.

    The parameter ``header`` decides a single table, and each of several that is a question. ``others``
    have names already.
    """
    params = options.params
    known = {params.source, params.target, params.graph, params.group, params.node, params.smiles}
    known.update(params.label, params.feature, params.ignore)
    known.discard("")
    if options.described is not None:
        known.update(role.column for role in options.described.columns)
    given = {"yes": True, "no": False}.get(params.header or "")

    named = {key: table for key, table in tables.items() if isinstance(table, Table)}
    undecided: dict[tuple[str, str], TopRow] = {}
    for key, top in tables.items():
        if isinstance(top, Table):
            continue
        has_names = given if given is not None and len(tables) == 1 else _has_names(top, known)
        if top.comment and _has_known_name(top.comment, top.below, known):
            named[key] = with_names(top.whole(), top.comment)
        elif has_names is None:
            undecided[key] = top
        else:
            named[key] = top.named(has_names)

    bodies = {**named, **{key: top.below for key, top in undecided.items()}}
    for key, top in undecided.items():
        known_tables = [table for other, table in islice(bodies.items(), COMPARED) if other != key]
        known_tables += others
        has_names = given
        texts = [cell for cell in top.cells if not _VALUE.fullmatch(cell)]
        if has_names is None and len(top.cells) == 1 < len(tables) + len(others):
            has_names = _has_ids_of(top.below, known_tables)
        elif has_names is None and any(_occurs(texts, table) for table in known_tables):
            has_names = False
        elif has_names is None and _has_ids_of(top.below, known_tables):
            has_names = True
        elif len(top.cells) == 1 and known_tables:  # nothing that the other tables lack
            has_names = False
        elif has_names is None:
            has_names = len(top.cells) > 1 and not _occurs(top.cells, top.below)
            question = (
                f"{top.whole().location(0)} may be names of columns or data: "
                f"{list_names(top.cells, 200)}: header=yes for names, header=no for data"
            )
            notices.questions[question] = Setting(header="yes" if has_names else "no")
        named[key] = top.named(has_names)
    return [named[key] for key in tables]


def with_names(table: Table, names: Sequence[str]) -> Table:
    """Return a table with names; a column without a name and without a cell is left out.

    A column with the name of a previous one has its position behind it, as in ``node 2``.
    """
    columns: dict[str, pa.Array] = {}
    for i, (name, column) in enumerate(zip(names, table.columns.values(), strict=True)):
        if name or column.null_count < len(column):
            unique = name or f"{UNNAMED}{i}"
            while unique in columns:
                unique += f" {i + 1}"
            columns[unique] = column
    return replace(table, columns=columns, has_names=True)


def _has_names(top: TopRow, known: set[str]) -> bool | None:
    """True if the first row has names, False if it is data, and None if it may be both."""
    columns = [*top.below.columns.values()]
    pairs = [*zip(top.cells, columns, strict=True)]
    if any(cell in known and not _VALUE.fullmatch(cell) for cell in top.cells):
        return True
    filled = [cell for cell in top.cells if cell not in MISSING]
    numbers = [cell for cell, column in pairs if cell in filled and _is_value(cell, column)]
    counts_up = len(numbers) > 1 and all(map(str.isdecimal, numbers))
    counts_up = counts_up and all(int(b) - int(a) == 1 for a, b in pairwise(numbers))
    if len(numbers) == len(filled):
        # A data frame has the names 0, 1, 2, …, and a matrix those of its rows behind an empty cell.
        is_matrix = [*top.cells] == ["", *numbers] and columns[0].null_count == 0
        is_matrix &= counts_up or [*map(str, columns[0].to_pylist())] == numbers
        is_frame = counts_up and numbers[0] == "0" and len(numbers) == len(columns)
        if is_frame and _has_fractions(columns[0]):
            return all(map(_has_fractions, columns)) or None
        return is_matrix

    # 1. A text above values, or a known name that is no value: names, next to which numbers may be
    #    years or count up.
    may_be_names = counts_up or all(re.fullmatch("[12][0-9]{3}", number) for number in numbers)
    words = {*filled} - {*numbers}
    is_above_values = any(cell in words and _has_only_values(column) for cell, column in pairs)
    if is_above_values or _has_known_name(top.cells, top.below, known):
        return may_be_names or None
    # 2. Data occurs again below, and names differ from categories.
    if not may_be_names or len({*filled}) < len(filled):
        return False
    if any(_occurs([cell], column) for cell, column in pairs):
        return False
    is_apart = len(filled) == len(columns) and not _occurs(filled, top.below)
    texts = [column for column in columns if not _has_only_values(column)]
    repeat = all(0 < 2 * pc.count_distinct(text).as_py() <= len(text) for text in texts)
    return (is_apart and repeat) or None


def _is_value(cell: str, column: pa.Array) -> bool:
    """True for a value; ``no`` is the name of numbers, and a value above booleans alone."""
    is_boolean = _BOOLEAN.fullmatch(cell) is not None
    return bool(_VALUE.fullmatch(cell)) and (not is_boolean or _has_only(column, _BOOLEAN))


def _has_known_name(names: Sequence[str], below: Table, known: set[str]) -> bool:
    likely = [name for name in names if normalized(name) in _KNOWN or name in known]
    return any(likely) and not any(map(_VALUE.fullmatch, likely)) and not _occurs(likely, below)


def _occurs(cells: Iterable[str], rows: Table | pa.Array) -> bool:
    """True if a column has one of these cells."""
    texts = pa.array([cell for cell in cells if cell not in MISSING], pa.string())
    columns = rows.columns.values() if isinstance(rows, Table) else [rows]
    same = pa.chunked_array([column for column in columns if column.type == texts.type], texts.type)
    return len(texts) > 0 and bool(pc.any(pc.is_in(same, value_set=texts)).as_py())


def _has_ids_of(below: Table, others: Sequence[Table]) -> bool:
    """True if the first cells of a column of texts are in a column of another table."""
    columns = [column for table in others for column in islice(table.columns.values(), COMPARED)]
    return any(
        pc.all(pc.is_in(head, value_set=column)).as_py()
        for text in islice(below.columns.values(), COMPARED)
        if len(head := text[:SAMPLED_ROWS].drop_null()) and not _has_only_values(head)
        for column in columns
        if column.type == head.type
    )


def _has_only_values(column: pa.Array) -> bool:
    """True if the first cells of a column are numbers, dates or booleans, or missing."""
    return _has_only(column, _VALUE)


def _has_only(column: pa.Array, pattern: re.Pattern[str]) -> bool:
    texts = {*map(str, column[:SAMPLED_ROWS].drop_null().to_pylist())} - MISSING
    return bool(texts) and all(map(pattern.fullmatch, texts))


def _has_fractions(column: pa.Array) -> bool:
    return any("." in str(cell) for cell in column[:SAMPLED_ROWS].to_pylist())
