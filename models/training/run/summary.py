"""Runs of several seeds as one: mean and standard deviation of every metric."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.format.card import remark
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.result import RunResult
from kmip_data.models.training.run.table import mean_std, metrics_table


@dataclass(frozen=True)
class Summary:
    """Results of the same configuration with different seeds, and where they lie."""

    runs: list[Path]
    results: list[RunResult]

    def to_dict(self) -> dict[str, Any]:
        """The one object that ``train --json`` prints.

        ``run``, ``seed``, ``best_epoch``, ``metrics``, ``sample`` and ``complete``. With several seeds the
        first three are lists, ``metrics`` is the mean, ``std`` stands beside it, and ``runs`` has one
        object a seed.
        """
        each = [
            {
                "run": str(run),
                "seed": result.seed,
                "best_epoch": result.best_epoch,
                "metrics": result.metrics,
                "sample": result.sample,
                "complete": result.complete,
            }
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
