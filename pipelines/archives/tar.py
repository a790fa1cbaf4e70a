"""Read tar archives, plain or compressed, as a stream and without trusting them: plain files only."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from kmip_data.files.errors import unreadable
from kmip_data.pipelines.archives.decompression import ERRORS, PIECE, DecompressedFile
from kmip_data.pipelines.archives.entries import Archive, Entry, Limits
from kmip_data.pipelines.archives.names import NameLedger, check_name, refusal

_BLOCK = 512
_MAX_EXTENDED = 2**16  #: bytes of one extended header; a name needs 4,096
_MAX_TRAILER = 16 * 2**20  #: bytes after the end mark (tools pad to 10 KiB, some to 1 MiB)
_FILES = {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE}
_PAX = {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}
_TYPES = {
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a fifo",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True, slots=True)
class TarEntry(Entry):
    """A plain file in a tar and its place among all members."""

    index: int


class TarArchive(Archive):
    """A tar of plain files and folders: ustar, GNU or pax headers; gzip, bzip2, xz or none around it.

    It is read twice: once to check every header, once to give out the wanted members.
    """

    kind = "tar"

    def __init__(self, path: Path, compression: str | None) -> None:
        super().__init__(path)
        self._compression = compression

    def files(self, limits: Limits) -> list[Entry]:
        """List the plain files after reading the whole archive once."""
        ledger, total = NameLedger(self.path), 0
        found: list[Entry] = []
        with self._open() as stream:
            for entry, folder in self._members(stream, limits.entries):
                ledger.add(entry.name, folder=folder)
                total += entry.size
                if self._compression and total > limits.unpacked:
                    raise refusal(
                        self.path,
                        entry.name,
                        f"brings the declared size to {total} bytes, over {limits.unpacked}",
                    )
                if not folder:
                    found.append(entry)
            # Compressed formats keep their checksum at the very end.
            if stream.skip_rest(_MAX_TRAILER) > _MAX_TRAILER:
                self.damaged("it goes on after its end mark")
        return found

    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield wanted entries in the order of the archive."""
        chosen = {entry.index: entry for entry in wanted if isinstance(entry, TarEntry)}
        with self._open() as stream:
            for entry, _ in self._members(stream, sys.maxsize):
                if not chosen:
                    return
                expected = chosen.pop(entry.index, None)
                if expected is not None:
                    if entry != expected:
                        self.damaged("it changed while it was read")
                    yield entry, stream.pieces(entry.size)
        if chosen:
            self.damaged("it changed while it was read")

    def _open(self) -> _Stream:
        try:
            return _Stream(self.path.open("rb"), self._compression, self)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _members(self, stream: _Stream, most: int) -> Iterator[tuple[TarEntry, bool]]:
        """Yield (entry, is a folder) with the stream at the entry's data."""
        index = headers = 0
        long_name: str | None = None
        long_size: int | None = None
        while True:
            block = stream.exactly(_BLOCK)
            if not block.strip(b"\0"):
                return
            headers += 1
            if index >= most or headers > 4 * most:
                self.damaged(f"it has more than the {most} members that are allowed")
            try:
                info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except tarfile.HeaderError as error:
                self.damaged(f"a header is damaged ({error})")
            if info.size < 0:
                raise refusal(self.path, info.name, "has a negative size")
            if info.type in _PAX:
                name, size = self._pax(stream, info)
                long_name, long_size = name or long_name, size if size is not None else long_size
                continue
            if info.type == tarfile.GNUTYPE_LONGNAME:
                data = self._extended(stream, info)
                long_name = data.split(b"\0")[0].decode("utf-8", "surrogateescape")
                continue
            if info.type == tarfile.XGLTYPE:
                if any(key in {"path", "size", "linkpath"} for key, _ in self._records(stream, info)):
                    self.damaged("a global header names files")
                continue
            if info.type == tarfile.GNUTYPE_LONGLINK:
                raise refusal(self.path, info.name, "is a link")
            shown = long_name if long_name is not None else info.name
            size = long_size if long_size is not None else info.size
            long_name = long_size = None
            folder = info.type == tarfile.DIRTYPE or (info.type in _FILES and shown.endswith("/"))
            if not folder and info.type not in _FILES:
                raise refusal(self.path, shown, f"is {_TYPES.get(info.type, f'of type {info.type!r}')}")
            if folder and size:
                raise refusal(self.path, shown, "is a folder that holds data")
            name = check_name(self.path, shown)
            if not name and not folder:
                raise refusal(self.path, shown, "has an empty name")
            after = stream.position + -(-size // _BLOCK) * _BLOCK
            yield TarEntry(name, size, index), folder
            index += 1
            stream.skip_to(after)

    def _extended(self, stream: _Stream, info: tarfile.TarInfo) -> bytes:
        if info.size > _MAX_EXTENDED:
            self.damaged(f"an extended header claims {info.size} bytes")
        return stream.exactly(-(-info.size // _BLOCK) * _BLOCK)[: info.size]

    def _records(self, stream: _Stream, info: tarfile.TarInfo) -> Iterator[tuple[str, str]]:
        """Yield the ``length key=value`` records of a pax header (POSIX.1-2001, pax)."""
        rest = self._extended(stream, info)
        while rest:
            digits, _, _ = rest.partition(b" ")
            length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
            record = rest[len(digits) + 1 : length - 1]
            if length > len(rest) or b"=" not in record:
                self.damaged("an extended header is damaged")
            key, _, value = record.decode("utf-8", "surrogateescape").partition("=")
            rest = rest[length:]
            yield key, value

    def _pax(self, stream: _Stream, info: tarfile.TarInfo) -> tuple[str | None, int | None]:
        """Return the name and size that a pax header gives to the next member."""
        name: str | None = None
        size: int | None = None
        for key, value in self._records(stream, info):
            if key == "path":
                name = value
            elif key == "size":
                if not value.isdecimal() or len(value) > 18:
                    self.damaged("an extended header is damaged")
                size = int(value)
            elif key.startswith("GNU.sparse"):
                raise refusal(self.path, info.name, "is a sparse file")
        return name, size


class _Stream:
    """The bytes of a tar, forward only, with the position; its errors are those of the archive."""

    def __init__(self, file: BinaryIO, compression: str | None, archive: TarArchive) -> None:
        self._file, self._archive = file, archive
        self._seekable = compression is None
        self._bytes: BinaryIO = (
            io.BufferedReader(DecompressedFile(file, compression), PIECE) if compression else file
        )
        self.position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read(self, count: int) -> bytes:
        try:
            data = self._bytes.read(count)
        except ERRORS as error:
            self._archive.damaged(str(error))
        self.position += len(data)
        return data

    def exactly(self, count: int) -> bytes:
        """Return ``count`` bytes; a shorter rest is damage."""
        data = self._read(count)
        if len(data) < count:
            self._archive.damaged("it ends early, as after a download that was cut")
        return data

    def pieces(self, count: int) -> Iterator[bytes]:
        """Yield ``count`` bytes piece by piece."""
        while count:
            piece = self.exactly(min(PIECE, count))
            count -= len(piece)
            yield piece

    def skip_to(self, position: int) -> None:
        """Go forward to ``position``; the bytes must be there."""
        if self._seekable and position > self.position:
            # The last byte is read, so that a file cut inside the gap is noticed.
            self._file.seek(position - 1)
            self.position = position - 1
        while self.position < position:
            self.exactly(min(PIECE, position - self.position))

    def skip_rest(self, most: int) -> int:
        """Read on to the end, or a little past ``most`` bytes; return how many there were."""
        count = 0
        while count <= most and (piece := self._read(PIECE)):
            count += len(piece)
        return count
