"""State of a build folder (finished, unfinished, something else) and its removable files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.files import changes as files
from kmip_data.files.errors import occupied
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.format.reader import Shard
from kmip_data.pipelines.engine.executors import EXECUTOR_FILES
from kmip_data.pipelines.engine.journal import is_torn, journal_entries, planned_units
from kmip_data.pipelines.engine.workers import SHARD_FILE

WORK = "work"  #: folder inside an unfinished build: journal, stop file, what ``prepare`` wrote
JOURNAL = "journal.jsonl"
PREPARED = "prepared"  #: folder inside ``work/`` that ``prepare`` writes
BEGUN = ".begun"  #: ends the name of an empty file beside that folder while it is being written


@dataclass(frozen=True)
class UnfinishedBuild:
    """A build folder without a card; the same ``build`` command goes on with it."""

    path: Path
    finished: int  #: shards that are there
    shards: int | None  #: shards that it will have; ``None`` where it was stopped before that was known


def unfinished_builds(home: Home) -> list[UnfinishedBuild]:
    """Return all unfinished builds under ``home``, by folder name."""
    return [
        UnfinishedBuild(folder, len(list(folder.glob("shards/*.h5"))), planned_units(folder / WORK / JOURNAL))
        for folder in sorted(home.built.glob("*"))
        if (folder / "shards").is_dir() and not (folder / CARD_NAME).is_file()
    ]


def finished_card(folder: Path) -> Card | None:
    """Return the card of a finished build; ``None`` where there is none, or one that is damaged.

    A damaged card has lost the digests of the shards, so nothing in the folder can be trusted: a build there
    begins anew, to the same bytes. Raises ``UsageError`` where a newer kmip-data wrote the build.
    """
    if not (folder / CARD_NAME).is_file():
        return None
    try:
        return read_card(folder)
    except DamagedInput:
        return None


def check_output(folder: Path, key: str) -> None:
    """Refuse a folder that holds anything but the build of this key, finished or not."""
    if (card := finished_card(folder)) is not None:
        if card.key != key:
            raise occupied(folder, f"build key {key}", f"build key {card.key}")
        return
    if not folder.exists():
        return
    if not folder.is_dir():
        raise occupied(folder, "a folder", "a file")
    names = sorted(path.name for path in folder.iterdir() if path.name != ".lock")
    journal = folder / WORK / JOURNAL
    torn = is_torn(journal)
    if names and (torn or journal_entries(journal, key) is None) and not _is_of(folder, key):
        # A build that was stopped before the first entry of its journal has nothing but empty folders.
        begun = {folder / WORK, folder / "shards", folder / "splits"}
        if torn:
            begun |= {folder / WORK / name for name in (*EXECUTOR_FILES, JOURNAL)}
        if begun.issuperset(folder.rglob("*")):
            return
        if journal_entries(journal) is not None:
            raise occupied(folder, f"build key {key}", "an unfinished build with other parameters")
        raise occupied(folder, "an empty folder or an unfinished build", ", ".join(names[:5]))


def _is_of(folder: Path, key: str) -> bool:
    """True if a shard of a folder with a damaged card carries this build key."""
    for path in (folder / "shards").glob("*.h5"):
        with contextlib.suppress(DamagedInput):
            return Shard(path).build_key == key
    return False


def remove_work(folder: Path) -> None:
    """Remove what a build keeps in its work folder, by the journal there, which goes last."""
    entries = journal_entries(folder / WORK / JOURNAL)
    if entries is not None:
        remove_begun(folder, entries)
        files.remove_files(folder, _files_of_work(entries), folders=_folders_of_work(entries))
    files.remove_empty(folder / WORK, root=folder)


def _files_of_work(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    prepared = [entry["prepared"] for entry in entries if "folder" in entry.get("prepared", ())]
    names = [f"{WORK}/{each['folder']}/{name}" for each in prepared for name in each.get("files", ())]
    return [*names, *(f"{WORK}/{name}" for name in (*EXECUTOR_FILES, JOURNAL))]


def _folders_of_work(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    prepared = [entry["prepared"] for entry in entries if "folder" in entry.get("prepared", ())]
    return [f"{WORK}/{each['folder']}" for each in prepared]


def files_of_unfinished(folder: Path, key: str | None = None) -> list[str] | None:
    """Return the names, below its folder, of what the build of this key (None: any) wrote, by its journal.

    The journal comes last. ``None`` without a journal, and where the build is finished.
    """
    journal = folder / WORK / JOURNAL
    entries = journal_entries(journal, key)
    if entries is None or (folder / CARD_NAME).exists():
        return None
    units = planned_units(journal, key) or 0
    numbers = [path.stem for path in (folder / "shards").glob("*.h5") if SHARD_FILE.fullmatch(path.name)]
    shards = [f"shards/{number}.h5" for number in numbers if int(number) < units]
    return [*shards, *_files_of_begun(folder, entries), *_files_of_work(entries)]


def _files_of_begun(folder: Path, entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what a ``prepare`` that was killed has written into a folder of its own, and its marks."""
    ended = {entry["prepared"].get("folder") for entry in entries if "prepared" in entry}
    marks = list((folder / WORK).glob(f"{PREPARED}*{BEGUN}"))
    found = [
        path for mark in marks if mark.stem not in ended for path in (folder / WORK / mark.stem).rglob("*")
    ]
    return [path.relative_to(folder).as_posix() for path in (*found, *marks) if not path.is_dir()]


def remove_unfinished(folder: Path, key: str) -> bool:
    """Remove what the build of this key made in ``folder``, by its journal; return whether it did.

    The folder stays, and so does a finished build.
    """
    names = files_of_unfinished(folder, key)
    if names is None:
        return False
    remove_partials(folder)
    files.remove_files(
        folder, [name for name in names if name.startswith("shards/")], folders=("shards", "splits")
    )
    remove_work(folder)
    return True


def remove_begun(folder: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Remove what a ``prepare`` that did not end has written into a folder of its own."""
    work = folder / WORK
    ended = {entry["prepared"].get("folder") for entry in entries if "prepared" in entry}
    for mark in work.glob(f"{PREPARED}*{BEGUN}"):
        if mark.stem not in ended:
            files.remove_scratch(work / mark.stem, root=folder)
        files.remove_file(mark, root=folder)


def remove_partials(folder: Path) -> None:
    """Remove half-written files of writers that are gone."""
    for place in (folder, folder / "shards", folder / "splits"):
        files.remove_partials(place, root=folder)
