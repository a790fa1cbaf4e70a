"""Summary of runs of one configuration: means and deviations of their metrics."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.format.card import SAMPLE_NOTE, coverage_suffix
from kmip_data.models.training.metric_text import (
    ERROR_NOTE,
    class_table,
    format_metric,
    format_metric_by_part,
    format_metric_with_unit,
    metric_title,
    metrics_table,
)
from kmip_data.models.training.metrics import MetricsByPart, all_metrics, is_better, is_percent
from kmip_data.models.training.references.reference import (
    TITLES,
    References,
    best_reference,
    mean_references,
    references_table,
    short_title,
)
from kmip_data.models.training.run.result import RunResult
from kmip_data.text import count_with_noun

#: Deviation of each metric by part; ``None`` for a metric of a single run.
StdByPart = dict[str, dict[str, float | None]]


def sample_std(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1): None for a single value, NaN if any is NaN."""
    if len(values) < 2:
        return None
    if any(map(math.isnan, values)):
        return math.nan
    return statistics.stdev(values)


def mean_std(runs: Sequence[MetricsByPart]) -> tuple[MetricsByPart, StdByPart]:
    """Return the mean and the sample standard deviation of every metric over runs."""
    mean: MetricsByPart = {}
    std: StdByPart = {}
    for part in runs[0]:
        mean[part] = {}
        std[part] = {}
        for name in dict.fromkeys(name for run in runs for name in run[part]):
            values = [run[part].get(name, math.nan) for run in runs]
            mean[part][name] = statistics.fmean(values)
            std[part][name] = sample_std(values)
    return mean, std


@dataclass(frozen=True, repr=False)
class RunSummary:
    """Run folders and results of one configuration with different seeds or folds."""

    runs: list[Path]
    results: list[RunResult]

    def __repr__(self) -> str:
        first = self.results[0]
        mean, _ = mean_std([result.metrics for result in self.results])
        count = count_with_noun(len(self.runs), "run")
        return f"RunSummary({first.dataset}/{first.model}, {count}, {format_metric_by_part(first.metric, mean)})"

    @property
    def spread(self) -> StdByPart:
        """Deviation of each metric over the runs; of a single run, its standard errors on test."""
        if len(self.results) == 1:
            return {"test": {**self.results[0].standard_errors}}
        return mean_std([result.metrics for result in self.results])[1]

    @property
    def folds(self) -> list[int]:
        """Fold of each run; empty if all runs have the same fold."""
        folds = [result.split.parameters.get("fold", 0) for result in self.results]
        return folds if len({*folds}) > 1 else []

    @property
    def references(self) -> References:
        """Mean reference answers over the runs."""
        return mean_references([result.references for result in self.results])

    @property
    def reference_sentence(self) -> str:
        """Sentence that the network is not better than the best reference answer; empty if it is, or is perfect.

        Results on a sample say nothing about a network.
        """
        first = self.results[0]
        name = best_reference(self.references, first.metric)
        tests = [result.metrics.get("test", {}).get(first.metric) for result in self.results]
        if name is None or None in tests or first.sample:
            return ""
        mean, _ = mean_std([result.metrics for result in self.results])
        test = mean["test"][first.metric]
        reference = self.references[name].test
        is_perfect = is_percent(first.metric) and test == 1
        if reference is None or is_perfect or is_better(first.metric, test, reference):
            return ""
        network = format_metric_with_unit(first.metric, test, self.spread["test"].get(first.metric))
        other = format_metric_with_unit(first.metric, reference)
        return f"The network is not better than {TITLES[name]} on test ({network} against {other})."

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``train --json`` prints.

        For one run: ``run``, ``seed``, ``best_epoch``, ``metrics``, ``standard_errors``, ``references``,
        ``sample`` and ``complete``. For several: the mean ``metrics``, their deviation ``std``, and ``runs``, an
        object for each run, with its ``fold`` if folds differ.
        """
        fields = {
            "seed",
            "best_epoch",
            "metrics",
            "standard_errors",
            "references",
            "sample",
            "complete",
        }
        runs = []
        for folder, result in zip(self.runs, self.results, strict=True):
            runs.append({"run": str(folder)} | result.model_dump(include=fields))
        if len(runs) == 1:
            return runs[0]
        for run, fold in zip(runs, self.folds, strict=False):
            run["fold"] = fold
        mean, std = mean_std([result.metrics for result in self.results])
        return {"metrics": mean, "std": std, "runs": runs}

    def table(self) -> str:
        """Format a table of parts and metrics (mean ± std over runs), with the data and the model."""
        first = self.results[0]
        seeds = ", ".join(map(str, dict.fromkeys(result.seed for result in self.results)))
        best_epochs = ", ".join(str(result.best_epoch + 1) for result in self.results)
        dataset = f"{first.dataset}{coverage_suffix(first.sample, first.complete)}"
        mean, _ = mean_std([result.metrics for result in self.results])
        table = metrics_table(mean, self.spread, loss_title=first.loss_title)
        aggregation = ""
        if self.folds:
            aggregation = f" fold {', '.join(map(str, dict.fromkeys(self.folds)))}:"
        if len(self.runs) > 1:
            aggregation += f" mean ± standard deviation (n - 1) over {len(self.runs)} runs,"
        classes = ""
        if len(self.runs) == 1:
            classes = class_table(first.class_scores, first.class_names)
        sentence = (
            f"{dataset}, {first.model},{aggregation} seed {seeds}; weights of epoch "
            f"{best_epochs} of {first.epochs}, the best by {all_metrics()[first.metric].title}"
            f" on {first.watched_part}"
        )
        note = SAMPLE_NOTE if first.sample else ""
        error_note = ERROR_NOTE if len(self.runs) == 1 and first.standard_errors else ""
        references = references_table(self.references, first.metric)
        return "\n".join(
            filter(
                None, (table, classes, sentence, error_note, note, references and f"\n{references}")
            )
        )


def answers_on_test(result: RunResult, name: str) -> list[tuple[str, str]]:
    """Return rows of names and values on test: the metric's title, the run ``name``, its reference answers."""
    metric = result.metric
    rows = [(metric_title(metric), "")]
    test = result.metrics.get("test", {}).get(metric)
    if test is not None:
        value = format_metric(metric, test, result.standard_errors.get(metric))
        rows.append((name, value))
    for answer, reference in mean_references([result.references]).items():
        if reference.test is not None:
            rows.append((short_title(answer), format_metric(metric, reference.test, None)))
    return rows
