"""Land-use areas, and the nearest area to each intersection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kmip_data.arrays import F64, I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import read_json
from kmip_data.runtime.parallel import run_in_ranges

if TYPE_CHECKING:
    from shapely import Geometry

_MAX_POINTS_PER_TASK = 2**16  #: shapely points in memory per thread; each takes 200 bytes
_MAX_GEOJSON_BYTES = 2**29  #: a city has tens of MB


class AreaKind(NamedTuple):
    """Land use and ground of an area."""

    land_use: str | None  #: value of ``landuse``
    ground: str | None  #: what a map shows: water, green or None


class LandUse(NamedTuple):
    """Areas in OpenStreetMap's order: closed ways by id, then relations by id."""

    value: list[str]  #: value of ``landuse`` for each area
    area: Array  #: (A,) polygons and multipolygons in degrees

    def areas_meeting(self, polygon: Geometry) -> LandUse:
        """Return the areas that intersect ``polygon``, uncut."""
        import shapely

        meets = shapely.intersects(self.area, polygon)
        value = [self.value[i] for i in np.flatnonzero(meets)]
        return LandUse(value, self.area[meets])


def assemble_areas(
    closed_ways: Mapping[int, tuple[AreaKind, F64]],
    relations: Mapping[int, tuple[AreaKind, list[int]]],
    member_coordinates: Mapping[int, F64],
) -> tuple[list[AreaKind], Array]:
    """Build polygons from closed ways and multipolygon relations, skipping incomplete ones.

    All mappings are by OpenStreetMap id. A closed way has its kind and its ring, (n, 2) degrees
    with NaN for missing nodes. A relation has its kind and the ids of its member ways, which
    ``member_coordinates`` locates if the file has them. Returns kinds and polygons (A,).
    """
    import shapely

    kinds = []
    rings = []
    for _, (kind, ring) in sorted(closed_ways.items()):
        if not np.isnan(ring).any():
            kinds.append(kind)
            rings.append(ring)
    # Build all polygons in one call: one call per polygon takes five times as long.
    points = np.concatenate([np.empty((0, 2)), *rings])
    ring_index = np.repeat(np.arange(len(rings)), list(map(len, rings)))
    polygons = [*shapely.polygons(shapely.linearrings(points, indices=ring_index))]

    missing = np.full((1, 2), np.nan)
    for _, (kind, members) in sorted(relations.items()):
        lines = [member_coordinates.get(member, missing) for member in members]
        is_complete = all(len(line) > 1 and not np.isnan(line).any() for line in lines)
        if not is_complete:
            continue
        # build_area detects holes by nesting; the members' roles are ignored.
        area = shapely.build_area(shapely.MultiLineString(lines))
        if area is not None and not area.is_empty:
            kinds.append(kind)
            polygons.append(area)

    areas = np.empty(len(polygons), object)
    areas[:] = polygons
    return kinds, areas


def nearest_land_use(land_use: LandUse, lon: F64, lat: F64) -> I64:
    """Return the position of the area nearest to each point, (N,) int64.

    Distances are planar, in degrees, unlimited, and 0 inside an area, like upstream's
    ``sjoin_nearest`` in EPSG:4326. Ties go to the first area in OpenStreetMap's order.
    """
    import shapely

    tree = shapely.STRtree(land_use.area)
    nearest = np.full(len(lon), len(land_use.value), np.int64)

    def search(start: int, stop: int) -> None:
        points = shapely.points(lon[start:stop], lat[start:stop])
        point, area = tree.query_nearest(points)
        np.minimum.at(nearest, start + point, area)

    search(0, 1)  # builds the tree lazily, which is not thread-safe
    run_in_ranges(search, len(lon), grain=_MAX_POINTS_PER_TASK // 16, max_rows=_MAX_POINTS_PER_TASK)
    return nearest


def read_land_use(path: Path) -> LandUse:
    """Read areas from GeoJSON features with the property ``landuse``, in file order."""
    with convert_geojson_errors(f"{path.name} has no features with a property landuse"):
        features = read_json(path, _MAX_GEOJSON_BYTES)["features"]
        area = np.empty(len(features), object)
        area[:] = [geometry_of(feature["geometry"]) for feature in features]
        value = [str(feature["properties"]["landuse"]) for feature in features]
        return LandUse(value, area)


def geometry_of(shape: object) -> Geometry:
    """Convert a GeoJSON geometry to shapely."""
    import shapely

    return shapely.from_geojson(json.dumps(shape))


@contextmanager
def convert_geojson_errors(message: str, **steps: str) -> Iterator[None]:
    """Convert the errors of an unexpected GeoJSON layout to ``DamagedInput``."""
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
        raise DamagedInput(problem, **steps) from error
