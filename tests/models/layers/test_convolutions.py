"""Message passing: place of dropout, graphs without edges, GraphSAGE against PyTorch Geometric.

Formulas are in test_whole_networks.py.
"""

from __future__ import annotations

from typing import get_args

import torch
from support.cases import check_each
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import DirGNNConv, SAGEConv
from torch_geometric.utils import add_self_loops, remove_self_loops

from kmip_data.models.components import LayerInfo, NoComponent
from kmip_data.models.config import MESSAGE_PASSING
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.layers.convolutions import GINE, SAGE
from kmip_data.models.layers.directed_sage import DirectedSAGE
from kmip_data.models.layers.message_passing import ConvolutionComponent, MessagePassingComponent

D, K, P = 5, 3, 0.3
#: Every kind of message passing, with each stack where it has stacks.
CASES = [
    component(stack=stack)
    for component in MESSAGE_PASSING.values()
    if issubclass(component, ConvolutionComponent)
    for stack in get_args(component.model_fields["stack"].annotation)
]
CASES += [
    component()
    for component in MESSAGE_PASSING.values()
    if not issubclass(component, ConvolutionComponent | NoComponent)
]


def batch() -> Batch:
    """Graphs of 1, 2 and 9 nodes, with edges from a node to itself and others that are there twice."""
    generator, made = torch.Generator().manual_seed(0), []
    for n in (1, 2, 9):
        index = torch.randint(0, n, (2, n * K), generator=generator)
        attr = torch.randn(n * K, D, generator=generator, dtype=torch.float64)
        x = torch.randn(n, D, generator=generator, dtype=torch.float64)
        made.append(Data(x=x, edge_index=index, edge_attr=attr))
    return Batch.from_data_list(made)


def make(component: MessagePassingComponent) -> nn.Module:
    torch.manual_seed(1)
    layer = component.build(LayerInfo(D, dropout=P)).double()
    for parameter in layer.parameters():  # biases and norms, too, off their start
        nn.init.normal_(parameter)
    return layer


def test_dropout_has_the_place_that_its_stack_gives_it() -> None:
    def check_case(case) -> None:
        kind, stack, after = case
        layer = make(MESSAGE_PASSING[kind](stack=stack, activation="gelu"))
        data = batch()
        h = layer.convolve(data.x, None, read_batch(data))
        if layer.bias is not None:
            h = h + layer.bias
        torch.manual_seed(7)
        nodes, _ = layer(data.x, None, read_batch(data))
        torch.manual_seed(7)
        torch.testing.assert_close(nodes, after(layer, h))

    def drop(x: Tensor) -> Tensor:
        return nn.functional.dropout(x, P)

    def gine(layer: GINE, _: Tensor) -> Tensor:
        data = batch()
        source, target = data.edge_index
        sums = data.x.index_add(0, target, data.x.relu()[source])
        return drop(layer.lin_out(drop(gelu(layer.lin_in(sums)))))

    gelu, normalize = nn.functional.gelu, nn.functional.normalize
    check_each(
        check_case,
        [
            ("gine", "lrgb", gine),
            ("gcn", "lrgb", lambda layer, h: drop(gelu(h))),
            ("gcn", "graphgym", lambda layer, h: normalize(gelu(drop(layer.norm(h))), dim=1)),
            ("gcn", "gnn-plus", lambda layer, h: drop(gelu(layer.norm(h)))),
        ],
    )


def test_a_graph_without_edges_trains() -> None:
    def check_case(component: MessagePassingComponent) -> None:
        layer = make(component)
        x = torch.randn(4, D, dtype=torch.float64, requires_grad=True)
        alone = read_batch(Data(x=x.detach(), edge_index=torch.zeros(2, 0, dtype=torch.int64)))
        layer(x, torch.zeros(0, D, dtype=torch.float64), alone)[0].square().sum().backward()
        assert torch.isfinite(x.grad).all()
        assert all(p.grad is not None for p in layer.parameters() if p.requires_grad)

    check_each(check_case, CASES)


def test_graphsage_equals_pyg() -> None:
    """Output and all gradients, on a graph with edges to itself and nodes without sources."""

    def check_case(self_loops: bool) -> None:
        layer = SAGE(D, stack="none", self_loops=self_loops).double()
        other = SAGEConv(D, D).double()
        pairs = (
            (other.lin_l.weight, layer.lin.weight),
            (other.lin_r.weight, layer.lin_root.weight),
            (other.lin_l.bias, layer.lin_root.bias),
        )
        for copy, original in pairs:
            copy.data.copy_(original)
        index = torch.randint(0, 9, (2, 40), generator=torch.Generator().manual_seed(0))
        x = torch.randn(12, D, dtype=torch.float64, requires_grad=True)
        ends = index
        if self_loops:
            ends = add_self_loops(remove_self_loops(index)[0], num_nodes=12)[0]
        out = layer(x, None, read_batch(Data(x=x.detach(), edge_index=index)))[0]
        expected = other(x, ends)
        torch.testing.assert_close(out, expected, atol=1e-9, rtol=0)

        slope = torch.randn_like(out)
        ours = torch.autograd.grad(out, [x, *(pair[1] for pair in pairs)], slope)
        gradients = torch.autograd.grad(expected, [x, *(pair[0] for pair in pairs)], slope)
        torch.testing.assert_close(ours, gradients, atol=1e-9, rtol=0)

    check_each(check_case, (False, True))


def test_directed_graphsage_equals_pyg_without_edge_features() -> None:
    layer = DirectedSAGE(D, stack="none").double()
    other = DirGNNConv(SAGEConv(D, D, bias=False), alpha=0.5).double()
    other.conv_in.lin_l.weight.data.copy_(2 * layer.lin_in.weight)
    other.conv_out.lin_l.weight.data.copy_(2 * layer.lin_out.weight)
    other.lin.load_state_dict(layer.lin_root.state_dict())
    index = torch.randint(0, 9, (2, 40), generator=torch.Generator().manual_seed(0))
    x = torch.randn(12, D, dtype=torch.float64)
    out = layer(x, None, read_batch(Data(x=x, edge_index=index)))[0]
    torch.testing.assert_close(out, other(x, index), atol=1e-9, rtol=0)
