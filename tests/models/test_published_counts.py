"""Parameters of published networks whose width is given, and the search for a width within a budget."""

from __future__ import annotations

import logging
from typing import Any

import torch
from support.cases import check_each
from support.paper_networks import ENCODERS, shape

from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim

#: Dataset, model, layers, layers of the head, positional encoding, hidden_dim, parameters and norm of
#: configurations whose width a file gives; those of a budget are upstream's 68 (test_presets.py).
FIXED = [
    ("voc", "gps-transformer", 8, 2, "lappe", 68, 500_613, "batch"),  # Tönshoff et al.: over the budget
    ("coco", "gps-transformer", 8, 1, "none", 68, 499_677, "batch"),
    ("city", "exphormer", 8, 2, "none", 68, 503_074, "graph"),
    ("s3dis", "gps-kmip", 8, 2, "none", 56, 282_181, "batch"),
    ("shapenet", "gps-kmip", 8, 2, "none", 56, 284_122, "batch"),
]


def config_of(dataset: str, model: str, layers: int, head: int, positional: str, **more: Any) -> ModelConfig:
    more |= ENCODERS.get(dataset, {})
    return ModelConfig(name=model, layers=layers, head_layers=head, positional=positional, **more)


def count(config: ModelConfig, sizes: dict[str, Any]) -> int:
    with torch.device("meta"):
        return count_parameters(build_model(config, **sizes))


def test_counts_of_the_published_networks() -> None:
    def holds(row) -> None:
        dataset, model, *options, dim, expected, norm = row
        config = config_of(dataset, model, *options, hidden_dim=dim, norm=norm)
        assert count(config, shape(dataset)) == expected

    check_each(holds, FIXED)


SIZES = {"in_channels": 9, "num_classes": 13}


def test_the_widest_that_fits_is_a_multiple_of_the_heads() -> None:
    config = fit_hidden_dim(ModelConfig(layers=3), budget=100_000, **SIZES)
    heads, dim = config.attention.heads, config.hidden_dim
    wider = config.model_copy(update={"hidden_dim": dim + heads})
    assert dim % heads == 0
    assert count(config, SIZES) <= 100_000 < count(wider, SIZES)


def test_building_within_a_budget_draws_the_same_weights_as_building_at_that_width() -> None:
    torch.manual_seed(0)
    searched = build_model(ModelConfig(layers=2, parameter_budget=60_000), **SIZES)
    width = searched.node_encoder.linear.out_features
    torch.manual_seed(0)
    direct = build_model(ModelConfig(layers=2, hidden_dim=width), **SIZES)
    assert all(torch.equal(a, b) for a, b in zip(searched.parameters(), direct.parameters(), strict=True))
    asked = ModelConfig(layers=1, parameter_budget=60_000).model_copy(update={"hidden_dim": 16})
    assert build_model(asked, **SIZES).node_encoder.linear.out_features == 16, "a given width is kept"


def test_an_impossible_budget_gives_the_narrowest_and_says_so(caplog) -> None:
    with caplog.at_level(logging.WARNING):
        assert fit_hidden_dim(ModelConfig(), budget=1000, **SIZES).hidden_dim == 32
    assert "over the budget of 1000" in caplog.text
