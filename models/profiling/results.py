"""Results of the efficiency experiment, ours and the paper's: their growth with n, and their picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from kmip_data.drawing.style import look, new_figure, save, styled

Setting = Literal["inference", "training"]
SETTINGS: tuple[Setting, Setting] = ("inference", "training")
DASHES = ("-", "--", ":", "-.")  #: of the paper's curves
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
        return list(map(sum, zip(self.forward, self.backward or [0.0] * len(self.forward), strict=True)))

    @property
    def seconds(self) -> float | None:
        """Median of the totals."""
        return statistics.median(self.totals) if self.forward else None

    def as_dict(self) -> dict[str, Any]:
        """Return values for JSON and CSV; ``least`` and ``most`` are over the runs."""
        parts = {"forward": self.forward, "backward": self.backward}
        return {
            **{name: getattr(self, name) for name in ("method", "setting", "n", "status", "seconds")},
            "least": min(self.totals, default=None),
            "most": max(self.totals, default=None),
            **{name: statistics.median(values) if values else None for name, values in parts.items()},
            "runs": len(self.forward),
            "peak_bytes": self.peak_bytes,
            "note": self.note,
        }


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


@styled
def draw_sweep(
    cells: Sequence[Measurement], path: Path, *, title: str, paper: Mapping[str, Any] | None
) -> None:
    """Draw four log-log plots: seconds and peak bytes, inference and training.

    Curves measured here are coloured; those of ``paper`` (``manifests/results/efficiency.toml``) are grey. A
    cross marks where a method ran out of memory or time.
    """
    from matplotlib.ticker import EngFormatter

    figure = new_figure(13, 10, title=title)
    curves: dict[str, Any] = {}  # one legend: it would hide the curves of four
    plots = product(("seconds", "bytes"), SETTINGS)
    for axes, (quantity, setting) in zip(figure.subplots(2, 2).flat, plots, strict=True):
        timed = quantity == "seconds"
        key, scale, what, unit = (
            ("milliseconds", 1e-3, "time", "s") if timed else ("megabytes", 2**20, "peak memory", "B")
        )
        of_paper = [curve for curve in (paper or {"curve": ()})["curve"] if curve["setting"] == setting]
        for number, curve in enumerate(of_paper):
            if key in curve:
                label = f"paper, {paper and paper['machine']}: {curve['label']}"
                style = {"color": look().quiet, "linestyle": DASHES[number % 4], "linewidth": 1}
                axes.plot(curve["n"], [value * scale for value in curve[key]], label=label, **style)
        for number, name in enumerate(dict.fromkeys(cell.method for cell in cells)):
            of_it = [cell for cell in cells if (cell.method, cell.setting) == (name, setting)]
            found = [(cell.n, cell.seconds if timed else cell.peak_bytes) for cell in of_it]
            if points := [(n, value) for n, value in found if value]:
                style = {"color": f"C{number % 10}", "markersize": 3}
                axes.plot(*zip(*points, strict=True), "o-", label=f"{name}, here", **style)
                for cell in [cell for cell in of_it if cell.status in {"oom", "time"}][:1]:
                    axes.plot(cell.n, points[-1][1], "x", color=style["color"])
        axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel=what, title=f"{setting}: {what}")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_major_formatter(EngFormatter(unit))
        axes.grid()
        curves |= {curve.get_label(): curve for curve in axes.get_legend_handles_labels()[0]}
    figure.legend([*curves.values()], [*curves], loc="outside lower center", ncols=2)
    save(figure, path)
