"""The operator ``attend`` in operations that PyTorch differentiates and compiles."""

from __future__ import annotations

import torch
from torch import Tensor


def attend_to_pairs(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    _scores: Tensor,
    indices: Tensor,
    scale: float,
    dropout_mask: Tensor | None,
    kept_scale: float,
) -> tuple[Tensor, Tensor]:
    """Attend like :func:`kmip_data.models.attention.operators.attend`.

    Scores are computed from queries and keys. All gathered rows (H, N, k, d) are in memory at once.
    """
    head = torch.arange(len(indices), device=indices.device)[:, None, None]
    missing = indices < 0
    rows = indices.clamp_min(0).long()
    products = queries[:, :, None] * keys[head, rows]
    scores = products.sum(-1) * scale

    # A row without any key: a softmax of zeros, cleared below, where one of -inf would be NaN.
    silent = missing & ~missing.all(-1, keepdim=True)
    weights = scores.masked_fill(silent, -torch.inf).softmax(-1)
    weights = weights.masked_fill(missing, 0)

    used = weights if dropout_mask is None else weights * dropout_mask * kept_scale
    weighted = used[..., None] * values[head, rows]
    return weighted.sum(2), weights.detach()
