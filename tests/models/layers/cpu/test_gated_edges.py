"""Compiled passes over the edges equal the layer in torch operations, in all that comes out."""

from __future__ import annotations

import pytest
import torch
from support.kernels.allocations import saved_for_backward
from support.kernels.layer_kernels import make_batch
from support.raises import raises

from kmip_data.errors import UsageError
from kmip_data.models.layers import gated_gcn as layers
from kmip_data.models.layers.batch import NeighborTable
from kmip_data.models.layers.gated_gcn import GatedGCN
from kmip_data.runtime import parallel


def graphs(count: int = 3, nodes: int = 40, k: int = 4) -> torch.Tensor:
    """The table of some random graphs of equal size."""
    g = torch.Generator().manual_seed(4)
    first = torch.arange(count).repeat_interleave(nodes)[:, None] * nodes
    return torch.randint(0, nodes, (count * nodes, k), generator=g) + first


def run(layer: GatedGCN, table: torch.Tensor, *, d: int, shared: bool = False, use: str = "both"):
    """Outputs, gradients and statistics of a step; ``use``: which outputs the loss reads."""
    g = torch.Generator().manual_seed(5)
    x = torch.randn(len(table), d, generator=g)
    e = torch.randn((1, d) if shared else (*table.shape, d), generator=g)
    x, e = (t.to(layer.A.weight.dtype).requires_grad_() for t in (x, e))
    torch.manual_seed(6)
    x_out, e_out = layer(x, e, make_batch(NeighborTable(table)))
    weight = torch.randn(e_out.shape, generator=g)
    loss = 0.0
    if use != "edges":
        loss = loss + x_out.sin().sum()
    if use != "nodes":
        loss = loss + (e_out * weight).sum()
    inputs = [x, e, *(p for p in layer.parameters() if p.requires_grad)]
    grads = torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)
    return [t.detach().clone() for t in (x_out, e_out, *grads, *layer.buffers())]


def layer_of(d: int, **options) -> GatedGCN:
    torch.manual_seed(2)
    layer = GatedGCN(d, **{"dropout": 0.0, "residual": False, **options})
    with torch.no_grad():  # a norm that does something, also when its running statistics are used
        for norm in (layer.norm_x, layer.norm_e):
            norm.weight.uniform_(0.5, 2)
            norm.bias.normal_()
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    return layer


def check(
    monkeypatch,
    table: torch.Tensor,
    d: int,
    *,
    training: bool = True,
    shared=False,
    use="both",
    **options,
):
    """Assert that the kernel's error against float64 is at most four times torch operations'."""

    def outcome(dtype: torch.dtype) -> list[torch.Tensor]:
        layer = layer_of(d, **options).train(training).to(dtype)
        return run(layer, table, d=d, shared=shared, use=use)

    ours = outcome(torch.float32)
    exact = outcome(torch.float64)  # in torch operations too
    monkeypatch.setattr(layers, "_find_kernel", lambda *_: None)
    for a, b, c in zip(ours, outcome(torch.float32), exact, strict=True):
        scale = float(c.abs().max()) if c.numel() else 0.0
        error, other = (float((t.double() - c).abs().max()) if c.numel() else 0.0 for t in (a, b))
        assert error <= 4 * other + 3e-6 * scale + 1e-6


@pytest.mark.parametrize("d", [1, 16, 19, 56])
@pytest.mark.parametrize("training", [True, False])
def test_equals_torch_operations(d: int, training: bool, monkeypatch) -> None:
    check(monkeypatch, graphs(), d, training=training)


@pytest.mark.parametrize("use", ["nodes", "edges"])
@pytest.mark.parametrize("shared", [True, False])
def test_gradients_are_correct_when_only_one_output_is_used(
    use: str, shared: bool, monkeypatch
) -> None:
    check(monkeypatch, graphs().to(torch.int32), 20, use=use, shared=shared)


def test_the_last_layer_leaves_edges_unchanged(monkeypatch) -> None:
    check(monkeypatch, graphs(), 20, use="nodes", update_edges=False)


@pytest.mark.parametrize("count", [1, 16])
def test_results_are_equal_in_few_and_in_many_parts(count: int, monkeypatch) -> None:
    table = graphs(count, 64)
    parts = NeighborTable(table).node_ranges
    assert len(parts) == (16 if count == 16 else 4)
    check(monkeypatch, table, 20)


def test_an_edge_alone_is_normalised_by_the_running_statistics(monkeypatch) -> None:
    check(monkeypatch, torch.zeros(1, 1, dtype=torch.int64), 8)


def test_large_and_small_values_keep_their_accuracy(monkeypatch) -> None:
    """Gates near zero, whose sum is near the 10⁻⁶ of the quotient, and channels far from zero."""
    make = layer_of

    def shifted(d: int, **options) -> GatedGCN:
        layer = make(d, **options)
        with torch.no_grad():
            layer.D.bias.fill_(-15.0)
            layer.E.bias[0] = 1000.0
        return layer

    monkeypatch.setitem(globals(), "layer_of", shifted)
    check(monkeypatch, graphs(), 20)


def test_same_bits_for_any_number_of_threads() -> None:
    results = []
    for count in (1, 2, 5):
        parallel.set_num_threads(count)
        try:
            results.append(run(layer_of(20, dropout=0.3), graphs(7, 100), d=20))
        finally:
            parallel.set_num_threads(None)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_dropout_drops_the_same_edges_forward_and_backward() -> None:
    d, p = 20, 0.3
    edges = NeighborTable(graphs(6))
    layer = layer_of(d, dropout=p)
    e = torch.randn(*edges.neighbor.shape, d, requires_grad=True)
    x = torch.randn(len(edges.neighbor), d)
    e_out = layer(x, e, make_batch(edges))[1]
    kept = (e_out != e).float()
    norm = torch.nn.BatchNorm1d(d)
    norm.load_state_dict(layer_of(d).norm_e.state_dict())
    pre = edges.at_target(layer.D(x)) + edges.at_source(layer.E(x)) + layer.C(e)
    active = norm(pre.view(-1, d)).relu().view(pre.shape)
    expected = e + active * kept / (1 - p)
    torch.testing.assert_close(e_out, expected, atol=1e-5, rtol=1e-5)
    share = float(kept[active > 0].mean())
    assert abs(share - (1 - p)) < 4 * (p * (1 - p) / float((active > 0).sum())) ** 0.5
    weight = torch.randn(e.shape)
    inputs = [e, layer.C.weight, layer.D.weight]
    gradients = torch.autograd.grad((e_out * weight).sum(), inputs)
    for a, b in zip(gradients, torch.autograd.grad((expected * weight).sum(), inputs), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_backward_saves_one_edge_tensor_besides_the_input() -> None:
    d, table = 16, graphs()
    layer = layer_of(d, dropout=0.2)
    x, e = torch.randn(len(table), d), torch.randn(*table.shape, d, requires_grad=True)
    with saved_for_backward() as kept:
        layer(x, e, make_batch(NeighborTable(table)))
    assert sum(size >= e.nbytes for size in kept.values()) == 2
    assert e.data_ptr() in kept


@pytest.mark.parametrize("bad", [-1, 120, 2**40])
def test_a_neighbour_table_with_missing_nodes_is_refused(bad: int) -> None:
    table = graphs()
    table[7, 2] = bad
    layer, x = layer_of(8), torch.randn(len(table), 8)
    with raises(UsageError, naming=bad):
        layer(x, torch.zeros(1, 8), make_batch(NeighborTable(table)))
