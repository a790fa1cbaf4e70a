"""A city as a picture: one map for each thing it is coloured by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.drawing.maps.city_map import ATTRIBUTION, CityMap
from kmip_data.drawing.maps.layers import Categories, Layer, Scale, ramp
from kmip_data.drawing.pictures import broken_line
from kmip_data.drawing.style import NOTE, look, new_figure, save, styled

LONGEST_SIDE: Final = 8.0  #: inches of a map
MOST_ROWS: Final = 24  #: of a legend; of more classes every second, third … is named


@styled
def draw_map(city: CityMap, layers: Sequence[Layer], path: Path) -> None:
    """Draw the streets as lines and the intersections as points, once for each of ``layers``.

    Every map has its legend, and a scale bar; north is up.
    """
    from matplotlib.colors import ListedColormap

    low, high = _frame(city.position)
    width, height = LONGEST_SIDE * (high - low) / (high - low).max()
    legend = 2.6
    columns = _columns(len(layers), width + legend, height)
    rows = -(-len(layers) // columns)
    size = (columns * (width + legend), rows * (height + 0.7) + 1.0)
    title = f"{city.title}\n{city.options}"
    figure = new_figure(*size, title=title, footer=ATTRIBUTION, layout="compressed")
    shrunk = figure.get_figwidth() / size[0]
    halves = 2 if len(layers) % columns else 1  # the maps of a last row that is not full stand in its middle
    grid = figure.add_gridspec(rows, halves * columns)
    # Points that just about touch where the city is evenly dense.
    points = 72.0**2 * width * height / max(1, len(city.position))
    area = min(14.0, max(0.35, 0.12 * points)) * shrunk**2
    lines = broken_line(city.position, city.streets)
    for number, layer in enumerate(layers):
        row, column = divmod(number, columns)
        lacking = columns - min(columns, len(layers) - row * columns)
        first = halves * column + (lacking if halves == 2 else 0)
        axes = figure.add_subplot(grid[row, first : first + halves])
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        axes.set_axis_off()
        axes.set_title(f"{layer.name}\n{layer.note}")
        axes.plot(*lines, color=look().faint, linewidth=min(0.7, 0.35 * math.sqrt(area)), zorder=1)
        marks = {"s": area, "linewidths": 0, "zorder": 2}
        x, y = city.position.T
        if isinstance(layer, Scale):
            colors = ListedColormap(ramp("viridis", 256))
            drawn = axes.scatter(x, y, c=layer.values, cmap=colors, **marks)
            # Inside the place of the map: a colour bar of its own would stand where the panel ends.
            beside = axes.inset_axes((1.04, 0.25, 0.04, 0.5))
            figure.colorbar(drawn, cax=beside, label=f"{layer.name} [{layer.unit}]", format="{x:,.0f}")
        else:
            axes.scatter(x, y, c=layer.codes, cmap=ListedColormap(layer.colors),
                         vmin=-0.5, vmax=len(layer.labels) - 0.5, **marks)  # fmt: skip
            _legend(axes, layer)
        _scale_bar(axes, low, high)
    margin = min(0.2, max(0.0, (look().widest - figure.get_figwidth()) / 2))
    save(figure, path, bbox_inches="tight", pad_inches=margin)


def nice_length(longest: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the largest that is not longer.

    >>> nice_length(730.0), nice_length(1_000.0)
    (500.0, 1000.0)
    """
    power = 10.0 ** math.floor(math.log10(longest))
    return max(step * power for step in (1, 2, 5) if step * power <= longest)


def _frame(position: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Corners of the map, with a margin; below it there is room for the scale bar."""
    low, high = position.min(axis=0), position.max(axis=0)
    longest = max(float((high - low).max()), 1.0)
    # A street village along one line is still a map, not a line.
    lacking = np.maximum(0.25 * longest - (high - low), 0) / 2
    margin = 0.02 * longest
    return low - lacking - [margin, margin + 0.06 * longest], high + lacking + margin


def _columns(maps: int, width: float, height: float) -> int:
    """Return how many maps side by side make the picture most like a screen, without many gaps."""

    def badness(columns: int) -> float:
        rows = -(-maps // columns)
        gaps = 1 - maps / (rows * columns)
        return abs(math.log(columns * width / (rows * height) / 1.6)) + 1.5 * gaps

    return min(range(1, maps + 1), key=badness)


def _legend(axes: Any, layer: Categories) -> None:
    from matplotlib.lines import Line2D

    step = -(-len(layer.labels) // MOST_ROWS)
    rows = list(zip(layer.labels, layer.colors, layer.counts, strict=True))[::step]
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=7, color=color, label=f"{label}  ({count:,})")
        for label, color, count in rows
    ]
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), handletextpad=0.2)


def _scale_bar(axes: Any, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
    across, longest = float(high[0] - low[0]), float((high - low).max())
    length = nice_length(across / 3)
    x, y = low[0] + 0.03 * across, low[1] + 0.02 * longest
    axes.plot([x, x + length], [y, y], color=look().ink, linewidth=2.5, solid_capstyle="butt", zorder=3)
    text = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    axes.annotate(text, (x, y), xytext=(0, 3), textcoords="offset points", fontsize=NOTE)
