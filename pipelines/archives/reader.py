"""Interface of archives, its two simplest forms (a folder, a bare file), and the check of member names."""

from __future__ import annotations

import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NoReturn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.errors import unreadable

HEAD = 512  #: bytes from which the kind of a file is recognised
PIECE = 2**18  #: bytes handled at a time
MAX_COMPONENT = 255  #: bytes of one part of a name, the limit of common file systems
MAX_NAME = 4096  #: bytes of a name
MAX_NAMES = 32 * 2**20  #: characters of all names of an archive and of the folders they imply
_DRIVE = re.compile(r"^[A-Za-z]:")


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
    unpacked: int  #: declared sizes of all files of a compressed tar, which is unpacked to be searched


class Archive(ABC):
    """A zip, a tar, a folder, or one bare file."""

    kind: ClassVar[str]  #: for messages

    def __init__(self, path: Path) -> None:
        self.path = path

    def damaged(self, why: str, error: BaseException | None = None) -> NoReturn:
        """Raise ``DamagedInput``: the archive itself is incomplete or damaged."""
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


def refusal(archive: Path, member: str, why: str) -> DamagedInput:
    """Return the error for a member that is refused; ``why`` continues the sentence after its name."""
    shown = ascii(member if len(member) <= 100 else f"{member[:60]}…{member[-30:]}")
    return DamagedInput(
        f"{archive.name} is refused: its member {shown} {why}.",
        expected="regular files with relative, distinct names, as their headers declare them",
        found=f"{archive}",
        next="use a fresh copy from one of the sources that `kmip-data info NAME` lists",
    )


def check_name(archive: Path, name: str) -> str:
    """Return ``name`` as a clean relative path with ``/``; leading ``./`` and a trailing ``/`` are dropped.

    Returns ``""`` for the root folder itself (``./``). Raises ``DamagedInput`` where the name is empty,
    absolute, climbs out, or no file system could hold it safely.
    """
    if not name:
        raise refusal(archive, name, "has an empty name")
    if "\0" in name:
        raise refusal(archive, name, "has a NUL byte in its name")
    try:
        encoded = name.encode("utf-8")
    except UnicodeEncodeError:
        raise refusal(archive, name, "has a name that is not valid UTF-8") from None
    if "\\" in name:
        raise refusal(archive, name, "has a backslash in its name")
    if name.startswith("/"):
        raise refusal(archive, name, "has an absolute name")
    if _DRIVE.match(name):
        raise refusal(archive, name, "has a drive letter in its name")
    if len(encoded) > MAX_NAME:
        raise refusal(archive, name, f"has a name of {len(encoded)} bytes, longer than {MAX_NAME}")
    if not name.isprintable() and any(unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"} for c in name):
        raise refusal(archive, name, "has control characters in its name")
    parts = name.removesuffix("/").split("/")
    while parts and parts[0] == ".":
        parts = parts[1:]
    for part in parts:
        if part in {"", ".", ".."}:
            raise refusal(archive, name, f"has the part {part!r} in its name")
        if (not part.isascii() and len(part.encode()) > MAX_COMPONENT) or len(part) > MAX_COMPONENT:
            raise refusal(archive, name, f"has a part longer than {MAX_COMPONENT} bytes in its name")
    return "/".join(parts)


class NameLedger:
    """Remember the names of one archive and refuse those that would meet on some file system."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._room = MAX_NAMES
        self._folders: set[str] = set()
        self._seen: dict[str, tuple[str, bool]] = {}

    def add(self, name: str, *, folder: bool) -> None:
        """Take in a checked name.

        Raises ``DamagedInput`` where it is there already, differs from another only by case or Unicode form,
        is at once a file and a folder, or is one too many.
        """
        if not folder:
            self._enter(name, folder=False)
        elif name:
            self._add_folder(name)
        self._add_folder(name.rpartition("/")[0])

    def _add_folder(self, name: str) -> None:
        while name and name not in self._folders:
            self._enter(name, folder=True)
            self._folders.add(name)
            name = name.rpartition("/")[0]

    def _enter(self, name: str, *, folder: bool) -> None:
        key = _fold(name)
        if key not in self._seen:
            self._seen[key] = (name, folder)
            self._room -= len(name)
            if self._room < 0:
                raise refusal(self._archive, name, f"brings the names to more than {MAX_NAMES} characters")
            return
        first, was_folder = self._seen[key]
        if first != name:
            raise refusal(self._archive, name, f"differs from {first!a} only by case or Unicode form")
        if was_folder != folder:
            raise refusal(self._archive, name, "is both a file and a folder")
        if not folder:
            raise refusal(self._archive, name, "is there twice")


def _fold(name: str) -> str:
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())
