"""Rows of typed numbers, binary or ASCII, in PLY and PCD files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kmip_data.arrays import Array


def read_table(
    file: BinaryIO,
    path: Path,
    title: str,
    count: int,
    types: Sequence[tuple[str, str]],
    order: str,
) -> dict[str, Array]:
    """Read ``count`` rows of numbers by column; an empty byte order means ASCII."""
    check_file_size(file, path, title, count, types, order)
    if order:
        dtype = np.dtype([(name, order + kind) for name, kind in types])
        table = np.frombuffer(file.read(count * dtype.itemsize), dtype, count)
        return {name: table[name].astype(kind) for name, kind in types}
    rows = [split_numbers(line, len(types)) for line in non_empty_lines(file, count)]
    wrong = next((row for row in rows if len(row) != len(types)), None)
    if wrong is not None or len(rows) != count:
        raise ValueError(f"{title}: a line without {len(types)} values, or too few lines")
    return convert_columns(title, rows, types)


def check_file_size(
    file: BinaryIO,
    path: Path,
    title: str,
    count: int,
    types: Sequence[tuple[str, str]],
    order: str,
) -> None:
    """Raise ``ValueError`` if the file is too short for ``count`` rows."""
    # ASCII takes at least a digit and a separator per value.
    min_row_bytes = max(2 * len(types), 1)
    if order:
        min_row_bytes = sum(np.dtype(kind).itemsize for _, kind in types)
    # The last line may lack its line break.
    if file.tell() + count * min_row_bytes > path.stat().st_size + 1:
        raise ValueError(f"{title}: {count} entries are declared, but the file ends before")


def non_empty_lines(file: BinaryIO, count: int) -> Iterator[bytes]:
    """Yield up to ``count`` non-empty lines."""
    while count and (line := file.readline()):
        if line.strip():
            yield line
            count -= 1


def split_numbers(line: bytes, width: int) -> list[bytes]:
    """Split a line into numbers; commas are decimal if blanks already separate ``width`` numbers."""
    words = line.split()
    if b"," not in line:
        return words
    if len(words) == width:
        return line.replace(b",", b".").split()
    return line.replace(b",", b" ").split()


def convert_columns(
    title: str, rows: Sequence[Sequence[bytes]], types: Sequence[tuple[str, str]]
) -> dict[str, Array]:
    """Convert strings to columns: integers to their type, others to float64, losing no digit.

    Raises ``ValueError`` if a value exceeds its type.
    """
    columns: dict[str, Array] = {}
    strings = np.array(rows, np.bytes_).reshape(len(rows), len(types))
    for (name, kind), column in zip(types, strings.T, strict=True):
        numbers = column.astype("f8")
        # ASCII may have 300 for a declared byte, or 1e99 for a float32.
        with np.errstate(over="raise", invalid="ignore"):
            columns[name] = numbers.astype(kind)
        if kind[0] in "iu" and (columns[name] != np.trunc(numbers)).any():
            raise ValueError(f"{title}: a value of {name} exceeds its type {kind}")
        if kind[0] == "f":
            columns[name] = numbers
    return columns


def require_end(file: BinaryIO, title: str, count: int, row_bytes: int) -> None:
    """Raise ``ValueError`` if undeclared rows follow; trailing zeros and blanks are padding."""
    rest = file.read()
    if len(rest) >= row_bytes and rest.strip(b"\0 \t\r\n"):
        raise ValueError(f"{title}: {count:,} points are declared, but the file has more")
