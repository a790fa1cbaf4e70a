"""ECHO: files of any number of graphs; other layouts are refused."""

from __future__ import annotations

import numpy as np
import torch
from support.builds.raw_graphs import refused_folder
from support.cases import check_each
from torch_geometric.data import Data

from kmip_data.pipelines.formats.tensors import stream_graphs

PARTS = ("train", "val", "test")


def test_more_graphs_than_one_read_buffer_are_read(tmp_path):
    draw = torch.Generator().manual_seed(0)
    graphs = []
    for i in range(2_100):
        x = torch.rand(3, 2, generator=draw)
        edges = torch.randint(0, 3, (2, i % 5), generator=draw)
        graphs.append(Data(x=x.numpy() if i % 2 else x, edge_index=edges))
    torch.save(graphs, tmp_path / "graphs.pt")
    for graph, wanted in zip(stream_graphs(tmp_path / "graphs.pt"), graphs, strict=True):
        assert np.array_equal(graph["x"], np.asarray(wanted.x))
        assert np.array_equal(graph["edge_index"], wanted.edge_index)


class Foreign:
    """A class of somebody else."""


def a_graph(**changes):
    columns = {
        "x": torch.rand(4, 2),
        "edge_index": torch.tensor([[0, 1], [1, 0]]),
        "y": torch.rand(4, 3),
    }
    return Data(**(columns | changes))


def test_another_layout_is_refused(tmp_path):
    cases = [
        ([a_graph(y=torch.rand(4, 2))], "graph 0"),
        ([a_graph(y=torch.rand(3, 3))], 3),
        ([a_graph(y=torch.rand(4))], "graph 0"),
        ([Data(x=torch.rand(4, 2))], "edge_index"),
        (
            [a_graph(x=torch.full((4, 2), 1e300, dtype=torch.float64))],
            "x",
        ),
        ([a_graph(name=Foreign())], "Foreign"),
        ([{"x": 1}], "dict"),
        ({"x": 1}, "dict"),
    ]

    def check(case):
        value, named = case
        for part in PARTS:
            torch.save(value, tmp_path / f"{part}_data.pt")
        refused_folder("echo-sssp", tmp_path, named)

    check_each(check, cases)
