"""Untrusted files of a push: copied block by block, each one verified before it is written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Final

from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.files.changes import PARTIAL, continued_file, write_all
from kmip_data.files.errors import occupied, require_room
from kmip_data.files.reading import MAX_BYTES, sha256_file
from kmip_data.runtime.progress import Progress
from kmip_data.sharing.places import Place, exactly, folder_for
from kmip_data.sharing.share import (
    BLOCK,
    BLOCKS_NAME,
    SHARE_NAME,
    BlockDigests,
    SharedFile,
    damaged,
    parse_share,
)

UNFINISHED: Final = "a new folder, or the same pull unfinished"
_TRIES: Final = 5  #: tries for one file, each of which must bring something


class Received:
    """A push at an address.

    Raises ``UsageError`` where there is none, ``SourceUnavailable`` where nobody can say, ``DamagedInput``
    where manifest or side file are not what was pushed.
    """

    def __init__(self, address: str) -> None:
        self.place = Place(address)
        data = self.place.read(SHARE_NAME)
        if data is None:
            raise UsageError(
                f"Nothing was pushed to {self.place.address}.",
                expected=f"{SHARE_NAME} there, which a push writes last",
                found="no such file",
                next="ask whoever pushes there whether the push has ended",
            )
        self.share = parse_share(data, self.place.address)
        digests = self.place.read(BLOCKS_NAME, self.share.blocks_bytes) or b""
        self.digests = BlockDigests(self.share, digests, self.place.address)

    def read(self, file: str) -> bytes:
        """Return the bytes of a small file."""
        entry = self.share.by_name().get(file)
        if entry is None or entry.bytes > MAX_BYTES:
            raise damaged(self.place.address, f"{file}, of at most {MAX_BYTES:,} bytes", "none")
        data = b"".join(self.place.pieces(file, 0, entry.bytes))
        self.digests.check(file, 0, data)
        return data

    def take(
        self, files: Sequence[SharedFile], folder: Path, *, ours: bool = False, quiet: bool = False
    ) -> int:
        """Bring files into ``folder``, in this order, and return how many came; whole ones stay as they are.

        A file of the same name with other bytes is replaced if the folder is ``ours``, a copy of this push.
        What was verified stays on disk as ``.SHA-256.partial``, and the next call resumes from it; no name
        in a push begins with a dot. Raises ``DamagedInput`` where a file is not what was pushed,
        ``SourceUnavailable`` where it could not be had, ``OutOfResources`` without room, ``UsageError`` where
        another file has the name of one.
        """
        for entry in files:  # all, for a file behind a link is not of this folder
            folder_for(entry.file, folder)
        missing = [entry for entry in files if not is_whole(folder / entry.file, entry)]
        if not ours and (others := [e.file for e in missing if os.path.lexists(folder / e.file)]):
            raise occupied(folder, UNFINISHED, ", ".join(others[:5]), "--to")
        total = sum(entry.bytes for entry in missing)
        require_room(folder, total, f"What is missing of {self.place.address}")
        with Progress(f"pull {self.share.name}", total, unit="B", quiet=quiet) as progress:
            for entry in missing:
                path = folder / entry.file
                with continued_file(path, partial_name(entry), root=folder) as file:
                    self._complete(file, entry, progress)
        return len(missing)

    def _complete(self, file: FileIO, entry: SharedFile, progress: Progress) -> None:
        start = self._verified(file, entry)
        progress.update(start)
        for left in reversed(range(_TRIES)):
            try:
                self._append(file, entry, start, progress)
                break
            except SourceUnavailable:
                reached = file.tell()
                if not left or reached == 0:
                    raise
                # Where nothing came after the beginning that is here: a server that knows no ranges.
                start = reached if reached > start else 0
                progress.update(start - reached)
        file.truncate(entry.bytes)
        file.seek(0)
        if (found := hashlib.file_digest(file, "sha256").hexdigest()) != entry.sha256:
            raise damaged(f"{self.place.address}/{entry.file}", f"SHA-256 {entry.sha256}", found)

    def _verified(self, file: FileIO, entry: SharedFile) -> int:
        """Return the bytes of an earlier try that are verified blocks from the beginning."""
        size = 0
        while size < entry.bytes and (block := exactly(file, min(BLOCK, entry.bytes - size))):
            try:
                self.digests.check(entry.file, size // BLOCK, block)
            except DamagedInput:
                break
            size += len(block)
        return size

    def _append(self, file: FileIO, entry: SharedFile, start: int, progress: Progress) -> None:
        file.seek(start)
        for piece in self.place.pieces(entry.file, start, entry.bytes):
            self.digests.check(entry.file, start // BLOCK, piece)
            write_all(file.fileno(), piece)
            start += len(piece)
            progress.update(len(piece))


def partial_name(entry: SharedFile) -> str:
    """Return the name of a file while it comes."""
    return f".{entry.sha256}{PARTIAL}"


def is_whole(path: Path, entry: SharedFile) -> bool:
    """True if a file is there, with the right bytes; a link never is."""
    regular = path.is_file() and not path.is_symlink()
    return regular and path.stat().st_size == entry.bytes and sha256_file(path)[0] == entry.sha256
