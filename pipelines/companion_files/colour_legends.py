"""Legends of colours: tables such as ``name,r,g,b`` with the name and the colour of each class."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import NamedTuple

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.formats.delimited import guess_separator, read_delimited, split_rows

Colour = tuple[int, int, int]  #: red, green, blue
CHANNELS = ({"r", "red"}, {"g", "green"}, {"b", "blue"})
_HEXADECIMAL = re.compile(r"#[0-9a-fA-F]{6}")
_CHANNEL = re.compile(r"\d{1,3}")
_INTEGER = re.compile(r"\d{1,5}")


class ClassColour(NamedTuple):
    """Row of a legend of colours."""

    code: int  #: of the class: in the legend, or the number of the row
    name: str
    colour: Colour


def class_colours_of_text(data: bytes, name: str, encoding: str = "") -> list[ClassColour]:
    """Return the rows of a legend of colours; nothing if a text is none.

    It has a column of distinct names, the colours in one column (``#aa7733`` or ``170 119 51``) or
    in three, and perhaps a column of distinct codes, with or without names of the columns.
    """
    try:
        text = bytes(read_delimited(data, name, encoding).data).decode()
        lines = [line for line in text.split("\n") if line.strip()]
        rows = [*split_rows(lines, guess_separator(lines))]
    except (ValueError, csv.Error, DamagedInput, UsageError):
        return []
    if len(rows) < 2 or len({*map(len, rows)}) != 1:
        return []
    return _read_rows(rows, [""] * len(rows[0])) or _read_rows(rows[1:], rows[0])


def _read_rows(rows: Sequence[Sequence[str]], header: Sequence[str]) -> list[ClassColour]:
    """Return the class of each row below the header; nothing if the columns are others."""
    columns = [*zip(*rows, strict=True)]
    positions = _colour_positions(columns, header)
    if not positions:
        return []
    colours = [_colour_of_cells([row[position] for position in positions]) for row in rows]
    others = [
        column
        for position, column in enumerate(columns)
        if position not in positions and len({*column}) == len(column)
    ]
    codes = [column for column in others if all(map(_INTEGER.fullmatch, column))]
    names = [column for column in others if not any(map(_INTEGER.fullmatch, column))]
    if not names or len(codes) > 1:
        return []
    numbers = [int(code) for code in codes[0]] if codes else range(len(rows))
    return [
        ClassColour(code, name, colour)
        for code, name, colour in zip(numbers, names[0], colours, strict=True)
        if colour is not None
    ]


def _colour_positions(columns: Sequence[Sequence[str]], header: Sequence[str]) -> list[int]:
    """Return the position of the column of colours, or of red, green and blue; nothing for others."""
    for position, column in enumerate(columns):
        if all(_colour_of_cells([cell]) for cell in column):
            return [position]
    channels = [
        position for position, column in enumerate(columns) if all(map(_is_channel, column))
    ]
    named = [
        [position for position in channels if header[position].strip().lower() in words]
        for words in CHANNELS
    ]
    if all(len(positions) == 1 for positions in named):
        return [positions[0] for positions in named]
    # Without names, a code comes before the name of its class, and the colour behind it.
    ends_of_runs = [position for position in channels if position + 1 not in channels]
    runs = [[end - 2, end - 1, end] for end in ends_of_runs if {end - 2, end - 1} <= {*channels}]
    is_longer = bool(runs) and runs[0][0] - 1 in channels
    return runs[0] if len(runs) == 1 and not is_longer and not any(header) else []


def _colour_of_cells(cells: Sequence[str]) -> Colour | None:
    """Return the colour in one cell, or in three; ``None`` if there is none."""
    if len(cells) == 1 and _HEXADECIMAL.fullmatch(cells[0]):
        red, green, blue = bytes.fromhex(cells[0][1:])
        return red, green, blue
    if len(cells) == 1:
        cells = re.split(r"[, ]+", cells[0].strip("()[] "))
    if len(cells) != 3 or not all(map(_is_channel, cells)):
        return None
    red, green, blue = map(int, cells)
    return red, green, blue


def _is_channel(cell: str) -> bool:
    """True for an integer of 0 to 255."""
    return _CHANNEL.fullmatch(cell) is not None and int(cell) < 256
