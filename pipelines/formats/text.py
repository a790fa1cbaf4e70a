"""Lists, points, edges and compressed tables of text.

Many short texts are kept in one file for workers.

A number of a point becomes ``float32(float64(text))``, both steps correctly rounded, bit for bit as
by Python's ``float`` and a float32 tensor.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from kmip_data.arrays import F32, I32
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import InflateError, open_gzip

MAX_ID = 2**24  #: node numbers must be below; those of the published graphs are below 15,000
_ALPHABET = b"0123456789+-.eE \t\n"  #: characters of decimal numbers


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

    The file is gzip-compressed UTF-8 of at most ``max_bytes`` decompressed. Raises ``DamagedInput``
    where it is cut off or something else, a column is missing, or a row, whose line is named, has
    another number of fields.
    """
    line = 0
    with open_gzip(path) as file:
        reader = csv.reader(
            _lines(file, max_bytes, path.name),
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


def _lines(file: IO[bytes], most: int, name: str) -> Iterator[str]:
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
    points = _finite_rows(text, columns)
    if points is not None:
        return points
    lines = text.removesuffix(b"\n").split(b"\n")
    number = next(n for n, line in enumerate(lines) if _finite_rows(line, columns) is None)
    raise DamagedInput(
        f"{name}, line {number + 1}: not {columns} finite decimal numbers.",
        found=repr(lines[number][:80].decode("latin-1")),
    )


def _finite_rows(text: bytes, columns: int) -> F32 | None:
    """Return the numbers of lines that end with LF; ``None`` where one is invalid."""
    # numpy would take "nan" and "inf", too: only the characters of decimal numbers reach it.
    if not text.strip() or text.translate(None, _ALPHABET):
        return None
    try:
        numbers = np.loadtxt(io.BytesIO(text), np.float64, comments=None, ndmin=2)
    except ValueError:
        return None
    with np.errstate(over="ignore"):
        points = numbers.astype(np.float32)
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    return points if points.shape == (lines, columns) and np.isfinite(points).all() else None


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

    # Check the characters of all lines at once: two runs of digits a line, blanks and nothing else.
    characters = np.frombuffer(b"\n" + text, np.uint8)
    newline = characters == ord("\n")
    line = np.cumsum(newline) - 1  # of each character
    digit = characters - np.uint8(ord("0")) < 10
    # A number begins where a digit follows something else.
    begins = np.flatnonzero(digit[1:] & ~digit[:-1]) + 1
    bad = np.bincount(line[begins], minlength=line[-1] + 1) != 2
    blank = newline | (characters == ord("\t")) | (characters == ord(" "))
    bad[line[~digit & ~blank]] = True

    if not bad.any():
        edges = np.fromstring(text, np.int64, sep=" ").reshape(-1, 2)
        bad = (edges >= MAX_ID).any(axis=1)
        if not bad.any():
            return header, edges.T.astype(np.int32, order="C")
    number = int(bad.argmax())
    wrong_line = text.split(b"\n")[number].decode("latin-1")
    raise DamagedInput(
        f"{name}, line {len(header) + number + 1}: not an edge.",
        expected=f"two node numbers below {MAX_ID:,}, such as 0\\t17",
        found=repr(wrong_line[:80]),
    )


def write_rows(folder: Path, rows: Iterable[str]) -> int:
    """Write ASCII texts, concatenated, and their end positions; return how many."""
    ends = [0]
    with (folder / "rows.txt").open("wb") as file:
        for row in rows:
            ends.append(ends[-1] + file.write(row.encode("ascii")))
    np.save(folder / "rows.npy", np.array(ends, np.int64))
    return len(ends) - 1


class StoredTexts:
    """The texts that :func:`write_rows` wrote, by number."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / "rows.npy", allow_pickle=False)
        self._file = (folder / "rows.txt").open("rb")

    def __getitem__(self, row: int) -> str:
        start = int(self._ends[row])
        stop = int(self._ends[row + 1])
        self._file.seek(start)
        return self._file.read(stop - start).decode("ascii")
