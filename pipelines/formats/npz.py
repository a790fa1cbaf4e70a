"""Read the arrays of an ``.npz`` file, decompressing them piece by piece."""

from __future__ import annotations

import io
import itertools
import math
import tokenize
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array, DType
from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.raw.archives import (
    CHUNK_BYTES,
    convert_archive_errors,
    first_bytes,
    sniff_format,
)

_MAX_HEADER_BYTES = 10_000  #: numpy's limit


class NpzFile:
    """File written by ``numpy.savez`` or ``savez_compressed``."""

    def __init__(self, path: Path) -> None:
        self.name = f"{path.parent.name}/{path.name}"
        if sniff_format(first_bytes(path)) != "zip":
            raise DamagedInput(f"{self.name} is not an .npz file, which is a zip.")
        self._path = path
        self.read: set[str] = set()  #: names of opened arrays
        with convert_archive_errors(path):
            self._archive = zipfile.ZipFile(path)
        self._members: dict[str, zipfile.ZipInfo] = {}
        for member in self._archive.infolist():
            self._members[member.filename.removesuffix(".npy")] = member

    @property
    def names(self) -> list[str]:
        """Names of the arrays."""
        return list(self._members)

    @property
    def size(self) -> int:
        """Declared bytes of all arrays."""
        return sum(member.file_size for member in self._members.values())

    def open_array(self, name: str, dtype_kinds: str) -> NpzArray:
        """Read the header of one array.

        ``dtype_kinds`` are numpy dtype kinds. Raises ``DamagedInput`` if the array is missing or
        damaged, or has another dtype.
        """
        member = self._members.get(name)
        if member is None:
            raise DamagedInput(f"{self.name}: the array {name} is missing.")
        self.read.add(name)
        array = NpzArray(self._read_pieces(member), member.file_size, f"{self.name}, {name}")
        if array.dtype.kind not in dtype_kinds:
            raise DamagedInput(
                f"{array.name} is {array.dtype} {array.shape}.",
                expected=f"a dtype of kind {' or '.join(dtype_kinds)}",
            )
        return array

    def _read_pieces(self, member: zipfile.ZipInfo) -> Iterator[bytes]:
        with convert_archive_errors(self._path), self._archive.open(member) as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece

    def read_array(self, name: str, dtype_kinds: str = "biuf") -> Array:
        """Read an array of any shape."""
        return self.open_array(name, dtype_kinds).values()


class NpzArray:
    """One array, whose values are read after its header."""

    def __init__(self, pieces: Iterator[bytes], declared: int, name: str) -> None:
        self.name = name
        self._pieces = pieces
        first = next(pieces, b"")
        header = io.BytesIO(first)
        self.shape: tuple[int, ...]
        self.dtype: DType
        try:
            version = np.lib.format.read_magic(header)
            reader = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                reader = np.lib.format.read_array_header_2_0
            self.shape, self._is_fortran_order, self.dtype = reader(
                header, max_header_size=_MAX_HEADER_BYTES
            )
        # numpy parses the header as a Python literal, which may fail in any of these ways.
        except (ValueError, tokenize.TokenError, RecursionError, MemoryError) as error:
            raise DamagedInput(f"{name} is not an array: {first_problem(error)}") from error

        size = header.tell() + math.prod(self.shape) * self.dtype.itemsize
        if self.dtype.hasobject or min(self.shape, default=0) < 0 or declared != size:
            raise DamagedInput(
                f"{name} has {declared:,} bytes, which do not fit {self.dtype} {self.shape}."
            )
        self._first = first[header.tell() :]

    def values(self) -> Array:
        """Read all values."""
        values = np.empty(math.prod(self.shape), self.dtype)
        remaining = values.data.cast("B")
        for piece in itertools.chain([self._first], self._pieces):
            remaining[: len(piece)] = piece
            remaining = remaining[len(piece) :]
        if remaining:
            raise DamagedInput(f"{self.name} ends early.")
        return values.reshape(self.shape, order="F" if self._is_fortran_order else "C")
