"""Convert the raw files of a city to tensors, for all four sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kmip_data.arrays import F64
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small_files import read_json, read_model
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.datasets.openstreetmap.bends import bends_of_streets
from kmip_data.pipelines.datasets.openstreetmap.city_arrays import (
    Vocabulary,
    city_arrays,
    land_use_of_nodes,
)
from kmip_data.pipelines.datasets.openstreetmap.extract import Place, Ways, read_extract
from kmip_data.pipelines.datasets.openstreetmap.graphml import read_street_graphml
from kmip_data.pipelines.datasets.openstreetmap.ground import ground_in_box
from kmip_data.pipelines.datasets.openstreetmap.land_use import (
    LandUse,
    convert_geojson_errors,
    geometry_of,
    read_land_use,
)
from kmip_data.pipelines.datasets.openstreetmap.network import (
    StreetGraph,
    count_streets,
    largest_component,
    map_to_disk,
    simplify_graph,
    truncate_to_polygon,
)
from kmip_data.pipelines.datasets.openstreetmap.parameters import (
    GRAPHML_FILE,
    LAND_USE_FILE,
    POLYGON_FILE,
    VOCABULARY_FILE,
    OpenStreetMapParams,
    parse_bbox,
)
from kmip_data.pipelines.domains.cities import CityArrays

if TYPE_CHECKING:
    from shapely import Geometry

MARGIN_METRES = 500.0  #: OSMnx's margin around an area, within which it joins and counts streets
MAX_PLACES = 30  #: names on a map
_MAX_POLYGON_BYTES = 50_000_000


def read_polygon(path: Path) -> Geometry:
    """Return the union of all polygons in a GeoJSON file, in degrees as RFC 7946 defines."""
    import shapely

    message = f"{path.name} does not outline an area"
    advice = {
        "expected": "GeoJSON with a valid polygon in degrees",
        "steps": "draw a polygon at https://geojson.io",
    }
    with convert_geojson_errors(message, **advice):
        shape = geometry_of(read_json(path, _MAX_POLYGON_BYTES))
        area = shapely.Polygon()
        if shapely.is_valid(shape):
            parts = shapely.get_parts(shapely.union_all(shape))
            area = shapely.union_all(parts[shapely.get_dimensions(parts) == 2])
    if area.is_empty or not shapely.box(-180, -90, 180, 90).covers(area):
        raise DamagedInput(
            f"{message}: no polygon, one whose border crosses itself, or one beyond 180 or 90 degrees.",
            **advice,
        )
    return area


def extend_by_margin(area: Geometry) -> Geometry:
    """Extend the area by :data:`MARGIN_METRES`, measured in its UTM zone."""
    import pyproj
    import shapely

    # UTM zones are 6 degrees wide; northern EPSG codes start at 32601, southern ones at 32701.
    west, south, east, north = area.bounds
    zone = min(int(((west + east) / 2 + 180) // 6) + 1, 60)
    first = 32600 if south + north >= 0 else 32700
    degrees = "EPSG:4326"
    metres = f"EPSG:{first + zone}"
    project = pyproj.Transformer.from_crs(degrees, metres, always_xy=True).transform
    unproject = pyproj.Transformer.from_crs(metres, degrees, always_xy=True).transform

    projected = shapely.transform(area, project, interleaved=False)
    margin = shapely.transform(projected.buffer(MARGIN_METRES), unproject, interleaved=False)

    def unwrap(lon_lat: F64) -> F64:
        # Continue beyond 180 degrees if the margin crosses the antimeridian.
        lon_lat[:, 0] = west + np.mod(lon_lat[:, 0] - west + 180, 360) - 180
        return lon_lat

    return shapely.transform(margin, unwrap)


def read_city(raw: RawCopy, params: OpenStreetMapParams, workdir: Path) -> CityArrays:
    """Return the tensors of the city in ``raw``; raises an error if its area has no streets."""
    extract = next((name for name in raw.members if ".osm" in name), None)
    if extract is None and GRAPHML_FILE not in raw.members:
        from kmip_data.pipelines.datasets.city_networks import read_city_archive

        return read_city_archive(raw.path)

    area = _requested_area(raw, params)
    card_statistics: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    if extract is None:
        graph = read_street_graphml(raw.path / GRAPHML_FILE, name=raw.receipts[0].origin)
        if area is not None:
            graph = _largest_part_inside(graph, area, graph)
        land_use = read_land_use(raw.path / LAND_USE_FILE) if LAND_USE_FILE in raw.members else None
    else:
        graph, land_use, card_statistics = _read_extract(raw, extract, params, area, workdir)
        cut = card_statistics["ways_cut"]
        if cut:
            ways = card_statistics["ways"]
            warnings = (
                f"{cut:,} of {ways:,} ways were cut at the border, near which distances are short.",
            )
    node_land_use = land_use_of_nodes(graph, land_use)
    del land_use  # frees 0.3 GB for a country
    vocabulary = None
    if VOCABULARY_FILE in raw.members:
        remedy = "build the city again with another vocabulary"
        vocabulary = read_model(
            raw.path / VOCABULARY_FILE, Vocabulary, "is not a vocabulary", steps=remedy
        )
    return city_arrays(
        graph,
        node_land_use,
        workdir,
        vocabulary=vocabulary,
        card_statistics=card_statistics,
        warnings=warnings,
    )


def _requested_area(raw: RawCopy, params: OpenStreetMapParams) -> Geometry | None:
    """Return the intersection of bbox and polygon, or None for the entire map."""
    import shapely

    areas = []
    if params.bbox is not None:
        areas.append(shapely.box(*parse_bbox(params.bbox)))
    if POLYGON_FILE in raw.members:
        areas.append(read_polygon(raw.path / POLYGON_FILE))
    if not areas:
        return None
    return shapely.intersection_all(areas)


def _read_extract(
    raw: RawCopy,
    member: str,
    params: OpenStreetMapParams,
    area: Geometry | None,
    workdir: Path,
) -> tuple[StreetGraph, LandUse, dict[str, Any]]:
    """Return the simplified largest component, cut to the area like OSMnx, with land use and statistics."""
    name = raw.receipts[0].origin
    ways, land_use, ground, places = read_extract(
        raw.path / member, params.network_type, workdir, name=name
    )
    card_statistics: dict[str, Any] = {"ways": len(ways), "ways_cut": ways.num_incomplete}
    entire_map = None
    if area is not None and ways.num_nodes:
        entire_map = ways
        land_use = land_use.areas_meeting(area)
        ways = truncate_to_polygon(ways, extend_by_margin(area))

    ways = largest_component(ways)
    graph = map_to_disk(simplify_graph(ways), workdir)
    del ways  # frees a gigabyte of mapped files for a country
    # Count streets before removing the margin, to include those across the border.
    graph = replace(graph, street_count=count_streets(graph))
    if entire_map is not None and area is not None:
        graph = _largest_part_inside(graph, area, entire_map)
    if not graph.num_edges:
        raise DamagedInput(
            f"{name} has no connected streets: {card_statistics['ways']} ways "
            f"of network type {params.network_type!r}.",
            steps="use an extract with streets, or another network_type",
        )
    card_statistics["land_use_areas"] = len(land_use.value)
    card_statistics["places"] = _places_inside(places, graph)
    card_statistics["ground"] = ground_in_box(ground, np.column_stack([graph.lon, graph.lat]))
    card_statistics["bends"] = bends_of_streets(graph)
    return graph, land_use, card_statistics


def _places_inside(places: Iterable[Place], graph: StreetGraph) -> list[Place]:
    """Return the first places in the box of the graph."""
    inside = [
        place
        for place in places
        if graph.lon.min() <= place.lon <= graph.lon.max()
        and graph.lat.min() <= place.lat <= graph.lat.max()
    ]
    return inside[:MAX_PLACES]


def _largest_part_inside(
    graph: StreetGraph, area: Geometry, entire_map: StreetGraph | Ways
) -> StreetGraph:
    """Return the largest component inside the area."""
    component = largest_component(truncate_to_polygon(graph, area))
    if not component.num_edges:
        lon = entire_map.lon
        lat = entire_map.lat
        area_bounds = _format_bounds(area.bounds)
        map_bounds = _format_bounds((lon.min(), lat.min(), lon.max(), lat.max()))
        raise UsageError(
            f"The area {area_bounds} has no streets; the map is {map_bounds} (W,S,E,N).",
            steps="use another bbox or polygon; longitude comes before latitude",
        )
    return component


def _format_bounds(bounds: Iterable[float]) -> str:
    return ",".join(f"{degrees:.4f}" for degrees in bounds)
