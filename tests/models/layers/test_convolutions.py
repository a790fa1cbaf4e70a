"""GCN, GAT, GINE and the perceptron: loops over nodes and PyTorch Geometric as oracles, in both stacks."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from support.cases import check_each
from support.slow_models import slow_gat, slow_gcn, slow_gine_sums
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINEConv

from kmip_data.models.layers.batch import read_batch
from kmip_data.models.layers.convolutions import GAT, GCN, GINE, MLP, Convolution
from kmip_data.models.layers.norms import relu_dropout

D, K, P = 5, 3, 0.3
CASES = [(kind, stack) for kind in (MLP, GCN, GAT, GINE) for stack in ("lrgb", "graphgym")]
CASES.append((GINE, "graphgps"))


def graphs() -> list[Data]:
    """Graphs of 1, 2 and 9 nodes, with edges from a node to itself and others that are there twice."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for n in (1, 2, 9):
        table = torch.randint(0, n, (n, K), generator=generator)
        index = torch.stack([table.flatten(), torch.arange(n).repeat_interleave(K)])
        attr = torch.randn(n * K, D, generator=generator, dtype=torch.float64)
        x = torch.randn(n, D, generator=generator, dtype=torch.float64)
        found.append(Data(x=x, edge_index=index, edge_attr=attr))
    return found


def batch(form: str) -> Data:
    both = Batch.from_data_list(graphs())
    if form == "list":
        return both
    return Data(x=both.x, neighbor=both.edge_index[0].view(-1, K), edge_attr=both.edge_attr, ptr=both.ptr)


def make(kind: type[Convolution], stack: str, activation: str = "gelu", dropout: float = P) -> Convolution:
    torch.manual_seed(1)
    layer = kind(D, dropout=dropout, stack=stack, activation=activation).double()
    for parameter in layer.parameters():  # biases and norms, too, off their start
        nn.init.normal_(parameter)
    return layer


def slow(layer: Convolution, x: Tensor, e: Tensor, edge_index: Tensor) -> Tensor:
    """The whole layer; under the seed of the layer's, dropout draws the same."""

    def drop(rows: Tensor) -> Tensor:
        return nn.functional.dropout(rows, P, layer.training)

    def act_drop(rows: Tensor) -> Tensor:
        if layer.activation == "relu":
            return relu_dropout(rows, P, layer.training)
        return drop(nn.functional.gelu(rows))

    if isinstance(layer, GINE):
        h = layer.lin_in(slow_gine_sums(x, e, edge_index))
        if layer.stack == "lrgb":
            return drop(layer.lin_out(act_drop(h)))
        h = layer.lin_out(h.clamp_min(0))
    elif isinstance(layer, MLP):
        h = layer.lin(x)
    else:
        h = (slow_gcn if isinstance(layer, GCN) else slow_gat)(dict(layer.named_parameters()), x, edge_index)
    if layer.norm is None:
        return act_drop(h)
    if layer.training:
        h = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()
    else:
        h = (h - layer.norm.running_mean) / (layer.norm.running_var + 1e-5).sqrt()
    h = h * layer.norm.weight + layer.norm.bias
    h = relu_dropout(h, P, layer.training) if layer.activation == "relu" else nn.functional.gelu(drop(h))
    return h / h.norm(dim=1, keepdim=True).clamp_min(1e-12)


def test_oracle_in_values_and_gradients() -> None:
    def holds(case) -> None:
        (kind, stack), form, training, activation = case
        layer, both = make(kind, stack, activation).train(training), batch("list")
        x, e = both.x.clone().requires_grad_(), both.edge_attr.clone().requires_grad_()
        given = read_batch(batch(form))
        torch.manual_seed(7)
        fast, same = layer(x, e.view(len(x), K, D) if form == "table" else e, given)
        statistics = {name: buffer.clone() for name, buffer in layer.named_buffers()}
        make_again = make(kind, stack, activation).train(training)
        torch.manual_seed(7)
        expected = slow(make_again, x, e, both.edge_index)
        torch.testing.assert_close(fast, expected, atol=1e-10, rtol=0)
        assert same.data_ptr() == e.data_ptr()
        if training and "norm.running_mean" in statistics:
            assert statistics["norm.num_batches_tracked"] == 1
        pull = torch.randn(fast.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        for out, module in ((fast, layer), (expected, make_again)):
            (out * pull).sum().backward()
            module.found = [
                x.grad,
                *([e.grad] if kind is GINE else []),
                *(p.grad for p in module.parameters()),
            ]
            x.grad = e.grad = None
        for a, b in zip(layer.found, make_again.found, strict=True):
            torch.testing.assert_close(a, b, atol=1e-10, rtol=0)

    check_each(holds, itertools.product(CASES, ["list", "table"], [False, True], ["gelu", "relu"]))


def pyg(layer: Convolution) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """PyTorch Geometric's convolution with the layer's weights."""
    if isinstance(layer, GINE):
        conv = GINEConv(nn.Sequential(layer.lin_in, nn.ReLU(), layer.lin_out))
        return conv
    conv = (GCNConv if isinstance(layer, GCN) else GATConv)(D, D, bias=layer.bias is not None).double()
    shapes = conv.state_dict()
    conv.load_state_dict(
        {n: v.view_as(shapes[n]) for n, v in layer.state_dict().items() if not n.startswith("norm")}
    )
    return lambda x, index, e: conv(x, index)


def test_oracle_of_pyg() -> None:
    def holds(case) -> None:
        kind, stack = case
        layer, both = make(kind, stack, "relu", dropout=0.0), batch("list")
        expected = pyg(layer)(both.x, both.edge_index, both.edge_attr)
        found = layer.convolve(both.x, both.edge_attr, read_batch(both).edges)
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)

    check_each(holds, [case for case in CASES if case[0] is not MLP])


def test_edges_that_share_their_features_need_no_row_each() -> None:
    def holds(form) -> None:
        layer, both = make(GINE, "lrgb").eval(), batch("list")
        shared = torch.randn(1, D, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        expected = slow(layer, both.x, shared.expand(len(both.edge_attr), D), both.edge_index)
        torch.testing.assert_close(layer(both.x, shared, read_batch(batch(form)))[0], expected)

    check_each(holds, ["list", "table"])


def test_without_edge_features_gine_sums_the_nodes() -> None:
    layer, both = make(GINE, "graphgps").eval(), read_batch(batch("list"))
    zero = torch.zeros(1, D, dtype=torch.float64)
    torch.testing.assert_close(layer(both.x, None, both)[0], layer(both.x, zero, both)[0])


def test_a_graph_without_edges_trains() -> None:
    def holds(case) -> None:
        kind, stack = case
        layer = make(kind, stack)
        x = torch.randn(4, D, dtype=torch.float64, requires_grad=True)
        alone = read_batch(Data(x=x.detach(), edge_index=torch.zeros(2, 0, dtype=torch.int64)))
        layer(x, torch.zeros(0, D, dtype=torch.float64), alone)[0].square().sum().backward()
        assert torch.isfinite(x.grad).all()
        assert all(p.grad is not None for p in layer.parameters())

    check_each(holds, CASES)


def test_large_scores_of_gat_stay_finite() -> None:
    layer, both = make(GAT, "lrgb").eval(), batch("list")
    x = 1e3 * both.x
    torch.testing.assert_close(
        layer(x, None, read_batch(both))[0], slow(layer, x, both.edge_attr, both.edge_index)
    )


def test_half_precision_is_near_and_sums_are_not_in_it() -> None:
    def holds(case) -> None:
        kind, stack = case
        layer, given = make(kind, stack, dropout=0.0).float().eval(), batch("list")
        x, e, both = given.x.float(), given.edge_attr.float(), read_batch(given)
        plain, _ = layer(x, e, both)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half, _ = layer(x, e, both)
        half.float().sum().backward()
        torch.testing.assert_close(half.float(), plain, atol=0.05 * plain.abs().max().item(), rtol=0.1)
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())

    check_each(holds, CASES)
