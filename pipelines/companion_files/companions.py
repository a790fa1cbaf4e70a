"""Files next to clouds or pictures that are no items: legends, tables of the items, lists of parts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NoReturn

import numpy as np
import pyarrow as pa

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.companion_files.legends import legend_of_table
from kmip_data.pipelines.companion_files.part_lists import (
    ItemNames,
    ListedParts,
    PartList,
    find_part_lists,
)
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.domains.cloud_columns import (
    CloudOptions,
    comparable_name,
    is_number_or_missing,
)
from kmip_data.pipelines.domains.text_clouds import options_of_tables
from kmip_data.pipelines.formats.text import UnknownEncoding
from kmip_data.pipelines.own.files import READERS, read_tables
from kmip_data.pipelines.own.ids import MIN_COVERAGE, Ids
from kmip_data.pipelines.own.joined import with_columns
from kmip_data.pipelines.own.names import is_id_name
from kmip_data.pipelines.own.table import FILE, FILE_NAME, STEM, Table
from kmip_data.text import list_names, nearest_names

COMPANION_SUFFIXES = tuple(READERS)
NO_TABLE = "it names no files and no classes"  #: reason to ignore a text
_HEAD_BYTES = 2**14  #: first bytes of a text, which show whether its rows are points
_SAMPLED_ROWS = 100  #: first rows of a column, which show whether it names items
_MAX_BYTES_BESIDE = 2**26  #: largest table next to the folder of items
_MIN_POINTS = 0.1  #: fraction of rows with two numbers in a cloud
_LOCK_PREFIX = "~$"  #: begins the name of a file that Excel writes next to an open workbook
_WITHOUT_LABELS = Setting(label="none")


@dataclass
class Companions:
    """Files next to the items, by what they are."""

    table: Table  #: row of each item, with the columns of all tables of items
    options: ReadOptions
    sources: dict[str, str] = field(default_factory=dict)  #: column -> its table
    legends: dict[str, Mapping[int, str]] = field(default_factory=dict)  #: table -> names by code
    parts: dict[str, int] = field(default_factory=dict)  #: item -> code of its part, of lists
    ignored: dict[str, str] = field(default_factory=dict)  #: file -> reason
    files: set[str] = field(default_factory=set)  #: all of these files
    unmatched: list[Table] = field(default_factory=list)  #: tables that name no items

    def leave_out(self, names: Iterable[str], items: Sequence[str]) -> None:
        """Leave out the columns with these names; refuse a name that no table has."""
        for name in names:
            if name not in self.sources:
                self.refuse_missing("ignore", name, items)
            del self.sources[name]

    def refuse_unmatched(self, name: str, items: Sequence[str]) -> None:
        """Refuse a name of a column that a table has whose columns name no items."""
        for table in self.unmatched:
            if name in table.columns:
                first_row = [table.texts(column)[0] for column in table.column_names]
                raise DamagedInput(
                    f"{table.name} has a column {name!r}, but no column with the names of the files.",
                    expected=f"names such as {PurePosixPath(items[0]).stem!r}",
                    found=f"{list_names(first_row, 100)} in its first row",
                    steps=["write these names into it, or build without labels", _WITHOUT_LABELS],
                )

    def refuse_missing(self, key: str, name: str, items: Sequence[str]) -> NoReturn:
        """Refuse a parameter that names a column which no table has."""
        self.refuse_unmatched(name, items)
        step = _WITHOUT_LABELS if key == "label" else Setting({key: None})
        for similar in nearest_names(name, [*self.sources])[:1]:
            step = Setting({key: similar})
        reasons = "; ".join(f"{file}: {reason}" for file, reason in self.ignored.items())
        raise UsageError(
            f"No table beside the files has a column {name!r}.",
            found=list_names(self.sources, 500) or reasons[:500] or "no such table",
            steps=step,
        )

    def unused(self, columns: Collection[str], legend: str) -> dict[str, str]:
        """Return the files without use, with reasons, if only these columns and this legend are used."""
        others = self.legends.keys() - {legend}
        unused = {**self.ignored, **dict.fromkeys(sorted(others), "no legend of the labels")}
        for file in dict.fromkeys(self.sources.values()):
            names = [
                name
                for name, source in self.sources.items()
                if source == file and name not in columns
            ]
            if names:
                unused[file] = f"not used: {list_names(names, 100)}; label or group takes one"
        return unused


def find_companions(
    folder: Path, files: Iterable[str], items: Sequence[str], options: CloudOptions
) -> Companions:
    """Return the files that are no items, but say something about them, or clearly something else.

    A table has a column without repeated values that names items: by path, with or without suffix and
    upper folders. A list of a part has the part in its name, and names items. A text without rows of
    numbers is no cloud. If all files were companions, none is.
    """
    names = ItemNames(items)
    known = {*items}
    candidates = [
        file
        for file in files
        if file.lower().endswith(COMPANION_SUFFIXES)
        and not PurePosixPath(file).name.startswith(_LOCK_PREFIX)
        and not (file in known and _may_be_cloud(folder / file, names, options.position))
    ]
    candidates = candidates if known.difference(candidates) else []
    items = sorted(known.difference(candidates))
    companions = Companions(_table_of_items(items), options_of_tables(options), files={*candidates})

    lists: list[PartList] = []
    for file in candidates:
        own_lists = find_part_lists(folder, [file])
        if any(names.find(name) for entry in own_lists for name in entry.names):
            lists += own_lists
        else:
            _add_tables(companions, folder, file, names)
    if lists:
        parts = ListedParts(lists, lambda name: names.find(name) or name, are_paths=False)
        companions.parts = {item: parts.code(item) for item in items}
        parts.refuse_unknown_names("file")
    return companions


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
    # Any encoding shows whether it is a table; its texts need theirs once it is copied.
    companions = find_companions(parent, names, items, CloudOptions(encoding="latin-1"))
    # A file about other things has no place in the build.
    reasons = {name: why for name, why in companions.ignored.items() if why != NO_TABLE}
    useful = companions.files - companions.ignored.keys()
    return {name: parent / name for name in sorted(useful)}, reasons


def _table_of_items(items: Sequence[str]) -> Table:
    """Return a table with the names of each item."""
    paths = [*map(PurePosixPath, items)]
    columns = {
        FILE: items,
        FILE_NAME: [path.name for path in paths],
        STEM: [path.stem for path in paths],
    }
    arrays = {name: pa.array(texts, pa.string()) for name, texts in columns.items()}
    return Table("", arrays, row_word="file", lines=np.array(items, object))


def _words_of_head(path: Path) -> list[list[str]]:
    """Return the words in the first lines of a text; nothing for binary data."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    lines = [] if b"\0" in head else map(str.strip, head.decode("latin-1").splitlines())
    return [
        [word.strip("\"'") for word in re.split(r"[\s;,|]+", line)]
        for line in lines
        if line and not line.startswith(("#", "%", "//"))
    ]


def _may_be_cloud(path: Path, names: ItemNames, position: Collection[str]) -> bool:
    """True if the first row of a text has the names of a position, or rows have two numbers and no name."""
    rows = _words_of_head(path)
    if not rows:
        return True
    numbers = [sum(map(is_number_or_missing, row)) for row in rows]
    if not numbers[0]:
        return {*map(comparable_name, position)} <= {*map(comparable_name, rows[0])}
    texts = [word for word in rows[0] if not is_number_or_missing(word)]
    are_points = sum(count > 1 for count in numbers) > _MIN_POINTS * len(rows)
    return are_points and not any(map(names.find, texts))


def _add_tables(companions: Companions, folder: Path, file: str, names: ItemNames) -> None:
    """Add what the tables of a file say, or the reason why it is ignored."""
    notices = Notices()
    reasons: dict[str, str] = {}
    try:
        tables = read_tables(folder, [file], companions.options, notices, [companions.table])
    except UnknownEncoding:
        raise
    except (DamagedInput, UsageError) as error:
        words = chain.from_iterable(_words_of_head(folder / file))
        is_about_items = any(map(names.find, words))
        companions.ignored[file] = first_problem(error) if is_about_items else NO_TABLE
        return
    is_useful = False
    for table in tables:
        legend = legend_of_table(table)
        if legend:
            companions.legends[table.name] = legend
        key, reason = _key_of_items(table, names)
        if key:
            notices.raise_questions()
            _join(companions, table, key, names)
        if key or legend:
            is_useful = True
        else:
            companions.unmatched.append(table)
            reasons[table.name] = reason
    if is_useful:
        companions.ignored |= reasons
    else:
        companions.ignored[file] = "; ".join(dict.fromkeys(reasons.values())) or NO_TABLE


def _key_of_items(table: Table, names: ItemNames) -> tuple[str, str]:
    """Return the column of a table whose distinct values name items, and why there is none."""
    reason = NO_TABLE
    fitting = []
    for name in table.column_names:
        ids = Ids(table, name)
        head = [names.find(str(text)) for text in ids.cells[:_SAMPLED_ROWS].to_pylist()]
        if head.count(None) > len(head) // 2 or not head:
            continue
        items = _items_of(ids, names)
        named = len(items) - items.count(None)
        distinct = len({*items} - {None})
        if distinct < named:
            reason = f"{name!r} names {distinct:,} files in {len(items):,} rows"
        elif named >= MIN_COVERAGE * len(items):
            fitting.append(name)
    return min(
        fitting, default="", key=lambda name: Ids(table, name).are_numbers and not is_id_name(name)
    ), reason


def _items_of(ids: Ids, names: ItemNames) -> list[str | None]:
    return [names.find(str(text)) for text in ids.cells.to_pylist()]


def _join(companions: Companions, table: Table, key: str, names: ItemNames) -> None:
    """Add the columns of a table of items; refuse a row that names none of them."""
    items = _items_of(Ids(table, key), names)
    if None in items:
        raise table.error_at(
            items.index(None),
            f"one of {items.count(None):,} rows that name no file",
            "correct these rows, or move the table out of the folder",
        )
    row_of = {item: row for row, item in enumerate(items)}
    rows = np.array([row_of.get(item, -1) for item in companions.table.columns[FILE].to_pylist()])
    joined = with_columns(companions.table, table, rows, key)
    companions.sources |= dict.fromkeys(
        [name for name in joined.columns if name not in companions.table.columns], table.name
    )
    tables = dict.fromkeys(companions.sources.values())
    companions.table = replace(joined, name=" and ".join(tables) or table.name)
