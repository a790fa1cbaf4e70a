"""Builds that were stopped half-way: which there are, and how far each is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.format.card import CARD_NAME
from kmip_data.pipelines.engine.journal import planned_units
from kmip_data.pipelines.engine.run import JOURNAL, WORK


@dataclass(frozen=True)
class UnfinishedBuild:
    """A build folder without a card; the same ``build`` command goes on with it.

    Attributes
    ----------
    path
        The folder.
    finished
        Shards that are there.
    shards
        Shards that it will have; ``None`` where it was stopped before that was known.
    """

    path: Path
    finished: int
    shards: int | None


def unfinished_builds(home: Home) -> list[UnfinishedBuild]:
    """Return all unfinished builds under ``home``, by folder name."""
    return [
        UnfinishedBuild(folder, len(list(folder.glob("shards/*.h5"))), planned_units(folder / WORK / JOURNAL))
        for folder in sorted(home.built.glob("*"))
        if (folder / "shards").is_dir() and not (folder / CARD_NAME).is_file()
    ]
