"""Decompress gzip, bzip2, xz and raw deflate piece by piece, in bounded memory."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

PIECE = 2**18  #: bytes that one step takes in or gives out, at most
XZ_MEMORY = 128 * 2**20  #: `xz -9` needs 65 MiB to decompress

ERRORS = (zlib.error, lzma.LZMAError, EOFError, OSError)


_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}


def compression_of(first: bytes) -> str | None:
    """Return the compression that the first bytes of a file indicate, if any."""
    return next((form for magic, form in _MAGIC.items() if first.startswith(magic)), None)


class Decompressor(Protocol):
    """Interface that :mod:`bz2`, :mod:`lzma` and :class:`Inflater` share."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return at most ``max_length`` bytes, keeping the rest for later."""


class Inflater:
    """Bounded zlib decompression with the interface of :class:`bz2.BZ2Decompressor`.

    ``window`` is zlib's ``wbits``: −15 for raw deflate, 31 for gzip.
    """

    def __init__(self, window: int) -> None:
        self._stream = zlib.decompressobj(window)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return at most ``max_length`` bytes."""
        out = self._stream.decompress(self._stream.unconsumed_tail + data, max(0, max_length))
        # A full buffer may hide more output that needs no input.
        self.needs_input = not self._stream.unconsumed_tail and len(out) < max_length
        return out

    @property
    def eof(self) -> bool:
        """True at the end of the compressed stream."""
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        """Bytes after the end of the stream."""
        return self._stream.unused_data


FORMATS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: Inflater(31),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY),
}


class DecompressedFile(io.RawIOBase):
    """The decompressed bytes of a file, forward only; several members in a row are joined.

    Reading raises ``EOFError`` when the file ends inside a member, and the errors of
    the decompressor (:data:`ERRORS`) when a checksum is wrong.
    """

    def __init__(self, file: BinaryIO, form: str) -> None:
        self._file, self._new = file, FORMATS[form]
        self._stream: Decompressor = self._new()
        self._pending = b""
        self._ended = False

    def readable(self) -> bool:
        """True: it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the front of ``buffer``; 0 at the end."""
        room = min(len(buffer), PIECE)
        while not self._ended:
            out = self._step(room)
            if out:
                buffer[: len(out)] = out
                return len(out)
        return 0

    def _step(self, room: int) -> bytes:
        if self._stream.eof:
            # The next member, after padding with zero bytes as tape tools leave it.
            rest = (self._stream.unused_data or self._pending).lstrip(b"\0") or self._read_past_zeros()
            self._pending = rest
            self._ended = not rest
            self._stream = self._new()
            return b""
        data, self._pending = self._pending, b""
        if not data and self._stream.needs_input:
            data = self._file.read(PIECE)
            if not data:
                raise EOFError("the compressed data end early")
        return self._stream.decompress(data, room)

    def _read_past_zeros(self) -> bytes:
        while piece := self._file.read(PIECE):
            if stripped := piece.lstrip(b"\0"):
                return stripped
        return b""
