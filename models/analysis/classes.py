"""How well runs do on each class; on a city that is by eccentricity, which its classes are chunks of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from kmip_data.builds.home import Build, Home
from kmip_data.drawing.maps.city_map import read_city_map
from kmip_data.errors import UsageError
from kmip_data.graphs.city_columns import is_city
from kmip_data.models.training.run.evaluate import open_run
from kmip_data.models.training.run.module import measure_parts


@dataclass(frozen=True)
class ClassAccuracy:
    """The share of each class that runs get right, in one part of one build."""

    build: Build
    part: str
    names: list[str]  #: of the classes; a city's are ranges of eccentricity
    rows: NDArray[np.int64]  #: (C,) how many nodes or graphs each has
    right: dict[str, NDArray[np.int64]]  #: model -> (runs, C), how many of them each run gets right


def class_accuracy(
    runs: Sequence[str | Path], *, part: str = "test", home: Home | None = None, device: str | None = None
) -> ClassAccuracy:
    """Measure the best weights of ``runs`` on each class of ``part``.

    Raises ``UsageError`` where the runs do not predict one class of each node or graph, or learned from
    different builds or splits.
    """
    found: dict[str, list[NDArray[np.int64]]] = {}
    first, rows = None, np.zeros(0, np.int64)
    for run in runs:
        opened = open_run(run, home=home, device=device)
        result = opened.result
        first = first or opened
        asked, learned = ((one.result.build_key, one.result.split.digests) for one in (first, opened))
        with opened.working() as module:
            if module.task.kind != "single-label":
                raise _refused(
                    "Only classes have an accuracy each.", "a run that classifies", result.metric, run
                )
            if asked != learned:
                raise _refused("The runs do not compare.", f"build and split of {runs[0]}", "others", run)
            if part not in opened.data.parts:
                raise _refused(f"There is no {part} part.", ", ".join(opened.data.parts), part, run)
            (counted,) = measure_parts(module, opened.data, [part], torch.device(opened.device.kind)).values()
            confusion = counted.rows.compute().numpy().astype(np.int64)
        rows = confusion.sum(1)
        found.setdefault(result.model, []).append(np.diag(confusion))
    if first is None:
        raise _refused("No run is named.", "one RUN or more", "none", "the list")
    build = first.data.build
    names = list(build.card.class_names) or [str(number) for number in range(len(rows))]
    if is_city(build.card):
        names = read_city_map(build).class_ranges()
    return ClassAccuracy(build, part, names, rows, {model: np.stack(each) for model, each in found.items()})


def _refused(what: str, expected: str, found: str, run: str | Path) -> UsageError:
    return UsageError(
        what, expected=expected, found=f"{found}, in {run}", next="kmip-data analyze classes --help"
    )
