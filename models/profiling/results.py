"""Results of the efficiency experiment, ours and the paper's: their growth with n, and their picture."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from kmip_data.drawing.style import NOTE, look, new_figure, save, styled
from kmip_data.manifest import Strict, read_shipped

Setting = Literal["inference", "training"]
SETTINGS: tuple[Setting, Setting] = ("inference", "training")
Status = Literal["ok", "oom", "time", "unavailable", "failed"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One method in one setting on n nodes: seconds of the counted runs, or why there are none."""

    method: str
    setting: Setting
    n: int
    #: ``oom``: memory ran out; ``time``: one run took longer than the limit; ``unavailable``: the method
    #: cannot run here or on these inputs; ``failed``: it ended with an error
    status: Status
    forward: tuple[float, ...] = ()  #: one number per run
    backward: tuple[float, ...] = ()  #: one number per run; empty in inference
    peak_bytes: int | None = None  #: peak memory with the inputs, beyond what was there before
    note: str = ""

    @property
    def totals(self) -> list[float]:
        """Forward and backward together, run by run."""
        if not self.backward:
            return list(self.forward)
        return [there + back for there, back in zip(self.forward, self.backward, strict=True)]

    @property
    def seconds(self) -> float | None:
        """Median of the totals."""
        return _median(self.totals)

    def as_dict(self) -> dict[str, Any]:
        """Return values for JSON and CSV; ``least`` and ``most`` are over the runs."""
        totals = self.totals
        return {
            "method": self.method,
            "setting": self.setting,
            "n": self.n,
            "status": self.status,
            "seconds": self.seconds,
            "least": min(totals, default=None),
            "most": max(totals, default=None),
            "forward": _median(self.forward),
            "backward": _median(self.backward),
            "runs": len(totals),
            "peak_bytes": self.peak_bytes,
            "note": self.note,
        }


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def growth_exponent(points: Iterable[tuple[float, float]]) -> float | None:
    """Return the slope of log seconds over log n, by least squares over the last decade of n.

    Takes points (n, seconds); smaller n measure overhead, not growth. None for fewer than two points.

    >>> growth_exponent([(10, 5), (1000, 1), (10000, 100)])
    2.0
    """
    ordered = sorted(points)
    # ⌊10^(i/2)⌋ is a little less than a decade.
    logs = [(math.log10(n), math.log10(t)) for n, t in ordered if n >= ordered[-1][0] / 10 * 0.99]
    if len(logs) < 2:
        return None
    return round(statistics.linear_regression(*zip(*logs, strict=True)).slope, 6)


class PublishedCurve(Strict):
    """One method of the paper in one setting."""

    method: str
    label: str
    setting: Setting
    n: tuple[int, ...]
    milliseconds: tuple[float, ...]
    megabytes: tuple[float, ...] = ()


class Published(Strict):
    """Figures of the paper, measured on its A100."""

    source: str
    machine: str
    protocol: str
    curve: tuple[PublishedCurve, ...]


@functools.cache
def published() -> Published:
    """Read ``manifests/results/efficiency.toml``."""
    return Published.model_validate(read_shipped("results", "efficiency"))


PAPER_STYLES = {"symbolic": "-", "naive": "--", "full": ":", "flash": "-."}


@styled
def draw_sweep(cells: Sequence[Measurement], path: Path, *, title: str, paper: Published | None) -> None:
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
    axes: Any, quantity: str, cells: Sequence[Measurement], colour: str, growth: dict[str, Any]
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
