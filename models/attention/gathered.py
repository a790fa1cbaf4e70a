"""Attention over chosen pairs in torch operations, which gather all chosen rows (H, N, k, d)."""

from __future__ import annotations

import torch
from torch import Tensor

from kmip_data.models.attention.overflow import check_weights, is_capturing
from kmip_data.models.search.problem import check_best


def forward(
    values: Tensor,
    scores: Tensor,
    indices: Tensor,
    keep: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Like :func:`kmip_data.models.attention.cpu_kernels.forward`; ``keep`` may be None."""
    if not is_capturing(scores):
        check_best(scores, indices)
    missing = indices < 0
    scaled = (scores * scale).masked_fill_(missing, -torch.inf)
    weights = torch.softmax(scaled, -1)
    weights.masked_fill_(missing, 0)  # also clears the NaN of rows without any key
    used = weights if keep is None else weights * keep
    return _weighted_sum(used, values[_pairs(indices)]), weights


def backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    indices: Tensor,
    weights: Tensor,
    keep: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Like :func:`kmip_data.models.attention.cpu_kernels.backward`.

    Sums over pairs have a fixed order on a GPU only under ``torch.use_deterministic_algorithms``.
    """
    pairs = _pairs(indices)
    of_out = grad[:, :, None]

    # 1. Values: the output's gradient by the weights after dropout.
    used = weights if keep is None else weights * keep
    of_values = used[..., None] * of_out
    grad_values = torch.zeros_like(values).index_put_(pairs, of_values, accumulate=True)

    # 2. Through the softmax to the scores.
    grad_weight = (values[pairs] * of_out).sum(-1)
    if keep is not None:
        grad_weight *= keep
    mean = (grad_weight * weights).sum(-1, keepdim=True)
    grad_score = weights * (grad_weight - mean) * scale

    # 3. Queries and keys: each weighted by the gradients of the scores.
    grad_queries = _weighted_sum(grad_score, keys[pairs])
    of_keys = grad_score[..., None] * queries[:, :, None]
    grad_keys = torch.zeros_like(keys).index_put_(pairs, of_keys, accumulate=True)
    return grad_queries, grad_keys, grad_values


def differentiable(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    indices: Tensor,
    keep: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Attend like :func:`forward`, in operations that PyTorch differentiates in every mode.

    Scores are computed from queries and keys.
    """
    pairs = _pairs(indices)
    missing = indices < 0
    products = queries[:, :, None] * keys[pairs]
    scores = products.sum(-1) * scale

    # A row without any key: a softmax of zeros, cleared below, where one of -inf would be NaN.
    silent = missing & ~missing.all(-1, keepdim=True)
    weights = scores.masked_fill(silent, -torch.inf).softmax(-1)
    check_weights(weights)
    weights = weights.masked_fill(missing, 0)

    used = weights if keep is None else weights * keep
    return _weighted_sum(used, values[pairs]), weights.detach()


def _pairs(indices: Tensor) -> tuple[Tensor, Tensor]:
    """Index (H, N, k) of head and row of the chosen rows; a missing key becomes the first, whose weight is 0."""
    head = torch.arange(len(indices), device=indices.device)
    return head[:, None, None], indices.clamp_min(0).long()


def _weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """Σ_k weights (H, N, k) · rows (H, N, k, d); no matrix product, which autocast and TF32 would round."""
    return (weights[..., None] * rows).sum(2)
