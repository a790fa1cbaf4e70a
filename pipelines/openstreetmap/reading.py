"""From the raw members of a city to its tensors, for any of the four sources."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.reading import read_json
from kmip_data.pipelines.base import RawFolder
from kmip_data.pipelines.cities.graph import CityTensors
from kmip_data.pipelines.openstreetmap.extract import read_extract
from kmip_data.pipelines.openstreetmap.graphml import read_graphml
from kmip_data.pipelines.openstreetmap.land_use import LandUse, read_land_use
from kmip_data.pipelines.openstreetmap.network import (
    StreetGraph,
    count_streets,
    from_ways,
    inside,
    largest_component,
    simplify,
)
from kmip_data.pipelines.openstreetmap.parameters import (
    GRAPHML,
    LAND_USE,
    POLYGON,
    VOCABULARY,
    OpenStreetMapParams,
    parse_bbox,
)
from kmip_data.pipelines.openstreetmap.tensors import city_tensors, read_vocabulary

if TYPE_CHECKING:
    from shapely import Geometry

MARGIN: Final = 500.0  #: metres around an area within which streets are counted and joined, as OSMnx does
_MAX_BYTES: Final = 50_000_000


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
        # A margin over the antimeridian continues beyond 180 degrees instead of around the world.
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
        f"{path.name} does not outline an area: {found}.",
        expected="GeoJSON with a valid polygon in degrees",
        next="draw one at https://geojson.io",
    )


def read_city(raw: RawFolder, params: OpenStreetMapParams, workdir: Path) -> CityTensors:
    """Return the tensors of the city in ``raw``.

    Raises ``DamagedInput`` where the source is damaged, has no streets, or none in the area that is asked
    for.
    """
    extracts = [name for name in raw.members if ".osm" in name]
    if not extracts and GRAPHML not in raw.members:
        from kmip_data.pipelines.city_networks import read_city_archive

        return read_city_archive(raw.path)
    area = _area(raw, params)
    land_use: LandUse | None
    if extracts:
        graph, land_use, facts = _from_extract(raw, extracts[0], params, area, workdir)
    else:
        graph, land_use, facts = _from_graphml(raw, area)
    vocabulary = read_vocabulary(raw.path / VOCABULARY) if VOCABULARY in raw.members else None
    warnings = []
    if cut := facts.get("ways_cut"):
        warnings.append(f"{cut:,} of {facts['ways']:,} streets reach over the border and were cut there.")
    return city_tensors(graph, land_use, vocabulary=vocabulary, facts=facts, warnings=tuple(warnings))


def _area(raw: RawFolder, params: OpenStreetMapParams) -> Geometry | None:
    import shapely

    parts = []
    if params.bbox is not None:
        parts.append(shapely.box(*parse_bbox(params.bbox)))
    if POLYGON in raw.members:
        parts.append(read_polygon(raw.path / POLYGON))
    return shapely.intersection_all(parts) if parts else None


def _from_extract(
    raw: RawFolder, member: str, params: OpenStreetMapParams, area: Geometry | None, workdir: Path
) -> tuple[StreetGraph, LandUse, dict[str, Any]]:
    """Follow OSMnx: the largest component, simplified; with an area, first of the area and its margin."""
    name = raw.receipts[0].origin
    extract = read_extract(raw.path / member, params.network_type, workdir, name=name)
    graph = from_ways(extract.ways)
    land_use = extract.land_use
    facts = {"ways": len(extract.ways), "ways_cut": extract.ways.cut}
    if not graph.num_edges:
        raise _no_streets(name, params, len(extract.ways))
    if area is not None:
        everything, land_use = graph, land_use.inside(area)
        graph = inside(graph, with_margin(area))
    graph = simplify(largest_component(graph))
    graph = replace(graph, street_count=count_streets(graph))
    if area is not None:
        graph = _part(graph, area, everything)
    if not graph.num_edges:
        raise _no_streets(name, params, len(extract.ways))
    facts |= {
        "land_use_areas": len(land_use.value),
        "land_use_incomplete": land_use.incomplete,
        "land_use_lines": land_use.lines,
    }
    return graph, land_use, facts


def _from_graphml(
    raw: RawFolder, area: Geometry | None
) -> tuple[StreetGraph, LandUse | None, dict[str, Any]]:
    graph = read_graphml(raw.path / GRAPHML, name=raw.receipts[0].origin)
    if area is not None:
        graph = _part(graph, area, graph)
    land_use = read_land_use(raw.path / LAND_USE) if LAND_USE in raw.members else None
    return graph, land_use, {}


def _part(graph: StreetGraph, area: Geometry, everything: StreetGraph) -> StreetGraph:
    """Return the largest component of the part inside the area."""
    part = largest_component(inside(graph, area))
    if not part.num_edges:
        west, south, east, north = area.bounds
        lon, lat = everything.lon, everything.lat
        raise UsageError(
            f"The area {west:.4f},{south:.4f},{east:.4f},{north:.4f} has no streets.",
            expected=f"an area within {lon.min():.4f},{lat.min():.4f},{lon.max():.4f},{lat.max():.4f} "
            "(W,S,E,N of the map)",
            next="give another bbox or polygon; longitude comes before latitude",
        )
    return part


def _no_streets(name: str, params: OpenStreetMapParams, ways: int) -> DamagedInput:
    return DamagedInput(
        f"{name} has no connected streets: {ways} ways of network type {params.network_type!r}.",
        next="give an extract with streets, or another network_type",
    )
