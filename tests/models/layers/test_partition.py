"""One graph on two and on four processes: outputs, losses, gradients and statistics are those of one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.processes import on_processes
from torch import distributed
from torch_geometric.data import Data

from kmip_data.errors import UsageError
from kmip_data.models.config import ModelConfig
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.layers.partition import divided, share_of
from kmip_data.models.network import build_model

CLASSES = 4
NO_ATTENTION, KMIP = (
    {"kind": "none"},
    {"kind": "k-mip", "heads": 2, "k": 3, "key_dim": 2, "dropout": 0.3},
)
#: Every message passing, norm and activation once; dropout in all.
NETWORKS: dict[str, dict[str, Any]] = {
    "gcn": {"local": {"kind": "gcn"}, "norm": "graph-layer", "ffn_activation": "gelu"},
    "gat": {
        "local": {"kind": "gat", "activation": "gelu"},
        "norm": "graph",
        "attention": NO_ATTENTION,
    },
    "gine": {"local": {"kind": "gine"}, "norm": "layer", "edge_encoder": "linear"},
    "graphgym": {
        "local": {"kind": "gcn", "stack": "graphgym"},
        "norm": "none",
        "attention": NO_ATTENTION,
    },
    "gated-gcn": {"local": {"kind": "gated-gcn"}, "norm": "batch", "edge_encoder": "linear"},
    "dummy edges": {
        "local": {"kind": "gated-gcn", "residual": "inside"},
        "norm": "batch",
        "input_layers": 1,
    },
    "recomputed": {"local": {"kind": "gcn"}, "norm": "batch", "checkpoint_layers": True},
    "exphormer": {
        "local": {"kind": "gcn"},
        "norm": "batch",
        "attention": {"kind": "exphormer", "heads": 2},
    },
    "exphormer without loops": {
        "local": {"kind": "none"},
        "edge_encoder": "linear",
        "attention": {"kind": "exphormer", "heads": 2, "self_loops": False},
    },
    "upstream's padding": {"local": {"kind": "none"}, "attention": KMIP | {"legacy_padding": True}},
}


def _graph(nodes: int = 61, edges: int = 190) -> Data:
    """Edges in any order, with loops and repetitions, and a node without any."""
    draw = torch.Generator().manual_seed(3)
    index = torch.randint(nodes - 1, (2, edges), generator=draw)
    return Data(
        x=torch.randn(nodes, 5, generator=draw, dtype=torch.float64),
        edge_index=index,
        edge_attr=torch.randn(edges, 2, generator=draw, dtype=torch.float64),
        expander=torch.stack([torch.randperm(nodes, generator=draw) for _ in range(3)], 1),
        y=torch.randint(CLASSES, (nodes,), generator=draw),
        train_mask=torch.rand(nodes, generator=draw) < 0.4,
    )


def _learned(name: str, graph: Data, processes: int) -> dict[str, torch.Tensor]:
    """Train two steps on a graph, or on a share of it; return all that has to agree."""
    torch.manual_seed(5)
    keys = {
        "layers": 2,
        "hidden_dim": 6,
        "attention": KMIP,
        "dropout": 0.25,
        "head_dropout": 0.2,
        "head": "node",
    }
    config = ModelConfig.model_validate(keys | NETWORKS[name])
    model = build_model(config, in_channels=5, num_classes=CLASSES, edge_channels=2).double()
    for module in model.modules():
        if processes > 1 and isinstance(module, BatchNorm):
            module.share = 1.0
    found = {}
    for step in range(2):
        wanted = torch.nn.functional.one_hot(graph.y, CLASSES)
        loss = (model(graph) - wanted)[graph.train_mask].square().sum() / 10
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            whole = loss.clone()
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            for each in [whole, *gradients] if processes > 1 else []:
                distributed.all_reduce(each)
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        found[f"loss {step}"] = whole
    found |= {
        f"gradient of {at}": weight.grad
        for at, weight in model.named_parameters()
        if weight.grad is not None
    }
    found |= {at: buffer.detach() for at, buffer in model.named_buffers()}
    return found | {"logits": model.eval()(graph).detach()}


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_learn_what_one_does(processes: int) -> None:
    graph = _graph()
    wanted = {name: _learned(name, graph, 1) for name in NETWORKS}

    def compare(rank: int) -> None:
        distributed.init_process_group("gloo")
        own = share_of(graph, rank, processes)
        for name, alone in wanted.items():
            for at, value in _learned(name, own, processes).items():
                one = alone[at][own.partition.nodes.rows] if at == "logits" else alone[at]
                far = (
                    (value - one).abs().max() if value.is_floating_point() else (value != one).sum()
                )
                assert far <= 1e-10, f"{name}, {at}: {far}"

        distributed.destroy_process_group()

    on_processes(processes, compare)


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_each_node_and_edge_is_on_one_process(processes: int) -> None:
    graph = _graph()
    parts = [
        divided(graph.edge_index, graph.num_nodes, rank, processes) for rank in range(processes)
    ]
    for kind, count in (("nodes", graph.num_nodes), ("edges", graph.num_edges)):
        rows = torch.cat([getattr(part, kind).rows for part, _ in parts])
        assert torch.equal(rows.sort().values, torch.arange(count))
    for rank, (part, edges) in enumerate(parts):
        # What others send is what is read, row by row: the same numbers of the same nodes.
        halo = [
            other.nodes.rows[sent]
            for other, _ in parts
            for sent in [other.sent.split(other.counts_sent)[rank]]
        ]
        known = torch.cat([part.nodes.rows, *halo])
        assert [len(rows) for rows in halo] == list(part.counts_read)
        assert torch.equal(known[edges], graph.edge_index[:, part.edges.rows])


def test_too_many_processes() -> None:
    with pytest.raises(UsageError, match="cannot be divided among 40 processes"):
        divided(_graph().edge_index, 61, 0, 40)
