"""Attention over chosen pairs in torch operations, gathering a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from kmip_data.models.attention.overflow import is_capturing
from kmip_data.models.search.problem import check_best

SCRATCH = 32 * 2**20  #: bytes of gathered rows held at a time


def forward(
    values: Tensor,
    scores: Tensor,
    indices: Tensor,
    keep: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Like :func:`kmip_data.models.attention.cpu_kernels.forward`; ``keep`` (H, N, k) may be None."""
    if not is_capturing(scores):
        check_best(scores, indices)
    missing = indices < 0
    scaled = (scores * scale).masked_fill_(missing, -torch.inf)
    weights = torch.softmax(scaled, -1)
    weights.masked_fill_(missing, 0)  # also clears the NaN of rows without any key
    used = weights if keep is None else weights * keep
    heads, rows, _ = indices.shape
    _, keys, width = values.shape
    out = values.new_empty((heads, rows, width))
    for block, chosen in _row_blocks(indices, keys, width):
        out[:, block] = _weighted_sum(used[:, block], values, chosen)
    return out, weights


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
    """Return the gradients (H, N, d) of :func:`kmip_data.models.attention.cpu_kernels.backward`.

    ``index_add_`` has a fixed order on a GPU only under ``torch.use_deterministic_algorithms``.
    """
    grad_queries = torch.empty_like(queries)
    grad_keys = torch.zeros_like(keys).flatten(0, 1)
    grad_values = torch.zeros_like(values).flatten(0, 1)
    used = weights if keep is None else weights * keep
    widest = max(queries.shape[2], values.shape[2])
    for block, chosen in _row_blocks(indices, keys.shape[1], widest):
        # 1. Values: the output's gradient by the weights after dropout.
        weight = weights[:, block]
        row = chosen.flatten()
        of_out = grad[:, block, None]
        of_values = used[:, block, :, None] * of_out
        grad_values.index_add_(0, row, of_values.flatten(0, 2))

        # 2. Through the softmax to the scores.
        products = _gather_chosen_rows(values, chosen) * of_out
        grad_weight = products.sum(-1)
        if keep is not None:
            grad_weight *= keep[:, block]
        mean = (grad_weight * weight).sum(-1, keepdim=True)
        grad_score = weight * (grad_weight - mean) * scale

        # 3. Queries and keys: each weighted by the gradients of the scores.
        grad_queries[:, block] = _weighted_sum(grad_score, keys, chosen)
        of_keys = grad_score[..., None] * queries[:, block, None]
        grad_keys.index_add_(0, row, of_keys.flatten(0, 2))
    return grad_queries, grad_keys.view_as(keys), grad_values.view_as(values)


def _row_blocks(indices: Tensor, keys: int, width: int) -> Iterator[tuple[slice, Tensor]]:
    """Yield slices of queries, and the rows (H, R, k) they chose, numbered over the keys of all heads.

    A missing key becomes its head's first, whose weight is 0.
    """
    heads, rows, k = indices.shape
    first = keys * torch.arange(heads, device=indices.device)
    bytes_a_row = 8 * max(1, heads * k * width)  # as of float64: the narrower take less
    step = max(1, SCRATCH // bytes_a_row)
    for start in range(0, rows, step):
        block = slice(start, start + step)
        existing = indices[:, block].clamp_min(0)
        yield block, existing + first[:, None, None]


def _gather_chosen_rows(rows: Tensor, chosen: Tensor) -> Tensor:
    """Gather chosen rows of (H, M, width): (H, R, k, width)."""
    gathered = rows.flatten(0, 1).index_select(0, chosen.flatten())
    return gathered.view(*chosen.shape, -1)


def _weighted_sum(weights: Tensor, rows: Tensor, chosen: Tensor) -> Tensor:
    """Σ_k weights[h, r, k] · chosen row; no matrix product, which autocast and TF32 would round."""
    weighted = weights[..., None] * _gather_chosen_rows(rows, chosen)
    return weighted.sum(2)
