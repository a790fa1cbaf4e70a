"""Rows of typed numbers, as PLY and PCD files have them: binary, or text."""

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
    """Return ``count`` rows of numbers from the current position; without a byte order, of text."""
    check_file_size(file, path, title, count, types, order)
    if order:
        dtype = np.dtype([(name, order + kind) for name, kind in types])
        table = np.frombuffer(file.read(count * dtype.itemsize), dtype, count)
        return {name: table[name].astype(kind) for name, kind in types}
    rows = [numbers_of_line(line, len(types)) for line in filled_lines(file, count)]
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
    """Raise ``ValueError`` where the file is too short for ``count`` rows."""
    # Of text at least a digit and a gap for each value.
    least = max(2 * len(types), 1)
    if order:
        least = sum(np.dtype(kind).itemsize for _, kind in types)
    if file.tell() + count * least > path.stat().st_size + 1:  # the last line may have no end
        raise ValueError(f"{title}: {count} entries are declared, and the file ends before")


def filled_lines(file: BinaryIO, count: int) -> Iterator[bytes]:
    """Yield ``count`` lines that are not empty, as far as there are."""
    while count and (line := file.readline()):
        if line.strip():
            yield line
            count -= 1


def numbers_of_line(line: bytes, width: int) -> list[bytes]:
    """Return the numbers of a line; commas are decimal if blanks divide it into ``width``, else divide it."""
    words = line.split()
    if b"," not in line:
        return words
    if len(words) == width:
        return line.replace(b",", b".").split()
    return line.replace(b",", b" ").split()


def convert_columns(
    title: str, rows: Sequence[Sequence[bytes]], types: Sequence[tuple[str, str]]
) -> dict[str, Array]:
    """Return columns of text: integers as their types, others as float64, which loses no digit.

    Raises ``ValueError`` for a value that does not fit its type.
    """
    columns: dict[str, Array] = {}
    texts = np.array(rows, np.bytes_).reshape(len(rows), len(types))
    for (name, kind), text in zip(types, texts.T, strict=True):
        wide = text.astype("f8")
        # Text may say 300 where a byte is declared, or 1e99 where float32 is.
        with np.errstate(over="raise", invalid="ignore"):
            columns[name] = wide.astype(kind)
        if kind[0] in "iu" and (columns[name] != np.trunc(wide)).any():
            raise ValueError(f"{title}: a value of {name} is beyond its type {kind}")
        if kind[0] == "f":
            columns[name] = wide
    return columns


def check_all_read(file: BinaryIO, title: str, count: int, row_bytes: int) -> None:
    """Raise ``ValueError`` where more rows follow than are declared.

    Zeros may: programs fill the last page of a file.
    """
    rest = file.read()
    if len(rest) >= row_bytes and rest.strip(b"\0 \t\r\n"):
        raise ValueError(f"{title}: {count:,} points are declared, and the file has more")
