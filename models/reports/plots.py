"""Plots of a report: learning curves, and metric over training time."""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any

import numpy as np

from kmip_data.arrays import F64
from kmip_data.drawing.style import (
    PLAIN_NUMBER,
    SHADES,
    STYLES,
    Axes,
    Figure,
    class_colors,
    colors_by_background,
    current_style,
    in_current_style,
    new_figure,
    using_style,
)
from kmip_data.format.card import label_of_dataset
from kmip_data.manifest import dataset_names
from kmip_data.models.reports.result_tables import Row, Run, Table
from kmip_data.models.training.config.presets import (
    PaperResult,
    models_with_preset,
    read_preset,
)
from kmip_data.models.training.metric_text import metric_title
from kmip_data.models.training.metrics import all_metrics, is_percent
from kmip_data.models.training.run.run_folder import metrics_columns
from kmip_data.models.training.run.summary import sample_std
from kmip_data.saving.image_files import IMAGE_METADATA

MAX_CHANGES = 2  #: changes named in a legend entry
ERROR_BAR_STYLE = {
    "linestyle": "none",
    "capsize": 2,
    "elinewidth": 0.8,
    "markersize": 5,
    "zorder": 3,
}


class ModelColors(dict[str, str]):
    """Colour of each model in a report, assigned when it is first used, for all its tables."""

    def __missing__(self, model: str) -> str:
        self[model] = class_colors(len(self) + 1)[-1]
        return self[model]

    def of_rows(self, table: Table) -> list[str]:
        """Return the colour of each row; further rows of one model have their own."""
        models = [row["model"] for row in table.rows]
        earlier = [models[:number].count(model) for number, model in enumerate(models)]
        return [
            self[model + " again" * count] for model, count in zip(models, earlier, strict=True)
        ]


#: Function that draws a table on an empty figure.
DrawFunction = Callable[[Figure, Table, ModelColors], None]


def plots_of_table(table: Table, colors: ModelColors) -> list[str]:
    """Return the plots of a table as SVG that adapts to the page's light or dark background."""
    draws = [draw_learning_curves, draw_over_hours]
    return [_draw_svg(draw, table, colors) for draw in draws]


def legend_names(table: Table) -> list[str]:
    """Return the legend name of each row, without the changes that all rows share."""
    changes = [row["changes"].split("; ") for row in table.rows]
    shared = set()
    if len(changes) > 1:  # a single row keeps its changes
        shared = set(changes[0]).intersection(*changes[1:])
    names: list[str] = []
    for row, row_changes in zip(table.rows, changes, strict=True):
        distinct = [change for change in row_changes if change not in shared]
        name = model_with_changes({**row, "changes": "; ".join(distinct)})
        names.append(f"{name} ({len(names) + 1})" if name in names else name)
    return names


def model_with_changes(row: Row) -> str:
    """Return the model of a row, and up to two of its changes.

    >>> changes = "model.attention.k=5 instead of 15; dropout=0.2 instead of 0"
    >>> model_with_changes({"model": "gps", "changes": changes})
    'gps, k=5, dropout=0.2'
    """
    # Keep the last part of the key and the new value: "k=5" of "model.attention.k=5 instead of 15".
    changes = re.findall(r"(?:^|; )[^=]*?([^.=]+=\S+) ", row["changes"])
    words = [row["model"], *changes[:MAX_CHANGES]]
    if len(changes) > MAX_CHANGES:
        words.append("…")
    return ", ".join(words)


def draw_learning_curves(figure: Figure, table: Table, colors: ModelColors) -> None:
    """Draw the val metric over epochs: mean over seeds, with bands of one standard deviation."""
    metric = table.rows[0]["metric"]
    axes = figure.subplots()
    names = legend_names(table)
    for name, runs, color in zip(names, table.runs, colors.of_rows(table), strict=True):
        epochs, mean, spread = mean_over_seeds(runs, f"val_{metric}", _unit_factor(metric))
        marker = "o" if len(epochs) == 1 else None
        axes.plot(epochs, mean, color=color, label=name, marker=marker)
        axes.fill_between(
            epochs,
            mean - spread,
            mean + spread,
            color=color,
            alpha=0.15,
            linewidth=0,
        )
    axes.set(xlabel="epoch", ylabel=f"{metric_title(metric)} on val")
    axes.locator_params("x", integer=True)
    axes.set_title(f"{_data_name(table)}: {all_metrics()[metric].title} over epochs")
    if axes.dataLim.width == 0:  # a run of one epoch
        axes.set(xlim=(0, 2), xticks=[1])
    axes.grid()
    figure.legend(loc="outside lower center", ncols=2, frameon=False)


def mean_over_seeds(runs: Sequence[Run], column: str, scale: float) -> tuple[list[int], F64, F64]:
    """Return the epochs, from 1, and for each the mean and deviation over the runs with a value."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for epoch, value in metrics_columns(run.folder).get(column, []):
            values.setdefault(epoch, []).append(scale * value)

    epochs = sorted(values)
    means = [statistics.fmean(values[epoch]) for epoch in epochs]
    spreads = [sample_std(values[epoch]) or 0.0 for epoch in epochs]
    return epochs, np.array(means), np.array(spreads)


def label_plain_ticks(axis: Axes) -> None:
    """Label a logarithmic axis with plain numbers: less than a decade may have no power of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    if high > 10 * low > 0:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    else:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(PLAIN_NUMBER)


def draw_over_hours(figure: Figure, table: Table, colors: ModelColors) -> None:
    """Draw the metric over training time: val per epoch, test, and the paper's results.

    A test result is drawn at the epoch of its weights; the paper's only tell their whole time. The
    paper's results are shown only for complete published data, as in the table.
    """
    first = table.rows[0]
    metric = first["metric"]
    scale = _unit_factor(metric)
    paper = {}
    if first["share"] == "all":
        paper = paper_results_with_hours(first["dataset"], metric)
    # Rows have the same colours as in the table, and a result of the paper that of its model.
    legend = dict(zip(legend_names(table), colors.of_rows(table), strict=True))
    all_hours = [row["hours"] for row in table.rows] + [
        result.hours or 0.0 for result in paper.values()
    ]
    unit, per_hour = time_unit(max(all_hours))

    axes = figure.subplots()
    for color, row, runs in zip(legend.values(), table.rows, table.runs, strict=True):
        hours, values = mean_curve_over_hours(runs, f"val_{metric}")
        axes.plot(
            per_hour * hours,
            scale * values,
            color=color,
            linewidth=1,
            alpha=0.6,
            marker="_" if len(hours) == 1 else None,
        )
        mean = scale * row["test"]
        std = None if row["test_std"] is None else scale * row["test_std"]
        best_hours = per_hour * hours_until_best(runs, row["hours"])
        axes.errorbar(best_hours, mean, std, color=color, marker="o", **ERROR_BAR_STYLE)
    for model, result in paper.items():
        std = result.std or 0.0
        style = {
            "marker": "D",
            "markerfacecolor": current_style().background_color,
            "color": colors[model],
        }
        paper_hours = result.hours or 0.0
        axes.errorbar(per_hour * paper_hours, result.mean, std, **style, **ERROR_BAR_STYLE)
    axes.set(xscale="log", xlabel=f"training time [{unit}]", ylabel=metric_title(metric))
    label_plain_ticks(axes.xaxis)
    axes.set_title(f"{_data_name(table)}: {all_metrics()[metric].title} over training time")
    axes.grid()
    marks = {"val, by epoch": "-", "test, at its weights' epoch": "o"}
    if paper:
        machines = dict.fromkeys(result.hardware for result in paper.values())
        marks[f"the paper's test, at the end; {' or '.join(machines)}"] = "D"
    legend |= {model: colors[model] for model in paper}
    _add_legend(figure, legend, marks)


def time_unit(hours: float) -> tuple[str, float]:
    """Return the unit for times of up to ``hours``, and the number of units per hour.

    >>> time_unit(0.01), time_unit(1.5), time_unit(30)
    (('s', 3600.0), ('min', 60.0), ('h', 1.0))
    """
    if hours < 1 / 30:
        return "s", 3600.0
    return ("min", 60.0) if hours < 2 else ("h", 1.0)


def row_colors(table: Table, colors: ModelColors) -> list[str]:
    """Return the colour of each row's curves as CSS for light and dark backgrounds."""
    css = _page_color_css()
    with using_style("light"):
        return [css[color] for color in colors.of_rows(table)]


def hours_until_best(runs: Sequence[Run], total: float) -> float:
    """Return the mean hours of ``runs`` until their best epochs; ``total`` if a time is missing."""
    unknown = (total, 0.0)
    points = [
        _hours_by_epoch(run, "seconds").get(run.result.best_epoch + 1, unknown) for run in runs
    ]
    return statistics.fmean(hours for hours, _ in points)


def mean_curve_over_hours(runs: Sequence[Run], column: str) -> F64:
    """Return the mean hours and the mean of a column at each epoch that all runs have reached, (2, E)."""
    curves = [_hours_by_epoch(run, column) for run in runs]
    shared = sorted(set(curves[0]).intersection(*curves[1:]))
    points = np.array([[curve[epoch] for epoch in shared] for curve in curves])
    return np.asarray(points.reshape(len(runs), -1, 2).mean(axis=0).T)


def _hours_by_epoch(run: Run, column: str) -> dict[int, tuple[float, float]]:
    """Return the hours until each epoch's end, and its value; empty if seconds are missing."""
    columns = metrics_columns(run.folder)
    hours = {}
    total = 0.0
    for number, (epoch, seconds) in enumerate(columns.get("seconds", []), start=1):
        # After a gap, the times of all later epochs are unknown.
        if epoch != number or seconds <= 0:
            return {}
        total += seconds / 3600
        hours[epoch] = total
    values = columns.get(column, [])
    return {epoch: (hours[epoch], value) for epoch, value in values if epoch in hours}


def paper_results_with_hours(dataset: str, metric: str) -> dict[str, PaperResult]:
    """Return the paper's results on a dataset, by model, if they state training hours."""
    if dataset not in dataset_names():
        return {}
    results = {}
    for model in models_with_preset(dataset):
        paper = read_preset(dataset, model).paper
        if paper is not None and paper.metric == metric and paper.hours is not None:
            results[model] = paper
    return results


def _data_name(table: Table) -> str:
    """Return the name of the data of a table, with -sample for a sample."""
    first = table.rows[0]
    return label_of_dataset(first["dataset"], sample="sample" in first["share"])


def _unit_factor(metric: str) -> float:
    """Return the factor from a metric to its displayed unit."""
    return 100 if is_percent(metric) else 1


def _add_legend(figure: Figure, colors: Mapping[str, str], marks: Mapping[str, str]) -> None:
    """Add a legend of colours, then of marks: "-" for a line, "o" filled and "D" hollow points."""
    from matplotlib.lines import Line2D

    handles = []
    for name, color in colors.items():
        square = Line2D([], [], color=color, marker="s", linestyle="none", label=name)
        handles.append(square)
    for name, mark in marks.items():
        style: dict[str, Any] = {"marker": mark, "linestyle": "none"}
        if mark == "-":
            style = {"linestyle": "-"}
        if mark == "D":
            style["markerfacecolor"] = "none"
        handles.append(
            Line2D(
                [],
                [],
                color=current_style().secondary_color,
                label=name,
                **style,
            )
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)


def _draw_svg(draw: DrawFunction, table: Table, colors: ModelColors) -> str:
    """Return a plot as SVG whose colours adapt to the page's light or dark background."""
    file = StringIO()
    _write_svg(draw, table, colors, file)
    svg = file.getvalue()
    css = _page_color_css()
    svg = svg[svg.index("<svg") :]
    return re.sub(r"#[0-9a-f]{6}\b", lambda color: css.get(color[0], color[0]), svg)


@in_current_style()
def _write_svg(draw: DrawFunction, table: Table, colors: ModelColors, file: StringIO) -> None:
    import matplotlib as mpl

    figure = new_figure(6, 4)  # inches; its text is as large as the page's, even on a phone
    draw(figure, table, colors)
    with mpl.rc_context({"svg.fonttype": "none"}):  # keep text as text, not as paths
        figure.savefig(file, format="svg", transparent=True, metadata=IMAGE_METADATA[".svg"])


@functools.cache
def _page_color_css() -> dict[str, str]:
    """Return CSS for light and dark backgrounds, by colour of the light style."""
    light = STYLES["light"]
    dark = STYLES["dark"]
    shades = len(light.palette) * len(SHADES)
    pairs = dict(zip(*colors_by_background(functools.partial(class_colors, shades)), strict=True))
    pairs |= {
        light.secondary_color: dark.secondary_color,
        light.background_color: dark.background_color,
    }
    colors = {color: f"light-dark({color}, {other})" for color, other in pairs.items()}
    return colors | {light.text_color: "currentColor"}
