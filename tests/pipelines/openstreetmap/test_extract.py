"""Reading files: the same streets and areas from every format and order.

Nothing hostile gets through.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import osmium
import pytest
import shapely
from support.cases import check_each
from support.maps.osm_maps import convert, helsinki, write_map
from support.raises import raises
from support.shared import shared_data

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.openstreetmap import extract
from kmip_data.pipelines.datasets.openstreetmap.extract import (
    Extract,
    file_format,
    read_extract,
)
from kmip_data.pipelines.datasets.openstreetmap.ground import ground_in_box
from kmip_data.pipelines.datasets.openstreetmap.sample import write_sample

STREET = {"highway": "residential"}


def read(path: Path, tmp_path: Path, kind: str = "all") -> Extract:
    return read_extract(path, kind, tmp_path)


def assert_same(ours: Extract, theirs: Extract) -> None:
    for name in ("start", "node", "node_id", "x", "y", "direction"):
        assert np.array_equal(getattr(ours.ways, name), getattr(theirs.ways, name)), name
    assert ours.ways.tag_values == theirs.ways.tag_values
    for key, codes in ours.ways.tag_codes.items():
        assert np.array_equal(codes, theirs.ways.tag_codes[key])
    assert ours.land_use.value == theirs.land_use.value
    assert (
        shapely.to_wkb(ours.land_use.area).tolist() == shapely.to_wkb(theirs.land_use.area).tolist()
    )
    nodes = np.column_stack([ours.ways.lon, ours.ways.lat])
    assert ground_in_box(ours.ground, nodes) == ground_in_box(theirs.ground, nodes)


@pytest.mark.parametrize(
    ("end", "kinds"), [("osm", "nwr"), ("osm.gz", "wnr"), ("osm.bz2", "rwn"), ("osm.pbf", "wrn")]
)
def test_every_format_and_order_gives_the_same_extract(end, kinds, tmp_path):
    write_sample(tmp_path / "map.osm.pbf")
    copy = convert(tmp_path / "map.osm.pbf", tmp_path / f"copy.{end}", seed=1, kinds=kinds)
    assert file_format(copy) == end
    work = tmp_path / "a, b"  # libosmium takes a name up to its first comma
    work.mkdir()
    assert_same(read(copy, work), read(tmp_path / "map.osm.pbf", tmp_path))
    assert not any(work.iterdir())


def test_the_newest_version_of_a_repeated_element_is_used(tmp_path):
    path = tmp_path / "map.osm"
    make = osmium.osm.mutable
    with osmium.SimpleWriter(str(path)) as writer:
        for number in (1, 2, 3):
            writer.add_node(make.Node(id=number, version=1, location=(10 + number, 50)))
        # A repeated node is no street of its own.
        writer.add_way(make.Way(id=7, version=2, nodes=[1, 1, 2, 2, 1], tags={"highway": "path"}))
        writer.add_way(make.Way(id=7, version=1, nodes=[1, 2, 3], tags=STREET))
        for version, end in ((1, 2), (2, 3)):
            coast = {"natural": "coastline"}
            writer.add_way(make.Way(id=8, version=version, nodes=[1, end], tags=coast))
    ways, _, ground, _ = read(path, tmp_path)
    assert [line.tolist() for line in ground.coastlines] == [[[11, 50], [13, 50]]]
    assert (len(ways), ways.node_id[ways.node].tolist(), ways.tag_values["highway"]) == (
        1,
        [1, 2, 1],
        [("path",)],
    )


def test_places_are_listed_from_large_to_small(tmp_path):
    path = tmp_path / "map.osm"
    make = osmium.osm.mutable
    places = [("quarter", "B"), ("quarter", "A"), ("town", "Z"), ("farm", "F"), ("suburb", None)]
    with osmium.SimpleWriter(str(path)) as writer:
        for number, (kind, name) in enumerate(places, 1):
            tags = {"place": kind} | ({"name": name} if name else {})
            writer.add_node(make.Node(id=number, location=(10 + number, 50.5), tags=tags))
        writer.add_node(make.Node(id=9, tags={"place": "town", "name": "without a location"}))
        writer.add_way(make.Way(id=7, nodes=[1, 2], tags=STREET))
    assert read(path, tmp_path).places == [("Z", 13, 50.5), ("A", 12, 50.5), ("B", 11, 50.5)]


def test_ways_are_cut_at_the_border_and_counted(tmp_path):
    ways = read(helsinki(), tmp_path, "any").ways
    assert (len(ways), ways.num_incomplete) == (2_650, 191)
    paris = read(shared_data("osm", "paris_3e_11e.osm.pbf"), tmp_path, "any").ways
    assert (len(paris), paris.num_incomplete) == (1_219, 136)


def square(
    first: int, west: float, side: float
) -> tuple[list[tuple[int, float, float]], list[int]]:
    corners = [(west, 50.0), (west + side, 50.0), (west + side, 50.0 + side), (west, 50.0 + side)]
    numbers = [first, first + 1, first + 2, first + 3]
    return [(n, *corner) for n, corner in zip(numbers, corners, strict=True)], [*numbers, first]


def test_areas_are_closed_ways_and_relations(tmp_path):
    outer, outer_ring = square(1, 10.0, 1.0)
    inner, inner_ring = square(11, 10.25, 0.5)
    inner = [(number, lon, lat + 0.25) for number, lon, lat in inner]
    ways = [
        (1, outer_ring[:3], {}),
        (2, [*outer_ring[2:]], {}),
        (3, inner_ring, {"landuse": "grass"}),
        (4, inner_ring[:3], {"landuse": "forest"}),
        (5, inner_ring, {"landuse": "forest", "area": "no"}),
        (6, [1, 2, 99, 1], {"landuse": "forest"}),
    ]
    members = [("w", 1, "outer"), ("w", 2, "outer"), ("w", 3, "inner")]
    relations = [
        (1, members, {"type": "multipolygon", "landuse": "retail"}),
        (2, [("w", 1, "outer")], {"type": "multipolygon", "landuse": "retail"}),
        (3, [("w", 77, "outer")], {"type": "multipolygon", "landuse": "retail"}),
        (4, members, {"type": "route", "landuse": "retail"}),
    ]
    path = write_map(tmp_path / "map.osm.pbf", outer + inner, ways, relations)
    land_use = read(path, tmp_path).land_use
    assert land_use.value == ["grass", "retail"]
    assert [round(area.area, 6) for area in land_use.area] == [0.25, 0.75]


def test_distant_ids_are_read_without_a_filter(tmp_path, monkeypatch):
    """A filter by numbers has a block for each 2^25 of them; without one the extract is the same."""
    far = 2**26
    nodes, ring = square(1, 10.0, 1.0)
    nodes = [(number * far, *place) for number, *place in nodes]
    ring = [number * far for number in ring]
    ways = [(far, ring[:3], STREET), (2 * far, ring[2:], {}), (9 * far, ring, {"landuse": "grass"})]
    members = [("w", far, "outer"), ("w", 2 * far, "outer")]
    relations = [(1, members, {"type": "multipolygon", "landuse": "retail"})]
    path = write_map(tmp_path / "map.osm.pbf", nodes, ways, relations)
    filtered = read(path, tmp_path)
    assert filtered.land_use.value == ["grass", "retail"]
    monkeypatch.setattr(extract, "_MAX_FILTER_BLOCKS", 1)
    assert_same(read(path, tmp_path), filtered)


def test_a_way_without_nodes_is_left_out(tmp_path):
    nodes, ring = square(1, 10.0, 1.0)
    ways = [(1, [], {"landuse": "grass", "highway": "path"}), (2, ring, STREET)]
    path = write_map(tmp_path / "map.osm.pbf", nodes, ways, [])
    assert len(read(path, tmp_path).ways) == 1


def test_elements_that_were_never_uploaded_are_refused_with_the_way_to_number_them(tmp_path):
    """Editors such as JOSM number them from -1 downwards; libosmium has no locations for them."""
    nodes = [(1, 10.0, 50.0), (2, 10.1, 50.0), (-1, 10.3, 50.0)]
    relation = (1, [("w", -7, "outer")], {"type": "multipolygon", "landuse": "retail"})
    for ways, relations in (
        ([(1, [1, 2], STREET), (2, [1, -1], STREET)], []),
        ([(-1, [1, 2], STREET)], []),
        ([(1, [1, 2], STREET)], [relation]),
    ):
        path = write_map(tmp_path / "map.osm", nodes, ways, relations)
        with pytest.raises(DamagedInput) as caught:
            read(path, tmp_path)
        assert "renumber" in caught.value.steps[0].words


NODE = '<node id="{}" version="1" lat="{}" lon="{}"/>'
WAY = '<way id="1" version="1"><nd ref="1"/><nd ref="2"/><tag k="highway" v="path"/></way>'
LAUGHS = '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;">]>'


def test_damaged_and_hostile_files_are_refused(tmp_path):
    write_sample(tmp_path / "map.osm.pbf")
    cut = gzip.compress(convert(tmp_path / "map.osm.pbf", tmp_path / "map.osm").read_bytes())[
        :9_000
    ]
    xml = lambda body, head="": (
        f'<?xml version="1.0"?>{head}<osm version="0.6">{body}</osm>'.encode()
    )
    nodes = NODE.format(1, 50, 10), NODE.format(2, 50, 10)

    def check(case):
        data, *named = case
        (tmp_path / "the.osm").write_bytes(data)
        with raises(DamagedInput, naming=["the.osm", *named]) as caught:
            read(tmp_path / "the.osm", tmp_path)
        assert caught.value.steps

    check_each(
        check,
        [
            (helsinki().read_bytes()[:300_000],),
            (cut,),
            (b"no map at all", b"no map at all"),
            (b"", b""),
            (b'<?xml version="1.0"?><osmChange version="0.6"></osmChange>',),
            (xml("&c;", LAUGHS),),
            (xml(NODE.format(1, 95, 10) + nodes[1] + WAY), 95.0),
            (xml(NODE.format(1, 50, 181) + nodes[1] + WAY), 181.0),
            (xml(NODE.format(1, "north", 10) + nodes[1] + WAY), "north"),
            (xml(nodes[0] + "<way"),),
        ],
    )


def test_a_damaged_file_is_read_or_refused(tmp_path):
    """Any byte of an uncompressed map may be wrong: it is read, or refused as damaged."""
    write_sample(tmp_path / "map.osm.pbf", limit=100)
    raw = osmium.io.File(str(tmp_path / "raw"), "pbf,pbf_compression=none")
    with osmium.SimpleWriter(raw) as writer:
        for element in osmium.FileProcessor(str(tmp_path / "map.osm.pbf")):
            writer.add(element)
    data = np.fromfile(tmp_path / "raw", np.uint8)
    rng = np.random.default_rng(0)
    outcomes = set()
    for position in rng.integers(0, len(data), 30).tolist():
        changed = data.copy()
        changed[position] = rng.integers(256)
        changed.tofile(tmp_path / "changed.osm.pbf")
        try:
            read(tmp_path / "changed.osm.pbf", tmp_path)
            outcomes.add("read")
        except DamagedInput:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}
