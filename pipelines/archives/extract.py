"""Open an archive, recognised by content, and write its wanted members, or nothing at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import remove_scratch, write_all
from kmip_data.files.digests import content_digest, sha256_file
from kmip_data.files.disk import require_room
from kmip_data.files.errors import unreadable, writing
from kmip_data.pipelines.archives.names import refusal
from kmip_data.pipelines.archives.reader import Archive, BareFile, Entry, FolderArchive
from kmip_data.pipelines.archives.recognition import Selection
from kmip_data.runtime.progress import Progress


def open_archive(path: Path) -> Archive:
    """Open a zip, a tar (gzip, bzip2, xz or uncompressed), a folder or a bare file, recognised by content.

    Raises ``UsageError`` if there is no such file, ``DamagedInput`` if it cannot be read.
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
            next="check the path given to --archive",
        )
    from kmip_data.pipelines.archives.packed import open_packed

    try:
        return open_packed(path) or BareFile(path)
    except OSError as error:
        raise unreadable(path, error) from error


def write_members(selection: Selection, target: Path, *, quiet: bool = True) -> dict[str, str]:
    """Write the members of ``selection`` below the new folder ``target``; all of them or nothing.

    Returns member path to SHA-256, sorted. Raises ``DamagedInput`` where the archive is hostile or damaged:
    ``target`` does not exist then; ``OutOfResources`` or ``UsageError`` where the disk is full, or ``target``
    exists or cannot be written.
    """
    with writing(target):
        require_room(target.parent, selection.bytes, f"Unpacking {selection.archive.path.name}")
        target.mkdir(mode=0o755)
    digests: dict[str, str] = {}
    try:
        with Progress(
            f"unpack {selection.archive.path.name}", selection.bytes, unit="B", quiet=quiet
        ) as progress:
            for entry, pieces in selection.archive.contents(selection.members.values()):
                name = selection.name_of(entry)
                digests[name] = _write_member(selection.archive, entry, pieces, target / name, progress)
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


def fingerprint(selection: Selection) -> tuple[str, int]:
    """Return digest and size by which the same input is recognised.

    SHA-256 and bytes of the file; of a folder, the content digest and total size of its members.
    """
    if not isinstance(selection.archive, FolderArchive):
        return sha256_file(selection.archive.path)
    digests, total = {}, 0
    for entry, pieces in selection.archive.contents(selection.members.values()):
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
            total += len(piece)
        digests[selection.name_of(entry)] = digest.hexdigest()
    return content_digest(digests), total
