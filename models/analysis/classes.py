"""Accuracy of a run by class; a city's classes are ranges of eccentricity."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kmip_data.drawing.maps import read_city_map
from kmip_data.errors import UsageError
from kmip_data.graphs.city_columns import is_city
from kmip_data.models.training.run.evaluate import open_run
from kmip_data.models.training.run.module import measure_parts


@dataclass(frozen=True)
class ClassAccuracy:
    """Nodes or graphs of each class, and how many of them a run gets right, by part."""

    names: list[str]
    rows: dict[str, list[int]]  #: part -> number of each class
    right: dict[str, list[int]]  #: part -> correct ones of each class


def class_accuracy(run: str | Path, **where: Any) -> ClassAccuracy:
    """Measure the best weights of ``run`` on each class of every part.

    Options are those of :func:`.evaluate.open_run`. Raises ``UsageError`` if the run does not predict one
    class for each node or graph.
    """
    opened = open_run(run, **where)
    with opened.working() as module:
        if module.task.kind != "single-label":
            raise UsageError(
                "Accuracy by class needs a run that predicts one class.",
                found=f"{opened.result.metric}, in {run}",
                next="leave out --by-class",
            )
        device = torch.device(opened.device.kind)
        found = {
            part: counted.rows.compute().long()  # (C, C) confusion: true class by predicted class
            for part, counted in measure_parts(module, opened.data, opened.data.parts, device).items()
        }
    build = opened.data.build
    names = list(build.card.class_names)
    if is_city(build.card):
        names = read_city_map(build).class_ranges()
    rows = {part: confusion.sum(1).tolist() for part, confusion in found.items()}
    names = names or [str(number) for number in range(len(next(iter(rows.values()))))]
    return ClassAccuracy(names, rows, {part: confusion.diag().tolist() for part, confusion in found.items()})
