"""Files next to clouds or pictures that are no items: legends, tables of the items, lists of parts."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple, NoReturn

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.companion_files.part_lists import (
    ItemNames,
    add_part,
    listed_parts,
    refuse_unknown_names,
)
from kmip_data.pipelines.companion_files.table_texts import (
    COMPANION_SUFFIXES,
    TableText,
    texts_of_file,
)
from kmip_data.pipelines.domains.cloud_columns import CloudColumns, CloudOptions, comparable_name
from kmip_data.pipelines.domains.text_clouds import read_text
from kmip_data.pipelines.formats.delimited import guess_separator, read_delimited, split_rows
from kmip_data.pipelines.formats.text import UnknownEncoding
from kmip_data.pipelines.formats.written_numbers import is_written_number
from kmip_data.text import list_names, nearest_names

_HEAD_BYTES = 2**14  #: first bytes of a text, which show whether its rows are points
_MIN_COVERED = 0.95  #: fraction of the rows of a table that name items
_MAX_BYTES_BESIDE = 2**26  #: largest table next to the folder of items
_MAX_NUMERIC_ROWS = 0.1  #: fraction of rows with two numbers in a text that is no cloud
_WITHOUT_LABELS = Setting(label="none")
NO_TABLE = "it names no files and no classes"  #: reason to ignore a text


class ItemColumn(NamedTuple):
    """Column of a table with a row for each item."""

    file: str
    name: str
    by_item: Mapping[str, object]  #: item -> value, ``None`` if it is missing
    is_key: bool = False  #: True if it names the items


@dataclass
class Companions:
    """Files next to the items, by what they are."""

    legends: dict[str, dict[int, str]] = field(default_factory=dict)  #: file -> names by code
    columns: list[ItemColumn] = field(default_factory=list)  #: of all tables
    parts: dict[str, int] = field(default_factory=dict)  #: item -> code of its part, of lists
    ignored: dict[str, str] = field(default_factory=dict)  #: file -> reason
    files: set[str] = field(default_factory=set)  #: all of these files
    #: first two rows of each table that names no items
    unmatched: dict[str, list[list[str]]] = field(default_factory=dict)
    #: file in another encoding -> error
    undecoded: dict[str, UnknownEncoding] = field(default_factory=dict)

    def find_column(self, names: Iterable[str]) -> ItemColumn | None:
        """Return the first column with one of the names, of all tables that have it.

        Raises ``DamagedInput`` if two tables have different values for an item.
        """
        for name in names:
            wanted = comparable_name(name)
            columns = [column for column in self.columns if comparable_name(column.name) == wanted]
            if columns:
                return _joined(columns)
        return None

    def leave_out(self, names: Sequence[str], items: Sequence[str]) -> None:
        """Leave out the columns with these names; refuse a name that no table has."""
        for name in names:
            kept = [
                column
                for column in self.columns
                if comparable_name(column.name) != comparable_name(name)
            ]
            if len(kept) == len(self.columns):
                self.refuse_missing("ignore", name, items)
            self.columns = kept

    def refuse_unmatched(self, name: str, items: Sequence[str]) -> None:
        """Refuse a name of a column that a table has whose columns name no items."""
        for file, rows in self.unmatched.items():
            if comparable_name(name) in map(comparable_name, rows[0]):
                raise DamagedInput(
                    f"{file} has a column {name!r}, but no column with the names of the files.",
                    expected=f"names such as {PurePosixPath(items[0]).stem!r}",
                    found=f"{list_names(rows[1], 100)} in its first row",
                    steps=["write these names into it, or build without labels", _WITHOUT_LABELS],
                )

    def refuse_missing(self, key: str, name: str, items: Sequence[str]) -> NoReturn:
        """Refuse a parameter that names a column which no table has."""
        self.refuse_unmatched(name, items)
        step = _WITHOUT_LABELS if key == "label" else Setting({key: None})
        for similar in nearest_names(name, self.column_names)[:1]:
            step = Setting({key: similar})
        raise UsageError(
            f"No table beside the files has a column {name!r}.",
            found=self.describe_tables(),
            steps=step,
        )

    def unused_columns(self, used: Collection[str]) -> dict[str, str]:
        """Return the tables with columns that are not ``used``, and how to use these."""
        unused: dict[str, list[str]] = {}
        for column in self.columns:
            if column.name not in used and not column.is_key:
                unused.setdefault(column.file, []).append(column.name)
        return {
            file: f"not used: {list_names(names, 100)}; label or group takes one"
            for file, names in unused.items()
        }

    def describe_tables(self) -> str:
        """Return the columns of all tables, or why there are none, for an error."""
        if self.column_names:
            return list_names(self.column_names, 500)
        reasons = [f"{file}: {reason}" for file, reason in self.ignored.items()]
        return "; ".join(reasons)[:500] or "no such table"

    def unused(self, legend: str) -> dict[str, str]:
        """Return the files without use, with reasons, if only this legend is used."""
        other_legends = self.legends.keys() - {legend}
        return {**self.ignored, **dict.fromkeys(sorted(other_legends), "no legend of the labels")}

    def without_own_files(self, files: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        """Return the files of each cloud that is no companion."""
        return {cloud: parts for cloud, parts in files.items() if parts[0] not in self.files}

    @property
    def column_names(self) -> list[str]:
        """Names of these columns."""
        return [column.name for column in self.columns if not column.is_key]


def find_companions(
    folder: Path, files: Iterable[str], items: Sequence[str], options: CloudOptions
) -> Companions:
    """Return the files that are no items, but say something about them, or clearly something else.

    A table has a column without repeated values of which 95 % name items: by path, with or without
    suffix and upper folders. A list of a part has the part in its name, and names items. A text
    without rows of numbers is no cloud. If all files were companions, none is.
    """
    companions = Companions()
    names = ItemNames(items)
    for name in files:
        if not name.lower().endswith(COMPANION_SUFFIXES):
            continue
        try:
            reasons = {
                text.name: _add_text(companions, text, names, options)
                for text in texts_of_file(folder / name, name)
            }
        except UnknownEncoding as error:
            # Any encoding shows whether it is a table, whose texts need theirs.
            companions.ignored[name] = first_problem(error)
            likely = find_companions(folder, [name], items, options._replace(encoding="latin-1"))
            if name in likely.ignored:
                companions.files.add(name)
            else:
                companions.undecoded[name] = error
            continue
        if None in reasons.values():
            continue
        companions.files.add(name)
        unused = {sheet: reason for sheet, reason in reasons.items() if reason}
        if len(unused) == len(reasons):
            unused = {name: "; ".join(filter(None, unused.values())) or NO_TABLE}
        companions.ignored |= unused
    return companions if {*items} - companions.files else Companions()


def _joined(columns: Sequence[ItemColumn]) -> ItemColumn:
    """Return columns of several tables as one."""
    values: dict[str, object] = {}
    for column in columns:
        for item, value in column.by_item.items():
            known = values.get(item)
            if None not in {known, value} and known != value:
                raise DamagedInput(
                    f"{columns[0].file} has {known!r} as {column.name!r} of {item}, and {column.file} has "
                    f"{value!r}.",
                    steps="leave one of the tables out of the folder",
                )
            values[item] = known if value is None else value
    return columns[0]._replace(file=" and ".join(column.file for column in columns), by_item=values)


def companions_beside(folder: Path, items: Sequence[str]) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the legends, lists and tables next to a folder of items, and files ignored for a reason."""
    if not folder.is_dir():
        return {}, {}
    parent = folder.absolute().parent
    names = [
        path.name
        for path in sorted(parent.iterdir())
        if path.is_file()
        and path.suffix.lower() in COMPANION_SUFFIXES
        and not path.name.startswith(".")
        and path.stat().st_size <= _MAX_BYTES_BESIDE
    ]
    companions = find_companions(parent, names, items, CloudOptions())
    # A file about other things has no place in the build.
    reasons = {name: why for name, why in companions.ignored.items() if why != NO_TABLE}
    useful = companions.files - companions.ignored.keys()
    return {name: parent / name for name in sorted(useful)}, reasons


def _add_text(
    companions: Companions, text: TableText, names: ItemNames, options: CloudOptions
) -> str | None:
    """Add what a text says; return a reason if it says nothing, ``None`` if it may be a cloud."""
    rows = _head_rows(text, options.encoding)
    if rows is None:
        return None
    if items_of_parts := _listed_items(text, rows, names):
        for part, items in items_of_parts.items():
            add_part(companions.parts, text.name, part, items)
        return ""

    # Two columns may be both, if the names of the items are numbers; more are one of both.
    legend = text.legend(options.encoding)
    table = _item_table(text, rows, names, options)
    if isinstance(table, list):
        companions.columns += table
        if len(rows[0]) > 2:
            legend = None
    if legend is not None:
        companions.legends[text.name] = legend
    if legend is not None or isinstance(table, list):
        return ""
    if len(rows) > 1:
        companions.unmatched[text.name] = rows[:2]
    if text.has_typed_columns or _has_no_points(rows, options):
        return str(table)
    return None


def _head_rows(text: TableText, encoding: str) -> list[list[str]] | None:
    """Return the cells of the first rows of a text; ``None`` if it has none, or is no text."""
    head = text.read(_HEAD_BYTES + 1)
    if len(head) > _HEAD_BYTES:
        head = head[: head.rfind(b"\n") + 1] or head
    if b"\0" in head:
        return None
    if text.is_json:
        return []
    try:
        rows = read_delimited(head, text.name, encoding).sample_rows()
    except UnknownEncoding:
        raise
    except (UsageError, DamagedInput, ValueError):
        return None
    if not rows:
        return None
    separator = "," if text.has_typed_columns else guess_separator(rows, may_be_mixed=True)
    cells = split_rows(rows, separator, strict=False)
    return [[cell.strip("\"' ") for cell in row] for row in cells]


def _has_no_points(rows: Sequence[Sequence[str]], options: CloudOptions) -> bool:
    """True if nearly no row has two numbers, or if the names of columns are not those of a position."""
    first_row = [cell.strip("/#% ") for cell in rows[0]] if rows else []
    has_names = all(cell and not is_written_number(cell) for cell in first_row)
    if has_names and len(rows) > 1 and not _names_position(first_row, options):
        return True
    numeric = sum(sum(map(is_written_number, row)) > 1 for row in rows)
    return numeric <= _MAX_NUMERIC_ROWS * len(rows)


def _names_position(row: Sequence[str], options: CloudOptions) -> bool:
    """True if all columns of a position are in a row."""
    return {*map(comparable_name, row)} >= {*map(comparable_name, options.position)}


def _listed_items(
    text: TableText, rows: Sequence[Sequence[str]], names: ItemNames
) -> dict[str, list[str]]:
    """Return the items that a text lists, by part; nothing if it is no list of a part."""
    if any(len(row) != 1 for row in rows):
        return {}
    lists = listed_parts(text)
    listed = [*chain.from_iterable(lists.values())]
    unknown = [entry for entry in listed if names.find(entry) is None]
    if len(listed) - len(unknown) < max(_MIN_COVERED * (len(listed) - 1), 1):
        return {}
    refuse_unknown_names(text.name, listed, unknown, "file")
    return {part: [*filter(None, map(names.find, entries))] for part, entries in lists.items()}


def _item_table(
    text: TableText, rows: Sequence[Sequence[str]], names: ItemNames, options: CloudOptions
) -> list[ItemColumn] | str:
    """Return the columns of a table of items, or the reason why a text is none."""
    reason = NO_TABLE
    # Names of clouds may be words or numbers that are in their rows, too.
    if rows and _names_position(rows[0], options):
        return reason
    for position, cells in enumerate(zip(*rows, strict=False)):
        named = [names.find(cell) is not None for cell in cells]
        if sum(named[1:]) < len(named) // 2 or not any(named):
            continue

        # The first row has names of columns if it names no item.
        has_header = text.has_typed_columns or not named[0]
        if not has_header and all(map(is_written_number, rows[0])):
            return reason
        is_pair = len(rows[0]) == 2
        text_options = CloudOptions(
            header="yes" if has_header else "no",
            names=(("item", "label") if position == 0 else ("label", "item")) if is_pair else (),
            encoding=options.encoding,
            decimal=options.decimal,
        )
        try:
            columns = read_text(text.read(), text.name, text_options)
        except (DamagedInput, UsageError, ValueError) as error:
            return first_problem(error)
        key, values = [*columns.values.items()][position]
        items = [names.find(_text_of_id(cell)) for cell in values.tolist()]
        named_items = [item for item in items if item is not None]
        covered = len(named_items)
        is_unique = len({*named_items}) == covered
        if is_unique and covered >= max(_MIN_COVERED * len(items), 1):
            _check_all_named(items, text.name, columns)
            return [
                _item_column(text.name, name, items, cells)._replace(is_key=name == key)
                for name, cells in columns.values.items()
            ]
        reason = f"{key!r} names {len({*named_items}):,} files in {len(items):,} rows"
    return reason


def _item_column(file: str, name: str, items: Sequence[str | None], cells: Array) -> ItemColumn:
    """Return the cells (N,) of a column by item."""
    rows = zip(items, cells.tolist(), strict=True)
    values = {item: _present(value) for item, value in rows if item is not None}
    return ItemColumn(file, name, values)


def _check_all_named(items: Sequence[str | None], name: str, columns: CloudColumns) -> None:
    """Refuse rows of a table that name none of the items."""
    unnamed = [row for row, item in enumerate(items) if item is None]
    if unnamed:
        raise DamagedInput(
            f"{name}: {len(unnamed):,} of {len(items):,} rows name no file, such as "
            f"{columns.location(unnamed[0])}.",
            steps="correct these rows, or move the table out of the folder",
        )


def _text_of_id(value: object) -> str:
    """Return an id as its item is written: ``7`` for 7.0."""
    is_number = isinstance(value, float) and not math.isnan(value)
    return f"{value:.0f}" if is_number else str(value)


def _present(value: object) -> object:
    """Return a value, or ``None`` for a number that is missing."""
    return None if isinstance(value, float) and math.isnan(value) else value
