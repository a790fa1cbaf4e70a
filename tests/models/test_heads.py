"""The node head: GraphGym's perceptron with its hidden row normalisation."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from kmip_data.models.layers.batch import read_batch
from kmip_data.models.network import GraphHead, NodeHead
from kmip_data.models.network import pool as pool_graphs

X = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))


def test_a_row_of_zeros_stays_finite() -> None:
    head = NodeHead(5, 4, layers=2, l2norm=True)
    with torch.no_grad():
        head.hidden[0].weight.zero_()
        head.hidden[0].bias.fill_(-1)
    out = head(X.requires_grad_())
    out.sum().backward()
    assert bool(out.isfinite().all())
    assert bool(X.grad.isfinite().all())


@pytest.mark.parametrize(
    ("pooling", "pool"), [("mean", global_mean_pool), ("max", global_max_pool), ("sum", global_add_pool)]
)
def test_graphs_are_pooled_first(pooling, pool) -> None:
    """LRGB's mlp_graph: pooled, then dropout, linear, GELU, dropout, linear."""
    graphs = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    edges = torch.zeros(2, 0, dtype=torch.int64)
    batch = read_batch(Data(x=X, edge_index=edges, ptr=torch.tensor([0, 3, 5, 7]), batch=graphs))
    options = {"dropout": 0.3, "activation": "gelu", "pooling": pooling}
    head = GraphHead(5, 4, layers=2, l2norm=False, **options)
    rows = torch.nn.functional.gelu(head.hidden[0](pool(X, graphs)))
    torch.testing.assert_close(head.eval()(X, batch), head.out(rows))
    torch.manual_seed(2)
    first = head.train()(X, batch)
    torch.manual_seed(2)
    dropped = torch.nn.functional.dropout(pool(X, graphs), 0.3)
    dropped = torch.nn.functional.dropout(torch.nn.functional.gelu(head.hidden[0](dropped)), 0.3)
    torch.testing.assert_close(first, head.out(dropped))


@pytest.mark.parametrize("pooling", ["mean", "max", "sum"])
def test_a_graph_without_nodes_is_pooled_to_zero(pooling) -> None:
    edges = torch.zeros(2, 0, dtype=torch.int64)
    graphs = torch.tensor([0] * 3 + [2] * 4)
    batch = read_batch(Data(x=X, edge_index=edges, ptr=torch.tensor([0, 3, 3, 7]), batch=graphs))
    assert (pool_graphs(X, batch, pooling)[1] == 0).all()


@pytest.mark.parametrize("pooling", ["mean", "max", "sum"])
def test_double_precision_is_kept(pooling) -> None:
    x = torch.linspace(1, 2, 35, dtype=torch.float64).reshape(7, 5) / 3
    batch = read_batch(Data(x=x, edge_index=torch.zeros(2, 0, dtype=torch.int64)))
    pool = {"mean": x.mean, "max": x.amax, "sum": x.sum}[pooling]
    torch.testing.assert_close(pool_graphs(x, batch, pooling)[0], pool(0), rtol=0, atol=1e-14)
