"""Stacks of message passing as models by name: published parameter counts, weights, training, memory."""

from __future__ import annotations

import json
import math

import pytest
import torch
from support.cli import kmip
from support.training_data import learnable_build, tiny_config
from torch import nn
from torch_geometric.data import Batch, Data

from kmip_data.builds.home import Home
from kmip_data.models.budget import count_parameters
from kmip_data.models.config import ModelConfig
from kmip_data.models.kinds import Size
from kmip_data.models.network import build_model, fit_hidden_dim
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.data.obtain import open_data
from kmip_data.models.training.memory.counting import count_kept

STACKS = ("gcn", "gine", "gat", "gated-gcn", "mlp")
MODELS = (*STACKS, "gps-none", "kmip-only")
#: Columns of nodes and of edges, classes and encoders of each dataset.
DATASETS = {
    "voc": (14, 2, 21, {"node_encoder": "voc", "edge_encoder": "voc"}),
    "coco": (14, 2, 81, {"node_encoder": "coco", "edge_encoder": "coco"}),
    "func": (9, 3, 10, {"node_encoder": "atom", "edge_encoder": "bond", "head": "graph"}),
    "struct": (9, 3, 11, {"node_encoder": "atom", "edge_encoder": "bond", "head": "graph"}),
    "city": (67, None, 10, {}),
    "shapenet": (6, None, 50, {}),
    "s3dis": (9, None, 13, {}),
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
COMPUTED: list[tuple[str, str, int, int, str, int, int]] = []
GRAPHGYM = {"gcn": {"stack": "graphgym", "activation": "relu", "residual": "none"}}
GRAPHGYM["gat"] = GRAPHGYM["gcn"]
GRAPHGYM["gine"] = {"stack": "graphgps", "activation": "relu"}


def config_of(dataset: str, model: str, layers: int, head: int, positional: str, **more) -> ModelConfig:
    encoders = DATASETS[dataset][3]
    local = GRAPHGYM.get(model, {}) if dataset in ("shapenet", "s3dis") else {}
    return ModelConfig(
        name=model, layers=layers, head_layers=head, positional=positional, local=local, **encoders, **more
    )


def sizes_of(dataset: str) -> dict[str, int | None]:
    inputs, edges, classes, _ = DATASETS[dataset]
    return {"in_channels": inputs, "num_classes": classes, "edge_channels": edges}


@pytest.mark.parametrize(("dataset", "model", "layers", "head", "positional", "dim", "count"), PUBLISHED)
def test_published_count_and_width(dataset, model, layers, head, positional, dim, count) -> None:
    config = config_of(dataset, model, layers, head, positional)
    found = fit_hidden_dim(config, budget=500_000, **sizes_of(dataset))
    assert found.hidden_dim == dim
    with torch.device("meta"):
        assert count_parameters(build_model(found, **sizes_of(dataset))) == count
