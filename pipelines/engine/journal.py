"""Journal of an unfinished build, and what becomes of its folder.

The journal has one JSON line for each thing that is done and on disk: a line is appended and
fsynced only after what it names is itself on disk. A process killed in the middle of a line leaves
a torn one; it is cut off when the journal is opened again, and the step it meant to name is
repeated. Lines prove nothing by themselves: a shard counts as done only when the digest of its file
is the one in its line.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

from kmip_data.builds.columns import files_of_build
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError, disk_error, occupied, writing
from kmip_data.files import changes as files
from kmip_data.files.reading import canonical_json, read_small
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.format.reader import Shard

Line: TypeAlias = Mapping[str, Any]  #: line of a journal, parsed

JOURNAL_VERSION = 1
MAX_JOURNAL_BYTES = 2**28  #: it has what every shard counts
WORK = "work"  #: folder inside an unfinished build: journal, stop file, what ``prepare`` wrote
JOURNAL = "journal.jsonl"
PREPARED = "prepared"  #: folder inside ``work/`` that ``prepare`` writes
PREPARATION = "the preparation of the raw files"  #: the one call that is not a unit
RESUMES = "finished shards; the next run resumes from them"


@dataclass(frozen=True)
class UnitResult:
    """A shard that is complete on disk; ``UnitResult(**entry)`` reads its line in the journal."""

    name: str
    file: str
    sha256: str
    crc32: str
    bytes: int
    graphs: int
    nodes: int
    edges: int
    statistics: dict[str, Any]
    #: Key and reason of each skipped record.
    skipped: list[list[str]] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)  #: files of a shard that is cut
    index: int = -1  #: in journals of earlier versions

    @property
    def facts(self) -> dict[str, Any]:
        """Entry of the file on a card, without its name."""
        names = ("sha256", "crc32", "bytes", "graphs", "nodes", "edges", "members")
        return {name: getattr(self, name) for name in names}


class Journal:
    """Append-only JSON lines, opened (or begun) for one build key, which is in the first line.

    ``entries`` are the readable lines after the first, oldest first. Raises ``UsageError`` where
    the journal is of another build, or may not be written to.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        text, lines = _read(path)
        if os.path.lexists(path) and not _is_header(lines):
            raise _no_journal(path, f"it begins with {text[:20].decode(errors='replace')!r}")
        # One folder, one build: another's shards must not pass for these.
        if lines and lines[0]["key"] != key:
            raise UsageError(
                f"{path.parent} holds an unfinished build with other parameters "
                f"(build key {lines[0]['key']}).",
                next="finish that build with its own parameters, or give another --output folder",
            )

        self.entries: list[Line] = []
        with writing(path):
            if lines and lines[0]["journal"] == JOURNAL_VERSION:
                self.entries = lines[1:]
            else:  # lines of another version may mean other things: what they name is done again
                header = {"journal": JOURNAL_VERSION, "key": key}
                text = f"{canonical_json(header)}\n".encode()
            # A new file, complete at once: a hard link elsewhere, such as a backup has, keeps its
            # bytes.
            files.write_file(path, text)
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)

    def append(self, entry: Line) -> None:
        """Write one line and wait until it is on disk.

        A torn one is cut off at the next opening.
        """
        self._write(entry)
        self.entries.append(dict(entry))

    def _write(self, entry: Line) -> None:
        try:
            files.write_all(self._fd, canonical_json(entry).encode() + b"\n")
            os.fsync(self._fd)
        except OSError as error:
            raise disk_error(error, self.path, left=RESUMES) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _is_header(lines: Sequence[Line]) -> bool:
    """True if the first line is that of a journal."""
    return bool(lines) and isinstance(lines[0].get("journal"), int) and "key" in lines[0]


def _read(path: Path) -> tuple[bytes, list[Line]]:
    """Return the complete lines of a journal, and their entries."""
    text = b""
    if path.is_file() and not path.is_symlink():
        try:
            text = read_small(path, MAX_JOURNAL_BYTES)
        except OSError as error:
            raise _no_journal(path, str(error)) from error
    text = text[: text.rfind(b"\n") + 1]  # a line that a crash has torn has no end
    entries = map(_parse, text.splitlines())
    return text, [entry for entry in entries if entry is not None]


def _no_journal(path: Path, fault: str) -> UsageError:
    return UsageError(
        f"{path} is not the journal of a build: {fault}.",
        next="move that file, or give another --output folder",
    )


def _parse(line: bytes) -> Line | None:
    """Return the entry in a line; ``None`` where it is damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict):
            return entry
    return None


@dataclass(frozen=True)
class UnfinishedBuild:
    """A build folder without a card; the same ``build`` command resumes it."""

    path: Path
    finished: int  #: number of shards on disk
    shards: int | None  #: number in the end; ``None`` where it was stopped before that was known


def unfinished_builds(home: Home) -> list[UnfinishedBuild]:
    """Return all unfinished builds under ``home``, by folder name."""
    builds = []
    for folder in sorted(home.built.glob("*")):
        if (folder / "shards").is_dir() and not (folder / CARD_NAME).is_file():
            _, entries = _read(folder / WORK / JOURNAL)
            shards = {path.stem.partition("-")[0] for path in folder.glob("shards/*.h5")}
            builds.append(UnfinishedBuild(folder, len(shards), _units(entries)))
    return builds


def finished_card(folder: Path) -> Card | None:
    """Return the card of a finished build; ``None`` where there is none, or one that is damaged.

    Raises ``UsageError`` where a newer kmip-data wrote the build.
    """
    if (folder / CARD_NAME).is_file():
        with contextlib.suppress(DamagedInput):
            return read_card(folder)
    return None


def check_folder(folder: Path, key: str) -> None:
    """Refuse a folder that holds anything but the build of this key, finished or not.

    A new build begins in a missing or empty folder, or in one that was begun for this key.
    """
    card = finished_card(folder)
    if card is None:
        files.refuse_taken(folder, files.build_content(key))
    elif card.key != key:
        raise occupied(folder, f"build key {key}", f"build key {card.key}")


def stored_key(folder: Path) -> str | None:
    """Return the build key that the first readable shard of a folder carries."""
    for path in sorted((folder / "shards").glob("*.h5")):
        with contextlib.suppress(DamagedInput):  # of a member: of the shard that it belongs to
            return Shard(path.with_stem(path.stem.partition("-")[0])).build_key
    return None


def _units(entries: Iterable[Line]) -> int | None:
    """Return how many units a build will have, by its journal; ``None`` where that is not known."""
    counts = [entry.get("units") for entry in entries]
    return max((count for count in counts if isinstance(count, int)), default=None)


def remove_work(folder: Path) -> None:
    """Remove the work folder of a build with all in it."""
    if files.content_of(folder) is not None:
        files.remove_tree(folder / WORK, root=folder)


def remove_unfinished(folder: Path, key: str) -> bool:
    """Remove what the unfinished build of this key made in ``folder``.

    Returns True if there was one.
    """
    ours = files.content_of(folder) == files.build_content(key)
    if not ours or (folder / CARD_NAME).exists():
        return False
    remove_half_done(folder)
    files.remove_files(folder, files_of_build(folder), folders=("shards", "splits"))
    remove_work(folder)
    files.remove_empty(folder)
    return True


def remove_half_done(folder: Path) -> None:
    """Remove what writers that are gone left half-written."""
    for inside in (folder, folder / WORK, folder / "shards", folder / "splits"):
        files.remove_partials(inside, root=folder)
