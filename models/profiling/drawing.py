"""Draw time and memory of attention methods against nodes, with the paper's curves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from kmip_data.drawing.style import NOTE, look, new_figure, save, styled
from kmip_data.models.profiling.results import SETTINGS, Cell, Published, growth_exponent

PAPER_STYLES = {"symbolic": "-", "naive": "--", "full": ":", "flash": "-."}


@styled
def draw_sweep(cells: Sequence[Cell], path: Path, *, title: str, paper: Published | None) -> None:
    """Draw four log-log plots: seconds and peak bytes, inference and training.

    Curves measured here are coloured, with their growth exponent over the last decade of nodes; the paper's,
    from its own machine, are grey. A cross marks where a method ran out of memory or time.
    """
    from matplotlib.ticker import EngFormatter

    figure = new_figure(13, 10, title=title)
    curves: dict[str, Any] = {}  # one legend: it would hide the curves of four
    plots = product(("seconds", "bytes"), SETTINGS)
    for axes, (quantity, setting) in zip(figure.subplots(2, 2).flat, plots, strict=True):
        growth: dict[str, Any] = {}
        for curve in paper.curve if paper is not None else ():
            values = curve.milliseconds if quantity == "seconds" else curve.megabytes
            if curve.setting == setting and values:
                scale = 1e-3 if quantity == "seconds" else 2**20
                label = f"paper, {paper.machine if paper else ''}: {curve.label}"
                style = PAPER_STYLES.get(curve.method, "-")
                scaled = [value * scale for value in values]
                axes.plot(curve.n, scaled, color=look().quiet, linestyle=style, linewidth=1, label=label)
        for number, name in enumerate(dict.fromkeys(cell.method for cell in cells)):
            of_it = [cell for cell in cells if (cell.method, cell.setting) == (name, setting)]
            _draw_method(axes, quantity, of_it, f"C{number % 10}", growth)
        what = "time" if quantity == "seconds" else "peak memory"
        axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel=what, title=f"{setting}: {what}")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_major_formatter(EngFormatter("s" if quantity == "seconds" else "B"))
        axes.grid()
        if growth:
            axes.legend([*growth.values()], [*growth], loc="upper left", handlelength=1)
        curves |= {curve.get_label(): curve for curve in axes.get_legend_handles_labels()[0]}
    figure.legend([*curves.values()], [*curves], loc="outside lower center", ncols=2)
    save(figure, path)


def _draw_method(
    axes: Any, quantity: str, cells: Sequence[Cell], colour: str, growth: dict[str, Any]
) -> None:
    """Draw the cells of one method and setting; put the curve into ``growth`` under its exponent."""
    found = [(cell.n, cell.seconds if quantity == "seconds" else cell.peak_bytes) for cell in cells]
    points = [(n, float(value)) for n, value in found if value]
    if not points:
        return
    style = {"marker": "o", "markersize": 3, "color": colour, "label": f"{cells[0].method}, here"}
    (curve,) = axes.plot(*zip(*points, strict=True), **style)
    exponent = growth_exponent(points) if quantity == "seconds" else None
    if exponent is not None:
        growth[f"{cells[0].method}: n^{exponent:.2f}"] = curve
    for cell in [cell for cell in cells if cell.status in {"oom", "time"}][:1]:
        end, beside = (cell.n, points[-1][1]), {"textcoords": "offset points", "xytext": (3, 3)}
        axes.plot(*end, marker="x", color=colour, linestyle="none")
        axes.annotate(cell.status, end, fontsize=NOTE, color=colour, **beside)
