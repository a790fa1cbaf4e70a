"""Ids of a column in one form, and which values of another column they cover.

Whole numbers in any notation are int64, so 133.0 is 133; all other ids are texts, so 01067 is none of
these. A column is a *key* if its ids differ from row to row and none is missing.
"""

from __future__ import annotations

import unicodedata
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import I64, Bools
from kmip_data.pipelines.own.columns.facts import MAY_BE_VALUES, MISSING, without
from kmip_data.pipelines.own.table import Table

_SAMPLED_ROWS = 1_000  #: first rows, which show most columns that are no key or no end
MIN_COVERAGE = 0.95  #: fraction of rows from which a column lies in another; the others are errors
_WHOLE = r"^[+-]?(?:0|[1-9][0-9]*)(?:\.0*)?$"
_YEARS = (1_800, 2_100)


class Covered(NamedTuple):
    """Rows of a column whose value is one of a key's, and how many values these are."""

    rows: Bools  #: (R,)
    distinct: int


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
        return pa.types.is_floating(self.table.columns[self.name].type) and not self.are_numbers

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

    def covered(self, other: Ids) -> Covered | None:
        """Return the rows of ``other`` with one of these ids; ``None`` if these are too few."""
        if other.are_fractions or not len(other.cells):
            return None
        head = other.cells[:_SAMPLED_ROWS]
        if not _are_enough(self.positions(head) >= 0):
            return None
        rows = self.positions(other.cells) >= 0
        if not _are_enough(rows):
            return None
        return Covered(rows, int((self.positions(other.distinct) >= 0).sum()))


class IdsOfTables:
    """Ids of the columns of several tables, each made once."""

    def __init__(self) -> None:
        self._ids: dict[tuple[Table, str], Ids] = {}

    def of(self, table: Table, name: str) -> Ids:
        """Return the ids of a column."""
        return self._ids.setdefault((table, name), Ids(table, name))


def _are_enough(rows: Bools) -> bool:
    return bool(rows.mean() >= MIN_COVERAGE)


def row_numbers(rows: int, first: int) -> pa.Array:
    """Return the numbers of rows from ``first``, as ids."""
    return pa.array(np.arange(first, first + rows))


def normal_ids(cells: pa.Array) -> pa.Array:
    """Return cells (R,) as ids: int64 if all are whole numbers, and else texts in the form NFC.

    Words for a missing value are null.
    """
    kind = cells.type
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return pc.cast(cells, pa.int64())
    if pa.types.is_dictionary(kind):
        cells = cells.dictionary_decode()
    elif pa.types.is_floating(kind):
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, kind), cells)
        are_whole = pc.all(pc.equal(cells, pc.floor(cells)), min_count=0).as_py()
        fits = pc.all(pc.less_equal(pc.abs(cells), 2.0**53), min_count=0).as_py()
        return pc.cast(cells, pa.int64()) if are_whole and fits else pc.cast(cells, pa.string())
    texts = cells if pa.types.is_string(cells.type) else pc.cast(cells, pa.string())
    for words in ((), MISSING):
        numbers = _whole_numbers(without(texts, words) if words else texts)
        if numbers is not None:
            return numbers
    texts = without(texts, MISSING - MAY_BE_VALUES)
    if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        return texts
    codes = texts.dictionary_encode()
    forms = [unicodedata.normalize("NFC", text) for text in codes.dictionary.to_pylist()]
    return pc.take(pa.array(forms, pa.string()), codes.indices)


def _whole_numbers(texts: pa.Array) -> pa.Array | None:
    """Return texts as int64 if all are whole numbers; ``None`` if one is not, or begins with a 0."""
    if len(texts) == texts.null_count:
        return None
    try:
        numbers = pc.cast(texts, pa.int64())
        if pc.sum(pc.binary_length(pc.cast(numbers, pa.string()))) == pc.sum(
            pc.binary_length(texts)
        ):
            return numbers
    except pa.ArrowInvalid:
        pass
    distinct = pc.drop_null(pc.unique(texts[:_SAMPLED_ROWS]))
    for part in (distinct, texts):
        if not pc.all(pc.match_substring_regex(part, _WHOLE)).as_py():
            return None
    try:
        return pc.cast(pc.replace_substring_regex(texts, r"^\+|\.0*$", ""), pa.int64())
    except pa.ArrowInvalid:  # beyond int64
        return None


def positions_in(keys: pa.Array, values: pa.Array) -> I64:
    """Return the position of each of ``values`` (n,) among ``keys``, -1 if it has none."""
    if keys.type != values.type:
        keys, values = pc.cast(keys, pa.string()), pc.cast(values, pa.string())
    positions = pc.fill_null(pc.index_in(values, value_set=keys, skip_nulls=True), -1)
    rows: I64 = positions.to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def repeats(cells: pa.Array) -> Bools:
    """Mask (n,) of the values that occurred before."""
    values = cells.to_numpy(zero_copy_only=False)
    _, first = np.unique(values, return_index=True)
    mask = np.ones(len(values), bool)
    mask[first] = False
    return mask
