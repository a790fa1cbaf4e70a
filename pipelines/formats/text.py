"""Read lists and compressed tables of text, and keep many short texts in one file for workers."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from kmip_data.errors import DamagedInput


def read_lines(path: Path) -> list[str]:
    """Return the lines of an ASCII file; LF and CRLF end a line, and the last line needs neither.

    Raises ``DamagedInput`` where the file is not there, is empty, or is not text.
    """
    try:
        text = path.read_bytes().decode("ascii")
    except FileNotFoundError as error:
        raise DamagedInput(f"{path.name} is not there.", expected=str(path), found="no such file") from error
    except UnicodeDecodeError as error:
        raise DamagedInput(f"{path.name} is not a text file.", expected="ASCII", found=str(error)) from error
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        del lines[-1]
    if not lines:
        raise DamagedInput(f"{path.name} is empty.", expected="one name per line", found="no line")
    return lines


def read_columns(
    path: Path, columns: Sequence[str], *, delimiter: str = ",", max_bytes: int
) -> Iterator[tuple[str, ...]]:
    """Yield some columns of each row of a table with a header.

    The file is gzip-compressed UTF-8 of at most ``max_bytes`` decompressed. Raises ``DamagedInput`` where it
    is cut off or something else, a column is missing, or a row, whose line is named, has another number of
    fields.
    """
    line = 0
    with gzip.open(path) as file:
        reader = csv.reader(_lines(file, max_bytes, path.name), delimiter=delimiter, strict=True)
        try:
            header = next(reader, [])
            missing = [name for name in columns if name not in header]
            if missing:
                raise DamagedInput(
                    f"{path.name} does not have the columns that were expected.",
                    expected=", ".join(columns),
                    found=", ".join(header)[:500] or "an empty file",
                )
            wanted = [header.index(name) for name in columns]
            for row in reader:
                line = reader.line_num
                if len(row) != len(header):
                    raise DamagedInput(
                        f"{path.name}, line {line}: wrong number of fields.",
                        expected=f"{len(header)}: {', '.join(header)[:200]}",
                        found=f"{len(row)}",
                    )
                yield tuple([row[i] for i in wanted])
        except (zlib.error, EOFError, OSError, csv.Error, UnicodeDecodeError) as error:
            raise DamagedInput(
                f"{path.name} is damaged after line {line}.",
                expected="a whole gzip file of UTF-8 text",
                found=f"{type(error).__name__}: {error}",
            ) from error


def _lines(file: gzip.GzipFile, most: int, name: str) -> Iterator[str]:
    """Yield lines of at most ``most`` bytes in all."""
    left = most
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise DamagedInput(f"{name} is too large: more than {most:,} bytes, decompressed.")
        yield line.decode()


def write_rows(folder: Path, rows: Iterable[str]) -> int:
    """Write ASCII texts, one after the other, and where each ends; return how many."""
    ends = [0]
    with (folder / "rows.txt").open("wb") as file:
        for row in rows:
            ends.append(ends[-1] + file.write(row.encode("ascii")))
    np.save(folder / "rows.npy", np.array(ends, np.int64))
    return len(ends) - 1


class Rows:
    """The texts that :func:`write_rows` wrote, by number."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / "rows.npy", allow_pickle=False)
        self._file = (folder / "rows.txt").open("rb")

    def __getitem__(self, row: int) -> str:
        start, stop = int(self._ends[row]), int(self._ends[row + 1])
        self._file.seek(start)
        return self._file.read(stop - start).decode("ascii")
