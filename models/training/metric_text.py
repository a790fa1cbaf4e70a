"""Metrics as text: titles, numbers with units, tables of parts, and the table of epochs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from kmip_data.format.split_files import PARTS
from kmip_data.models.training.metrics import ClassScores, MetricsByPart, all_metrics, is_percent
from kmip_data.text import TEXT_WIDTH, format_duration

if TYPE_CHECKING:
    from kmip_data.models.training.config.run_config import TrainingConfig

#: Title of the loss of scaled targets, in standard deviations of the train targets.
SCALED_LOSS = "loss [std]"
#: Meaning of ± in a table of a single run.
ERROR_NOTE = "±: standard error over the items of the part"

#: Width of a metric in the table of epochs, in characters.
METRIC_WIDTH = 8
MAX_PRINTED_CLASSES = 20
_CLASS_COLUMNS = ("precision [%]", "recall [%]", "F1 [%]", "count")


def metric_title(name: str) -> str:
    """Return the title of a metric or of the loss, with its unit."""
    metric = all_metrics().get(name)
    if metric is None:
        return name
    return f"{metric.title} [%]" if metric.percent else metric.title


def format_metric(name: str, mean: float, std: float | None) -> str:
    """Format a metric or the loss, with its deviation if given; fractions in percent, NaN as –."""
    if math.isnan(mean):
        return "–"
    scale, digits = (100, 2) if is_percent(name) else (1, 4)
    text = f"{scale * mean:.{digits}f}"
    if std is None:
        return text
    return f"{text} ± {scale * std:.{digits}f}"


def format_metric_with_unit(name: str, mean: float, std: float | None = None) -> str:
    """Format a metric with its unit, such as 0.2562 for ``mae`` and 66.31 % for ``ap``."""
    text = format_metric(name, mean, std)
    return f"{text} %" if is_percent(name) and text != "–" else text


def format_metric_by_part(name: str, metrics: MetricsByPart) -> str:
    """Format a metric of each part, such as ``train accuracy 71.00 %, val accuracy 70.00 %``."""
    return ", ".join(
        f"{part} {name} {format_metric_with_unit(name, values[name])}"
        for part, values in metrics.items()
    )


def metrics_table(
    mean: MetricsByPart,
    std: Mapping[str, Mapping[str, float | None]] | None = None,
    *,
    loss_title: str = "loss",
) -> str:
    """Format a table of parts and metrics, fractions in percent, with deviations if given.

    A table wider than 80 characters has a row per metric instead of a row per part.
    An undefined metric is shown as –, with the reason below the table.
    """
    measured = {name for values in mean.values() for name in values}
    if "mae" in measured:
        measured.discard("mae_batches")  # nearly equal; only for comparison with other software
    names = [name for name in ("loss", *all_metrics()) if name in measured]
    notes = []
    titles = [loss_title if name == "loss" else metric_title(name) for name in names]
    rows = [["", *titles]]
    for part, values in mean.items():
        row = [part]
        for name in names:
            value = values.get(name, math.nan)
            deviation = (std or {}).get(part, {}).get(name)
            row.append(format_metric(name, value, deviation))
            metric = all_metrics().get(name)
            if math.isnan(value) and metric is not None and metric.required_targets:
                notes.append(f"–: {metric.title} needs {metric.required_targets}")
        rows.append(row)
    columns = [[*column] for column in zip(*rows, strict=True)]
    if sum(max(map(len, column)) + 2 for column in columns) > TEXT_WIDTH:
        rows = columns
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
    return "\n".join([*lines, *dict.fromkeys(notes)])


def class_table(
    scores: Sequence[ClassScores], class_names: Sequence[str], part: str = "test"
) -> str:
    """Format a table of a part with a row per class; empty without classes, or with many."""
    if not 0 < len(scores) <= MAX_PRINTED_CLASSES:
        return ""
    names = class_names
    if len(names) != len(scores):  # labels or numbers that a task makes classes have no names
        names = [f"class {number}" for number in range(len(scores))]
    rows = [[part, *_CLASS_COLUMNS]]
    for name, score in zip(names, scores, strict=True):
        shares = (score.precision, score.recall, score.f1)
        cells = ["–" if share is None else f"{100 * share:.2f}" for share in shares]
        rows.append([name, *cells, f"{score.count:,}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        numbers = map(str.rjust, cells, widths[1:])
        lines.append("  ".join([name.ljust(widths[0]), *numbers]))
    return "\n".join(lines)


class EpochTable:
    """Printed table of epochs, with a row of at most 80 characters for each evaluated epoch.

    Parameters
    ----------
    settings
        Number of epochs, metric, and the part that selects the best epoch.
    evaluated_parts
        Parts of the split that are evaluated after an epoch; train has a column anyway.
    loss_title
        Title of the column of training losses.
    """

    def __init__(
        self,
        settings: TrainingConfig,
        evaluated_parts: Collection[str],
        loss_title: str = "train loss",
    ) -> None:
        self.settings = settings
        self.metric = str(settings.metric)
        self.parts = [part for part in PARTS if part == "train" or part in evaluated_parts]
        self.loss_title = loss_title
        self.epoch_width = max(len("epoch"), 2 * len(str(settings.epochs)) + 1)

    def header(self) -> str:
        """Return a line that explains the columns, and one with their titles."""
        cells = [self.loss_title.rjust(10)]
        cells += [f"{part:>{METRIC_WIDTH}} " for part in self.parts]
        titles = "  ".join(["epoch".rjust(self.epoch_width), *cells, "seconds", "left"])
        return (
            f"{metric_title(self.metric)}; train: while the weights change;"
            f" *: best on {self.settings.watched_part}\n{titles}"
        )

    def row(self, history: Sequence[Mapping[str, float]], best_epoch: int | None) -> str:
        """Format the last epoch of ``history``; the value of ``best_epoch`` has a mark."""
        settings = self.settings
        latest = history[-1]
        finished_epochs = int(latest["epoch"]) + 1
        cells = [
            f"{finished_epochs}/{settings.epochs}".rjust(self.epoch_width),
            f"{latest['train_loss']:.4f}".rjust(10),
        ]
        for part in self.parts:
            value = latest.get(f"{part}_{self.metric}")
            text = "" if value is None else format_metric(self.metric, value, None)
            is_best = part == settings.watched_part and best_epoch == latest["epoch"]
            cells.append(text.rjust(METRIC_WIDTH) + ("*" if is_best else " "))
        cells.append(f"{latest['seconds']:.1f}".rjust(7))
        seconds_left = self._seconds_left(history)
        if seconds_left:
            # Patience may end the run earlier.
            qualifier = "" if settings.patience is None else "≤ "
            cells.append(f"{qualifier}{format_duration(seconds_left)}")
        return "  ".join(cells).rstrip()

    def _seconds_left(self, history: Sequence[Mapping[str, float]]) -> float:
        """Estimate the remaining seconds from the last ten epochs and the last one's evaluation."""
        latest = history[-1]
        epochs = self.settings.last_epoch - int(latest["epoch"]) - 1
        training = [past["seconds_train"] for past in history[-10:]]
        evaluation = latest["seconds"] - latest["seconds_train"]
        return epochs * (sum(training) / len(training) + evaluation / self.settings.eval_every)
