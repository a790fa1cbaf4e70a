"""Bends of streets: those of OSMnx's geometry that are seen."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import osmnx
import pytest
import shapely
from support.maps.osm_maps import streets_of_helsinki, write_map, write_streets

from kmip_data.pipelines.datasets.openstreetmap import bends
from kmip_data.pipelines.datasets.openstreetmap.bends import bends_of_streets
from kmip_data.pipelines.datasets.openstreetmap.extract import read_extract
from kmip_data.pipelines.datasets.openstreetmap.ground import visible_length
from kmip_data.pipelines.datasets.openstreetmap.network import (
    StreetGraph,
    largest_component,
    simplify_graph,
)


def read(path: Path, kind: str, tmp_path: Path) -> StreetGraph:
    return simplify_graph(largest_component(read_extract(path, kind, tmp_path).ways))


def test_bends_are_those_of_osmnx_where_they_are_seen(tmp_path):
    """Lines through our bends stay near OSMnx's geometry, and streets without bends near a chord."""
    write_streets(streets_of_helsinki(), tmp_path / "cut.osm", "walk")
    ours = read(streets_of_helsinki(), "walk", tmp_path)
    theirs = osmnx.graph_from_xml(tmp_path / "cut.osm", bidirectional=True)
    tolerance = visible_length((ours.lon.min(), ours.lat.min(), ours.lon.max(), ours.lat.max()))
    scale = np.array([np.cos(np.radians(ours.lat.mean())), 1.0])
    position = {node: (theirs.nodes[node]["x"], theirs.nodes[node]["y"]) for node in theirs}
    bent = 0
    for (first, last), edges in itertools.groupby(sorted(theirs.edges()), key=lambda ends: ends):
        if first >= last or len([*edges]) > 1:  # each pair once; of parallel streets any is right
            continue
        own_bends = ours.bends.get((first, last), np.empty((0, 2)))
        chord = shapely.LineString(np.vstack([position[first], own_bends, position[last]]) * scale)
        (data,) = theirs[first][last].values()
        line = data.get("geometry") or shapely.LineString([position[first], position[last]])
        line = shapely.transform(line, lambda lon_lat: lon_lat * scale)
        assert chord.hausdorff_distance(line) < 1.01 * tolerance
        bent += len(own_bends) > 0
    assert bent > 300


def test_only_so_many_bends_are_stored(tmp_path, monkeypatch):
    ours = read(streets_of_helsinki(), "walk", tmp_path)
    all_bends = bends_of_streets(ours)
    monkeypatch.setattr(bends, "MAX_BENDS", 30)
    few = bends_of_streets(ours)
    assert few.items() <= all_bends.items()
    sizes = [text.count(",") + 1 for text in few.values()]
    assert 20 < sum(sizes) <= 30
    others = [text.count(",") + 1 for ends, text in all_bends.items() if ends not in few]
    assert max(others) <= min(sizes)


@pytest.mark.parametrize("nodes", [[1, 3, 2], [2, 3, 1]])
@pytest.mark.parametrize("kind", ["walk", "drive"])
def test_one_way_streets_have_bends_in_both_directions_of_ids(nodes, kind, tmp_path):
    places = [(1, 10.0, 50.0), (2, 10.02, 50.0), (3, 10.01, 50.005)]
    ways = [(7, nodes, {"highway": "residential", "oneway": "yes"})]
    ours = read(write_map(tmp_path / "map.osm.pbf", places, ways, []), kind, tmp_path)
    ((ends, text),) = bends_of_streets(ours).items()
    assert ends == "0 1"
    np.testing.assert_allclose(shapely.get_coordinates(shapely.from_wkt(text)), [(10.01, 50.005)])


def test_parallel_streets_and_a_map_across_the_antimeridian_have_no_bends(tmp_path):
    places = [(1, 10.0, 50.0), (2, 10.02, 50.0), (3, 10.01, 50.005)]
    street = {"highway": "residential"}
    ways = [(7, [1, 3, 2], street), (8, [1, 2], street)]
    path = write_map(tmp_path / "map.osm.pbf", places, ways, [])
    assert bends_of_streets(read(path, "walk", tmp_path)) == {}
    places = [(1, 179.99, 0.0), (2, -179.99, 0.0), (3, 179.999, 0.005)]
    path = write_map(tmp_path / "fiji.osm.pbf", places, ways[:1], [])
    assert bends_of_streets(read(path, "walk", tmp_path)) == {}


def test_bends_are_nodes_of_the_file(tmp_path):
    """Without a digit that depends on the processor's cosine."""
    ours = read(streets_of_helsinki(), "walk", tmp_path)
    ways = read_extract(streets_of_helsinki(), "walk", tmp_path).ways
    nodes = {*zip(ways.lon.tolist(), ways.lat.tolist(), strict=True)}
    assert {tuple(point) for points in ours.bends.values() for point in points.tolist()} <= nodes
