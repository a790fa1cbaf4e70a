"""Sampled neighbourhoods trimmed to what their seeds depend on: the same predictions and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from kmip_data.graphs.neighbor_sampling import Neighborhoods
from kmip_data.models.config import MESSAGE_PASSING, ModelConfig
from kmip_data.models.layers.batch import HOPS, Hops
from kmip_data.models.network import GPSLayer, build_model

SEEDS = 5
#: Every kind of message passing with its default keys, and keys that read more than these.
LOCAL = [
    *({"kind": kind} for kind in MESSAGE_PASSING if kind != "none"),
    {"kind": "gcn", "residual": "linear", "stack": "gnn-plus"},
    {"kind": "sage", "residual": "outside"},
    {"kind": "sage", "self_loops": True},
]


def sampled(fanouts: list[int], dtype: torch.dtype) -> Data:
    """A sample of a graph with loops, repeated edges, and hubs that two hops reach."""
    rng = np.random.default_rng(0)
    edges = rng.integers(60, size=(2, 240)) ** 2 // 60
    edges = edges[:, np.argsort(edges[1], kind="stable")]
    seeds = rng.permutation(60)[:SEEDS]
    drawn = Neighborhoods(edges, 60).sample_around(seeds, fanouts, rng)
    assert len(drawn.nodes) > 2 * SEEDS
    x = torch.from_numpy(rng.standard_normal((60, 6))[drawn.nodes]).to(dtype)
    index = torch.from_numpy(np.stack([drawn.source, drawn.target]))
    attr = torch.from_numpy(rng.standard_normal((index.shape[1], 3))).to(dtype)
    return Data(
        x=x, edge_index=index, edge_attr=attr, **{HOPS: Hops(drawn.hop_nodes, drawn.hop_edges)}
    )


def network(local: dict[str, object], layers: int, attention: str = "none") -> torch.nn.Module:
    kinds = {"local": local, "attention": {"kind": attention}}
    config = ModelConfig(name="gps-none", hidden_dim=8, layers=layers, **kinds)
    torch.manual_seed(0)
    return build_model(config, in_channels=6, out_channels=3, edge_channels=3).eval()


def results(model: torch.nn.Module, data: Data, rows: int) -> list[Tensor]:
    """Predictions of the first rows, and the gradients of all parameters."""
    model.zero_grad()
    out = model(data)[:rows]
    out.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [out.detach(), *(gradient.clone() for gradient in gradients)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("fanouts", [[3, 2, 2], [2], [4, 4, 3, 2]], ids=str)
@pytest.mark.parametrize("local", LOCAL, ids=str)
def test_seed_predictions_equal_predictions_on_the_full_sample(local, fanouts, dtype, monkeypatch):
    """Three layers over fewer, as many and more hops, and each layer gets no more than it needs."""
    data = sampled(fanouts, dtype)
    whole = data.clone()
    del whole[HOPS]
    model = network(local, 3).to(dtype)
    expected = results(model, whole, SEEDS)

    rows = []
    forward = GPSLayer.forward
    monkeypatch.setattr(
        GPSLayer, "forward", lambda self, x, *rest: rows.append(len(x)) or forward(self, x, *rest)
    )
    tolerance = 2e-5 if dtype == torch.float32 else 1e-10
    for result, wanted in zip(results(model, data, SEEDS), expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance)
    reached = np.cumsum(data[HOPS].nodes)
    layer_hops = (3, 2, 1) if local["kind"] != "dir-sage" else (4, 4, 4)  # it reads targets, too
    assert rows == [reached[min(hops, len(fanouts))] for hops in layer_hops]
    assert len(model(data)) == SEEDS


@pytest.mark.parametrize("attention", ["k-mip", "transformer"])
def test_attention_sees_the_whole_sample(attention):
    data = sampled([3, 2], torch.float64)
    whole = data.clone()
    del whole[HOPS]
    model = network({"kind": "gcn"}, 2, attention).double()
    assert torch.equal(model(data), model(whole)[:SEEDS])
