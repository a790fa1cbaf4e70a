"""Stacks of message passing as models by name: published parameter counts, weights, training, memory."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from support.cases import check_each
from support.paper_networks import shape
from torch import nn
from torch_geometric.data import Batch, Data

from kmip_data.models.config import ModelConfig, models
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim

MOLECULES = {"node_encoder": "atom", "edge_encoder": "bond", "head": "graph"}
ENCODERS = {
    "voc": {"node_encoder": "voc", "edge_encoder": "voc"},
    "coco": {"node_encoder": "coco", "edge_encoder": "coco"},
    "func": MOLECULES,
    "struct": MOLECULES,
}
#: Dataset, model, layers, layers of the head, positional encoding, hidden_dim, parameters; widths from the
#: budget of 500,000. Counts of models.md, section 4, and of the upstream files.
PUBLISHED = [
    ("voc", "gat", 10, 2, "lappe", 209, 495_526),
    ("coco", "gat", 10, 1, "none", 217, 498_964),
    ("func", "gat", 6, 3, "lappe", 237, 498_631),
    ("func", "gat", 8, 2, "none", 223, 497_077),  # defaults of the search
    ("struct", "gat", 8, 2, "lappe", 224, 499_387),
    ("struct", "gat", 6, 3, "lappe", 237, 498_869),  # best-of-each
    ("city", "gcn", 16, 2, "none", 168, 495_946),
    ("city", "gine", 16, 2, "none", 121, 496_715),
    ("city", "gat", 16, 2, "none", 167, 495_499),
    ("city", "gated-gcn", 16, 2, "none", 77, 497_507),
    ("city", "gat", 8, 2, "none", 229, 495_795),  # defaults of the search
]
#: The same of configurations whose width the files give and whose count they do not.
COMPUTED = [
    ("shapenet", "gcn", 5, 2, "none", 220, 305_630),
    ("shapenet", "gat", 10, 2, "none", 162, 304_772),
    ("shapenet", "gine", 15, 2, "none", 97, 300_362),
    ("shapenet", "gated-gcn", 5, 2, "none", 106, 303_210),
    ("shapenet", "gps-none", 8, 2, "none", 63, 301_568),
    ("s3dis", "gcn", 5, 2, "none", 220, 298_113),
    ("s3dis", "gat", 15, 2, "none", 134, 298_699),
    ("s3dis", "gps-none", 8, 2, "none", 63, 299_389),
    ("voc", "gcn", 10, 3, "rwse", 200, 490_429),
    ("coco", "gcn", 6, 1, "none", 235, 356_106),
    ("coco", "gine", 6, 1, "none", 180, 408_861),
    ("func", "gcn", 6, 3, "rwse", 235, 485_741),
    ("struct", "gcn", 6, 3, "lappe", 235, 488_061),
    ("struct", "gated-gcn", 8, 3, "lappe", 100, 445_051),
]
GRAPHGYM = {"gcn": {"stack": "graphgym", "activation": "relu", "residual": "none"}}
GRAPHGYM["gat"] = GRAPHGYM["gcn"]
GRAPHGYM["gine"] = {"stack": "graphgps", "activation": "relu"}


def config_of(dataset: str, model: str, layers: int, head: int, positional: str, **more) -> ModelConfig:
    encoders = ENCODERS.get(dataset, {})
    local = GRAPHGYM.get(model, {}) if dataset in ("shapenet", "s3dis") else {}
    return ModelConfig(
        name=model, layers=layers, head_layers=head, positional=positional, local=local, **encoders, **more
    )


def check_published_count_and_width(dataset, model, layers, head, positional, dim, count) -> None:
    config = config_of(dataset, model, layers, head, positional)
    found = fit_hidden_dim(config, budget=500_000, **shape(dataset))
    assert found.hidden_dim == dim
    with torch.device("meta"):
        assert count_parameters(build_model(found, **shape(dataset))) == count


def test_published_count_and_width() -> None:
    check_each(lambda case: check_published_count_and_width(*case), PUBLISHED)


def check_computed_count(dataset, model, layers, head, positional, dim, count) -> None:
    config = config_of(dataset, model, layers, head, positional, hidden_dim=dim)
    with torch.device("meta"):
        assert count_parameters(build_model(config, **shape(dataset))) == count


def test_computed_count() -> None:
    check_each(lambda case: check_computed_count(*case), COMPUTED)


def batch(channels: int = 5) -> Batch:
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for n in (9, 1, 14, 2):
        edges = torch.randint(0, n, (2, 3 * n), generator=generator)
        x = torch.randn(n, channels, generator=generator)
        expander = torch.randint(0, n, (n, 3), generator=generator)
        graphs.append(Data(x=x, edge_index=edges, expander=expander))
    return Batch.from_data_list(graphs)


@pytest.mark.parametrize("model", sorted(models()))
def test_recomputed_layers_learn_the_same_and_every_weight_learns(model: str) -> None:
    """Otherwise training on several processes would wait for a gradient for ever."""

    def holds(case) -> None:
        head, norm = case
        found, given = [], batch()
        for recompute in (False, True):
            torch.manual_seed(0)
            options = {"layers": 2, "hidden_dim": 8, "dropout": 0.2, "head": head, "norm": norm}
            config = ModelConfig(name=model, checkpoint_layers=recompute, **options)
            network = build_model(config, in_channels=5, num_classes=2)
            network(given).square().sum().backward()
            grads = {name: p.grad for name, p in network.named_parameters() if p.requires_grad}
            assert [name for name, grad in grads.items() if grad is None] == []
            found.append([*grads.values(), *network.buffers()])
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

    check_each(holds, [("node", "batch"), ("graph", "graph"), ("link", "none")])


@pytest.mark.parametrize("model", ["gcn", "gat", "mlp"])
def test_edge_features_are_encoded_only_for_who_reads_them(model: str) -> None:
    network = build_model(ModelConfig(name=model, layers=1, hidden_dim=8), in_channels=5, num_classes=2)
    assert not network.reads_edges
    assert not any(p.requires_grad for p in network.edge_encoder.parameters())
    assert build_model(ModelConfig(name="gine"), in_channels=5, num_classes=2).reads_edges


def test_graphgym_draws_the_encoders_weights_by_its_own_rule() -> None:
    def encoder(stack: str) -> nn.Linear:
        torch.manual_seed(0)
        config = ModelConfig(name="gcn", hidden_dim=64, layers=1, local={"stack": stack})
        return build_model(config, in_channels=6, num_classes=2).node_encoder.linear

    drawn, usual = encoder("graphgym"), encoder("lrgb")
    assert not drawn.bias.any()
    assert usual.bias.any()
    bound = math.sqrt(2) * math.sqrt(6 / (6 + 64))
    assert 0.95 * bound < drawn.weight.abs().max() <= bound


def test_residual_is_after_dropout() -> None:
    torch.manual_seed(0)
    network = build_model(
        ModelConfig(name="mlp", layers=1, hidden_dim=8), in_channels=5, num_classes=2
    ).eval()
    (layer,) = network.layers
    x = torch.randn(4, 8)
    torch.testing.assert_close(layer(x, None, batch())[0], x + nn.functional.gelu(layer.local.lin(x)))


@pytest.mark.parametrize(("channels", "classes", "count"), [(9, 13, 282_181), (6, 50, 284_122)])
def test_published_networks(channels, classes, count) -> None:
    """S3DIS, whose network is the default, and ShapeNet-Part; others: training/config/test_presets.py."""
    with torch.device("meta"):
        model = build_model(ModelConfig(), in_channels=channels, num_classes=classes)
    assert count_parameters(model) == count


@pytest.mark.parametrize("budget", [60_000, 100_000, 283_000])
def test_widest_that_fits(budget: int) -> None:
    config = fit_hidden_dim(ModelConfig(layers=3), in_channels=9, num_classes=13, budget=budget)

    def count(dim: int) -> int:
        model = build_model(config.model_copy(update={"hidden_dim": dim}), in_channels=9, num_classes=13)
        return count_parameters(model)

    assert config.hidden_dim % config.attention.heads == 0
    assert count(config.hidden_dim) <= budget < count(config.hidden_dim + config.attention.heads)


def test_building_within_a_budget_draws_the_same_weights_as_building_at_that_width() -> None:
    torch.manual_seed(0)
    searched = build_model(ModelConfig(layers=2, parameter_budget=60_000), in_channels=9, num_classes=13)
    width = searched.node_encoder.linear.out_features
    torch.manual_seed(0)
    direct = build_model(ModelConfig(layers=2, hidden_dim=width), in_channels=9, num_classes=13)
    for a, b in zip(searched.parameters(), direct.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_width_of_ones_own_is_kept() -> None:
    """Fails before: the budget replaced it."""
    asked = ModelConfig(layers=1, parameter_budget=60_000).model_copy(update={"hidden_dim": 16})
    model = build_model(asked, in_channels=9, num_classes=13)
    assert model.node_encoder.linear.out_features == 16


def test_an_impossible_budget_gives_the_narrowest_and_says_so(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        config = fit_hidden_dim(ModelConfig(), in_channels=9, num_classes=13, budget=1000)
    assert config.hidden_dim == 32
    assert "over the budget of 1000" in caplog.text
