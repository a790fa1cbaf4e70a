"""Legends: names of classes in a file next to the data, such as ``legend.txt``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import pyarrow.compute as pc

from kmip_data.columns.labels import NO_CLASS
from kmip_data.pipelines.own.ids import Ids
from kmip_data.pipelines.own.table import Table

_MAX_ROWS = 65_536
_IN_TEXTS = "[^-+0-9.,eE ]"  #: character that no number has


def legend_of_table(table: Table) -> dict[int, str] | None:
    """Return the name of each code, ascending, if a table is a column of each; else ``None``."""
    if len(table.column_names) != 2 or not 1 < table.rows <= _MAX_ROWS:
        return None
    ids = [Ids(table, name) for name in table.column_names]
    codes, names = sorted(ids, key=lambda column: not column.are_numbers)
    if not codes.are_numbers or names.are_numbers or not codes.is_key or not names.is_key:
        return None
    if not pc.any(pc.match_substring_regex(names.cells, _IN_TEXTS)).as_py():
        return None
    return dict(sorted(zip(codes.cells.to_pylist(), names.cells.to_pylist(), strict=True)))


class Legend(NamedTuple):
    """Names of classes in a file."""

    file: str
    names: Mapping[int, str]  #: name by code, ascending; -1 marks a missing label, and has none


def find_legend(
    legends: Mapping[str, Mapping[int, str]], codes: Collection[int | str]
) -> Legend | None:
    """Return the first legend, by file, that names all codes of labels; ``None`` if none does."""
    for file, all_names in legends.items():
        names = {code: name for code, name in all_names.items() if code != NO_CLASS}
        if codes and names.keys() >= {*codes}:
            return Legend(file, names)
    return None
