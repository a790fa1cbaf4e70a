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
    LETTERS_PER_INCH,
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
BAR_LETTERS = 10  #: width of a bar in letters
DOT_LETTERS = 5  #: width of a dot and the gap between columns
BAR_HEIGHT = 0.35  #: relative to the distance of bars
DOT = 0.17  #: inches from a dot to its name
SAMPLE_STEP = 1.2  #: inches from one sample of the width of edges to the next
NAME_END, BAR_END = 0.55, 0.7  #: of the longest name and bar, relative to the width of a column
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

    style = current_style()
    colors = list(layer.colors)
    colors[largest] = mix_colors(style.line_color, style.background_color, 0.5)
    return replace(layer, color_function=lambda: colors)


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
    numbers: Sequence[str] = ()  #: at the ends of bars
    fixed_lines: float = HISTOGRAM_LINES  #: height of a panel with numbers below

    def lines(self, width: float) -> float:
        """Height of a panel of ``width`` inches in lines of text."""
        if not self.names:
            return self.fixed_lines
        bars = min(len(self.names), MAX_BARS)
        return BAR_LINES * -(-bars // _bar_columns(self.names, self.numbers, width))

    def height(self, width: float) -> float:
        """Lines of text with the heading, numbers below the panel, and a gap."""
        return self.lines(width) + 2 + TICK_LINES * (not self.names)


def _bar_columns(names: Sequence[str], numbers: Sequence[str], width: float) -> int:
    """Return the number of columns in ``width`` inches; bars are all in a row if they fit, or in up to 2."""
    letters = max(map(len, names)) + DOT_LETTERS
    if numbers:
        letters += BAR_LETTERS + max(map(len, numbers))
    columns = max(1, int(width * LETTERS_PER_INCH * NOTE_LETTERS / letters))
    return columns if columns >= len(names) or not numbers else min(columns, 2)


def class_legend(heading: str, layer: Categories) -> Legend:
    """Return the classes that nodes have, each with its colour, a bar and its number of nodes."""
    counts = np.array(layer.counts)
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    names = [layer.labels[code] for code in order]
    colors = np.array(layer.colors)[order]
    return _bar_legend(heading, names, counts[order], colors)


def class_key(heading: str, sheet: Sequence[Categories]) -> Legend:
    """Return the name and colour of each class that nodes of a ``sheet`` of graphs have."""
    layer = max(sheet, key=lambda other: len(other.labels))  # the others lack "no class"
    codes = np.unique(np.concatenate([other.codes for other in sheet]))
    names = [layer.labels[code] for code in codes]
    return _bar_legend(heading, names, colors=np.array(layer.colors)[codes])


def _bar_legend(
    heading: str,
    names: Sequence[str],
    values: Array | None = None,
    colors: Array | None = None,
) -> Legend:
    """Return a row for each of ``names`` (C,): the name and, if there are ``values``, a bar and its number.

    If there are ``colors`` (C,) of nodes, names follow a dot. The longest bar is that of the largest value.
    """
    numbers = [] if values is None else [f"{value:,}" for value in values]
    count = min(len(names), MAX_BARS)
    if len(names) > MAX_BARS:
        heading = f"{heading}, {MAX_BARS} of {len(names)}"

    def draw(axes: Axes) -> None:
        # 1. Divide the panel into columns, and number the rows.
        width = axes.get_window_extent().width / axes.figure.dpi  # inches
        room = _bar_columns(names, numbers, width)
        rows = -(-count // room)
        columns = float(room)
        if values is None:
            row, left = np.divmod(np.arange(count), room)
        else:  # bars have at most twice the width that they need
            columns = max(min(room, len(names)), room / 2)
            left, row = np.divmod(np.arange(count), rows)  # as parts of a column's width
        axes.set_axis_off()
        axes.set(xlim=(0, columns), ylim=(rows - 0.5, -0.5))
        style = {"va": "center_baseline", "fontsize": NOTE_FONT_SIZE}

        def extents(texts: Sequence[str]) -> Array:
            drawn = [axes.text(0, 0, text, **style) for text in texts]
            widths = np.array([text.get_window_extent().width for text in drawn])
            for text in drawn:
                text.remove()
            return np.asarray(columns * widths / axes.get_window_extent().width)

        # 2. Write the names, behind dots if there are colours.
        share = NAME_END if numbers else 1
        inches = share * width / columns - DOT
        letters = int(inches * NOTE_LETTERS * LETTERS_PER_INCH)
        shown_names = [shorten_middle(name, letters) for name in names]
        dot = 0.0
        if colors is not None:
            dot = DOT * columns / width
        if values is None and rows == 1:  # names follow each other
            left = np.cumsum([0, *(2 * dot + extents(shown_names))[:-1]])
        if colors is not None:
            for number in range(count):
                dot_style = {"color": colors[number], "markersize": 36 * DOT, "clip_on": False}
                axes.plot(left[number] + dot / 3, row[number], "o", **dot_style)
        for number in range(count):
            axes.text(left[number] + dot, row[number], shown_names[number], **style)
        if values is None:
            return

        # 3. Draw the bars between the longest name and the longest number.
        start = left + dot + max(extents(shown_names)) + 0.03
        end = min(BAR_END, 0.95 - max(extents(numbers)))
        most = max(1, *values)
        bars = (end - start[0]) * values[:count] / most
        bar_colors = current_style().missing if colors is None else colors[:count]
        axes.barh(row, bars, BAR_HEIGHT, start, color=bar_colors)
        for number in range(count):
            axes.text(start[number] + bars[number] + 0.02, row[number], numbers[number], **style)

    return Legend(heading, draw, names, numbers)


def width_legend(name: str, values: Array, widths: F64) -> Legend:
    """Return lines for the least and the greatest of the ``values`` (E,) of edges.

    ``widths`` (2,) are those of the two lines, in points.
    """
    ends = [values.min().item(), values.max().item()]

    def draw(axes: Axes) -> None:
        inches = axes.get_window_extent().width / axes.figure.dpi
        axes.set(xlim=(0, inches), ylim=(-1, 1))
        axes.set_axis_off()
        for number, end in enumerate(ends):
            left = number * SAMPLE_STEP
            color = current_style().missing
            axes.plot([left, left + 2 * DOT], [0, 0], color=color, linewidth=widths[number])
            text_style = {"va": "center_baseline", "fontsize": NOTE_FONT_SIZE}
            axes.text(left + 2.5 * DOT, 0, f"{end:,g}", **text_style)

    return Legend(f"edges: {name}", draw, names=[f"{end:,g}" for end in ends])


def value_legend(layer: Scale, sheet: Sequence[Layer]) -> Legend:
    """Return a histogram of the nodes' values in their colours, as high as those of the ``sheet``."""
    most = max(max(_histogram(other)[1]) for other in sheet if isinstance(other, Scale))
    return Legend(f"nodes by {layer.label}", partial(_draw_histogram, layer=layer, most=most))


def _written(value: float) -> str:
    return f"{float(number_text(value)):,.10g}".replace("-", "−")


def _histogram(layer: Scale) -> tuple[Array, Array]:
    """Return the limits and counts of the bars of a histogram; colours change evenly over bars."""
    limits = layer.limits
    values = layer.values[np.isfinite(layer.values)].clip(limits.low, limits.high)
    norm = _scalar_mappable(limits).norm
    ends = np.asarray(norm.inverse(np.linspace(0, 1, VALUE_BINS + 1)))
    return ends, np.histogram(values, ends)[0]


def _draw_histogram(axes: Axes, layer: Scale, most: int) -> None:
    """Draw the number of nodes by value as equally wide bars; those at open ends have what lies beyond.

    A bar of ``most`` nodes fills the panel, and the largest has its number.
    """
    limits = layer.limits
    ends, counts = _histogram(layer)
    colors = _scalar_mappable(limits).to_rgba((ends[1:] + ends[:-1]) / 2)
    bars = axes.bar(np.arange(VALUE_BINS), counts, 0.94, color=colors)
    texts = [f"{count:,}" * int(count == max(counts)) for count in counts]
    axes.bar_label(bars, texts, fontsize=NOTE_FONT_SIZE)
    axes.set(yticks=[], ylim=(0, 1.35 * max(1, most)), xlim=(-0.5, VALUE_BINS - 0.5))
    axes.spines[:].set_visible(False)
    names = [_written(end) for end in ends[1:-1]]
    if limits.least < limits.low and counts[0]:
        names[0] = f"≤ {names[0]}"
    if limits.most > limits.high and counts[-1]:
        names[-1] = f"≥ {names[-1]}"
    ticks = np.arange(len(names)) + 0.5
    if limits.center is None:
        _label_ticks(axes, ticks, names)
    else:  # the first and last limit, and the middle, where colours turn
        half = len(names) // 2
        axes.set_xticks(ticks[::half], names[::half])


def _label_ticks(axes: Axes, ticks: Array, names: Sequence[str]) -> None:
    """Write the last of ``names`` and as many others as there is room for below a panel."""
    letters = axes.get_window_extent().width / axes.figure.dpi / np.ptp(axes.get_xlim())
    letters *= LETTERS_PER_INCH * NOTE_LETTERS
    step = -int(-(max(map(len, names)) + 3) // letters)
    axes.set_xticks(ticks[::-step], names[::-step])


def label_legends(records: Sequence[PlottableRecord], labels: Labels | None) -> list[Legend]:
    """Return the classes of all graphs with those of ``records`` marked, unless they are equally frequent."""
    if labels is None or not np.ptp(labels.counts):
        return []
    is_shown = np.zeros(len(labels.names), bool)
    for record in records:
        value = np.asarray(record.label_value)
        is_shown[np.flatnonzero(value == 1) if value.shape else int(value)] = True
    heading = f"{records[0].label_name or 'label'}: all {labels.graphs:,} graphs (▸ drawn here)"
    order = np.argsort(-labels.counts)
    names = ["▸ " * int(is_shown[label]) + labels.names[label].replace("_", " ") for label in order]
    return [_bar_legend(heading, names, labels.counts[order])]
