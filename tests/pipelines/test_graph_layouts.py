"""Layouts of published graphs: OGB's raw files are refused, TUDataset's may number nodes anew."""

from __future__ import annotations

import re
import shlex

import pytest
from support.builds.raw_graphs import write_sample
from support.cli import expect_refusal, expect_success

import kmip_data


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("folder", ["ogbg_molbace", "ogbg_molbace/raw", "mine"])
def test_raw_files_of_ogb_are_refused_with_the_command_of_its_class(tmp_path, monkeypatch, folder):
    write_sample("ogbg-molhiv", tmp_path / folder.partition("/")[0], limit=20, seed=0)
    (tmp_path / "ogbg_molbace").mkdir(exist_ok=True)
    (tmp_path / "ogbg_molbace/RELEASE_v1.txt").touch()
    words = ("build", "graphs", "--name=own", "--archive", tmp_path / folder)
    message = expect_refusal(*words, code=4)
    assert "has raw files of OGB, which only its own classes read" in message
    command = re.search(r"next: kmip-data (build .*)", message)
    if folder == "mine":
        assert command is None  # docs/errors.md has the code for it
        return
    expect_success(*shlex.split(command[1]))
    sizes = [len(kmip_data.open("my-ogbg-molbace", part)) for part in ("train", "val", "test")]
    assert sizes == [16, 2, 2]


_TNTP = """<NUMBER OF NODES> 3
<ORIGINAL HEADER>~ \tInit node\tTerm node\tLength\t;
<END OF METADATA>\t\n
~ \tInit node\tTerm node\tLength\t;
\t1\t2\t6.5\t;
\t2\t3\t4\t;
"""


@pytest.mark.parametrize("archive", ["", "toy_net.tntp"])
def test_tntp_is_refused_with_the_command_that_writes_its_links(tmp_path, archive):
    (tmp_path / "toy_net.tntp").write_text(_TNTP)
    words = ("build", "graphs", "--name=own", "--archive", tmp_path / archive)
    message = expect_refusal(*words, code=4)
    command = re.search(r"next: python -c (.*)", message)
    exec(shlex.split(command[1])[0])
    table = (tmp_path / "toy_net.csv").read_text()
    assert table == "Init node,Term node,Length\n1,2,6.5\n2,3,4.0\n"


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
