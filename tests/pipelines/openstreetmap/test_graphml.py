"""GraphML of OSMnx: the same graph that OSMnx loads; other files are refused."""

from __future__ import annotations

import re
from pathlib import Path

import osmnx
import pytest
from support.cases import check_each
from support.maps.osm_maps import edges_of, edges_of_osmnx, write_streets
from support.raises import raises
from support.shared import shared_data

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.openstreetmap.extract import read_extract
from kmip_data.pipelines.datasets.openstreetmap.graphml import read_street_graphml
from kmip_data.pipelines.datasets.openstreetmap.network import largest_component, simplify_graph


def test_trocadero_equals_osmnx():
    path = shared_data("osm", "paris_trocadero.graphml")
    ours, theirs = read_street_graphml(path), osmnx.load_graphml(path)
    theirs = osmnx.truncate.largest_component(theirs)
    assert ours.node_id.tolist() == sorted(theirs)
    assert edges_of(ours) == edges_of_osmnx(theirs)
    counts = dict(theirs.nodes(data="street_count"))
    assert ours.street_count.tolist() == [counts[node] for node in ours.node_id.tolist()]


def test_swapped_coordinates_are_refused(tmp_path):
    text = shared_data("osm", "paris_trocadero.graphml").read_text("utf-8")
    x, y = (re.search(f'attr.name="{name}"', text)[0] for name in "xy")
    swapped = text.replace(x, "x?").replace(y, x).replace("x?", y)
    with pytest.raises(DamagedInput):
        read_street_graphml(write(tmp_path, swapped))


def test_graphs_saved_by_osmnx_are_read_unchanged_or_refused(tmp_path, monkeypatch):
    source = shared_data("osm", "paris_3e_11e.osm.pbf")
    write_streets(source, tmp_path / "streets.osm")
    extract = read_extract(source, "all", tmp_path)
    expected = simplify_graph(largest_component(extract.ways))
    whole = osmnx.graph_from_xml(tmp_path / "streets.osm", simplify=False)
    for graph in (whole, osmnx.simplify_graph(whole)):
        osmnx.save_graphml(graph, tmp_path / "saved.graphml")
        ours = read_street_graphml(tmp_path / "saved.graphml")
        assert ours.node_id.tolist() == expected.node_id.tolist()
        assert edges_of(ours) == edges_of(expected)
    # OSMnx itself does not load the words of OpenStreetMap.
    monkeypatch.setattr(osmnx.settings, "all_oneway", True)
    whole = osmnx.graph_from_xml(tmp_path / "streets.osm", simplify=False)
    osmnx.save_graphml(whole, tmp_path / "saved.graphml")
    with pytest.raises(ValueError):
        osmnx.load_graphml(tmp_path / "saved.graphml")
    with raises(DamagedInput, naming=["oneway", "yes"]):
        read_street_graphml(tmp_path / "saved.graphml")


GOOD = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="a" for="node" attr.name="x" attr.type="string"/>
<key id="b" for="node" attr.name="y" attr.type="string"/>
<key id="c" for="edge" attr.name="length" attr.type="string"/>
<key id="d" for="edge" attr.name="lanes" attr.type="string"/>
<graph edgedefault="directed">
<node id="1"><data key="a">10.1</data><data key="b">50</data></node>
<node id="2"><data key="a">10.2</data><data key="b">50</data></node>
<edge source="1" target="2"><data key="c">7200.5</data><data key="d">['2', '10', '2']</data></edge>
</graph></graphml>"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "map.graphml"
    path.write_text(text)
    return path


def test_a_small_graphml_file_is_read(tmp_path):
    graph = read_street_graphml(write(tmp_path, GOOD))
    assert graph.node_id.tolist() == [1, 2]
    assert graph.length.tolist() == [7200.5]
    assert graph.tag_values["lanes"] == [("10", "2")]
    assert graph.street_count is None
    call = "[__import__('os').system('false')]"  # a list is never run
    graph = read_street_graphml(write(tmp_path, GOOD.replace("['2', '10', '2']", call)))
    assert graph.tag_values["lanes"] == [(call,)]


LAUGHS = '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'


WRONG = [
    (r"\?>", f"?>{LAUGHS}"),
    ("</graphml>", ""),
    ('attr.name="x"', 'attr.name="lon"', "x", 1),
    ('attr.name="length"', 'attr.name="weight"', "length", 0),
    ("7200.5", "long", "long"),
    ("7200.5", "-3", -3.0),
    ("7200.5", "nan", "nan"),
    ("7200.5", "7.2", 100),
    (">10.1<", ">385000<", 385000.0),
    ('target="2"', 'target="3"', "x", 3),
    ('id="2"', 'id="n2"', "n2"),
    ('id="2"', f'id="{2**63}"'),
    ('"directed"', '"undirected"'),
    (r"<edge.*</edge>", ""),
    (r"(?s)<graph .*</graph>", ""),
    (r"(?s).*", "PK\\\\x03"),
]


def test_files_of_other_tools_and_hostile_ones_are_refused(tmp_path):
    def check(case):
        pattern, replacement, *named = case
        text = re.sub(pattern, replacement, GOOD, count=1)
        assert text != GOOD
        with raises(DamagedInput, naming=["the file", *named]) as caught:
            read_street_graphml(write(tmp_path, text), name="the file")
        assert caught.value.steps

    check_each(check, WRONG)
