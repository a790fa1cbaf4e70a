"""Streets and their directions: equal to OSMnx's Overpass queries and rules."""

from __future__ import annotations

import itertools
import re

import osmnx
import pytest
from osmnx import _overpass
from support.cases import check_each
from support.maps.osm_maps import write_map

from kmip_data.pipelines.datasets.openstreetmap.streets import EXCLUDED, is_street, street_direction


def test_each_network_type_filters_streets_as_osmnx():
    def check(kind):
        query = _overpass._get_network_filter(kind)
        filters = re.findall(r'\["([^"]+)"!~"([^"]+)"\]', query)
        theirs = {key: set(values.split("|")) for key, values in filters}
        assert {key: set(values.split("|")) for key, values in EXCLUDED[kind].items()} == theirs

    check_each(check, set(EXCLUDED) - {"any"})


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
def test_street_directions_equal_osmnx(kind, tmp_path):
    words = [None, "no", "alternating", "yes", "true", "1", "-1", "reverse", "T", "F"]
    ways = []
    for oneway, junction in itertools.product(words, [None, "roundabout", "yes"]):
        tags = {"highway": "residential", "oneway": oneway, "junction": junction}
        first = 2 * len(ways) + 1
        ways.append(
            (first, (first, first + 1), {key: value for key, value in tags.items() if value})
        )
    nodes = [(number, 10 + number / 1000, 50.0) for number in range(1, 2 * len(ways) + 1)]
    path = write_map(tmp_path / "ways.osm", nodes, ways)
    edges = osmnx.graph_from_xml(
        path, bidirectional=kind == "walk", simplify=False, retain_all=True
    ).edges()
    for _, (first, last), tags in ways:
        assert street_direction(tags, kind) == int((first, last) in edges) - int(
            (last, first) in edges
        ), tags
