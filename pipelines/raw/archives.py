"""Archives from anywhere: a folder, a zip, a tar or a bare file, listed and read within limits.

:mod:`zipfile` and :mod:`tarfile` parse the headers, and their view of an archive is the one that is
taken. Here are the limits on number, names and sizes, which neither has, and a check that a tar has
its end mark. Names and types are checked for wanted members
(:mod:`~kmip_data.pipelines.raw.extract`).
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import math
import os
import re
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NoReturn, cast

from kmip_data.errors import DamagedInput, UsageError, unreadable

HEAD = 512  #: bytes from which the kind of a file is recognised
PIECE = 2**18  #: bytes handled at a time
_MAX_COMPONENT = 255  #: bytes of one part of a name, the limit of common file systems
_MAX_NAMES = 32 * 2**20  #: characters of all names of a tar
#: Bytes of a zip's directory per allowed member; zipfile reads it in one piece.
_DIRECTORY_BYTES = 128
_EXTENDED_BYTES = 2**17  #: bytes of headers before one member of a tar; a name needs 4,096
#: Bytes after the end mark of a tar (tools pad to 10 KiB, some to 1 MiB).
_TRAILER_BYTES = 16 * 2**20
_OPENERS: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
_EARLY = "it ends early, as after a download that was cut"
#: Errors of zipfile, tarfile and the decompressors on damaged or hostile bytes; RuntimeError where
#: a password is needed, a method is not known, or headers follow each other for ever.
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError, OverflowError, MemoryError),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in an archive."""

    name: str
    size: int  #: declared bytes
    offset: int = 0  #: position of its data in a tar, of its header in a zip
    fault: str = ""  #: reason that it is not read: it is a link, a device


class Archive(ABC):
    """A zip, a tar, a folder, or one bare file."""

    kind: ClassVar[str]  #: for messages

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def files(self, most: int, unpacked: int) -> list[Entry]:
        """List the files, at most ``most``; a compressed tar may declare ``unpacked`` bytes in all.

        Raises ``DamagedInput`` where the archive is damaged or beyond these limits.
        """

    @abstractmethod
    def pieces(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Yield the bytes of wanted entries, in the archive's order and pieces of at most 256 KiB.

        Every entry has at least one piece, and its pieces follow each other.
        """

    def damaged(self, why: str, error: BaseException | None = None) -> NoReturn:
        """Raise ``DamagedInput``: the archive itself is incomplete, damaged or beyond a limit."""
        raise DamagedInput(
            f"{self.path} is not a whole {self.kind} archive: {why}.",
            next="fetch or copy it again, or unpack it yourself and give the folder with --archive",
        ) from error

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            message = ascii(str(error) or type(error).__name__)[1:-1]
            self.damaged(" ".join(message.split())[:200], error)
        except OSError as error:
            if error.errno is None:  # of a decompressor
                self.damaged(str(error), error)
            raise unreadable(self.path, error) from error


class FolderArchive(Archive):
    """An unpacked archive.

    A link to a file is followed if it stays inside the folder; no other is.
    """

    kind = "folder"

    def files(self, most: int, unpacked: int) -> list[Entry]:
        """List the regular files below the folder."""
        entries = []
        for parent, folders, names in os.walk(self.path, onerror=_refuse_folder):
            folders.sort()
            for name in sorted(names):
                path = Path(parent, name)
                if path.is_file():
                    relative = path.relative_to(self.path).as_posix()
                    entries.append(Entry(relative, path.stat().st_size))
            if len(entries) > most:
                raise UsageError(
                    f"{self.path} holds more than {most:,} files, too many to be searched.",
                    next="give --archive the folder that holds the data itself",
                )
        return entries

    def pieces(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Yield the bytes of wanted entries in the order given."""
        root = Path(os.path.realpath(self.path))
        for entry in wanted:
            real = Path(os.path.realpath(root / entry.name))
            if not real.is_relative_to(root):
                raise refusal(
                    self.path,
                    entry.name,
                    f"is a link to {real}, which is outside",
                )
            with self._named_errors(), real.open("rb") as file:
                yield from _pieces(entry, file)


def _refuse_folder(error: OSError) -> NoReturn:
    raise unreadable(Path(error.filename), error) from error


class BareFile(Archive):
    """One file as it is: its only member, under its own name unless another is given."""

    kind = "file"

    def __init__(self, path: Path, name: str | None = None) -> None:
        super().__init__(path)
        self.name = path.name if name is None else name

    def files(self, most: int, unpacked: int) -> list[Entry]:
        """List the file."""
        return [Entry(self.name, self.path.stat().st_size)]

    def pieces(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Yield the bytes of the file."""
        for entry in wanted:
            with self._named_errors(), self.path.open("rb") as file:
                yield from _pieces(entry, file)


class ZipArchive(Archive):
    """A zip with stored or deflated members; no encryption, one volume, zip64 allowed."""

    kind = "zip"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._infos: dict[int, zipfile.ZipInfo] = {}  #: by position of the header

    def files(self, most: int, unpacked: int) -> list[Entry]:
        """List the files of the directory."""
        with self._opened(_DIRECTORY_BYTES * most) as archive:
            infos = [info for info in archive.infolist() if not info.orig_filename.endswith("/")]
        if len(infos) > most:
            self.damaged(f"it has {len(infos)} members, and {most} are allowed")
        self._infos = {info.header_offset: info for info in infos}
        return [
            Entry(
                name=_relative(info.orig_filename),
                size=info.file_size,
                offset=info.header_offset,
                fault=_zip_fault(info),
            )
            for info in infos
        ]

    def pieces(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Yield the bytes of wanted entries in the order of their data.

        The module ``zipfile`` compares the checksums.
        """
        with self._opened(math.inf) as archive:
            for entry in sorted(wanted, key=lambda entry: entry.offset):
                with archive.open(self._infos[entry.offset]) as member:
                    yield from _pieces(entry, cast(BinaryIO, member), entry.size)

    @contextlib.contextmanager
    def _opened(self, directory: float) -> Iterator[zipfile.ZipFile]:
        with self._named_errors(), self.path.open("rb") as file:
            limited = _Limited(file, directory)
            with zipfile.ZipFile(cast(Any, limited)) as archive:
                limited.room = math.inf
                yield archive


def _zip_fault(info: zipfile.ZipInfo) -> str:
    if stat.S_IFMT(info.external_attr >> 16) not in {0, stat.S_IFREG}:
        return "is a link or a special file"
    # zipfile decompresses bzip2 and LZMA without a limit: 4 KiB can become gigabytes.
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        return (
            f"is compressed by method {info.compress_type}: unpack it yourself and give the folder"
        )
    return ""


class TarArchive(Archive):
    """A tar, with gzip, bzip2, xz or none around it.

    It is read once for its headers, once for wanted members.
    """

    kind = "tar"

    def __init__(self, path: Path, compression: str | None) -> None:
        super().__init__(path)
        self._compression = compression

    def files(self, most: int, unpacked: int) -> list[Entry]:
        """List the files after reading all of the archive once."""
        entries = []
        count = total = names = 0
        with self._opened() as file:
            limited = _Limited(file, _EXTENDED_BYTES)
            tar = tarfile.TarFile(
                fileobj=cast(Any, limited),
                encoding="utf-8",
                errors="surrogateescape",
            )
            # Header after header: each limit is checked before the next one is read.
            while (info := tar.next()) is not None:
                limited.room = _EXTENDED_BYTES
                tar.members.clear()  # type: ignore[attr-defined] # which tarfile keeps for a second look
                cast(dict[str, str], tar.pax_headers).clear()  # what global headers say is remarks
                count = count + 1
                total = total + info.size
                names = names + len(info.name)
                if count > most:
                    self.damaged(f"it has more than the {most} members that are allowed")
                if info.size < 0:
                    self.damaged("a header is damaged (a negative size)")
                if self._compression and total > unpacked:
                    self.damaged(
                        f"its members declare {total:,} bytes, and {unpacked:,} are allowed"
                    )
                if names > _MAX_NAMES:
                    self.damaged(f"its names have more than {_MAX_NAMES:,} characters")
                if not info.isdir():
                    regular = info.isreg() and not info.issparse()
                    fault = "" if regular else "is a link, sparse or a special file"
                    name = _relative(info.name)
                    entries.append(Entry(name, info.size, info.offset_data, fault))
            # tarfile takes a damaged header, or the end of a cut file, for the end of the list.
            if len(limited.last) < HEAD or limited.last.strip(b"\0"):
                self.damaged("a header is damaged" if len(limited.last) == HEAD else _EARLY)
            # Compressed formats keep their checksum at the very end.
            trailer = 0
            while piece := file.read(PIECE):
                trailer += len(piece)
                if trailer > _TRAILER_BYTES:
                    self.damaged("it goes on after its end mark")
        return entries

    def pieces(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, bytes]]:
        """Yield the bytes of wanted entries in the order of the archive."""
        with self._opened() as file:
            # By position: a compressed tar is never read backwards.
            for entry in sorted(wanted, key=lambda entry: entry.offset):
                file.seek(entry.offset)
                yield from _pieces(entry, file, entry.size)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with self._named_errors():
            opener: Any = _OPENERS[self._compression] if self._compression else Path.open
            packed = opener(self.path, "rb")
            # The decompressors of the library work in pieces of 8 KiB, at 0.7 times the speed.
            with io.BufferedReader(packed, PIECE) as file:
                yield cast(BinaryIO, file)


class _Limited:
    """A file of which at most ``room`` more bytes are read: headers claim any size, and are read at once."""

    def __init__(self, file: BinaryIO, room: float) -> None:
        self._file = file
        self.room = room
        self.last = b""
        self.seek = file.seek
        self.tell = file.tell

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        self.room -= max(size, 0)
        if self.room < 0:
            raise ValueError(f"its headers claim {size:,} bytes")
        self.last = self._file.read(size)
        return self.last


def _pieces(
    entry: Entry,
    file: BinaryIO,
    left: float = math.inf,
) -> Iterator[tuple[Entry, bytes]]:
    """Yield the next ``left`` bytes of a file, or all; an empty piece where there are none."""
    while True:
        piece = file.read(int(min(PIECE, left)))
        yield entry, piece
        left -= len(piece)
        if not piece or not left:
            return


def _relative(name: str) -> str:
    while name.startswith("./"):
        name = name[2:]
    return name


def kind_of(first: bytes) -> str:
    """Return ``zip``, ``tar`` or the compression that the first 512 bytes of a file indicate, if any."""
    if first.startswith((b"PK\3\4", b"PK\5\6")):
        return "zip"
    # A tar has no magic number in every dialect; its header has a checksum.
    with contextlib.suppress(tarfile.TarError):
        tarfile.TarInfo.frombuf(first[:HEAD], "utf-8", "surrogateescape")
        return "tar"
    return next((form for magic, form in _MAGIC.items() if first.startswith(magic)), "")


def open_archive(path: Path) -> Archive:
    """Open a zip, a tar (gzip, bzip2, xz or uncompressed), a folder or a bare file, recognised by content.

    Raises ``UsageError`` if there is no such file, ``DamagedInput`` if it cannot be read.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # also names that are too long or hold NUL
        reason = getattr(error, "strerror", None) or str(error)
        what = f"There is no file or folder {path}: {reason}."
        raise UsageError(what, next="check the path given to --archive") from error
    if stat.S_ISDIR(mode):
        return FolderArchive(path)
    if not stat.S_ISREG(mode):
        what = f"{path} is neither a file nor a folder."
        raise DamagedInput(what, next="give --archive a zip, a tar or a folder")
    try:
        with path.open("rb") as file:
            first = file.read(HEAD)
    except OSError as error:
        raise unreadable(path, error) from error
    kind = kind_of(first)
    compression = None
    if kind == "zip":
        return ZipArchive(path)
    if kind in _OPENERS:
        # What the compression holds decides: a tar, or one bare file.
        compression = kind
        with contextlib.suppress(*_BROKEN, OSError), _OPENERS[kind](path) as file:
            kind = kind_of(file.read(HEAD))
    return TarArchive(path, compression) if kind == "tar" else BareFile(path)


def refusal(archive: Path, member: str, why: str) -> DamagedInput:
    """Return the error for a member that is refused.

    ``why`` continues the sentence after its name.
    """
    shown = ascii(member if len(member) <= 100 else f"{member[:60]}…{member[-30:]}")
    return DamagedInput(
        f"{archive} is refused: its member {shown} {why}.",
        next="use a fresh copy from one of the sources that `kmip-data info NAME` lists",
    )


def check_name(archive: Path, name: str) -> str:
    """Return ``name`` if it is a clean relative path with ``/`` that any file system can hold."""
    parts = name.split("/")
    longest = max(len(part.encode("utf-8", "replace")) for part in parts)
    # Characters that would write over a terminal, or hide the end of a name.
    control = any(unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"} for c in name)
    faults = {
        "has a name that is not valid UTF-8": name.encode("utf-8", "replace").decode() != name,
        "has control characters in its name": control,
        "has a backslash or a drive letter in its name": "\\" in name
        or re.match("[A-Za-z]:", name),
        "has an empty or absolute name, or '..' in it": {"", ".", ".."} & set(parts),
        f"has a part longer than {_MAX_COMPONENT} bytes in its name": longest > _MAX_COMPONENT,
    }
    for why, wrong in faults.items():
        if wrong:
            raise refusal(archive, name, why)
    return name


def folded(name: str) -> str:
    """Return the name as seen by file systems that ignore case and Unicode forms."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
