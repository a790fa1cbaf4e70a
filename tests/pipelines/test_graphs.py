"""Graphs of your own: each format against the library that writes it, bad files against their errors."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.cases import check_each
from support.cli import kmip, refused
from support.own_graphs import with_edges

import kmip_data
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.manifest import load_manifest
from kmip_data.pipelines import build
from kmip_data.pipelines.base import RawFolder, load_pipeline
from kmip_data.pipelines.datasets.graphs import edge_directions, file_formats, inference
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.readers import torch_files
from kmip_data.pipelines.datasets.graphs.tables import text_tables
from kmip_data.runtime.memory import peak_host_memory

PIPELINE = load_pipeline(load_manifest("graphs"))


def write(folder: Path, **files: str | bytes) -> Path:
    """Write files; ``edges_csv`` is called ``edges.csv``."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / ".".join(name.rsplit("_", 1))).write_bytes(data)
    return folder


def made(path: Path, **parameters) -> tuple[object, list[GraphRecord | Skipped]]:
    """Schema and records of a folder, without the engine."""
    raw = RawFolder(path, dict.fromkeys(sorted(file.name for file in path.iterdir()), ""), ())
    params = PIPELINE.resolve(PIPELINE.Params(**parameters), raw)
    prepared = PIPELINE.prepare(raw, params, path)
    units = PIPELINE.units(prepared, params)
    records = [record for unit in units for record in PIPELINE.records(prepared, unit, params)]
    return PIPELINE.schema(params), [with_edges(record) for record in records]


def masks_of(path: Path) -> np.ndarray:
    """Parts of the nodes of a single graph."""
    raw = RawFolder(path, dict.fromkeys(sorted(file.name for file in path.iterdir()), ""), ())
    return PIPELINE.resolve(PIPELINE.Params(), raw).inferred.masks


# --- formats -------------------------------------------------------------------------------------


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

    paths_format = GraphFormat("a list of paths", recognises, read)
    monkeypatch.setattr(file_formats, "FORMATS", (paths_format, *file_formats.FORMATS))
    folder = write(tmp_path / "t", paths_txt="paths of 2024\nshort 2\nlong 5\n")
    _, records = made(folder, task="regression")
    assert [record.key for record in records] == ["short", "long"]
    assert records[1].edge_index.tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert [record.columns["node/x"].shape for record in records] == [(2, 1), (5, 1)]
    assert [record.columns["graph/y"] for record in records] == [2, 5]
    with pytest.raises(DamagedInput, match="a list of paths; or "):
        made(write(tmp_path / "u", a_bin=b"\0\1", b_bin=b"\0\1"))


# --- tables --------------------------------------------------------------------------------------

EDGES = "graph,source,target,weight\na,5,7,0.5\na,7,9,1.5\nb,1,1,2\nc,3,1,4\n"
NODES = "graph,node,mass,kind\na,7,1,x\na,5,2,y\na,9,3,x\nb,1,4,y\nc,1,5,x\nc,3,6,y\n"
GRAPHS = "graph,label,fold\na,good,train\nb,bad,valid\nc,good,\n"


def test_tables_of_edges_nodes_and_graphs(tmp_path):
    folder = write(
        tmp_path / "t", edges_csv=EDGES, nodes_tsv=NODES.replace(",", "\t"), graphs_csv=GRAPHS
    )
    schema, records = made(folder, feature=("mass", "weight"))
    assert [record.key for record in records] == ["a", "b", "c"]
    first, _, last = records
    assert first.edge_index.tolist() == [[1, 0], [0, 2]]  # positions in the table of nodes
    assert first.columns["node/x"].tolist() == [[1], [2], [3]]
    assert first.columns["edge/edge_attr"].tolist() == [[0.5], [1.5]]
    assert last.edge_index.tolist() == [[1], [0]]
    assert [int(record.columns["graph/y"]) for record in records] == [1, 0, 1]
    assert [int(record.columns["graph/fold"]) for record in records] == [0, 1, 255]
    assert schema.column("node/x").fields == ("mass",)
    assert schema.labels.num_classes == 2


def test_an_edge_list_alone(tmp_path):
    """Nodes are the ids that occur, sorted; a table of numbers needs no names; gzip and comments, too."""
    text = "# made here\n10 30\n30 20\n"
    path = tmp_path / "e" / "list.txt.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(text.encode()))
    _, (record,) = made(path.parent, undirected=True)
    assert record.edge_index.tolist() == [[0, 2, 2, 1], [2, 0, 1, 2]]
    assert record.num_nodes == 3


#: Ids of edges -> numbers of nodes in the order of the ids.
IDS = {
    f"{2**63},{2**62}\n{2**63 + 1},{2**62 + 1}": [[2, 3], [0, 1]],  # beyond int64
    f"{2**60}.0,{2**60 + 1}\n{2**60 + 2},{2**60 + 3}": [[0, 2], [1, 3]],  # one is no integer
    "001,1\n1,2": [[0, 1], [1, 2]],
    "1e0,1\n1,2": [[1, 0], [0, 2]],
    "10,2\n+2,-0\n9,0": [[3, 0, 5], [4, 1, 2]],
    "True,TRUE\ntrue,1": [[2, 3], [1, 0]],
    "10,9\n9,10": [[1, 0], [0, 1]],  # numbers are in the order of numbers
}


def test_ids_that_differ_are_different_nodes(tmp_path):
    def check(case):
        text, expected = case
        number = len(list(tmp_path.iterdir()))
        folder = write(tmp_path / f"{number:02d}", edges_csv=f"source,target\n{text}\n")
        _, (record,) = made(folder)
        assert record.edge_index.tolist() == expected
        assert record.num_nodes == len(set(text.replace("\n", ",").split(",")))
        # Next to a column with a zero before a number, which is no id, numbers stay numbers.
        lines = [f"{line},0{row}" for row, line in enumerate(text.split("\n"))]
        beside = write(tmp_path / f"{number:02d}b", e_csv="\n".join(["source,target,w", *lines]))
        _, (record,) = made(beside)
        assert record.edge_index.tolist() == expected

    check_each(check, IDS.items())


def test_ids_of_nodes_and_graphs_are_texts_where_one_is(tmp_path):
    edges = "graph,source,target\n1,07,7\n01,7,7\n"
    folder = write(tmp_path / "t", edges_csv=edges, nodes_csv="graph,node\n1,7\n1,07\n01,7\n")
    _, records = made(folder)
    assert [record.key for record in records] == ["1", "01"]
    assert [record.edge_index.tolist() for record in records] == [[[1], [0]], [[0], [0]]]
    unknown = write(tmp_path / "u", edges_csv="source,target\n7,7.0\n", nodes_csv="node\n7\n")
    with pytest.raises(DamagedInput, match=r"edges\.csv, line 2: .*7\.0") as caught:
        made(unknown)
    assert "Int64" in str(caught.value)


def test_ids_are_looked_at_across_the_blocks_of_a_file(tmp_path):
    """Numbers that are cut at the end of a block are no others; a zero behind it is seen."""
    options = ReadOptions(PIPELINE.Params())
    for shift in range(8):
        text = b"1" * (2**20 - shift) + b",1000,2\n"
        path = write(tmp_path / f"{shift}", edges_csv=text) / "edges.csv"
        assert not text_tables.scan_text(path, options)
        path.write_bytes(text.replace(b",1000", b",0100"))
        assert text_tables.scan_text(path, options)


def test_one_long_id_takes_the_memory_of_one(tmp_path):
    """An array of texts would have room for the longest in each row: 30 GB here."""
    lines = [f"n{i},n{i + 1}" for i in range(20_000)]
    folder = write(
        tmp_path / "t", edges_csv="\n".join(["source,target", "a" * 200_000 + ",b", *lines])
    )
    _, (record,) = made(folder)
    assert record.num_nodes == 20_003


def test_rows_of_a_graph_may_lie_anywhere(tmp_path):
    rng = np.random.default_rng(0)
    graph = rng.integers(0, 12, 100)
    ends = rng.integers(0, 9, (100, 2))
    lines = [f"{g},{a},{b},{g % 3 / 2}" for g, (a, b) in zip(graph, ends, strict=True)]
    folder = write(tmp_path / "t", edges_csv="\n".join(["graph,source,target,y", *lines]))
    schema, records = made(folder)
    assert schema.labels.num_classes is None  # numbers
    assert [int(record.key) for record in records] == list(dict.fromkeys(graph.tolist()))
    for record in records:
        name = int(record.key)
        names, expected = np.unique(ends[graph == name], return_inverse=True)
        np.testing.assert_array_equal(record.edge_index.T, expected.reshape(-1, 2))
        assert record.num_nodes == len(names)
        assert record.columns["graph/y"] == name % 3 / 2


def test_a_single_graph_is_split_by_its_nodes(tmp_path, monkeypatch):
    """Built and opened: a column of parts, a rule; nodes without a class are in no part."""
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    nodes = [
        f"{i},{i / 2},{'' if i == 3 else i % 2},{('train', 'val', 'test')[i % 3]}" for i in range(9)
    ]
    edges = [f"{i},{(i + 1) % 9}" for i in range(9)]
    folder = write(
        tmp_path / "t",
        nodes_csv="\n".join(["node,age,label,fold", *nodes]),
        edges_csv="\n".join(["source,target", *edges]),
    )
    archive = tmp_path / "t.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in folder.iterdir():
            file.write(path, f"inside/{path.name}")
    line = ("build", "graphs", "--name=own", f"--archive={archive}", "--quiet", "--json")
    done = kmip(*line)
    assert done.code == 0, done.err
    assert done.json["split"] == "fold"
    data = kmip_data.open("own", split=None)[0]
    assert data.y.tolist() == [0, 1, 0, -1, 0, 1, 0, 1, 0]
    assert data.fold.tolist() == [0, 1, 2] * 3
    assert kmip_data.open("own", "train")[0].train_mask.tolist() == [
        True, False, False, False, False, False, True, False, False,
    ]  # fmt: skip
    random = kmip(*line, "--split-rule=random", "--set", "val_fraction=0.25").json
    assert {part: counts["nodes"] for part, counts in random["splits"].items()} == {
        "train": 5, "val": 2, "test": 1,
    }  # fmt: skip
    assert "fold" in refused(*line, "--split-rule=group")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    (tmp_path / "bad").mkdir()
    bad = write(tmp_path / "bad", edges_csv="source,target\n1\n")
    failed = refused(*line[:2], "--name=bad", f"--archive={bad}", "--quiet", code=4)
    assert "edges.csv, line 2: 1 field, and 2 in the first line" in failed
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        [*before, bad / "edges.csv"]
    )


def test_molecules_have_the_features_of_ogb(tmp_path):
    from torch_geometric.utils import from_smiles

    from kmip_data.pipelines.domains.molecules import molecule_from_smiles

    texts = ["CCO", "c1ccccc1Cl", "C/C=C/[N+](=O)[O-]", "[Na]"]
    lines = [f"m{i},{text},{i % 2},{i / 3},test" for i, text in enumerate(texts)]
    path = tmp_path / "m" / "molecules.csv"
    path.parent.mkdir()
    path.write_text("\n".join(["id,SMILES,toxic,gap,part", *lines, ""]))
    schema, records = made(path.parent, label=("toxic", "gap"))
    for number, (record, text) in enumerate(zip(records, texts, strict=True)):
        expected = molecule_from_smiles(text).record("")
        assert record.edge_index.tolist() == expected.edge_index.tolist()
        np.testing.assert_array_equal(record.columns["node/x"], expected.columns["node/x"])
        assert record.num_nodes == from_smiles(text).num_nodes
        np.testing.assert_allclose(record.columns["graph/y"], [number % 2, number / 3], rtol=1e-6)
    assert schema.labels.fields == ("toxic", "gap")
    assert int(records[0].columns["graph/part"]) == 2
    path.write_text("smiles,label\nCCO,1\nC1CC,0\n")
    with pytest.raises(DamagedInput, match=r"bad\.csv, line 3: .*'C1CC'"):
        made(write(tmp_path / "n", bad_csv=path.read_bytes()))
    _, (_, skipped) = made(write(tmp_path / "k", bad_csv=path.read_bytes()), on_error="skip")
    assert isinstance(skipped, Skipped)


# --- files of libraries ---------------------------------------------------------------------------


def same(record: GraphRecord, data) -> None:
    """Compare a record with PyTorch Geometric's ``Data``."""
    assert record.num_nodes == data.num_nodes
    np.testing.assert_array_equal(record.edge_index, data.edge_index.numpy())
    for attribute, key in (("x", "node/x"), ("edge_attr", "edge/edge_attr")):
        if data.get(attribute) is not None:
            np.testing.assert_allclose(record.columns[key], data[attribute].numpy())
    if data.y is not None:
        np.testing.assert_allclose(record.columns["graph/y"], data.y.numpy()[0])


def tu_files(folder: Path, *, targets: str) -> Path:
    rng = np.random.default_rng(1)
    sizes = rng.integers(2, 6, 7)
    graph = np.repeat(np.arange(7), sizes)
    first = np.repeat(np.cumsum(sizes) - sizes, 6)
    ends = first[:, None] + rng.integers(0, np.repeat(sizes, 6)[:, None], (42, 2))
    files = {
        "A": ends + 1, "graph_indicator": graph[:, None] + 1,
        "node_labels": rng.integers(3, 6, (len(graph), 2)), "edge_labels": rng.integers(0, 3, (42, 1)),
        "node_attributes": rng.integers(0, 9, (len(graph), 2)) / 2,
    }  # fmt: skip
    if targets == "graph_labels":
        files[targets] = rng.choice([-1, 1, 4], (7, 1))
    else:
        files[targets] = rng.integers(0, 9, (7, 2)) / 4
    folder.mkdir()
    for name, rows in files.items():
        lines = [", ".join(map(str, row)) for row in rows.tolist()]
        (folder / f"D_{name}.txt").write_text("\n".join([*lines, ""]))
    return folder


@pytest.mark.parametrize("targets", ["graph_labels", "graph_attributes"])
def test_a_tudataset_is_the_one_of_pytorch_geometric(tmp_path, targets):
    from torch_geometric.data.separate import separate
    from torch_geometric.io import read_tu_data

    folder = tu_files(tmp_path / "D", targets=targets)
    data, slices, _ = read_tu_data(str(folder), "D")
    _, records = made(folder)
    for number, record in enumerate(records):
        same(record, separate(type(data), data, number, slices, decrement=False))
    assert len(records) == 7


@pytest.mark.parametrize(
    ("labels", "names"), [((-1, 1), ("-1", "1")), ((0, 1), ()), ((1, 2, 4), ("1", "2", "4"))]
)
def test_class_numbers_of_a_tudataset_are_names(tmp_path, labels, names):
    folder = tu_files(tmp_path / "D", targets="graph_labels")
    rows = [str(labels[number % len(labels)]) for number in range(7)]
    (folder / "D_graph_labels.txt").write_text("\n".join([*rows, ""]))
    raw = RawFolder(folder, dict.fromkeys(sorted(file.name for file in folder.iterdir()), ""), ())
    params = PIPELINE.resolve(PIPELINE.Params(), raw)
    assert params.class_name == names
    assert params.inferred.schema.labels.num_classes == len(labels)

    _, records = made(folder, task="regression")
    values = [float(record.columns["graph/y"].item()) for record in records]
    assert values == [float(row) for row in rows]


def pyg_graphs() -> list:
    import torch
    from torch_geometric.data import Data

    generator = torch.Generator().manual_seed(0)
    graphs = []
    for nodes in (3, 5, 4):
        edges = torch.randint(nodes, (2, 6), generator=generator)
        x = torch.rand(nodes, 2, generator=generator)
        graphs.append(
            Data(x=x, edge_index=edges, edge_attr=x[edges[0]], y=torch.tensor([nodes % 2]))
        )
    return graphs


@pytest.mark.parametrize("layout", ["list", "pair", "new pair", "one", "pair of one", "files"])
def test_tensors_are_those_that_were_saved(tmp_path, layout):
    import torch
    from torch_geometric.data import Data, InMemoryDataset

    graphs = pyg_graphs()
    data, slices = InMemoryDataset.collate(graphs)
    saved = {
        "list": graphs, "pair": (data, slices), "new pair": (data.to_dict(), slices, Data),
        "one": graphs[0], "pair of one": (graphs[0].to_dict(), None, Data),
    }  # fmt: skip
    folder = write(tmp_path / "t")
    if layout == "files":
        for part, graph in zip(("test", "train", "valid"), graphs, strict=True):
            torch.save([graph], folder / f"{part}.pt")
    else:
        torch.save(saved[layout], folder / "graphs.pt")
    schema, records = made(folder)
    for record, graph in zip(records, graphs, strict="one" not in layout):
        same(record, graph)
    assert schema.labels.num_classes == 2
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
    folder = write(tmp_path / "t")
    torch.save(graph, folder / "graph.pt")
    schema, (record,) = made(folder, undirected=True)
    assert masks_of(folder).T.tolist() == [[0, 255, 255, 2], [255, 0, 2, 255]]
    assert record.columns["node/y"].tolist() == [0, 1, -1, 1]
    assert record.columns["edge/edge_time"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert schema.column("node/age").presented == "float64"
    assert int(record.columns["graph/year"]) == 1999
    assert record.columns["graph/flags"].tolist() == [1, 0, 1]
    assert schema.column("graph/flags").presented == "bool"
    assert made(folder, label=("age",))[0].labels.doc == "age"
    with pytest.raises(UsageError, match=r"graph\.pt, graph 0 .*'z'"):
        made(folder, label=("z",))
    with pytest.raises(UsageError, match="--set feature="):
        made(folder, feature=("age",))
    other = graph.clone()
    del other.year
    torch.save([graph, other], folder / "graph.pt")
    with pytest.raises(DamagedInput, match="00000001: 'year'"):
        made(folder)
    torch.save(Data(edge_index=edges, train_mask=train[:3]), folder / "graph.pt")
    with pytest.raises(DamagedInput, match=r"graph\.pt, graph 0 .*train is bool"):
        made(folder)


def test_masks_of_tables_and_positions_of_arrays_are_the_split(tmp_path):
    nodes = "node,x,train_mask,valid_mask,test_mask\n7,0.5,1,0,0\n5,0.5,0,0,1\n9,0.5,0,0,0\n"
    table = write(tmp_path / "t", edges_csv="source,target\n5,7\n", nodes_csv=nodes)
    schema, _ = made(table)
    assert schema.column("node/x").fields == ("x",)
    assert masks_of(table).tolist() == [0, 2, 255]
    arrays = {"edge_index": [[0], [1]], "x": np.eye(4), "train_idx": [3, 0], "valid_idx": [1]}
    folder = write(tmp_path / "n", a_npz=npz(**arrays))
    assert masks_of(folder).tolist() == [0, 1, 255, 0]


def test_nodes_are_numbered_by_row_where_they_have_no_ids(tmp_path):
    """A column that looks like ids is ignored with ``node=none``, or if it is named as a feature."""
    tables = {"edges_csv": "source,target\n1,2\n", "nodes_csv": "id,x\n2,7\n1,8\n3,9\n"}
    folder = write(tmp_path / "t", **tables)
    for parameters, edges in (
        ({"node": "id"}, [[1], [0]]),
        ({"node": "none"}, [[1], [2]]),
        ({"feature": ("id", "x")}, [[1], [2]]),
    ):
        _, (record,) = made(folder, **parameters)
        assert record.edge_index.tolist() == edges
    # Labels count the last nodes, where no edge and no feature does.
    arrays = {"edge_index": [[0], [1]], "y": [0, 1, 0]}
    assert made(write(tmp_path / "l", a_npz=npz(**arrays)))[1][0].num_nodes == 3
    graph = npz(edge_index=[[0], [1]], y=[0.5, 1, 0])  # one of two: its own targets
    for record in made(write(tmp_path / "two", a_npz=graph, b_npz=graph))[1]:
        assert (record.num_nodes, record.columns["graph/y"].shape) == (2, (3,))
    # A first line of counts that do not fit is an edge.
    _, (record,) = made(write(tmp_path / "e", edges_txt="4 2\n0 1\n1 2\n2 3\n"))
    assert record.num_edges == 4


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "benchmark"])
def test_arrays_are_those_of_scipy(tmp_path, form):
    from scipy import sparse

    matrix = sparse.random(8, 8, 0.3, form if form != "benchmark" else "csr", rng=0)
    folder = write(tmp_path / "n")
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
    schema, (record,) = made(folder)
    dense = np.zeros((8, 8), np.float32)
    dense[tuple(record.edge_index)] = record.columns["edge/edge_attr"][:, 0]
    np.testing.assert_array_equal(dense, matrix.toarray().astype(np.float32))
    if form == "benchmark":
        np.testing.assert_array_equal(record.columns["node/x"], attr.toarray().astype(np.float32))
        assert record.columns["node/y"].tolist() == (np.arange(8) % 3 - 1).tolist()
        assert schema.labels.num_classes == 2


@pytest.mark.parametrize("symmetry", ["symmetric", "general"])
@pytest.mark.parametrize("field", ["real", "pattern"])
def test_matrix_market_is_what_scipy_reads(tmp_path, symmetry, field):
    from scipy import io, sparse

    matrix = sparse.random_array((8, 8), density=0.3, rng=0)
    matrix = matrix + matrix.T if symmetry == "symmetric" else matrix
    folder = write(tmp_path / "m")
    io.mmwrite(folder / "a.mtx", matrix, field=field, symmetry=symmetry)
    _, (record,) = made(folder)
    read = io.mmread(folder / "a.mtx").toarray().astype(np.float32)
    weights = record.columns.get("edge/edge_attr", np.ones((record.num_edges, 1)))
    dense = np.zeros((8, 8), np.float32)
    dense[tuple(record.edge_index)] = weights[:, 0]
    np.testing.assert_array_equal(dense, read)
    assert ("edge/edge_attr" in record.columns) == (field == "real")


def test_refused_tensors_come_with_what_to_save_instead(tmp_path):
    import torch
    from torch_geometric.data import Batch, Data, HeteroData

    data, *_ = pyg_graphs()
    sparse = Data(x=data.x.to_sparse(), edge_index=data.edge_index)
    for value, words in (
        (Batch.from_data_list([data]), "to_data_list"),
        (HeteroData(), "to_homogeneous"),
        (sparse, "to_dense"),
        (Data(x=torch.complex(data.x, data.x), edge_index=data.edge_index), "view_as_real"),
    ):
        folder = write(tmp_path / words)
        torch.save(value, folder / "a.pt")
        with pytest.raises((DamagedInput, UsageError)) as caught:
            made(folder)
        assert words in caught.value.lines["next"]


def test_features_that_are_not_finite_are_a_warning(tmp_path):
    arrays = {"edge_index": [[0, 1], [1, 0]], "x": [[1.0], [np.nan]]}
    done = built(tmp_path / "a", a_npz=npz(**arrays))
    assert "not finite everywhere: x" in done.err


def test_a_single_1_of_each_row_is_a_class_where_that_is_said(tmp_path):
    classes = np.array([2, 0, 1, 2])
    file = npz(edge_index=[[0, 1], [1, 2]], labels=np.eye(3)[classes])
    folder = write(tmp_path / "n", a_npz=file)
    with pytest.raises(DamagedInput, match=r"labels 0, .* 1") as caught:
        made(folder)
    assert "task=classification" in caught.value.lines["next"]
    column = made(folder, task="multilabel")[0].labels
    assert (column.shape, column.stored) == ((3,), "uint8")
    line = ("build", "graphs", "--name=own", f"--archive={folder}", "--quiet")
    home = tmp_path / "home"
    assert kmip(*line, "--set=task=classification", f"--home={home}").code == 0
    data = kmip_data.open("own", split=None, home=home)[0]
    assert data.y.tolist() == classes.tolist()


def test_columns_without_names(tmp_path):
    """The index that pandas writes is no feature, and no number of a node that its row has not."""
    index = {"edges_csv": ",source,target\n0,0,1\n1,1,2\n", "nodes_csv": ",mass\n0,5\n1,6\n2,7\n"}
    schema, (record,) = made(write(tmp_path / "i", **index))
    assert schema.column("node/x").fields == ("mass",)
    assert "edge/edge_attr" not in record.columns
    other = write(tmp_path / "o", **{**index, "nodes_csv": ",mass\n0,5\n2,6\n1,7\n"})
    with pytest.raises(DamagedInput, match="Unnamed: 0"):
        made(other)
    _, (record,) = made(other, node="Unnamed: 0")
    assert record.edge_index.tolist() == [[0, 2], [2, 1]]
    # Lines of a matrix, or a node and its neighbours, have no names either.
    matrix = write(tmp_path / "m", edges_txt="% a matrix\n0 1 1 0\n1 0 0 1\n")
    with pytest.raises(DamagedInput, match=r"edges\.txt .*4 columns"):
        made(matrix)
    _, (record,) = made(matrix, feature=("3",))
    assert record.columns["edge/edge_attr"].tolist() == [[0], [1]]


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
    _, (record,) = made(write(tmp_path / "n", a_npz=npz(**{name: np.array(shape)})))
    assert record.edge_index.tolist() == expected


@pytest.mark.parametrize("directed", [True, False])
def test_graphml_is_what_networkx_reads(tmp_path, directed):
    import networkx as nx

    folder = write(tmp_path / "g")
    for name in ("a", "b"):
        graph = nx.gnp_random_graph(6, 0.5, seed=len(name), directed=directed)
        graph.graph["label"] = name
        for node in graph:
            graph.nodes[node].update(mass=node / 2, size=node)
        for number, (_, _, data) in enumerate(graph.edges(data=True)):
            data["weight"] = number
        nx.write_graphml(nx.relabel_nodes(graph, "n{}".format), folder / f"{name}.graphml")
    schema, records = made(folder)
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
    """Write a graph in the format that the end of the name says; of JSON, by a function of networkx."""
    import networkx as nx

    if path.suffix != ".json":
        getattr(nx, f"write_{path.suffix[1:]}")(graph, path)
        return
    written = getattr(nx, path.stem)(graph)
    path.write_text(json.dumps(written), "utf-8")


NETWORKS = ["a.graphml", "a.gexf", "a.gml", "node_link_data.json", "adjacency_data.json"]


@pytest.mark.parametrize("name", [*NETWORKS, "cytoscape_data.json"])
def test_files_of_networkx_are_what_it_reads(tmp_path, name):
    folder = write(tmp_path / "n")
    graph = club()
    write_network(folder / name, graph)
    schema, (record,) = made(folder, label=("club",))
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
    folder = write(tmp_path / "n", a_json=json.dumps(graphs))
    schema, records = made(folder)
    assert [record.key for record in records] == ["a", "a/1", "a/2"]
    assert schema.column("node/x").fields == ("emb_0", "emb_1")
    assert records[0].columns["node/x"].tolist() == [[0, 0.5], [1, 0.5]]
    assert schema.labels.num_classes == 2


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
    repeated = write(tmp_path / "repeated", a_gml=GML.replace("  multigraph 1\n", ""))
    assert made(repeated)[1][0].edge_index.tolist() == [[0, 0], [1, 1]]
    folder = write(tmp_path / "names", a_gml=GML.format("left", "right"))
    schema, (record,) = made(folder)
    assert schema.labels is None
    assert record.columns["node/x"].tolist() == [[3], [1]]
    assert record.edge_index.tolist() == [[0, 0], [1, 1]]
    same = write(tmp_path / "classes", a_gml=GML.format("left", "left"))
    assert made(same)[0].labels.num_classes == 1


def test_the_eight_files_of_planetoid_are_the_dataset_of_that_name(tmp_path):
    """The sample of Cora has the layout of the files; its graph, classes and public split are Planetoid's."""
    home = f"--home={tmp_path / 'home'}"
    assert kmip("build", "cora", "--sample", "--quiet", home).code == 0
    raw = write(tmp_path / "raw")
    for file in (tmp_path / "home").rglob("ind.cora.*"):
        shutil.copy(file, raw)
    assert kmip("build", "graphs", "--name=mine", f"--archive={raw}", "--quiet", home).code == 0
    for part in ("train", "val", "test"):
        named = kmip_data.open("cora", part, sample=True, home=tmp_path / "home")[0]
        user_graph = kmip_data.open("mine", part, home=tmp_path / "home")[0]
        for attribute in ("x", "y", "edge_index", f"{part}_mask"):
            assert np.array_equal(user_graph[attribute], named[attribute]), attribute


def test_many_graphs_are_cut_into_shards_of_a_size(tmp_path, monkeypatch):
    arrays = {"edge_index": [[0], [1]], "x": np.ones((4, 3))}
    folder = write(tmp_path / "n", **{f"{number}_npz": npz(**arrays) for number in range(10)})
    raw = RawFolder(folder, dict.fromkeys(sorted(file.name for file in folder.iterdir()), ""), ())
    for bytes_of_shard, sizes in (
        (10**6, [10]),
        (3 * 42, [3, 3, 3, 1]),
        (1, [1] * 10),
    ):
        monkeypatch.setattr(inference, "MAX_SHARD_BYTES", bytes_of_shard)
        params = PIPELINE.resolve(PIPELINE.Params(), raw)
        units = PIPELINE.units(PIPELINE.prepare(raw, params, tmp_path), params)
        assert [len(unit.items["rows"]) for unit in units] == sizes


# --- labels --------------------------------------------------------------------------------------

#: Values of the labels, the set task: kind and stored type of their column, or a problem.
LABELS = [
    (["0", "2", "1"], None, (3, "uint8")),
    (["0.5", "2", ""], None, (None, "float32")),
    (["0", "1", "2"], "regression", (None, "float32")),
    (["no", "yes", "no"], None, (2, "uint8")),
    (["0", "1", ""], "multilabel", (1, "float16")),
    (["0", "1", ""], None, (2, "int8")),
    (["no", "yes", ""], None, (2, "int8")),
    (["1", "2", "x"], None, "line 4: .*'x' among numbers"),
    (["-1", "1", "1"], None, "-1 to 1.*classification"),
    (["1", "2", "3"], "multilabel", "1 to 3.*multilabel"),
    (["2003", "2001", "2003"], None, (2, "uint8")),
    (["2003", "", "2001"], None, (2, "int8")),
    (["0", "1", "3"], None, (4, "uint8")),
]


def test_labels_say_what_the_task_is(tmp_path):
    def check(case):
        values, task, expected = case
        rows = [f"{number},1,1,{value}" for number, value in enumerate(values)]
        number = len(list(tmp_path.iterdir()))
        folder = write(
            tmp_path / f"{number:02d}",
            table_csv="\n".join(["graph,source,target,label", *rows, ""]),
        )
        if isinstance(expected, str):
            with pytest.raises((DamagedInput, UsageError), match=expected) as caught:
                made(folder, task=task)
            assert caught.value.lines["next"]
            return
        column = made(folder, task=task)[0].labels
        assert (column.num_classes, column.stored) == expected

    check_each(check, LABELS)


def test_numbers_next_to_a_missing_one_are_a_target_and_no_names(tmp_path):
    """Though nearly all differ, as names do."""
    cells = [*(f"{row / 7:.3f}" for row in range(30)), "NA"]
    nodes = [f"{row},{cell}" for row, cell in enumerate(cells)]
    tables = {
        "nodes_csv": "\n".join(["node,label", *nodes]),
        "edges_csv": "source,target\n0,30\n",
    }
    schema, (record,) = made(write(tmp_path / "t", **tables))
    assert schema.labels.num_classes is None
    y = record.columns["node/y"]
    assert np.allclose(y[:-1], [float(cell) for cell in cells[:-1]])
    assert np.isnan(y[-1])


# --- bad input -----------------------------------------------------------------------------------


def npz(**arrays):
    """Bytes of ``numpy.savez``."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def zip_of(name, content):
    """Bytes of a zip with one file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


EMPTY_MEMBER = zip_of("edge_index.npy", b"")
HUGE = 10**12
ENTRY = {"data": [1], "row": [0], "col": [0]}
ROWS = {f"attr_{key}": value for key, value in ENTRY.items()}
EDGE = np.zeros((2, 1), int)
MATRIX = {"adj_data": [1], "adj_indices": [0], "adj_indptr": [0, 1], "adj_shape": 1}
PICKLE = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00trueq\x01\x85R."
GRAPHML = "<graphml xmlns='http://graphml.graphdrawing.org/xmlns'>{}</graphml>"
TU = {"D_A_txt": "1, 2\n2, 1\n3, 3\n", "D_graph_indicator_txt": "1\n1\n2\n"}
FOLDS = {"train_mask": np.ones((1, 2), bool), "val_mask": np.zeros((1, 3), bool)}
DEEP = b"\x93NUMPY\1\0\xe7\3"
LARGE = GRAPHML.format(
    "<key id='k' for='node' attr.name='k' attr.type='int'/>"
    f"<graph edgedefault='directed'><node id='a'><data key='k'>{10**400}</data></node></graph>"
)
ENDS = ["x", "tx", "allx", "y", "ty", "ally", "graph"]
BAD = [
    ({"edges_csv": ""}, {}, "edges.csv is empty"),
    ({"edges_csv": "source,source\n"}, {}, "two columns called 'source'"),
    ({"edges_csv": "source,target\n"}, {}, "no graph"),
    ({"edges_csv": "source,to,w\n1,2,3\n"}, {}, "no columns called .*source"),
    ({"edges_csv": "source,target,from,to\n1,2,3,4\n"}, {}, "several pairs"),
    ({"edges_csv": "source,target\n1,2\n", "nodes_csv": "0,1\n5,6\n"}, {}, "nodes.csv, line 1 .*0, 1"),
    ({"edges_csv": "source,target\n1,2\n1,2,3\n"}, {}, "line 3.* 3"),
    ({"edges_csv": "source,target\n1,2,3\n1,2,3\n"}, {}, "line 1: 2 fields, and 3 "),
    ({"edges_csv": "source,target\n1,2\n1\n"}, {}, "line 3: 1 field, and 2 "),
    ({"edges_csv": "source,target\na,b\n,b\n"}, {}, "line 3: 'source'"),
    ({"edges_csv": "source,target\n1,2\n3,nan\n"}, {}, "line 3: 'target' is 'nan'"),
    ({"edges_csv": b"source,target\n1,\xff\n"}, {}, "edges.csv, line 2.* not in utf-8"),
    ({"edges_csv": 'source,target\n"1,2\n'}, {}, "line 2: a quote is opened and never closed"),
    ({"edges_gz": gzip.compress(EDGES.encode())[:-9]}, {}, "edges.gz.* table"),
    ({"edges_gz": b"\x1f\x8bnothing"}, {}, "edges.gz.* gzip"),
    ({"a_npz": EMPTY_MEMBER}, {}, "a.npz, edge_index"),
    ({"a_npz": npz(**MATRIX)}, {}, "a.npz.* graph"),
    ({"a_npz": npz(edge_index=np.zeros((2, 1), int), x=1.0)}, {}, "a.npz.* graph"),
    ({"a_npz": npz(**ENTRY, shape=[HUGE, HUGE])}, {}, "a.npz: 1,000,000,000,000 nodes"),
    ({"a_npz": npz(edge_index=EDGE + HUGE)}, {}, "a.npz: 1,000,000,000,001 nodes"),
    ({"a_npz": npz(edge_index=EDGE, **ROWS, attr_shape=[HUGE, 2])}, {}, "a.npz: 1,000,000,000,000 nodes"),
    ({"edges_csv": "source,target,w\n1,2,3\n3,2,4\n2,1,x\n"}, {}, "line 4: .*'w' is 'x'"),
    ({"edges_csv": "source,target,w\n1,2,1700000000\n2,1,1700000001\n"}, {}, "line 3: .*'w' is 1700000001"),
    ({"edges_csv": "source,target,w\n1,2,1e99\n"}, {}, "line 2: .*'w' is 1e"),
    ({"edges_csv": "graph,source,target,label\n1,1,2,0\n1,2,1,1\n"}, {}, "line 3: label "),
    ({"edges_csv": EDGES}, {"label": ("y",)}, "'y'"),
    ({"edges_csv": EDGES}, {"feature": ("y",)}, "'y'"),
    ({"edges_csv": EDGES, "nodes_csv": "node\n1\n"}, {}, "nodes.csv has no column with the graph"),
    ({"edges_csv": EDGES, "nodes_csv": "graph,node\na,5\na,7\n"}, {}, "line 4: .*'b'"),
    ({"edges_csv": EDGES, "nodes_csv": "graph\na\na\nb\nc\n"}, {}, "edges.csv, line 2: .* 5 "),
    ({"edges_csv": EDGES, "nodes_csv": NODES + "c,1,2,x\n"}, {"feature": ("none",)}, "line 8: "),
    ({"edges_csv": EDGES, "graphs_csv": "graph,label\na,1\nb,1\n"}, {}, "line 5: .*'c'"),
    ({"edges_csv": EDGES, "graphs_csv": GRAPHS + "d,good,no\n"}, {}, "line 5: 'fold' is 'no'"),
    ({"edges_csv": EDGES, "graphs_csv": "graph,split\na,1\nb,0\nc,0\n"}, {}, "line 2: 'split' is"),
    ({"edges_csv": EDGES, "edges_tsv": EDGES}, {}, "edges.csv, edges.tsv"),
    ({"edges_txt": "4 3\n0 1\n1 2\n2 3\n"}, {}, "line 1: 4 3 "),
    ({"edges_csv": "source,target\n0,2\n", "nodes_csv": "key,x\n2,7\n1,7\n0,7\n"}, {}, "may be those in key"),
    ({"edges_csv": "source,target\n0,2\n", "nodes_csv": "id,x\n3,7\n1,7\n2,7\n"}, {}, "not those of the edges"),
    ({"edges_csv": "graph,graph_id,source,target\n1,1,0,1\n"}, {}, "several columns .*graph, graph_id"),
    ({"edges_csv": "source,target\n0,1\n", "nodes_csv": "train_mask\n1\n2\n"}, {}, "nodes.csv: .* 2 nodes"),
    ({"a_npz": npz(edge_index=EDGE, x=[[1], [2]], train_idx=[2])}, {}, "train_idx"),
    ({"a_npz": npz(edge_index=EDGE, train_idx=[0], train_mask=[1])}, {}, "train .*train_"),
    ({"a_bin": b"\0\1\2"}, {}, "a.bin"),
    ({"edges_csv": EDGES}, {"smiles": "y"}, "'y'"),
    ({"a_pt": PICKLE}, {}, "a.pt is .*not run"),
    ({"a_npz": b"PK\3\4" + bytes(22) + b"\5\0\0\0a.npy"}, {}, "a.npz.* archive"),
    ({"a_graphml": "<!DOCTYPE x [<!ENTITY a 'b'>]><graphml/>"}, {}, "a.graphml.* document type"),
    ({"a_graphml": GRAPHML.format("<graph>")}, {}, "a.graphml.* GraphML"),
    ({"a_gexf": "<!DOCTYPE x><gexf/>"}, {}, "a.gexf.* document type"),
    ({"a_gexf": "<gexf version='9'/>"}, {}, "a.gexf.* GEXF"),
    ({"a_gml": "graph [ node [ id 1 ] edge [ source 1 ] ]"}, {}, "a.gml.* GML"),
    ({"a_json": "[" * 100_000}, {}, "a.json.* JSON"),
    ({"a_json": '{"x": [1]}'}, {}, "a.json.* JSON.*'x'"),
    ({"ind.cora_x": PICKLE}, {}, r"ind.cora.tx, .*"),
    ({f"ind.{name}_x": PICKLE for name in "ab"}, {}, "2 graphs: a, b"),
    ({f"ind.a_{end}": PICKLE for end in ENDS} | {"ind.a.test_index": "3"}, {}, "system"),
    ({**TU, "D_graph_indicator_txt": "2\n1\n2\n"}, {}, "D_graph_indicator.txt, line 2: "),
    ({**TU, "D_graph_indicator_txt": f"1\n1\n{HUGE}\n"}, {}, "line 3: .*1,000,000,000,000"),
    ({**TU, "D_graph_indicator_txt": f"1\n1\n{HUGE}\n", "D_graph_labels_txt": "1\n"}, {}, "1 lines, not 1,000"),
    ({**TU, "D_A_txt": "1, 2\n1, 3\n"}, {}, "D_A.txt, line 2: "),
    ({**TU, "D_A_txt": "1, 4\n"}, {}, "D_A.txt, line 1: .* 4"),
    ({**TU, "D_node_labels_txt": "1\n2\n"}, {}, "D_node_labels.txt has 2 lines, not 3"),
    ({**TU, "D_graph_labels_txt": "1\nx\n"}, {}, "line 2: .*'0' is x"),
    ({**TU, "D_node_labels_txt": f"{-(2**63)}\n1\n{2**63 - 1}\n"}, {}, "line 3: .*10,000"),
    ({"a_npz": npz(edge_index=EDGE, x=[[1e300]])}, {}, "a.npz.* overflow"),
    ({"a_npz": npz(edge_index=EDGE, y=[[np.nan]])}, {}, "missing"),
    ({"a_npz": npz(edge_index=EDGE, y=[[1e300, 0.5]])}, {}, "0.5 to 1e.*regression"),
    ({"a_npz": npz(edge_index=EDGE, y=[[0]]), "b_npz": npz(edge_index=EDGE)}, {}, "Graph b: 'y'"),
    ({"a_npz": npz(edge_index=EDGE, **FOLDS)}, {}, "masks .*2, 3"),
    ({"a_npz": npz(edge_index=EDGE, x=np.eye(3), y=[0, 1])}, {}, "2 labels .* 3 nodes"),
    ({"a_mtx": "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1\n"}, {}, "2 x 3 real values"),
    ({"a_mtx": "%%MatrixMarket matrix coordinate real general\n2 2 9\n1 1 1\n"}, {}, "a.mtx.* graph"),
    ({"a_mtx": "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n"}, {}, "complex values"),
    ({"a_npz": zip_of("edges.npy", DEEP + b"(" * 999)}, {}, "a.npz, edges"),
    ({"a_npz": zip_of("edges.npy", DEEP + b"-" * 999)}, {}, "a.npz, edges"),
    ({"a_graphml": LARGE}, {}, "number 0: .k. is inf"),
    ({"m_csv": f"smiles,y\nC,1\n{'C' * 10_001},1\n"}, {}, "line 3: .* 10,001"),
]  # fmt: skip


def test_a_label_that_no_table_has_lists_the_columns_of_all(tmp_path):
    folder = write(tmp_path / "t", edges_csv=EDGES, nodes_csv=NODES, graphs_csv=GRAPHS)
    with pytest.raises(UsageError, match="'club'") as caught:
        made(folder, label=("club",))
    columns = (
        "graphs.csv: graph, label, fold; nodes.csv: graph, node, mass, kind; "
        "edges.csv: graph, source, target, weight"
    )
    assert caught.value.lines["found"] == columns


def test_bad_files_are_errors_that_name_the_row(tmp_path):
    def check(case):
        files, options, message = case
        number = len(list(tmp_path.iterdir()))
        with pytest.raises((DamagedInput, UsageError), match=message):
            made(write(tmp_path / f"{number:03d}", **files), **options)

    check_each(check, BAD)


@pytest.mark.parametrize("bounds", [[], 5, [0, 1], [1, 2, 3, 4, 5, 6, 7], [0, 3, 2, 3, 4, 5, 6]])
def test_slices_that_do_not_fit_are_refused(tmp_path, bounds):
    import torch
    from torch_geometric.data import InMemoryDataset

    data, slices = InMemoryDataset.collate(pyg_graphs())
    folder = write(tmp_path / "t")
    torch.save((data, {**slices, "y": torch.tensor(bounds)}), folder / "a.pt")
    with pytest.raises(DamagedInput, match=r"a\.pt: .*slices"):
        made(folder)


def test_names_and_labels_of_other_kinds_are_read(tmp_path):
    """Names of graphs beyond ASCII, labels that are true or false, a tensor of no axes."""
    import torch
    from torch_geometric.data import Data

    schema, (record,) = made(write(tmp_path / "t", edges_csv="source,target,graph\n1,2,中国\n"))
    assert len(record.key) <= schema.key_length
    _, records = made(write(tmp_path / "b", **TU, D_node_labels_txt="True\nFalse\nTrue\n"))
    assert records[0].columns["node/x"].tolist() == [[0, 1], [1, 0]]
    folder = write(tmp_path / "p")
    torch.save(Data(edge_index=torch.tensor([[0], [1]]), x=torch.tensor(2.0)), folder / "a.pt")
    _, (record,) = made(folder)
    assert (record.num_nodes, record.columns["graph/x"]) == (2, 2)


def test_a_build_of_which_every_record_is_skipped_is_refused(tmp_path):
    table = tmp_path / "m.csv"
    table.write_text("smiles\nC(C\n")
    line = ["build", "graphs", "--name=own", f"--archive={table}", "--set=on_error=skip"]
    message = refused(*line, f"--home={tmp_path / 'home'}", code=4)
    assert "All 1 records were skipped" in message
    assert "m.csv, line 2" in message


# --- memory --------------------------------------------------------------------------------------


def bomb(gigabytes: int) -> bytes:
    """Bytes of an npz whose features are zeros."""
    file = io.BytesIO()
    header = io.BytesIO()
    columns = gigabytes * 10**9 // 8
    kind = {"descr": "<f4", "fortran_order": False, "shape": (2, columns)}
    np.lib.format.write_array_header_1_0(header, kind)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("edge_index.npy", npy(np.array([[0, 1], [1, 0]])))
        with archive.open("x.npy", "w") as member:
            member.write(header.getvalue())
            block = bytes(2**20)
            for start in range(0, 8 * columns, len(block)):
                member.write(block[: 8 * columns - start])
    return file.getvalue()


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def far_tensors() -> bytes:
    import torch
    from torch_geometric.data import Data

    file = io.BytesIO()
    torch.save(Data(edge_index=torch.tensor([[0], [2**31]])), file)
    return file.getvalue()


#: File -> its bytes, and what is said; each takes 5 to 100 GB where it is read.
HUGE_FILES = {
    "many.mtx": (
        lambda: b"%%MatrixMarket matrix coordinate pattern general\n9 9 999999999\n1 1\n",
        r"many\.mtx .* 48\.0 GB",
    ),
    "far.npz": (
        lambda: npz(edge_index=np.array([[0], [2**31]])),
        "2,147,483,649 nodes",
    ),
    "far.pt": (far_tensors, "2,147,483,649 nodes"),
    "zeros.npz": (lambda: bomb(1), r"zeros\.npz .* 6\.0 GB"),
    "long.npz": (
        lambda: npz(edge_index=EDGE, **ROWS, attr_shape=[10**7, 10**3]),
        r"long\.npz .* 120\.0 GB",
    ),
    "wide.npz": (
        lambda: npz(edge_index=EDGE, **ROWS, attr_shape=[1, HUGE]),
        r"wide\.npz .* 12\.0 TB",
    ),
    "bomb.csv.gz": (
        lambda: gzip.compress(b"source,target\n" + b"1,2\n" * 50_000_000, 1),
        r"bomb\.csv\.gz .* 4\.3 GB",
    ),
}


@pytest.mark.parametrize("name", HUGE_FILES)
def test_a_small_file_of_a_large_graph_is_refused_before_it_is_read(tmp_path, name):
    content, message = HUGE_FILES[name]
    path = tmp_path / name
    path.write_bytes(content())
    line = ["build", "graphs", "--name=own", f"--archive={path}", f"--home={tmp_path / 'home'}"]
    before = peak_host_memory()
    said = refused(*line, "--quiet", code=6)
    assert re.search(message, said), said
    assert re.search("next: --memory [0-9]+GiB", said), said
    assert peak_host_memory() - before < 2**29
    assert not list((tmp_path / "home").rglob("*.*"))


def test_memory_is_the_limit_of_reading(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_bytes(b"source,target\n" + b"1,2\n" * 6_000_000)
    line = ["build", "graphs", "--name=own", f"--archive={path}", f"--home={tmp_path / 'home'}"]
    assert "536.9 MB are allowed" in refused(*line, "--quiet", "--memory=512MiB", code=6)


def test_graphml_takes_many_times_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "MAX_MEMORY", 2**20)
    nodes = "".join(f"<node id='{number}'/>" for number in range(2_000))
    path = tmp_path / "a.graphml"
    path.write_text(GRAPHML.format(f"<graph edgedefault='directed'>{nodes}</graph>"))
    line = ("build", "graphs", "--name=own", f"--archive={path}", f"--home={tmp_path / 'home'}")
    message = refused(*line, code=6)
    assert re.search(r"a\.graphml .* 2\.[0-9] MB .* 1\.0 MB", message)


def test_memory_that_runs_out_while_tensors_are_read_is_no_damage(tmp_path, monkeypatch):
    import torch

    folder = write(tmp_path / "t")
    torch.save(pyg_graphs(), folder / "a.pt")

    def full(*_, **__):
        raise MemoryError("no room")

    monkeypatch.setattr(torch_files, "key_columns_by_level", full)
    with pytest.raises(OutOfResources, match="no room"):
        made(folder)
    monkeypatch.setattr(np, "frombuffer", full)
    with pytest.raises(OutOfResources, match="no room"):
        made(folder)


def test_memory_that_runs_out_is_no_damaged_table(tmp_path, monkeypatch):
    """Pandas says so by an error of its parser."""

    def read_csv(*_, **__):
        raise pd.errors.ParserError("Error tokenizing data. C error: out of memory")

    folder = write(tmp_path / "t", edges_csv=EDGES)
    monkeypatch.setattr(pd, "read_csv", read_csv)
    with pytest.raises(OutOfResources, match=r"edges\.csv"):
        made(folder)


# --- what the files were -------------------------------------------------------------------------


def built(home, *options, **files):
    """Build files by the command line, as JSON."""
    folder = write(home.with_suffix(".files"), **files)
    line = ["build", "graphs", "--name=own", f"--archive={folder}", "--quiet", *options]
    done = kmip(*line, f"--home={home}", "--json")
    assert done.code == 0, done.err
    return done


def test_edges_that_go_one_way_are_a_warning(tmp_path):
    """A file with each edge once, as the node benchmarks have it, is reported with a warning and its remedy."""
    edges = np.array([[0, 1], [1, 2], [2, 2]])
    arrays = {"edges": edges, "node_features": np.eye(5, 2), "node_labels": [0, 1, 0, 1, 1]}
    masks = {}
    for row, part in enumerate(("train", "val", "test")):
        masks[f"{part}_masks"] = np.roll(np.eye(5, dtype=bool)[:3], row, axis=1)
    file = npz(**arrays, **masks, notes=np.array(["a"]))
    done = built(tmp_path / "a", a_npz=file)
    assert {key: value for key, value in done.json["files"].items() if key != "columns"} == {
        "directed": "yes: no edge of the files has its reverse",
        "self_loops": 1,
        "isolated_nodes": 2,
        "repeated_edges": 0,
        "given_splits": ["masks, folds 0 to 2"],
        "ignored": ["notes: no array of this format"],
        "missing": [],
        "warnings": [done.json["files"]["warnings"][0]],
    }
    assert "--set undirected=true" in done.json["files"]["warnings"][0]
    assert done.err.count("warning: no edge of the files has its reverse") == 1
    line = ["build", "graphs", "--name=own", f"--archive={tmp_path / 'a.files'}", "--quiet"]
    text = kmip(*line, f"--home={tmp_path / 'a'}").out
    target = r"target +classification of each node \(node_labels\)"
    for words in (
        target,
        r"self loops +1",
        r"isolated nodes +2",
        r"classes +2 \(2, 3\)",
        r"ignored +notes",
    ):
        assert re.search(words, text), text

    bare = write(tmp_path / "bare", edges_csv="source,target\n0,1\n")
    text = kmip(*line[:3], f"--archive={bare}", "--quiet", f"--home={tmp_path / 'c'}").out
    assert "target          none: a trained run can predict it\n" in text

    both = built(tmp_path / "b", "--set=undirected=true", a_npz=file)
    assert both.json["files"]["directed"] == "no: undirected=true added the reverse of each edge"
    assert both.json["files"]["warnings"] == []
    assert "warning" not in both.err


def test_directions_are_said_with_their_reason(tmp_path):
    both = "source,target\n1,2\n2,1\n"
    done = built(tmp_path / "a", edges_csv=both)
    assert done.json["files"]["directed"] == "no: the files have each edge both ways"
    assert "warning" not in done.err
    some = built(tmp_path / "b", edges_csv=both + "2,3\n3,4\n")
    expected = "yes: 50.0% of the edges of the files have their reverse"
    assert some.json["files"]["directed"] == expected
    all_both = built(tmp_path / "c", "--set=undirected=true", edges_csv=both)
    assert all_both.json["files"]["directed"] == "no: the files have each edge both ways"
    rest = built(tmp_path / "d", "--set=undirected=true", edges_csv=both + "2,3\n3,4\n")
    expected = "no: undirected=true added the reverse of each edge that lacked it"
    assert rest.json["files"]["directed"] == expected
    assert "warning" not in rest.err
    weights = both.replace("2,1", "2,1,7").replace("1,2\n", "1,2,5\n").replace("get", "get,w")
    other = built(tmp_path / "e", "--set=undirected=true", edges_csv=weights)
    assert "2 edges have other attributes than their reverse: each keeps its own" in other.err


def missing_reverses(edges: list[tuple[int, int]]) -> list[int]:
    """Positions of edges without a reverse, looked for one by one."""
    waiting = Counter()
    partners = Counter(edges)
    lacking = []
    for position, (source, target) in enumerate(edges):
        waiting[source, target] += 1
        if source != target and waiting[source, target] > partners[target, source]:
            lacking.append(position)
    return lacking


def test_each_edge_that_lacks_its_reverse_gets_it(tmp_path):
    """As often as the edge occurs; without repeated edges, the edges are PyTorch Geometric's."""
    import torch
    from torch_geometric.utils import to_undirected

    rng = np.random.default_rng(0)
    for number in range(60):
        nodes = int(rng.integers(1, 9))
        index = rng.integers(0, nodes, (2, int(rng.integers(0, 30))))
        if number % 2:
            index = np.unique(index, axis=1)
            rng.shuffle(index, axis=1)
        weights = rng.integers(0, 3, (index.shape[1], 2)) / 2
        graph = GraphRecord(
            key="a", num_nodes=nodes, columns={"edge/w": weights, "node/x": np.eye(nodes)},
            edge_index=index,
        )  # fmt: skip
        whole, unequal = edge_directions.with_reverse_edges(graph)
        edges = [(int(a), int(b)) for a, b in index.T]
        expected = []
        lacking = missing_reverses(edges)
        for position, (edge, weight) in enumerate(zip(edges, weights.tolist(), strict=True)):
            expected.append((edge, weight))
            if position in lacking:
                expected.append((edge[::-1], weight))
        ends = map(tuple, whole.edge_index.T.tolist())
        assert list(zip(ends, whole.columns["edge/w"].tolist(), strict=True)) == expected
        assert whole.columns["node/x"] is graph.columns["node/x"]
        again, still = edge_directions.with_reverse_edges(whole)
        assert np.array_equal(again.edge_index, whole.edge_index)
        if number % 2:
            undirected = to_undirected(torch.from_numpy(index), num_nodes=nodes)
            found = np.unique(whole.edge_index, axis=1)
            assert np.array_equal(found, undirected.numpy())
            assert found.shape == whole.edge_index.shape
            table = dict(zip(edges, weights.tolist(), strict=True))
            pairs = [table[edge] != table.get(edge[::-1], table[edge]) for edge in edges]
            assert unequal == still == sum(pairs)


def test_directions_of_a_large_graph_are_those_of_some_of_its_pairs(monkeypatch):
    monkeypatch.setattr(edge_directions, "_MAX_PAIRS", 1_000)
    rng = np.random.default_rng(0)
    edges = np.unique(rng.integers(0, 10_000, (50_000, 2)), axis=0).T
    edges = edges[:, edges[0] < edges[1]]
    for share in (0, 0.5, 1):
        counts = edge_directions.EdgeCounts(PIPELINE.Params())
        again = edges[::-1, : int(share * edges.shape[1])]
        counts.add(np.concatenate([edges, again], axis=1), 10_000)
        assert 500 < counts.looked_for < 4_000
        expected = 2 * share / (1 + share)
        assert abs(counts.reversed / counts.looked_for - expected) < (
            0.05 if share == 0.5 else 1e-9
        )


def test_columns_that_nothing_is_made_of_are_named(tmp_path):
    nodes = "node,mass,name\n1,1,a\n2,2,b\n"
    done = built(
        tmp_path / "a",
        "--set=feature=mass",
        edges_csv="source,target,since\n1,2,3\n",
        nodes_csv=nodes,
        readme_txt="what it is",
    )
    ignored = [line.partition(": ") for line in done.json["files"]["ignored"]]
    assert sorted(name for name, _, reason in ignored if reason) == ["name", "readme.txt", "since"]


def test_columns_of_masks_are_folds(tmp_path, monkeypatch):
    """Chosen at the build, at opening and at training; no attribute of its own for each."""
    home = tmp_path / "home"
    monkeypatch.setenv("KMIP_DATA_HOME", str(home))
    rng = np.random.default_rng(0)
    part = rng.integers(0, 3, (12, 4))
    masks = {f"{name}_mask": part == code for code, name in enumerate(("train", "val", "test"))}
    edges = np.stack([np.arange(12), (np.arange(12) + 1) % 12], axis=1)
    file = npz(edges=edges, node_features=np.eye(12), node_labels=np.arange(12) % 2, **masks)
    first = built(home, a_npz=file)
    assert first.json["split"] == "masks-fold0"
    third = built(home, "--set=fold=2", a_npz=file)
    assert third.json["split"] == "masks-fold2"
    counts = {name: counts["nodes"] for name, counts in third.json["splits"].items()}
    assert list(counts.values()) == np.bincount(part[:, 2], minlength=3).tolist()
    data = kmip_data.open("own", "train", split_name="masks-fold2")[0]
    assert data.train_mask.tolist() == (part[:, 2] == 0).tolist()
    assert not [name for name in data.keys() if name.startswith("masks")]  # noqa: SIM118
    line = ["build", "graphs", "--name=own", f"--archive={home}.files", "--quiet"]
    assert "has 4 folds: there is no fold 4" in refused(*line, "--set=fold=4")
    run = kmip(
        "train", "--dataset=own", "--model=gcn", "--epochs=1", "--set=data.split.fold=3",
        "--set=model.layers=1", "--name=third", "--quiet",
    )  # fmt: skip
    assert run.code == 0, run.err
    assert "masks-fold3" in kmip_data.open("own", split=None).card.splits
