"""Your own graphs: ids, rows, splits, masks, labels and shards, whatever the format."""

from __future__ import annotations

import gzip
import zipfile

import numpy as np
from support.cases import check_each
from support.cli import expect_refusal, kmip
from support.graph_files import (
    EDGES,
    GRAPHS,
    NODES,
    PIPELINE,
    build_files,
    masks_of,
    npz_bytes,
    read_folder,
    write_files,
)
from support.raises import raises

import kmip_data
from kmip_data.errors import DamagedInput, OpenQuestions, Setting
from kmip_data.format.writer import SkippedRecord
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.datasets.graphs import inference


def test_tables_of_edges_nodes_and_graphs_are_read(tmp_path):
    folder = write_files(
        tmp_path / "t", edges_csv=EDGES, nodes_tsv=NODES.replace(",", "\t"), graphs_csv=GRAPHS
    )
    schema, records = read_folder(folder, feature=("mass", "weight"))
    assert [record.key for record in records] == ["a", "b", "c"]
    first, _, last = records
    assert first.edge_index.tolist() == [[1, 0], [0, 2]]  # positions in the table of nodes
    assert first.columns["node/x"].tolist() == [[1], [2], [3]]
    assert first.columns["edge/edge_attr"].tolist() == [[0.5], [1.5]]
    assert last.edge_index.tolist() == [[1], [0]]
    assert [int(record.columns["graph/y"]) for record in records] == [1, 0, 1]
    assert [int(record.columns["graph/fold"]) for record in records] == [0, 1, 255]
    assert schema.column("node/x").fields == ("mass",)
    assert schema.y_column.num_classes == 2


def test_an_edge_list_alone_is_read(tmp_path):
    """Nodes are the ids that occur, sorted; a table of numbers needs no names; gzip and comments, too."""
    text = "# made here\n10 30\n30 20\n"
    path = tmp_path / "e" / "list.txt.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(text.encode()))
    _, (record,) = read_folder(path.parent, undirected=True)
    assert record.edge_index.tolist() == [[0, 2, 2, 1], [2, 0, 1, 2]]
    assert record.num_nodes == 3


#: Ids of edges -> numbers of nodes in the order of the ids.
IDS = {
    f"{2**63},{2**62}\n{2**63 + 1},{2**62 + 1}": [[2, 3], [0, 1]],  # beyond int64
    f"{2**60}.0,{2**60 + 1}\n{2**60 + 2},{2**60 + 3}": [[0, 2], [1, 3]],  # one is no integer
    "001,1\n1,2": [[0, 1], [1, 2]],
    "1.0,1\n1,2": [[0, 0], [0, 1]],  # one number in two notations
    "10,2\n+2,-0\n9,0": [[3, 1, 2], [1, 0, 0]],
    "True,TRUE\ntrue,1": [[2, 3], [1, 0]],
    "10,9\n9,10": [[1, 0], [0, 1]],  # numbers are in the order of numbers
}


def test_ids_that_differ_are_different_nodes(tmp_path):
    def check(case):
        text, expected = case
        number = len(list(tmp_path.iterdir()))
        folder = write_files(tmp_path / f"{number:02d}", edges_csv=f"source,target\n{text}\n")
        _, (record,) = read_folder(folder)
        assert record.edge_index.tolist() == expected
        assert record.num_nodes == 1 + max(map(max, expected))
        # Next to a column with a zero before a number, which is no id, numbers stay numbers.
        lines = [f"{line},0{row}" for row, line in enumerate(text.split("\n"))]
        beside = write_files(
            tmp_path / f"{number:02d}b", e_csv="\n".join(["source,target,w", *lines])
        )
        _, (record,) = read_folder(beside)
        assert record.edge_index.tolist() == expected

    check_each(check, IDS.items())


def test_ids_of_nodes_and_graphs_are_texts_where_one_is(tmp_path):
    edges = "graph,source,target\n1,07,7\n01,7,7\n"
    folder = write_files(tmp_path / "t", edges_csv=edges, nodes_csv="graph,node\n1,7\n1,07\n01,7\n")
    _, records = read_folder(folder)
    assert [record.key for record in records] == ["1", "01"]
    assert [record.edge_index.tolist() for record in records] == [[[1], [0]], [[0], [0]]]
    loop = write_files(tmp_path / "u", edges_csv="source,target\n7,7.0\n", nodes_csv="node\n7\n")
    assert read_folder(loop)[1][0].edge_index.tolist() == [[0], [0]]


def test_one_long_id_takes_the_memory_of_one(tmp_path):
    """An array of texts would have room for the longest in each row: 30 GB here."""
    lines = [f"n{i},n{i + 1}" for i in range(20_000)]
    folder = write_files(
        tmp_path / "t", edges_csv="\n".join(["source,target", "a" * 200_000 + ",b", *lines])
    )
    _, (record,) = read_folder(folder)
    assert record.num_nodes == 20_003


def test_rows_of_a_graph_need_not_be_contiguous(tmp_path):
    rng = np.random.default_rng(0)
    graph = rng.integers(0, 12, 100)
    ends = rng.integers(0, 9, (100, 2))
    lines = [f"{g},{a},{b},{g % 3 / 2}" for g, (a, b) in zip(graph, ends, strict=True)]
    folder = write_files(tmp_path / "t", edges_csv="\n".join(["graph,source,target,y", *lines]))
    schema, records = read_folder(folder)
    assert schema.y_column.num_classes is None  # numbers
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
    folder = write_files(
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
    assert "fold" not in data
    parts = kmip_data.open("own", split=None, columns=["fold"])[0].fold
    assert parts.tolist() == [0, 1, 2] * 3
    assert kmip_data.open("own", "train")[0].train_mask.tolist() == [
        True, False, False, False, False, False, True, False, False,
    ]  # fmt: skip
    random = kmip(*line, "--split-rule=random", "--set", "val_fraction=0.25").json
    assert {part: counts["nodes"] for part, counts in random["splits"].items()} == {
        "train": 5, "val": 2, "test": 1,
    }  # fmt: skip
    assert "fold" in expect_refusal(*line, "--split-rule=group")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    (tmp_path / "bad").mkdir()
    bad = write_files(tmp_path / "bad", edges_csv="source,target\n1\n")
    failed = expect_refusal(*line[:2], "--name=bad", f"--archive={bad}", "--quiet", code=4)
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
    schema, records = read_folder(path.parent, label=("toxic", "gap"))
    for number, (record, text) in enumerate(zip(records, texts, strict=True)):
        expected = molecule_from_smiles(text).record("")
        assert record.edge_index.tolist() == expected.edge_index.tolist()
        np.testing.assert_array_equal(record.columns["node/x"], expected.columns["node/x"])
        assert record.num_nodes == from_smiles(text).num_nodes
        np.testing.assert_allclose(record.columns["graph/y"], [number % 2, number / 3], rtol=1e-6)
    assert schema.y_column.fields == ("toxic", "gap")
    assert int(records[0].columns["graph/part"]) == 2
    path.write_text("smiles,label\nCCO,1\nC1CC,0\n")
    with raises(DamagedInput, naming=["bad.csv, line 3", "C1CC"]):
        read_folder(write_files(tmp_path / "n", bad_csv=path.read_bytes()))
    _, (_, skipped) = read_folder(
        write_files(tmp_path / "k", bad_csv=path.read_bytes()), on_error="skip"
    )
    assert isinstance(skipped, SkippedRecord)


def test_masks_of_tables_and_positions_of_arrays_are_the_split(tmp_path):
    nodes = "node,x,train_mask,valid_mask,test_mask\n7,0.5,1,0,0\n5,0.5,0,0,1\n9,0.5,0,0,0\n"
    table = write_files(tmp_path / "t", edges_csv="source,target\n5,7\n", nodes_csv=nodes)
    schema, _ = read_folder(table)
    assert schema.column("node/x").fields == ("x",)
    assert masks_of(table).tolist() == [0, 2, 255]
    arrays = {"edge_index": [[0], [1]], "x": np.eye(4), "train_idx": [3, 0], "valid_idx": [1]}
    folder = write_files(tmp_path / "n", a_npz=npz_bytes(**arrays))
    assert masks_of(folder).tolist() == [0, 1, 255, 0]


def test_nodes_are_numbered_by_row_where_they_have_no_ids(tmp_path):
    """A column that looks like ids is ignored with ``node=none``, or if it is named as a feature."""
    tables = {"edges_csv": "source,target\n1,2\n", "nodes_csv": "id,x\n2,7\n1,8\n3,9\n"}
    folder = write_files(tmp_path / "t", **tables)
    for parameters, edges in (
        ({"node": "id"}, [[1], [0]]),
        ({"node": "none"}, [[1], [2]]),
        ({"node": "rows-from-1"}, [[0], [1]]),
    ):
        _, (record,) = read_folder(folder, **parameters)
        assert record.edge_index.tolist() == edges
    with raises(OpenQuestions, steps=Setting(node="rows-from-1")):
        read_folder(folder, feature=("id", "x"))
    # Labels count the last nodes, where no edge and no feature does.
    arrays = {"edge_index": [[0], [1]], "y": [0, 1, 0]}
    assert read_folder(write_files(tmp_path / "l", a_npz=npz_bytes(**arrays)))[1][0].num_nodes == 3
    graph = npz_bytes(edge_index=[[0], [1]], y=[0.5, 1, 0])  # one of two: its own targets
    for record in read_folder(write_files(tmp_path / "two", a_npz=graph, b_npz=graph))[1]:
        assert (record.num_nodes, record.columns["graph/y"].shape) == (2, (3,))
    # A first line of counts that do not fit is an edge.
    _, (record,) = read_folder(write_files(tmp_path / "e", edges_txt="4 2\n0 1\n1 2\n2 3\n"))
    assert record.num_edges == 4


def test_features_that_are_not_finite_are_a_warning(tmp_path):
    arrays = {"edge_index": [[0, 1], [1, 0]], "x": [[1.0], [np.nan]]}
    done = build_files(tmp_path / "a", a_npz=npz_bytes(**arrays))
    assert "not finite everywhere: x" in done.err


def test_one_hot_rows_become_classes_on_request(tmp_path):
    classes = np.array([2, 0, 1, 2])
    file = npz_bytes(edge_index=[[0, 1], [1, 2]], labels=np.eye(3)[classes])
    folder = write_files(tmp_path / "n", a_npz=file)
    with raises(OpenQuestions, naming="labels 0", steps=Setting(task="classification")):
        read_folder(folder)
    column = read_folder(folder, task="multilabel")[0].y_column
    assert (column.shape, column.stored) == ((3,), "uint8")
    line = ("build", "graphs", "--name=own", f"--archive={folder}", "--quiet")
    home = tmp_path / "home"
    assert kmip(*line, "--set=task=classification", f"--home={home}").code == 0
    data = kmip_data.open("own", split=None, home=home)[0]
    assert data.y.tolist() == classes.tolist()


def test_columns_without_names_are_read(tmp_path):
    """The index that pandas writes is no feature, and has the ids of the nodes."""
    index = {"edges_csv": ",source,target\n0,0,1\n1,1,2\n", "nodes_csv": ",mass\n0,5\n1,6\n2,7\n"}
    schema, (record,) = read_folder(write_files(tmp_path / "i", **index))
    assert schema.column("node/x").fields == ("mass",)
    assert "edge/edge_attr" not in record.columns
    other = write_files(tmp_path / "o", **{**index, "nodes_csv": ",mass\n0,5\n2,6\n1,7\n"})
    _, (record,) = read_folder(other)
    assert record.edge_index.tolist() == [[0, 2], [2, 1]]


def test_many_graphs_are_cut_into_shards_of_a_size(tmp_path, monkeypatch):
    arrays = {"edge_index": [[0], [1]], "x": np.ones((4, 3))}
    folder = write_files(
        tmp_path / "n", **{f"{number}_npz": npz_bytes(**arrays) for number in range(10)}
    )
    raw = RawCopy(folder, dict.fromkeys(sorted(file.name for file in folder.iterdir()), ""), ())
    for bytes_of_shard, sizes in (
        (10**6, [10]),
        (3 * 42, [3, 3, 3, 1]),
        (1, [1] * 10),
    ):
        monkeypatch.setattr(inference, "MAX_SHARD_BYTES", bytes_of_shard)
        work = tmp_path / str(bytes_of_shard)
        work.mkdir()
        params = PIPELINE.Params()
        prepared = PIPELINE.prepare(raw, params, work)
        units = PIPELINE.units(prepared, PIPELINE.with_inferred(params, prepared))
        assert [len(unit.selection["rows"]) for unit in units] == sizes


#: Values of the labels, the set task: kind and stored type of their column, or what a problem names, and a step.
LABELS = [
    (["0", "2", "1"], None, (3, "uint8")),
    (["0.5", "2", ""], None, (None, "float32")),
    (["0", "1", "2"], "regression", (None, "float32")),
    (["no", "yes", "no"], None, (2, "uint8")),
    (["0", "1", ""], "multilabel", (1, "float16")),
    (["0", "1", ""], None, (2, "int8")),
    (["no", "yes", ""], None, (2, "int8")),
    (["1", "2", "x"], None, ["line 4", Setting(missing="label:x")]),
    (["-1", "1", "1"], None, ["line 2", Setting(missing="label:none")]),
    (["1", "2", "3"], "multilabel", [1, 3, "multilabel", Setting(task="regression")]),
    (["2003", "2001", "2003"], None, (2, "uint8")),
    (["2003", "", "2001"], None, (2, "int8")),
    (["0", "1", "3"], None, (4, "uint8")),
]


def test_labels_determine_the_task(tmp_path):
    def check(case):
        values, task, expected = case
        rows = [f"{number},1,1,{value}" for number, value in enumerate(values)]
        number = len(list(tmp_path.iterdir()))
        folder = write_files(
            tmp_path / f"{number:02d}",
            table_csv="\n".join(["graph,source,target,label", *rows, ""]),
        )
        if isinstance(expected, list):
            *named, step = expected
            with raises(DamagedInput, naming=named, steps=step):
                read_folder(folder, task=task)
            return
        column = read_folder(folder, task=task)[0].y_column
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
    schema, (record,) = read_folder(write_files(tmp_path / "t", **tables))
    assert schema.y_column.num_classes is None
    y = record.columns["node/y"]
    assert np.allclose(y[:-1], [float(cell) for cell in cells[:-1]])
    assert np.isnan(y[-1])


def test_unused_columns_are_named(tmp_path):
    nodes = "node,mass,name\n1,1,a\n2,2,b\n"
    done = build_files(
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
    file = npz_bytes(edges=edges, node_features=np.eye(12), node_labels=np.arange(12) % 2, **masks)
    first = build_files(home, a_npz=file)
    assert first.json["split"] == "masks-fold0"
    third = build_files(home, "--set=fold=2", a_npz=file)
    assert third.json["split"] == "masks-fold2"
    counts = {name: counts["nodes"] for name, counts in third.json["splits"].items()}
    assert list(counts.values()) == np.bincount(part[:, 2], minlength=3).tolist()
    data = kmip_data.open("own", "train", split_name="masks-fold2")[0]
    assert data.train_mask.tolist() == (part[:, 2] == 0).tolist()
    assert not [name for name in data.keys() if name.startswith("masks")]  # noqa: SIM118
    line = ["build", "graphs", "--name=own", f"--archive={home}.files", "--quiet"]
    assert "has 4 folds: there is no fold 4" in expect_refusal(*line, "--set=fold=4")
    run = kmip(
        "train", "own", "--model=gcn", "--epochs=1", "--set=data.split.fold=3",
        "--set=model.layers=1", "--name=third", "--quiet",
    )  # fmt: skip
    assert run.code == 0, run.err
    assert "masks-fold3" in kmip_data.open("own", split=None).card.splits
