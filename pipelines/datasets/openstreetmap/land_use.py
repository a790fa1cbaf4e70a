"""Areas of land use, and the nearest one of each intersection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kmip_data.arrays import F64, I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import read_json
from kmip_data.runtime.parallel import run_in_ranges

if TYPE_CHECKING:
    from shapely import Geometry

_POINTS = 2**16  #: points of shapely that are made at a time: one takes 200 bytes
_MAX_BYTES = 2**29  #: most bytes of the GeoJSON file; a city has tens of MB


class LandUse(NamedTuple):
    """Areas in OpenStreetMap's order: closed ways, then relations, each by number."""

    value: list[str]  #: value of ``landuse`` for each area
    area: Array  #: (A,) polygons and multipolygons in degrees

    def areas_meeting(self, polygon: Geometry) -> LandUse:
        """Return the areas that meet ``polygon``, whole."""
        import shapely

        meets = shapely.intersects(self.area, polygon)
        value = [self.value[i] for i in np.flatnonzero(meets)]
        return LandUse(value, self.area[meets])


def assemble_areas(
    closed: Mapping[int, tuple[str, F64]],
    relations: Mapping[int, tuple[str, list[int]]],
    lines: Mapping[int, F64],
) -> LandUse:
    """Make polygons of closed ways and of multipolygon relations, each by its number.

    Areas that reach over the border of the file are left out.

    A way has its land use and its ring, (n, 2) degrees, NaN where a node is missing; a relation its
    land use and the numbers of its member ways, whose nodes are in ``lines`` unless the file lacks
    them.
    """
    import shapely

    value = []
    rings = []
    for _, (use, ring) in sorted(closed.items()):
        if not np.isnan(ring).any():
            value.append(use)
            rings.append(ring)
    # All at once: a Python object takes five times as long as its polygon.
    points = np.concatenate([np.empty((0, 2)), *rings])
    ring_of = np.repeat(np.arange(len(rings)), list(map(len, rings)))
    polygons = [*shapely.polygons(shapely.linearrings(points, indices=ring_of))]

    missing = np.full((1, 2), np.nan)
    for _, (use, members) in sorted(relations.items()):
        lines_of_relation = [lines.get(member, missing) for member in members]
        complete = all(len(line) > 1 and not np.isnan(line).any() for line in lines_of_relation)
        if not complete:
            continue
        # Holes are found by nesting, whatever roles the members have.
        area = shapely.build_area(shapely.MultiLineString(lines_of_relation))
        if area is not None and not area.is_empty:
            value.append(use)
            polygons.append(area)

    areas = np.empty(len(polygons), object)
    areas[:] = polygons
    return LandUse(value, areas)


def nearest_land_use(land_use: LandUse, lon: F64, lat: F64) -> I64:
    """Return the position of the area nearest to each point, (N,) int64.

    Distances are in degrees, as on paper, without a limit, and 0 inside an area: upstream's
    ``sjoin_nearest`` in EPSG:4326. Ties go to the first area in OpenStreetMap's order.
    """
    import shapely

    tree = shapely.STRtree(land_use.area)
    nearest = np.full(len(lon), len(land_use.value), np.int64)

    def search(start: int, stop: int) -> None:
        points = shapely.points(lon[start:stop], lat[start:stop])
        point, area = tree.query_nearest(points)
        np.minimum.at(nearest, start + point, area)

    search(0, 1)  # builds the tree, which threads must not
    run_in_ranges(search, len(lon), grain=_POINTS // 16, most=_POINTS)
    return nearest


def read_land_use(path: Path) -> LandUse:
    """Read areas from GeoJSON: features with a property ``landuse``, in the order of the file."""
    with geojson_errors(f"{path.name} has no features with a property landuse"):
        features = read_json(path, _MAX_BYTES)["features"]
        area = np.empty(len(features), object)
        area[:] = [geometry_of(feature["geometry"]) for feature in features]
        value = [str(feature["properties"]["landuse"]) for feature in features]
        return LandUse(value, area)


def geometry_of(shape: object) -> Geometry:
    """Return the shape of a GeoJSON geometry."""
    import shapely

    return shapely.from_geojson(json.dumps(shape))


@contextmanager
def geojson_errors(message: str, **advice: str) -> Iterator[None]:
    """Convert the errors of a GeoJSON file in another layout to ``DamagedInput``."""
    import shapely

    try:
        yield
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        shapely.errors.ShapelyError,
    ) as error:
        problem = f"{message}: {type(error).__name__}: {str(error)[:200]}"
        raise DamagedInput(problem, **advice) from error
