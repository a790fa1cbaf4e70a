"""Ground of a map: water and green of an extract, against areas that are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from support.maps.osm_maps import write_map

from kmip_data.arrays import F64
from kmip_data.pipelines.datasets.openstreetmap import extract
from kmip_data.pipelines.datasets.openstreetmap.extract import Ground, read_extract
from kmip_data.pipelines.datasets.openstreetmap.ground import ground_in_box

CORNERS = np.array([(10.0, 50.0), (11.0, 51.0)])
NO_AREAS = np.array([], object)


def water(*coastlines: F64) -> shapely.Geometry:
    ground = Ground([], NO_AREAS, [*coastlines], [])
    return shapely.from_wkt(ground_in_box(ground, CORNERS)["water"])


HEIGHTS = st.lists(st.floats(0.1, 0.9), min_size=2, max_size=12)


@given(heights=HEIGHTS, is_reversed=st.booleans(), gap=st.floats(-0.05, 0.05))
def test_the_sea_lies_on_the_right_of_a_coastline(heights, is_reversed, gap):
    """A coast from west to east, which ends before or behind the border of the box."""
    across = np.linspace(10 + gap, 11 - gap, len(heights))
    coast = np.column_stack([across, 50 + np.array(heights)])
    below = shapely.Polygon([*coast, (11 - gap, 49), (10 + gap, 49)])
    strip = shapely.box(10 + abs(gap), 50, 11 - abs(gap), 51)
    expected = below.intersection(strip)
    if is_reversed:
        expected = strip.difference(expected)
    drawn = water(coast[::-1] if is_reversed else coast).intersection(strip)
    assert drawn.symmetric_difference(expected).area < 0.01


def test_islands_are_dry_and_coastlines_that_contradict_each_other_give_no_sea():
    coast = np.array([(10.0, 50.5), (10.5, 50.5), (11.0, 50.5)])
    island = np.array([(10.4, 50.2), (10.6, 50.2), (10.6, 50.3), (10.4, 50.3), (10.4, 50.2)])
    assert water(coast, island).area == pytest.approx(0.5 - 0.02, abs=1e-3)
    assert water(coast, island[::-1]).is_empty, "the island's other side would be sea"
    assert water(coast[:2]).is_empty, "a coast that ends in the middle"
    assert water().is_empty
    touching = np.array([(9.5, 50.5), (10.0, 50.6), (9.5, 50.7)])
    assert water(touching).is_empty
    assert water(touching, coast).area == pytest.approx(0.5)
    assert water(coast + 5).is_empty


def test_areas_of_an_extract_are_water_or_green(tmp_path, monkeypatch):
    nodes = []

    def square(first: int, west: float, side: float, south: float = 50.1) -> list[int]:
        corners = [(0.0, 0.0), (side, 0.0), (side, side), (0.0, side)]
        nodes.extend((first + i, west + lon, south + lat) for i, (lon, lat) in enumerate(corners))
        return [first, first + 1, first + 2, first + 3, first]

    park = square(11, 10.1, 0.4)
    pond = square(21, 10.2, 0.1, south=50.2)
    ways = [
        (1, park, {}),
        (2, pond, {"natural": "water"}),
        (3, square(31, 10.6, 0.2), {"landuse": "forest"}),
        (4, square(41, 10.8, 0.1), {"landuse": "retail"}),
        (5, square(51, 10.9, 0.0005), {"leisure": "park"}),
        (6, [11, 12, 13], {"highway": "path"}),
        (7, [21, 22, 23], {"natural": "coastline"}),
    ]
    members = [("w", 1, "outer"), ("w", 2, "inner")]
    relations = [(1, members, {"type": "multipolygon", "leisure": "park"})]
    path = write_map(tmp_path / "map.osm.pbf", nodes, ways, relations)

    def ground_of(map_path: Path) -> dict[str, float]:
        ground = read_extract(map_path, "any", tmp_path).ground
        assert len(ground.coastlines) == (extract.MAX_GROUND_BYTES > 0)
        texts = ground_in_box(ground._replace(coastlines=[]), CORNERS)
        return {kind: round(shapely.from_wkt(text).area, 4) for kind, text in texts.items()}

    # The pond is no green, and the smallest park is not seen.
    assert ground_of(path) == {"water": 0.01, "green": 0.16 - 0.01 + 0.04}
    assert read_extract(path, "any", tmp_path).land_use.value == ["forest", "retail"]
    monkeypatch.setattr(extract, "MAX_GROUND_BYTES", 0)
    assert ground_of(path) == {"water": 0.0, "green": 0.0}, "none of the map of a country"


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_lake_that_crosses_the_border_lies_where_no_intersections_are(is_reversed, tmp_path):
    nodes = [(1, 10.0, 50.2), (2, 10.3, 50.3), (3, 10.2, 50.0)]
    ring = [1, 99, 98, 3, 2, 1]
    lake = (1, ring[::-1] if is_reversed else ring, {"natural": "water"})
    path = write_map(tmp_path / "map.osm.pbf", nodes, [lake], [])
    ground = read_extract(path, "any", tmp_path).ground
    corner = shapely.Polygon([(10, 50), (10, 50.2), (10.3, 50.3), (10.2, 50.0)])

    def area(intersections: F64) -> float:
        texts = ground_in_box(ground, np.vstack([CORNERS, intersections]))
        return shapely.from_wkt(texts["water"]).area

    rng = np.random.default_rng(0)
    streets = rng.uniform((10, 50), (11, 51), (500, 2))
    is_wet = shapely.contains_xy(corner, *streets.T)
    assert area(streets[~is_wet]) == pytest.approx(corner.area, abs=1e-3)
    assert area(streets[is_wet]) == pytest.approx(1 - corner.area, abs=1e-3)
    assert area(streets) == 0, "it is not known which side is wet"


def test_a_map_without_height_has_no_ground():
    street = np.array([(10.0, 50.0), (11.0, 50.0)])
    coast = np.array([(10.2, 49.9), (10.5, 50.1), (10.8, 49.9)])
    ground = Ground(["green"], np.array([shapely.box(10.1, 49, 10.9, 51)]), [coast], [[coast]])
    assert ground_in_box(ground, street) == {}
