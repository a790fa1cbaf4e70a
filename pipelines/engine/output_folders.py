"""Whether a folder that a user names is one to build into: empty, or this very build's."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.reader import Shard
from kmip_data.pipelines.engine.journal import journal_entries
from kmip_data.pipelines.engine.run import JOURNAL, WORK, finished_card


def check_output(folder: Path, key: str) -> None:
    """Refuse a folder that holds anything but this build, finished or not.

    Raises
    ------
    UsageError
        It holds something else.
    """
    if (card := finished_card(folder)) is not None:
        if card.key != key:
            raise other_build(folder, f"build key {key}", f"build key {card.key}")
        return
    if not folder.exists():
        return
    if not folder.is_dir():
        raise other_build(folder, "a folder", "a file")
    names = sorted(path.name for path in folder.iterdir() if path.name != ".lock")
    journal = folder / WORK / JOURNAL
    if names and journal_entries(journal, key) is None and not _is_of(folder, key):
        # Nothing but the empty folders of a build: it was stopped before its journal was begun.
        if {folder / WORK, folder / "shards", folder / "splits"}.issuperset(folder.rglob("*")):
            return
        if journal_entries(journal) is not None:
            raise other_build(folder, f"build key {key}", "an unfinished build with other parameters")
        raise other_build(folder, "an empty folder or an unfinished build", ", ".join(names[:5]))


def _is_of(folder: Path, key: str) -> bool:
    """Whether a shard of a folder whose card is damaged carries this build key."""
    for path in (folder / "shards").glob("*.h5"):
        with contextlib.suppress(DamagedInput):
            return Shard(path).build_key == key
    return False


def other_build(folder: Path, expected: str, found: str) -> UsageError:
    """Return the error for a folder that is not this build's."""
    return UsageError(
        f"{folder} holds something else.",
        expected=expected,
        found=found,
        left="that folder is as it was",
        next="give another --output folder",
    )
