"""Journal of an unfinished build, and the files of a build folder that it proves to be ours.

The journal has one JSON line for each thing that is done and on disk: a line is appended and
fsynced only after what it names is itself on disk. A process killed in the middle of a line leaves
a torn one; it is cut off when the journal is opened again, and the step it meant to name is
repeated. Lines prove nothing by themselves: a shard counts as done only when the digest of its file
is the one in its line.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

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
_EXECUTOR_PATHS = ("work/stop", "work/token")  #: files of executors
PREPARATION = "the preparation of the raw files"  #: the one call that is not a unit
RESUMES = "finished shards; the next run resumes from them"

#: A stop file is empty; a token is the digits that DaskWorkers gives its workers.
_OF_EXECUTORS = re.compile(rb"(?:[0-9a-f]{32})?")
_MOST_UNITS = 10**9  #: a count above it is not ours, and its shards are not either
_SHARD = re.compile(r"shards/(\d{5,})(-\d{5,})?\.h5")  #: a shard, or a member of one


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
                header = {
                    "journal": JOURNAL_VERSION,
                    "key": key,
                    "number": path.parent.stat().st_ino,
                }
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


def journal_entries(path: Path, key: str | None = None) -> list[Line] | None:
    """Return the lines of a journal after the first.

    Returns ``None`` if there is none (of the build ``key``).
    """
    _, lines = _read(path)
    if _is_header(lines) and key in {None, lines[0]["key"]}:
        return lines[1:]
    return None


def _is_header(lines: Sequence[Line]) -> bool:
    """True if the first line is one of ours, of any version."""
    if not lines:
        return False
    first = lines[0]
    typed = isinstance(first.get("journal"), int) and isinstance(first.get("key"), str)
    return typed and first.keys() <= {"journal", "key", "number"}


def _begun_here(folder: Path) -> bool:
    """True if the journal of a folder was begun in it, when it was empty, and not copied from elsewhere."""
    # The inode of the work folder, which a copy of the folder does not have.
    work = folder / WORK
    _, lines = _read(work / JOURNAL)
    return _is_header(lines) and lines[0].get("number") == work.stat().st_ino


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
    """Return the entry in a line; ``None`` where it is torn, or its values are of other types."""
    try:
        entry: Line = json.loads(line)
        units = entry.get("units", 0)
        prepared = entry.get("prepared", {})
        texts = [prepared.get("folder", ""), prepared.get("inside") or ""]
        texts += prepared.get("files", ())
        has_plan = isinstance(prepared.get("plan", {}), dict)
    except (ValueError, RecursionError, AttributeError, TypeError):
        return None
    sound = has_plan and all(isinstance(text, str) for text in texts)
    if not sound or type(units) is not int or not 0 <= units <= _MOST_UNITS:
        return None
    return entry


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
            entries = journal_entries(folder / WORK / JOURNAL) or []
            shards = {path.stem.partition("-")[0] for path in folder.glob("shards/*.h5")}
            builds.append(UnfinishedBuild(folder, len(shards), _units(entries)))
    return builds


def finished_card(folder: Path) -> Card | None:
    """Return the card of a finished build; ``None`` if none, or one that is damaged.

    Raises ``UsageError`` where a newer kmip-data wrote the build.
    """
    if (folder / CARD_NAME).is_file():
        with contextlib.suppress(DamagedInput):
            return read_card(folder)
    return None


def check_folder(folder: Path, key: str) -> None:
    """Refuse a folder that holds anything but the build of this key, finished or not.

    A new build begins in a missing or empty folder, in one whose journal of this key proves each
    shard, or in one that lost its card, where each shard carries the key. Such shards are built
    again; no other file there is replaced by other bytes.
    """
    card = finished_card(folder)
    if card is not None:
        if card.key != key:
            raise occupied(folder, f"build key {key}", f"build key {card.key}")
        return
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise occupied(folder, "a folder", "a file")

    # By the journal: ours, another build's, or none, where the folder must be empty.
    entries = journal_entries(folder / WORK / JOURNAL, key)
    if entries is not None:
        others = _other_shards(folder, key, entries)
    elif journal_entries(folder / WORK / JOURNAL) is not None:
        others = iter(["a build with other parameters"])
    elif stored_key(folder) == key:
        others = _other_shards(folder, key, [{"units": _MOST_UNITS}])
    else:
        others = _other_files(folder)
    names = list(itertools.islice(others, 5))  # of a folder that may hold a whole disk
    if names:
        raise files.in_the_way(folder, names)


def _other_files(folder: Path) -> Iterator[str]:
    """Yield all but the folders of a build that was stopped before its journal was begun."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        begun = name in {WORK, "shards", "splits"} and path.is_dir()
        if not begun and name != ".lock" and files.written_name(name) is None:
            yield name


def _other_shards(
    folder: Path,
    key: str,
    entries: Iterable[Line],
) -> Iterator[str]:
    """Yield shards, a card and files of executors that this build has not written."""
    ours = {*own_work(folder), *_own_shards(folder, key, entries)}
    shards = (f"shards/{path.name}" for path in (folder / "shards").glob("*"))
    names = itertools.chain(filter(_SHARD.fullmatch, shards), (CARD_NAME, *_EXECUTOR_PATHS))
    for name in names:
        if name not in ours and os.path.lexists(folder / name):
            yield name


def own_work(folder: Path) -> list[str]:
    """Names, below ``folder``, of the files that executors wrote into its work folder."""
    names = []
    for name in _EXECUTOR_PATHS:
        with contextlib.suppress(OSError):
            if _OF_EXECUTORS.fullmatch(read_small(folder / name, 64)):
                names.append(name)
    return names


def _own_shards(
    folder: Path,
    key: str,
    entries: Iterable[Line],
) -> list[str]:
    """Names of shards and members that the build of this key wrote into the folder of its journal.

    A journal that was begun here proves its numbers, for the folder was empty. Next to one that was
    copied here, a shard is known by the build key in it.
    """
    units = _units(entries) or 0
    begun_here = _begun_here(folder)
    names = []
    for path in sorted((folder / "shards").glob("*")):
        number = _SHARD.fullmatch(f"shards/{path.name}")
        if number is None or int(number[1]) >= units:
            continue
        if begun_here or key_of(path) == key:
            names.append(number[0])
    return names


def stored_key(folder: Path) -> str | None:
    """Return the build key that the first readable shard of a folder carries."""
    keys = map(key_of, sorted((folder / "shards").glob("*.h5")))
    return next(filter(None, keys), None)


def key_of(path: Path) -> str | None:
    """Return the build key that a shard, or the one of which this is a member, carries."""
    with contextlib.suppress(DamagedInput):
        return Shard(path.with_stem(path.stem.partition("-")[0])).build_key
    return None


def _units(entries: Iterable[Line]) -> int | None:
    """Return how many units a build will have, by its journal; ``None`` where that is not known."""
    return max((entry["units"] for entry in entries if "units" in entry), default=None)


def _work_of(folder: Path, entries: Iterable[Line]) -> tuple[list[str], list[str]]:
    """Return the names of the files that a build has in its work folder, the journal last, and folders."""
    names = []
    folders = []
    # A copied journal proves nothing about files: they may be somebody else's.
    if _begun_here(folder):
        for entry in entries:
            prepared = entry.get("prepared", {})
            if "folder" in prepared:
                folders.append(f"{WORK}/{prepared['folder']}")
                names += _files_of_pass(prepared)
    names += [*own_work(folder), f"{WORK}/{JOURNAL}"]
    return names, folders


def _files_of_pass(prepared: Mapping[str, Any]) -> list[str]:
    return [f"{WORK}/{prepared['folder']}/{name}" for name in prepared.get("files", ())]


def remove_pass(folder: Path, prepared: Mapping[str, Any]) -> None:
    """Remove the files of one pass, which its line in the journal names, before the build is finished."""
    if _begun_here(folder):
        inside = f"{WORK}/{prepared['folder']}"
        files.remove_files(folder, _files_of_pass(prepared), folders=[inside])


def _begun(folder: Path, entries: Iterable[Line]) -> tuple[list[Path], list[Path]]:
    """Return the folders of every ``prepare`` whose mark is there: those that ended, and the killed ones."""
    finished = {entry["prepared"].get("folder") for entry in entries if "prepared" in entry}
    ended = []
    killed = []
    for mark in (folder / WORK).glob(f"{PREPARED}*{files.BEGUN}"):
        marked = mark.with_suffix("")
        if not files.is_scratch(marked) and os.path.lexists(marked):
            continue
        if marked.name in finished:
            ended.append(marked)
        else:
            killed.append(marked)
    return ended, killed


def remove_work(folder: Path) -> None:
    """Remove the files of a build in its work folder, by the journal there, which goes last."""
    entries = journal_entries(folder / WORK / JOURNAL)
    if entries is not None:
        _remove_begun(folder, entries)
        names, folders = _work_of(folder, entries)
        files.remove_files(folder, names, folders=folders)
    files.remove_empty(folder / WORK, root=folder)


def files_of_unfinished(folder: Path, key: str | None = None) -> list[str] | None:
    """Return the names of what the build of this key (None: any) wrote, by its journal, which comes last.

    Returns ``None`` without a journal, and where the build is finished.
    """
    entries = journal_entries(folder / WORK / JOURNAL, key)
    if entries is None or (folder / CARD_NAME).exists():
        return None
    _, lines = _read(folder / WORK / JOURNAL)
    names = _own_shards(folder, str(lines[0]["key"]), entries)
    # Of a prepare that was killed every file in its scratch folder is ours.
    _, killed = _begun(folder, entries)
    for scratch in killed:
        paths = [path for path in scratch.rglob("*") if not path.is_dir()]
        paths.append(files.mark_of(scratch))
        names += [path.relative_to(folder).as_posix() for path in paths]
    of_work, _ = _work_of(folder, entries)
    return [*names, *of_work]


def remove_unfinished(folder: Path, key: str) -> bool:
    """Remove what the unfinished build of this key made in ``folder``.

    Returns True if there was one.
    """
    names = files_of_unfinished(folder, key)
    if names is None:
        return False
    _remove_partials(folder)
    # Shards go before the journal that proves them: a stop in between leaves the proof.
    shards = [name for name in names if name.startswith("shards/")]
    files.remove_files(folder, shards, folders=("shards", "splits"))
    remove_work(folder)
    return True


def remove_half_done(folder: Path, key: str) -> None:
    """Remove what writers, and a ``prepare`` of the build of this key, that are gone left half-written."""
    _remove_partials(folder)
    entries = journal_entries(folder / WORK / JOURNAL, key)
    if entries is not None:
        _remove_begun(folder, entries)


def _remove_begun(folder: Path, entries: Iterable[Line]) -> None:
    """Remove what a ``prepare`` that did not end has written into a folder of its own."""
    ended, killed = _begun(folder, entries)
    for scratch in killed:
        files.remove_scratch(scratch, root=folder)
    for scratch in ended:
        files.remove_file(files.mark_of(scratch), root=folder)
    for path in (folder / WORK).glob(f"{PREPARED}*"):  # killed before it had a mark
        files.remove_empty(path, root=folder)


def _remove_partials(folder: Path) -> None:
    for inside in (folder, folder / WORK, folder / "shards", folder / "splits"):
        files.remove_partials(inside, root=folder)
