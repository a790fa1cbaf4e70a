"""Interface of archives, and its two simplest forms: a folder and a bare file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NoReturn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.errors import unreadable
from kmip_data.pipelines.archives.names import refusal

HEAD = 512  #: bytes from which the kind of a file is recognised
PIECE = 2**18  #: bytes handled at a time


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file in an archive: its checked name, declared size, and position of its data or header."""

    name: str
    size: int
    offset: int = 0


@dataclass(frozen=True)
class Limits:
    """How much an archive may hold before it is refused."""

    entries: int  #: files and folders of any name
    unpacked: int  #: declared sizes of all files of a compressed tar, which is unpacked whole to be searched


class Archive(ABC):
    """A zip, a tar, a folder, or one bare file."""

    kind: ClassVar[str]  #: for messages

    def __init__(self, path: Path) -> None:
        self.path = path

    def damaged(self, why: str, error: BaseException | None = None) -> NoReturn:
        """Raise ``DamagedInput``: the archive itself is not whole."""
        raise DamagedInput(
            f"{self.path.name} is not a whole {self.kind} archive: {why}.",
            expected=f"a complete {self.kind} of regular files and folders, in one volume",
            found=str(self.path),
            next="fetch or copy it again, or unpack it yourself and give the folder with --archive",
        ) from error

    @abstractmethod
    def files(self, limits: Limits) -> list[Entry]:
        """List the regular files; nothing is written.

        Raises ``DamagedInput`` if the archive is damaged, or a member is hostile (see ``docs/sources.md``).
        """

    @abstractmethod
    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield each wanted entry of :meth:`files` with its bytes in pieces of at most 256 KiB.

        The order is the archive's own. The pieces of one entry must be used up before the next is asked for.
        """


class FolderArchive(Archive):
    """An unpacked archive. A link to a file is followed if it stays inside the folder; no other is.

    Names are checked only for wanted files: a download folder may hold anything else.
    """

    kind = "folder"

    def files(self, limits: Limits) -> list[Entry]:
        """List the regular files below the folder."""
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
                    found.append(Entry(Path(item.path).relative_to(root).as_posix(), item.stat().st_size))
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
            real = Path(os.path.realpath(root / entry.name))
            if not real.is_relative_to(root):
                why = f"is a link to {real}, which is outside: give that folder"
                raise refusal(self.path, entry.name, why)
            yield entry, _read_pieces(real)


class BareFile(Archive):
    """One file as it is: its only member, under its own name unless another is given."""

    kind = "file"

    def __init__(self, path: Path, name: str | None = None) -> None:
        super().__init__(path)
        self.name = path.name if name is None else name

    def files(self, limits: Limits) -> list[Entry]:
        """List the file."""
        return [Entry(self.name, self.path.stat().st_size)]

    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield the file."""
        for entry in wanted:
            yield entry, _read_pieces(Path(os.path.realpath(self.path)))


def _read_pieces(path: Path) -> Iterator[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            while piece := os.read(descriptor, PIECE):
                yield piece
        finally:
            os.close(descriptor)
    except OSError as error:
        raise unreadable(path, error) from error
