"""Separator of the cells of a text, and its rows split by it."""

from __future__ import annotations

import csv
import re
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.own.headers import NoTable
from kmip_data.pipelines.own.texts.lines import SAMPLED_LINES

BLANKS = " "  #: separator: any number of blanks and tabs
SEPARATORS = ("\t", ";", ",", "|", BLANKS)  #: in order of preference
NO_SEPARATOR = "\x1f"  #: separator of a text with one column
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?")

#: ``csv.QUOTE_MINIMAL``, or ``csv.QUOTE_NONE`` if quotes are characters like others.
Quoting = Literal[0, 3]


def find_separator(lines: Sequence[str], name: str) -> str:
    """Return the separator that splits all rows into one number of cells.

    Of several, it is the first. Blanks are before commas if all cells between them are numbers, such
    as ``1,5 2,5``, and a text whose first line is one cell has one column.
    """
    widths: dict[str, list[int]] = {}
    fitting: dict[str, list[list[str]]] = {}
    layouts: list[tuple[str, Quoting]] = [
        (separator, csv.QUOTE_MINIMAL) for separator in SEPARATORS
    ]
    for separator, quoting in [*layouts, ("\t", csv.QUOTE_NONE)]:
        try:
            rows = [record for record, _ in split_rows(lines, separator, quoting)]
        except csv.Error:
            widths[separator] = [line.count(separator) + 1 for line in lines]
            continue
        if len(lines) == SAMPLED_LINES:
            del rows[-1:]  # a quoted cell may continue
        widths[separator] = [*map(len, rows)]
        if len(rows[0]) > 1 and not any(is_ragged(row, rows[0]) for row in rows):
            fitting[separator] = rows
    below = [cell for row in fitting.get(BLANKS, [])[1:] for cell in row]
    if [*fitting] == [",", BLANKS] and below and all(map(_NUMBER.fullmatch, below)):
        return BLANKS
    if {"\t", BLANKS} <= fitting.keys():
        by_tabs, by_blanks = (len(fitting[separator][0]) for separator in ("\t", BLANKS))
        if 2 == by_tabs < by_blanks:
            raise DamagedInput(
                f"{name}: a line has {by_tabs} cells between tabs, and {by_blanks} between tabs and blanks.",
                found=lines[0][:80],
                steps="replace the blanks by tabs, or those of a name by another character",
            )
    for separator in SEPARATORS:
        if separator in fitting:
            return separator

    if all(counts[0] == 1 for counts in widths.values()):
        return NO_SEPARATOR
    regular = {}
    for separator, counts in widths.items():
        width = statistics.mode(counts)
        regular[separator] = counts.count(width) if width > 1 else 0
    best = max(regular, key=regular.__getitem__)
    if 2 * regular[best] < len(lines):
        raise NoTable(
            f"{name}: its lines have different numbers of cells, whatever separates them.",
            found=lines[0][:80],
            steps="separate the cells of each line by tabs, semicolons, commas or blanks",
        )
    return best


def split_rows(
    lines: Iterable[str], separator: str, quoting: Quoting
) -> Iterator[tuple[list[str], int]]:
    """Yield the cells of each row, and the number of lines up to its end."""
    if separator == BLANKS:
        lines = (line.replace("\t", BLANKS).strip(BLANKS) for line in lines)
    reader = csv.reader(
        (f"{line}\n" for line in lines),
        delimiter=separator,
        quoting=quoting,
        skipinitialspace=True,
        strict=True,
    )
    limit = csv.field_size_limit(sys.maxsize)
    try:
        for record in reader:
            yield record, reader.line_num
    finally:
        csv.field_size_limit(limit)


def is_ragged(row: Sequence[str], first: Sequence[str]) -> bool:
    """True if a row has more or fewer cells than the first; empty cells at the end do not count."""
    return any(row[len(first) :]) or any(first[len(row) :])
