"""Metrics of the parts of a split as a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kmip_data.format.parts import PARTS
from kmip_data.models.training.objective.metrics import METRICS

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
