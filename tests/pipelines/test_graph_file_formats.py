"""Your own graphs by format: each against the library that writes it."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from support.cli import kmip
from support.graph_files import (
    PIPELINE,
    assert_same_graph,
    masks_of,
    npz_bytes,
    pyg_graphs,
    read_folder,
    tu_files,
    write_files,
)
from support.own_graphs import build_in_memory, parse_remedy
from support.raises import raises
from support.shared import ROOT

import kmip_data
from kmip_data.errors import DamagedInput, OpenQuestions, Setting, UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs import file_formats
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.own.graphs import graphs_of_tables
from kmip_data.pipelines.own.networks import GRAPH, NODE, SOURCE, TARGET, AttributeRows
from kmip_data.pipelines.own.roles import Roles


def test_a_file_format_is_a_reader_and_an_entry(tmp_path, monkeypatch):
    """A format of paths: each line has a name and the number of nodes, which is the label, too."""

    def recognises(heads, params):
        return all(head.startswith(b"paths of ") for head in heads.values())

    def read(folder, files, options, findings):
        for file in files:
            for line in (folder / file).read_text(options.params.encoding or None).splitlines()[1:]:
                name, nodes = line.split()
                ends = np.arange(int(nodes))
                columns = {"node/x": ends[:, None].astype(np.float32)}
                label = np.array([int(nodes)])
                columns |= findings.attributes.add_targets("nodes", label, "graph", "regression")
                edges = np.stack([ends[:-1], ends[1:]])
                yield GraphRecord(key=name, num_nodes=len(ends), columns=columns, edge_index=edges)

    paths_format = GraphFormat(
        "lists of paths", "a list of paths", recognises, read, COMMON_PARAMETERS | {"encoding"}
    )
    monkeypatch.setattr(file_formats, "FORMATS", (paths_format, *file_formats.FORMATS))
    folder = write_files(tmp_path / "t", paths_txt="paths of 2024\nshort 2\nlong 5\n")
    _, records = read_folder(folder, task="regression")
    assert [record.key for record in records] == ["short", "long"]
    assert records[1].edge_index.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert [record.columns["node/x"].shape for record in records] == [(2, 1), (5, 1)]
    assert [record.columns["graph/y"] for record in records] == [2, 5]
    with raises(DamagedInput, naming="a list of paths"):
        read_folder(write_files(tmp_path / "u", a_bin=b"\0\1", b_bin=b"\0\1"))


#: Reader of a format -> its rows in docs/graph-files.md.
ROWS_BY_READER = {
    "planetoid_files": ["Planetoid"],
    "torch_files": ["PyTorch Geometric"],
    "array_files": ["arrays", "Matrix Market"],
    "networkx_files": ["networkx, Gephi, Cytoscape", "Graphviz", "Pajek"],
    "tudataset_files": ["TUDataset"],
    "smiles_tables": ["molecules"],
    "format": ["tables", "adjacency matrix"],
}


def test_every_file_format_has_a_row_in_the_docs():
    text = (ROOT / "docs" / "graph-files.md").read_text("utf-8")
    table = text.split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[1:]
    readers = [item.read.__module__.rpartition(".")[2] for item in file_formats.FORMATS]
    assert set(readers) == set(ROWS_BY_READER), (
        "add a row to docs/graph-files.md, a command to docs/own-data-rules.md, and the reader to ROWS_BY_READER"
    )
    described_rows = [row for reader in readers for row in ROWS_BY_READER[reader]]
    assert sorted(described_rows) == sorted(rows), "docs/graph-files.md has other rows"


def read_links(folder, files, options, findings):
    """A small reader: each line has a node with its mass, or two nodes with the length of their link."""
    nodes = AttributeRows("line", GRAPH, NODE)
    edges = AttributeRows("line", GRAPH, SOURCE, TARGET)
    for file in files:
        for number, line in enumerate((folder / file).read_text().splitlines()[1:], 2):
            *ids, value = line.split()
            if len(ids) == 1:
                nodes.add(file, number, {"mass": value}, file, *ids)
            else:
                edges.add(file, number, {"length": value}, file, *ids)
    tables = [rows.table(name, options, {}) for name, rows in (("links", edges), ("nodes", nodes))]
    roles = Roles(
        tables[0], (SOURCE, TARGET), tables[1], NODE, None, {"node": GRAPH, "edge": GRAPH}
    )
    yield from graphs_of_tables(roles, options, findings)


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ("c 1e60", "mass; 1e+60"),
        ("a x 1", "node x"),
        ("a b 1e60", "length; 1e+60"),
        ("a 3", "node a"),
    ],
)
def test_errors_in_rows_of_a_small_reader_name_file_and_line(tmp_path, monkeypatch, bad, named):
    links_format = GraphFormat(
        "links",
        "links",
        lambda heads, _: all(map(is_links, heads)),
        read_links,
        COMMON_PARAMETERS | {"on_error"},
    )
    monkeypatch.setattr(file_formats, "FORMATS", (links_format,))
    good = "links\na 1\nb 2.5\na b 0.5\n"
    _, records = read_folder(write_files(tmp_path / "good", a_links=good, b_links=good))
    assert [record.columns["node/x"].tolist() for record in records] == [[[1], [2.5]]] * 2
    faulty = good.replace("a b 0.5", f"{bad}\na b 0.5")
    with raises(DamagedInput, naming=["b.links, line 4", *named.split("; ")]):
        read_folder(write_files(tmp_path / "bad", a_links=good, b_links=faulty))


def test_the_remedy_for_an_unknown_node_fits_a_small_reader(tmp_path, monkeypatch):
    links_format = GraphFormat(
        "links",
        "links",
        lambda heads, _: all(map(is_links, heads)),
        read_links,
        COMMON_PARAMETERS | {"on_error"},
    )
    monkeypatch.setattr(file_formats, "FORMATS", (links_format,))
    folder = write_files(tmp_path / "q", a_links="links\na 1\nb 2.5\na b 0.5\na x 1\n")
    with raises(DamagedInput, naming=["a.links, line 5", "node x"]) as error:
        read_folder(folder)
    _, (record,) = read_folder(folder, **parse_remedy(error.value))
    assert record.columns["edge/edge_attr"].tolist() == [[0.5]]


def is_links(name: str) -> bool:
    return name.endswith(".links")


def test_errors_in_attributes_name_the_file_with_node_or_edge(tmp_path):
    gml = "graph [ node [ id 1 mass {} ] node [ id 4 mass 2 ] edge [ source 1 target 4 size {} ] ]"
    good = gml.format(1, 1)
    for bad, location, column in (
        (gml.format("1.0E60", 1), "b.gml, node 1", "mass"),
        (gml.format(1, "1.0E60"), "b.gml, edge from 1 to 4", "size"),
    ):
        folder = write_files(tmp_path / "f", a_gml=good, b_gml=bad)
        with raises(OpenQuestions, naming=location, steps=Setting(ignore=column)):
            read_folder(folder)


@pytest.mark.parametrize("targets", ["graph_labels", "graph_attributes"])
def test_a_tudataset_is_the_one_of_pytorch_geometric(tmp_path, targets):
    from torch_geometric.data.separate import separate
    from torch_geometric.io import read_tu_data

    folder = tu_files(tmp_path / "D", targets=targets)
    data, slices, _ = read_tu_data(str(folder), "D")
    _, records = read_folder(folder)
    for number, record in enumerate(records):
        assert_same_graph(record, separate(type(data), data, number, slices, decrement=False))
    assert len(records) == 7


@pytest.mark.parametrize(
    ("labels", "names"), [((-1, 1), ("-1", "1")), ((0, 1), ()), ((1, 2, 4), ("1", "2", "4"))]
)
def test_class_numbers_of_a_tudataset_are_names(tmp_path, labels, names):
    folder = tu_files(tmp_path / "D", targets="graph_labels")
    rows = [str(labels[number % len(labels)]) for number in range(7)]
    (folder / "D_graph_labels.txt").write_text("\n".join([*rows, ""]))
    params, _ = build_in_memory(folder)
    assert PIPELINE.class_names(params) == names
    assert PIPELINE.schema(params).y_column.num_classes == len(labels)

    _, records = read_folder(folder, task="regression")
    values = [float(record.columns["graph/y"].item()) for record in records]
    assert values == [float(row) for row in rows]


@pytest.mark.parametrize("layout", ["list", "pair", "new pair", "one", "pair of one", "files"])
def test_saved_tensors_are_read_unchanged(tmp_path, layout):
    import torch
    from torch_geometric.data import Data, InMemoryDataset

    graphs = pyg_graphs()
    data, slices = InMemoryDataset.collate(graphs)
    saved = {
        "list": graphs, "pair": (data, slices), "new pair": (data.to_dict(), slices, Data),
        "one": graphs[0], "pair of one": (graphs[0].to_dict(), None, Data),
    }  # fmt: skip
    folder = write_files(tmp_path / "t")
    if layout == "files":
        for part, graph in zip(("test", "train", "valid"), graphs, strict=True):
            torch.save([graph], folder / f"{part}.pt")
    else:
        torch.save(saved[layout], folder / "graphs.pt")
    schema, records = read_folder(folder)
    for record, graph in zip(records, graphs, strict="one" not in layout):
        assert_same_graph(record, graph)
    assert schema.y_column.num_classes == 2
    if layout == "files":
        assert [int(record.columns["graph/file"]) for record in records] == [2, 0, 1]


def test_masks_are_splits_and_other_values_are_kept(tmp_path):
    """Two columns of masks, a value of each level that no name tells, a text; then what is refused."""
    import torch
    from torch_geometric.data import Data

    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    train = torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0]], dtype=torch.bool)
    graph = Data(
        edge_index=edges, y=torch.tensor([0, 1, -1, 1]), train_mask=train, test_mask=train.flip(0),
        edge_time=torch.arange(4), age=torch.ones(4, dtype=torch.float64), year=1999, name="a",
        flags=torch.tensor([[True, False, True]]), num_nodes=4,
    )  # fmt: skip
    folder = write_files(tmp_path / "t")
    torch.save(graph, folder / "graph.pt")
    schema, (record,) = read_folder(folder, undirected=True)
    assert masks_of(folder).T.tolist() == [[0, 255, 255, 2], [255, 0, 2, 255]]
    assert record.columns["node/y"].tolist() == [0, 1, -1, 1]
    assert record.columns["edge/edge_time"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert schema.column("node/age").presented == "float64"
    assert int(record.columns["graph/year"]) == 1999
    assert record.columns["graph/flags"].tolist() == [1, 0, 1]
    assert schema.column("graph/flags").presented == "bool"
    assert read_folder(folder, label=("age",))[0].y_column.doc == "age"
    with raises(UsageError, naming="z", steps=Setting(label="y")):
        read_folder(folder, label=("z",))
    with raises(UsageError, steps=Setting(feature=None)):
        read_folder(folder, feature=("age",))
    other = graph.clone()
    del other.year
    torch.save([graph, other], folder / "graph.pt")
    with raises(DamagedInput, naming=["00000001", "year"]):
        read_folder(folder)
    torch.save(Data(edge_index=edges, train_mask=train[:3]), folder / "graph.pt")
    with raises(DamagedInput, naming=["00000000", "train"]):
        read_folder(folder)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "benchmark"])
def test_arrays_equal_scipy(tmp_path, form):
    from scipy import sparse

    matrix = sparse.random(8, 8, 0.3, form if form != "benchmark" else "csr", rng=0)
    folder = write_files(tmp_path / "n")
    path = folder / "graph.npz"
    attr = sparse.random(8, 5, 0.5, "csr", rng=1)
    if form == "benchmark":
        arrays = {"labels": np.arange(8) % 3 - 1, "train_mask": np.arange(8) % 2 == 0}
        arrays |= {"names": np.array(["a"] * 8, object)}  # never read
        for name, part in (("adj", matrix), ("attr", attr)):
            arrays |= {f"{name}_{key}": getattr(part, key) for key in ("data", "indices", "indptr")}
            arrays[f"{name}_shape"] = part.shape
        np.savez_compressed(path, **arrays)
    else:
        sparse.save_npz(path, matrix)
        matrix = sparse.load_npz(path)
    schema, (record,) = read_folder(folder)
    dense = np.zeros((8, 8), np.float32)
    dense[tuple(record.edge_index)] = record.columns["edge/edge_attr"][:, 0]
    np.testing.assert_array_equal(dense, matrix.toarray().astype(np.float32))
    if form == "benchmark":
        np.testing.assert_array_equal(record.columns["node/x"], attr.toarray().astype(np.float32))
        assert record.columns["node/y"].tolist() == (np.arange(8) % 3 - 1).tolist()
        assert schema.y_column.num_classes == 2


@pytest.mark.parametrize("symmetry", ["symmetric", "general"])
@pytest.mark.parametrize("field", ["real", "pattern"])
def test_matrix_market_equals_scipy(tmp_path, symmetry, field):
    from scipy import io, sparse

    matrix = sparse.random_array((8, 8), density=0.3, rng=0)
    matrix = matrix + matrix.T if symmetry == "symmetric" else matrix
    folder = write_files(tmp_path / "m")
    io.mmwrite(folder / "a.mtx", matrix, field=field, symmetry=symmetry)
    _, (record,) = read_folder(folder)
    read = io.mmread(folder / "a.mtx").toarray().astype(np.float32)
    weights = record.columns.get("edge/edge_attr", np.ones((record.num_edges, 1)))
    dense = np.zeros((8, 8), np.float32)
    dense[tuple(record.edge_index)] = weights[:, 0]
    np.testing.assert_array_equal(dense, read)
    assert ("edge/edge_attr" in record.columns) == (field == "real")


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("edges", [[0, 1], [2, 3]], [[0, 2], [1, 3]]),  # a row is an edge
        ("edges", [[0, 1], [2, 3], [4, 0]], [[0, 2, 4], [1, 3, 0]]),
        ("edges", [[0, 1, 2], [2, 3, 4]], [[0, 1, 2], [2, 3, 4]]),
        ("edge_index", [[0, 1], [2, 3]], [[0, 1], [2, 3]]),
        ("edge_index", [[0, 1], [2, 3], [4, 0]], [[0, 2, 4], [1, 3, 0]]),
    ],
)
def test_the_name_of_an_array_of_edges_says_which_axis_has_their_ends(
    tmp_path, name, shape, expected
):
    _, (record,) = read_folder(
        write_files(tmp_path / "n", a_npz=npz_bytes(**{name: np.array(shape)}))
    )
    assert record.edge_index.tolist() == expected


@pytest.mark.parametrize("directed", [True, False])
def test_graphml_equals_networkx(tmp_path, directed):
    import networkx as nx

    folder = write_files(tmp_path / "g")
    for name in ("a", "b"):
        graph = nx.gnp_random_graph(6, 0.5, seed=len(name), directed=directed)
        graph.graph["label"] = name
        for node in graph:
            graph.nodes[node].update(mass=node / 2, size=node)
        for number, (_, _, data) in enumerate(graph.edges(data=True)):
            data["weight"] = number
        nx.write_graphml(nx.relabel_nodes(graph, "n{}".format), folder / f"{name}.graphml")
    schema, records = read_folder(folder)
    for record in records:
        graph = nx.read_graphml(folder / f"{record.key}.graphml").to_directed()
        names = list(graph)
        ends = [(names[a], names[b]) for a, b in record.edge_index.T]
        weights = record.columns["edge/edge_attr"][:, 0]
        assert dict(zip(ends, weights, strict=True)) == nx.get_edge_attributes(graph, "weight")
        expected = [[data["mass"], data["size"]] for _, data in graph.nodes(data=True)]
        assert record.columns["node/x"].tolist() == expected
    assert [int(record.columns["graph/y"]) for record in records] == [0, 1]
    assert schema.column("node/x").fields == ("mass", "size")


def club():
    import networkx as nx

    graph = nx.karate_club_graph()
    for node, data in graph.nodes(data=True):
        data["mass"] = node / 2
    return graph


def write_network(path, graph):
    """Write a graph in the format that the end of the name says."""
    import networkx as nx

    if path.suffix != ".json":
        getattr(nx, f"write_{path.suffix[1:]}")(graph, path)
        return
    path.write_text(json.dumps(nx.node_link_data(graph)), "utf-8")


NETWORKS = ["a.graphml", "a.gexf", "a.gml", "a.json"]


@pytest.mark.parametrize("name", NETWORKS)
def test_files_of_networkx_equal_networkx(tmp_path, name):
    folder = write_files(tmp_path / "n")
    graph = club()
    write_network(folder / name, graph)
    schema, (record,) = read_folder(folder, label=("club",))
    assert schema.column("node/x").fields == ("mass",)
    assert record.columns["node/x"][:, 0].tolist() == [node / 2 for node in graph]
    clubs = [data["club"] for _, data in graph.nodes(data=True)]
    assert record.columns["node/y"].tolist() == [club == "Officer" for club in clubs]
    edges = {*zip(*record.edge_index.tolist(), strict=True)}
    assert edges == {*graph.edges, *(edge[::-1] for edge in graph.edges)}
    assert record.num_edges == 2 * graph.number_of_edges()


def test_lists_of_numbers_in_json_are_columns_and_a_list_has_several_graphs(tmp_path):
    import networkx as nx

    graphs = []
    for number in range(3):
        graph = nx.path_graph(number + 2)
        graph.graph["label"] = number % 2
        for node, data in graph.nodes(data=True):
            data.update(emb=[node, 0.5], words=["a", "b"], mixed=[1] * node)
        graphs.append(nx.node_link_data(graph, edges="links"))
    folder = write_files(tmp_path / "n", a_json=json.dumps(graphs))
    schema, records = read_folder(folder)
    assert [record.key for record in records] == ["a", "a/1", "a/2"]
    assert schema.column("node/x").fields == ("emb_0", "emb_1")
    assert records[0].columns["node/x"].tolist() == [[0, 0.5], [1, 0.5]]
    assert schema.y_column.num_classes == 2


GML = """Creator "Mark Newman on Fri Jul 21"
# a comment
graph
[
  directed 1
  multigraph 1
  node [ id 0 label "{}" value 3 ]
  node [ id 7 label "{}" value 1 ]
  edge [ source 0 target 7 ]
  edge [ source 0 target 7 ]
]
"""


def test_gml_of_the_web_names_nodes_by_their_labels(tmp_path):
    # Repeated edges need no line multigraph 1.
    repeated = write_files(tmp_path / "repeated", a_gml=GML.replace("  multigraph 1\n", ""))
    assert read_folder(repeated)[1][0].edge_index.tolist() == [[0, 0], [1, 1]]
    folder = write_files(tmp_path / "names", a_gml=GML.format("left", "right"))
    schema, (record,) = read_folder(folder)
    assert schema.y_column is None
    assert record.columns["node/x"].tolist() == [[3], [1]]
    assert record.edge_index.tolist() == [[0, 0], [1, 1]]
    same = write_files(tmp_path / "constant", a_gml=GML.format("left", "left"))
    params, _ = build_in_memory(same)
    assert params.inferred.target is None
    assert any(line.startswith("label: ") for line in params.inferred.summary["ignored"])


def test_the_eight_files_of_planetoid_are_the_dataset_of_that_name(tmp_path):
    """The sample of Cora has the layout of the files; its graph, classes and public split are Planetoid's."""
    home = f"--home={tmp_path / 'home'}"
    assert kmip("build", "cora", "--sample", "--quiet", home).code == 0
    raw = write_files(tmp_path / "raw")
    for file in (tmp_path / "home").rglob("ind.cora.*"):
        shutil.copy(file, raw)
    assert kmip("build", "graphs", "--name=mine", f"--archive={raw}", "--quiet", home).code == 0
    for part in ("train", "val", "test"):
        named = kmip_data.open("cora", part, sample=True, home=tmp_path / "home")[0]
        user_graph = kmip_data.open("mine", part, home=tmp_path / "home")[0]
        for attribute in ("x", "y", "edge_index", f"{part}_mask"):
            assert np.array_equal(user_graph[attribute], named[attribute]), attribute
