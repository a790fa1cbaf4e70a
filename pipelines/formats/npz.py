"""Arrays of an ``.npz`` file as streams: read in order and inflated piece by piece."""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array, DType, format_shape_pattern, shape_matches
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.raw.archives import CHUNK_BYTES, archive_errors, first_bytes, sniff_format

_HEADER_BYTES = 10_000  #: most bytes of an array's header: numpy's own limit


class NpzFile:
    """The arrays of a file that ``numpy.savez`` or ``savez_compressed`` wrote, in any order."""

    def __init__(self, path: Path) -> None:
        self.name = f"{path.parent.name}/{path.name}"
        if sniff_format(first_bytes(path)) != "zip":
            raise DamagedInput(f"{self.name} is not an .npz file, which is a zip.")
        self._path = path
        self.read: set[str] = set()  #: names of the arrays that were opened
        with archive_errors(path):
            self._archive = zipfile.ZipFile(path)  # open as long as its arrays are read
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._archive.infolist():
            self._members[member.filename.removesuffix(".npy")] = member

    @property
    def names(self) -> list[str]:
        """Names of the arrays."""
        return list(self._members)

    @property
    def size(self) -> int:
        """Bytes of all arrays, as the archive declares them."""
        return sum(member.file_size for member in self._members.values())

    def array(
        self, name: str, dtype_kinds: str, shape: tuple[int | None, ...] | None
    ) -> ArrayStream:
        """Open one array at its beginning.

        ``dtype_kinds`` are letters of numpy dtype kinds; ``None`` in ``shape`` is any length, and for
        ``shape`` any shape. Raises ``DamagedInput`` where the array is missing, damaged, or has
        another dtype or shape.
        """
        member = self._members.get(name)
        if member is None:
            raise DamagedInput(f"{self.name}: the array {name} is missing.")
        self.read.add(name)
        stream = ArrayStream(self._read_pieces(member), member.file_size, f"{self.name}, {name}")
        if stream.dtype.kind not in dtype_kinds or not (
            shape is None or shape_matches(stream.shape, shape)
        ):
            raise DamagedInput(
                f"{stream.name} is {stream.dtype} {stream.shape}.",
                expected=f"a dtype of kind {' or '.join(dtype_kinds)}, shape {format_shape_pattern(shape or ())}",
            )
        return stream

    def _read_pieces(self, member: zipfile.ZipInfo) -> Iterator[bytes]:
        with archive_errors(self._path), self._archive.open(member) as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece

    def load(self, name: str, dtype_kinds: str = "biuf") -> Array:
        """Return one array of any shape."""
        stream = self.array(name, dtype_kinds, None)
        values = stream.take(math.prod(stream.shape))
        return values.reshape(stream.shape, order="F" if stream.by_columns else "C")

    def number(self, name: str) -> int:
        """Return the only value of an array of shape (1,), from 1 to 2³² - 1."""
        value = int(self.array(name, "iu", (1,)).take(1)[0])
        if not 0 < value < 2**32:
            raise DamagedInput(f"{self.name}: {name} is {value:,}, not a size.")
        return value


class ArrayStream:
    """One array, whose values are taken in the order in which they are stored."""

    def __init__(self, pieces: Iterator[bytes], declared: int, name: str) -> None:
        self.name = name
        self._read_pieces = pieces
        first = next(pieces, b"")
        header = io.BytesIO(first)
        self.shape: tuple[int, ...]
        self.dtype: DType
        try:
            version = np.lib.format.read_magic(header)
            reader = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                reader = np.lib.format.read_array_header_2_0
            self.shape, self.by_columns, self.dtype = reader(header, max_header_size=_HEADER_BYTES)
        # A header is a Python literal, which a parser may fail on in any of these ways.
        except (ValueError, tokenize.TokenError, RecursionError, MemoryError) as error:
            raise DamagedInput(f"{name} is not an array: {str(error)[:200]}") from error

        size = header.tell() + math.prod(self.shape) * self.dtype.itemsize
        if self.dtype.hasobject or min(self.shape, default=0) < 0 or declared != size:
            raise DamagedInput(
                f"{name} has {declared:,} bytes, which are not {self.dtype} {self.shape}."
            )
        self._rest = memoryview(first)[header.tell() :]

    def take(self, count: int) -> Array:
        """Return the next ``count`` values, (count,)."""
        values = np.empty(count, self.dtype)
        room = values.data.cast("B")
        while room:
            piece = self._next_bytes(len(room))
            room[: len(piece)] = piece
            room = room[len(piece) :]
        return values

    def skip(self, count: int) -> None:
        """Skip the next ``count`` values."""
        left = count * self.dtype.itemsize
        while left:
            left -= len(self._next_bytes(left))

    def _next_bytes(self, most: int) -> memoryview:
        """Return the next bytes, at most ``most`` of them."""
        if not self._rest:
            self._rest = memoryview(next(self._read_pieces, b""))
            if not self._rest:
                raise DamagedInput(f"{self.name} ends early.")
        piece = self._rest[:most]
        self._rest = self._rest[len(piece) :]
        return piece
