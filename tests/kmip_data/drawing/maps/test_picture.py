"""The PNG of a city: a map for each colouring, the same bytes from the same build."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib import image

from kmip_data.drawing.maps.layers import city_layers
from kmip_data.drawing.maps.picture import draw_map, nice_length
from kmip_data.drawing.style import chosen


def test_the_picture_has_all_colours_and_is_reproducible(city, tmp_path):
    layers = city_layers(city)[:1]
    for name in ("one.png", "two.png"):
        draw_map(city, layers, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    pixels = image.imread(tmp_path / "one.png")[..., :3]
    for color in layers[0].colors:
        wanted = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        assert (np.abs(pixels - wanted).max(axis=2) < 0.02).sum() > 50, color


def test_four_maps_are_two_rows(city, tmp_path):
    layers = city_layers(city)
    heights = []
    for count in (1, 4):
        draw_map(city, layers[:count], tmp_path / "m.png")
        heights.append(image.imread(tmp_path / "m.png").shape[0])
    assert 1.7 < heights[1] / heights[0] < 2.1


def test_in_print_maps_are_as_wide_as_a_page(city, tmp_path):
    layers = city_layers(city)
    for count in (1, 4):
        with chosen("paper"):
            draw_map(city, layers[:count], tmp_path / "m.png")
        assert image.imread(tmp_path / "m.png").shape[1] <= 7.0 * 300


@pytest.mark.parametrize("kind", ["point", "line", "empty streets"])
def test_odd_cities_are_drawn(city, kind, tmp_path):
    position = {
        "point": np.zeros_like(city.position),
        "line": city.position * [1.0, 0.0],
        "empty streets": city.position,
    }[kind]
    streets = city.streets[:, :0] if kind == "empty streets" else city.streets
    draw_map(replace(city, position=position, streets=streets), city_layers(city)[1:2], tmp_path / "m.png")
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_scale_bars_have_round_lengths():
    for longest in np.geomspace(0.5, 99_999, 200):
        length = nice_length(float(longest))
        assert longest / 2.5 < length <= longest
        assert float(f"{length:.0e}"[0]) in {1, 2, 5}
