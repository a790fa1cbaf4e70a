"""Published networks have the published number of parameters, and the width that upstream's search finds."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from support.cases import check_each
from support.paper_networks import ENCODERS, shape

from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim

#: Dataset, model, layers, layers of the head, positional encoding, hidden_dim, parameters: counts that
#: upstream states; widths are those that a budget of 500,000 gives.
PUBLISHED = [
    ("voc", "gat", 10, 2, "lappe", 209, 495_526),
    ("coco", "gat", 10, 1, "none", 217, 498_964),
    ("func", "gat", 6, 3, "lappe", 237, 498_631),
    ("struct", "gat", 8, 2, "lappe", 224, 499_387),
    ("city", "gcn", 16, 2, "none", 168, 495_946),
    ("city", "gine", 16, 2, "none", 121, 496_715),
    ("city", "gat", 16, 2, "none", 167, 495_499),
    ("city", "gated-gcn", 16, 2, "none", 77, 497_507),
    ("voc", "gps-transformer", 8, 2, "none", 64, 443_925),
    ("func", "gps-transformer", 10, 3, "lappe", 60, 498_190),
    ("voc", "gps-performer", 6, 2, "none", 52, 476_237),
    ("coco", "gps-performer", 6, 1, "rwse", 52, 476_869),
    ("func", "gps-performer", 8, 2, "none", 40, 458_490),
    ("struct", "gps-performer", 6, 3, "rwse", 52, 483_007),
    ("city", "gps-performer", 12, 1, "none", 32, 513_642),  # the narrowest that is tried: over the budget
    ("city", "gps-performer", 5, 1, "none", 60, 479_650),
]
#: The same of configurations whose width a file gives, with their norm.
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
        dataset, model, *options, dim, expected = row[:7]
        norm = {"norm": row[7]} if len(row) > 7 else {"norm": "graph-layer"} if "gps" in model else {}
        config = config_of(dataset, model, *options, hidden_dim=dim, **norm)
        assert count(config, shape(dataset)) == expected

    check_each(holds, [*PUBLISHED, *FIXED])


@pytest.mark.parametrize("row", PUBLISHED[1:16:7])  # each search counts a dozen networks
def test_widths_that_the_budget_gives(row) -> None:
    dataset, model, *options, dim, _ = row
    norm = {"norm": "graph-layer"} if "gps" in model else {}
    found = fit_hidden_dim(config_of(dataset, model, *options, **norm), budget=500_000, **shape(dataset))
    assert (found.hidden_dim, found.parameter_budget) == (dim, None)


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
