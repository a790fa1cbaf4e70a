"""The layer that GatedGCN is timed against computes the same."""

from __future__ import annotations

import torch
from benchmarks.gated_gcn import DIM, ScatterGatedGCN, rows

from kmip_data.models.layers.edges import NeighborTable
from kmip_data.models.layers.gated_gcn import GatedGCN


def test_the_scatter_form_is_the_same_layer() -> None:
    torch.manual_seed(0)
    layer = GatedGCN(DIM, dropout=0.0, residual=False)
    neighbor = torch.randint(0, 30, (30, 4))
    index = torch.stack([neighbor.flatten(), torch.arange(30).repeat_interleave(4)])
    x, e = torch.randn(30, DIM, requires_grad=True), torch.randn(30, 4, DIM, requires_grad=True)
    grads = torch.randn(30, DIM), torch.randn(30, 4, DIM)
    x_scattered, e_scattered = ScatterGatedGCN(layer)(x, e.view(-1, DIM), index)
    results = []
    for outputs in (layer(x, e, NeighborTable(neighbor)), (x_scattered, e_scattered.view_as(e))):
        found = torch.autograd.grad(outputs, (x, e, layer.C.weight, layer.E.weight), grads)
        results.append((*outputs, *found))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_gives_a_row_for_time_and_one_for_memory(monkeypatch) -> None:
    from benchmarks import gated_gcn

    monkeypatch.setattr(gated_gcn, "peak", lambda side, graphs, points: {"ours": 1.0, "theirs": 3.0}[side])
    monkeypatch.setattr(gated_gcn, "K", 2)
    monkeypatch.setattr(gated_gcn, "compare", lambda a, b, repeats: (a(), b(), (1.0, 2.5, 2.5, (2, 3)))[2])
    time, memory = rows(quick=True)
    assert time.met
    assert memory.ratio == 3.0
