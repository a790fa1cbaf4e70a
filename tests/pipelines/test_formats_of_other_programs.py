"""Graphs as other programs write them: XML, GML, Pajek, matrices, lists of features and molecules."""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Callable
from itertools import permutations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.cases import check_each, steps_of
from support.own_graphs import number_folders, read_files, write_files
from support.raises import raises
from torch_geometric.data import Data

from kmip_data.errors import DamagedInput, OpenQuestions, Setting, UsageError
from kmip_data.format.schema import NODE_ID
from kmip_data.pipelines.formats.graph_texts.pajek import parse_pajek


def test_names_are_no_classes_in_any_format(tmp_path):
    """A label that differs for every node; oracle: the same graph without it."""
    graph = nx.cycle_graph(20)
    nx.set_node_attributes(graph, {node: f"Station {node}" for node in graph}, "label")
    nx.set_node_attributes(graph, {node: node / 2 for node in graph}, "mass")
    folders = number_folders(tmp_path)

    def check(suffix):
        folder = write_files(next(folders))
        if suffix == "csv":
            rows = [{"id": node, **data} for node, data in graph.nodes(data=True)]
            pd.DataFrame(rows).to_csv(folder / "nodes.csv", index=False)
            nx.to_pandas_edgelist(graph).to_csv(folder / "edges.csv", index=False)
        elif suffix == "json":
            (folder / "g.json").write_text(json.dumps(nx.node_link_data(graph, edges="links")))
        else:
            getattr(nx, f"write_{suffix}")(graph, folder / f"g.{suffix}")
        got = read_files(folder)
        assert got.schema.y_column is None
        assert got.schema.column("node/x").fields == ("mass",)
        assert read_files(folder, label=("label",)).schema.y_column.num_classes == 20

    check_each(check, ["csv", "graphml", "gexf", "gml", "json"])


def graphs_with_labels(of_node: Callable[[int, int], object]) -> list[nx.Graph]:
    """Eight graphs of two families, whose nodes have the label ``of_node(graph, node)``."""
    graphs = []
    for number in range(8):
        graph = nx.path_graph(5 + number, create_using=nx.DiGraph)
        graph.graph["family"] = ("trojan", "benign")[number % 2]
        nx.set_node_attributes(graph, {node: of_node(number, node) for node in graph}, "label")
        nx.set_node_attributes(graph, {node: node / 2 for node in graph}, "size")
        graphs.append(graph)
    return graphs


@pytest.mark.parametrize("suffix", ["graphml", "json", "csv"])
@pytest.mark.parametrize("kind", ["names", "numbers", "classes"])
def test_labels_of_nodes_that_repeat_only_between_graphs_are_names(tmp_path, suffix, kind):
    """Names of functions in a graph for each program; the family of the programs is the target."""
    values = {
        "names": lambda _, node: f"function {node}",
        "numbers": lambda _, node: 7 * node,
        "classes": lambda graph, node: "leaf" if (graph + node) % 3 else "root",
    }
    graphs = graphs_with_labels(values[kind])
    folder = write_files(tmp_path / "g")
    if suffix == "csv":
        families = [graph.graph["family"] for graph in graphs]
        pd.DataFrame({"graph": range(8), "family": families}).to_csv(
            folder / "graphs.csv", index=False
        )
        nodes = [
            {"graph": number, "id": node, **data}
            for number, graph in enumerate(graphs)
            for node, data in graph.nodes(data=True)
        ]
        pd.DataFrame(nodes).to_csv(folder / "nodes.csv", index=False)
        edges = [
            {"graph": number, "source": source, "target": target}
            for number, graph in enumerate(graphs)
            for source, target in graph.edges
        ]
        pd.DataFrame(edges).to_csv(folder / "edges.csv", index=False)
    elif suffix == "json":
        values = [nx.node_link_data(graph, edges="links") for graph in graphs]
        (folder / "g.json").write_text(json.dumps(values))
    else:
        for number, graph in enumerate(graphs):
            nx.write_graphml(graph, folder / f"{number}.graphml")
    if kind == "classes":
        with raises(OpenQuestions, naming=["family", "label"], steps=Setting(label="family")):
            read_files(folder)
    else:
        got = read_files(folder)
        assert got.schema.y_column is None
        ignored = [line for line in got.files["ignored"] if "label='" in line]
        assert [line.split(":")[0] for line in ignored] == ["family", "label"]
    for name, level in (("family", "graph"), ("label", "node")):
        target = read_files(folder, label=(name,), task="classification").schema.y_column
        assert target.level == level


@pytest.mark.parametrize("blank", ["", "NA", None])
def test_a_label_that_names_few_nodes_or_none_is_no_target(tmp_path, blank):
    for names in ([], ["Ann Lee"], ["Ann Lee", "Bob Ray"]):
        graph = nx.path_graph(40)
        nx.set_node_attributes(graph, 1.5, "mass")
        labels = [*names, *[blank] * (40 - len(names))]
        for node, label in enumerate(labels):
            if label is not None:
                graph.nodes[node]["label"] = label
        folder = write_files(tmp_path / str(len(names)))
        nx.write_graphml(graph, folder / "g.graphml")
        assert read_files(folder).schema.y_column is None


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_given_task_makes_numbers_a_target_and_no_names(tmp_path, task):
    folder = write_files(tmp_path / "d")
    pd.DataFrame({"id": range(40), "label": np.arange(40) * 3}).to_csv(
        folder / "nodes.csv", index=False
    )
    pd.DataFrame({"source": range(39), "target": range(1, 40)}).to_csv(
        folder / "edges.csv", index=False
    )
    assert read_files(folder).schema.y_column is None
    column = read_files(folder, task=task).schema.y_column
    assert (column.num_classes is None) == (task == "regression")


@pytest.mark.parametrize(
    "given", [{"task": "regression"}, {"task": "classification"}, {"class_name": ("a", "b c")}]
)
def test_options_of_a_target_are_refused_where_there_is_none(tmp_path, given):
    graph = nx.path_graph(12)
    paths = []
    for names in ({}, {node: f"Station {node}" for node in graph}):
        nx.set_node_attributes(graph, names, "label")
        folder = write_files(tmp_path / str(len(names)))
        nx.write_graphml(graph, folder / "g.graphml")
        paths.append(folder)
    tensors = write_files(tmp_path / "t")
    data = Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    torch.save(data, tensors / "g.pt")
    for folder in (*paths, tensors):
        with raises(UsageError, naming=[*given]) as refused:
            read_files(folder, **given)
        assert refused.value.steps[-1] == Setting(dict.fromkeys(given))


GRAPHML = """<graphml{space}>
<key id="k1" for="node" attr.name="w" attr.type="double"/>
<key id="k2" for="node" attr.name="on" attr.type="boolean"/>
<key id="k3" for="node" attr.name="label" attr.type="string"><default> yellow </default></key>
<key id="k4" for="edge" attr.name="kind" attr.type="string"><default>road</default></key>
<graph id="G" edgedefault="undirected">
<node id="a"><data key="k1"> 1.0 </data><data key="k3">green</data><data key="k2"> true </data></node>
<node id="b"><data key="k1">1.5</data><data key="k2">false</data></node>
<node id="c"><data key="k1">3</data><data key="k2">true</data></node>
<node id="d"><data key="k1">3.0</data><data key="k3">green</data><data key="k2">false</data></node>
<edge source="a" target="b"/><edge source="b" target="c"><data key="k4">rail</data></edge>
<edge source="c" target="d"/></graph></graphml>"""


GEXF = """<gexf xmlns="http://gexf.net/{version}" version="{version}"><graph defaultedgetype="directed">
<attributes class="node"><attribute id="0" title="label2" type="string"><default>yellow</default></attribute>
<attribute id="1" title="on" type="boolean"/></attributes>
<nodes><node id="a" label="A"><attvalues><attvalue for="0" value="green"/>
<attvalue for="1" value=" true "/></attvalues></node>
<node id="b" label="B"><attvalues><attvalue for="1" value="false"/></attvalues></node></nodes>
<edges><edge id="0" source="a" target="b"/></edges></graph></gexf>"""


def test_defaults_and_blanks_of_xml_are_read(tmp_path):
    for number, space in enumerate(("", ' xmlns="http://graphml.graphdrawing.org/xmlns"')):
        text = GRAPHML.replace("{space}", space)
        got = read_files(write_files(tmp_path / f"g{number}", a_graphml=text))
        assert got.first.columns["node/y"].tolist() == [0, 1, 1, 0]
        assert got.schema.column("node/x").fields == ("w", "on")
        assert got.first.columns["node/x"].tolist() == [[1, 1], [1.5, 0], [3, 1], [3, 0]]
        kinds = got.first.columns["edge/edge_attr"]
        assert got.schema.column("edge/edge_attr").fields == ("kind=rail", "kind=road")
        ends = got.first.edge_index.T.tolist()
        assert {tuple(edge) for edge, kind in zip(ends, kinds, strict=True) if kind[0]} == {
            (1, 2),
            (2, 1),
        }
    for version in ("1.1draft", "1.2draft", "1.3"):
        got = read_files(
            write_files(tmp_path / version, a_gexf=GEXF.replace("{version}", version)),
            label=("label2",),
        )
        assert got.first.columns["node/y"].tolist() == [0, 1]
        assert got.first.columns["node/x"].tolist() == [[1], [0]]


def test_edges_of_both_kinds_are_in_one_graph(tmp_path):
    """networkx refuses such files of GraphML and GEXF, and takes ``mutual`` for one direction."""
    graphml = (
        '<graphml><graph edgedefault="{}"><node id="a"/><node id="b"/><node id="c"/>'
        '<edge id="0" source="a" target="b" directed="{}"/><edge id="1" source="b" target="c"/>'
        '<edge id="2" source="c" target="c" directed="false"/></graph></graphml>'
    )
    gexf = (
        '<gexf xmlns="http://gexf.net/1.2draft" version="1.2"><graph mode="dynamic" defaultedgetype="{}">'
        '<nodes><node id="a"><spells><spell start="1" end="2"/></spells></node><node id="b"/>'
        '<node id="c"/></nodes><edges><edge id="0" source="a" target="b" type="{}"/>'
        '<edge id="1" source="b" target="c"/><edge id="2" source="c" target="c" type="mutual"/>'
        "</edges></graph></gexf>"
    )
    cases = [
        (graphml, ("directed", "false"), [(0, 1), (1, 0), (1, 2), (2, 2)]),
        (graphml, ("undirected", "true"), [(0, 1), (1, 2), (2, 1), (2, 2)]),
        (graphml, ("undirected", "false"), [(0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]),
        (gexf, ("directed", "mutual"), [(0, 1), (1, 0), (1, 2), (2, 2)]),
        (gexf, ("undirected", "directed"), [(0, 1), (1, 2), (2, 1), (2, 2)]),
    ]
    folders = number_folders(tmp_path)

    def check(case):
        text, words, expected = case
        name = "a_gexf" if "gexf" in text else "a_graphml"
        first = read_files(write_files(next(folders), **{name: text.format(*words)})).first
        assert sorted(zip(*first.edge_index.tolist(), strict=True)) == expected

    check_each(check, cases)
    nested = graphml.format("directed", "true").replace(
        '<node id="c"/>', '<node id="c"><graph edgedefault="directed"><node id="d"/></graph></node>'
    )
    with raises(DamagedInput, naming="a.graphml"):
        read_files(write_files(tmp_path / "nested", a_graphml=nested))


def test_gzipped_files_of_graph_libraries_are_read(tmp_path):
    graph = nx.path_graph(4)
    writers = {
        "graphml": nx.write_graphml, "gexf": nx.write_gexf, "gml": nx.write_gml,
        "net": nx.write_pajek, "json": lambda graph, path: path.write_text(json.dumps(nx.node_link_data(graph))),
    }  # fmt: skip
    for suffix, write in writers.items():
        folder = write_files(tmp_path / suffix)
        write(graph, folder / f"path.{suffix}")
        plain = read_files(folder)
        data = (folder / f"path.{suffix}").read_bytes()
        (folder / f"path.{suffix}").unlink()
        (folder / f"path.{suffix}.gz").write_bytes(gzip.compress(data))
        packed = read_files(folder)
        assert packed.first.key == plain.first.key
        assert packed.edges() == plain.edges() == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
        (folder / f"path.{suffix}.gz").write_bytes(gzip.compress(data)[:-9])
        with raises(DamagedInput, naming=f"path.{suffix}.gz"):
            read_files(folder)


def test_keys_that_number_the_edges_are_no_features(tmp_path):
    edges = "".join(f'<edge id="{i}" source="a" target="b" weight="{i}.5"/>' for i in range(3))
    text = GEXF.replace("{version}", "1.2draft").replace(
        '<edge id="0" source="a" target="b"/>', edges
    )
    got = read_files(write_files(tmp_path / "g", a_gexf=text))
    assert got.first.columns["edge/edge_attr"].tolist() == [[0.5], [1.5], [2.5]]
    assert "key: ids or names of the rows" in got.files["ignored"]
    # Fractions number nothing.
    text = "source,target,key\n0,1,1.5\n1,2,2.5\n2,0,3.5\n"
    got = read_files(write_files(tmp_path / "f", a_csv=text))
    assert got.first.columns["edge/edge_attr"].tolist() == [[1.5], [2.5], [3.5]]


def test_attributes_named_like_ids_are_kept(tmp_path):
    """graph, node, source, target and id of nodes and edges, and the keys of a multigraph."""
    graph = nx.MultiDiGraph()
    names = ("graph", "node", "source", "weight2")
    for node in range(4):
        graph.add_node(node, **{name: (node + i) % 3 + 0.5 for i, name in enumerate(names)})
    for number, (a, b) in enumerate([(0, 1), (0, 1), (1, 2), (2, 3)]):
        graph.add_edge(
            a,
            b,
            key=["road", "rail"][number % 2],
            **dict.fromkeys(("graph", "node"), number % 3 + 0.5),
        )
    folders = number_folders(tmp_path)

    def check(suffix):
        folder = write_files(next(folders))
        if suffix == "json":
            data = nx.node_link_data(graph, edges="links")
            (folder / "g.json").write_text(json.dumps(data))
        else:
            nx.write_graphml(graph, folder / "g.graphml")
        got = read_files(folder)
        fields = got.schema.column("node/x").fields
        assert set(fields) == set(names)
        column = got.first.columns["node/x"][:, fields.index("source")]
        assert column.tolist() == [(node + 2) % 3 + 0.5 for node in range(4)]
        assert {"graph", "node"} <= set(got.schema.column("edge/edge_attr").fields)
        assert got.first.num_edges == 4

    check_each(check, ["json", "graphml"])


def test_gml_with_repeated_edges_has_them_all(tmp_path):
    graph = nx.MultiDiGraph([(0, 1), (0, 1), (1, 2)])
    nx.set_edge_attributes(
        graph, {edge: number for number, edge in enumerate(graph.edges(keys=True))}, "value"
    )
    folder = write_files(tmp_path / "g")
    nx.write_gml(graph, folder / "a.gml")
    text = (folder / "a.gml").read_text()
    lines = [line for line in text.splitlines() if "multigraph" not in line and "key" not in line]
    (folder / "a.gml").write_text("\n".join(lines))
    got = read_files(folder)
    assert [tuple(edge) for edge in got.first.edge_index.T.tolist()] == [(0, 1), (0, 1), (1, 2)]
    assert got.first.columns["edge/edge_attr"][:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("suffix", ["gml", "gexf", "net", "graphml", "json"])
def test_ids_of_nodes_are_the_names_that_a_user_gave_them(tmp_path, suffix):
    """They key the predictions of nodes, although some formats number the nodes."""
    for number, names in enumerate((["Ann Lee", "Bob", "7"], ["7", "0", "1"])):
        graph = nx.DiGraph(nx.path_graph(names))
        path = write_files(tmp_path / str(number)) / f"g.{suffix}"
        if suffix == "net":
            vertices = "".join(f'{row} "{name}"\n' for row, name in enumerate(names, 1))
            path.write_text(f"*Vertices 3\n{vertices}*Arcs\n1 2\n2 1\n2 3\n3 2\n")
        elif suffix == "json":
            path.write_text(json.dumps(nx.node_link_data(graph, edges="links")))
        else:
            getattr(nx, f"write_{suffix}")(graph, path)
        got = read_files(path.parent)
        ids = got.first.columns[NODE_ID]
        if ids.ndim == 2:
            ids = [bytes(row).rstrip(b"\0").decode() for row in ids]
        assert list(map(str, ids)) == names
        ends = {(names[source], names[target]) for source, target in got.edges()}
        assert ends == set(graph.edges)


PAJEK = """*Network test
% a comment
*Vertices 4
1 "O'Brien" 0.25 0.5 0.5 ellipse ic Red
2 "same" 0.5 0.5 0.5 box ic Blue
3 "same" 0.75 0.5 0.5 box ic Red
*Arcs :1 "likes"
1 2 1.5
*Edges
2 3 2.5 c Black
*Arcslist
4 1 2
*Edgeslist
1 3
"""


def test_pajek_has_arcs_one_way_and_edges_both(tmp_path):
    counts: list[int] = []
    graph = parse_pajek(PAJEK, "a.net", counts.append)
    expected = [(1, 2), (2, 3), (3, 2), (4, 1), (4, 2), (1, 3), (3, 1)]
    assert sorted(graph.edges()) == sorted(expected)
    assert graph.number_of_nodes() == 4
    assert counts == [4]
    assert graph.nodes[3]["label"] == "same"
    got = read_files(write_files(tmp_path / "p", a_net=PAJEK))
    assert sorted((a + 1, b + 1) for a, b in got.first.edge_index.T.tolist()) == sorted(expected)
    # Names of relations, and the sides of a graph of two kinds of vertices.
    text = '*Vertices 3 2\n*Arcs :1 "likes"\n1 3 1\n*Arcs :2\n2 3 1\n*Edges :1 "likes"\n1 2 1\n'
    got = read_files(write_files(tmp_path / "r", a_net=text))
    fields = got.schema.column("edge/edge_attr").fields
    assert fields == ("relation=2", "relation=likes", "weight")
    assert got.first.columns["edge/edge_attr"][:, 1].tolist() == [1, 1, 0, 1]
    assert got.first.columns["node/x"].tolist() == [[1], [1], [2]]
    # A file with arcs alone is what networkx reads.
    folder = write_files(tmp_path / "n")
    other = nx.gnp_random_graph(7, 0.4, seed=1, directed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nx.write_pajek(other, folder / "a.net")
    assert read_files(folder).edges() == set(other.edges)
    with raises(DamagedInput, naming=["a.net, line 3", "vertex 9"]):
        read_files(write_files(tmp_path / "bad", a_net="*Vertices 2\n*Arcs\n1 9\n"))


@pytest.mark.parametrize("names", [("1", "2"), ("marriage", "business")])
def test_relations_of_pajek_are_features_in_matrices_and_in_lists(tmp_path, names):
    titles = [f':{number} "{name}"' for number, name in enumerate(names, 1)]
    if names == ("1", "2"):
        titles = [":1", ":2"]
    first, second = titles
    head = '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n'
    matrices = (
        f"{head}*Matrix {first}\n0 1 0\n0 0 0\n0 0 0\n*Matrix {second}\n0 1 1\n0 0 0\n0 0 2\n"
    )
    arcs = f"{head}*Arcs {first}\n1 2 1\n*Arcs {second}\n1 2 1\n1 3 1\n3 3 2\n"
    got = read_files(write_files(tmp_path / "m", a_net=matrices))
    expected = read_files(write_files(tmp_path / "a", a_net=arcs))
    assert "relation" in got.schema.column("edge/edge_attr").fields[0]
    assert got.schema == expected.schema
    assert np.array_equal(got.first.edge_index, expected.first.edge_index)
    assert np.array_equal(
        got.first.columns["edge/edge_attr"], expected.first.columns["edge/edge_attr"]
    )


@pytest.mark.parametrize(
    ("vertices", "rows", "arcs"),
    [
        ("5 2", ["0 2 1", "3 0 0"], "1 4 2\n1 5 1\n2 3 3\n"),
        ("5 2", ["0 0 0 2 1", "0 0 3 0 0"], "1 4 2\n1 5 1\n2 3 3\n"),
        ("3", ["0 1 0", "0 0 0", "4 0 2"], "1 2 1\n3 1 4\n3 3 2\n"),
    ],
)
def test_columns_of_a_matrix_of_pajek_are_all_vertices_or_the_second_mode(
    tmp_path, vertices, rows, arcs
):
    lines = "\n".join(rows)
    matrix = read_files(
        write_files(tmp_path / "m", a_net=f"*Vertices {vertices}\n*Matrix\n{lines}\n")
    )
    expected = read_files(write_files(tmp_path / "a", a_net=f"*Vertices {vertices}\n*Arcs\n{arcs}"))
    assert matrix.schema == expected.schema
    assert matrix.files == expected.files
    assert np.array_equal(matrix.first.edge_index, expected.first.edge_index)
    for name, column in expected.first.columns.items():
        assert np.array_equal(matrix.first.columns[name], column)


@pytest.mark.parametrize(
    ("vertices", "rows"),
    [
        ("3", ["0 1"]),
        ("3", ["0 1 0 1"]),
        ("5 2", ["0 1"]),
        ("2", ["0 1", "1 0", "1 1"]),
    ],
)
def test_a_matrix_of_pajek_that_does_not_fit_its_vertices_is_refused(tmp_path, vertices, rows):
    lines = "\n".join(rows)
    folder = write_files(tmp_path / "m", a_net=f"*Vertices {vertices}\n*Matrix\n{lines}\n")
    with raises(DamagedInput, naming=f"a.net, line {2 + len(rows)}"):
        read_files(folder)


VERTEX = ["0.1 0.575472 0.5", "ellipse", "ic Red", "x_fact 1.5"]


@pytest.mark.parametrize("order", [*permutations(VERTEX), ["0.1 0.2 0.5", "ic Red", "[1-4]"]])
def test_words_after_a_vertex_of_pajek_are_in_a_known_order_or_refused(tmp_path, order):
    folder = write_files(tmp_path / "p", a_net=f'*Vertices 2\n1 "a" {" ".join(order)}\n2 "b"\n')
    is_known = list(order[:2]) == VERTEX[:2]
    if is_known:
        graph = parse_pajek((folder / "a.net").read_text(), "a.net", lambda _: None)
        names = {"label", "position x", "position y", "position z", "shape", "ic", "x_fact"}
        assert graph.nodes[1].keys() == names
        assert graph.nodes[1]["shape"] == "ellipse"
        return
    with raises(DamagedInput, naming=["a.net, line 2", order[-1]]):
        read_files(folder)


@pytest.mark.parametrize("version", ["1.1draft", "1.2draft", "1.3"])
@pytest.mark.parametrize("weights", [("2.5", "", "0"), ("", "", "")])
def test_edges_of_gexf_without_a_weight_have_the_default_of_its_schema(tmp_path, version, weights):
    attributes = [f'weight="{weight}"' if weight else "" for weight in weights]
    edges = "".join(
        f'<edge id="{number}" source="a" target="{target}" {attribute}/>'
        for number, (target, attribute) in enumerate(zip("abc", attributes, strict=True))
    )
    text = (
        f'<gexf xmlns="http://gexf.net/{version}" version="{version}">'
        '<graph defaultedgetype="directed"><nodes><node id="a"/><node id="b"/><node id="c"/></nodes>'
        f"<edges>{edges}</edges></graph></gexf>"
    )
    got = read_files(write_files(tmp_path / "g", a_gexf=text))
    if not any(weights):
        assert "edge/edge_attr" not in got.first.columns
        return
    expected = [[float(weight or 1)] for weight in weights]
    assert got.first.columns["edge/edge_attr"].tolist() == expected


def test_an_adjacency_matrix_with_names_is_a_graph(tmp_path):
    rng = np.random.default_rng(2)
    matrix = rng.integers(0, 3, (5, 5)) * (rng.random((5, 5)) < 0.5)
    for number, index in enumerate((list("edcba"), list(range(5)))):
        frame = pd.DataFrame(matrix, index=index, columns=index)
        got = read_files(write_files(tmp_path / f"m{number}", a_csv=frame.to_csv()))
        dense = np.zeros((5, 5))
        dense[tuple(got.first.edge_index)] = got.first.columns["edge/edge_attr"][:, 0]
        np.testing.assert_array_equal(dense, matrix)
        assert got.first.num_nodes == 5


def test_a_smi_is_a_list_of_molecules(tmp_path):
    got = read_files(write_files(tmp_path / "s", a_smi="CCO ethanol\nc1ccccc1 benzene\n"))
    assert [record.num_nodes for record in got.records] == [3, 6]
    assert [record.key for record in got.records] == ["ethanol", "benzene"]


def csv_of(matrix, *, names, style):
    """Return a matrix as text: without names, or with names in the first line and column."""
    frame = pd.DataFrame(matrix, names, names)
    bare = {"header": False, "index": False}
    return {
        "bare": lambda: frame.to_csv(**bare),
        "blanks": lambda: frame.to_csv(sep=" ", float_format="%.4f", na_rep="0", **bare),
        "names": frame.to_csv,
    }[style]()


@pytest.mark.parametrize("style", ["bare", "blanks", "names"])
@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def test_each_matrix_of_a_folder_is_a_graph(tmp_path_factory, style, seed):
    """Of any sizes from four, whatever lies next to them; empty cells and zeros are no edges."""
    rng = np.random.default_rng(seed)
    files = {
        "participants_tsv": "participant_id\tdiagnosis\nsub2\tA\nsub0\tB\nsub1\tB\n",
        "notes_txt": "L.1\nR.1\n",
    }
    matrices = []
    for number in range(3):
        nodes = int(rng.integers(4, 8))
        matrix = np.round(rng.normal(size=(nodes, nodes)), 4)
        matrix[rng.random((nodes, nodes)) < 0.5] = 0
        matrix[0, 1] = 0.5
        matrix[1, 2] = np.nan
        files[f"sub{number}_conn_csv"] = csv_of(
            matrix, names=[f"region {row}" for row in range(nodes)], style=style
        )
        matrices.append(np.nan_to_num(matrix))
    folder = write_files(tmp_path_factory.mktemp("m"), **files)
    got = read_files(folder, label=("diagnosis",))
    assert [record.key for record in got.records] == [f"sub{number}_conn" for number in range(3)]
    assert [int(record.columns["graph/y"]) for record in got.records] == [1, 1, 0]
    for record, matrix in zip(got.records, matrices, strict=True):
        np.testing.assert_array_equal(record.edge_index, matrix.nonzero())
        weights = record.columns["edge/edge_attr"][:, 0]
        np.testing.assert_allclose(weights, matrix[matrix.nonzero()], rtol=1e-6)
        assert record.num_nodes == len(matrix)


def test_a_square_without_names_is_a_matrix_from_four_rows(tmp_path):
    path = np.eye(4, k=1, dtype=int)
    text = csv_of(path, names=range(4), style="bare")
    got = read_files(write_files(tmp_path / "m", m_csv=text))
    assert (got.first.num_nodes, got.edges()) == (4, {(0, 1), (1, 2), (2, 3)})
    assert "edge/edge_attr" not in got.first.columns
    assert "m.csv is read as an adjacency matrix" in " ".join(got.files["warnings"])
    # Other tables have features of the nodes, or are noted.
    nodes = "id,size,label\n0,5,a\n1,6,b\n2,7,a\n3,8,b\n"
    got = read_files(write_files(tmp_path / "n", m_csv=text, nodes_csv=nodes))
    assert got.first.columns["node/y"].tolist() == [0, 1, 0, 1]
    assert got.edges() == {(0, 1), (1, 2), (2, 3)}
    # The ends of edges are named by options, which answer the question of three rows, too.
    for rows in (3, 4):
        square = csv_of(np.eye(rows, k=1, dtype=int)[:, ::-1], names=range(rows), style="bare")
        folder = write_files(tmp_path / f"e{rows}", e_csv=square)
        assert read_files(folder, source="0", target="1").first.num_edges == rows
    named = write_files(tmp_path / "t", m_csv="a,b,c\n0,1,1\n1,0,1\n1,1,0\n")
    assert read_files(named).first.num_edges == 6


def test_folders_of_graph_files_are_one_set_and_folders_of_tables_are_refused(tmp_path):
    files = {
        "dot": ("g.dot", "digraph { 0 -> 1; 1 -> 2; 2 -> 3; }"),
        "matrix": ("m.csv", csv_of(np.eye(4, k=1, dtype=int), names=range(4), style="bare")),
        "table": ("edges.csv", "source,target\n0,1\n1,2\n"),
    }
    for kind, (name, data) in files.items():
        folders = tmp_path / kind
        for subject in ("a", "b"):
            (folders / subject).mkdir(parents=True)
            (folders / subject / name).write_text(data)
        if kind in {"dot", "matrix"}:
            got = read_files(folders)
            stem = name.partition(".")[0]
            assert [record.key for record in got.records] == [f"a/{stem}", f"b/{stem}"]
            assert got.edges() == {(0, 1), (1, 2), (2, 3)}
        else:
            with raises(DamagedInput, naming="a, b"):
                read_files(folders)


def test_values_of_pajek_come_with_the_line_that_joins_them(tmp_path, monkeypatch):
    net = '*Vertices 3\n1 "a b"\n2 "c"\n3 "d"\n*Arcs\n1 2 1\n3 1 1\n'
    folder = write_files(tmp_path / "t", NETWORK_net=net, sector_clu="*Vertices 3\n2\n1\n2\n")
    project = write_files(
        tmp_path / "p", a_paj=f"*Network a\n{net}*Partition b\n*Vertices 3\n2\n1\n2\n"
    )
    with raises(DamagedInput, naming="line 9") as caught:
        read_files(project)
    assert "into a .clu file" in steps_of(caught.value)
    with raises(DamagedInput, naming="sector.clu") as caught:
        read_files(folder)
    monkeypatch.chdir(folder)
    exec(steps_of(caught.value).partition("pass only that file: ")[2], {"networkx": nx})
    written = (folder / "NETWORK.graphml").read_bytes()
    got = read_files(write_files(tmp_path / "u", a_graphml=written), label=("sector",))
    assert got.first.columns["node/y"].tolist() == [1, 0, 1]


@pytest.mark.parametrize("of_nodes", [str, int])
def test_ids_of_json_are_the_same_as_texts_and_as_numbers(tmp_path, of_nodes):
    of_links = {str: int, int: str}[of_nodes]
    value = {
        "directed": True,
        "nodes": [{"id": of_nodes(number), "y": number % 2} for number in (7, 8, 9)],
        "links": [{"source": of_links(7), "target": of_links(9)}],
    }
    got = read_files(write_files(tmp_path / "t", a_json=json.dumps(value)))
    assert (got.first.num_nodes, got.edges()) == (3, {(0, 2)})


def text_of_lines(graph, kind):
    """Write a graph as an adjacency list, METIS or LGL."""
    if kind == "adjacency list":
        return "# made by hand\n" + "\n".join(nx.generate_adjlist(graph))
    if kind == "METIS":
        lines = [" ".join(str(other + 1) for other in graph[node]) for node in graph]
        return "\n".join([f"{len(graph)} {graph.number_of_edges()}", *lines]) + "\n"
    lines = []
    for node in graph:
        lines += [f"# {node}", *(f"{other} 0.5" for other in graph[node] if other > node)]
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["adjacency list", "METIS", "LGL"])
def test_lists_of_neighbours_never_become_a_wrong_list_of_edges(tmp_path, monkeypatch, kind):
    """Random graphs, some with nodes without edges; the printed line of Python writes the right graph."""
    folders = number_folders(tmp_path)
    converted = 0
    for seed in range(12):
        graph = nx.gnm_random_graph(6 + seed, 4 + 2 * seed, seed)
        folder = write_files(next(folders), g_txt=text_of_lines(graph, kind))
        with pytest.raises(DamagedInput) as error:
            read_files(folder)
        _, _, code = steps_of(error.value).partition("in Python: ")
        if kind not in error.value.message or "networkx" not in code:
            continue
        monkeypatch.chdir(folder)
        exec(code, {})
        (folder / "g.txt").unlink()
        got = read_files(folder)
        first = int(kind == "METIS")
        ids = got.first.columns.get(NODE_ID, np.arange(got.first.num_nodes)).tolist()
        if ids and isinstance(ids[0], list):
            ids = [int(bytes(row).rstrip(b"\0")) for row in ids]
        found = {frozenset((ids[a], ids[b])) for a, b in got.edges()}
        assert found == {frozenset((a + first, b + first)) for a, b in graph.edges}
        assert got.first.num_nodes == len(graph)
        converted += 1
    assert converted >= 8 or kind == "LGL"


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("DL N=3\nFORMAT=fullmatrix\nDATA:\n0 1 1\n1 0 0\n1 0 0\n", "Pajek"),
        ("dl\nn = 3 format = edgelist1\ndata:\n1 2\n2 3\n", "Pajek"),
        ("4 5\n2 3\n1 3 4\n1 2 4\n2 3\n", "networkx.Graph("),
        ("4 6 0\n2 3 4\n1 3 4\n1 2 4\n1 2 3\n", "networkx.Graph("),
        ("4 4\n2 4\n1 3\n2 4\n1 3\n", "header='yes'"),
        ("# a\nb 0.1\nc 0.5\n# b\nc 0.7\n", "igraph.Graph.Read_LGL('g.txt')"),
        ("ann bob cy dan\nbob cy\ncy\ndan\n", "networkx.read_adjlist('g.txt')"),
        ("1 2 4\n2 1 3\n3 2 4\n4 1 3\n", "networkx.read_adjlist("),
        ("person,event\n1,1\n2,1\n3,2\n1,2\n", "astype(str)"),
    ],
)
def test_texts_that_are_no_table_of_edges_are_named(tmp_path, text, remedy):
    with raises(DamagedInput, naming="g.txt") as error:
        read_files(write_files(tmp_path / "t", g_txt=text))
    assert remedy in steps_of(error.value)


def test_the_ends_of_triples_are_the_columns_with_values_in_common(tmp_path):
    folder = write_files(tmp_path / "sif", g_sif="a pp b c d\nb pd c\nlonely\n")
    with raises(DamagedInput, naming="SIF"):
        read_files(folder)
    got = read_files(write_files(tmp_path / "t", g_txt="a pp b\nb pp c\nc pd d\n"))
    assert got.edges() == {(0, 1), (1, 2), (2, 3)}
    weighted = write_files(tmp_path / "w", g_txt="1 2 1\n2 3 1\n3 4 2\n")
    assert read_files(weighted).edges() == {(0, 1), (1, 2), (2, 3)}
