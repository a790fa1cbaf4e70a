"""Legends: names of classes in a file next to the data, such as ``legend.txt``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import pyarrow.compute as pc

from kmip_data.columns.labels import NO_CLASS
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines.own.ids import Ids
from kmip_data.pipelines.own.table import Table

_MIN_COVERED = 0.95  #: fraction of labels whose codes a legend has
_MAX_SHOWN = 20
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
    legends: Mapping[str, Mapping[int, str]],
    counts: Mapping[Any, int],
    classes: Collection[int | str] = (),
) -> Legend | None:
    """Return the first legend that names all classes, or else all labels; ``None`` if none does.

    ``legends`` are by file, and ``counts`` are of integer labels. Raises ``DamagedInput`` if a legend
    names 95 % of the labels, but not all.
    """
    codes: set[Any] = {*classes} or {*counts} - {NO_CLASS}
    total = sum(counts[code] for code in codes if code in counts)
    for file, all_names in legends.items():
        names = {code: name for code, name in all_names.items() if code != NO_CLASS}
        unnamed = sorted(codes - names.keys())
        if not unnamed:
            return Legend(file, names) if codes else None
        rows = sum(counts.get(code, 0) for code in unnamed)
        if not classes and rows <= (1 - _MIN_COVERED) * total:
            shown = ", ".join(map(str, unnamed[:_MAX_SHOWN]))
            raise DamagedInput(
                f"{file} has no name for the class {shown}, which {rows:,} of {total:,} labels have.",
                steps=[
                    "add the name to the file, or make other labels missing",
                    Setting(classes=",".join(map(str, names))),
                ],
            )
    return None
