"""The part of the map that is meant: a box or a polygon, and the margin around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import read_json

if TYPE_CHECKING:
    from shapely import Geometry

MARGIN: Final = 500.0  #: metres around an area within which streets are counted and joined, as OSMnx does
_MAX_BYTES: Final = 50_000_000


def parse_bbox(text: str) -> tuple[float, float, float, float]:
    """Read ``W,S,E,N`` in degrees.

    Raises ``ValueError`` where there are not four numbers, or they are not a box on the map.

    Examples
    --------
    >>> parse_bbox("24.93,60.16,24.95,60.18")
    (24.93, 60.16, 24.95, 60.18)
    """
    message = "give west, south, east, north in degrees, such as 24.93,60.16,24.95,60.18"
    parts = text.split(",")
    if len(parts) != 4:
        raise ValueError(message)
    west, south, east, north = (float(part) for part in parts)
    if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
        raise ValueError(message)
    return west, south, east, north


def read_polygon(path: Path) -> Geometry:
    """Return the union of all polygons in a GeoJSON file (RFC 7946: longitude and latitude in degrees).

    Raises ``DamagedInput`` where it is not GeoJSON, has no polygon, or one that is not valid or not on the
    map.
    """
    import shapely

    try:
        content = read_json(path, _MAX_BYTES)
        found = [shapely.from_geojson(json.dumps(part)) for part in _polygons(content)]
        valid = all(map(shapely.is_valid, found))
        area = shapely.union_all(found if valid else [])
    except (OSError, ValueError, TypeError, KeyError, RecursionError, shapely.errors.ShapelyError) as error:
        raise _refused(path, f"{type(error).__name__}: {str(error)[:200]}") from error
    if not valid:
        raise _refused(path, "a polygon whose border crosses itself")
    if area.is_empty:
        raise _refused(path, "no polygon")
    west, south, east, north = area.bounds
    if not (west >= -180 and south >= -90 and east <= 180 and north <= 90):
        raise _refused(path, f"a polygon from {west:g},{south:g} to {east:g},{north:g}")
    return area


def with_margin(area: Geometry) -> Geometry:
    """Return the area with :data:`MARGIN` around it, measured in its UTM zone."""
    import pyproj
    import shapely

    west, south, east, north = area.bounds
    zone = min(int(((west + east) / 2 + 180) // 6) + 1, 60)
    utm = pyproj.CRS.from_epsg((32600 if south + north >= 0 else 32700) + zone)
    there = pyproj.Transformer.from_crs("EPSG:4326", utm, always_xy=True).transform
    back = pyproj.Transformer.from_crs(utm, "EPSG:4326", always_xy=True).transform
    projected = shapely.transform(area, there, interleaved=False)
    margin = shapely.transform(projected.buffer(MARGIN), back, interleaved=False)

    def unwrapped(lon_lat: NDArray[np.float64]) -> NDArray[np.float64]:
        # A margin over the antimeridian goes on beyond 180 degrees instead of around the world.
        lon_lat[:, 0] = west + np.mod(lon_lat[:, 0] - west + 180, 360) - 180
        return lon_lat

    return shapely.transform(margin, unwrapped)


def _polygons(content: Any) -> list[dict[str, Any]]:
    """Return the polygons and multipolygons below a GeoJSON object."""
    kind = content["type"]
    if kind == "FeatureCollection":
        return [part for feature in content["features"] for part in _polygons(feature)]
    if kind == "Feature":
        return _polygons(content["geometry"]) if content["geometry"] is not None else []
    if kind == "GeometryCollection":
        return [part for geometry in content["geometries"] for part in _polygons(geometry)]
    return [content] if kind in {"Polygon", "MultiPolygon"} else []


def _refused(path: Path, found: str) -> DamagedInput:
    return DamagedInput(
        f"{path.name} does not outline an area.",
        expected="GeoJSON with a valid polygon in degrees",
        found=found,
        next="draw one at https://geojson.io",
    )
