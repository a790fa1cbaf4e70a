"""Values to colours: the limits of a scale, what is missing, and the same on pages as in pictures."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgba

from kmip_data.drawing.layers import (
    Scale,
    class_layer,
    limits_of_scale,
)
from kmip_data.drawing.page_layers import ArrayPacker
from kmip_data.drawing.plotted_layers import node_colors
from kmip_data.drawing.style import (
    class_colors,
    current_style,
    diverging_colors,
    sequential_colors,
    using_style,
)


def test_one_per_cent_at_either_end_has_the_colour_of_the_end():
    values = np.append(np.arange(1_000.0), [1e9, np.nan, np.inf])
    limits = limits_of_scale(values)
    ordered = sorted([*range(1_000), 1e9])
    assert (limits.low, limits.high) == (ordered[10], ordered[990])
    assert (limits.least, limits.most, limits.missing) == (0, 1e9, 2)
    few = limits_of_scale(np.array([3.0, 1.0, 2.0]))
    assert (few.low, few.high) == (1, 3)
    spike = limits_of_scale(np.append(np.zeros(1_000), 5.0))
    assert (spike.low, spike.high) == (0, 5), "not one colour for all"
    assert limits_of_scale(np.array([np.nan])).missing == 1


@pytest.mark.parametrize("style", ["light", "dark"])
def test_colours_rise_along_the_ramp_and_missing_values_are_grey(style):
    with using_style(style):
        colors = node_colors(Scale("a", np.array([0.0, np.nan, 1.0, 0.5])), 4)
        shades = sequential_colors(256)
        assert [to_hex(color) for color in colors[[0, 2]]] == [shades[0], shades[-1]]
        assert tuple(colors[1]) == to_rgba(current_style().missing)


def test_rows_share_colour_limits():
    alone = node_colors(Scale("a", np.array([1.0]), limit_values=np.array([0.0, 1.0])), 1)
    assert to_hex(alone[0]) == sequential_colors(256)[-1]


def test_pages_and_pictures_use_equal_limits():
    values = np.random.default_rng(0).normal(size=500).astype(np.float32)
    values[:7] = np.nan
    packed, limits = ArrayPacker().add_layer(Scale("a", values))["limits"], limits_of_scale(values)
    assert packed == {
        "low": limits.low, "high": limits.high, "least": limits.least, "most": limits.most, "missing": 7,
        "center": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "center", "low", "high", "is_log"),
    [
        (np.linspace(0.9945, 1.007, 200), 1, 0.5, 2, True),  # nearly even attention
        (np.append(np.zeros(99), 100), 1, 0.01, 100, True),
        (np.array([-3.0, 1]), 0, -3, 3, False),
        (np.array([-1.0, 1, 2]), None, -2, 2, False),  # both signs: about 0
        (np.array([-0.1, 1, 2]), None, -0.1, 2, False),
        (np.logspace(-2, 4, 101), None, 10**-1.94, 10**3.94, True),
        (np.append(np.logspace(0, 5, 101), [0, np.nan]), None, 10**0.05, 10**4.95, True),
        (np.linspace(0, 1, 1_000), None, 0.01, 0.99, False),
        (np.array([0, 0.2, *np.linspace(1, 10, 98)]), None, 0.2, 10, False),  # a low one, else even
        (-np.logspace(0, 5, 101), None, -(10**4.95), -(10**0.05), False),
        (np.zeros(5), None, 0, 0, False),
    ],
)
def test_a_scale_diverges_or_is_logarithmic(values, center, low, high, is_log):
    limits = limits_of_scale(values, center)
    assert (limits.low, limits.high) == pytest.approx((low, high), rel=0.01)
    assert limits.is_log == is_log
    assert limits.center == (0 if low == -high < 0 else center)
    shades = diverging_colors(257) if limits.center is not None else sequential_colors(256)
    ends = node_colors(Scale("a", np.array([low, high]), limit_values=values, center=center), 2)
    if low < high:
        assert [to_hex(color) for color in ends] == [shades[0], shades[-1]]


def test_negative_classes_are_labelled_no_class():
    layer = class_layer("class", np.array([1, -1, 0, -5]), ["a", "b"])
    assert layer.labels == ("a", "b", "no class")
    assert layer.counts == [1, 1, 2]
    assert layer.colors == (*class_colors(2, ["a", "b"]), current_style().missing)
    assert class_layer("class", np.array([1, 0]), ["a", "b"]).labels == ("a", "b")
