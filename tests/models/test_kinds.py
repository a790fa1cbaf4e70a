"""Parts plug in: found automatically, left out by ``none``, your own in a layer; public names."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from support.shared import ROOT
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv

import kmip_data.models
from kmip_data.models import GPSLayer, GraphBatch, KMIPAttention, ModelConfig, build_model, read_batch
from kmip_data.models.network import pool

SMALL = {"layers": 2, "hidden_dim": 8, "attention": {"heads": 2, "key_dim": 3, "k": 4}}
NO_ATTENTION, NO_LOCAL = {"attention": {"kind": "none"}}, {"local": {"kind": "none"}}


def batch(channels: int = 5) -> Batch:
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for n in (9, 1, 14):
        edges = torch.randint(0, n, (2, 3 * n), generator=generator)
        graphs.append(Data(x=torch.randn(n, channels, generator=generator), edge_index=edges))
    return Batch.from_data_list(graphs)


def network(**options) -> nn.Module:
    torch.manual_seed(0)
    return build_model(ModelConfig(**{**SMALL, **options}), in_channels=5, num_classes=4)


def test_without_message_passing_edges_make_no_difference_and_without_attention_far_nodes_make_none() -> None:
    plain, other = batch(), batch()
    other.edge_index = other.edge_index.flip(0)
    alone, local = network(**NO_LOCAL).eval(), network(**NO_ATTENTION).eval()
    assert torch.equal(alone(plain), alone(other))
    assert not torch.allclose(local(plain), local(other), atol=1e-4)
    other = batch()
    other.edge_index = torch.zeros(2, 0, dtype=torch.int64)
    before = local(other)
    other.x[3] += 1
    assert (local(other) != before).any(1).nonzero().flatten().tolist() == [3]


class OwnConv(nn.Module):
    """PyTorch Geometric's convolution as message passing of a layer."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = GCNConv(dim, dim)

    def forward(self, x, e, batch):
        return self.conv(x, batch.edges.index).relu(), e


class OwnAttention(nn.Module):
    """The mean of a graph, mapped."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x, batch):
        assert isinstance(batch, GraphBatch)
        return self.linear(pool(x, batch, "mean"))[batch.graph]


@pytest.mark.parametrize(
    ("conv", "attention"),
    [
        (OwnConv(6), None),
        (None, OwnAttention(6)),
        (OwnConv(6), OwnAttention(6)),
        (OwnConv(6), KMIPAttention(6, heads=2, key_dim=3, k=2)),
    ],
)
def test_a_layer_takes_modules_of_ones_own_and_a_batch_of_pyg(conv, attention) -> None:
    layer, data = GPSLayer(conv, attention, dim=6, norm="layer"), batch(6)
    x, e = layer(data.x, None, data)
    assert x.shape == data.x.shape
    assert e is None
    again, _ = layer(data.x, None, read_batch(data))
    assert torch.equal(x, again)
    layer.zero_grad()
    x.square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


PLUGGED = """
import sys
from pathlib import Path
from typing import Literal
from pydantic import Field
from kmip_data.models.attention import configuration
from kmip_data.models.parts import Part

folder = Path(sys.argv[1])

class Halved(Part):
    reads = ("weight",)
    kind: Literal["halved"] = Field(default="halved", description="x, smaller")
    share: float = Field(default=0.5, description="factor")

    multiple = property(lambda self: 3)

    def build(self, place):
        from torch import nn
        share = self.share

        class Layer(nn.Module):
            def forward(self, x, batch):
                return share * x * batch.added["weight"]

        return Layer()

Halved.__module__, configuration.Halved = configuration.__name__, Halved
sys.path.insert(0, sys.argv[2])

import torch
from torch_geometric.data import Data
from support.training_data import learnable_build, tiny_config
from kmip_data.models import ModelConfig, build_model
from kmip_data.models.network import fit_hidden_dim
from kmip_data.models.training.config.overrides import apply_overrides, documented_keys, read_config, to_toml

config = ModelConfig(layers=1, hidden_dim=9, attention={"kind": "halved"}, local="none", feed_forward=False)
model = build_model(config, in_channels=2, num_classes=2)
x, edges = torch.ones(3, 2), torch.zeros(2, 0, dtype=torch.int64)
assert model(Data(x=x, edge_index=edges, weight=torch.ones(3, 1))).shape == (3, 2)
assert fit_hidden_dim(config, in_channels=2, num_classes=2, budget=10**4).hidden_dim % 3 == 0
keys = {key.name: key for key in documented_keys()}
assert keys["model.attention.share"].doc == "halved: factor"
assert "halved" in keys["model.attention.kind"].type
run = tiny_config(learnable_build(folder / "build", graphs=8))
run = apply_overrides(run, ["model.attention.kind=halved", "model.attention.share=0.25"])
assert run.model.attention.share == 0.25
(folder / "config.toml").write_text(to_toml(run))
assert read_config(folder / "config.toml") == run
"""


def test_a_class_of_the_module_is_a_kind_with_keys_in_every_place(tmp_path) -> None:
    """Nothing else is edited: configuration, overrides, documented keys, network, budget."""
    done = subprocess.run(
        [sys.executable, "-c", PLUGGED, str(tmp_path), str(ROOT / "tests")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_public_names_are_there() -> None:
    """The list is the stub, which type checkers read."""
    assert {"GPSLayer", "KMIPAttention", "build_model", "topk_inner_product"} < set(kmip_data.models.__all__)
    for name in kmip_data.models.__all__:
        assert getattr(kmip_data.models, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'KMIP'"):
        _ = kmip_data.models.KMIP
