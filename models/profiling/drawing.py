"""The picture of a sweep: time and memory against nodes, beside the paper's curves."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from kmip_data.files.changes import write_output
from kmip_data.models.profiling.breakdown import STAGES
from kmip_data.models.profiling.cells import Cell, growth_exponent
from kmip_data.models.profiling.published import SETTINGS, Published

GREY = "#999999"
PAPER_STYLES = {"symbolic": "-", "naive": "--", "full": ":", "flash": "-."}
STAGE_COLOURS = {
    "search": "#4c72b0",
    "scores": "#4c72b0",
    "gather": "#dd8452",
    "softmax": "#55a868",
    "multiply": "#c44e52",
    "attend": "#8172b3",
    "backward": "#937860",
}


def draw_sweep(cells: Sequence[Cell], path: Path, *, title: str, paper: Published | None) -> None:
    """Draw a PNG of four log-log plots: seconds and peak bytes, inference and training.

    Our curves are coloured, with their growth exponent over the last decade of nodes; the paper's,
    measured on its own machine, are grey. A cross marks where a method ended (memory or time).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 9), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11)
    methods = list(dict.fromkeys(cell.method for cell in cells))
    colours = {name: f"C{number % 10}" for number, name in enumerate(methods)}
    for row, quantity in zip(figure.subplots(2, 2), ("seconds", "bytes"), strict=True):
        for axes, setting in zip(row, SETTINGS, strict=True):
            axes.set_xscale("log")
            axes.set_yscale("log")
            for curve in paper.curve if paper is not None else ():
                values = curve.milliseconds if quantity == "seconds" else curve.megabytes
                if curve.setting == setting and values:
                    scale = 1e-3 if quantity == "seconds" else 2**20
                    axes.plot(
                        curve.n,
                        [value * scale for value in values],
                        color=GREY,
                        linestyle=PAPER_STYLES.get(curve.method, "-"),
                        linewidth=1,
                        label=f"paper, {paper.machine if paper else ''}: {curve.label}",
                    )
            for name in methods:
                _draw_method(axes, name, setting, quantity, cells, colours[name])
            axes.set_title(f"{setting}: {'time' if quantity == 'seconds' else 'peak memory'}", fontsize=10)
            axes.set_xlabel("nodes")
            axes.set_ylabel(quantity)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=6)
    _save(figure, path)


def _draw_method(
    axes: object, name: str, setting: str, quantity: str, cells: Sequence[Cell], colour: str
) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    of_it = [cell for cell in cells if (cell.method, cell.setting) == (name, setting)]
    points = []
    for cell in of_it:
        value = cell.seconds if quantity == "seconds" else cell.peak_bytes
        if value:
            points.append((cell.n, float(value)))
    if not points:
        return
    exponent = growth_exponent(points) if quantity == "seconds" else None
    label = f"{name}, here" if exponent is None else f"{name}, here: n^{exponent:.2f}"
    axes.plot(*zip(*points, strict=True), marker="o", markersize=3, color=colour, label=label)
    ended = [cell for cell in of_it if cell.status in {"oom", "time"}]
    if ended:
        axes.plot([ended[0].n], [points[-1][1]], marker="x", color=colour, linestyle="none")
        axes.annotate(
            ended[0].status,
            (ended[0].n, points[-1][1]),
            fontsize=6,
            color=colour,
            textcoords="offset points",
            xytext=(3, 3),
        )


def draw_breakdown(found: Mapping[str, Mapping[str, float]], path: Path, *, title: str) -> None:
    """Draw a PNG of one bar a method, its stages one after another in seconds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.5 + 0.6 * len(found)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for place, stages in enumerate(found.values()):
        left = 0.0
        for stage in STAGES:
            if stage in stages:
                axes.barh(place, stages[stage], left=left, color=STAGE_COLOURS[stage], label=stage)
                left += stages[stage]
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_title(title, fontsize=10)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(unique.values(), unique.keys(), frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _save(figure: object, path: Path) -> None:
    from matplotlib.figure import Figure

    assert isinstance(figure, Figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_output(path, buffer.getvalue())
