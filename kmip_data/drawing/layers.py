"""Layers of a graph: a category or value of each node, with its colours, limits and legend texts.

A layer describes what is drawn. Maps and previews draw it with :mod:`.plotted_layers`, and the
explorer's page draws what :mod:`.page_layers` packs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kmip_data.arrays import U8, Array, Integers
from kmip_data.drawing.style import (
    ColorFunction,
    class_colors,
    current_style,
)
from kmip_data.format.color_fields import color_channels
from kmip_data.format.split_files import PART_CODES

CLIPPED_FRACTION = 0.01  #: fraction of the values clipped at either end of the colour scale
MIN_LOG_RATIO = 10  #: smallest ratio of the end of a logarithmic scale to the median positive value
SHADES_PER_CHANNEL = 16  #: few enough for all combinations to fit any texture
NO_CLASS_LABEL = "no class"
#: values of a sign are large if they reach this fraction of those of the other
SIGNED_FRACTION = 0.2
PART_NAMES = (*PART_CODES, "in no split")  #: names of the parts of a split by code


@dataclass(frozen=True)
class ColorLimits:
    """Ends of a colour scale, and the range of its values."""

    low: float  #: value of the first colour
    high: float  #: value of the last colour
    least: float  #: smallest value
    most: float  #: largest value
    missing: int  #: number of values that are not finite, drawn grey
    center: float | None = None  #: value of the middle colour, if colours diverge
    is_log: bool = False


def limits_of_scale(values: Array, center: float | None = None) -> ColorLimits:
    """Return the limits of a colour scale for values (n,).

    One per cent is clipped at either end: without, one long street would leave a single colour for
    all others. With a ``center``, the scale is symmetric about it: 0 for differences, or 1 for ratios,
    which reach at least from 1/2 to 2 so that nearly equal ones look equal. It is 0 by default if
    values of both signs are large. Otherwise the scale is
    logarithmic if no value is negative and the end is :data:`MIN_LOG_RATIO` times the median of the
    positive ones. Without finite values, all limits are 0.
    """
    finite = np.sort(values[np.isfinite(values)].astype(np.float64))
    missing = len(values) - len(finite)
    if not len(finite):
        return ColorLimits(0, 0, 0, 0, missing, center)
    least, most = finite[[0, -1]].tolist()
    low, high = _clipped_ends(finite)
    if center is None and min(-low, high) > SIGNED_FRACTION * max(-low, high):
        center = 0
    limits = ColorLimits(low, high, least, most, missing, center)
    if center == 0:
        farthest = max(abs(low), abs(high))
        return replace(limits, low=-farthest, high=farthest)
    if center == 1:
        factor = max(2.0, high)
        return replace(limits, low=1 / factor, high=factor, is_log=True)

    positive = finite[finite > 0]
    if least < 0 or not len(positive):
        return limits
    low, high = _clipped_ends(positive)
    if high >= MIN_LOG_RATIO * np.median(positive):
        return replace(limits, low=low, high=high, is_log=True)
    return limits


def _clipped_ends(ordered: Array) -> tuple[float, float]:
    """Return the ends of ordered values without the clipped ones, unless all others are equal."""
    fractions = np.array([CLIPPED_FRACTION, 1 - CLIPPED_FRACTION])
    ranks = np.rint(fractions * (len(ordered) - 1)).astype(np.int64)
    low, high = ordered[ranks].tolist()
    if low == high:
        low, high = ordered[[0, -1]].tolist()
    return low, high


@dataclass(frozen=True)
class Categories:
    """A category of each node."""

    name: str
    codes: Integers  #: (N,) uint8 or uint16, position in ``labels``
    labels: tuple[str, ...]
    color_function: ColorFunction  #: returns the colour of each label for the current style
    note: str = ""  #: sentence below the title
    is_ordered: bool = False  #: True if the distance of two codes is meaningful
    values: Array | None = None  #: number that each label stands for, if it is one

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
    unit: str = ""
    note: str = ""
    limit_values: Array | None = None  #: values that set the limits, if not its own
    center: float | None = None  #: value in the middle of the colours, if they diverge

    @property
    def limits(self) -> ColorLimits:
        """ColorLimits of the colour scale."""
        values = self.values if self.limit_values is None else self.limit_values
        return limits_of_scale(values, self.center)

    @property
    def label(self) -> str:
        """Name and unit, as an axis label."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


Layer = Categories | Scale


def class_layer(
    name: str,
    classes: Array,
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


def part_layer(title: str, split: str, codes: U8) -> Categories:
    """Return the layer of a split, given positions (N,) in :data:`PART_NAMES`."""
    # Include "in no split" only if a node is.
    names = PART_NAMES[: max(len(PART_CODES), int(codes.max(initial=0)) + 1)]

    def colors() -> Sequence[str]:
        val, train, test = class_colors(3)
        parts = [train, val, test][: len(names) - 1]
        return [*parts, current_style().outcome_colors[-1]]  # the rest is grey

    return Categories(title, codes, names, colors, split)


def rgb_layer(columns: Mapping[str, Array]) -> Layer | None:
    """Return the layer of the nodes' own colours if ``columns``, (N,) by name, have RGB values or greys."""
    rgb = color_channels(columns)
    if rgb is None:
        return None
    max_shade = SHADES_PER_CHANNEL - 1
    shades = np.rint(rgb * max_shade).astype(np.int64)
    distinct, codes = np.unique(shades, axis=0, return_inverse=True)
    brightness = (distinct * 255 // max_shade).tolist()
    colors = [f"#{bytes(color).hex()}" for color in brightness]
    kind = (
        "colours, in 16 shades per channel" if np.ptp(rgb, axis=1).any() else "greys, in 16 shades"
    )
    return Categories(
        "colour",
        codes.reshape(-1).astype(np.uint16),
        tuple(colors),
        lambda: colors,
        f"the nodes' own {kind}",
    )


def cast_to_smallest_dtype(codes: Array, count: int) -> Array:
    """Cast codes (n,) below ``count`` ≤ 65,536 to uint8 or uint16."""
    return codes.astype(np.uint8 if count <= 256 else np.uint16)
