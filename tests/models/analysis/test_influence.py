"""Influence by distance: against PyTorch Geometric's for message passing, and against whole Jacobians."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.city_data import streets
from torch import nn
from torch_geometric.data import Data

from kmip_data.models import ModelConfig, build_model
from kmip_data.models.analysis.influence import by_distance, hop_distances, node_influence


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    keys = {"attention": {"heads": 2, "key_dim": 4, "k": 3}} if name == "gps-kmip" else {}
    config = ModelConfig(name=name, layers=2, hidden_dim=8, parameter_budget=None, head="node", **keys)
    return build_model(config, in_channels=5, num_classes=4).eval()


class OfTensors(nn.Module):
    """As PyTorch Geometric calls a model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x, edge_index):
        return self.model(Data(x=x, edge_index=edge_index))


def measured(model: nn.Module, graph: Data, nodes: list[int], hops: int):
    x = graph.x.clone().requires_grad_()
    outputs = model(Data(x=x, edge_index=graph.edge_index))
    values = np.stack([node_influence(outputs, x, node) for node in nodes])
    return values, by_distance(values, hop_distances(graph.edge_index, len(x), nodes), hops)


def test_message_passing_has_the_influence_that_pyg_measures():
    oracle = pytest.importorskip("torch_geometric.utils.influence")
    graph, model, hops = streets(40), network("gcn"), 5  # beyond the layers, so that its cut changes nothing
    wanted, breadth = oracle.total_influence(OfTensors(model), graph, hops, vectorize=False)
    _, found = measured(model, graph, list(range(40)), hops)
    np.testing.assert_allclose([row["influence"] for row in found["rows"]], wanted, rtol=1e-4, atol=1e-7)
    assert found["R"] == pytest.approx(breadth, rel=1e-4)
    assert found["beyond"] == found["unreached"] == 0
    assert not any(row["total"] for row in found["rows"][3:])  # two layers


def test_attention_is_followed_over_the_whole_graph():
    graph, model = streets(40), network("gps-kmip")
    values, found = measured(model, graph, [0, 7], 3)
    for row, node in zip(values, (0, 7), strict=True):
        jacobian = torch.autograd.functional.jacobian(
            lambda x, node=node: model(Data(x=x, edge_index=graph.edge_index))[node], graph.x
        )
        np.testing.assert_allclose(row, jacobian.abs().sum((0, 2)), rtol=1e-4, atol=1e-7)
    assert found["beyond"] > 0
    assert found["R_all"] > found["R"]


def test_distances_follow_edges_backwards():
    index = torch.tensor([[0, 1, 1, 3], [1, 2, 2, 4]])  # one twice; 3 and 4 are apart
    found = hop_distances(index, 5, [2, 0])
    assert found.tolist() == [[2, 1, 0, np.inf, np.inf], [0, np.inf, np.inf, np.inf, np.inf]]


def test_sums_by_distance():
    values = np.array([[1.0, 2.0, 4.0, 8.0, 5.0]])
    found = by_distance(values, np.array([[0, 1, 1, 3, np.inf]]), 2)
    assert [row["total"] for row in found["rows"]] == [1, 6, 0]
    assert [row["nodes"] for row in found["rows"]] == [1, 2, 0]
    assert found["R"] == pytest.approx(6 / 7)
    assert found["R_all"] == pytest.approx((6 + 24) / 15)
    assert found["beyond"] == pytest.approx(8 / 20)
    assert found["unreached"] == pytest.approx(5 / 20)
