"""Learning curves of a report."""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Sequence
from io import StringIO

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
    in_current_style,
    new_figure,
    using_style,
)
from kmip_data.format.card import label_of_dataset
from kmip_data.models.reports.result_tables import Row, Run, Table
from kmip_data.models.training.metric_text import metric_title
from kmip_data.models.training.metrics import all_metrics, is_percent
from kmip_data.models.training.run.run_folder import metrics_columns
from kmip_data.models.training.run.summary import sample_std
from kmip_data.saving.image_files import IMAGE_METADATA

MAX_CHANGES = 2  #: changes named in a legend entry


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


def row_colors(table: Table, colors: ModelColors) -> list[str]:
    """Return the colour of each row's curves as CSS for light and dark backgrounds."""
    css = _page_color_css()
    with using_style("light"):
        return [css[color] for color in colors.of_rows(table)]


def _data_name(table: Table) -> str:
    """Return the name of the data of a table, with -sample for a sample."""
    first = table.rows[0]
    return label_of_dataset(first["dataset"], sample="sample" in first["share"])


def _unit_factor(metric: str) -> float:
    """Return the factor from a metric to its displayed unit."""
    return 100 if is_percent(metric) else 1


def learning_curves_svg(table: Table, colors: ModelColors) -> str:
    """Return the curves of a table as SVG whose colours adapt to the page's light or dark background."""
    file = StringIO()
    _write_svg(table, colors, file)
    svg = file.getvalue()
    css = _page_color_css()
    svg = svg[svg.index("<svg") :]
    return re.sub(r"#[0-9a-f]{6}\b", lambda color: css.get(color[0], color[0]), svg)


@in_current_style()
def _write_svg(table: Table, colors: ModelColors, file: StringIO) -> None:
    import matplotlib as mpl

    figure = new_figure(6, 4)  # inches; its text is as large as the page's, even on a phone
    draw_learning_curves(figure, table, colors)
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
