"""Read the files of a folder, a zip, a tar, or a single file.

:mod:`~kmip_data.pipelines.raw.extract` selects members and limits their size.
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
from kmip_data.files.small_files import InflateError, open_gzip

HEAD_BYTES = 512  #: bytes that identify the format of a file
CHUNK_BYTES = 2**18
_OPENERS: dict[str, Callable[..., IO[bytes]]] = {
    "gzip": open_gzip,
    "bzip2": bz2.open,
    "xz": lzma.open,
}
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
_NOT_A_REGULAR_FILE = "is a link or a special file"
#: errors of zipfile, tarfile and the decompressors for damaged bytes; RuntimeError if a password is
#: needed, or for an endless chain of headers
_ARCHIVE_ERRORS = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, InflateError, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError, OverflowError, MemoryError),
)


@dataclass(frozen=True)
class ArchiveEntry:
    """File in an archive, readable until :func:`files_in` yields the next one."""

    archive: Path
    name: str
    size: int  #: declared size in bytes
    open: Callable[[], Any]  #: opens the file for reading
    problem: str = ""  #: reason to refuse it, such as being a link

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the file."""
        with convert_archive_errors(self.archive), self.open() as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


def files_in(path: Path, as_member: str = "") -> Iterator[ArchiveEntry]:
    """Yield the files of a folder, a zip or a tar (gzip, bzip2, xz or uncompressed).

    The format is recognised by content. Any other file is itself the only entry. With ``as_member``,
    even an archive is not opened: it is the only entry, under that name. Links to files are
    followed, links to folders are not.

    Raises ``UsageError`` if ``path`` does not exist, and ``DamagedInput`` if it cannot be read.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise absent_file_error(path, "check the path of the archive", "file or folder") from error
    except (OSError, ValueError) as error:  # includes names that are too long or contain NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{path} cannot be read: {reason}.",
            steps="check the path of the archive",
        ) from error
    if stat.S_ISDIR(mode):
        yield from _files_below(path)
        return
    if not stat.S_ISREG(mode):
        raise DamagedInput(
            f"{path} is neither a file nor a folder.",
            steps="use a zip, a tar or a folder",
        )
    with convert_archive_errors(path):
        archive_format = sniff_format(first_bytes(path))
        if as_member or (
            archive_format != "zip" and not (archive_format and tarfile.is_tarfile(path))
        ):
            yield ArchiveEntry(
                path, as_member or path.name, path.stat().st_size, partial(path.open, "rb")
            )
        elif archive_format == "zip":
            yield from _zip_members(path)
        else:
            yield from _tar_members(path, archive_format)


@contextlib.contextmanager
def convert_archive_errors(path: Path) -> Iterator[None]:
    """Convert the errors of archive libraries to ``DamagedInput``."""
    try:
        yield
    except KmipDataError:
        raise
    except (*_ARCHIVE_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable_error(path, error) from error
        message = ascii(str(error) or type(error).__name__)[1:-1]
        raise DamagedInput(
            f"{path} is not a complete archive: {' '.join(message.split())[:200]}.",
            steps="fetch or copy it once more, or unpack it yourself and use the folder",
        ) from error


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, for :func:`sniff_format`."""
    with convert_archive_errors(path), path.open("rb") as file:
        return file.read(HEAD_BYTES)


def check_archive(path: Path) -> None:
    """Read a whole archive; raise ``DamagedInput`` if a checksum differs or none exists."""
    archive_format = sniff_format(first_bytes(path))
    with convert_archive_errors(path):
        if archive_format == "zip":
            damaged = zipfile.ZipFile(path).testzip()
            if damaged:
                raise zipfile.BadZipFile(f"Bad CRC-32 of {damaged}")
        elif archive_format in _OPENERS:
            with _OPENERS[archive_format](path, "rb") as file:
                while file.read(CHUNK_BYTES):
                    pass
        elif archive_format == "tar":
            for _ in _tar_members(path, archive_format):
                pass
        else:
            raise EOFError("neither its length nor a checksum is known")


def sniff_format(first: bytes) -> str:
    """Return the archive or compression format of a file's first bytes; empty if unknown."""
    if first.startswith((b"PK\3\4", b"PK\5\6")):
        return "zip"
    # Not every tar dialect has a magic number, but all headers have a checksum.
    with contextlib.suppress(tarfile.TarError):
        tarfile.TarInfo.frombuf(first[:HEAD_BYTES], "utf-8", "surrogateescape")
        return "tar"
    return next((form for magic, form in _MAGIC.items() if first.startswith(magic)), "")


def _files_below(folder: Path) -> Iterator[ArchiveEntry]:
    def refuse(error: OSError) -> None:
        raise unreadable_error(Path(error.filename), error) from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file():
                relative = path.relative_to(folder).as_posix()
                yield ArchiveEntry(folder, relative, path.stat().st_size, partial(path.open, "rb"))


def _zip_members(path: Path) -> Iterator[ArchiveEntry]:
    with zipfile.ZipFile(path) as archive:
        # Some programs of Windows write backslashes between folders, and then no slash.
        has_slashes = any("/" in name for name in archive.namelist())
        for info in archive.infolist():
            name = info.filename if has_slashes else info.filename.replace("\\", "/")
            if name.endswith("/"):
                continue
            is_regular = stat.S_IFMT(info.external_attr >> 16) in {0, stat.S_IFREG}
            yield ArchiveEntry(
                archive=path,
                name=name.removeprefix("./"),
                size=info.file_size,
                open=partial(archive.open, info),
                problem="" if is_regular else _NOT_A_REGULAR_FILE,
            )


def _tar_members(path: Path, archive_format: str) -> Iterator[ArchiveEntry]:
    # Without a buffer, the decompressors read 8 KiB at a time, at 0.7 times the speed.
    with io.BufferedReader(_OPENERS.get(archive_format, open)(path, "rb"), CHUNK_BYTES) as file:
        tar = tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape")
        for info in tar:
            if info.size < 0:  # tarfile would seek backwards in an endless loop
                raise tarfile.TarError("a header is damaged (a negative size)")
            if not info.isdir():
                yield ArchiveEntry(
                    archive=path,
                    name=info.name.removeprefix("./"),
                    size=info.size,
                    open=partial(tar.extractfile, info),
                    problem="" if info.isreg() else _NOT_A_REGULAR_FILE,
                )

        # tarfile mistakes a damaged header, or the end of a truncated file, for the last entry.
        file.seek(tar.offset)
        last = file.read(HEAD_BYTES)
        if len(last) < HEAD_BYTES:
            raise tarfile.TarError("it ends early, like an incomplete download")
        if last.strip(b"\0"):
            raise tarfile.TarError("a header is damaged")
        # Read to the end, where compressed formats have their checksum.
        while file.read(CHUNK_BYTES):
            pass
