"""Graphs in DOT, GML and JSON, as programs write them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.own_graphs import read_files, write_files
from support.raises import raises

from kmip_data.errors import DamagedInput, OutOfResources
from kmip_data.pipelines.formats.graph_texts.dot import parse_dot
from kmip_data.pipelines.formats.graph_texts.gml import parse_gml
from kmip_data.text import values_of


def no_limit(_: int) -> None:
    """Allow any size."""


def dot(text: str) -> Any:
    (graph,) = parse_dot(text, "a.dot", no_limit)
    return graph


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\\"), max_size=6)
PAIRS = st.lists(st.tuples(NAMES, NAMES, st.dictionaries(st.sampled_from("abc"), NAMES)))


@given(PAIRS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_texts_of_dot_are_names_of_nodes_and_attributes(pairs: Any, directed: bool) -> None:
    graph = nx.MultiDiGraph(pairs) if directed else nx.MultiGraph(pairs)

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '\\"') + '"'

    lines = [f"{quoted(node)};" for node in graph]
    for source, target, data in graph.edges(data=True):
        attributes = ",".join(f"{key}={quoted(value)}" for key, value in data.items())
        ends = f"{quoted(source)} {'->' if directed else '--'} {quoted(target)}"
        lines.append(f"{ends} [{attributes}]")
    read = dot(("digraph" if directed else "graph") + " {" + "\n".join(lines) + "}")
    assert list(read) == list(graph)
    assert list(read.edges(data=True)) == list(graph.edges(data=True))


#: Statements of a graph with arrows -> attributes of nodes, and edges with attributes.
STATEMENTS = {
    "a -> b -> c [w=2]; b [x=.5]": (
        {"a": {}, "b": {"x": ".5"}, "c": {}},
        [("a", "b", {"w": "2"}), ("b", "c", {"w": "2"})],
    ),
    'a node [shape=box, label="\\N"] b edge [w=1][v=2] b -> a': (
        {"a": {}, "b": {"shape": "box"}},
        [("b", "a", {"w": "1", "v": "2"})],
    ),
    "subgraph cluster_0 { node [x=1] a -> {b c} label=in } d x=2": (
        {name: {"x": "1", "cluster": "cluster_0"} for name in "abc"} | {"d": {}},
        [("a", "b", {}), ("a", "c", {})],
    ),
    "{ rank=same a b } -> { c } [w=1] a": (
        {"a": {}, "b": {}, "c": {}},
        [("a", "c", {"w": "1"}), ("b", "c", {"w": "1"})],
    ),
    'Node0x1 [label="{fn|{<s0>T}}"]; Node0x1:s0 -> Node0x2:"x":n;': (
        {"Node0x1": {"label": "{fn|{<s0>T}}"}, "Node0x2": {}},
        [("Node0x1", "Node0x2", {"tailport": "s0", "headport": "x:n"})],
    ),
    'a [label=<<b>x</b> &le; <i>1</i>>]; "NODE" -1.5 // no\n/* a -> b */\n# 1\n"é\\\nu"': (
        {"a": {"label": "<b>x</b> &le; <i>1</i>"}, "NODE": {}, "-1.5": {}, "éu": {}},
        [],
    ),
}


@pytest.mark.parametrize("statements", STATEMENTS)
def test_statements_of_dot(statements: str) -> None:
    nodes, edges = STATEMENTS[statements]
    graph = dot(f'digraph "my graph" {{ size=3; {statements} }}')
    assert dict(graph.nodes(data=True)) == nodes
    assert sorted(graph.edges(data=True), key=str) == sorted(edges, key=str)
    assert graph.graph.pop("x", "2") == "2"
    assert graph.graph == {"name": "my graph", "size": "3"}


def test_a_title_of_dot_that_repeats_the_name_is_no_label() -> None:
    assert dot('digraph "CFG for f" { label="CFG for f"; a }').graph == {"name": "CFG for f"}
    assert dot('digraph "CFG for f" { label="worm"; a }').graph["label"] == "worm"


def test_a_strict_graph_repeats_no_edge_and_a_file_may_have_several() -> None:
    graphs = parse_dot("strict graph a { x -- y y -- x } DiGraph { x -> y x -> y }", "", no_limit)
    assert [graph.number_of_edges() for graph in graphs] == [1, 2]


#: Text with a fault in its second line -> what is found there.
FAULTS = {
    "digraph {\na -- b }": "'-- b }'",
    "graph {\na": (),
    'graph {\n"a }': "'\"a }'",
    "graph {\n/* a }": "'/* a }'",
    "graph {\n2a }": "'2a }'",
    "graph {\na [bold] }": ["bold", "'] }'"],
    "graph {\na [b=<c] }": "'<c] }'",
    "graph {\na [b=c": (),
    "graph {\nsubgraph x -- a }": "'-- a }'",
    "graph\na b {}": "'b {}'",
    "graph {}\n3": "'3'",
    "graph {\n" + 100 * "{": 64,
}


@pytest.mark.parametrize("text", FAULTS)
def test_what_dot_does_not_have_is_refused_with_its_line(text: str) -> None:
    with raises(DamagedInput, naming=["a.dot, line 2", *values_of(FAULTS[text])]):
        dot(text)


def test_nodes_and_edges_need_their_memory_before_they_are_made() -> None:
    def at_most_a_thousand(size: int) -> None:
        if size > 1_000:
            raise OutOfResources(f"{size}")

    names = " ".join(f"n{number}" for number in range(100))
    few = f"graph {{ {{{names}}} -- {{{names}}} }}", "10100"
    many = f"graph {{ {'a -- b; ' * 2_000} }}", "1001"
    for text, size in (few, many):
        with raises(OutOfResources, naming=size):
            parse_dot(text, "a.dot", at_most_a_thousand)


def test_six_thousand_statements_of_dot_take_less_than_a_second() -> None:
    nodes = [f'Node0x{n:x} [shape=record,label="{{fn_{n}}}",size={n}];\n' for n in range(3_000)]
    edges = [f"Node0x{n:x} -> Node0x{n * 7 % 3_000:x} [calls=1];\n" for n in range(3_000)]
    start = time.process_time()
    assert len(dot(f"digraph {{{''.join(nodes + edges)}}}")) == 3_000
    assert time.process_time() - start < 1  # 0.16 s measured


def test_a_folder_of_dot_files_has_a_graph_of_each(tmp_path: Path) -> None:
    texts = {
        f"app_{number}_dot": f'digraph "call graph" {{ family={family}; a [size={number}]; a -> b; }}'
        for number, family in enumerate(["worm", "benign", "worm"])
    }
    got = read_files(write_files(tmp_path / "g", **texts), label=("family",))
    assert [record.key for record in got.records] == ["app_0", "app_1", "app_2"]
    assert [int(record.columns["graph/y"]) for record in got.records] == [1, 0, 1]
    assert got.schema.column("node/x").fields == ("size", "size missing")


#: GML that networkx refuses or reads as something else, mostly of Gephi -> nodes and edges.
GML = {
    'Creator Gephi directed 1 node [ id n-1 label "say "hi"" ] node [ id 2 x NaN ]'
    ' edge [ id 7 source n-1 target 2 value 1.0E-4 Größe(m) "3" ]': (
        {"n-1": {"label": 'say "hi"'}, 2: {"x": "nan"}},
        [("n-1", 2, {"value": 1e-4, "Größe(m)": "3"})],
    ),
    'node [\n id Ann Lee\n label "a\nb" ]\n node\n[\n id Bob\n]\nedge [\nsource Ann Lee\ntarget Bob\n]': (
        {"Ann Lee": {"label": "a\nb"}, "Bob": {}},
        [("Ann Lee", "Bob", {})],
    ),
    'directed 1 node [ id 1 w 1 w 2 ] node [ id 2 graphics [ x 1.5 fill "#fff" ] ]'
    " edge [ source 1 target 2 directed 0 ] # a comment\nedge [ source 2 target 2 ]": (
        {1: {"w": [1, 2]}, 2: {"graphics": {"x": [1.5], "fill": ["#fff"]}}},
        [(1, 2, {}), (2, 1, {}), (2, 2, {})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", GML)
def test_gml_of_gephi(text: str) -> None:
    nodes, edges = GML[text]
    (graph,) = parse_gml(f"graph\n[\n{text}\n]\n", "a.gml")
    found = {node: dict(data) for node, data in graph.nodes(data=True)}
    for data in found.values():
        if isinstance(data.get("x"), float):
            data["x"] = str(data["x"])
    assert found == nodes
    assert sorted(graph.edges(data=True), key=str) == sorted(edges, key=str)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("graph [\nnode [ id ] ]", ["line 2", "id ] ]"]),
        ("graph [\n] ]", "line 2"),
        ("graph [" + 70 * "a [", "line 1"),
        ("graph [ node [ id 1 ]", 1),
        ("graph [ node [ id 1 ] node [ id 1 ] ]", "id 1"),
        ("graph [ node [ id 1 ] edge [ source 1 target 2 ] ]", "end 2"),
        ("graph [ node 3 ]", 3),
        ("nothing 3", "graph"),
    ],
)
def test_damaged_gml_is_refused(text: str, named: object) -> None:
    with raises((DamagedInput, ValueError, TypeError), naming=named):
        parse_gml(text, "a.gml")


PATH = nx.path_graph(3)
#: JSON that is refused, and the parameters of a build after its conversion.
OTHER_JSON = {
    "adjacency": (nx.adjacency_data(PATH), {}),
    "cytoscape": (nx.cytoscape_data(PATH), {"node": "id"}),
    "pairs": ([[0, 1], [1, 2]], {}),
    "rows by name": ({"e1": {"from": 0, "to": 1}, "e2": {"from": 1, "to": 2}}, {}),
    "other ends": ({"nodes": [{"key": 0}], "edges": [{"n1": 0, "n2": 1}]}, None),
    "labels": ({"a": "x", "b": "y"}, None),
}


@pytest.mark.parametrize("layout", OTHER_JSON)
def test_other_json_is_refused_with_python_that_converts_it(layout, tmp_path, monkeypatch):
    value, parameters = OTHER_JSON[layout]
    folder = write_files(tmp_path / "a", a_json=json.dumps(value))
    with raises(DamagedInput, naming="a.json") as caught:
        read_files(folder)
    monkeypatch.chdir(folder)
    python = caught.value.steps[0].removeprefix("in Python: ").partition(", and call")[0]
    exec(python, {"json": json, "networkx": nx, "pandas": pd})
    (folder / "a.json").unlink()
    if parameters is not None:
        assert read_files(folder, **parameters).first.num_nodes == 3
