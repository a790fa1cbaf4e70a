"""Open a local archive, whatever it is called, and write its wanted members, or nothing at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from tarfile import TarError, TarInfo
from typing import BinaryIO

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import remove_scratch, write_all
from kmip_data.files.digests import content_digest, sha256_file
from kmip_data.files.disk import require_room
from kmip_data.files.errors import unreadable, writing
from kmip_data.pipelines.archives.decompression import ERRORS, DecompressedFile
from kmip_data.pipelines.archives.entries import Archive, Entry, Plan
from kmip_data.pipelines.archives.folder import BareFile, FolderArchive
from kmip_data.pipelines.archives.names import refusal
from kmip_data.pipelines.archives.tar import TarArchive
from kmip_data.pipelines.archives.zip import ZipArchive, is_zip
from kmip_data.runtime.progress import Progress

HEAD = 512  #: bytes from which the kind of a file is told
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}


def compression_of(first: bytes) -> str | None:
    """Return the compression that the first bytes of a file indicate, if any."""
    return next((form for magic, form in _COMPRESSED.items() if first.startswith(magic)), None)


def is_tar(first: bytes) -> bool:
    """Whether the first 512 bytes of a file are a tar header with a correct checksum."""
    if len(first) < HEAD or not first.strip(b"\0"):
        return False
    try:
        TarInfo.frombuf(first[:HEAD], "utf-8", "surrogateescape")
    except TarError:
        return False
    return True


def open_archive(path: Path) -> Archive:
    """Open a zip, a tar (plain, gzip, bzip2, xz), a folder or a bare file, told by content, not by name.

    Raises ``UsageError`` where there is no such file, ``DamagedInput`` where it cannot be read.
    """
    try:
        path.stat()
    except (OSError, ValueError) as error:  # also names that are too long or hold NUL
        raise UsageError(
            f"There is no file or folder {path}.",
            expected="a zip, a tar or a folder",
            found=getattr(error, "strerror", None) or str(error),
            next="check the path given to --archive",
        ) from error
    if path.is_dir():
        return FolderArchive(path)
    if not path.is_file():
        raise DamagedInput(
            f"{path} is neither a file nor a folder.",
            expected="a zip, a tar or a folder",
            left="nothing was changed",
            next="check the path given to --archive",
        )
    try:
        with path.open("rb") as file:
            first = file.read(HEAD)
            if is_zip(first):
                return ZipArchive(path)
            if is_tar(first):
                return TarArchive(path, None)
            form = compression_of(first)
            if form is not None:
                file.seek(0)
                if is_tar(_decompressed_head(file, form)):
                    return TarArchive(path, form)
    except OSError as error:
        raise unreadable(path, error) from error
    return BareFile(path)


def _decompressed_head(file: BinaryIO, form: str) -> bytes:
    stream, head = DecompressedFile(file, form), b""
    with contextlib.suppress(*ERRORS):
        while len(head) < HEAD and (piece := stream.read(HEAD - len(head))):
            head += piece
    return head


def write_members(plan: Plan, target: Path, *, quiet: bool = True) -> dict[str, str]:
    """Write the members of ``plan`` below the new folder ``target``; all of them or nothing.

    Returns member path to SHA-256, sorted. Raises ``DamagedInput`` where the archive is hostile or damaged:
    ``target`` does not exist then; ``OutOfResources`` or ``UsageError`` where the disk is full, or ``target``
    exists or cannot be written.
    """
    with writing(target):
        require_room(target.parent, plan.bytes, f"Unpacking {plan.archive.path.name}")
        target.mkdir(mode=0o755)
    digests: dict[str, str] = {}
    try:
        with Progress(f"unpack {plan.archive.path.name}", plan.bytes, unit="B", quiet=quiet) as progress:
            for entry, pieces in plan.archive.contents(plan.members.values()):
                name = plan.name_of(entry)
                digests[name] = _write_member(plan.archive, entry, pieces, target / name, progress)
    except BaseException:
        remove_scratch(target)
        raise
    return dict(sorted(digests.items()))


def _write_member(
    archive: Archive, entry: Entry, pieces: Iterator[bytes], path: Path, progress: Progress
) -> str:
    """Write one member to the new file ``path`` and return its SHA-256."""
    digest, size = hashlib.sha256(), 0
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Mode bits of the archive are never taken over.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o644)
    try:
        for piece in pieces:
            size += len(piece)
            if size > entry.size:
                raise refusal(archive.path, entry.name, f"holds more than the {entry.size} bytes it declares")
            digest.update(piece)
            with writing(path):
                write_all(descriptor, piece)
            progress.update(len(piece))
    finally:
        os.close(descriptor)
    if size != entry.size:
        raise refusal(archive.path, entry.name, f"holds {size} bytes and declares {entry.size}")
    return digest.hexdigest()


def fingerprint(plan: Plan) -> tuple[str, int]:
    """Digest and size by which the same input is known again.

    SHA-256 and bytes of the file; of a folder, the content digest and total size of its members.
    """
    if not isinstance(plan.archive, FolderArchive):
        return sha256_file(plan.archive.path)
    digests, total = {}, 0
    for entry, pieces in plan.archive.contents(plan.members.values()):
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
            total += len(piece)
        digests[plan.name_of(entry)] = digest.hexdigest()
    return content_digest(digests), total
