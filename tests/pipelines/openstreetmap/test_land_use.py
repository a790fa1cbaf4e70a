"""The nearest area of each point, against the distances of shapely to all areas."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from numpy.random import PCG64, Generator

from kmip_data.pipelines.datasets.openstreetmap.land_use import LandUse, nearest_land_use


def random_areas(rng: Generator, count: int, grid: float) -> list[shapely.Geometry]:
    """Polygons of 3 to 40 corners on a grid, some crossing themselves; holes and multipolygons."""
    areas: list[shapely.Geometry] = []
    for number in range(count):
        middle = rng.uniform(-1, 1, 2) * (60, 30)
        corners = middle + rng.uniform(-2, 2, (rng.integers(3, 41), 2)) * rng.choice([0.01, 1])
        area: shapely.Geometry = shapely.Polygon(np.round(corners / grid) * grid)
        if number % 4 == 1:
            ring = shapely.Point(middle).buffer(1.5)
            area = shapely.Polygon(ring.exterior, [ring.buffer(-0.5).exterior])
        if number % 4 == 2:
            box = shapely.box(*middle, *(middle + grid))
            area = shapely.MultiPolygon([box, shapely.box(*(middle + 3), *(middle + 4))])
        areas.append(area)
    return areas


@pytest.mark.parametrize("count", [2, 3, 200])
@pytest.mark.parametrize("grid", [0.25, 1e-7])
def test_the_nearest_area_has_the_least_distance(count, grid):
    rng = Generator(PCG64(count))
    areas = np.array(random_areas(rng, count, grid), object)
    areas = np.append(areas, areas[: count // 2])  # of two that are equally near the first counts
    anywhere = rng.uniform(-1, 1, (2_000, 2)) * (65, 33)
    near = rng.permutation(shapely.get_coordinates(areas))[:1_000]
    near += rng.normal(0, 0.1, near.shape)
    points = np.concatenate([anywhere, near])
    lon, lat = (np.round(points / grid) * grid).T

    nearest = nearest_land_use(LandUse(value=["use"] * len(areas), area=areas), lon, lat)

    distance = shapely.distance(shapely.points(lon, lat)[:, None], areas)
    assert (nearest == distance.argmin(axis=1)).all()
    inside = distance.min(axis=1) == 0
    assert 0 < inside.sum() < len(points)


def test_areas_without_sides_are_nearest_to_no_point():
    empty = LandUse(value=["use"], area=np.array([shapely.Polygon()], object))
    assert nearest_land_use(empty, np.zeros(2), np.zeros(2)).tolist() == [1, 1]
