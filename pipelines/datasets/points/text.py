"""Read point clouds from text files: separators, decimal commas, names, comments, missing values.

Rules: ``docs/point-clouds.md``. pandas parses the numbers; lines with too few fields, which pandas
would accept silently, are rejected here.
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
    CloudColumns,
    CloudOptions,
    check_column_count,
    comparable_name,
    default_names,
    distinct_names,
)
from kmip_data.pipelines.formats.text import decode_text

_MAX_SAMPLED_LINES = 100  #: first lines, which determine separator and names
#: A comment line, or a comment after the numbers.
_COMMENT = re.compile(rb"^[ \t]*(?:#|//|%)[^\n]*|[ \t]#(?:[ \t][^\n]*)?$", re.MULTILINE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
_MISSING_VALUES = {"", "nan", "-nan", "na", "n/a", "<na>", "null", "none"}
_BLANK_SEPARATOR = " "  #: any number of blanks
_ANY_SEPARATOR = "any"  #: any mix of tabs, semicolons, commas and blanks
_SEPARATORS = ("\t", ";", ",", _BLANK_SEPARATOR, _ANY_SEPARATOR)  #: in order of preference
_SEPARATORS_TO_BLANKS = bytes.maketrans(b",;\t", b"   ")


class _Layout(NamedTuple):
    separator: str
    decimal: str  #: decimal mark
    width: int  #: number of fields


def read_text(path: Path, options: CloudOptions) -> CloudColumns:
    """Return the columns of a text file; columns of strings are objects.

    Raises ``DamagedInput`` if the first line is ambiguous, ``ValueError`` if the number of fields
    varies.
    """
    # 1. Blank out comments, keeping line numbers.
    data = _convert_to_utf8(path.read_bytes(), path.name, options.encoding)
    comments: list[str] = []
    if re.search(rb"[#%]|//", data):
        comments = _comments_above(data)
        data = _COMMENT.sub(b"", data)
    num_stripped, data = _strip_point_count(data)
    lines = _sample_lines(data)
    if not lines:
        return CloudColumns({})

    # 2. Detect the separator, and names in the first line or in a comment above it.
    layout = _guess_layout(lines)
    if layout.separator == _ANY_SEPARATOR:
        data = data.translate(_SEPARATORS_TO_BLANKS)
    check_column_count(layout.width)
    cells = [_split_cells(line, layout.separator) for line in lines]
    names: list[str] = []
    if _is_header(cells, layout, options, path.name):
        names = [name.strip("\"'") for name in cells[0]]
        rest = _strip_first_line(data)
        num_stripped += data.count(b"\n") - rest.count(b"\n")
        data = rest
    elif options.header != "no":
        names = _find_names(comments, layout, options)

    # 3. Parse the rows, which must all have the same number of fields.
    if b'"' in data:
        data = data.replace(b'"', b"")
    line_numbers = _check_widths(data, layout, num_stripped)
    if not data.strip():
        return CloudColumns({})
    frame = _parse_rows(data, layout)
    # Drop the empty column after a trailing separator.
    ends_empty = not any(row[-1:] != [""] for row in cells)
    if ends_empty and frame.iloc[:, -1].isna().all():
        frame = frame.iloc[:, :-1]
        names = names[:-1]
    names = names or default_names(frame.shape[1])
    names = [name or f"unnamed {i}" for i, name in enumerate(names)]
    values = {name: _typed_column(frame[i]) for i, name in enumerate(distinct_names(names))}
    note = "numbers have decimal commas" if layout.decimal == "," else ""
    return CloudColumns(values, note=note, lines=line_numbers)


def _convert_to_utf8(data: bytes, name: str, encoding: str) -> bytes:
    """Convert to UTF-8 with LF line breaks."""
    text = decode_text(data, name, encoding)
    if "\0" in text[:4096]:
        raise ValueError("binary data, not text")
    return text.encode()


def _comments_above(data: bytes) -> list[str]:
    """Return the comments above the first row, without comment marks."""
    comments = []
    for line in data[: 2**20].split(b"\n"):
        text = line.strip()
        if text and not text.startswith((b"#", b"//", b"%")):
            break
        comments.append(text.lstrip(b"#/%").decode("utf-8", "replace").strip())
    return [comment for comment in comments if comment]


def _sample_lines(data: bytes) -> list[str]:
    lines: list[str] = []
    for line in io.BytesIO(data):
        if line.strip():
            lines.append(line.decode("utf-8", "replace").strip("\n"))
        if len(lines) > _MAX_SAMPLED_LINES:
            break
    return lines


def _strip_first_line(data: bytes) -> bytes:
    """Remove everything up to the first non-empty line, inclusive."""
    return data.lstrip(b" \t\n").partition(b"\n")[2]


def _strip_point_count(data: bytes) -> tuple[int, bytes]:
    """Strip a leading point count; return the number of stripped lines and the rest.

    PTS files begin with a count, molecules (XYZ) with a count and a comment line. Raises
    ``ValueError`` if the count is wrong.
    """
    head, _, rest = data.partition(b"\n")
    if not head.strip().isdigit() or not rest.strip():
        return 0, data
    declared = int(head)
    num_lines = rest.rstrip().count(b"\n") + 1
    _comment, _, atoms = rest.partition(b"\n")
    words = atoms.split(None, 4)
    begins_with_element = len(words) > 3 and words[0].isalpha() and not words[1].isalpha()
    if num_lines == declared + 1 and begins_with_element:
        return 2, atoms
    num_rows = sum(bool(line.strip()) for line in rest.split(b"\n"))
    if num_rows != declared:
        raise ValueError(
            f"its first line declares {declared:,} points, but {num_rows:,} lines follow"
        )
    return 1, rest


def _split_cells(line: str, separator: str) -> list[str]:
    if separator == _ANY_SEPARATOR:
        line = line.translate(str.maketrans(",;\t", "   "))
    if separator in {_BLANK_SEPARATOR, _ANY_SEPARATOR}:
        return line.split()
    return [cell.strip() for cell in line.split(separator)]


def _guess_layout(lines: Sequence[str]) -> _Layout:
    """Return the layout with which most cells of the first lines are numbers.

    Ties go to the first of :data:`_SEPARATORS`.
    """
    best = _Layout(_BLANK_SEPARATOR, ".", 1)
    best_score = -1.0
    for separator in _SEPARATORS:
        rows = [_split_cells(line, separator) for line in lines]
        widths = [len(row) for row in rows]
        width = max(set(widths), key=lambda number: (widths.count(number), number))
        rows = [row for row in rows if len(row) == width]
        decimal = "."
        if separator not in {",", _ANY_SEPARATOR}:
            decimal = _guess_decimal_mark(rows)
        num_numbers = sum(_is_number(cell, decimal) for row in rows for cell in row)
        # Prefer separators that occur, then the fraction of numeric cells.
        score = num_numbers / sum(widths) + (width > 1)
        if score > best_score:
            best_score = score
            best = _Layout(separator, decimal, width)
    return best


def _guess_decimal_mark(rows: Sequence[Sequence[str]]) -> str:
    cells = [cell for row in rows for cell in row]
    has_commas = any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    has_points = any("." in cell and _is_number(cell, ".") for cell in cells)
    return "," if has_commas and not has_points else "."


def _is_number(cell: str, decimal: str) -> bool:
    cell = cell.strip('"')
    if decimal == ",":
        cell = cell.replace(",", ".")
    return _NUMBER.fullmatch(cell) is not None


def _is_header(
    cells: Sequence[Sequence[str]], layout: _Layout, options: CloudOptions, file: str
) -> bool:
    """Return True if the first line has column names."""
    first = [cell.strip("\"'") for cell in cells[0]]
    if options.header is not None:
        return options.header == "yes"
    if len(first) != layout.width:
        return False
    # 1. A line with the position columns is a header.
    if set(map(comparable_name, options.position)) <= set(map(comparable_name, first)):
        return True
    # 2. 0, 1, 2 … may be the names that pandas writes for an array, with or without an index.
    labels = first[1:] if not first[0] else first
    if len(labels) > 2 and labels == [str(i) for i in range(len(labels))]:
        names = shlex.quote(",".join(labels[:3]))
        raise DamagedInput(
            f"{file}: the first line, {', '.join(first)[:80]}, may be names or a point.",
            next=f"--set header=yes --set position={names}; or --set header=no",
        )
    # 3. A line with numbers or empty cells is data; strings are names only if numbers follow.
    if any(
        _is_number(cell, layout.decimal) or comparable_name(cell) in _MISSING_VALUES
        for cell in first
    ):
        return False
    below = [row for row in cells[1:] if len(row) == len(first)]
    return any(_is_number(cell, layout.decimal) for row in below for cell in row)


def _find_names(comments: Sequence[str], layout: _Layout, options: CloudOptions) -> list[str]:
    """Return the names in the last comment with one per column, preferring the position columns."""
    position = set(map(comparable_name, options.position))
    candidates = []
    for comment in reversed(comments):
        for separator in (layout.separator, _ANY_SEPARATOR):
            names = [name.strip("\"'") for name in _split_cells(comment, separator)]
            if len(names) != layout.width:
                continue
            if position <= set(map(comparable_name, names)):
                return names
            if layout.width > 1 and all(name[:1].isalpha() for name in names):
                candidates.append(names)
    # Without position columns the comment may not be names, so an error asks for the position.
    return next(iter(candidates), [])


def _check_widths(data: bytes, layout: _Layout, num_stripped: int) -> I64:
    """Return the line number of each row; raises ``ValueError`` if the number of fields varies.

    ``num_stripped`` lines precede ``data`` in the file.
    """
    characters = np.frombuffer(data if data.endswith(b"\n") else data + b"\n", np.uint8)
    is_blank = (characters == ord(" ")) | (characters == ord("\t"))
    ends = np.flatnonzero(characters == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    in_field = ~is_blank
    in_field[ends] = False
    if layout.separator in {_BLANK_SEPARATOR, _ANY_SEPARATOR}:
        # A field begins after a blank or a line break.
        begins_field = in_field.copy()
        begins_field[1:] &= ~in_field[:-1]
        widths = _sum_by_line(begins_field, starts)
    else:
        widths = 1 + _sum_by_line(characters == ord(layout.separator), starts)
    has_row = _sum_by_line(in_field, starts) > 0
    is_wrong = (widths != layout.width) & has_row
    if is_wrong.any():
        line = int(is_wrong.argmax())
        content = data[starts[line] : ends[line]].decode("utf-8", "replace").strip()[:60]
        number = num_stripped + line + 1
        raise ValueError(
            f"line {number} has {widths[line]} fields, but others have {layout.width}: {content!r}"
        )
    return np.flatnonzero(has_row) + num_stripped + 1


def _sum_by_line(flags: Array, starts: I64) -> I64:
    counts: I64 = np.add.reduceat(flags, starts, dtype=np.int64)
    return counts


def _parse_rows(data: bytes, layout: _Layout) -> pd.DataFrame:
    separator = (
        r"\s+" if layout.separator in {_BLANK_SEPARATOR, _ANY_SEPARATOR} else layout.separator
    )
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
    """Return numbers, or string objects with None for missing values."""
    if values.dtype.kind in "iuf":
        return values.to_numpy()
    cells = values.astype(object).where(values.notna(), None)
    return np.array([None if cell is None else str(cell).strip() for cell in cells], object)


def read_labels(data: bytes, name: str, encoding: str) -> Array:
    """Read one label per line: numbers, or string objects.

    Raises ``ValueError`` if a line has more than one value.
    """
    data = _COMMENT.sub(b"", _convert_to_utf8(data, name, encoding))
    lines = [line.strip() for line in data.decode().split("\n")]
    labels = [line.strip("\"'") for line in lines if line]
    invalid = next((label for label in labels if len(label.split()) > 1), None)
    if invalid is not None:
        raise ValueError(f"a line with several values: {invalid[:60]!r}")
    # Skip a column name.
    if len(labels) > 1 and not _is_number(labels[0], ".") and _is_number(labels[1], "."):
        labels = labels[1:]
    values = [None if comparable_name(label) in _MISSING_VALUES else label for label in labels]
    if all(value is None or _is_number(value, ".") for value in values):
        return np.array(values, float)
    return np.array(values, object)
