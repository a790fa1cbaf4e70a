"""Configurations of the paper's GPS networks, as upstream's files have them, to count their parameters."""

from __future__ import annotations

from typing import Any, NamedTuple

from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model, count_parameters, fit_hidden_dim

SHAPES = {  # columns, outputs, columns of edges
    "voc": (14, 21, 2),
    "coco": (14, 81, 2),
    "func": (9, 10, 3),
    "struct": (9, 11, 3),
    "city": (67, 10, None),
    "shapenet": (6, 50, None),
    "s3dis": (9, 13, None),
    "cifar10": (5, 10, 1),
    "malnet": (5, 5, None),
}
MOLECULES = {
    "node_encoder": "atom",
    "edge_encoder": "bond",
    "head": "graph",
    "head_l2norm": False,
    "head_activation": "gelu",
}
ENCODERS: dict[str, dict[str, Any]] = {
    "voc": {"node_encoder": "voc", "edge_encoder": "linear"},
    "coco": {"node_encoder": "coco", "edge_encoder": "coco"},
    "func": MOLECULES,
    "struct": MOLECULES,
}


def shape(dataset: str) -> dict[str, int | None]:
    """Arguments of ``build_model`` for a dataset, whose name has one of the names in it; else a city."""
    found = next((sizes for name, sizes in SHAPES.items() if name in dataset.lower()), SHAPES["city"])
    return dict(zip(("in_channels", "num_classes", "edge_channels"), found, strict=True))


class Network(NamedTuple):
    """A row: what a file says, and the size that comes out."""

    dataset: str
    layers: int
    head_layers: int
    positional: str
    dim: int
    count: int
    norm: str = "graph-layer"


def size(model: str, row: Network, *, budget: int | None) -> tuple[int, int]:
    """Width and parameters of a row's network: the widest within ``budget``, or of the row's width."""
    config = ModelConfig(
        name=model,
        layers=row.layers,
        head_layers=row.head_layers,
        positional=row.positional,
        norm=row.norm,
        **({"hidden_dim": row.dim} if budget is None else {"parameter_budget": budget}),
        **ENCODERS.get(row.dataset, {}),
    )
    sizes = shape(row.dataset)
    config = fit_hidden_dim(config, **sizes)
    return config.hidden_dim, count_parameters(build_model(config, **sizes))
