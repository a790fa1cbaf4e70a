"""Read columns of a gzip-compressed table of text, row by row, however large it is."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.archives.decompression import ERRORS, DecompressedFile

MAX_FIELD = 64 * 2**20  #: characters of one field


def read_columns(
    path: Path, columns: Sequence[str], *, delimiter: str = ",", max_bytes: int
) -> Iterator[tuple[str, ...]]:
    """Yield some columns of each row of a table with a header.

    Parameters
    ----------
    path
        A gzip-compressed file of UTF-8 text.
    columns
        Names of the columns, in the order wanted.
    max_bytes
        Most bytes that the file may decompress to.

    Raises
    ------
    DamagedInput
        The file is cut off, is no gzip, no text or too large; a column is missing; a row has another
        number of fields. The line is named.
    """
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
        """Return that this can be read."""
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
