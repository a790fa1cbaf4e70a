"""GatedGCN: both edge forms equal a loop over the edges, in values and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from support.cases import check_each
from support.layer_kernels import batch_of
from support.slow_models import slow_gated_gcn

from kmip_data.models.layers.batch import EdgeList, NeighborTable
from kmip_data.models.layers.gated_gcn import GatedGCN

N, K, D = 12, 3, 5


def make(**options) -> GatedGCN:
    torch.manual_seed(2)
    return GatedGCN(D, **{"dropout": 0.0, "residual": False, **options})


def graph() -> tuple[torch.Tensor, torch.Tensor]:
    """A neighbour table and the same edges as a list, sorted by target."""
    neighbor = torch.randint(0, N, (N, K), generator=torch.Generator().manual_seed(4))
    return neighbor, torch.stack([neighbor.flatten(), torch.arange(N).repeat_interleave(K)])


def features(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True)


def test_equals_a_loop_over_edges() -> None:
    _, edge_index = graph()
    edge_index = edge_index[:, torch.randperm(N * K, generator=torch.Generator().manual_seed(1))][:, :-5]
    x, e = features(N, D), features(edge_index.shape[1], D)
    layer = make().eval()
    sums, new_e, _ = slow_gated_gcn(layer, x, e, edge_index)
    x_out, e_out = layer(x, e, batch_of(EdgeList(edge_index[0], edge_index[1], N)))
    torch.testing.assert_close(x_out, layer.norm_x(sums).relu())
    torch.testing.assert_close(e_out, e + layer.norm_e(new_e).relu())


def run(layer: GatedGCN, x: torch.Tensor, e: torch.Tensor, edges) -> list[torch.Tensor]:
    """Outputs and all gradients of a scalar that uses both outputs."""
    layer.zero_grad()
    x, e = x.detach().requires_grad_(), e.detach().requires_grad_()
    x_out, e_out = layer(x, e, edges)
    e_out = e_out.reshape(-1, D) if layer.update_edges else e_out.new_zeros(1, D)
    (x_out.sin().sum() + e_out.cos().sum()).backward()
    grads = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
    return [x_out, e_out, x.grad, e.grad.reshape(-1, D), *grads]


def test_table_equals_list() -> None:
    def holds(case) -> None:
        training, residual, shared, index = case
        neighbor, edge_index = graph()
        layer = make(residual=residual).train(training)
        x, e = features(N, D), features(1, D) if shared else features(N * K, D)
        by_list = run(layer, x, e, batch_of(EdgeList(edge_index[0], edge_index[1], N)))
        by_table = run(
            layer, x, e if shared else e.view(N, K, D), batch_of(NeighborTable(neighbor.to(index)))
        )
        for a, b in zip(by_list, by_table, strict=True):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)

    check_each(
        holds, itertools.product([True, False], [True, False], [True, False], [torch.int32, torch.int64])
    )


def test_residual_adds_the_input_after_dropout() -> None:
    neighbor, _ = graph()
    x, e = features(N, D), features(1, D)
    plain, _ = make().eval()(x, e, batch_of(NeighborTable(neighbor)))
    residual, _ = make(residual=True).eval()(x, e, batch_of(NeighborTable(neighbor)))
    torch.testing.assert_close(residual, plain + x)


@pytest.mark.parametrize("training", [True, False])
def test_a_graph_without_edges(training: bool) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    layer, x = make().train(training), features(N, D)
    x_out, e_out = layer(x, torch.zeros(1, D), batch_of(EdgeList(none, none, N)))
    torch.testing.assert_close(x_out, make().train(training).norm_x(layer.A(x)).relu())
    assert e_out.shape == (0, D)
    x_out.sum().backward()


def test_last_layer_leaves_edges_alone_and_its_edge_norm_takes_no_gradient() -> None:
    neighbor, _ = graph()
    x, e = features(N, D), features(1, D)
    last, other = make(update_edges=False), make()
    x_last, e_last = last(x, e, batch_of(NeighborTable(neighbor)))
    assert e_last is e
    torch.testing.assert_close(x_last, other(x, e, batch_of(NeighborTable(neighbor)))[0])
    assert [name for name, p in last.named_parameters() if not p.requires_grad] == [
        "norm_e.weight",
        "norm_e.bias",
    ]
    x_last.sum().backward()
    assert all(p.grad is not None for p in last.parameters() if p.requires_grad)


def test_bfloat16_under_autocast() -> None:
    neighbor, _ = graph()
    layer, x, e = make(), features(N, D), features(1, D)
    expected = layer(x, e, batch_of(NeighborTable(neighbor)))
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x, e, batch_of(NeighborTable(neighbor)))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.float(), b, atol=0.15, rtol=0.1)
