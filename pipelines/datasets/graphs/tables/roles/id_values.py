"""Values of columns in one normal form, in which ids of different tables are compared.

Whole numbers are compared by value, and texts without outer blanks, in Unicode's form NFC. A column
*covers* another one if at least :data:`MIN_COVERAGE` of the other's rows have one of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array, Bools
from kmip_data.pipelines.datasets.graphs.tables.table import (
    Table,
    comparable_ids,
    normal_texts,
    whole_numbers,
)
from kmip_data.pipelines.formats.header_line import UNNAMED_PREFIX, strings_in
from kmip_data.pipelines.formats.written_numbers import is_written_number

MIN_COVERAGE = 0.95
_SAMPLED_ROWS = 1_000  #: rows of a column that are compared before all of them
_MIN_SAMPLED = 0.5  #: fraction of sampled rows below which no other row is compared


class IdValues(NamedTuple):
    """Values of a column as positions among its distinct values."""

    distinct: Array  #: int64, or texts as objects
    codes: I64  #: position of each row's value, (R,); -1 for an empty cell

    @property
    def is_unique(self) -> bool:
        """True if no cell is empty, and no two cells are equal."""
        return len(self.distinct) == len(self.codes) > 0

    def positions_of_distinct(self, ids: IdValues) -> I64:
        """Return the position of each distinct value among other ``ids``; -1 if it is not one."""
        values, others = comparable_ids(self.distinct, ids.distinct)
        return pd.Index(others).get_indexer(pd.Index(values))

    def positions_in(self, ids: IdValues) -> I64:
        """Return the position of each row's value among other ``ids``, (R,); -1 if it is not one."""
        return np.append(self.positions_of_distinct(ids), -1)[self.codes]


def id_values(cells: pd.Series) -> IdValues | None:
    """Return the values of a column; ``None`` for decimals, booleans and lists, which are no ids."""
    if cells.dtype.kind in "iu" and not (len(cells) and cells.max() >= 2**63):
        return IdValues(*pd.factorize(cells.to_numpy(np.int64))[::-1])
    if cells.dtype.kind not in "fuO":
        return None
    try:
        codes, distinct = pd.factorize(cells)
    except TypeError:  # cells of JSON that cannot be hashed
        return None
    values = pd.Series(distinct)
    if cells.dtype.kind == "O":
        texts = pd.Series(normal_texts(values.astype(str).to_numpy(object)), dtype=object)
        merged, distinct = pd.factorize(texts.where(texts != ""))
        codes = np.append(merged, -1)[codes]
        values = pd.Series(distinct)
    integers = whole_numbers(values)
    if integers is None:
        return None if cells.dtype.kind == "f" else IdValues(values.to_numpy(object), codes)
    merged, numbers = pd.factorize(integers)
    return IdValues(numbers, np.append(merged, -1)[codes])


class ValuesOfTables:
    """Values of columns of several tables, each computed once."""

    def __init__(self) -> None:
        self._values: dict[tuple[Table, str], IdValues | None] = {}
        self._positions: dict[tuple[Table, str, Table, str], I64] = {}

    def of(self, table: Table, name: str) -> IdValues | None:
        """Return the values of a column; ``None`` if they are no ids."""
        key = (table, name)
        if key not in self._values:
            # Decimals are recognised without another parse of the text.
            ids = id_values(table.frame[name])
            if ids is not None and table.may_have_codes:
                ids = id_values(table.id_cells(name))
            self._values[key] = ids
        return self._values[key]

    def positions(self, table: Table, name: str, other: Table, other_name: str) -> I64 | None:
        """Return the position of each distinct value of a column among those of another column."""
        key = (table, name, other, other_name)
        if key not in self._positions:
            values = self.of(table, name)
            ids = self.of(other, other_name)
            if values is None or ids is None:
                return None
            self._positions[key] = values.positions_of_distinct(ids)
        return self._positions[key]

    def count_shared(self, table: Table, name: str, other: Table, other_name: str) -> int:
        """Return the number of distinct values that two columns have in common."""
        positions = self.positions(table, name, other, other_name)
        return 0 if positions is None else int((positions >= 0).sum())

    def unique_columns(self, table: Table, names: Sequence[str]) -> list[str]:
        """Return the columns whose cells are all filled and different, those without a name last."""
        unique = []
        for name in names:
            cells = table.frame[name]
            if (
                cells.dtype.kind == "b"
                or cells.isna().any()
                or cells[:_SAMPLED_ROWS].duplicated().any()
            ):
                continue
            values = self.of(table, name)
            if values is not None and values.is_unique:
                unique.append(name)
        return sorted(unique, key=lambda name: name.startswith(UNNAMED_PREFIX))

    def _sampled_positions(
        self, table: Table, name: str, other: Table, other_name: str
    ) -> I64 | None:
        """Return the positions of the values of some rows among those of another column.

        Only a large table is sampled before all of its values are computed, and then kept.
        """
        ids = self.of(other, other_name)
        step = max(len(table.frame) // _SAMPLED_ROWS, 1)
        if step > 1 and not table.may_have_codes:
            sample = id_values(table.frame[name][::step])
            return None if sample is None or ids is None else sample.positions_in(ids)

        values = self.of(table, name)
        positions = self.positions(table, name, other, other_name)
        if values is None or positions is None:
            return None
        return np.append(positions, -1)[values.codes[::step]]

    def known_rows(
        self, table: Table, names: Sequence[str], other: Table, other_names: Sequence[str]
    ) -> Bools | None:
        """Mask the rows (R,) whose values in ``names`` are those of a row of another table.

        Several columns, such as a graph and a node, are compared together. ``None`` if less than
        half of a sample is known, or if the columns have no ids or no rows.
        """
        if table.frame.empty:
            return None
        ids = [self.of(other, name) for name in other_names]
        for name, other_name in zip(names, other_names, strict=True):
            sampled = self._sampled_positions(table, name, other, other_name)
            if sampled is None or np.mean(sampled >= 0) < _MIN_SAMPLED:
                return None
        keys = np.zeros(len(table.frame), np.int64)
        other_keys = np.zeros(len(other.frame), np.int64)
        is_known = np.ones(len(keys), bool)
        for name, other_name, own_ids in zip(names, other_names, ids, strict=True):
            column = self.of(table, name)
            of_distinct = self.positions(table, name, other, other_name)
            if column is None or own_ids is None or of_distinct is None:
                return None
            positions = np.append(of_distinct, -1)[column.codes]
            is_known &= positions >= 0
            if len(names) > 1:
                keys = keys * len(own_ids.distinct) + positions
                other_keys = other_keys * len(own_ids.distinct) + own_ids.codes
        if len(names) > 1:
            is_known &= pd.Series(keys).isin(other_keys).to_numpy()
        return is_known

    def covers(
        self, other: Table, other_names: Sequence[str], table: Table, names: Sequence[str]
    ) -> bool:
        """True if nearly all rows of ``table`` have values of ``other``."""
        is_known = self.known_rows(table, names, other, other_names)
        return is_known is not None and is_known.mean() >= MIN_COVERAGE

    def first_row_has_ids(self, table: Table, others: Sequence[Table]) -> bool | None:
        """True if the first row of a table of texts has ids of ``others``, as the rows below.

        False if it has names of columns: no cell is in another table, and two columns have ids below,
        as those of edges have. A table of nodes may begin with one that no edge has. ``None`` if
        both are possible.
        """
        first_cells = {*table.frame.iloc[0].astype(str)}
        if len(table.frame) < 2 or any(map(is_written_number, first_cells)):
            return None
        first_is_id: dict[str, bool] = {}  # of each column with ids below
        for other in others:
            for key in self.unique_columns(other, other.column_names):
                for name in table.column_names:
                    is_known = self.known_rows(table, [name], other, [key])
                    if is_known is not None and is_known[1:].mean() >= MIN_COVERAGE:
                        first_is_id[name] = first_is_id.get(name) or bool(is_known[0])
        if first_is_id and all(first_is_id.values()):
            return True
        is_elsewhere = any(first_cells & strings_in(other.frame) for other in others)
        return False if len(first_is_id) > 1 and not is_elsewhere else None

    def are_keys(self, table: Table, names: Sequence[str]) -> bool:
        """True if no two rows have the same values in ``names``, and none is empty."""
        columns = [self.of(table, name) for name in names]
        keys = np.zeros(len(table.frame), np.int64)
        for column in columns:
            if column is None or (column.codes < 0).any():
                return False
            keys = keys * len(column.distinct) + column.codes
        return len(keys) > 0 and len(pd.unique(keys)) == len(keys)
