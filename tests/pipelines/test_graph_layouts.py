"""Layouts of published graphs that people imitate: OGB's raw files, TUDataset's with numbers anew."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from support.cli import expect_refusal, expect_success
from support.graph_files import csv_gz, write_ogb

import kmip_data


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))


def build(archive: Path, *options: str, name: str = "own") -> kmip_data.ShardedDataset:
    words = [
        "build",
        "graphs",
        f"--name={name}",
        f"--archive={archive}",
        "-q",
        "--set=picture=false",
    ]
    expect_success(*words, *options)
    return kmip_data.open(name)


def test_raw_files_of_ogb_give_graphs_and_their_split(tmp_path):
    graphs = write_ogb(tmp_path / "ogb")
    data = build(tmp_path / "ogb")
    for item, graph in zip(data, graphs, strict=True):
        edges = sorted(zip(*item.edge_index.tolist(), strict=True))
        assert edges == sorted(map(tuple, graph["edge"].tolist()))
        np.testing.assert_array_equal(item.x, graph["node-feat"])
        assert int(item.y) == graph["graph-label"]
    sizes = [len(kmip_data.open("own", part)) for part in ("train", "val", "test")]
    assert sizes == [4, 2, 2]

    # An edge that leaves its graph, and lists of other rows.
    path = tmp_path / "ogb/raw/edge.csv.gz"
    content = path.read_bytes()
    path.write_bytes(csv_gz(np.full((18, 2), 5)))
    words = ("build", "graphs", "--name=bad", "--archive", tmp_path / "ogb")
    assert "line 1: an edge leads out of its graph" in expect_refusal(*words, code=4)
    path.write_bytes(content)
    (tmp_path / "ogb/split/scaffold/test.csv.gz").write_bytes(csv_gz(np.array([12])))
    assert "lists numbers that are no rows, 0 to 11" in expect_refusal(*words, code=4)


def test_nodes_of_one_graph_of_ogb_have_labels_and_parts(tmp_path):
    files = {
        "raw/edge": np.array([[0, 1], [1, 2], [2, 3]]), "raw/num-node-list": np.array([4]),
        "raw/num-edge-list": np.array([3]), "raw/node-feat": np.arange(8).reshape(4, 2) / 2,
        "raw/node-label": np.array([0, 1, 1, 0]), "split/time/train": np.array([0, 1]),
        "split/time/valid": np.array([3]), "split/time/test": np.array([2]),
    }  # fmt: skip
    for name, values in files.items():
        path = tmp_path / "ogb" / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(csv_gz(values))
    item = build(tmp_path / "ogb")[0]
    assert item.y.tolist() == [0, 1, 1, 0]
    assert item.train_mask.tolist() == [True, True, False, False]
    assert item.test_mask.tolist() == [False, False, True, False]


#: Edges with numbers that begin anew in each graph, and nodes of the graphs.
ANEW = {
    "one edge each": ("1,2\n1,2\n1,2\n", [2, 2, 3]),
    "paths": ("1,2\n2,3\n1,2\n1,2\n", [3, 2, 2]),
    "both directions": ("1,2\n2,1\n2,3\n3,2\n1,2\n2,1\n1,3\n3,1\n", [3, 2, 3]),
    "not sorted": ("1,2\n2,1\n1,3\n3,1\n1,2\n", [3, 2, 3]),
}


@pytest.mark.parametrize("case", ANEW)
def test_numbers_that_begin_anew_are_asked_and_read(case, tmp_path):
    edges, sizes = ANEW[case]
    folder = tmp_path / "TOW"
    folder.mkdir()
    (folder / "TOW_A.txt").write_text(edges)
    numbers = "".join(f"{graph}\n" * size for graph, size in enumerate(sizes, 1))
    (folder / "TOW_graph_indicator.txt").write_text(numbers)
    (folder / "TOW_graph_labels.txt").write_text("0\n1\n0\n")
    words = ("build", "graphs", "--name=own", "--archive", folder, "-q", "--set=picture=false")
    message = expect_refusal(*words, code=4)
    if case == "not sorted":  # the runs of sorted edges are not those of three graphs
        message = expect_refusal(*words, "--set=node=rows-from-1", code=4)
        assert "expected: 3 graphs with edges, each sorted by source and target" in message
        return
    command = re.search(r"next: kmip-data (build .*)", message)[1]
    expect_success(*shlex.split(command))
    data = kmip_data.open("own")
    assert [item.num_nodes for item in data] == sizes
    assert sum(item.num_edges for item in data) == edges.count("\n")
    assert all(item.num_edges for item in data)
