"""Ids of a column in one form, and which values of another column they cover.

Whole numbers in any notation are int64, so 133.0 is 133; all other ids are texts, so 01067 is none of
these. A column is a *key* if its ids differ from row to row and none is missing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import I64, Bools
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.columns.facts import MISSING
from kmip_data.pipelines.own.table import Table

_SAMPLED_ROWS = 1_000  #: first rows, which show most columns that are no key or no end
MIN_COVERAGE = 0.95  #: fraction of rows from which a column lies in another; the others are errors
MIN_NEAR = 0.5  #: fraction of rows from which a column that fits no other is one with errors
_NUMBER = r"^[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE]\+?[0-9]+)?$"
_DECIMAL = r"^[+-]?(?:[0-9]+[.,]?[0-9]*|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?$"
_YEARS = (1_800, 2_100)


class Ids:
    """Ids of one column of a table."""

    def __init__(self, table: Table, name: str) -> None:
        self.table = table
        self.name = name

    @cached_property
    def cells(self) -> pa.Array:
        """Ids (R,), int64 or string; null if missing."""
        return normal_ids(self.table.columns[self.name])

    @cached_property
    def distinct(self) -> pa.Array:
        """Distinct ids in the order of the rows, without missing ones."""
        return pc.drop_null(pc.unique(self.cells))

    @property
    def is_key(self) -> bool:
        """True if all ids differ and none is missing."""
        return not self.cells.null_count and self.differ

    @cached_property
    def differ(self) -> bool:
        """True if all ids differ that are not missing."""
        head = pc.drop_null(self.cells[:_SAMPLED_ROWS])
        if len(pc.unique(head)) < len(head):
            return False
        return bool(len(self.distinct) == len(self.cells) - self.cells.null_count > 0)

    @cached_property
    def are_numbers(self) -> bool:
        """True for int64."""
        return bool(pa.types.is_integer(self.cells.type))

    @cached_property
    def are_fractions(self) -> bool:
        """True if the cells are numbers of which one has a fraction: no ids."""
        cells = self.table.columns[self.name]
        if self.are_numbers or not pa.types.is_string(cells.type):
            return pa.types.is_floating(cells.type) and not self.are_numbers
        parts = (cells[:_SAMPLED_ROWS], cells)
        are_numbers = all(
            pc.all(pc.match_substring_regex(part, _DECIMAL)).as_py() for part in parts
        )
        return are_numbers and bool(pc.any(pc.match_substring_regex(cells, "[.,]")).as_py())

    @cached_property
    def are_years(self) -> bool:
        """True if all are integers of about four digits, as years are."""
        if not self.are_numbers or not len(self.distinct):
            return False
        smallest, largest = pc.min_max(self.distinct).values()
        return bool(_YEARS[0] <= smallest.as_py() and largest.as_py() <= _YEARS[1])

    def positions(self, values: pa.Array) -> I64:
        """Return the row of each of ``values`` (n,) in this key, -1 if it has none."""
        return positions_in(self.cells, values)

    def covers(self, other: Ids, least: float = MIN_COVERAGE) -> bool:
        """True if ``least`` of the rows of another column have one of these ids."""
        if other.are_fractions or not len(other.cells):
            return False
        parts = (other.cells[:_SAMPLED_ROWS], other.cells)
        return all((self.positions(part) >= 0).mean() >= least for part in parts)

    @cached_property
    def are_likely(self) -> bool:
        """True for texts, and for numbers if the name of the column is one of ids."""
        is_number = pc.match_substring_regex(pc.cast(self.distinct, pa.string()), r"^[0-9.,]*$")
        is_likely = names.is_id_name(self.name) or not pc.all(is_number).as_py()
        return is_likely and not self.are_fractions


class IdsOfTables:
    """Ids of the columns of several tables, each made once."""

    def __init__(self) -> None:
        self._ids: dict[tuple[Table, str], Ids] = {}

    def of(self, table: Table, name: str) -> Ids:
        """Return the ids of a column."""
        return self._ids.setdefault((table, name), Ids(table, name))


def row_numbers(rows: int, first: int) -> pa.Array:
    """Return the numbers of rows from ``first``, as ids."""
    return pa.array(np.arange(first, first + rows))


def normal_ids(cells: pa.Array) -> pa.Array:
    """Return cells (R,) as ids: int64 if all are whole numbers, and else texts in the form NFC."""
    kind = cells.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return pc.cast(cells, pa.int64())
    if pa.types.is_dictionary(kind):
        cells = cells.dictionary_decode()
    elif pa.types.is_floating(kind):
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, kind), cells)
        integers = _as_integers(cells)
        return pc.cast(cells, pa.string()) if integers is None else integers
    texts = cells if pa.types.is_string(cells.type) else pc.cast(cells, pa.string())
    numbers = _whole_numbers(texts)
    if numbers is not None:
        return numbers
    if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        return texts
    codes = texts.dictionary_encode()
    forms = [unicodedata.normalize("NFC", text) for text in codes.dictionary.to_pylist()]
    return pc.take(pa.array(forms, pa.string()), codes.indices)


def _whole_numbers(texts: pa.Array) -> pa.Array | None:
    """Return texts as int64 if all are whole numbers or words for a missing one; ``None`` otherwise.

    A number that begins with a 0 is a code.
    """
    if len(texts) == texts.null_count:
        return None
    try:
        pc.cast(texts[:_SAMPLED_ROWS], pa.int64())  # a failure is slow in a long column
        numbers = pc.cast(texts, pa.int64())
        if pc.sum(pc.binary_length(pc.cast(numbers, pa.string()))) == pc.sum(
            pc.binary_length(texts)
        ):
            return numbers
    except pa.ArrowInvalid:
        pass
    numbers = None
    for part in (texts[:_SAMPLED_ROWS], texts):
        is_missing = pc.is_in(part, pa.array([*MISSING]))
        filled = pc.if_else(is_missing, pa.scalar(None, pa.string()), part)
        if not pc.all(pc.match_substring_regex(filled, _NUMBER), min_count=0).as_py():
            return None
        numbers = _as_integers(pc.cast(pc.utf8_ltrim(filled, "+"), pa.float64()))
        if numbers is None:
            return None
    return numbers


def _as_integers(floats: pa.Array) -> pa.Array | None:
    """Return floats as int64; ``None`` if one has a fraction, or is too large for its digits."""
    are_whole = pc.all(pc.equal(floats, pc.floor(floats)), min_count=0).as_py()
    fits = pc.all(pc.less_equal(pc.abs(floats), 2.0**53), min_count=0).as_py()
    return pc.cast(floats, pa.int64()) if are_whole and fits else None


def positions_in(keys: pa.Array, values: pa.Array) -> I64:
    """Return the position of each of ``values`` (n,) among ``keys``, -1 if it has none.

    Numbers are compared with texts without zeros before them, which spreadsheets remove, unless two
    keys differ by these alone.
    """
    if keys.type != values.type:
        keys, values = pc.cast(keys, pa.string()), pc.cast(values, pa.string())
        bare = pc.utf8_ltrim(keys, "0")
        if pc.count_distinct(bare) == pc.count_distinct(keys):
            keys, values = bare, pc.utf8_ltrim(values, "0")
    positions = pc.fill_null(pc.index_in(values, value_set=keys, skip_nulls=True), -1)
    rows: I64 = positions.to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def repeats(cells: pa.Array) -> Bools:
    """Mask (n,) of the values that occurred before."""
    codes = cells.dictionary_encode(null_encoding="encode").indices.to_numpy()
    return pd.Series(codes).duplicated().to_numpy()


def refuse_fault(ids: Ids, known: Ids) -> None:
    """Refuse the first row that keeps ids of a table from joining those of another."""
    table = ids.table
    for column, is_wrong, problem in (
        (ids, table.is_empty(ids.name), "is empty"),
        (ids, repeats(ids.cells), "is {} again"),
        (ids, known.positions(ids.cells) < 0, f"is {{}}, which is not in {known.table.name}"),
        (known, ids.positions(known.cells) < 0, f"is {{}}, which is not in {table.name}"),
    ):
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise column.table.error_at(
                row,
                f"{column.name!r} {problem.format(column.cells[row])}",
                f"correct it, or move {table.name} elsewhere: no column joins it to the others",
            )


def share_ids(groups: Ids, ends: Sequence[pa.Array]) -> bool:
    """True if two groups of edges (E,) have an id in common, which may be another node in each."""
    both = pa.concat_arrays([pc.cast(end, pa.string()) for end in ends])
    ids = pc.unique(both)
    codes = np.tile(positions_in(groups.distinct, groups.cells), len(ends)) * len(ids)
    return len(pd.unique(codes + positions_in(ids, both))) > len(ids)
