"""Printed table of epochs: one aligned row for each evaluated epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kmip_data.format.split_files import PARTS
from kmip_data.models.training.config.run_config import TrainingConfig
from kmip_data.models.training.metric_text import format_metric, metric_title
from kmip_data.text import format_duration

#: Width of a metric, in characters.
METRIC_WIDTH = 8
#: Values of an epoch by name: epoch, lr, seconds, train_loss, val_f1 …
EpochMetrics = dict[str, float]


class EpochTable:
    """Header and rows of the table, at most 100 characters wide.

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
            f"{metric_title(self.metric)} after each epoch; train: while the weights change;"
            f" *: best on {self.settings.watched_part}\n{titles}"
        )

    def row(self, history: Sequence[EpochMetrics], best_epoch: int | None) -> str:
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
            if value is not None:
                is_best = part == settings.watched_part and best_epoch == latest["epoch"]
                mark = "*" if is_best else " "
                cells.append(format_metric(self.metric, value, None).rjust(METRIC_WIDTH) + mark)
        cells.append(f"{latest['seconds']:.1f}".rjust(7))
        seconds_left = self._seconds_left(history)
        if seconds_left:
            # Patience may end the run earlier.
            qualifier = "" if settings.patience is None else "at most "
            cells.append(f"{qualifier}{format_duration(seconds_left)}")
        return "  ".join(cells).rstrip()

    def _seconds_left(self, history: Sequence[Mapping[str, float]]) -> float:
        """Estimate the remaining seconds from the last ten epochs and the last one's evaluation."""
        latest = history[-1]
        epochs = self.settings.last_epoch - int(latest["epoch"]) - 1
        training = [past["seconds_train"] for past in history[-10:]]
        evaluation = latest["seconds"] - latest["seconds_train"]
        return epochs * (sum(training) / len(training) + evaluation / self.settings.eval_every)
