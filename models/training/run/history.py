"""The history of a run: metrics.csv and steps.csv, its picture, a logger, and how long the rest will take."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kmip_data.drawing.style import PALETTE, look, new_figure, percent, save, styled
from kmip_data.errors import UsageError
from kmip_data.files.changes import csv_bytes, write_file
from kmip_data.format.splits import PARTS
from kmip_data.models.training.config.keys import RunConfig, TrainingConfig
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.folders import METRICS_NAME, STEPS_NAME
from kmip_data.models.training.run.meter import STEP
from kmip_data.wording import counted, rough_time

Row = dict[str, float]  #: one epoch: epoch, lr, seconds, train_loss, val_f1 …
Log = Callable[[dict[str, float], int], None]  #: of values by name, and the number of the epoch or step
LABELS = {"train": "train (while learning)", "val": "val", "test": "test"}
COLOURS = dict(zip(LABELS, PALETTE, strict=False))
WORTH_SAYING = 60.0  #: seconds that are left
LONG = 1_800.0  #: seconds of a run whose length is forecast from its first batches
FORECAST_AFTER = 3  #: batches; the first two compile and plan


def write_history(folder: Path, history: list[Row], steps: list[list[float]]) -> None:
    """Write ``metrics.csv``, one line per epoch, and ``steps.csv``; cells without a value are empty."""
    names = list(dict.fromkeys(name for row in history for name in row))
    cells = ([row.get(name) for name in names] for row in history)
    write_file(folder / METRICS_NAME, csv_bytes(names, cells))
    if steps:
        rows = ([int(epoch), int(step), *values] for epoch, step, *values in steps)
        write_file(folder / STEPS_NAME, csv_bytes(STEP, rows))


def line_of(row: Row, epochs: int, metric: str, *, best: bool) -> str:
    """Return the line that is printed of an evaluated epoch."""
    parts = [f"epoch {int(row['epoch']) + 1}/{epochs}", f"train loss {row['train_loss']:.4f}"]
    values = {part: row.get(f"{part}_{metric}") for part in PARTS}
    title = METRICS[metric].title
    parts += [f"{part} {title} {value:.4f}" for part, value in values.items() if value is not None]
    return f"{'  '.join(parts)}{' (best)' if best else ''}  {row['seconds']:.1f} s"


def is_eval_epoch(epoch: int, *, every: int, epochs: int) -> bool:
    """Return True for epochs (from 0) that are evaluated: each ``every``-th, the first and the last.

    Source: ``torch_geometric/graphgym/utils/epoch.py`` of PyG 2.0.4.
    """
    return (epoch + 1) % every == 0 or epoch in {0, epochs - 1}


class Forecast:
    """Forecasts of a run's time from its own batches and epochs; each is made once."""

    def __init__(self, training: TrainingConfig, batches: int) -> None:
        self._training, self._batches = training, batches
        self._seen = 0
        self._second = 0.0  # when the second batch had ended

    def after_batch(self, seconds: float) -> str | None:
        """Return a forecast after the third batch of a process, ``seconds`` into its epoch, of a long run."""
        self._seen += 1
        if self._seen == FORECAST_AFTER - 1:
            self._second = seconds
        if self._seen != FORECAST_AFTER or self._batches < FORECAST_AFTER:
            return None
        each, epochs = seconds - self._second, self._training.epochs
        whole = each * self._batches * epochs
        if whole < LONG:
            return None
        return (
            f"time: about {rough_time(whole)} for {counted(epochs, 'epoch')} of {self._batches:,} batches,"
            " by the third one; evaluations come on top"
        )

    def after_epoch(self, history: Sequence[Row]) -> str | None:
        """Return a forecast after the second epoch; the first one compiles and warms up."""
        training = self._training
        left = training.epochs - len(history)
        measured = [row["seconds"] - row["seconds_train"] for row in history if "val_loss" in row]
        if len(history) != 2 or not measured:
            return None
        evaluations = sum(
            is_eval_epoch(epoch, every=training.eval_every, epochs=training.epochs)
            for epoch in range(len(history), training.epochs)
        )
        train = history[-1]["seconds_train"]
        seconds = left * train + evaluations * min(measured)
        if seconds <= WORTH_SAYING:
            return None
        return (
            f"time: {train:.1f} s per epoch and {min(measured):.1f} s per evaluation;"
            f" the {left:,} epochs left take about {rough_time(seconds)}"
            f"{' at most' if training.patience else ''}"
        )


def check_logger(name: str) -> None:
    """Raise UsageError, with the package to install, where a logger's package is not installed."""
    if name != "csv" and importlib.util.find_spec(name) is None:
        raise UsageError(
            f"The logger {name!r} needs the package of that name.",
            next=f"pip install {name}, or --set system.logger=csv",
        )


def no_log(values: dict[str, float], step: int) -> None:
    """Log nothing."""


def build_logger(config: RunConfig, folder: Path, project: str) -> Log:
    """Return the run's logger; ``metrics.csv`` is always written."""
    if config.system.logger == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(folder / "tensorboard"))

        def to_tensorboard(values: dict[str, float], step: int) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)
            writer.flush()

        return to_tensorboard
    if config.system.logger == "wandb":
        import wandb

        run = wandb.init(dir=folder, name=folder.name, project=project, config=config.model_dump(mode="json"))

        def to_wandb(values: dict[str, float], step: int) -> None:
            kind = "step" if any(name.startswith("step/") for name in values) else "epoch"
            run.log({**values, kind: step})

        return to_wandb
    return no_log


@styled
def draw_curves(history: list[Row], path: Path, *, title: str, metric: str, best_epoch: int | None) -> None:
    """Draw loss and the chosen metric of every part over the epochs into a PNG; mark the best epoch."""
    from matplotlib.ticker import MaxNLocator

    if best_epoch is not None:
        best = history[best_epoch]
        values = [
            f"{part} {METRICS[metric].title} {METRICS[metric].text(best[f'{part}_{metric}'])}"
            for part in ("val", "test")
            if f"{part}_{metric}" in best
        ]
        title = f"{title}\nbest epoch {best_epoch + 1}: {', '.join(values)}"
    figure = new_figure(10, 4, title=title)
    for axes, name, label in zip(
        figure.subplots(1, 2), ("loss", metric), ("loss", METRICS[metric].title), strict=True
    ):
        for part, colour in COLOURS.items():
            points = [(row["epoch"] + 1, row[f"{part}_{name}"]) for row in history if f"{part}_{name}" in row]
            if points:
                marker = "o" if len(points) <= 30 else None
                axes.plot(
                    *zip(*points, strict=True), label=LABELS[part], color=colour, marker=marker, markersize=3
                )
        if best_epoch is not None:
            axes.axvline(best_epoch + 1, color=look().quiet, linestyle="--", linewidth=1, label="best epoch")
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
    figure.axes[0].legend()
    if METRICS[metric].percent:
        figure.axes[1].yaxis.set_major_formatter(percent)
    save(figure, path)
