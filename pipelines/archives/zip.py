"""Read zip archives without trusting them: both sets of headers must agree and no members may overlap."""

from __future__ import annotations

import bz2
import os
import stat
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from kmip_data.files.errors import unreadable
from kmip_data.pipelines.archives.decompression import ERRORS, PIECE, Inflater
from kmip_data.pipelines.archives.entries import Archive, Entry, Limits
from kmip_data.pipelines.archives.names import NameLedger, check_name, refusal

# PKWARE APPNOTE 6.3: sections 4.3.16 (end record), 4.3.15 (zip64 locator), 4.3.14, 4.3.12, 4.3.7.
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s4B4H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_MAX_DIRECTORY = 48 * 2**20
_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 0x1 | 0x40 | 0x2000, 0x8, 0x800
_UNKNOWN16, _UNKNOWN32 = 0xFFFF, 0xFFFFFFFF

_METHODS: dict[int, Callable[[], Any]] = {8: lambda: Inflater(-15), 12: bz2.BZ2Decompressor}
_TYPES = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
}


@dataclass(frozen=True, slots=True)
class ZipEntry(Entry):
    """A plain file in a zip, with what its central header says."""

    offset: int
    stored: int
    method: int
    crc: int
    flags: int
    raw_name: bytes


class ZipArchive(Archive):
    """A zip with stored, deflated or bzip2 members; no encryption, one volume, zip64 allowed."""

    kind = "zip"

    def files(self, limits: Limits) -> list[Entry]:
        """List the plain files after checking every header of the archive."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise unreadable(self.path, error) from error
        try:
            start, directory = self._read_directory(descriptor, limits)
            members, ledger = [], NameLedger(self.path)
            for entry, folder in self._parse_directory(directory, limits):
                ledger.add(entry.name, folder=folder)
                members.append((entry, folder))
            self._check_local_headers(descriptor, [entry for entry, _ in members], start)
        finally:
            os.close(descriptor)
        return [entry for entry, folder in members if not folder]

    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield wanted entries in the order of their data."""
        chosen = [entry for entry in wanted if isinstance(entry, ZipEntry)]
        with self.path.open("rb", buffering=0) as file:
            for entry in sorted(chosen, key=lambda entry: entry.offset):
                yield entry, self._pieces(file.fileno(), entry)

    def _read_directory(self, descriptor: int, limits: Limits) -> tuple[int, bytes]:
        """Return the central directory and where it starts."""
        size = os.fstat(descriptor).st_size
        tail_start = max(0, size - _END.size - 0xFFFF)
        tail = os.pread(descriptor, size - tail_start, tail_start)
        at = tail.rfind(b"PK\5\6")
        if at < 0 or at + _END.size > len(tail):
            self.damaged("its end record is missing, as after a download that was cut")
        _, disk, first_disk, here, count, length, start, _ = _END.unpack_from(tail, at)
        end = tail_start + at
        if _UNKNOWN16 in {count, here} or _UNKNOWN32 in {length, start}:
            disk, first_disk, here, count, length, start, end = self._read_end64(descriptor, end)
        if disk or first_disk or here != count:
            self.damaged("it is one volume of several")
        if count > limits.entries:
            self._too_many(count, limits)
        if length > _MAX_DIRECTORY:
            self.damaged(f"its directory claims {length} bytes")
        if start + length != end:
            self.damaged("its directory is not where its end record says")
        return start, os.pread(descriptor, length, start)

    def _read_end64(self, descriptor: int, end: int) -> tuple[int, int, int, int, int, int, int]:
        raw = os.pread(descriptor, _LOCATOR.size, end - _LOCATOR.size) if end >= _LOCATOR.size else b""
        if len(raw) < _LOCATOR.size or not raw.startswith(b"PK\6\7"):
            self.damaged("its zip64 end record is missing")
        position = _LOCATOR.unpack(raw)[2]
        raw = os.pread(descriptor, _END64.size, position) if position < end else b""
        if len(raw) < _END64.size or not raw.startswith(b"PK\6\6"):
            self.damaged("its zip64 end record is missing")
        _, _, _, _, disk, first_disk, here, count, length, start = _END64.unpack(raw)
        return disk, first_disk, here, count, length, start, position

    def _too_many(self, count: int, limits: Limits) -> NoReturn:
        self.damaged(f"it has at least {count} members, and {limits.entries} are allowed")

    def _parse_directory(self, directory: bytes, limits: Limits) -> Iterator[tuple[ZipEntry, bool]]:
        """Yield (entry, is a folder) for each central header."""
        at, count = 0, 0
        while at < len(directory):
            if at + _CENTRAL.size > len(directory) or directory[at : at + 4] != b"PK\1\2":
                self.damaged("its directory is damaged")
            fields = _CENTRAL.unpack_from(directory, at)
            flags, method = fields[5:7]
            crc, stored, size, name_length, extra_length, comment_length = fields[9:15]
            attributes, offset = fields[17:19]
            at += _CENTRAL.size
            raw_name = directory[at : at + name_length]
            extra = directory[at + name_length : at + name_length + extra_length]
            at += name_length + extra_length + comment_length
            count += 1
            if at > len(directory):
                self.damaged("its directory is damaged")
            if count > limits.entries:
                self._too_many(count, limits)
            size, stored, offset = self._widen(extra, size, stored, offset)
            shown = raw_name.decode("utf-8" if flags & _UTF8 else "cp437", "surrogateescape")
            name = check_name(self.path, shown)
            mode = stat.S_IFMT(attributes >> 16)
            if mode in _TYPES:
                raise refusal(self.path, shown, f"is {_TYPES[mode]}")
            if flags & _ENCRYPTED:
                raise refusal(self.path, shown, "is encrypted")
            folder = shown.endswith("/") or mode == stat.S_IFDIR or not name
            if folder and size:
                raise refusal(self.path, shown, "is a folder that holds data")
            yield ZipEntry(name, size, offset, stored, method, crc, flags, raw_name), folder

    def _widen(self, extra: bytes, size: int, stored: int, offset: int) -> tuple[int, int, int]:
        """Take 64-bit values from the zip64 extra field (APPNOTE 4.5.3) where the 32-bit ones are full."""
        values = [size, stored, offset]
        if _UNKNOWN32 not in values:
            return size, stored, offset
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<HH", extra, at)
            if kind == 1:
                wide = [v for (v,) in struct.iter_unpack("<Q", extra[at + 4 : at + 4 + length // 8 * 8])]
                for i, value in enumerate(values):
                    if value == _UNKNOWN32 and wide:
                        values[i] = wide.pop(0)
                break
            at += 4 + length
        return values[0], values[1], values[2]

    def _check_local_headers(self, descriptor: int, entries: list[ZipEntry], directory_start: int) -> None:
        """Refuse members whose own header says otherwise than the directory, or which overlap."""
        end = 0
        for entry in sorted(entries, key=lambda entry: entry.offset):
            if entry.offset < end:
                raise refusal(self.path, entry.name, "overlaps the member before it")
            end = self._data_start(descriptor, entry) + entry.stored
            if end > directory_start:
                raise refusal(self.path, entry.name, "reaches into the directory of the archive")

    def _data_start(self, descriptor: int, entry: ZipEntry) -> int:
        raw = os.pread(descriptor, _LOCAL.size + len(entry.raw_name), entry.offset)
        if len(raw) < _LOCAL.size or not raw.startswith(b"PK\3\4"):
            raise refusal(self.path, entry.name, "has no header of its own where the directory says")
        _, _, flags, method, _, _, crc, stored, size, name_length, extra_length = _LOCAL.unpack_from(raw)
        same = (
            raw[_LOCAL.size :] == entry.raw_name
            and name_length == len(entry.raw_name)
            and method == entry.method
            and flags & _ENCRYPTED == 0
        )
        if not flags & _SIZES_FOLLOW:
            same = same and crc == entry.crc
            same = same and size in {entry.size, _UNKNOWN32} and stored in {entry.stored, _UNKNOWN32}
        if not same:
            raise refusal(self.path, entry.name, "has a header of its own that differs from the directory")
        return entry.offset + _LOCAL.size + int(name_length) + int(extra_length)

    def _pieces(self, descriptor: int, entry: ZipEntry) -> Iterator[bytes]:
        position = self._data_start(descriptor, entry)
        end = position + entry.stored
        crc = 0
        for piece in self._unpacked(descriptor, entry, position, end):
            crc = zlib.crc32(piece, crc)
            yield piece
        if crc != entry.crc:
            raise refusal(self.path, entry.name, "is damaged: its CRC-32 differs")

    def _unpacked(self, descriptor: int, entry: ZipEntry, position: int, end: int) -> Iterator[bytes]:
        if entry.method == 0:
            while position < end:
                piece = self._pread(descriptor, entry, position, end)
                position += len(piece)
                yield piece
            return
        if entry.method not in _METHODS:
            raise refusal(
                self.path,
                entry.name,
                f"is compressed by method {entry.method}, which is not read here: "
                "unpack the archive yourself and give the folder",
            )
        stream = _METHODS[entry.method]()
        while not stream.eof:
            data = b""
            if stream.needs_input and position < end:
                data = self._pread(descriptor, entry, position, end)
                position += len(data)
            elif stream.needs_input:
                raise refusal(self.path, entry.name, "is damaged: its compressed data end early")
            try:
                yield stream.decompress(data, PIECE)
            except ERRORS as error:
                raise refusal(self.path, entry.name, f"is damaged: {error}") from error
        if position < end or stream.unused_data:
            raise refusal(self.path, entry.name, "has more compressed data than its content needs")

    def _pread(self, descriptor: int, entry: ZipEntry, position: int, end: int) -> bytes:
        try:
            piece = os.pread(descriptor, min(PIECE, end - position), position)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if not piece:
            raise refusal(self.path, entry.name, "is cut short")
        return piece


def is_zip(first: bytes) -> bool:
    """Whether ``first``, the beginning of a file, is that of a zip archive."""
    return first.startswith((b"PK\3\4", b"PK\5\6"))
