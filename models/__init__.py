"""k-MIP search and attention, GPS networks and their trainer.

Public names are imported on first use: ``from kmip_data.models import KMIPAttention`` loads torch,
``import kmip_data.models`` does not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmip_data.models.attention.kmip import KMIPAttention, kmip_attention
    from kmip_data.models.attention.multihead import KMIPMultiheadAttention
    from kmip_data.models.config import ModelConfig
    from kmip_data.models.network import build_model
    from kmip_data.models.search.topk import topk_inner_product

_PUBLIC = {
    "KMIPAttention": "kmip_data.models.attention.kmip",
    "KMIPMultiheadAttention": "kmip_data.models.attention.multihead",
    "ModelConfig": "kmip_data.models.config",
    "build_model": "kmip_data.models.network",
    "kmip_attention": "kmip_data.models.attention.kmip",
    "topk_inner_product": "kmip_data.models.search.topk",
}

__all__ = [
    "KMIPAttention",
    "KMIPMultiheadAttention",
    "ModelConfig",
    "build_model",
    "kmip_attention",
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
