"""The whole network: batches, recomputation, compilation, heads, budgets, your own modules, refusals."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from pydantic import ValidationError
from support.cases import check_each
from support.raises import raises
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv

from kmip_data.errors import UsageError
from kmip_data.models import GraphBatch, KMIPAttention, read_batch
from kmip_data.models.config import ModelConfig, known_models, merge_tables
from kmip_data.models.heads import GraphHead, LinkHead, NodeHead, pool_nodes
from kmip_data.models.layers.gated_gcn import GatedGCN
from kmip_data.models.network import (
    GPSLayer,
    apply_checkpointed,
    build_model,
    count_parameters,
    fit_hidden_dim,
)
from kmip_data.models.search import topk

SMALL = {"layers": 2, "hidden_dim": 8, "attention": {"heads": 2, "key_dim": 3, "k": 4}}


def graphs(sizes: tuple[int, ...] = (9, 1, 14), k: int = 3) -> list[Data]:
    generator, made = torch.Generator().manual_seed(0), []
    for n in sizes:
        neighbor = torch.randint(0, n, (n, k), generator=generator)
        edge_index = torch.stack([neighbor.flatten(), torch.arange(n).repeat_interleave(k)])
        x, expander = (
            torch.randn(n, 5, generator=generator),
            torch.randint(0, n, (n, 3), generator=generator),
        )
        made.append(Data(x=x, edge_index=edge_index, expander=expander))
    return made


def compact(batch: Batch, k: int = 3) -> Data:
    """The batch as ``GraphLoader(compact=True)`` gives it."""
    neighbor = batch.edge_index[0].view(-1, k).int()
    return Data(x=batch.x, neighbor=neighbor, ptr=batch.ptr, batch=batch.batch)


def network(**options) -> nn.Module:
    torch.manual_seed(0)
    return build_model(ModelConfig(**merge_tables(SMALL, options)), in_channels=5, out_channels=4)


def test_network_accepts_graphs_without_edges() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    model = network()
    for mode in (model.train(), model.eval()):
        assert mode(Data(x=torch.randn(6, 5), edge_index=none)).isfinite().all()
        assert mode(Data(x=torch.randn(1, 5), edge_index=none)).isfinite().all()


def test_dropout_is_active_in_training_only() -> None:
    batch = Batch.from_data_list(graphs())
    for options in ({"dropout": 0.5}, {"dropout": 0.0, "head_dropout": 0.5}):
        model = network(local="none", norm="layer", **options)
        assert not torch.equal(model(batch), model(batch))
        assert torch.equal(model.eval()(batch), model(batch))


@pytest.mark.parametrize("table", [pytest.param(False, marks=pytest.mark.torture), True])
def test_compiled_layers_learn_the_same_and_take_batches_of_any_size(table: bool) -> None:
    """``layer.compile()`` compiles layers in place.

    The compiler's own code generator is not the point.
    """
    first, second = (Batch.from_data_list(graphs(sizes)) for sizes in ((9, 1, 14), (7, 6)))
    first, second = map(compact, (first, second)) if table else (first, second)
    attention = {"gate": "output"}
    networks, states = [network(dropout=0.0, attention=attention) for _ in range(2)], []
    for model in networks:
        for layer in model.layers if states else ():
            layer.compile(dynamic=True, backend="eager")
        model(first).square().sum().backward()
        grads = [p.grad for p in model.parameters() if p.requires_grad]
        states.append([*grads, *(value.clone() for value in model.state_dict().values())])
    torch.testing.assert_close(*states)
    with torch._dynamo.config.patch(error_on_recompile=True):
        torch.testing.assert_close(*(model(second) for model in networks))


@pytest.mark.parametrize("model", sorted(known_models()))
def test_recomputed_layers_learn_the_same_and_every_weight_learns(model: str) -> None:
    """Otherwise training on several processes would wait for a gradient for ever."""

    def check_case(case) -> None:
        head, norm = case
        gradients, data = [], Batch.from_data_list(graphs((9, 1, 14, 2)))
        for recompute in (False, True):
            torch.manual_seed(0)
            options = {"layers": 2, "hidden_dim": 8, "dropout": 0.2, "head": head, "norm": norm}
            config = ModelConfig(name=model, checkpoint_layers=recompute, **options)
            network = build_model(config, in_channels=5, out_channels=2)
            network(data).square().sum().backward()
            grads = {name: p.grad for name, p in network.named_parameters() if p.requires_grad}
            assert [name for name, grad in grads.items() if grad is None] == []
            gradients.append([*grads.values(), *network.buffers()])
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))

    check_each(check_case, [("node", "batch"), ("graph", "graph"), ("link", "none")])


def test_recomputation_searches_once(monkeypatch) -> None:
    searches, choose = [], topk.choose_backend
    monkeypatch.setattr(
        topk, "choose_backend", lambda *args: searches.append(args) or choose(*args)
    )
    attention = KMIPAttention(6, heads=2, key_dim=3, k=4)
    gps = GPSLayer(GatedGCN(6, dropout=0.3, residual=False), attention, dim=6, dropout=0.3)
    x = torch.randn(10, 6, requires_grad=True)
    batch = read_batch(Data(x=x, neighbor=torch.randint(0, 10, (10, 3))))
    apply_checkpointed(gps, x, torch.zeros(1, 6), batch)[0].sum().backward()
    assert len(searches) == 1


@pytest.mark.parametrize("model", ["gcn", "gat", "mlp"])
def test_edge_features_are_encoded_only_for_layers_that_read_them(model: str) -> None:
    network = build_model(
        ModelConfig(name=model, layers=1, hidden_dim=8), in_channels=5, out_channels=2
    )
    assert not network.reads_edges
    assert not any(p.requires_grad for p in network.edge_encoder.parameters())
    assert build_model(ModelConfig(name="gine"), in_channels=5, out_channels=2).reads_edges


def test_graphgym_draws_the_encoders_weights_by_its_own_rule() -> None:
    def encoder(stack: str) -> nn.Linear:
        torch.manual_seed(0)
        config = ModelConfig(name="gcn", hidden_dim=64, layers=1, local={"stack": stack})
        return build_model(config, in_channels=6, out_channels=2).node_encoder.linear

    drawn, usual = encoder("graphgym"), encoder("lrgb")
    assert not drawn.bias.any()
    assert usual.bias.any()
    bound = math.sqrt(2) * math.sqrt(6 / (6 + 64))
    assert 0.95 * bound < drawn.weight.abs().max() <= bound


def test_a_row_of_zeros_stays_finite_in_the_head() -> None:
    head, x = NodeHead(5, 4, layers=2, l2norm=True), torch.randn(7, 5, requires_grad=True)
    with torch.no_grad():
        head.hidden[0].weight.zero_()
        head.hidden[0].bias.fill_(-1)
    out = head(x)
    out.sum().backward()
    assert bool(out.isfinite().all())
    assert bool(x.grad.isfinite().all())


def test_scores_of_pairs_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert LinkHead(5, 1, layers=2, l2norm=True)(torch.randn(3, 5)).dtype == torch.float32


@pytest.mark.parametrize("pooling", ["mean", "max", "sum", "first"])
def test_pooling_keeps_double_precision_and_gives_zero_without_nodes(pooling: str) -> None:
    x, edges = (
        torch.linspace(1, 2, 35, dtype=torch.float64).reshape(7, 5) / 3,
        torch.zeros(2, 0).long(),
    )
    batch = read_batch(Data(x=x, edge_index=edges, ptr=torch.tensor([0, 3, 3, 7])))
    pooled, of = (
        pool_nodes(x, batch, pooling),
        {
            "mean": Tensor.mean,
            "max": Tensor.amax,
            "sum": Tensor.sum,
            "first": lambda rows, _: rows[0],
        }[pooling],
    )
    torch.testing.assert_close(
        pooled, torch.stack([of(x[:3], 0), x[0] * 0, of(x[3:], 0)]), rtol=0, atol=1e-14
    )
    head = GraphHead(5, 2, layers=1, l2norm=False, pooling=pooling).double()
    torch.testing.assert_close(head(x, batch), head.out(pooled))


def test_unknown_names_of_models_and_backends_get_the_nearest() -> None:
    with raises(ValidationError, naming="'gps-kmip'"):
        network(name="gps-kmop")
    with raises(UsageError, naming="'dense'"):
        network(attention={"search": "dens"})


def test_mismatched_features_are_refused() -> None:
    with raises(UsageError, naming=(7, 5)):
        network()(Data(x=torch.ones(3, 7), edge_index=torch.zeros(2, 0, dtype=torch.int64)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"hidden_dim": 9}, "heads"),
        ({"attention": {"value_dim": 5}}, "output_projection"),
        ({"attention": {"k": [3]}}, "layers"),
        ({"attention": {"value_dim": 5}, "parameter_budget": 1000}, "parameter_budget"),
        ({"parameter_budget": 1000, "hidden_dim": 16}, "hidden_dim"),
        ({"hiden_dim": 8}, "hiden_dim"),
        ({"norm": "instance"}, "graph-layer"),
        ({"dropout": 1.0}, "less_than"),
        ({"attention": {"k": 0}}, "greater_than_equal"),
        ({"attention": "none", "local": "none"}, ["attention", "local"]),
        ({"node_encoder": "none"}, "node_encoder"),
        (
            {
                "attention": {
                    "kind": "exphormer",
                    "real_edges": False,
                    "expander": 0,
                    "virtual_nodes": 0,
                }
            },
            ["real_edges", "expander", "virtual_nodes"],
        ),
        ({"positional": "equivstable", "local": "none"}, ["equivstable", "local"]),
    ],
)
def test_contradictory_configurations_are_refused(options, named) -> None:
    with raises(ValidationError, naming=named):
        ModelConfig(**merge_tables(SMALL, options))


class OwnMessagePassing(nn.Module):
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
        return self.linear(pool_nodes(x, batch, "mean"))[batch.graph_index]


@pytest.mark.parametrize(
    ("message_passing", "attention"),
    [
        (OwnMessagePassing(5), None),
        (None, OwnAttention(5)),
        (OwnMessagePassing(5), OwnAttention(5)),
        (OwnMessagePassing(5), KMIPAttention(5, heads=5, key_dim=3, k=2)),
    ],
)
def test_a_layer_accepts_user_modules_and_a_pyg_batch(message_passing, attention) -> None:
    layer = GPSLayer(message_passing, attention, dim=5, norm="layer")
    data = Batch.from_data_list(graphs())
    x, e = layer(data.x, None, data)
    assert x.shape == data.x.shape
    assert e is None
    again, _ = layer(data.x, None, read_batch(data))
    assert torch.equal(x, again)
    layer.zero_grad()
    x.square().sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


SIZES = {"in_channels": 9, "out_channels": 13}


def test_the_widest_that_fits_is_a_multiple_of_the_heads() -> None:
    config = fit_hidden_dim(ModelConfig(layers=3), budget=100_000, **SIZES)
    heads, dim = config.attention.heads, config.hidden_dim
    wider = config.model_copy(update={"hidden_dim": dim + heads})
    assert dim % heads == 0
    assert count_parameters(build_model(config, **SIZES)) <= 100_000
    assert count_parameters(build_model(wider, **SIZES)) > 100_000


def test_building_within_a_budget_draws_the_same_weights_as_building_at_that_width() -> None:
    torch.manual_seed(0)
    searched = build_model(ModelConfig(layers=2, parameter_budget=60_000), **SIZES)
    width = searched.node_encoder.linear.out_features
    torch.manual_seed(0)
    direct = build_model(ModelConfig(layers=2, hidden_dim=width), **SIZES)
    assert all(
        torch.equal(a, b) for a, b in zip(searched.parameters(), direct.parameters(), strict=True)
    )
    asked = ModelConfig(layers=1, parameter_budget=60_000).model_copy(update={"hidden_dim": 16})
    assert build_model(asked, **SIZES).node_encoder.linear.out_features == 16, (
        "a given width is kept"
    )


def test_an_impossible_budget_gives_the_narrowest_network_and_a_warning(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert fit_hidden_dim(ModelConfig(), budget=1000, **SIZES).hidden_dim == 32
    assert "over the budget of 1000" in caplog.text
