"""The learning curves of a run as a picture."""

from __future__ import annotations

import io
from pathlib import Path

from kmip_data.format.writer import write_file
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.recorder import Row

LABELS = {"train": "train (while learning)", "val": "val", "test": "test"}
COLOURS = {"train": "#4c72b0", "val": "#dd8452", "test": "#55a868"}


def draw_curves(history: list[Row], path: Path, *, title: str, metric: str, best_epoch: int | None) -> None:
    """Draw loss and the chosen metric of every part over the epochs into a PNG.

    Parameters
    ----------
    history
        Rows of ``metrics.csv``; epochs without an evaluation have no point.
    best_epoch
        Marked by a line, with its test value.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(10, 4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    if best_epoch is not None:
        best = history[best_epoch]
        values = [
            f"{part} {METRICS[metric].title} {METRICS[metric].text(best[f'{part}_{metric}'])}"
            for part in ("val", "test")
            if f"{part}_{metric}" in best
        ]
        title = f"{title}\nbest epoch {best_epoch + 1}: {', '.join(values)}"
    figure.suptitle(title)
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
            axes.axvline(best_epoch + 1, color="#888888", linestyle="--", linewidth=1, label="best epoch")
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_file(path, buffer.getvalue())
