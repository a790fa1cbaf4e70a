"""Unfinished builds: results of finished steps, checks of build folders, and clean-up."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmip_data.builds.files_of_build import WORK_FOLDER, files_of_build
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import occupied_error
from kmip_data.files.small_files import canonical_json, read_json
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.format.reader import Shard
from kmip_data.format.schema import ShardStructure
from kmip_data.pipelines.base import JsonObject

PREPARATION_NAME = "the preparation of the raw files"  #: name of that step in messages
RESUMABLE_STATE = "finished shards; the next run resumes from them"  #: state on disk, for errors
UNITS_STEP = "units"  #: name of the step that lists the files of all units
_MAX_RESULT_BYTES = 2**28  #: limit of a step's result; the facts of a pass may list every record


@dataclass(frozen=True)
class UnitResult:
    """Description of a shard that is complete on disk."""

    name: str
    file: str
    sha256: str
    crc32: str
    bytes: int
    graphs: int
    nodes: int
    edges: int
    statistics: JsonObject
    skipped: list[list[str]] = field(default_factory=list)  #: (key, reason) of skipped records
    #: Files of a shard stored in several files.
    members: list[JsonObject] = field(default_factory=list)
    #: Structure of a shard that this run has written; not recorded.
    structure: ShardStructure | None = field(default=None, compare=False)

    @property
    def recorded_fields(self) -> JsonObject:
        """Fields that the result of the step records."""
        return {name: value for name, value in vars(self).items() if name != "structure"}

    @property
    def card_fields(self) -> dict[str, Any]:
        """Fields of the file's entry on a card, except its name."""
        names = ("sha256", "crc32", "bytes", "graphs", "nodes", "edges", "members")
        return {name: getattr(self, name) for name in names}


class StepResults:
    """Results of the finished steps of a build, one JSON file each in the folder ``work``.

    A result is synced and renamed into place after everything it describes is on disk, so a step
    with a result is finished. A shard must also match the digest in its result.
    """

    def __init__(self, work: Path) -> None:
        self.work = work

    def finished_result(self, step: str) -> JsonObject:
        """Return the result of a step; empty if it is unfinished or unreadable."""
        with contextlib.suppress(OSError, ValueError):
            result = read_json(self._path(step), _MAX_RESULT_BYTES)
            if isinstance(result, dict):
                return result
        return {}

    def finish(self, step: str, result: JsonObject) -> None:
        """Write the result of a step."""
        atomic_writes.write_file(self._path(step), canonical_json(result).encode())

    def _path(self, step: str) -> Path:
        return self.work / f"{step}.json"


@dataclass(frozen=True)
class UnfinishedBuild:
    """A build folder without a card; the same ``build`` command resumes it."""

    path: Path
    finished: int  #: number of shards on disk
    #: total number of shards; ``None`` if the build stopped before planning them
    shards: int | None


def unfinished_builds(home: Home) -> list[UnfinishedBuild]:
    """Return all unfinished builds under ``home``, by folder name."""
    builds = []
    for folder in sorted(home.built.glob("*")):
        if (folder / "shards").is_dir() and not (folder / CARD_NAME).is_file():
            shards = {path.stem.partition("-")[0] for path in folder.glob("shards/*.h5")}
            planned = StepResults(folder / WORK_FOLDER).finished_result(UNITS_STEP).get("files")
            total = len(planned) if isinstance(planned, list) else None
            builds.append(UnfinishedBuild(folder, len(shards), total))
    return builds


def finished_card(folder: Path) -> Card | None:
    """Return the card of a finished build; ``None`` without a card, or if the folder is not ours.

    Raises ``DamagedInput`` for a damaged card. It is never replaced, because it alone names the
    default split, which decides what readers read.
    """
    if not (folder / CARD_NAME).is_file():
        return None
    try:
        return read_card(folder)
    except DamagedInput:
        # Without a marker, the file belongs to someone else.
        if atomic_writes.marker_content(folder) is None:
            return None
        raise


def check_folder(folder: Path, key: str) -> None:
    """Refuse a folder unless it is missing, empty, or has a build of this key, finished or not."""
    card = finished_card(folder)
    if card is None:
        atomic_writes.refuse_occupied_folder(folder, atomic_writes.build_marker_content(key))
    elif card.key != key:
        raise occupied_error(folder, f"build key {key}", f"build key {card.key}")


def stored_key(folder: Path) -> str | None:
    """Return the build key stored in the first readable shard of a folder."""
    for path in sorted((folder / "shards").glob("*.h5")):
        with contextlib.suppress(DamagedInput):
            return Shard(path.with_stem(path.stem.partition("-")[0])).build_key
    return None


def remove_work(folder: Path) -> None:
    """Remove the work folder of a build and its content."""
    if atomic_writes.marker_content(folder) is not None:
        atomic_writes.remove_tree(folder / WORK_FOLDER, root=folder)


def remove_unfinished(folder: Path, key: str) -> bool:
    """Remove the unfinished build of this key from ``folder``; return True if there was one."""
    is_of_key = atomic_writes.marker_content(folder) == atomic_writes.build_marker_content(key)
    if not is_of_key or (folder / CARD_NAME).exists():
        return False
    remove_half_written_files(folder)
    atomic_writes.remove_files(folder, files_of_build(folder), folders=("shards", "splits"))
    remove_work(folder)
    atomic_writes.remove_marker(folder, root=folder)
    return True


def has_finished_steps(folder: Path) -> bool:
    """True if an unfinished build has the result of a step, from which it can resume."""
    return any((folder / WORK_FOLDER).glob("*.json"))


def remove_half_written_files(folder: Path) -> None:
    """Remove partial files of writers that were killed."""
    for subfolder in (folder, folder / WORK_FOLDER, folder / "shards", folder / "splits"):
        atomic_writes.remove_partials(subfolder, root=folder)
