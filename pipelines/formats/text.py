"""Lists, points, edges and compressed tables of text.

A number of a point becomes ``float32(float64(text))``, both steps correctly rounded, bit for bit as
by Python's ``float`` and a float32 tensor.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from kmip_data.arrays import F32, I32, Array
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import InflateError, open_gzip

MAX_ID = 2**24  #: node numbers must be below; in the published graphs they are below 15,000


def decode_text(data: bytes, name: str, encoding: str = "") -> str:
    """Return a text in UTF-8, or UTF-16 with a mark, else in ``encoding``, with LF at the end of lines.

    Raises ``DamagedInput`` that asks for the encoding: a wrong one makes two names the same.
    """
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    usual = "utf-16" if is_wide else "utf-8-sig"
    try:
        try:
            text = data.decode(usual)
        except UnicodeDecodeError:
            text = data.decode(encoding or usual)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DamagedInput(
            f"{name}, line {line}: the text is not in {encoding or usual.removesuffix('-sig')}.",
            found=repr(data[max(error.start - 20, 0) : error.start + 20])[1:],
            next="--set encoding=latin-1, or the encoding of the file"
            if encoding
            else "--set encoding=cp1252, if it was written in Western Europe",
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: Path) -> list[str]:
    """Return the lines of an ASCII file; LF and CRLF end a line, and the last line needs neither.

    Raises ``DamagedInput`` where the file is not there, is empty, or is not text.
    """
    try:
        text = path.read_bytes().decode("ascii")
    except FileNotFoundError as error:
        raise DamagedInput(f"{path} is missing.") from error
    except UnicodeDecodeError as error:
        raise DamagedInput(f"{path.name} is not ASCII text: {error}.") from error
    if not text:
        raise DamagedInput(f"{path.name} is empty.")
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


def read_columns(
    path: Path,
    columns: Sequence[str],
    *,
    delimiter: str = ",",
    max_bytes: int,
) -> Iterator[tuple[str, ...]]:
    """Yield some columns of each row of a table with a header.

    The file is UTF-8, gzip-compressed or not, of at most ``max_bytes`` decompressed. Raises
    ``DamagedInput`` where it is cut off or something else, a column is missing, or a row, whose
    line is named, has another number of fields.
    """
    line = 0
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    with open_gzip(path) if compressed else path.open("rb") as file:
        reader = csv.reader(
            _read_lines(file, max_bytes, path.name),
            delimiter=delimiter,
            strict=True,
        )
        try:
            header = next(reader, [])
            if not set(columns) <= set(header):
                raise DamagedInput(
                    f"{path.name} does not have the columns that were expected.",
                    expected=", ".join(columns),
                    found=", ".join(header)[:500],
                )
            wanted = [header.index(name) for name in columns]
            for row in reader:
                line = reader.line_num
                if len(row) != len(header):
                    raise DamagedInput(
                        f"{path.name}, line {line}: wrong number of fields.",
                        expected=f"{len(header)}",
                        found=f"{len(row)}",
                    )
                yield tuple([row[i] for i in wanted])
        except (InflateError, EOFError, OSError, csv.Error, UnicodeDecodeError) as error:
            raise DamagedInput(
                f"{path.name} is damaged after line {line}.",
                found=f"{type(error).__name__}: {error}",
            ) from error


def _read_lines(file: IO[bytes], most: int, name: str) -> Iterator[str]:
    left = most
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise DamagedInput(f"{name} is too large: more than {most:,} bytes, decompressed.")
        yield line.decode()


def parse_points(data: bytes, columns: int, *, name: str) -> F32:
    """Return the numbers in ``data`` as (N, columns) float32.

    Numbers are decimal, separated by blanks or tabs; lines end with LF, CRLF or CR, the last one
    needs none. Raises ``DamagedInput`` where a line, which is named, has other than ``columns``
    finite numbers.
    """
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def parse_finite(text: bytes) -> F32 | None:
        # numpy would take "nan" and "inf", too: only the characters of decimal numbers reach it.
        numbers = _parse_numbers(text, columns, np.float64, b"0123456789+-.eE")
        with np.errstate(over="ignore"):
            points = numbers.astype(np.float32)
        return points if len(points) and np.isfinite(points).all() else None

    points = parse_finite(text)
    if points is None:
        raise _bad_line_error(text, parse_finite, name, f"{columns} finite decimal numbers")
    return points


def parse_edges(data: bytes, *, name: str) -> tuple[list[str], I32]:
    """Return the comment lines at the top and the edges, int32 (2, E), in the order of the lines.

    Numbers are separated by tabs or blanks; lines end with LF or CRLF, the last one needs no line
    break. Raises ``DamagedInput`` where a line, which is named, is not two node numbers.
    """
    text = data.replace(b"\r\n", b"\n").removesuffix(b"\n")
    header: list[str] = []
    while text.startswith(b"#"):
        comment, _, text = text.partition(b"\n")
        header.append(comment.decode("latin-1"))
    if not text:
        return header, np.empty((2, 0), np.int32)

    def parse_small(text: bytes) -> I32 | None:
        numbers = _parse_numbers(text, 2, np.int64, b"0123456789")
        return numbers.astype(np.int32) if len(numbers) and (numbers < MAX_ID).all() else None

    edges = parse_small(text)
    if edges is None:
        wanted = f"two node numbers below {MAX_ID:,}, such as 0\\t17"
        raise _bad_line_error(text, parse_small, name, wanted, len(header) + 1)
    return header, np.ascontiguousarray(edges.T)


def _parse_numbers(text: bytes, columns: int, dtype: type, digits: bytes) -> Array:
    """Return the numbers of lines that end with LF, (lines, columns); no rows where one is invalid."""
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    if text.strip() and not text.translate(None, digits + b" \t\n"):
        with contextlib.suppress(ValueError, OverflowError):
            numbers: Array = np.loadtxt(io.BytesIO(text), dtype, comments=None, ndmin=2)
            if numbers.shape == (lines, columns):
                return numbers
    return np.empty((0, columns), dtype)


def _bad_line_error(
    text: bytes,
    read: Callable[[bytes], Array | None],
    name: str,
    wanted: str,
    first: int = 1,
) -> DamagedInput:
    """Return the error for the first line that ``read`` refuses."""
    lines = text.removesuffix(b"\n").split(b"\n")
    number = next(number for number, line in enumerate(lines) if read(line) is None)
    return DamagedInput(
        f"{name}, line {first + number}: not {wanted}.",
        found=repr(lines[number][:80].decode("latin-1")),
    )


def without_last_empty(text: str) -> tuple[str, int]:
    """Return the text without lines of separators at its end, which spreadsheets write, and their number."""
    empty = 0
    end = len(text)
    while end:
        start = text.rfind("\n", 0, end - 1) + 1
        line = text[start:end].strip(" \t\n")
        if line.strip(",; \t"):
            break
        empty += bool(line)
        end = start
    # Blank lines alone are left out later, with the comments.
    text = text[:end] if empty else text
    return text, empty
