"""Read lines, points, edges and compressed tables from text.

Coordinates are ``float32(float64(text))``, both correctly rounded: bit for bit equal to Python's
``float`` stored in a float32 tensor.
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
from kmip_data.errors import DamagedInput, Setting
from kmip_data.files.small_files import InflateError, open_gzip
from kmip_data.pipelines.formats.file_heads import is_gzip
from kmip_data.text import list_names

MAX_NODE_ID = 2**24  #: exclusive; the published graphs stay below 15,000


class UnknownEncoding(DamagedInput):
    """A text is in an encoding that its user has to name."""

    problem = ""  #: line and encoding, without the file


def decode_text(data: bytes, name: str, encoding: str = "") -> str:
    """Decode UTF-8, UTF-16 with a byte order mark, or otherwise ``encoding``; normalise line breaks.

    Raises ``UnknownEncoding`` asking for the encoding, because a wrong one may merge two names.
    """
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    default = "utf-16" if is_utf16 else "utf-8-sig"
    try:
        try:
            text = data.decode(default)
        except UnicodeDecodeError:
            text = data.decode(encoding or default)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"line {line}: the text is not in {encoding or default.removesuffix('-sig')}."
        unknown = UnknownEncoding(
            f"{name}, {problem}",
            found=repr(data[max(error.start - 20, 0) : error.start + 20])[1:],
            steps=[
                "give the encoding of the file, such as the one of Western Europe",
                Setting(encoding="latin-1" if encoding else "cp1252"),
            ],
        )
        unknown.problem = problem
        raise unknown from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: Path) -> list[str]:
    """Return the lines of an ASCII file with LF or CRLF line breaks.

    Raises ``DamagedInput`` if the file is missing, empty, or not ASCII.
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
    """Yield the given columns of each row of a UTF-8 table with a header, optionally gzipped.

    Raises ``DamagedInput`` if the file is damaged or larger than ``max_bytes`` decompressed, a
    column is missing, or a row has a wrong number of fields.
    """
    line = 0
    with open_gzip(path) if is_gzip(path) else path.open("rb") as file:
        reader = csv.reader(
            _read_lines(file, max_bytes, path.name),
            delimiter=delimiter,
            strict=True,
        )
        try:
            header = next(reader, [])
            if not set(columns) <= set(header):
                raise DamagedInput(
                    f"{path.name} does not have the expected columns.",
                    expected=", ".join(columns),
                    found=list_names(header, 500),
                )
            positions = [header.index(name) for name in columns]
            for row in reader:
                line = reader.line_num
                if len(row) != len(header):
                    raise DamagedInput(
                        f"{path.name}, line {line}: wrong number of fields.",
                        expected=f"{len(header)}",
                        found=f"{len(row)}",
                    )
                yield tuple([row[i] for i in positions])
        except (InflateError, EOFError, OSError, csv.Error, UnicodeDecodeError) as error:
            raise DamagedInput(
                f"{path.name} is damaged after line {line}.",
                found=f"{type(error).__name__}: {error}",
            ) from error


def _read_lines(file: IO[bytes], max_bytes: int, name: str) -> Iterator[str]:
    remaining = max_bytes
    while line := file.readline(remaining + 1):
        remaining -= len(line)
        if remaining < 0:
            raise DamagedInput(f"{name} is too large: more than {max_bytes:,} bytes, decompressed.")
        yield line.decode()


def parse_points(data: bytes, columns: int, *, name: str) -> F32:
    """Parse decimal numbers separated by blanks or tabs; return float32 (N, columns).

    Lines end with LF, CRLF or CR. Raises ``DamagedInput`` naming the first line without ``columns``
    finite numbers.
    """
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def parse_finite(text: bytes) -> F32 | None:
        # Allow only characters of decimal numbers, because numpy accepts "nan" and "inf".
        numbers = _parse_numbers(text, columns, np.float64, b"0123456789+-.eE")
        with np.errstate(over="ignore"):
            points = numbers.astype(np.float32)
        return points if len(points) and np.isfinite(points).all() else None

    points = parse_finite(text)
    if points is None:
        raise _bad_line_error(text, parse_finite, name, f"{columns} finite decimal numbers")
    return points


def parse_edges(data: bytes, *, name: str) -> tuple[list[str], I32]:
    """Parse edges, one pair of node ids per line; return leading comments and int32 (2, E).

    Lines end with LF or CRLF. Raises ``DamagedInput`` naming the first invalid line.
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
        return numbers.astype(np.int32) if len(numbers) and (numbers < MAX_NODE_ID).all() else None

    edges = parse_small(text)
    if edges is None:
        expected = f"two node ids below {MAX_NODE_ID:,}, such as 0\\t17"
        raise _bad_line_error(text, parse_small, name, expected, len(header) + 1)
    return header, np.ascontiguousarray(edges.T)


def _parse_numbers(text: bytes, columns: int, dtype: type, digits: bytes) -> Array:
    """Return the numbers of all lines, (lines, columns), or no rows if any line is invalid."""
    num_lines = text.count(b"\n") + (not text.endswith(b"\n"))
    if text.strip() and not text.translate(None, digits + b" \t\n"):
        with contextlib.suppress(ValueError, OverflowError):
            numbers: Array = np.loadtxt(io.BytesIO(text), dtype, comments=None, ndmin=2)
            if numbers.shape == (num_lines, columns):
                return numbers
    return np.empty((0, columns), dtype)


def _bad_line_error(
    text: bytes,
    parse: Callable[[bytes], Array | None],
    name: str,
    expected: str,
    first_line: int = 1,
) -> DamagedInput:
    """Return the error for the first line that ``parse`` rejects."""
    lines = text.removesuffix(b"\n").split(b"\n")
    index = next(i for i, line in enumerate(lines) if parse(line) is None)
    return DamagedInput(
        f"{name}, line {first_line + index}: not {expected}.",
        found=repr(lines[index][:80].decode("latin-1")),
    )
