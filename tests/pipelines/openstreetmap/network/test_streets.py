"""Streets and their directions: equal to OSMnx's Overpass queries and rules."""

from __future__ import annotations

import contextlib
import itertools
import re

import osmnx
import pytest
import shapely
from support.osm_maps import helsinki, write_map
from support.osm_servers import osm_servers

from kmip_data.pipelines.openstreetmap.network.streets import LEFT_OUT, direction, is_street


@pytest.mark.parametrize("kind", sorted(set(LEFT_OUT) - {"any"}))
def test_each_network_type_leaves_out_what_osmnx_does(kind):
    outline = shapely.box(24.94, 60.168, 24.942, 60.17)
    with osm_servers(helsinki(), outline) as servers, contextlib.suppress(ValueError):
        servers.instead["streets"] = 200, {"elements": []}  # the query alone matters
        osmnx.graph_from_place("Here", network_type=kind)
    query = servers.queries[0]
    theirs = {key: set(values.split("|")) for key, values in re.findall(r'\["([^"]+)"!~"([^"]+)"\]', query)}
    ours = {key: set(values.split("|")) for key, values in LEFT_OUT[kind].items()}
    assert ours == theirs


def test_a_value_that_contains_a_word_is_left_out_as_overpass_does():
    assert not is_street({"highway": "under_construction"}, "all")
    assert not is_street({"highway": "residential", "area": "yes"}, "all")
    assert not is_street({"name": "Seine"}, "any")
    assert is_street({"highway": "platform", "area": "yes"}, "any")
    assert is_street({"highway": "footway"}, "all")
    assert not is_street({"highway": "footway"}, "drive")
    assert not is_street({"highway": "residential", "access": "private"}, "drive")
    assert not is_street({"highway": "residential", "sidewalk:left": "separate"}, "walk")


@pytest.mark.parametrize("kind", ["all", "walk"])
def test_directions_are_those_of_osmnx(kind, tmp_path):
    words = [None, "no", "alternating", "yes", "true", "1", "-1", "reverse", "T", "F"]
    ways = []
    for oneway, junction in itertools.product(words, [None, "roundabout", "yes"]):
        tags = {"highway": "residential", "oneway": oneway, "junction": junction}
        first = 2 * len(ways) + 1
        ways.append((first, (first, first + 1), {key: value for key, value in tags.items() if value}))
    nodes = [(number, 10 + number / 1000, 50.0) for number in range(1, 2 * len(ways) + 1)]
    path = write_map(tmp_path / "ways.osm", nodes, ways)
    edges = osmnx.graph_from_xml(path, bidirectional=kind == "walk", simplify=False, retain_all=True).edges()
    for _, (first, last), tags in ways:
        assert direction(tags, kind) == int((first, last) in edges) - int((last, first) in edges), tags
