"""Layers of a picture or page: categories or values of nodes, with their colours and legends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kmip_data.arrays import F64, I64, Array, Integers
from kmip_data.drawing.style import (
    NOTE_FONT_SIZE,
    PLAIN_NUMBER,
    Axes,
    ColorFunction,
    class_colors,
    current_style,
    sequential_colors,
)

CLIPPED_FRACTION = 0.01  #: fraction of the values clipped at either end of the colour scale
CHANNELS = ("red", "green", "blue")  #: prefixes of the names of colour fields
CHANNEL_MAXIMA = (1, 255, 65_535)  #: possible maxima of a colour channel
SHADES_PER_CHANNEL = 16  #: few enough for all combinations to fit any texture
NO_CLASS_LABEL = "no class"
MAX_NAME_LETTERS = 26  #: letters of a name beside a bar or in a legend
LEGEND_WIDTH = 2.8  #: inches
LEGEND_LINE = 1.4  #: height of a row relative to the body
MAX_LEGEND_ROWS = 24  #: with more entries, only every second, third … is shown


@dataclass(frozen=True)
class Limits:
    """Ends of a colour scale, and the range of its values."""

    low: float  #: value of the first colour
    high: float  #: value of the last colour
    least: float  #: smallest value
    most: float  #: largest value
    missing: int  #: number of values that are not finite, drawn grey

    @property
    def open_ends(self) -> str:
        """Ends that some values exceed, in matplotlib's terms."""
        below, above = self.least < self.low, self.most > self.high
        return {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[below, above]


def limits_of_scale(values: Array) -> Limits:
    """Return the limits of a colour scale for values (n,), clipping one per cent at either end.

    Without clipping, one long street would leave a single colour for all others. Without finite
    values, all limits are 0.
    """
    finite = np.sort(values[np.isfinite(values)].astype(np.float64))
    missing = len(values) - len(finite)
    if not len(finite):
        return Limits(0, 0, 0, 0, missing)
    least, most = finite[[0, -1]].tolist()
    fractions = np.array([CLIPPED_FRACTION, 1 - CLIPPED_FRACTION])
    ranks = np.rint(fractions * (len(finite) - 1)).astype(np.int64)
    low, high = finite[ranks].tolist()
    if low == high:
        low, high = least, most
    return Limits(low, high, least, most, missing)


def page_limits(values: Array, center: float | None = None) -> dict[str, float | bool]:
    """Return the limits of the explorer's colour scale for values (n,), as JSON.

    With a ``center``, the scale is symmetric about it: 0 for differences, or 1 for ratios, which reach
    at least from 1/2 to 2 so that nearly equal ones look equal. Otherwise it is logarithmic if values
    that are not negative span two decades and crowd at the lower end.
    """
    limits = limits_of_scale(values)
    result: dict[str, float | bool] = asdict(limits)
    if center == 0:
        farthest = max(abs(limits.low), abs(limits.high))
        return result | {"center": center, "low": -farthest, "high": farthest}
    if center == 1:
        factor = max(2.0, limits.high)
        return result | {"center": center, "low": 1 / factor, "high": factor, "is_log": True}

    positive = values[np.isfinite(values) & (values > 0)].astype(np.float64)
    if limits.least < 0 or not len(positive):
        return result
    # The median of values that are spread evenly over decades is the ends' geometric mean, of values
    # that are spread evenly it is their mean; it is nearer to the first if it is below the mean of both.
    low, high = limits_of_scale(positive).low, limits_of_scale(positive).high
    crowded = np.median(positive) ** 2 < np.sqrt(low * high) * (low + high) / 2
    if high >= 100 * low and crowded:
        return result | {"low": low, "high": high, "is_log": True}
    return result


@dataclass(frozen=True)
class Categories:
    """A category of each node."""

    name: str
    codes: Integers  #: (N,) uint8 or uint16, position in ``labels``
    labels: tuple[str, ...]
    color_function: ColorFunction  #: returns the colour of each label for the current style
    note: str = ""  #: sentence below the title

    @property
    def colors(self) -> tuple[str, ...]:
        """Colours of the categories in the current style."""
        return tuple(self.color_function())

    @property
    def counts(self) -> list[int]:
        """Number of nodes of each category."""
        return np.bincount(self.codes, minlength=len(self.labels)).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Scale:
    """A value of each node, (N,) float; NaN if missing."""

    name: str
    values: Array
    unit: str
    note: str = ""
    limit_values: Array | None = None  #: values that set the limits, if not its own
    center: float | None = None  #: value in the middle of the explorer's colours, if they diverge

    @property
    def limits(self) -> Limits:
        """Limits of the colour scale."""
        return limits_of_scale(self.values if self.limit_values is None else self.limit_values)

    @property
    def label(self) -> str:
        """Name and unit, as an axis label."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


Layer = Categories | Scale


def class_layer(
    name: str,
    classes: I64,
    names: Sequence[str],
    note: str = "",
    color_function: ColorFunction | None = None,
) -> Categories:
    """Return a layer of the classes (N,) of nodes; negative ones are grey and :data:`NO_CLASS_LABEL`.

    ``color_function`` returns the colours of the ``names``, by default
    :func:`~kmip_data.drawing.style.class_colors`.
    """
    labels = tuple(names)
    is_known = classes >= 0
    if not is_known.all():
        labels = (*labels, NO_CLASS_LABEL)
    codes = np.where(is_known, classes, len(names))

    def colors() -> Sequence[str]:
        name_colors = color_function() if color_function else class_colors(len(names), names)
        return [*name_colors, current_style().missing][: len(labels)]

    return Categories(name, cast_to_smallest_dtype(codes, len(labels)), labels, colors, note)


def rgb_layer(columns: Mapping[str, Array]) -> Layer | None:
    """Return the layer of the nodes' own colours if ``columns``, (N,) by name, have RGB values.

    Values have 1, 8 or 16 bits.
    """
    channels = []
    for color in CHANNELS:
        names = [name for name in columns if name.removeprefix("mean ").startswith(color)]
        if not names:
            return None
        channels.append(columns[names[0]])

    rgb = np.stack(channels, axis=1)
    largest = rgb.max(initial=0)
    maximum = next((value for value in CHANNEL_MAXIMA if largest <= value), CHANNEL_MAXIMA[-1])
    max_shade = SHADES_PER_CHANNEL - 1
    shades = np.rint((rgb / maximum).clip(0, 1) * max_shade).astype(np.int64)
    distinct, codes = np.unique(shades, axis=0, return_inverse=True)
    brightness = (distinct * 255 // max_shade).tolist()
    colors = [f"#{bytes(color).hex()}" for color in brightness]
    return Categories(
        "colour",
        codes.reshape(-1).astype(np.uint16),
        tuple(colors),
        lambda: colors,
        "the nodes' own colours, in 16 shades per channel",
    )


def cast_to_smallest_dtype(codes: Array, count: int) -> Array:
    """Cast codes (n,) below ``count`` ≤ 65,536 to uint8 or uint16."""
    return codes.astype(np.uint8 if count <= 256 else np.uint16)


def node_colors(layer: Layer) -> F64:
    """Return the colour of each node in the current style, (N, 4) RGBA; missing values are grey."""
    from matplotlib.colors import to_rgba_array

    if isinstance(layer, Categories):
        return to_rgba_array(layer.colors)[layer.codes]
    finite = np.isfinite(layer.values)
    mappable = _scalar_mappable(layer)
    colors = np.tile(to_rgba_array(current_style().missing), (len(finite), 1))
    colors[finite] = mappable.to_rgba(layer.values[finite])
    return colors


def _scalar_mappable(layer: Scale) -> Any:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    limits = layer.limits
    return ScalarMappable(
        Normalize(limits.low, limits.high), ListedColormap(sequential_colors(256))
    )


def draw_color_bar(axes: Axes, layer: Scale, **placement: object) -> Any:
    """Draw the colour bar of a scale with its unit, and return it; ends that values exceed are pointed."""
    return axes.figure.colorbar(
        _scalar_mappable(layer),
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
