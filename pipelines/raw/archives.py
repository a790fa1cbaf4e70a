"""Files in a folder, a zip, a tar or a bare file, read by :mod:`zipfile` and :mod:`tarfile`.

Selection of members and size limits are in
:mod:`~kmip_data.pipelines.raw.extract`.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from kmip_data.errors import DamagedInput, KmipDataError, UsageError
from kmip_data.files.path_errors import absent_file_error, unreadable_error
from kmip_data.files.reading import InflateError, open_gzip

HEAD = 512  #: bytes that identify the format of a file
PIECE = 2**18  #: bytes handled at a time
_OPENERS: dict[str, Callable[..., IO[bytes]]] = {
    "gzip": open_gzip,
    "bzip2": bz2.open,
    "xz": lzma.open,
}
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
_SPECIAL = "is a link or a special file"
#: Errors of zipfile, tarfile and the decompressors on damaged bytes; RuntimeError where a password
#: is needed, or headers follow each other for ever.
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, InflateError, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError, OverflowError, MemoryError),
)


@dataclass(frozen=True)
class Entry:
    """A file in an archive, readable until :func:`files_in` moves on."""

    archive: Path
    name: str
    size: int  #: declared bytes
    open: Callable[[], Any]  #: its bytes as a file
    problem: str = ""  #: reason for not reading it, such as a link or device

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the file."""
        with archive_errors(self.archive), self.open() as file:
            while piece := file.read(PIECE):
                yield piece


def files_in(path: Path, bare: str = "") -> Iterator[Entry]:
    """Yield the files of a folder, a zip or a tar (gzip, bzip2, xz or uncompressed), known by content.

    Any other file is yielded itself, as is one that is wanted ``bare``, under that name.
    Links to files are followed, links to folders are not.

    Raises ``UsageError`` if there is no such file, ``DamagedInput`` if it cannot be read.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise absent_file_error(
            path, "check the path given to --archive", "file or folder"
        ) from error
    except (OSError, ValueError) as error:  # also names that are too long or hold NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{path} cannot be read: {reason}.",
            next="check the path given to --archive",
        ) from error
    if stat.S_ISDIR(mode):
        yield from _files_below(path)
        return
    if not stat.S_ISREG(mode):
        raise DamagedInput(
            f"{path} is neither a file nor a folder.",
            next="give --archive a zip, a tar or a folder",
        )
    with archive_errors(path):
        archive_format = sniff_format(first_bytes(path))
        if bare or (archive_format != "zip" and not (archive_format and tarfile.is_tarfile(path))):
            yield Entry(path, bare or path.name, path.stat().st_size, partial(path.open, "rb"))
        elif archive_format == "zip":
            yield from _zip_members(path)
        else:
            yield from _tar_members(path, archive_format)


@contextlib.contextmanager
def archive_errors(path: Path) -> Iterator[None]:
    """Raise ``DamagedInput`` for any error that a library has with an archive."""
    try:
        yield
    except KmipDataError:
        raise
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable_error(path, error) from error
        message = ascii(str(error) or type(error).__name__)[1:-1]
        raise DamagedInput(
            f"{path} is not a complete archive: {' '.join(message.split())[:200]}.",
            next="fetch or copy it again, or unpack it yourself and give the folder with --archive",
        ) from error


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, for :func:`sniff_format`."""
    with archive_errors(path), path.open("rb") as file:
        return file.read(HEAD)


def check_archive(path: Path) -> None:
    """Read an archive to its end; raise DamagedInput where a checksum differs, or the file has none."""
    archive_format = sniff_format(first_bytes(path))
    with archive_errors(path):
        if archive_format == "zip":
            damaged = zipfile.ZipFile(path).testzip()
            if damaged:
                raise zipfile.BadZipFile(f"Bad CRC-32 of {damaged}")
        elif archive_format in _OPENERS:  # a tar in it, too
            with _OPENERS[archive_format](path, "rb") as file:
                while file.read(PIECE):
                    pass
        elif archive_format == "tar":
            for _ in _tar_members(path, archive_format):
                pass
        else:
            raise EOFError("neither its length nor a checksum is known")


def sniff_format(first: bytes) -> str:
    """Return ``zip``, ``tar`` or the compression that the first 512 bytes of a file indicate, if any."""
    if first.startswith((b"PK\3\4", b"PK\5\6")):
        return "zip"
    # A tar has no magic number in every dialect; its header has a checksum.
    with contextlib.suppress(tarfile.TarError):
        tarfile.TarInfo.frombuf(first[:HEAD], "utf-8", "surrogateescape")
        return "tar"
    return next((form for magic, form in _MAGIC.items() if first.startswith(magic)), "")


def _files_below(folder: Path) -> Iterator[Entry]:
    def refuse(error: OSError) -> None:
        raise unreadable_error(Path(error.filename), error) from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file():
                relative = path.relative_to(folder).as_posix()
                yield Entry(folder, relative, path.stat().st_size, partial(path.open, "rb"))


def _zip_members(path: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.endswith("/"):
                continue
            regular = stat.S_IFMT(info.external_attr >> 16) in {0, stat.S_IFREG}
            yield Entry(
                archive=path,
                name=info.filename.removeprefix("./"),
                size=info.file_size,
                open=partial(archive.open, info),
                problem="" if regular else _SPECIAL,
            )


def _tar_members(path: Path, archive_format: str) -> Iterator[Entry]:
    # The decompressors of the library work in pieces of 8 KiB, at 0.7 times the speed.
    with io.BufferedReader(_OPENERS.get(archive_format, open)(path, "rb"), PIECE) as file:
        tar = tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape")
        for info in tar:
            if info.size < 0:  # tarfile would go back, and never end
                raise tarfile.TarError("a header is damaged (a negative size)")
            if not info.isdir():
                yield Entry(
                    archive=path,
                    name=info.name.removeprefix("./"),
                    size=info.size,
                    open=partial(tar.extractfile, info),
                    problem="" if info.isreg() else _SPECIAL,
                )

        # tarfile takes a damaged header, or the end of a cut file, for the end of the list.
        file.seek(tar.offset)
        last = file.read(HEAD)
        if len(last) < HEAD:
            raise tarfile.TarError("it ends early, as after a download that was cut")
        if last.strip(b"\0"):
            raise tarfile.TarError("a header is damaged")
        # Compressed formats have their checksum at the very end.
        while file.read(PIECE):
            pass
