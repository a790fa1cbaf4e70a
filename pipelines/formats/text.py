"""Read lists and compressed tables of text, and keep many short texts in one file for workers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kmip_data.errors import DamagedInput

MAX_FIELD = 64 * 2**20  #: characters of one field


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
    from kmip_data.pipelines.archives.decompression import ERRORS, DecompressedFile

    line = 0
    with path.open("rb") as file, _large_fields():
        stream = _Bounded(DecompressedFile(file, "gzip"), max_bytes, path.name)
        text = io.TextIOWrapper(io.BufferedReader(stream, 2**18), "utf-8", newline="")
        reader = csv.reader(text, delimiter=delimiter, strict=True)
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
        except (*ERRORS, csv.Error, UnicodeDecodeError) as error:
            raise DamagedInput(
                f"{path.name} is damaged after line {line}.",
                expected="a whole gzip file of UTF-8 text",
                found=f"{type(error).__name__}: {error}",
            ) from error


class _Bounded(io.RawIOBase):
    """A stream that ends with an error after so many bytes."""

    def __init__(self, stream: io.RawIOBase, most: int, name: str) -> None:
        self._stream, self._most, self._left, self._name = stream, most, most, name

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the front of ``buffer``; 0 at the end."""
        count = self._stream.readinto(buffer) or 0
        self._left -= count
        if self._left < 0:
            raise DamagedInput(
                f"{self._name} is too large.",
                expected=f"at most {self._most:,} bytes, decompressed",
                found="more",
            )
        return count


@contextmanager
def _large_fields() -> Iterator[None]:
    before = csv.field_size_limit(MAX_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(before)


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
