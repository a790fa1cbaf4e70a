"""Runs of several seeds as one: mean and standard deviation of every metric."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.models.training.metrics import METRICS
from kmip_data.models.training.result import RunResult


@dataclass(frozen=True)
class Summary:
    """Results of the same configuration with different seeds, and where they lie."""

    runs: list[Path]
    results: list[RunResult]

    def mean(self) -> dict[str, dict[str, float]]:
        """Part -> metric -> mean over seeds."""
        return self._over_seeds(statistics.fmean)

    def std(self) -> dict[str, dict[str, float]]:
        """Part -> metric -> standard deviation over seeds, divided by their number (ddof 0).

        As upstream aggregates (``torch_geometric/graphgym/utils/agg_runs.py``); 0 for one seed.
        """
        return self._over_seeds(statistics.pstdev)

    def _over_seeds(self, reduce: Any) -> dict[str, dict[str, float]]:
        parts = self.results[0].metrics
        return {
            part: {name: reduce([result.metrics[part][name] for result in self.results]) for name in values}
            for part, values in parts.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """The one object that ``train --json`` prints.

        ``run``, ``seed``, ``best_epoch``, ``metrics`` and ``sample``. With several seeds the first three
        are lists, ``metrics`` is the mean, ``std`` stands beside it, and ``runs`` has one object a seed.
        """
        each = [
            {
                "run": str(run),
                "seed": result.seed,
                "best_epoch": result.best_epoch,
                "metrics": result.metrics,
                "sample": result.sample,
            }
            for run, result in zip(self.runs, self.results, strict=True)
        ]
        if len(each) == 1:
            return each[0]
        lists = {name: [entry[name] for entry in each] for name in ("run", "seed", "best_epoch")}
        return {
            **lists,
            "metrics": self.mean(),
            "std": self.std(),
            "sample": self.results[0].sample,
            "runs": each,
        }

    def table(self) -> str:
        """Parts against metrics, in percent but for the loss; ± over seeds where there are several."""
        result = self.results[0]
        titles = {"loss": "loss", **{name: metric.title for name, metric in METRICS.items()}}
        mean, std = self.mean(), self.std()

        def cell(part: str, name: str) -> str:
            scale, digits = (1, 4) if name == "loss" else (100, 2)
            text = f"{scale * mean[part][name]:.{digits}f}"
            return text + (f" ± {scale * std[part][name]:.{digits}f}" if len(self.results) > 1 else "")

        rows = [["", *(titles[name] for name in mean["train"])]]
        rows += [[part, *(cell(part, name) for name in values)] for part, values in mean.items()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows
        ]
        seeds = ", ".join(str(result.seed) for result in self.results)
        what = f"{result.dataset}{' (sample: generated data)' if result.sample else ''}, {result.model}"
        best = ", ".join(str(result.best_epoch + 1) for result in self.results)
        lines.append(
            f"{what}, seed {seeds}; weights of epoch {best} of {result.epochs}, "
            f"the best by {titles[result.metric]} on val; metrics in %"
        )
        return "\n".join(lines)
