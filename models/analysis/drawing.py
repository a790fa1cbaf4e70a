"""Pictures of analyses: curves over k, and refined colours of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kmip_data.drawing.layouts import layout
from kmip_data.drawing.pictures import broken_line
from kmip_data.drawing.style import NOTE, PALETTE, class_colors, look, new_figure, percent, save, styled
from kmip_data.models.analysis.graph_pairs import Pair
from kmip_data.models.analysis.refinement import Refinement
from kmip_data.models.analysis.study import Study
from kmip_data.wording import counted

Curve = tuple[str, str, str]  #: label, colour, style
APPROXIMATION_LINES: dict[str, Curve] = {
    "k-MIP": ("k largest scores: k-MIP attention", PALETTE[0], "-"),
    "as published": ("k smallest scores: as the published code computed", PALETTE[1], "--"),
    "random": ("standard normal outputs", "#888888", ":"),
}
WEIGHT_LINES: dict[str, Curve] = {
    "k-MIP": ("these queries and keys", PALETTE[0], "-"),
    "Gaussian": ("Gaussian queries and keys of the same sizes", "#888888", "--"),
}


@styled
def draw_study(
    study: Study,
    path: Path,
    lines: Mapping[str, Curve],
    *,
    title: str,
    ylabel: str,
    most: float | None = None,
) -> None:
    """Draw the mean of each curve over k, with its deviation over graphs as a band from 0 to ``most``."""
    figure = new_figure(8, 5, title=title)
    axes = figure.subplots()
    for name, (label, colour, style) in lines.items():
        mean, std = study.summary(name)
        axes.plot(study.ks, mean, label=label, color=colour, linestyle=style)
        if std.any():
            low, high = np.clip([mean - std, mean + std], 0, most)
            axes.fill_between(study.ks, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel="k", ylabel=ylabel)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_ylim(bottom=0, top=None if most is None else 1.02 * most)
    axes.grid()
    axes.legend()
    save(figure, path)


class Panel(NamedTuple):
    """The column ``y`` of rows, ± ``y_std`` if there is one, over their column ``x``: a line a ``curve``."""

    x: str
    y: str
    label: str
    rows: Sequence[Mapping[str, Any]]
    scales: tuple[str, str] = ("linear", "linear")
    across: str = ""  #: what ``x`` is in words, where its name does not say it
    percent: bool = False  #: whether ``y`` is a share


@styled
def draw_panels(panels: Sequence[Panel], path: Path, *, title: str) -> None:
    """Draw panels, two or three in a row; a curve has one colour and one legend entry."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    across = 2 if len(panels) % 3 else 3
    figure = new_figure(5 * across, 4.2 * (len(panels) // across), title=title)
    names = list(dict.fromkeys(row["curve"] for panel in panels for row in panel.rows))
    shown = {}
    for axes, panel in zip(
        figure.subplots(len(panels) // across, across, squeeze=False).flat, panels, strict=True
    ):
        for number, name in enumerate(names):
            if rows := [row for row in panel.rows if row["curve"] == name]:
                x, y, std = ([row.get(of) for row in rows] for of in (panel.x, panel.y, f"{panel.y}_std"))
                spread = std if None not in std and any(std) else None
                style = {"fmt": "o-", "color": f"C{number % 10}", "markersize": 4, "capsize": 2}
                shown[name] = axes.errorbar(x, y, spread, **style)
        axes.set(xlabel=panel.across or panel.x, ylabel=panel.label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if panel.percent:
            axes.yaxis.set_major_formatter(percent)
        for axis, scale, log in zip(
            (axes.xaxis, axes.yaxis), panel.scales, (axes.set_xscale, axes.set_yscale), strict=True
        ):
            if scale == "log":  # no line down to a zero, and plain numbers: pictures show no markup
                log("log", nonpositive="mask")
                low, high = axis.get_view_interval()
                steps = MaxNLocator(5, steps=[1, 2, 5, 10])  # less than a decade may have no power of ten
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 10 * low else steps)
                axis.set_minor_locator(NullLocator())
                axis.set_major_formatter("{x:g}")
        axes.grid()
    figure.legend([*shown.values()], [*shown], loc="outside lower center")
    save(figure, path)


@styled
def draw_refinement(
    pairs: Mapping[str, Pair], tests: Mapping[str, Mapping[str, Refinement]], path: Path
) -> None:
    """Draw both graphs of each pair, with the colours that S-SEG-WL gives their nodes."""
    title = "Pairs of graphs, and the colours that S-SEG-WL gives their nodes"
    figure = new_figure(14, 0.8 + 1.9 * len(pairs), title=title)
    panels, twenty = iter(figure.subplots(len(pairs), 4, squeeze=False).flat), np.array(class_colors(20))
    for name, pair in pairs.items():
        plain, rwse = tests[name]["S-SEG-WL"].colours, tests[name]["+ rwse20"].colours
        stages = [
            (name, plain[0]),
            ("1 iteration", plain[:2][-1]),
            (f"stable after {counted(len(plain) - 1, 'iteration')}", plain[-1]),
            (f"with rwse20, stable after {len(rwse) - 1}", rwse[-1]),
        ]
        edges = [np.stack(np.nonzero(matrix)) for matrix in pair]
        places = [layout(each, len(matrix)) for each, matrix in zip(edges, pair, strict=True)]
        for label, colours in stages:
            axes = next(panels)
            for side, place in enumerate(places):
                beside = (place - place.min(0)) / np.ptp(place, axis=0).max() + [1.3 * side, 0]
                axes.plot(*broken_line(beside, edges[side]), color=look().faint, linewidth=0.6, zorder=1)
                axes.scatter(*beside.T, c=twenty[colours[side] % 20], s=16, zorder=2)
            axes.set_title(label, fontsize=NOTE)
            axes.set_aspect("equal")
            axes.set_axis_off()
    save(figure, path)
