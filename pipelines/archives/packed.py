"""Zip and tar archives that are not trusted: listed and read by :mod:`zipfile` and :mod:`tarfile`.

The two modules parse the headers. Checked here are the limits on names, number and sizes, that members are
regular files, and what the modules pass over: headers that contradict each other, members that overlap or
hide data, damage in the middle of a tar, and headers that claim gigabytes.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, cast

from kmip_data.files.errors import unreadable
from kmip_data.pipelines.archives.decompression import (
    ERRORS,
    DecompressedFile,
    Inflater,
    compression_of,
)
from kmip_data.pipelines.archives.reader import (
    HEAD,
    PIECE,
    Archive,
    Entry,
    Limits,
    NameLedger,
    check_name,
    refusal,
)

_DIRECTORY_BYTES: Final = (
    128  #: of a zip's directory per allowed member, read in one piece before they are counted
)
_EXTENDED_BYTES: Final = 2**17  #: of headers before one member of a tar; a name needs 4,096
_TRAILER_BYTES: Final = 16 * 2**20  #: after the end mark of a tar (tools pad to 10 KiB, some to 1 MiB)
_LOCAL: Final = struct.Struct("<4s5H3L2H")  #: header before a zip member's data (APPNOTE 6.3, 4.3.7)
_ENCRYPTED, _SIZES_FOLLOW, _UNKNOWN = 0x1 | 0x40 | 0x2000, 0x8, 0xFFFFFFFF
_METHODS: Final[dict[int, Any]] = {8: lambda: Inflater(-15), 12: bz2.BZ2Decompressor}
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a fifo",
}
_EARLY: Final = "it ends early, as after a download that was cut"
_BROKEN: Final = (*ERRORS, tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RecursionError)
_BROKEN_VALUES: Final = (ValueError, OverflowError, struct.error)  #: from numbers and text of damaged headers


def is_zip(first: bytes) -> bool:
    """True if a file that begins with ``first`` is a zip archive."""
    return first.startswith((b"PK\3\4", b"PK\5\6"))


def is_tar(first: bytes) -> bool:
    """True if the first 512 bytes of a file are a tar header with a correct checksum."""
    if len(first) < HEAD or not first.strip(b"\0"):
        return False
    try:
        tarfile.TarInfo.frombuf(first[:HEAD], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def open_packed(path: Path) -> Archive | None:
    """Open a zip or tar, recognised by content; ``None`` if the file is neither."""
    with path.open("rb") as file:
        first = file.read(HEAD)
        if is_zip(first):
            return ZipArchive(path)
        if is_tar(first):
            return TarArchive(path, None)
        form = compression_of(first)
        if form is None:
            return None
        file.seek(0)
        stream, head = DecompressedFile(file, form), b""
        with contextlib.suppress(*ERRORS):
            while len(head) < HEAD and (piece := stream.read(HEAD - len(head))):
                head += piece
        return TarArchive(path, form) if is_tar(head) else None


class ZipArchive(Archive):
    """A zip with stored, deflated or bzip2 members; no encryption, one volume, zip64 allowed."""

    kind = "zip"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._infos: dict[int, zipfile.ZipInfo] = {}  #: by position of the header

    def files(self, limits: Limits) -> list[Entry]:
        """List the regular files after checking every header of the archive."""
        ledger, found = NameLedger(self.path), []
        with self._open() as file:
            try:
                archive = zipfile.ZipFile(_Directory(file, _DIRECTORY_BYTES * limits.entries))
            except (*_BROKEN, *_BROKEN_VALUES) as error:
                self.damaged(str(error), error)
            infos = archive.infolist()
            if len(infos) > limits.entries:
                self.damaged(f"it has {len(infos)} members, and {limits.entries} are allowed")
            self._infos = {info.header_offset: info for info in infos}
            end = 0
            for info in sorted(infos, key=lambda info: info.header_offset):
                name, folder = self._check(info)
                ledger.add(name, folder=folder)
                if info.header_offset < end:
                    raise refusal(self.path, name, "overlaps the member before it")
                end = self._data_start(file, info) + info.compress_size
                if not folder:
                    found.append(Entry(name, info.file_size, info.header_offset))
            if end > archive.start_dir:
                raise refusal(self.path, name, "reaches into the directory of the archive")
        return found

    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield wanted entries in the order of their data."""
        with self._open() as file:
            for entry in sorted(wanted, key=lambda entry: entry.offset):
                yield entry, self._pieces(file, self._infos[entry.offset])

    def _open(self) -> io.FileIO:
        try:
            return io.FileIO(self.path)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _check(self, info: zipfile.ZipInfo) -> tuple[str, bool]:
        """Return the name of a member and whether it is a folder; refuse all but regular files."""
        shown = info.orig_filename  # as it is: zipfile cuts names at NUL
        name, mode = check_name(self.path, shown), stat.S_IFMT(info.external_attr >> 16)
        if mode in _KINDS:
            raise refusal(self.path, shown, f"is {_KINDS[mode]}")
        if info.flag_bits & _ENCRYPTED:
            raise refusal(self.path, shown, "is encrypted")
        folder = shown.endswith("/") or mode == stat.S_IFDIR or not name
        if folder and info.file_size:
            raise refusal(self.path, shown, "is a folder that holds data")
        return name, folder

    def _data_start(self, file: io.FileIO, info: zipfile.ZipInfo) -> int:
        """Return where a member's data begin, after a header of its own that agrees with the directory."""
        file.seek(info.header_offset)
        raw = file.read(_LOCAL.size)
        if len(raw) < _LOCAL.size or not raw.startswith(b"PK\3\4"):
            raise refusal(self.path, info.filename, "has no header of its own where the directory says")
        _, _, flags, method, _, _, crc, stored, size, name_length, extra_length = _LOCAL.unpack(raw)
        name = file.read(name_length).decode("utf-8" if flags & 0x800 else "cp437", "replace")
        same = name == info.orig_filename and method == info.compress_type and not flags & _ENCRYPTED
        if not flags & _SIZES_FOLLOW:
            same = same and crc == info.CRC
            same = same and size in {info.file_size, _UNKNOWN} and stored in {info.compress_size, _UNKNOWN}
        if not same:
            raise refusal(self.path, info.filename, "has a header of its own that differs from the directory")
        return int(info.header_offset + _LOCAL.size + name_length + extra_length)

    def _pieces(self, file: io.FileIO, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the bytes of a member; its compressed data and checksum must be exactly those declared."""
        file.seek(self._data_start(file, info))
        if info.compress_type not in {0, *_METHODS}:
            why = f"is compressed by method {info.compress_type}: unpack it yourself and give the folder"
            raise refusal(self.path, info.filename, why)
        stream = _METHODS[info.compress_type]() if info.compress_type else None
        crc, left = 0, info.compress_size
        while left or (stream and not stream.eof):
            data = b""
            if stream is None or stream.needs_input:
                data = file.read(min(PIECE, left))
                left -= len(data)
                if not data:
                    raise refusal(self.path, info.filename, "is damaged: its data end early")
            elif stream.eof:
                break
            try:
                piece = data if stream is None else stream.decompress(data, PIECE)
            except ERRORS as error:
                raise refusal(self.path, info.filename, f"is damaged: {error}") from error
            crc = zlib.crc32(piece, crc)
            yield piece
        if left or (stream and stream.unused_data):
            raise refusal(self.path, info.filename, "has more compressed data than its content needs")
        if crc != info.CRC:
            raise refusal(self.path, info.filename, "is damaged: its CRC-32 differs")


class _Directory(io.RawIOBase):
    """A zip as zipfile reads it: its directory in one piece, which may not be larger than ``most`` bytes."""

    def __init__(self, file: io.FileIO, most: int) -> None:
        self._file, self._most = file, most
        self.seek, self.tell = file.seek, file.tell  # type: ignore[method-assign]

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > self._most:
            raise zipfile.BadZipFile(f"its directory claims {size:,} bytes, and {self._most:,} are allowed")
        return self._file.read(size)


class TarArchive(Archive):
    """A tar of regular files and folders: ustar, GNU or pax headers; gzip, bzip2, xz or none around it.

    It is read twice: once to check every header, once to give out the wanted members.
    """

    kind = "tar"

    def __init__(self, path: Path, compression: str | None) -> None:
        super().__init__(path)
        self._compression = compression

    def files(self, limits: Limits) -> list[Entry]:
        """List the regular files after reading all of the archive once."""
        ledger, total, count = NameLedger(self.path), 0, 0
        found: list[Entry] = []
        with self._open() as stream, self._named_errors():
            tar = tarfile.TarFile(
                fileobj=cast("Any", stream), tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
            )
            while (info := tar.next()) is not None:
                stream.headers, count = 0, count + 1
                tar.members.clear()  # type: ignore[attr-defined] # which tarfile keeps for a second look
                if count > limits.entries:
                    self.damaged(f"it has more than the {limits.entries} members that are allowed")
                if {"path", "size", "linkpath"} & tar.pax_headers.keys():
                    self.damaged("a global header names files")
                name, folder = self._check(info)
                ledger.add(name, folder=folder)
                total += info.size
                if self._compression and total > limits.unpacked:
                    why = f"brings the declared size to {total} bytes, over {limits.unpacked}"
                    raise refusal(self.path, name, why)
                if not folder:
                    found.append(Entry(name, info.size, info.offset_data))
            # Compressed formats keep their checksum at the very end.
            if stream.skip_rest(_TRAILER_BYTES) > _TRAILER_BYTES:
                self.damaged("it goes on after its end mark")
        return found

    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield wanted entries in the order of the archive."""
        with self._open() as stream, self._named_errors():
            for entry in sorted(wanted, key=lambda entry: entry.offset):
                stream.seek(entry.offset)
                yield entry, stream.pieces(entry.size)

    def _open(self) -> _Stream:
        try:
            return _Stream(self.path.open("rb"), self._compression)
        except OSError as error:
            raise unreadable(self.path, error) from error

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            self.damaged(str(error), error)
        except _BROKEN_VALUES as error:
            self.damaged(f"a header is damaged ({error})", error)

    def _check(self, info: tarfile.TarInfo) -> tuple[str, bool]:
        """Return the name of a member and whether it is a folder; refuse all but regular files."""
        if info.size < 0:
            raise refusal(self.path, info.name, "has a negative size")
        if any(key.startswith("GNU.sparse") for key in info.pax_headers) or info.issparse():
            raise refusal(self.path, info.name, "is a sparse file")
        regular = info.type in tarfile.REGULAR_TYPES
        folder = info.isdir() or (regular and info.name.endswith("/"))
        if not folder and not regular:
            kind = _KINDS.get(info.type, f"of type {info.type!r}")
            raise refusal(self.path, info.name, f"is {kind}")
        if folder and info.size:
            raise refusal(self.path, info.name, "is a folder that holds data")
        name = check_name(self.path, info.name)
        if not name and not folder:
            raise refusal(self.path, info.name, "has an empty name")
        if any("\0" in value for value in info.pax_headers.values()):  # a record that is longer than it says
            self.damaged("an extended header is damaged")
        return name, folder


class _Header(tarfile.TarInfo):
    """A header of a tar; where tarfile ends its list at a damaged one, it is an error."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            early = len(buf) < HEAD
            why = _EARLY if early else f"a header is damaged ({error})"
            raise tarfile.ReadError(why) from error
        if info.type == tarfile.GNUTYPE_SPARSE:  # before tarfile reads its map
            raise tarfile.ReadError(f"its member {info.name!a} is a sparse file")
        return info


class _Stream:
    """The decompressed bytes of a tar, forward only, as much of a file as tarfile needs.

    ``headers`` counts bytes read since the caller set it to 0; too many are a :class:`tarfile.ReadError`,
    since tarfile reads an extended header of any declared size into memory, and any number of them.
    """

    def __init__(self, file: BinaryIO, compression: str | None) -> None:
        self._file, self._seekable = file, compression is None
        self._bytes: BinaryIO = (
            io.BufferedReader(DecompressedFile(file, compression), PIECE) if compression else file
        )
        self._position = self.headers = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def tell(self) -> int:
        return self._position

    def read(self, count: int) -> bytes:
        """Return the next bytes of headers; fewer at the end."""
        self.headers += count
        if self.headers > _EXTENDED_BYTES:
            raise tarfile.ReadError(f"an extended header claims {self.headers:,} bytes")
        return self._read(count)

    def _read(self, count: int) -> bytes:
        data = self._bytes.read(count)
        self._position += len(data)
        return data

    def seek(self, position: int) -> None:
        """Go forward; the bytes must be there."""
        if position < self._position:
            raise tarfile.ReadError("a header is damaged (it leads back)")
        if self._seekable and position > self._position:
            # The last byte is read, so that a file cut inside the gap is noticed.
            self._file.seek(position - 1)
            self._position = position - 1
        for _ in self.pieces(position - self._position):
            pass

    def pieces(self, count: int) -> Iterator[bytes]:
        """Yield ``count`` bytes piece by piece."""
        while count:
            piece = self._read(min(PIECE, count))
            if not piece:
                raise tarfile.ReadError(_EARLY)
            count -= len(piece)
            yield piece

    def skip_rest(self, most: int) -> int:
        """Read on to the end, or a little past ``most`` bytes; return how many there were."""
        start = self._position
        while self._position - start <= most and self._read(PIECE):
            pass
        return self._position - start
