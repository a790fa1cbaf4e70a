"""Smoothness of node states, against loops over nodes and edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.cli import kmip
from support.training_data import TINY_RUN, learnable_build
from torch_geometric.data import Batch, Data

from kmip_data.models.analysis.smoothing import smoothing, smoothness
from kmip_data.models.layers.batch import read_batch

TRAIN = ["--epochs", 1, *TINY_RUN]


def slow_smoothness(x, edges, nodes):
    """Of one graph: lists of rows, (source, target) pairs."""
    leaving = [sum(source == node for source, _ in edges) for node in range(nodes)]
    energies, distances = [], [0.0] * nodes
    for i, j in edges:
        pairs = [
            (a / math.sqrt(leaving[i] + 1), b / math.sqrt(leaving[j] + 1))
            for a, b in zip(x[i], x[j], strict=True)
        ]
        energies.append(sum((a - b) ** 2 for a, b in pairs) / 2)
        lengths = math.hypot(*x[i]) * math.hypot(*x[j])
        distances[j] += 1 - sum(a * b for a, b in zip(x[i], x[j], strict=True)) / lengths
    energy = sum(energies) / len(energies) if energies else 0.0
    return [energy, sum(distances) / nodes, sum(math.hypot(*row) for row in x) / nodes]


def test_equals_loops_over_edges():
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for nodes, edges in ((5, 12), (9, 20), (2, 0)):  # the last one has no edge
        index = torch.randint(0, nodes, (2, edges), generator=generator)
        graphs.append(Data(x=torch.randn(nodes, 4, generator=generator), edge_index=index))
    batch = Batch.from_data_list(graphs)
    found = smoothness(batch.x, read_batch(batch))
    wanted = [slow_smoothness(g.x.tolist(), g.edge_index.T.tolist(), len(g.x)) for g in graphs]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


def test_equal_states_are_smooth():
    batch = Batch.from_data_list(
        [Data(x=torch.ones(4, 3), edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))]
    )
    (found,) = smoothness(batch.x, read_batch(batch))
    torch.testing.assert_close(found, torch.tensor([0, 0, math.sqrt(3)]).double())


@pytest.mark.parametrize(("model", "layout"), [("gps-kmip", "neighbor"), ("gcn", "index")])
def test_a_run_by_layer(tmp_path, monkeypatch, model, layout):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path))
    build = learnable_build(tmp_path / "build", layout=layout)
    run = kmip("train", "--dataset", build.path, *TRAIN, "--model", model).json["run"]
    rows = smoothing(run, part="train", graphs=4)
    assert [row["layer"] for row in rows] == [0, 1, 2]
    assert {row["graphs"] for row in rows} == {4}
    outcome = kmip("analyze", "smoothing", run, "--split", "train", "--graphs", 4)
    assert outcome.code == 0, outcome.err
    assert outcome.out.splitlines()[0].split() == ["run", "layer", "dirichlet", "mad", "norm"]
    shown = kmip("analyze", "smoothing", run, "--split", "train", "--graphs", 4, "--json").json
    assert shown["rows"] == [{"curve": run, **row} for row in rows]
    assert rows[0]["norm"] > 0
    assert rows[0]["dirichlet_std"] > 0
