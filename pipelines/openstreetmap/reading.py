"""From the raw members of a city to its tensors, whichever of the four sources they came from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.base import RawFolder
from kmip_data.pipelines.cities.graph import CityTensors
from kmip_data.pipelines.openstreetmap import area as areas
from kmip_data.pipelines.openstreetmap.city_source import (
    GRAPHML,
    LAND_USE,
    POLYGON,
    VOCABULARY,
    OpenStreetMapParams,
)
from kmip_data.pipelines.openstreetmap.extract import read_extract
from kmip_data.pipelines.openstreetmap.graphml import read_graphml
from kmip_data.pipelines.openstreetmap.land_use import LandUse, read_land_use
from kmip_data.pipelines.openstreetmap.network.construction import (
    StreetGraph,
    count_streets,
    from_ways,
    inside,
    largest_component,
    simplify,
)
from kmip_data.pipelines.openstreetmap.tensors import city_tensors
from kmip_data.pipelines.openstreetmap.vocabulary import read_vocabulary

if TYPE_CHECKING:
    from shapely import Geometry


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
        parts.append(shapely.box(*areas.parse_bbox(params.bbox)))
    if POLYGON in raw.members:
        parts.append(areas.read_polygon(raw.path / POLYGON))
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
        graph = inside(graph, areas.with_margin(area))
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
            "The area that was asked for has no streets.",
            expected=f"an area within {lon.min():.4f},{lat.min():.4f},{lon.max():.4f},{lat.max():.4f} "
            "(W,S,E,N of the map)",
            found=f"bounds {west:.4f},{south:.4f},{east:.4f},{north:.4f}",
            next="give another bbox or polygon; longitude comes before latitude",
        )
    return part


def _no_streets(name: str, params: OpenStreetMapParams, ways: int) -> DamagedInput:
    return DamagedInput(
        f"{name} has no connected streets.",
        expected=f"ways of network type {params.network_type!r} between nodes that are in the file",
        found=f"{ways} such ways",
        next="give an extract with streets, or another network_type",
    )
