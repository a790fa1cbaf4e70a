"""Draw layers with matplotlib: colours of nodes, and legends with bars or histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from kmip_data.arrays import F64, Array
from kmip_data.drawing.layers import Categories, ColorLimits, Layer, Scale
from kmip_data.drawing.plottable_record import Labels, PlottableRecord
from kmip_data.drawing.style import (
    NOTE_FONT_SIZE,
    Axes,
    current_style,
    diverging_colors,
    mix_colors,
    sequential_colors,
)
from kmip_data.text import number_text, shorten_middle

NOTE_LETTERS = 1.26  #: letters per inch of a note relative to the body
MAX_BARS = 24  #: more classes are not listed
BAR_LINES = 1.2  #: distance of bars in lines of text
BAR_LETTERS = 15  #: width of a bar and its number in letters
VALUE_BINS = 14  #: bars of a histogram
HISTOGRAM_LINES = 3.6  #: lines of text that a histogram is high
TICK_LINES = 1.2  #: lines of the numbers below it


def node_colors(layer: Layer | None, count: int) -> F64:
    """Return the colour of each of ``count`` nodes in the current style, (N, 4) RGBA.

    Missing values are grey; so are nodes without a layer.
    """
    from matplotlib.colors import to_rgba_array

    if layer is None:
        return np.tile(to_rgba_array(current_style().secondary_color), (count, 1))
    if isinstance(layer, Categories):
        return to_rgba_array(layer.colors)[layer.codes]
    limits = layer.limits
    is_finite = np.isfinite(layer.values)
    colors = np.tile(to_rgba_array(current_style().missing), (count, 1))
    # A logarithmic scale has no colour for 0.
    clipped = layer.values[is_finite].clip(limits.low, limits.high)
    colors[is_finite] = _scalar_mappable(limits).to_rgba(clipped)
    return colors


def with_quiet_majority(layer: Categories) -> Categories:
    """Return a layer in which the class of more than half of the nodes is a pale grey."""
    largest = int(np.argmax(layer.counts))
    if 2 * layer.counts[largest] <= len(layer.codes):
        return layer

    def colors() -> Sequence[str]:
        style = current_style()
        quiet = mix_colors(style.line_color, style.background_color, 0.5)
        others = layer.color_function()
        return [*others[:largest], quiet, *others[largest + 1 :]]

    return replace(layer, color_function=colors)


def _scalar_mappable(limits: ColorLimits) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    norm = LogNorm if limits.is_log else Normalize
    colors = sequential_colors(256) if limits.center is None else diverging_colors(257)
    return ScalarMappable(norm(limits.low, limits.high), ListedColormap(colors))


@dataclass(frozen=True)
class Legend:
    """An explanation of colours or labels in a panel below a heading."""

    heading: str
    draw: Callable[[Axes], None]  #: fills the panel
    names: Sequence[str] = ()  #: of bars; none for a panel with numbers below
    fixed_lines: float = HISTOGRAM_LINES  #: height of a panel with numbers below

    def lines(self, width: float) -> float:
        """Height of a panel of ``width`` inches in lines of text."""
        if not self.names:
            return self.fixed_lines
        return BAR_LINES * -(-len(self.names) // _bar_columns(self.names, width))

    def height(self, width: float) -> float:
        """Lines of text with the heading, numbers below the panel, and a gap."""
        return self.lines(width) + 2 + TICK_LINES * (not self.names)


def _bar_columns(names: Sequence[str], width: float) -> int:
    """Return the number of columns of bars in ``width`` inches: all in a row if they fit, or up to 2."""
    letters = max(map(len, names)) + BAR_LETTERS
    columns = max(1, int(width * current_style().letters_per_inch * NOTE_LETTERS / letters))
    return columns if columns >= len(names) else min(columns, 2)


def class_legend(heading: str, layer: Categories) -> Legend:
    """Return bars of the nodes of each class that has any."""
    counts = np.array(layer.counts)
    shown = np.flatnonzero(counts)
    names = np.array(layer.labels)[shown]
    return _bar_legend(heading, names, counts[shown], np.array(layer.colors)[shown])


def interval_legend(heading: str, layer: Categories, ends: Array) -> Legend:
    """Return a row of the classes' colours with the ``ends`` (C+1,) of their intervals below."""

    def draw(axes: Axes) -> None:
        axes.bar(range(len(layer.colors)), 1, 1, color=layer.colors)
        axes.margins(0)
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        _label_ticks(axes, np.arange(len(ends)) - 0.5, [f"{end:,.0f}" for end in ends])
        labels = axes.get_xticklabels()  # from the last end to the first
        labels[0].set_ha("right")
        labels[-1].set_ha("left")

    return Legend(heading, draw, fixed_lines=BAR_LINES)


def _bar_legend(
    heading: str, names: Array, counts: Array, colors: Array, numbers: Sequence[str] = ()
) -> Legend:
    """Return a row for each of ``names`` (C,): the name, a bar, and a number.

    Without ``numbers``, these are the counts, from the most.
    """
    longest = counts.max(initial=1)
    if not numbers:
        order = np.argsort(-counts, kind="stable")
        names = names[order]
        counts = counts[order]
        colors = colors[order]
        numbers = [f"{count:,}" for count in counts]
    count = min(len(names), MAX_BARS)
    if len(names) > MAX_BARS:
        heading = f"{heading}, {MAX_BARS} of {len(names)}"
    shown = [shorten_middle(str(name)) for name in names[:count]]

    def draw(axes: Axes) -> None:
        width = axes.get_window_extent().width / axes.figure.dpi  # inches
        room = _bar_columns(shown, width)
        rows = -(-count // room)
        columns = max(-(-count // rows), room / 2)  # bars of at most twice the width that they need
        left, row = np.divmod(np.arange(count), rows)  # as parts of a column's width
        axes.set_axis_off()
        axes.set(xlim=(0, columns), ylim=(rows - 0.5, -0.5))
        style = {"va": "center_baseline", "fontsize": NOTE_FONT_SIZE}
        letters = int(0.65 * width / columns * NOTE_LETTERS * current_style().letters_per_inch)
        texts = [
            axes.text(left[number], row[number], shorten_middle(shown[number], letters), **style)
            for number in range(count)
        ]
        unit = columns / axes.get_window_extent().width
        start = left + unit * max(text.get_window_extent().width for text in texts) + 0.03
        ends = [axes.text(0, row[number], numbers[number], **style) for number in range(count)]
        end = 0.82 - unit * max(text.get_window_extent().width for text in ends)
        lengths = (end - start[0]) * counts[:count] / longest
        axes.barh(row, lengths, height=0.7, left=start, color=colors[:count])
        for number, place in enumerate(start + lengths + 0.02):
            ends[number].set_x(place)

    return Legend(heading, draw, shown)


def value_legend(layer: Scale) -> Legend:
    """Return a histogram of the nodes' values in their colours."""
    return Legend(f"nodes by {layer.label}", partial(_draw_histogram, layer=layer))


def _written(value: float) -> str:
    return f"{float(number_text(value)):,.10g}".replace("-", "−")


def _draw_histogram(axes: Axes, layer: Scale) -> None:
    """Draw the number of nodes by value as equally wide bars; those at open ends have what lies beyond."""
    limits = layer.limits
    mappable = _scalar_mappable(limits)
    values = layer.values[np.isfinite(layer.values)].clip(limits.low, limits.high)
    ends = np.asarray(mappable.norm.inverse(np.linspace(0, 1, VALUE_BINS + 1)))
    counts = np.histogram(values, ends)[0]
    most = max(1, int(counts.max()))
    bars = axes.bar(
        range(VALUE_BINS), counts, 0.94, color=mappable.to_rgba((ends[1:] + ends[:-1]) / 2)
    )
    texts = [f"{count:,}" * (count == most) for count in counts.tolist()]
    axes.bar_label(bars, texts, fontsize=NOTE_FONT_SIZE)
    axes.set(yticks=[], ylim=(0, 1.35 * most), xlim=(-0.5, VALUE_BINS - 0.5))
    axes.spines[:].set_visible(False)
    names = [_written(end) for end in ends[1:-1]]
    if limits.least < limits.low:
        names[0] = f"≤ {names[0]}"
    if limits.most > limits.high:
        names[-1] = f"≥ {names[-1]}"
    _label_ticks(axes, np.arange(len(names)) + 0.5, names)


def _label_ticks(axes: Axes, ticks: Array, names: Sequence[str]) -> None:
    """Write the last of ``names`` and as many others as there is room for below a panel."""
    letters = axes.get_window_extent().width / axes.figure.dpi / np.ptp(axes.get_xlim())
    letters *= current_style().letters_per_inch * NOTE_LETTERS
    step = -int(-(max(map(len, names)) + 2) // letters)
    axes.set_xticks(ticks[::-step], names[::-step])


def label_legends(records: Sequence[PlottableRecord], labels: Labels | None) -> list[Legend]:
    """Return the classes of all graphs with those of ``records`` marked, unless they are equally many."""
    if labels is None or labels.counts is None or not np.ptp(labels.counts):
        return []
    is_shown = np.zeros(len(labels.names), bool)
    for record in records:
        value = np.asarray(record.label_value)
        is_shown[np.flatnonzero(value == 1) if value.shape else int(value)] = True
    heading = f"{records[0].label_name or 'label'}: all {labels.graphs:,} graphs (▸ shown below)"
    marked = [f"▸ {name}" for name in labels.names]
    names = np.where(is_shown, marked, labels.names)
    colors = np.full(len(names), current_style().palette[0])
    return [_bar_legend(heading, names, labels.counts, colors)]


def rank_legend(record: PlottableRecord, labels: Labels, values: Array) -> Legend:
    """Return the targets of a record, with the share of all graphs whose ``values`` (G, T) are smaller."""
    targets = np.asarray(record.label_value).reshape(-1)
    names = np.array(labels.names or [record.label_name or "label"])
    numbers = [number_text(target) for target in targets.tolist()]
    colors = np.full(len(names), current_style().palette[0])
    ranks = (values < targets).mean(axis=0)
    return _bar_legend("bars: share of graphs with a smaller value", names, ranks, colors, numbers)
