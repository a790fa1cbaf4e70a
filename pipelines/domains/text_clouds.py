"""Clouds and labels from delimited text, with names above the points or none.

Rules: ``docs/point-clouds.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kmip_data.arrays import Array
from kmip_data.errors import OpenQuestions, Setting
from kmip_data.pipelines.domains.cloud_columns import (
    CloudColumns,
    CloudOptions,
    check_column_count,
    comparable_name,
    default_names,
    distinct_names,
    is_number_or_missing,
)
from kmip_data.pipelines.formats.delimited import (
    MIXED,
    DelimitedText,
    count_cells,
    guess_separator,
    read_delimited,
    split_rows,
)
from kmip_data.pipelines.formats.header_line import looks_like_names, rows_of_names
from kmip_data.pipelines.formats.typed_rows import parse_rows
from kmip_data.pipelines.formats.written_numbers import (
    MISSING_WORDS,
    agreed_decimal_sign,
    is_written_number,
    shown_decimal_signs,
)

#: Comment after the numbers of a line.
_TRAILING_COMMENT = re.compile(rb"[ \t]#(?:[ \t][^\n]*)?$", re.MULTILINE)
_MISSING_WORDS = [*MISSING_WORDS, "none", "NONE", "Null", "NAN", ""]


def read_text(data: bytes, file: str, options: CloudOptions) -> CloudColumns:
    """Return the columns of the text of a file; columns of strings are objects.

    Raises ``OpenQuestions`` if the first line is ambiguous, ``ValueError`` if the number of fields
    varies.
    """
    # 1. Rows without comments, and without the number of points that some programs write above.
    text = read_delimited(data, file, options.encoding)
    if b"\0" in text.data[:4096]:
        raise ValueError("binary data, not text")
    data = bytes(text.data)
    if b" #" in data or b"\t#" in data:
        data = _TRAILING_COMMENT.sub(b"", data)
    num_stripped, data = _strip_point_count(data)
    text = DelimitedText(data, text.lines_without_row, text.comments, text.separator)
    rows = text.sample_rows()
    if not rows:
        return CloudColumns({})

    # 2. The separator and the decimal sign, and the number of cells of all rows.
    separator = text.separator or guess_separator(rows, may_be_mixed=True)
    cells = list(split_rows(rows, separator))
    sampled_widths = [len(row) for row in cells]
    width = max({*sampled_widths}, key=lambda width: (sampled_widths.count(width), width))
    check_column_count(width)
    widths = count_cells(data, separator)
    is_wrong = widths != width
    lines = _line_numbers(text, num_stripped, len(widths))
    if is_wrong.any():
        row = int(is_wrong.argmax())
        content = data.split(b"\n", row + 1)[row].decode("utf-8", "replace").strip()[:60]
        raise ValueError(
            f"line {lines[row]} has {widths[row]} fields, but others have {width}: {content!r}"
        )

    # 3. Names in the first line or in a comment above.
    names: list[str] = []
    is_header = _is_header(cells, options, file)
    if is_header:
        names = [name.strip("\"'") for name in cells[0]]
        data = data[len(text.first_row()) :]
        lines = lines[1:]
    elif options.header != "no":
        names = _names_in_comments(text.comments_above(), separator, width, options)

    # 4. Columns; the last is dropped if rows end with a separator.
    if not data:
        return CloudColumns({})
    signs = _decimal_options(data, cells[is_header:], separator, options, file)
    frame = parse_rows(data, separator, na_values=_MISSING_WORDS, **signs)
    ends_empty = not any(row[-1] for row in cells)
    if ends_empty and frame.iloc[:, -1].isna().all():
        frame = frame.iloc[:, :-1]
        names = names[:-1]
    if not names and len(options.names) == frame.shape[1]:
        names = list(options.names)
    names = names or default_names(frame.shape[1])
    names = [name or f"unnamed {i}" for i, name in enumerate(names)]
    values = {name: _typed_column(frame[i]) for i, name in enumerate(distinct_names(names))}
    note = "numbers have decimal commas" if signs["decimal"] == "," else ""
    return CloudColumns(values, note=note, lines=lines)


def _strip_point_count(data: bytes) -> tuple[int, bytes]:
    """Strip a leading point count; return the number of stripped lines and the rest.

    PTS files begin with a count, molecules (XYZ) with a count and a comment line. Raises
    ``ValueError`` if the count is wrong.
    """
    head, _, rest = data.partition(b"\n")
    if not head.strip().isdigit() or not rest:
        return 0, data
    declared = int(head)
    num_lines = rest.count(b"\n")
    _comment, _, atoms = rest.partition(b"\n")
    words = atoms.split(None, 4)
    begins_with_element = len(words) > 3 and words[0].isalpha() and not words[1].isalpha()
    if num_lines == declared + 1 and begins_with_element:
        return 2, atoms
    if num_lines != declared:
        raise ValueError(
            f"its first line declares {declared:,} points, but {num_lines:,} lines follow"
        )
    return 1, rest


def _line_numbers(text: DelimitedText, num_stripped: int, rows: int) -> Array:
    """Return the line number, from 1, of each row behind ``num_stripped`` others."""
    others = np.array(text.lines_without_row, np.int64)
    lines = np.arange(1, rows + num_stripped + len(others) + 1)
    return np.setdiff1d(lines, others)[num_stripped:]


def _decimal_options(
    data: bytes, cells: Sequence[Sequence[str]], separator: str, options: CloudOptions, file: str
) -> dict[str, Any]:
    """Return the signs of numbers for pandas.

    A column that proves the sign decides for all. Raises ``OpenQuestions`` if commas may be either,
    or if columns prove both. Points alone are decimal.
    """
    sign = options.decimal
    if sign is None:
        numbers = [cell for row in cells for cell in row if is_written_number(cell)]
        if separator in {",", MIXED} or not any("," in number for number in numbers):
            return {"decimal": "."}
        columns: Iterable[Iterable[str]] = zip(*cells, strict=True)
        sign = agreed_decimal_sign(map(shown_decimal_signs, columns))
        if sign is None:  # the sample is not all
            frame = parse_rows(data, separator, dtype=str)
            columns = (frame[column].dropna().str.strip().unique() for column in frame)
            sign = agreed_decimal_sign(map(shown_decimal_signs, columns))
        if sign is None:
            number = next(number for number in numbers if "," in number)
            comma = Setting(decimal=",")
            question = (
                f"{file}: {number!r}. Is its sign a decimal point or a decimal comma? "
                f"{Setting(decimal='.')} for a point, {comma} for a comma"
            )
            raise OpenQuestions({question: comma})
    other = "," if sign == "." else "."
    return {"decimal": sign, "thousands": other if other != separator else None}


def _is_header(cells: Sequence[Sequence[str]], options: CloudOptions, file: str) -> bool:
    """Return True if the first line has column names."""
    first = [cell.strip("\"'") for cell in cells[0]]
    if options.header is not None:
        return options.header == "yes"
    # 1. A line with the position columns is a header.
    if set(map(comparable_name, options.position)) <= set(map(comparable_name, first)):
        return True
    # 2. 0, 1, 2 … may be the names that pandas writes for an array, with or without an index.
    labels = first[1:] if not first[0] else first
    if len(labels) > 2 and labels == [str(i) for i in range(len(labels))]:
        answer = Setting(header="yes", position=",".join(labels[:3]))
        question = (
            f"{file}: the first line, {', '.join(first)[:80]}, may be names or a point: {answer}, or "
            f"{Setting(header='no')}"
        )
        raise OpenQuestions({question: answer})
    # 3. The cells decide.
    return looks_like_names(first, pd.DataFrame(cells[1:])) is True


def _names_in_comments(
    comments: Sequence[str], separator: str, width: int, options: CloudOptions
) -> list[str]:
    """Return the names in the last comment with one per column, preferring the position columns."""
    position = set(map(comparable_name, options.position))
    candidates = rows_of_names(comments, separator, width)
    for names in candidates:
        if position <= set(map(comparable_name, names)):
            return names
    # Without position columns the comment may not be names, so an error asks for the position.
    return next(
        (names for names in candidates if width > 1 and all(name[:1].isalpha() for name in names)),
        [],
    )


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
    data = _TRAILING_COMMENT.sub(b"", bytes(read_delimited(data, name, encoding).data))
    lines = [line.strip() for line in data.decode().split("\n")]
    labels = [line.strip("\"'") for line in lines if line]
    invalid = next((label for label in labels if len(label.split()) > 1), None)
    if invalid is not None:
        raise ValueError(f"a line with several values: {invalid[:60]!r}")
    # Skip a column name.
    if len(labels) > 1 and not is_written_number(labels[0]) and is_written_number(labels[1]):
        labels = labels[1:]
    values = [None if label in _MISSING_WORDS else label for label in labels]
    if all(map(is_number_or_missing, values)):
        return np.array(values, float)
    return np.array(values, object)
