"""Lists of the items of a part, in files named after it such as ``train.txt``, or of all parts in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath

from kmip_data.errors import DamagedInput
from kmip_data.format.split_files import PART_CODES, PARTS, part_name
from kmip_data.pipelines.companion_files.table_texts import TableText
from kmip_data.text import list_names

_MAX_LIST_BYTES = 2**26
#: Beginning of an object of JSON whose first value is a list.
_OBJECT_OF_LISTS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"([^"]*)"\s*:\s*\[')


def listed_parts(text: TableText) -> dict[str, list[str]]:
    """Return the names that a text lists, by part; nothing if it lists no part.

    The file's name has the part of the lines of a text, which may have comments, or of a list in
    JSON. An object in JSON has a list for each part; ``DamagedInput`` is raised for an unknown part.
    """
    part = _part_of_title(text.title)
    match = _OBJECT_OF_LISTS.match(text.read(256)) if text.is_json else None
    if match:
        part = part_name(match[1].decode("utf-8", "replace"))
    if part not in PARTS or text.path.stat().st_size > _MAX_LIST_BYTES:
        return {}
    data = text.read()
    if not text.is_json:
        lines = [line.strip("\"' \t\r") for line in data.decode("utf-8-sig", "replace").split("\n")]
        return {part: [line for line in lines if line and not line.startswith("#")]}

    try:
        content = json.loads(data.decode("utf-8-sig"))
    except ValueError:
        return {}
    lists = content if match else {part: content}
    if not all(isinstance(names, list) for names in lists.values()):
        return {}
    unknown = [key for key in lists if part_name(key) not in PARTS]
    if unknown:
        raise DamagedInput(
            f"{text.name} lists the part {unknown[0]!r}, which is none of {list_names(PARTS)}.",
            steps="leave it out: names in no list are in no part",
        )
    # Two keys may mean one part, such as val and valid.
    parts: dict[str, list[str]] = {}
    for key, names in lists.items():
        parts.setdefault(str(part_name(key)), []).extend(map(str, names))
    return parts


def _part_of_title(title: str) -> str | None:
    """Return the part that a word of a file's name means; ``None`` for none, or for several."""
    words = re.split(r"[\W\d_]+", title.lower())
    parts = {part_name(word) for word in words} & {*PARTS}
    return parts.pop() if len(parts) == 1 else None


class ItemNames:
    """Items by the names under which tables may know them."""

    def __init__(self, items: Collection[str]) -> None:
        stems = {item: str(PurePosixPath(item).with_suffix("")) for item in items}
        names = [
            (name, item) for item, stem in stems.items() for name in {*_tails(item), *_tails(stem)}
        ]
        self._items = _names_of_one_item(names)
        self._folded_items = _names_of_one_item([(name.casefold(), item) for name, item in names])

    def find(self, name: str) -> str | None:
        """Return the item that a name means, which may have upper folders of its own.

        Upper and lower case make no difference unless two names differ in them alone.
        """
        for tail in _tails(name.strip().replace("\\", "/").removeprefix("./")):
            item = self._items.get(tail) or self._folded_items.get(tail.casefold())
            if item is not None:
                return item
        return None


def _names_of_one_item(names: Iterable[tuple[str, str]]) -> dict[str, str | None]:
    """Return the item of each name; a name of two items is none."""
    items: dict[str, str | None] = {}
    for name, item in names:
        items[name] = item if items.setdefault(name, item) == item else None
    return items


def _tails(path: str) -> list[str]:
    """Return a path without its first folders: ``a/b/c``, ``b/c``, ``c``."""
    parts = path.split("/")
    return ["/".join(parts[start:]) for start in range(len(parts))]


def add_part(codes: dict[str, int], file: str, part: str, names: Sequence[str]) -> None:
    """Add the code of the part to each name in a list; refuse a name in two lists."""
    for name in names:
        if codes.setdefault(name, PART_CODES[part]) != PART_CODES[part]:
            raise DamagedInput(
                f"{file}: {name} is in two lists of parts.", steps="name each in one list"
            )


def refuse_unknown_names(
    file: str, names: Sequence[str], unknown: Sequence[str], noun: str
) -> None:
    """Refuse the names of a list that mean no item, except a first line with the name of the column."""
    if not unknown or (unknown == [*names[:1]] and len(names) > 1):
        return
    raise DamagedInput(
        f"{file}: {len(unknown):,} of {len(names):,} lines name no {noun}, such as {unknown[0][:80]!r}.",
        steps="correct these lines, or move the file out of the folder",
    )
