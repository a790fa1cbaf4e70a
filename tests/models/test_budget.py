"""Counts of parameters, against the figures of the published networks (models.md, section 4)."""

from __future__ import annotations

import logging

import pytest
import torch

from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim


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
