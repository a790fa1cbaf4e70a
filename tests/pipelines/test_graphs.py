"""Graphs of your own: each format against the library that writes it, bad files against their errors."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.cases import check_each
from support.cli import kmip

import kmip_data
from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import RawFolder, load_pipeline

PIPELINE = load_pipeline(load_manifest("graphs"))


def write(folder: Path, **files: str | bytes) -> Path:
    """Write files; ``edges_csv`` is called ``edges.csv``."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / ".".join(name.rsplit("_", 1))).write_bytes(data)
    return folder


def made(path: Path, **parameters) -> tuple[object, list[GraphRecord]]:
    """Schema and records of a folder, without the engine."""
    raw = RawFolder(path, dict.fromkeys(sorted(file.name for file in path.iterdir()), ""), ())
    params = PIPELINE.resolve(PIPELINE.Params(**parameters), raw)
    prepared = PIPELINE.prepare(raw, params, path)
    units = PIPELINE.units(prepared, params)
    records = [record for unit in units for record in PIPELINE.records(prepared, unit, params)]
    return PIPELINE.schema(params), records


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
    missing = kmip(*line, "--split-rule=group")
    assert (missing.code, "fold" in missing.err) == (2, True)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    (tmp_path / "bad").mkdir()
    bad = write(tmp_path / "bad", edges_csv="source,target\n1\n")
    failed = kmip(*line[:2], "--name=bad", f"--archive={bad}", "--quiet")
    assert (failed.code, "edges.csv, line 2: 'target' is empty" in failed.err) == (4, True)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        [*before, bad / "edges.csv"]
    )


# --- labels --------------------------------------------------------------------------------------

#: Values of the labels, the set task: kind and stored type of their column, or a fault.
LABELS = [
    (["0", "2", "1"], None, (3, "uint16")),
    (["0.5", "2", ""], None, (None, "float32")),
    (["0", "1", "2"], "regression", (None, "float32")),
    (["no", "yes", "no"], None, (2, "uint16")),
    (["0", "1", ""], "multilabel", (1, "float16")),
    (["0", "1", ""], None, "graph 2 .from 0. has no label"),
    (["no", "yes", ""], None, "graph 2 .from 0. has no label"),
    (["-1", "1", "1"], None, "no classification"),
    (["1", "2", "3"], "multilabel", "no multilabel"),
    (["1", "2", "x"], None, (3, "uint16")),
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
            with pytest.raises(DamagedInput, match=expected) as caught:
                made(folder, task=task)
            assert caught.value.parts["next"]
            return
        column = made(folder, task=task)[0].labels
        assert (column.num_classes, column.stored) == expected

    check_each(check, LABELS)


# --- bad input -----------------------------------------------------------------------------------

BAD = [
    ({"edges_csv": ""}, {}, "No columns"),
    ({"edges_csv": "source,source\n"}, {}, "no column 'target'"),
    ({"edges_csv": "source,target\n"}, {}, "hold no graph"),
    ({"edges_csv": "source,to\n1,2\n"}, {}, "no column 'target'"),
    ({"edges_csv": "source,target\n1,2\n1,2,3\n"}, {}, "Expected 2 fields in line 3, saw 3"),
    ({"edges_csv": "source,target\n1,2,3\n1,2,3\n"}, {}, "more fields than in the first line"),
    ({"edges_csv": "source,target\n1,2\n1\n"}, {}, "line 3: 'target' is empty"),
    ({"edges_csv": "source,target\na,b\n,b\n"}, {}, "line 3: 'source' is empty"),
    ({"edges_csv": b"source,target\n1,\xff\n"}, {}, "cannot be read as a table"),
    ({"edges_csv": 'source,target\n"1,2\n'}, {}, "cannot be read as a table"),
    ({"edges_gz": gzip.compress(EDGES.encode())[:-9]}, {}, "cannot be read as a table"),
    ({"edges_csv": "source,target,w\n1,2,3\n2,1,\n"}, {}, "line 3: the feature 'w' is nan"),
    ({"edges_csv": "source,target,w\n1,2,3\n2,1,x\n"}, {}, "line 3: the feature 'w' is x, not a"),
    ({"edges_csv": "source,target,w\n1,2,1e99\n"}, {}, "line 2: the feature 'w' is 1e"),
    ({"edges_csv": "source,target,label\n1,2,0\n2,1,1\n"}, {}, "line 3: y differs from that of the"),
    ({"edges_csv": EDGES}, {"label": ("y",)}, "no column 'y'"),
    ({"edges_csv": EDGES}, {"feature": ("y",)}, "no column 'y'"),
    ({"edges_csv": EDGES, "nodes_csv": "node\n1\n"}, {}, "nodes.csv has no column 'graph'"),
    ({"edges_csv": EDGES, "nodes_csv": "graph,node\na,5\na,7\n"}, {}, "line 4: the graph 'b' is not"),
    ({"edges_csv": EDGES, "nodes_csv": "graph\na\na\nb\nc\n"}, {}, "edges.csv, line 2: the node 5 is"),
    ({"edges_csv": EDGES, "nodes_csv": NODES + "c,1,2,x\n"}, {"feature": ("none",)}, "line 8: the node"),
    ({"edges_csv": EDGES, "graphs_csv": "graph,label\na,1\nb,1\n"}, {}, "line 5: the graph 'c' is not in"),
    ({"edges_csv": EDGES, "graphs_csv": GRAPHS + "d,good,no\n"}, {}, "line 5: 'fold' is 'no', not train"),
    ({"edges_csv": EDGES, "graphs_csv": "graph,split\na,1\nb,0\nc,0\n"}, {}, "line 2: 'split' is"),
    ({"edges_csv": EDGES, "edges_tsv": EDGES}, {}, "same name"),
    ({"a_bin": b"\0\1\2"}, {}, "no graphs of a format that is known"),
]  # fmt: skip


def test_bad_files_are_errors_that_name_the_row(tmp_path):
    def check(case):
        files, options, message = case
        number = len(list(tmp_path.iterdir()))
        with pytest.raises(DamagedInput, match=message):
            made(write(tmp_path / f"{number:03d}", **files), **options)

    check_each(check, BAD)
