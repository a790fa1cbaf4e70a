"""Point clouds as text: separators, decimal commas, names, comments and missing numbers.

Rules: ``docs/point-clouds.md``. Numbers are parsed by pandas; what pandas would take in silence, a line
with fewer fields than others, is refused here.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.points.columns import (
    Columns,
    ReadOptions,
    check_count,
    comparable_name,
    distinct_names,
    names_by_position,
)
from kmip_data.pipelines.formats.text import decode_text

_SAMPLE = 100  #: first lines from which separator and names are seen
#: A line of comment, or one behind the numbers.
_COMMENT = re.compile(rb"^[ \t]*(?:#|//|%)[^\n]*|[ \t]#(?:[ \t][^\n]*)?$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
_MISSING = {"", "nan", "-nan", "na", "n/a", "<na>", "null", "none"}
_BLANKS = " "  #: separator of runs of blanks
_ANY = "any"  #: tabs, semicolons, commas and blanks alike
_SEPARATORS = ("\t", ";", ",", _BLANKS, _ANY)  #: in the order in which they are preferred
_ALIKE = bytes.maketrans(b",;\t", b"   ")


class _Layout(NamedTuple):
    """Separator, decimal mark and number of fields of a line."""

    separator: str
    decimal: str
    width: int


def read_text(path: Path, options: ReadOptions) -> Columns:
    """Return the columns of a text; columns of texts are objects.

    Raises ``DamagedInput`` for a question that the file leaves open, ``ValueError`` for a line with
    another number of fields.
    """
    # 1. Comments become empty lines, so that lines keep their numbers.
    data = _convert_to_utf8(path.read_bytes(), path.name, options.encoding)
    comments: list[str] = []
    if re.search(rb"[#%]|//", data):
        comments = _comments_above(data)
        data = _COMMENT.sub(b"", data)
    first, data = _without_count(data)
    lines = _first_lines(data)
    if not lines:
        return Columns({})

    # 2. Separator, and names in the first line or in a comment above it.
    layout = _guess_layout(lines)
    if layout.separator == _ANY:
        data = data.translate(_ALIKE)
    check_count(layout.width)
    cells = [_split_cells(line, layout.separator) for line in lines]
    names: list[str] = []
    if _is_header(cells, layout, options, path.name):
        names = [name.strip("\"'") for name in cells[0]]
        rest = _without_first_line(data)
        first += data.count(b"\n") - rest.count(b"\n")
        data = rest
    elif options.header != "no":
        names = _names_in(comments, layout, options)

    # 3. Every line has as many fields.
    if b'"' in data:
        data = data.replace(b'"', b"")
    line_numbers = _check_widths(data, layout, first)
    if not data.strip():
        return Columns({})
    frame = _parse_rows(data, layout)
    # Each line may end with a separator.
    ends_empty = not any(row[-1:] != [""] for row in cells)
    if ends_empty and frame.iloc[:, -1].isna().all():
        frame = frame.iloc[:, :-1]
        names = names[:-1]
    names = names or names_by_position(frame.shape[1])
    names = [name or f"unnamed {number}" for number, name in enumerate(names)]
    values = {
        name: _typed_column(frame[number]) for number, name in enumerate(distinct_names(names))
    }
    note = "numbers have decimal commas" if layout.decimal == "," else ""
    return Columns(values, note=note, lines=line_numbers)


def _convert_to_utf8(data: bytes, name: str, encoding: str) -> bytes:
    """Return a text as UTF-8 with LF at the end of lines."""
    text = decode_text(data, name, encoding)
    if "\0" in text[:4096]:
        raise ValueError("binary data, not text")
    return text.encode()


def _comments_above(data: bytes) -> list[str]:
    """Return the comments before the first row, without their marks."""
    comments = []
    for line in data[: 2**20].split(b"\n"):
        text = line.strip()
        if text and not text.startswith((b"#", b"//", b"%")):
            break
        comments.append(text.lstrip(b"#/%").decode("utf-8", "replace").strip())
    return [comment for comment in comments if comment]


def _first_lines(data: bytes) -> list[str]:
    lines: list[str] = []
    for line in io.BytesIO(data):
        if line.strip():
            lines.append(line.decode("utf-8", "replace").strip("\n"))
        if len(lines) > _SAMPLE:
            break
    return lines


def _without_first_line(data: bytes) -> bytes:
    """Return the text behind its first line that is not empty."""
    return data.lstrip(b" \t\n").partition(b"\n")[2]


def _without_count(data: bytes) -> tuple[int, bytes]:
    """Return the lines above the points, and the points, of a text that begins with their number.

    So do PTS files and, with a line of comment below, molecules (XYZ). Raises ``ValueError`` where
    the number is another one.
    """
    head, _, rest = data.partition(b"\n")
    if not head.strip().isdigit() or not rest.strip():
        return 0, data
    declared = int(head)
    lines = rest.rstrip().count(b"\n") + 1
    _comment, _, atoms = rest.partition(b"\n")
    begin = atoms.split(None, 4)
    molecule = lines == declared + 1 and len(begin) > 3 and begin[0].isalpha()
    if molecule and not begin[1].isalpha():
        return 2, atoms
    filled = sum(bool(line.strip()) for line in rest.split(b"\n"))
    if filled != declared:
        raise ValueError(f"its first line says {declared:,} points, and {filled:,} lines follow")
    return 1, rest


def _split_cells(line: str, separator: str) -> list[str]:
    if separator == _ANY:
        line = line.translate(str.maketrans(",;\t", "   "))
    if separator in {_BLANKS, _ANY}:
        return line.split()
    return [cell.strip() for cell in line.split(separator)]


def _guess_layout(lines: Sequence[str]) -> _Layout:
    """Return the separator with which most cells of the first lines are numbers.

    ``1,5 2,5`` is two decimal commas, ``1,5,2,5`` four integers: a separator in front is preferred.
    """
    best = _Layout(_BLANKS, ".", 1)
    most = -1.0
    for separator in _SEPARATORS:
        rows = [_split_cells(line, separator) for line in lines]
        widths = [len(row) for row in rows]
        width = max(set(widths), key=lambda number: (widths.count(number), number))
        rows = [row for row in rows if len(row) == width]
        decimal = "."
        if separator not in {",", _ANY}:
            decimal = _decimal_sign(rows)
        good = sum(_is_number(cell, decimal) for row in rows for cell in row)
        # Of all cells of all lines; a separator that occurs nowhere divides nothing.
        share = good / sum(widths) + (width > 1)
        if share > most:
            most = share
            best = _Layout(separator, decimal, width)
    return best


def _decimal_sign(rows: Sequence[Sequence[str]]) -> str:
    cells = [cell for row in rows for cell in row]
    commas = any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    points = any("." in cell and _is_number(cell, ".") for cell in cells)
    return "," if commas and not points else "."


def _is_number(cell: str, decimal: str) -> bool:
    cell = cell.strip('"')
    if decimal == ",":
        cell = cell.replace(",", ".")
    return _NUMBER.fullmatch(cell) is not None


def _is_header(
    cells: Sequence[Sequence[str]], layout: _Layout, options: ReadOptions, file: str
) -> bool:
    """True if the first line has the names of the columns."""
    first = [cell.strip("\"'") for cell in cells[0]]
    if options.header is not None:
        return options.header == "yes"
    if len(first) != layout.width:
        return False
    # 1. Names that are looked for.
    if set(map(comparable_name, options.position)) <= set(map(comparable_name, first)):
        return True
    # 2. 0, 1, 2 … may be pandas' names for an array, above an unnamed column or not.
    numbers = first[1:] if not first[0] else first
    if len(numbers) > 2 and numbers == [str(number) for number in range(len(numbers))]:
        names = shlex.quote(",".join(numbers[:3]))
        raise DamagedInput(
            f"{file}: the first line, {', '.join(first)[:80]}, may be names or a point.",
            next=f"--set header=yes --set position={names}; or --set header=no",
        )
    # 3. A number or nothing is data; so is a text, unless numbers follow in its column.
    if any(_is_number(cell, layout.decimal) or comparable_name(cell) in _MISSING for cell in first):
        return False
    below = [row for row in cells[1:] if len(row) == len(first)]
    return any(_is_number(cell, layout.decimal) for row in below for cell in row)


def _names_in(comments: Sequence[str], layout: _Layout, options: ReadOptions) -> list[str]:
    """Return the names in the last comment that has one for each column; better one with the position."""
    wanted = set(map(comparable_name, options.position))
    candidates = []
    for comment in reversed(comments):
        for separator in (layout.separator, _ANY):
            names = [name.strip("\"'") for name in _split_cells(comment, separator)]
            if len(names) != layout.width:
                continue
            if wanted <= set(map(comparable_name, names)):
                return names
            if layout.width > 1 and all(name[:1].isalpha() for name in names):
                candidates.append(names)
    # Others may be no names: the position is then asked for.
    return next(iter(candidates), [])


def _check_widths(data: bytes, layout: _Layout, before: int) -> I64:
    """Return the line of each row; raise ``ValueError`` for the first with another number of fields."""
    text = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8)
    blank = (text == ord(" ")) | (text == ord("\t"))
    ends = np.flatnonzero(text == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    filled = ~blank
    filled[ends] = False
    if layout.separator in {_BLANKS, _ANY}:
        # A field begins behind a blank or the end of a line.
        begins = filled.copy()
        begins[1:] &= ~filled[:-1]
        widths = _sums_of_runs(begins, starts)
    else:
        widths = 1 + _sums_of_runs(text == ord(layout.separator), starts)
    has_row = _sums_of_runs(filled, starts) > 0
    wrong = (widths != layout.width) & has_row
    if wrong.any():
        row = int(wrong.argmax())
        content = data[starts[row] : ends[row]].decode("utf-8", "replace").strip()[:60]
        raise ValueError(
            f"line {before + row + 1} has {widths[row]} fields, and others have {layout.width}: {content!r}"
        )
    return np.flatnonzero(has_row) + before + 1


def _sums_of_runs(flags: Array, starts: I64) -> I64:
    counts: I64 = np.add.reduceat(flags, starts, dtype=np.int64)
    return counts


def _parse_rows(data: bytes, layout: _Layout) -> pd.DataFrame:
    separator = r"\s+" if layout.separator in {_BLANKS, _ANY} else layout.separator
    options: dict[str, Any] = {
        "sep": separator,
        "header": None,
        "decimal": layout.decimal,
        "low_memory": False,
        "skipinitialspace": True,
        "index_col": False,
        "quoting": 3,
    }
    frame: pd.DataFrame = pd.read_csv(io.BytesIO(data), **options)
    return frame


def _typed_column(values: pd.Series[Any]) -> Array:
    """Return a column of numbers, else of texts, missing ones ``None``."""
    if values.dtype.kind in "iuf":
        return values.to_numpy()
    texts = values.astype(object).where(values.notna(), None)
    return np.array([None if text is None else str(text).strip() for text in texts], object)


def read_labels(data: bytes, name: str, encoding: str) -> Array:
    """Return one label a line: numbers, else texts as objects.

    Raises ``ValueError`` for a line of several.
    """
    data = _COMMENT.sub(b"", _convert_to_utf8(data, name, encoding))
    lines = [line.strip() for line in data.decode().split("\n")]
    texts = [line.strip("\"'") for line in lines if line]
    wrong = next((text for text in texts if len(text.split()) > 1), None)
    if wrong is not None:
        raise ValueError(f"a line of several values: {wrong[:60]!r}")
    # The name of the column.
    if len(texts) > 1 and not _is_number(texts[0], ".") and _is_number(texts[1], "."):
        texts = texts[1:]
    missing = [comparable_name(text) in _MISSING for text in texts]
    if all(empty or _is_number(text, ".") for text, empty in zip(texts, missing, strict=True)):
        return np.array(
            [np.nan if empty else text for text, empty in zip(texts, missing, strict=True)], float
        )
    return np.array(
        [None if empty else text for text, empty in zip(texts, missing, strict=True)], object
    )
