"""k-MIP search and attention, GPS networks and their trainer.

Public names are imported on first use: ``from kmip_data.models import KMIPAttention`` loads torch,
``import kmip_data.models`` does not.

Letters in shapes are the same everywhere:

====  ====================================================================================
G     graphs of a batch; ``ptr`` (G + 1) says where each begins among the rows of all
N     rows of all graphs, one graph after another: nodes, or the queries of a search
M     rows of the keys, where these are not the queries' own
E     edges; (N, k) is the table of a graph whose nodes have k sources each
H     attention heads
d, v  channels of a node or edge, length of a query and key; length of a value
k     keys that a query attends to
C     classes or targets
W     nodes of the largest graph, to which others are padded
R, B  rows of a block, and blocks, where a part of a search is done at once
====  ====================================================================================
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmip_data.models.attention.exphormer import ExphormerAttention
    from kmip_data.models.attention.exphormer_edges import ExphormerEdges
    from kmip_data.models.attention.kmip import KMIPAttention, kmip_attention
    from kmip_data.models.attention.multihead import KMIPMultiheadAttention
    from kmip_data.models.config import ModelConfig
    from kmip_data.models.layers.batch import GraphBatch, read_batch
    from kmip_data.models.layers.gps import GPSLayer
    from kmip_data.models.network import build_model
    from kmip_data.models.search.registry import backend_status
    from kmip_data.models.search.topk import topk_inner_product
    from kmip_data.models.training.config.presets import load_preset

_PUBLIC = {
    "ExphormerAttention": "kmip_data.models.attention.exphormer",
    "ExphormerEdges": "kmip_data.models.attention.exphormer_edges",
    "GPSLayer": "kmip_data.models.layers.gps",
    "GraphBatch": "kmip_data.models.layers.batch",
    "KMIPAttention": "kmip_data.models.attention.kmip",
    "KMIPMultiheadAttention": "kmip_data.models.attention.multihead",
    "ModelConfig": "kmip_data.models.config",
    "backend_status": "kmip_data.models.search.registry",
    "build_model": "kmip_data.models.network",
    "kmip_attention": "kmip_data.models.attention.kmip",
    "load_preset": "kmip_data.models.training.config.presets",
    "read_batch": "kmip_data.models.layers.batch",
    "topk_inner_product": "kmip_data.models.search.topk",
}

__all__ = [
    "ExphormerAttention",
    "ExphormerEdges",
    "GPSLayer",
    "GraphBatch",
    "KMIPAttention",
    "KMIPMultiheadAttention",
    "ModelConfig",
    "backend_status",
    "build_model",
    "kmip_attention",
    "load_preset",
    "read_batch",
    "topk_inner_product",
]


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        msg = f"module 'kmip_data.models' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
