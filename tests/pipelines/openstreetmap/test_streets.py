"""What is a street and which way it goes: equal to OSMnx's Overpass queries and rules."""

from __future__ import annotations

import itertools
import re

import pytest
from osmnx import _overpass, graph

from kmip_data.pipelines.openstreetmap.streets import LEFT_OUT, NETWORK_TYPES, direction, is_street


@pytest.mark.parametrize("kind", sorted(set(NETWORK_TYPES) - {"any"}))
def test_each_network_type_leaves_out_what_osmnx_does(kind):
    query = _overpass._get_network_filter(kind)
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


def test_directions_are_those_of_osmnx():
    values = {"yes", "true", "1", "-1", "reverse", "T", "F"}
    against = {"-1", "reverse", "T"}
    words = [None, "no", "alternating", *values]
    for oneway, junction, kind in itertools.product(words, [None, "roundabout", "yes"], ["all", "walk"]):
        tags = {"oneway": oneway, "junction": junction}
        tags = {key: value for key, value in tags.items() if value is not None}
        one_way = graph._is_path_one_way(tags, kind == "walk", values)
        expected = 0 if not one_way else -1 if graph._is_path_reversed(tags, against) else 1
        assert direction(tags, kind) == expected, tags
