"""ECHO: equal to what the authors' class makes of the same files; other layouts are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.builds.raw_graphs import prepare
from support.builds.same import assert_same
from support.cases import check_each
from torch_geometric.data import Data

from kmip_data import ECHO
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.formats.tensors import stream_graphs

PARTS = ("train", "val", "test")
TASKS = ("ecc", "diam", "sssp", "charge", "energy")


def upstream(data: Data, task: str) -> Data:
    """One item as the authors' class makes it (pull request 10648 of PyTorch Geometric), step by step."""
    target = {"diam": 1, "ecc": 0, "sssp": 2, "charge": 0, "energy": 0}[task]
    y = data.y[:, target]
    if task == "diam":
        y = y[0].unsqueeze(-1)
    if task in {"diam", "ecc", "sssp"}:
        y = y / 40.0
    data.y = y.unsqueeze(-1)
    data.x = torch.as_tensor(data.x).float()
    return data


def other_files(folder, *, of_numpy=False):
    """Write the sample's graphs anew by ``torch.save``, with another attribute and perhaps x by numpy."""
    for path in folder.iterdir():
        graphs = torch.load(path, weights_only=False)
        for number, graph in enumerate(graphs):
            graph.name = f"graph {number}"
            graph.x = graph.x.double().numpy() if of_numpy else graph.x
        torch.save(graphs, path)


@pytest.mark.parametrize("task", TASKS)
def test_equal_to_the_authors_class(task, tmp_path):
    name, raw = f"echo-{task}", tmp_path / "raw"
    raw.mkdir()
    load_pipeline(load_manifest(name)).sample(raw, limit=40)
    other_files(raw, of_numpy=task == "sssp")
    build_dataset(name, archives=[raw], home=Home(tmp_path))
    for part in PARTS:
        theirs = [
            upstream(graph, task)
            for graph in torch.load(raw / f"{part}_data.pt", weights_only=False)
        ]
        ours = ECHO(task, home=tmp_path, split=part)
        assert len(ours) == len(theirs)
        for found, wanted in zip(ours, theirs, strict=True):
            if task in {"diam", "ecc", "sssp"}:
                found.y = found.y / 40.0
            del wanted.name
            assert_same(found, wanted, ordered=False)


def test_more_graphs_than_the_reader_holds_at_once(tmp_path):
    draw = torch.Generator().manual_seed(0)
    graphs = [
        Data(
            x=torch.rand(3, 2, generator=draw).numpy()
            if i % 2
            else torch.rand(3, 2, generator=draw),
            edge_index=torch.randint(0, 3, (2, i % 5), generator=draw),
        )
        for i in range(2_100)
    ]
    torch.save(graphs, tmp_path / "graphs.pt")
    for found, wanted in zip(stream_graphs(tmp_path / "graphs.pt"), graphs, strict=True):
        assert np.array_equal(found["x"], np.asarray(wanted.x))
        assert np.array_equal(found["edge_index"], wanted.edge_index)


class Foreign:
    """A class of somebody else."""


def a_graph(**changes):
    given = {
        "x": torch.rand(4, 2),
        "edge_index": torch.tensor([[0, 1], [1, 0]]),
        "y": torch.rand(4, 3),
    }
    return Data(**(given | changes))


def test_another_layout_is_refused(tmp_path):
    cases = [
        ([a_graph(y=torch.rand(4, 2))], "graph 0 is not laid out"),
        ([a_graph(), a_graph(x=torch.rand(4, 3))], r"graph 1: x is float32 \(4, 3\)"),
        ([a_graph(y=torch.rand(3, 3))], "graph 0: y has 3 rows"),
        ([a_graph(y=torch.rand(4))], "graph 0 is not laid out"),
        ([Data(x=torch.rand(4, 2))], "graph 0 has no 'edge_index'"),
        ([a_graph(edge_index=torch.tensor([[0, 4], [4, 0]]))], "edges of nodes 0 to 4, of 4"),
        ([a_graph(x=torch.full((4, 2), torch.nan))], "x has values that are not finite"),
        (
            [a_graph(x=torch.full((4, 2), 1e300, dtype=torch.float64))],
            "x has values that are not finite",
        ),
        ([a_graph(name=Foreign())], "Foreign"),
        ([{"x": 1}], "item 0: dict instead of a graph"),
        ({"x": 1}, "a dict instead of the list"),
    ]

    def check(case):
        value, message = case
        folder = tmp_path / str(cases.index(case))
        folder.mkdir()
        for part in PARTS:
            torch.save(value, folder / f"{part}_data.pt")
        with pytest.raises(DamagedInput, match=message):
            prepare("echo-sssp", folder, folder / "work")

    check_each(check, cases)
