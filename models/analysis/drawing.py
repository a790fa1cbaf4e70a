"""Plots of curves over k."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kmip_data.drawing.style import PALETTE, in_current_style, new_figure
from kmip_data.models.analysis.study import CurvesOverK
from kmip_data.models.reports.plots import label_plain_ticks
from kmip_data.models.reports.result_tables import Row
from kmip_data.models.training.metrics import all_metrics, is_percent
from kmip_data.saving.image_files import save_figure

#: Analysis -> title, label and maximum of the y axis, and label, colour and line style of each curve.
CURVE_PLOTS = {
    "approximation": (
        "k-MIP against full attention",
        "mean L2 distance to the output of full attention",
        None,
        {
            "k-MIP": ("k largest scores: k-MIP attention", PALETTE[0], "-"),
            "normal outputs": ("standard normal outputs", "#888888", ":"),
        },
    ),
    "cumulative-weight": (
        "Attention weight of the k best keys",
        "cumulative attention weight",
        1.0,
        {
            "k-MIP": ("these queries and keys", PALETTE[0], "-"),
            "Gaussian": ("Gaussian queries and keys of the same sizes", "#888888", "--"),
        },
    ),
}


@in_current_style()
def draw_curves_over_k(
    curves: CurvesOverK,
    path: Path,
    *,
    name: str,
    subtitle: str,
) -> None:
    """Draw the mean of each curve over k, and its standard deviation over graphs as a band."""
    title, ylabel, maximum, curve_styles = CURVE_PLOTS[name]
    figure = new_figure(8, 5, title=f"{title}\n{subtitle}")
    axes = figure.subplots()
    for curve, (label, colour, style) in curve_styles.items():
        mean, std = curves.summary(curve)
        axes.plot(
            curves.ks,
            mean,
            label=label,
            color=colour,
            linestyle=style,
        )
        # Clip the band, which may leave the range of the values.
        low, high = np.clip([mean - std, mean + std], 0, maximum)
        axes.fill_between(curves.ks, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel="k", ylabel=ylabel)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_ylim(bottom=0, top=None if maximum is None else 1.02 * maximum)
    axes.grid()
    axes.legend()
    save_figure(figure, path)


@in_current_style()
def draw_results_over_k(curves: Sequence[tuple[Sequence[Row], Sequence[Row]]], path: Path) -> None:
    """Draw metric and seconds over k, and metric over seconds, for each pair of our and the paper's rows.

    Rows come from :func:`~kmip_data.models.reports.result_tables.rows_over_k`. Each curve has one
    colour and one legend entry.
    """
    figure = new_figure(15, 4.2 * len(curves), title="Influence of k")
    legend = {}
    colors = dict[str, str]()
    seconds_label = "seconds of a training epoch"
    grid = figure.subplots(len(curves), 3, squeeze=False)
    for axes_row, (ours, paper) in zip(grid, curves, strict=True):
        by_name = dict[str, list[Row]]()
        for row in (*ours, *paper):
            by_name.setdefault(row["curve"], []).append(row)
        first = ours[0]
        metric = all_metrics()[first["metric"]]
        metric_label = f"{first['dataset']}: {metric.title} on test"
        panels = (
            ("k", "test", "k", metric_label),
            ("k", "seconds", "k", seconds_label),
            ("seconds", "test", seconds_label, metric_label),
        )
        for axes, (x, y, xlabel, ylabel) in zip(axes_row, panels, strict=True):
            for name, rows in by_name.items():
                color = colors.setdefault(name, f"C{len(colors) % 10}")
                error = np.array([row.get(f"{y}_std") for row in rows], float)  # NaN of one run
                style = {"fmt": "o-", "color": color, "markersize": 4, "capsize": 2}
                x_values = [row.get(x) for row in rows]
                y_values = [row.get(y) for row in rows]
                legend[name] = axes.errorbar(x_values, y_values, error, **style)

            axes.set(xlabel=xlabel, ylabel=ylabel)
            if y == "test" and is_percent(first["metric"]):
                axes.yaxis.set_major_formatter(format_percent)
            # Leave out points at zero, which has no logarithm.
            axes.set_xscale("log", nonpositive="mask")
            label_plain_ticks(axes.xaxis)
            if y == "seconds":
                axes.set_yscale("log", nonpositive="mask")
                label_plain_ticks(axes.yaxis)
            axes.grid()
    figure.legend([*legend.values()], [*legend], loc="outside lower center")
    save_figure(figure, path)


def format_percent(fraction: float, _: int | None = None) -> str:
    """Format a fraction for an axis.

    >>> format_percent(0.225), format_percent(0.07)
    ('22.5 %', '7 %')
    """
    return f"{100 * fraction:g} %"
