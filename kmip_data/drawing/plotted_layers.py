"""Draw layers with matplotlib: colours of nodes, colour bars and legends."""

from __future__ import annotations

from typing import Any

import numpy as np

from kmip_data.arrays import F64
from kmip_data.drawing.layers import Categories, ColorLimits, Layer, Scale
from kmip_data.drawing.style import (
    NOTE_FONT_SIZE,
    PLAIN_NUMBER,
    Axes,
    current_style,
    diverging_colors,
    sequential_colors,
)

MAX_NAME_LETTERS = 26  #: letters of a name beside a bar or in a legend
LEGEND_WIDTH = 2.8  #: inches
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


def draw_legend(axes: Axes, layer: Categories) -> None:
    """Draw the categories with their counts to the right of ``axes``, :data:`LEGEND_WIDTH` wide."""
    from matplotlib.lines import Line2D

    step = -(-len(layer.labels) // MAX_LEGEND_ROWS)
    rows = list(zip(layer.labels, layer.colors, layer.counts, strict=True))
    handles = []
    for label, color, count in rows[::step]:
        handle = Line2D(
            [],
            [],
            color=color,
            label=f"{shorten_middle(label)}  ({count:,})",
            marker="o",
            linestyle="",
            markersize=7,
        )
        handles.append(handle)
    legend = axes.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        handletextpad=0.2,
        fontsize=NOTE_FONT_SIZE,
    )
    legend.set_in_layout(False)  # layouts misjudge what is beside a map of a fixed aspect


def legend_height(layer: Categories) -> float:
    """Return the inches that :func:`draw_legend` needs."""
    rows = min(len(layer.labels), MAX_LEGEND_ROWS)
    return rows * LEGEND_LINE * current_style().body_points / 72
