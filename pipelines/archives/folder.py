"""Read a folder, or one bare file, as if it were an archive; the user's files are only ever read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kmip_data.errors import UsageError
from kmip_data.files.errors import unreadable
from kmip_data.pipelines.archives.decompression import PIECE
from kmip_data.pipelines.archives.entries import Archive, Entry, Limits
from kmip_data.pipelines.archives.names import refusal


@dataclass(frozen=True, slots=True)
class FileEntry(Entry):
    """A plain file on disk."""

    path: Path


class FolderArchive(Archive):
    """An unpacked archive. A link to a file is followed when it stays inside the folder; no other is.

    Its names are checked only where they are wanted: a download folder may hold anything else.
    """

    kind = "folder"

    def files(self, limits: Limits) -> list[Entry]:
        """List the plain files below the folder."""
        root = Path(os.path.realpath(self.path))
        found: list[Entry] = []
        waiting = [root]
        while waiting:
            folder = waiting.pop()
            try:
                items = sorted(os.scandir(folder), key=lambda item: item.name)
            except OSError as error:
                if folder == root:
                    raise unreadable(root, error) from error
                continue
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    waiting.append(Path(item.path))
                elif item.is_file():
                    path = Path(item.path)
                    name = path.relative_to(root).as_posix()
                    found.append(FileEntry(name, item.stat().st_size, path))
            if len(found) + len(waiting) > limits.entries:
                raise UsageError(
                    f"{self.path} holds too many files to be searched.",
                    expected=f"at most {limits.entries}",
                    found="more",
                    next="give --archive the folder that holds the data itself",
                )
        return found

    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield wanted entries in the order given."""
        root = Path(os.path.realpath(self.path))
        for entry in wanted:
            if isinstance(entry, FileEntry):
                real = Path(os.path.realpath(entry.path))
                if not real.is_relative_to(root):
                    raise refusal(
                        self.path, entry.name, f"is a link to {real}, which is outside: give that folder"
                    )
                yield entry, read_pieces(real)


class BareFile(Archive):
    """One file taken as it is: its only member, under its own name unless another is given."""

    kind = "file"

    def __init__(self, path: Path, name: str | None = None) -> None:
        super().__init__(path)
        self.name = path.name if name is None else name

    def files(self, limits: Limits) -> list[Entry]:
        """List the file."""
        return [FileEntry(self.name, self.path.stat().st_size, self.path)]

    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield the file."""
        for entry in wanted:
            yield entry, read_pieces(Path(os.path.realpath(self.path)))


def read_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            while piece := os.read(descriptor, PIECE):
                yield piece
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable(path, error) from error
