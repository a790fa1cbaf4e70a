"""What runs found, for people and programs: tables of metrics, mean and deviation over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.format.card import remark
from kmip_data.format.parts import PARTS
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.result import RunResult

Metrics = dict[str, dict[str, float]]  #: part -> name -> value


def mean_std(runs: Sequence[Metrics]) -> tuple[Metrics, Metrics]:
    """Mean and standard deviation (ddof 0, as upstream aggregates seeds) of every metric over runs."""
    parts = runs[0]
    values = {part: {name: [run[part][name] for run in runs] for name in parts[part]} for part in parts}
    mean = {part: {name: statistics.fmean(v) for name, v in names.items()} for part, names in values.items()}
    std = {part: {name: statistics.pstdev(v) for name, v in names.items()} for part, names in values.items()}
    return mean, std


def metrics_table(runs: Sequence[Metrics]) -> str:
    """Parts against metrics, shares in percent; mean ± std where there are several runs."""
    mean, std = mean_std(runs)
    titles = {"loss": "loss"} | {
        name: f"{metric.title} [%]" if metric.percent else metric.title for name, metric in METRICS.items()
    }
    parts = [part for part in PARTS if part in mean]
    names = [name for name in titles if name in mean[parts[0]]]

    def cell(part: str, name: str) -> str:
        scale, digits = (100, 2) if name in METRICS and METRICS[name].percent else (1, 4)
        text = f"{scale * mean[part][name]:.{digits}f}"
        return f"{text} ± {scale * std[part][name]:.{digits}f}" if len(runs) > 1 else text

    rows = [["", *(titles[name] for name in names)]]
    rows += [[part, *(cell(part, name) for name in names)] for part in parts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows
    )


@dataclass(frozen=True)
class Summary:
    """Results of the same configuration with different seeds, and where they lie."""

    runs: list[Path]
    results: list[RunResult]

    def to_dict(self) -> dict[str, Any]:
        """The one object that ``train --json`` prints.

        ``run``, ``seed``, ``best_epoch``, ``metrics``, ``sample`` and ``complete``. With several seeds the
        first three are lists, ``metrics`` is the mean, ``std`` stands beside it, and ``runs`` has one
        object per seed.
        """
        each = [
            {"run": str(run)}
            | result.model_dump(include={"seed", "best_epoch", "metrics", "sample", "complete"})
            for run, result in zip(self.runs, self.results, strict=True)
        ]
        if len(each) == 1:
            return each[0]
        mean, std = mean_std([result.metrics for result in self.results])
        lists = {name: [entry[name] for entry in each] for name in ("run", "seed", "best_epoch")}
        return {
            **lists,
            "metrics": mean,
            "std": std,
            "sample": self.results[0].sample,
            "complete": self.results[0].complete,
            "runs": each,
        }

    def table(self) -> str:
        """Parts against metrics (mean ± std over seeds), and what was trained."""
        first = self.results[0]
        seeds = ", ".join(str(result.seed) for result in self.results)
        best = ", ".join(str(result.best_epoch + 1) for result in self.results)
        return (
            f"{metrics_table([result.metrics for result in self.results])}\n"
            f"{first.dataset}{remark(first.sample, first.complete)}, {first.model}, seed {seeds};"
            f" weights of epoch {best} of {first.epochs}"
            f", the best by {METRICS[first.metric].title} on val"
        )
