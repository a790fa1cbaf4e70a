"""Lists of the items of a part, in files named after it such as ``train.txt``, or of all parts in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import PARTS, part_name
from kmip_data.text import list_names

_SUFFIXES = (".csv", ".json", ".tsv", ".txt")
_MAX_BYTES = 2**26
_SEVERAL_CELLS = re.compile(r"[\s,;|]")


class PartList(NamedTuple):
    """Names of the items of a part."""

    file: str
    part: str
    names: list[str]


def find_part_lists(folder: Path, files: Iterable[str]) -> list[PartList]:
    """Return the lists of parts among files; a text with several cells in a line is a table."""
    lists: list[PartList] = []
    for file in files:
        path = folder / file
        if path.suffix.lower() in _SUFFIXES and path.stat().st_size <= _MAX_BYTES:
            lists += _lists_of_file(path, file)
    return lists


def _lists_of_file(path: Path, file: str) -> list[PartList]:
    words = re.split(r"[\W\d_]+", path.name.partition(".")[0].lower())
    parts = [part for part in PARTS if part in map(part_name, words)]
    if path.suffix.lower() != ".json":
        if len(parts) != 1:
            return []
        text = path.read_bytes().decode("utf-8-sig", "replace")
        lines = [line.strip("\"' \t\r") for line in text.split("\n")]
        names = [line for line in lines if line and not line.startswith("#")]
        is_table = any(map(_SEVERAL_CELLS.search, names))
        return [] if is_table or not names else [PartList(file, parts[0], names)]

    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return []
    if isinstance(content, list) and len(parts) == 1:
        content = {parts[0]: content}
    if not isinstance(content, dict) or part_name(next(iter(content), "")) not in PARTS:
        return []
    if not all(isinstance(names, list) for names in content.values()):
        return []
    return [
        PartList(file, str(part_name(key)), [*map(str, names)]) for key, names in content.items()
    ]


class ListedParts:
    """Parts of items by lists of their names; refuses a name in two lists.

    Parameters
    ----------
    normalize
        Returns a name in a list as the items have it.
    are_paths
        True if a list may name an item without its folders or suffix.
    """

    def __init__(
        self,
        lists: Sequence[PartList],
        normalize: Callable[[str], str] = str,
        *,
        are_paths: bool = True,
    ) -> None:
        self._lists = [entry._replace(names=[*map(normalize, entry.names)]) for entry in lists]
        self._parts: dict[str, str] = {}
        for file, part, names in self._lists:
            if part not in PARTS:
                raise DamagedInput(
                    f"{file} lists the part {part!r}, which is none of {list_names(PARTS)}.",
                    steps="leave it out: names in no list are in no part",
                )
            for name in names:
                if self._parts.setdefault(name, part) != part:
                    raise DamagedInput(
                        f"{file}: {name} is in two lists of parts.", steps="name each in one list"
                    )
        self._names = ItemNames(self._parts if are_paths else ())
        self._items: dict[str, str] = {}  # by the name in a list

    def part(self, item: str) -> str:
        """Return the part of an item, empty for none; refuse a name that means two items."""
        name = self._names.find(item) or self._names.find(_stem(item)) or item
        if name not in self._parts:
            return ""
        first = self._items.setdefault(name, item)
        if first != item:
            raise DamagedInput(
                f"A list of parts has {name}, which may be {first} or {item}.",
                steps="write its folder, too",
            )
        return self._parts[name]

    def refuse_unknown_names(self, noun: str) -> None:
        """Refuse the names of a list that are no item, except a first line with the name of the column."""
        for file, _, names in self._lists:
            unknown = [name for name in names if name not in self._items]
            if unknown and (unknown != names[:1] or len(names) == 1):
                raise DamagedInput(
                    f"{file}: {len(unknown):,} of {len(names):,} lines name no {noun}, such as "
                    f"{unknown[0][:80]!r}.",
                    steps="correct these lines, or move the file out of the folder",
                )


class ItemNames:
    """Items by the names under which tables may know them, in upper or lower case."""

    def __init__(self, items: Iterable[str]) -> None:
        self._items: dict[str, str | None] = {}
        for item in items:
            for name in {*_tails(item), *_tails(_stem(item))}:
                # A name of two items is none.
                is_new = self._items.setdefault(name, item) == item
                self._items[name] = item if is_new else None

    def find(self, name: str) -> str | None:
        """Return the item that a name means, which may have upper folders of its own."""
        names = map(self._items.get, _tails(name.strip().replace("\\", "/").removeprefix("./")))
        return next(filter(None, names), None)


def _stem(item: str) -> str:
    return str(PurePosixPath(item).with_suffix("")) if item else item


def _tails(path: str) -> list[str]:
    """Return a path in lower case without its first folders: ``a/b/c``, ``b/c``, ``c``."""
    parts = path.casefold().split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]
