"""What every kind of archive offers: its plain files, and their bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NoReturn

from kmip_data.errors import DamagedInput


@dataclass(frozen=True, slots=True)
class Entry:
    """A plain file in an archive: its checked name and the size that its header declares."""

    name: str
    size: int


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

    def damaged(self, why: str) -> NoReturn:
        """Raise DamagedInput: the archive itself is not whole."""
        raise DamagedInput(
            f"{self.path.name} is not a whole {self.kind} archive: {why}.",
            expected=f"a complete {self.kind} of plain files and folders, in one volume",
            found=str(self.path),
            left="nothing of it was kept",
            next="fetch or copy it again, or unpack it yourself and give the folder with --archive",
        )

    @abstractmethod
    def files(self, limits: Limits) -> list[Entry]:
        """List the plain files; nothing is written.

        Raises ``DamagedInput`` where the archive is damaged, or a member is hostile (see
        ``docs/sources.md``).
        """

    @abstractmethod
    def contents(self, wanted: Iterable[Entry]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Yield each wanted entry of :meth:`files` with its bytes in pieces of at most 1 MiB.

        The order is the archive's own. The pieces of one entry must be used up, or left, before
        the next entry is asked for.
        """


@dataclass(frozen=True)
class Plan:
    """What an archive is asked for."""

    archive: Archive
    root: str  #: path inside the archive below which the data lie (``""`` or ending in ``/``)
    members: Mapping[str, Entry]  #: by path below ``root``, sorted

    @property
    def bytes(self) -> int:
        """Declared size of all members."""
        return sum(entry.size for entry in self.members.values())

    def name_of(self, entry: Entry) -> str:
        """Path of a member below the root."""
        return entry.name[len(self.root) :]
