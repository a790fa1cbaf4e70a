"""Evaluation of a finished run: metrics on every part."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch

from kmip_data.builds.home import Build
from kmip_data.errors import CheckFailed
from kmip_data.models.training.data.run_data import ALL_RECORDS
from kmip_data.models.training.metric_text import (
    ERROR_NOTE,
    class_table,
    format_metric_by_part,
    metrics_table,
)
from kmip_data.models.training.metrics import ClassScores
from kmip_data.models.training.run.finished_run import RunOptions, open_run
from kmip_data.models.training.run.result import RunResult, RunSplit, is_edited
from kmip_data.models.training.run.run_folder import RESULT_NAME
from kmip_data.models.training.run.training_module import (
    accumulate_metrics,
    compute_metrics,
)

#: Tolerance for metrics measured on another machine, absolute and relative.
TOLERANCE = 1e-4


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Metrics of a run's best weights on a build."""

    run: Path
    result: RunResult
    build: Build
    split: RunSplit
    device: str
    #: loss and metrics by part
    metrics: dict[str, dict[str, float]]
    #: standard errors of the metrics on the last part, over its items
    standard_errors: dict[str, float]
    #: scores of each class on the last part, of a classification
    class_scores: list[ClassScores]
    #: True if ``result.json`` was edited after it was written.
    edited: bool
    #: keys that differ from the run, as ``KEY=VALUE``
    overrides: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Evaluation({self.run.name}, {format_metric_by_part(self.result.metric, self.metrics)})"

    @property
    def equals_result(self) -> bool | None:
        """True if the metrics are exactly those in ``result.json``; ``None`` on other data or with overrides."""
        same_build = self.build.card.key == self.result.build_key
        same_split = self.split.digests == self.result.split.digests
        if not same_build or not same_split or self.overrides:
            return None
        return self.metrics == {part: self.result.metrics.get(part) for part in self.metrics}

    def check(self) -> None:
        """Raise ``CheckFailed`` if a metric differs from ``result.json`` by more than :data:`TOLERANCE`."""
        if self.equals_result is not False:
            return
        differing = []
        for part, values in self.metrics.items():
            for name, written in self.result.metrics.get(part, {}).items():
                measured = values.get(name, math.nan)
                if not math.isclose(measured, written, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
                    differing.append(f"{part} {name} {measured:.6g}, not {written:.6g}")
        if differing:
            raise CheckFailed(
                f"The metrics in {self.run / RESULT_NAME} differ from those of its weights.",
                found="; ".join(differing),
                steps="evaluate with the versions and on the device that it names; "
                "if they differ there too, it was edited",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON."""
        return {
            "run": str(self.run),
            **self.build.card.identity,
            "build": str(self.build.path),
            "split": self.split.model_dump(),
            "device": self.device,
            "overrides": self.overrides,
            "best_epoch": self.result.best_epoch,
            "metrics": self.metrics,
            "standard_errors": self.standard_errors,
            "class_scores": [scores.model_dump() for scores in self.class_scores],
            "same_as_result": self.equals_result,
            "edited": self.edited,
        }

    def table(self) -> str:
        """Format a table of parts and metrics, with the data and the epoch."""
        card = self.build.card
        epoch = f"{self.result.best_epoch + 1} of {self.result.epochs}"
        part = [*self.metrics][-1]
        rows = "all labelled rows" if part == ALL_RECORDS else f"split {self.split.name!r}"
        title = f"{card.dataset}{card.coverage_suffix}, {rows}; weights of epoch {epoch}"
        lines = [
            metrics_table(
                self.metrics, {part: self.standard_errors}, loss_title=self.result.loss_title
            ),
            class_table(self.class_scores, card.class_names, part),
            "; ".join([title, *self.overrides]),
            ERROR_NOTE if self.standard_errors else "",
        ]
        if self.equals_result is not None:
            lines.append(
                "equal to result.json" if self.equals_result else "not bitwise equal to result.json"
            )
        if self.edited:
            lines.append(f"{RESULT_NAME} was edited after it was written")
        return "\n".join(filter(None, lines))


def evaluate(
    run: str | os.PathLike[str],
    *,
    split: str | None = None,
    **options: Unpack[RunOptions],
) -> Evaluation:
    """Evaluate the best weights of ``run`` on its own data or on another build.

    A CPU reproduces the metrics in ``result.json`` exactly on the same machine, with the same number
    of threads and the same versions.

    Parameters
    ----------
    run
        A run folder, or its path below ``runs/``.
    dataset
        Another dataset or build folder with the same features and classes. All of its labelled rows
        are evaluated, or the parts of a split that is published or comes from its files.
    sample
        Use the sample of a ``dataset`` given by name.
    split
        Only part to evaluate: ``train``, ``val``, ``test``, or ``all`` for all records.
    overrides
        Keys to change as ``KEY=VALUE``, of those that leave names and shapes of the weights alone
        (:attr:`~kmip_data.models.components.Component.test_keys`), such as ``model.attention.k=5``.
    device
        ``auto``, ``cpu`` or ``cuda``; the run's own setting if ``None``.

    Raises
    ------
    UsageError
        Unknown run or build, or data that do not match the weights.
    DamagedInput
        Unfinished run, or a damaged file.
    OutOfResources
        A batch does not fit into memory.
    """
    opened = open_run(run, split=split, command="evaluate", **options)
    last_part = opened.parts[-1]
    evaluated_split = RunSplit(name=last_part, rule=last_part, parameters={}, digests={})
    if last_part != ALL_RECORDS:
        evaluated_split = RunSplit.from_data(opened.data)
    with opened.load_module() as module:
        device_of_run = torch.device(opened.device.type)
        accumulated = accumulate_metrics(
            module, opened.data, opened.parts, device_of_run, error_part=last_part
        )
        class_scores = accumulated[last_part].class_scores()
        errors = accumulated[last_part].standard_errors()
        metrics = compute_metrics(module, accumulated)
    return Evaluation(
        run=opened.folder,
        result=opened.result,
        build=opened.data.build,
        split=evaluated_split,
        device=opened.device.name,
        metrics=metrics,
        standard_errors=errors,
        class_scores=class_scores,
        edited=is_edited(opened.folder),
        overrides=tuple(options.get("overrides", ())),
    )
