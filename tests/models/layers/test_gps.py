"""GPS layer: the order of its parts, the options, and recomputation that changes nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.layers.gated_gcn import GatedGCN
from kmip_data.models.network import GPSLayer, recomputed
from kmip_data.models.search import topk
from kmip_data.models.search.topk import choose

D = 6


class Twice(nn.Module):
    """Stands for message passing: doubles nodes and edges."""

    def forward(self, x, e, batch):
        return 2 * x, 2 * e


class Shift(nn.Module):
    """Stands for attention."""

    def forward(self, x, batch):
        return x.roll(1, 1)


def batch():
    generator = torch.Generator().manual_seed(1)
    neighbor = torch.randint(0, 10, (10, 3), generator=generator)
    return read_batch(Data(x=torch.randn(10, D, generator=generator), neighbor=neighbor))


def layer(local: nn.Module, **options) -> GPSLayer:
    torch.manual_seed(0)
    return GPSLayer(local, Shift(), dim=D, **{"dropout": 0.0, "norm": "layer", **options})


@pytest.mark.parametrize(("activation", "function"), [("relu", torch.relu), ("gelu", nn.functional.gelu)])
@pytest.mark.parametrize("add", [False, True])
def test_the_order_of_its_parts(activation, function, add: bool) -> None:
    gps, graphs = layer(Twice(), activation=activation, add_local_input=add), batch()
    x, e = graphs.x, torch.ones(1, D)
    norm = nn.LayerNorm(D)
    h = norm((3 if add else 2) * x) + norm(x + x.roll(1, 1))
    expected = norm(h + gps.linear_out(function(gps.linear_in(h))))
    x_out, e_out = gps(x, e, graphs)
    torch.testing.assert_close(x_out, expected)
    assert torch.equal(e_out, 2 * e)


def test_dropout_is_active_in_training_only() -> None:
    gps, graphs = layer(Twice(), dropout=0.5), batch()
    arguments = graphs.x, torch.zeros(1, D), graphs
    assert not torch.equal(gps(*arguments)[0], gps(*arguments)[0])
    gps.eval()
    assert torch.equal(gps(*arguments)[0], gps(*arguments)[0])


def test_recomputation_changes_neither_results_nor_gradients_nor_statistics(monkeypatch) -> None:
    searches = []

    def counted(problem, name):
        searches.append(problem)
        return choose(problem, name)

    monkeypatch.setattr(topk, "choose", counted)
    states = []
    for recompute in (False, True):
        gps = layer(Twice(), norm="batch", dropout=0.3)
        torch.manual_seed(4)
        gps.local = GatedGCN(D, dropout=0.3, residual=False)
        gps.attention = KMIPAttention(D, heads=2, key_dim=3, k=4, dropout=0.2)
        graphs = batch()
        x = graphs.x.clone().requires_grad_()
        torch.manual_seed(8)
        arguments = x, torch.zeros(1, D), graphs
        x_out, e_out = recomputed(gps, *arguments) if recompute else gps(*arguments)
        (x_out.square().sum() + e_out.sum()).backward()
        states.append([x_out, e_out, x.grad, *(p.grad for p in gps.parameters()), *gps.state_dict().values()])
    for a, b in zip(*states, strict=True):
        assert torch.equal(a, b)
    assert len(searches) == 2  # one a layer, none for the second pass
