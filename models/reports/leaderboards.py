"""Figures of public leaderboards: the files of ``manifests/results/leaderboards``."""

from __future__ import annotations

import functools
from typing import NamedTuple

from pydantic import Field

from kmip_data.manifest import Strict, read_shipped, shipped_names


class Leaderboard(Strict):
    """One file: the leaderboards of one benchmark, whose metric is the lower the better."""

    source: str
    metrics: tuple[str, ...] = Field(description="metrics of ours that its figures are compared with")
    models: dict[str, str] = Field(description="model of ours -> name of the same network on the leaderboard")
    entries: dict[str, dict[str, tuple[float, float]]] = Field(
        description="dataset -> entry -> mean and standard deviation on test"
    )


class Entry(NamedTuple):
    """An entry of a leaderboard."""

    name: str
    mean: float
    std: float
    source: str


@functools.cache
def leaderboards() -> list[Leaderboard]:
    """Return every shipped leaderboard."""
    folder = "results.leaderboards"
    return [Leaderboard.model_validate(read_shipped(folder, name)) for name in shipped_names(folder)]


def entry_for(dataset: str, model: str, metric: str) -> Entry | None:
    """Return the entry of the same network, else the best one; None without a leaderboard."""
    for board in leaderboards():
        entries = board.entries.get(dataset) if metric in board.metrics else None
        if entries:
            name = board.models.get(model, "")
            if name not in entries:
                name = min(entries, key=lambda each: entries[each][0])
            return Entry(name, *entries[name], board.source)
    return None
