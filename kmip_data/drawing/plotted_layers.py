"""Draw layers with matplotlib: colours of nodes, colour bars and legends."""

from __future__ import annotations

from typing import Any

import numpy as np

from kmip_data.arrays import F64
from kmip_data.drawing.layers import Categories, ColorLimits, Layer, Scale
from kmip_data.drawing.style import (
    PLAIN_NUMBER,
    Axes,
    current_style,
    diverging_colors,
    sequential_colors,
)

MAX_NAME_LETTERS = 26  #: letters of a name beside a bar or in a legend
MARKER_LETTERS = 5  #: width of a marker and the gaps around an entry of a legend
NOTE_LETTERS = 1.2  #: letters per inch of a note relative to the body
LEGEND_LINE = 1.4  #: height of a row relative to the body
MAX_LEGEND_ROWS = 24  #: with more entries, only every second, third … is shown


def node_colors(layer: Layer | None, count: int) -> F64:
    """Return the colour of each of ``count`` nodes in the current style, (N, 4) RGBA.

    Missing values are grey; without a layer, nodes have the first colour of the palette.
    """
    from matplotlib.colors import to_rgba_array

    if layer is None:
        return np.tile(to_rgba_array(current_style().palette[0]), (count, 1))
    if isinstance(layer, Categories):
        return to_rgba_array(layer.colors)[layer.codes]
    limits = layer.limits
    is_finite = np.isfinite(layer.values)
    colors = np.tile(to_rgba_array(current_style().missing), (count, 1))
    # A logarithmic scale has no colour for 0.
    clipped = layer.values[is_finite].clip(limits.low, limits.high)
    colors[is_finite] = _scalar_mappable(limits).to_rgba(clipped)
    return colors


def _scalar_mappable(limits: ColorLimits) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    norm = LogNorm if limits.is_log else Normalize
    colors = sequential_colors(256) if limits.center is None else diverging_colors(257)
    return ScalarMappable(norm(limits.low, limits.high), ListedColormap(colors))


def draw_color_bar(axes: Axes, layer: Scale, **placement: object) -> Any:
    """Draw the colour bar of a scale with its unit, and return it; ends that values exceed are pointed."""
    return axes.figure.colorbar(
        _scalar_mappable(layer.limits),
        label=layer.label,
        format=PLAIN_NUMBER,
        extend=layer.limits.open_ends,
        **placement,
    )


def shorten_middle(name: str) -> str:
    """Shorten a long name in its middle, because names often differ at the end.

    >>> shorten_middle("a very long name of a class, number 17")
    'a very long n…ss, number 17'
    """
    half = MAX_NAME_LETTERS // 2
    return name if len(name) <= MAX_NAME_LETTERS else f"{name[:half]}…{name[-half:]}"


def draw_legend(axes: Axes, layer: Categories, width: float) -> None:
    """Draw the categories with their counts below ``axes``, which are ``width`` inches wide."""
    from matplotlib.lines import Line2D

    columns = _legend_columns(layer, width)
    step = -(-len(layer.labels) // (columns * MAX_LEGEND_ROWS))
    handles = []
    for text, color in [*zip(_legend_texts(layer), layer.colors, strict=True)][::step]:
        handle = Line2D([], [], color=color, label=text, marker="o", linestyle="", markersize=7)
        handles.append(handle)
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        handletextpad=0.2,
        ncols=columns,
    )


def _legend_texts(layer: Categories) -> list[str]:
    named = zip(layer.labels, layer.counts, strict=True)
    return [f"{shorten_middle(label)}  ({count:,})" for label, count in named]


def legend_entry_width(layer: Categories) -> float:
    """Return the inches of the longest entry of :func:`draw_legend`."""
    letters = max(map(len, _legend_texts(layer))) + MARKER_LETTERS
    return letters / (NOTE_LETTERS * current_style().letters_per_inch)


def _legend_columns(layer: Categories, width: float) -> int:
    fitting = int(width / legend_entry_width(layer))
    return min(max(1, fitting), len(layer.labels))


def legend_height(layer: Categories, width: float) -> float:
    """Return the inches that :func:`draw_legend` needs."""
    rows = min(-(-len(layer.labels) // _legend_columns(layer, width)), MAX_LEGEND_ROWS)
    return rows * LEGEND_LINE * current_style().body_points / 72
