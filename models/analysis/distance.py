"""Accuracy, or absolute error, of a run by the distance between a node and what its target depends on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kmip_data.drawing.style import look, new_figure, percent, save, styled
from kmip_data.models.training.run.evaluate import open_run
from kmip_data.models.training.run.folder import with_unit
from kmip_data.models.training.run.predictions import predict
from kmip_data.reading.dataset import ShardedDataset

#: Smallest distance of each band: one by one as far as a small network reaches, then wider and wider.
STARTS = (1, 2, 3, 4, 5, 7, 9, 13, 19, 27, 39, 55, 79, 111)


@dataclass(frozen=True)
class ByDistance:
    """Value of a run in each band of distances that has nodes."""

    metric: str  #: ``accuracy``, a fraction; or ``mae``, in the unit of the target
    bands: tuple[str, ...]  #: distances in edges, such as ``5`` and ``9–12``
    nodes: tuple[int, ...]
    values: tuple[float, ...]

    def texts(self) -> list[str]:
        """Return the values for people; shares in percent."""
        return [with_unit(self.metric, value) for value in self.values]


def by_distance(run: str | os.PathLike[str], *, split: str = "test", **where: Any) -> ByDistance | None:
    """Measure the best weights of ``run`` on a part by the column ``distance`` of its data; None without it.

    Nodes at distance 0 are left out: their target is known where it is asked for. Further arguments and
    errors are those of :func:`~kmip_data.models.training.run.evaluate.evaluate`.
    """
    build = open_run(run, **where).data.build
    if "node/distance" not in {column.key for column in build.card.schema_.columns}:
        return None
    found = predict(run, split=split, **where)
    assert found.about is not None, "a run's predictions say where they come from"
    assert found.pred is not None, "nodes with a distance have classes or values"
    dataset = ShardedDataset(build, split, split_name=found.about.split)
    distance = torch.cat([data.distance for data in dataset]).numpy()
    target = torch.cat([data.y for data in dataset]).numpy()
    classes = found.about.kind == "single-label"
    each = found.pred == target if classes else np.abs(found.pred - target).mean(-1)
    band = np.searchsorted(STARTS, distance, side="right") - 1
    values = {_name(number): each[band == number] for number in range(len(STARTS)) if number in band}
    means = tuple(float(of.mean()) for of in values.values())
    return ByDistance("accuracy" if classes else "mae", (*values,), (*map(len, values.values()),), means)


def _name(number: int) -> str:
    first, last = STARTS[number], (*STARTS[1:], None)[number]
    return f"{first}+" if last is None else str(first) if last == first + 1 else f"{first}–{last - 1}"


@styled
def draw_by_distance(runs: Mapping[str, ByDistance], path: Path, *, title: str, chance: float | None) -> None:
    """Draw one curve for each run, of one metric; ``chance`` is the accuracy of a guess, a fraction."""
    figure = new_figure(8, 4.5, title=title)
    axes = figure.subplots()
    for (name, found), marker in zip(runs.items(), cycle("os^vDX")):  # equal curves are seen by their marks
        axes.plot(found.bands, found.values, marker=marker, markersize=6, alpha=0.8, label=name)
    metric = next(iter(runs.values())).metric
    if chance is not None:
        axes.axhline(chance, linestyle=":", color=look().quiet, linewidth=1, label="a guess")
    if metric == "accuracy":
        axes.set_ylim(0, 1.03)
        axes.yaxis.set_major_formatter(percent)
    axes.set(xlabel="edges between a node and the one that its target depends on", ylabel=metric)
    axes.grid()
    axes.legend()
    save(figure, path)
