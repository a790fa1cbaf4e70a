"""Files next to clouds or pictures that are no items: legends, tables of the items, lists of parts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput, OutOfResources, Setting, UsageError
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
from kmip_data.pipelines.known_names import PART_NAME
from kmip_data.pipelines.own.columns.facts import TableFacts
from kmip_data.pipelines.own.columns.uses import Candidate, decide
from kmip_data.pipelines.own.files import READERS, read_tables
from kmip_data.pipelines.own.ids import MIN_COVERAGE, Ids
from kmip_data.pipelines.own.names import is_id_name
from kmip_data.pipelines.own.table import (
    FILE,
    FILE_COLUMNS,
    STEM,
    Table,
    names_of_file,
    with_columns,
)
from kmip_data.pipelines.own_pipeline import DEFAULT_MEMORY
from kmip_data.text import list_names, nearest_names

COMPANION_SUFFIXES = tuple(READERS)
NO_TABLE = "it names no files and no classes"  #: reason to ignore a text
_HEAD_BYTES = 2**14  #: first bytes of a text, which show whether its rows are points
_SAMPLED_ROWS = 100  #: first rows, which show whether a column names items, or a text has points
_MAX_BYTES_BESIDE = 2**26  #: largest table next to the folder of items
_MIN_POINTS = 0.1  #: fraction of rows with two numbers in a cloud
_LOCK_PREFIX = "~$"  #: begins the name of a file that Excel writes next to an open workbook


@dataclass
class Companions:
    """Files next to the items, by what they are."""

    #: Row of each item, with the columns of all tables of items and its part in lists.
    table: Table
    options: ReadOptions
    sources: dict[str, str] = field(default_factory=dict)  #: column -> its file
    legends: dict[str, Mapping[int, str]] = field(default_factory=dict)  #: table -> names by code
    ignored: dict[str, str] = field(default_factory=dict)  #: file -> reason
    files: set[str] = field(default_factory=set)  #: all of these files
    unmatched: dict[str, str] = field(default_factory=dict)  #: column -> file that names no items

    @cached_property
    def _facts(self) -> TableFacts:
        return TableFacts(self.table, self.options.params, {})

    def column(self, name: str) -> Candidate:
        """Return a column with its facts."""
        return Candidate(self.table, self._facts.of(name), "graph", self.options)

    @property
    def part_columns(self) -> list[str]:
        """Columns called ``split``, or with the values of parts."""
        return [name for name in self.sources if decide(self.column(name)).use == "part"]

    def by_item(self, values: Array) -> dict[str, Any]:
        """Return the value (N,) of each item; ``None`` for NaN."""
        items = self.table.texts(FILE)
        return {
            item: None if value != value else value  # noqa: PLR0124
            for item, value in zip(items, values.tolist(), strict=True)
        }

    def leave_out(self, names: Iterable[str]) -> None:
        """Leave out the columns with these names; refuse a name that no table has."""
        for name in names:
            if name not in self.sources:
                self.refuse_missing("ignore", name)
            del self.sources[name]

    def refuse_missing(self, key: str, name: str) -> NoReturn:
        """Refuse a parameter that names a column which no table has."""
        nothing = "none" if key == "label" else None
        if name in self.unmatched:
            raise UsageError(
                f"{self.unmatched[name]} has a column {name!r}, but no column with the names of the files.",
                expected=f"names such as {self.table.texts(STEM)[0]!r}",
                steps=["write these names into it, or build without it", Setting({key: nothing})],
            )
        close = [*nearest_names(name, [*self.sources]), nothing]
        reasons = "; ".join(f"{file}: {reason}" for file, reason in self.ignored.items())
        raise UsageError(
            f"No table beside the files has a column {name!r}.",
            found=list_names(self.sources, 500) or reasons[:500] or "no such table",
            steps=Setting({key: close[0]}),
        )

    def unused(self, columns: Collection[str], legend: str) -> dict[str, str]:
        """Return the files without use, with reasons, if only these columns and this legend are used."""
        unused = dict.fromkeys(sorted(self.legends.keys() - {legend}), "no legend of the labels")
        for file in dict.fromkeys(self.sources.values()):
            names = [name for name in self.sources if self.sources[name] == file]
            if names := [name for name in names if name not in columns]:
                unused[file] = f"not used: {list_names(names, 100)}; label or group takes one"
        return self.ignored | unused


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
    read_options = options_of_tables(options._replace(header=None))
    read_options = replace(read_options, memory=DEFAULT_MEMORY)
    companions = Companions(_table_of_items(items), read_options, files={*candidates})

    lists: list[PartList] = []
    for file in candidates:
        own_lists = find_part_lists(folder, [file])
        if any(names.find(name) for entry in own_lists for name in entry.names):
            lists += own_lists
        else:
            _add_tables(companions, folder, file, names)
    if lists:
        listed = ListedParts(lists, lambda name: names.find(name) or name, are_paths=False)
        parts = pa.array([listed.part(item) or None for item in items], pa.string())
        listed.refuse_unknown_names("file")
        table = companions.table
        companions.table = replace(table, columns={**table.columns, PART_NAME: parts})
        companions.sources[PART_NAME] = lists[0].file
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
    rows = [*map(names_of_file, items)]
    columns = {name: pa.array([row[name] for row in rows], pa.string()) for name in FILE_COLUMNS}
    return Table("", columns, row_word="file", lines=np.array(items, object))


def _words_of_head(path: Path) -> list[list[str]]:
    """Return the words in the first lines of a text; nothing for binary data."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    lines = [] if b"\0" in head else head.decode("latin-1").splitlines()[:_SAMPLED_ROWS]
    return [
        [word.strip("\"'") for word in re.split(r"[\s;,|]+", line)]
        for line in map(str.strip, lines)
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
    try:
        tables = read_tables(folder, [file], companions.options, notices, [companions.table])
    except UnknownEncoding:
        raise
    except OutOfResources as error:
        error.steps = ["save its columns about the files as a table of their own"]
        raise
    except (DamagedInput, UsageError) as error:
        words = chain.from_iterable(_words_of_head(folder / file))
        is_about_items = any(map(names.find, words))
        companions.ignored[file] = first_problem(error) if is_about_items else NO_TABLE
        return
    reasons = {}
    for table in tables:
        legend = legend_of_table(table)
        reason = _join(companions, table, names, notices)
        if legend:
            companions.legends[table.name] = legend
        elif reason:
            reasons[table.name] = reason
            companions.unmatched |= dict.fromkeys(table.column_names, table.name)
    if len(reasons) == len(tables):
        reasons = {file: "; ".join(dict.fromkeys(reasons.values())) or NO_TABLE}
    companions.ignored |= reasons


def _join(companions: Companions, table: Table, names: ItemNames, notices: Notices) -> str:
    """Add the columns of a table of which one names another item in each row; return why none does.

    Numbers may be values that are names by chance. Refuses a row that names no item.
    """
    reason = NO_TABLE
    keys: dict[str, list[str | None]] = {}
    for name in sorted(table.column_names, key=lambda name: not is_id_name(name)):
        texts = [*map(str, Ids(table, name).cells.to_pylist())]
        head = [names.find(text) for text in texts[:_SAMPLED_ROWS]]
        if 2 * head.count(None) > len(head):
            continue
        items = [*map(names.find, texts)]
        named = [item for item in items if item]
        if len({*named}) < len(named):
            reason = f"{name!r} names {len({*named}):,} files in {len(items):,} rows"
        elif len(named) >= MIN_COVERAGE * len(items) > 0:
            keys[name] = items
    if not keys:
        return reason
    notices.raise_questions()
    key = min(keys, key=lambda name: (None in keys[name], Ids(table, name).are_numbers))
    items = keys[key]
    if None in items:
        raise table.error_at(
            items.index(None),
            f"{items.count(None):,} of {len(items):,} rows name no file",
            "correct these rows, or move the table out of the folder",
        )

    row_of = {item: row for row, item in enumerate(items)}
    rows = np.array([row_of.get(item, -1) for item in companions.table.texts(FILE)])
    joined = with_columns(companions.table, table, rows, key)
    added = [name for name in joined.columns if name not in companions.table.columns]
    companions.sources |= dict.fromkeys(added, table.name)
    name = " and ".join(filter(None, [companions.table.name, table.name]))
    companions.table = replace(joined, name=name)
    return ""
