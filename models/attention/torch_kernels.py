"""Attention to chosen keys in torch operations, gathering a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kmip_data.models.attention.overflow import is_capturing
from kmip_data.models.search.problem import check_largest_scores

SCRATCH_BYTES = 32 * 2**20  #: largest size of the gathered rows


def forward(
    values: Tensor,
    scores: Tensor,
    indices: Tensor,
    dropout_mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Like :func:`kmip_data.models.attention.cpu_kernels.forward`; ``dropout_mask`` is (H, N, k) or None."""
    if not is_capturing(scores):
        check_largest_scores(scores, indices)
    missing = indices < 0
    scaled = (scores * scale).masked_fill_(missing, -torch.inf)
    weights = torch.softmax(scaled, -1)
    weights.masked_fill_(missing, 0)  # also clears the NaN of rows without any key
    kept = weights if dropout_mask is None else weights * dropout_mask
    heads, rows, _ = indices.shape
    _, keys, width = values.shape
    out = values.new_empty((heads, rows, width))
    for block, chosen in _row_blocks(indices, keys, width):
        out[:, block] = _weighted_sum(kept[:, block], values, chosen)
    return out, weights


def backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    indices: Tensor,
    weights: Tensor,
    dropout_mask: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Like :func:`kmip_data.models.attention.cpu_kernels.backward`; ``dropout_mask`` is (H, N, k) or None.

    On a GPU, ``index_add_`` has a fixed order only under ``torch.use_deterministic_algorithms``.
    """
    grad_queries = torch.empty_like(queries)
    grad_keys = torch.zeros_like(keys).flatten(0, 1)
    grad_values = torch.zeros_like(values).flatten(0, 1)
    kept = weights if dropout_mask is None else weights * dropout_mask
    width = max(queries.shape[2], values.shape[2])
    for block, chosen in _row_blocks(indices, keys.shape[1], width):
        # 1. Values: multiply the output's gradient by the weights after dropout.
        weight = weights[:, block]
        row = chosen.flatten()
        grad_out = grad[:, block, None]
        value_terms = kept[:, block, :, None] * grad_out
        grad_values.index_add_(0, row, value_terms.flatten(0, 2))

        # 2. Backpropagate through the softmax to the scores.
        products = _gather_chosen_rows(values, chosen) * grad_out
        grad_weight = products.sum(-1)
        if dropout_mask is not None:
            grad_weight *= dropout_mask[:, block]
        mean = (grad_weight * weight).sum(-1, keepdim=True)
        grad_score = weight * (grad_weight - mean) * scale

        # 3. Queries and keys: weight each by the gradients of the scores.
        grad_queries[:, block] = _weighted_sum(grad_score, keys, chosen)
        key_terms = grad_score[..., None] * queries[:, block, None]
        grad_keys.index_add_(0, row, key_terms.flatten(0, 2))
    return grad_queries, grad_keys.view_as(keys), grad_values.view_as(values)


def _row_blocks(indices: Tensor, keys: int, width: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of queries, and their chosen rows (H, R, k), numbered over the keys of all heads.

    An empty slot, whose weight is 0, gets its head's first key.
    """
    heads, rows, k = indices.shape
    first = keys * torch.arange(heads, device=indices.device)
    bytes_per_row = 8 * max(1, heads * k * width)  # for float64, the widest dtype
    step = max(1, SCRATCH_BYTES // bytes_per_row)
    for start in range(0, rows, step):
        block = slice(start, start + step)
        key = indices[:, block].clamp_min(0)
        yield block, key + first[:, None, None]


def _gather_chosen_rows(rows: Tensor, chosen: Tensor) -> Tensor:
    """Gather the chosen rows of (H, M, width): (H, R, k, width)."""
    gathered = rows.flatten(0, 1).index_select(0, chosen.flatten())
    return gathered.view(*chosen.shape, -1)


def _weighted_sum(weights: Tensor, rows: Tensor, chosen: Tensor) -> Tensor:
    """Return Σ_k weights[h, r, k] · chosen row, with no matrix product, which autocast or TF32 rounds."""
    weighted = weights[..., None] * _gather_chosen_rows(rows, chosen)
    return weighted.sum(2)
