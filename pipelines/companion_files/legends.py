"""Legends: names of classes in a file next to the data, such as ``legend.txt``."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from kmip_data.columns.labels import NO_CLASS
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.pipelines.companion_files.colour_legends import CHANNELS
from kmip_data.pipelines.formats.delimited import guess_separator, read_delimited, split_rows

LEGEND_SUFFIXES = (".csv", ".json", ".tsv", ".txt")
_MIN_COVERED = 0.95  #: fraction of labels whose codes a legend has
_MAX_SHOWN = 20
MAX_BYTES = 2**20  #: largest legend: 65,536 classes with 15 bytes each
MAX_LEGEND_ROWS = 2**16
#: A code and a name, each perhaps in quotes, with a separator that the name does not have. A name
#: does not begin with another number; red, green and blue may follow.
_ROW = re.compile(
    r'[ \t]*"?(-?\d+)"?[ \t]*([\t;,|:=]|[ \t])[ \t]*(?!-?[\d.]+[ \t])"?([^\s;,|"][^\t;,|"]*?)"?[ \t]*'
    r"(?:(?:[\t;,| ]+\d{1,3}){3,4}[ \t]*)?"
)
_CODE = re.compile(r"-?\d{1,9}")
_NUMBERS = re.compile(r"[-+\d.eE, ]*")
_COLOUR = re.compile(r"#?[0-9a-fA-F]{6,8}|#[0-9a-fA-F]{3}|(rgb)?\(.*\)")
_COLOUR_NAMES = {"a", "alpha"}.union(*CHANNELS)
_LIST_TITLE = re.compile("class|label|name|legend", re.IGNORECASE)
_NAME_WORDS = {"class", "label", "name"}  #: words in the name of a column with names


def legend_of_text(
    data: bytes, name: str, encoding: str = "", title: str = ""
) -> dict[int, str] | None:
    """Return the name of each code in the content of a file, by code; ``None`` if it is no legend.

    A legend is a table with a column of integers and one of texts, each of them once, with or without
    names of the columns. Of several texts, the name is the one called class, name or label, else the
    first that is no colour. In JSON it is ``{"0": "floor", "1": "wall"}``, ``{"floor": 0, "wall": 1}`` or
    ``["floor", "wall"]``. Lines are names from 0 if the ``title`` says so, as of ``classes.txt``.
    """
    if len(data) > MAX_BYTES:
        return None
    try:
        if name.lower().endswith(".json"):
            pairs = _pairs_of_json(json.loads(data))
        else:
            text = bytes(read_delimited(data, name, encoding).data)
            lines = [line for line in text.decode().split("\n") if line.strip()]
            pairs = _pairs_of_text(lines) or _pairs_of_table(lines)
            if not pairs and _LIST_TITLE.search(title):
                pairs = [*enumerate(line.strip() for line in lines)]
    except (ValueError, RecursionError, csv.Error, DamagedInput, UsageError):
        return None  # no text, or in another encoding
    names = dict(pairs)
    has_texts = not all(map(_NUMBERS.fullmatch, names.values()))
    are_distinct = len({*names.values()}) == len(names) == len(pairs)
    return dict(sorted(names.items())) if len(names) > 1 and has_texts and are_distinct else None


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


def _pairs_of_text(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Return the code and the name in each line; nothing if a line below the first has others."""
    matches = [_ROW.fullmatch(line) for line in lines]
    if matches and matches[0] is None:  # names of the columns
        del matches[0]
    pairs = []
    for match in matches:
        if match is None:
            return []
        pairs.append((int(match[1]), match[3].strip()))
    return pairs


def _pairs_of_table(lines: Sequence[str]) -> list[tuple[int, str]]:
    """Return the code and the name in each row of a table of several columns; nothing if it has none."""
    rows = [*split_rows(lines, guess_separator(lines))]
    if len({*map(len, rows)}) != 1:
        return []
    header = [""] * len(rows[0]) if any(map(_CODE.fullmatch, rows[0])) else rows.pop(0)
    columns = [*zip(header, zip(*rows, strict=True), strict=True)]
    unique = [(name, column) for name, column in columns if len({*column}) == len(column)]
    codes = [
        column
        for name, column in unique
        if all(map(_CODE.fullmatch, column)) and name.lower() not in _COLOUR_NAMES
    ]
    texts = [(name, column) for name, column in unique if not all(map(_NUMBERS.fullmatch, column))]
    named = [column for name, column in texts if _NAME_WORDS & {*re.split("[^a-z]+", name.lower())}]
    others = [column for _, column in texts if not all(map(_COLOUR.fullmatch, column))]
    chosen = [*named, *others]
    if not codes or not chosen:
        return []
    return [(int(code), name) for code, name in zip(codes[0], chosen[0], strict=True)]


def _pairs_of_json(content: object) -> list[tuple[int, str]]:
    """Return the codes and names in an object or a list; nothing if it has other values."""
    if isinstance(content, list):
        content = dict(enumerate(content))
    if not isinstance(content, dict):
        return []
    pairs: list[tuple[int, str]] = []
    for key, value in content.items():
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", str(key)):
            pairs.append((int(key), value))
        elif type(value) is int:
            pairs.append((value, str(key)))
        else:
            return []
    return pairs
