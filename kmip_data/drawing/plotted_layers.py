"""Draw layers with matplotlib: colours of nodes, colour bars and legends."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from kmip_data.arrays import F64, Array
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
MARKER_LETTERS = 5  #: width of a marker and the gaps around an entry of a legend
NOTE_LETTERS = 1.2  #: letters per inch of a note relative to the body
MAX_LEGEND_ROWS = 24  #: with more entries, only every second, third … is shown
NAME_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1))  #: right, left, above and below a point


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


def _scalar_mappable(limits: ColorLimits) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    norm = LogNorm if limits.is_log else Normalize
    colors = sequential_colors(256) if limits.center is None else diverging_colors(257)
    return ScalarMappable(norm(limits.low, limits.high), ListedColormap(colors))


def draw_color_bar(axes: Axes, layer: Scale) -> Any:
    """Fill ``axes`` with the colour bar of a scale, and return it; ends that values exceed are pointed."""
    return axes.figure.colorbar(
        _scalar_mappable(layer.limits),
        cax=axes,
        orientation="horizontal",
        label=layer.label,
        format=PLAIN_NUMBER,
        extend=layer.limits.open_ends,
    )


def set_wrapped_title(axes: Axes, inches: float, *lines: str) -> None:
    """Set the title of a panel to the lines that are not empty, wrapped to a width in inches."""
    letters = int(inches * current_style().letters_per_inch)
    wrapped = [textwrap.fill(line, letters) for line in lines if line]
    axes.set_title("\n".join(wrapped))


def shorten_middle(name: str) -> str:
    """Shorten a long name in its middle, because names often differ at the end.

    >>> shorten_middle("a very long name of a class, number 17")
    'a very long n…ss, number 17'
    """
    half = MAX_NAME_LETTERS // 2
    return name if len(name) <= MAX_NAME_LETTERS else f"{name[:half]}…{name[-half:]}"


def add_names(axes: Axes, places: Array, names: Sequence[str], gap: float) -> None:
    """Write names next to points (N, 2) where there is room, those of the first points first.

    ``gap`` is the distance from a point in typographic points. The layout of the figure must be
    final, because room is measured in pixels.
    """
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    figure = axes.figure
    room = axes.get_position(original=True).transformed(figure.transFigure)
    style = {
        "textcoords": "offset points",
        "fontsize": NOTE_FONT_SIZE,
        "path_effects": [withStroke(linewidth=2, foreground=current_style().background_color)],
        "zorder": 4,
    }
    radius = (gap - 1) * figure.dpi / 72
    pixels = axes.transData.transform(places)
    taken = [Bbox([pixel - radius, pixel + radius]) for pixel in pixels]
    for name, place in zip(names, places, strict=False):
        for across, up in NAME_SIDES:
            text = axes.annotate(
                shorten_middle(name),
                place,
                xytext=(gap * across, gap * up),
                ha=("center", "left", "right")[across],
                va=("center", "bottom", "top")[up],
                **style,
            )
            text.set_in_layout(False)
            box = text.get_window_extent()
            is_inside = room.contains(*box.min) and room.contains(*box.max)
            if is_inside and not box.count_overlaps(taken):
                taken.append(box)
                break
            text.remove()


def draw_legend(axes: Axes, layer: Categories, width: float) -> None:
    """Draw the categories with their counts below ``axes``, which are ``width`` inches wide."""
    from matplotlib.lines import Line2D

    columns, rows = legend_grid(layer, width)
    step = -(-len(layer.labels) // (columns * rows))
    handles = []
    for text, color in [*zip(_legend_texts(layer), layer.colors, strict=True)][::step]:
        handle = Line2D([], [], color=color, label=text, marker="o", linestyle="", markersize=7)
        handles.append(handle)
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=columns,
    )


def legend_grid(layer: Categories, width: float) -> tuple[int, int]:
    """Return the columns and rows of :func:`draw_legend`."""
    letters = max(map(len, _legend_texts(layer))) + MARKER_LETTERS
    columns = max(1, int(width * NOTE_LETTERS * current_style().letters_per_inch / letters))
    return columns, min(-(-len(layer.labels) // columns), MAX_LEGEND_ROWS)


def _legend_texts(layer: Categories) -> list[str]:
    named = zip(layer.labels, layer.counts, strict=True)
    return [f"{shorten_middle(label)}  ({count:,})" for label, count in named]
