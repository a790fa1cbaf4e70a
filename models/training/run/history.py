"""The history of a run: a row per epoch, ``metrics.csv``, and the learning curves as a picture."""

from __future__ import annotations

import math
from pathlib import Path

from kmip_data.drawing.style import PALETTE, look, new_figure, percent, save, styled
from kmip_data.files.changes import csv_bytes
from kmip_data.models.training.objective.metrics import METRICS

Row = dict[str, float]  #: one epoch: epoch, lr, seconds, train_loss, val_f1 …
LABELS = {"train": "train (while learning)", "val": "val", "test": "test"}
COLOURS = dict(zip(LABELS, PALETTE, strict=False))


def check_history(history: list[Row], best_epoch: int | None, metric: str) -> None:
    """Raise ``ValueError`` for a history that no run has."""
    rows = all(
        row["epoch"] == epoch and min(row["seconds"], row["seconds_train"], math.inf) >= 0
        for epoch, row in enumerate(history)
    )
    if not rows or (best_epoch is not None and not (best_epoch >= 0 and metric in history[best_epoch])):
        raise ValueError("its history is not that of a run")


def history_csv(history: list[Row]) -> bytes:
    """One line per epoch; cells of what was not measured are empty."""
    names = list(dict.fromkeys(name for row in history for name in row))
    return csv_bytes(names, ([row.get(name) for name in names] for row in history))


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
