"""Legends: names of classes in a file next to the data, such as ``legend.txt``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from kmip_data.columns.labels import NO_CLASS
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.pipelines.formats.delimited import read_delimited

LEGEND_SUFFIXES = (".csv", ".tsv", ".txt")
_MIN_COVERED = 0.95  #: fraction of labels whose codes a legend has
_MAX_SHOWN = 20
MAX_BYTES = 2**20  #: largest legend: 65,536 classes with 15 bytes each
#: A code and a name, each perhaps in quotes, with a separator that the name does not have. A name
#: does not begin with another number; red, green and blue may follow.
_ROW = re.compile(
    r'[ \t]*"?(-?\d{1,9})"?[ \t]*([\t;,|:=]|[ \t])[ \t]*(?!-?[\d.]+[ \t])"?([^\s;,|"][^\t;,|"]*?)"?[ \t]*'
    r"(?:(?:[\t;,| ]+\d{1,3}){3,4}[ \t]*)?"
)
_NUMBERS = re.compile(r"[-+\d.eE, ]*")


def legend_of_text(data: bytes, name: str, encoding: str = "") -> dict[int, str] | None:
    """Return the name of each code in the text of a file, by code; ``None`` if it is no legend.

    Each line of a legend has a code and a name, each of them once, below names of the columns or
    without them.
    """
    if len(data) > MAX_BYTES:
        return None
    try:
        text = bytes(read_delimited(data, name, encoding).data)
        pairs = _pairs_of_text([line for line in text.decode().split("\n") if line.strip()])
    except (ValueError, DamagedInput, UsageError):
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
