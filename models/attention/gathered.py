"""Attention over chosen pairs in torch operations, gathering a bounded number of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

SCRATCH = 32 * 2**20  #: bytes of gathered rows held at a time


def forward(
    values: Tensor, scores: Tensor, indices: Tensor, keep: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """As :func:`kmip_data.models.attention.cpu_kernels.forward`; ``keep`` may be None."""
    missing = indices < 0
    weights = torch.softmax((scores * scale).masked_fill_(missing, -torch.inf), -1)
    weights.masked_fill_(missing, 0)  # also clears the NaN of rows without any key
    used = (weights if keep is None else weights * keep).flatten(0, 1)
    flat, rows = values.flatten(0, 1), _flat_rows(indices, values.shape[1])
    out = values.new_empty((rows.shape[0], values.shape[2]))
    for part in _parts(rows, values.shape[2]):
        out[part] = _weighted_sum(used[part], _gather(flat, rows[part]))
    return out.view(*indices.shape[:2], values.shape[2]), weights


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
    """As :func:`kmip_data.models.attention.cpu_kernels.backward`.

    ``index_add_`` has a fixed order on a GPU only under ``torch.use_deterministic_algorithms``.
    """
    rows = _flat_rows(indices, keys.shape[1])
    used = (weights if keep is None else weights * keep).flatten(0, 1)
    kept = None if keep is None else keep.flatten(0, 1)
    flat_grad, flat_queries, flat_keys, flat_values, flat_weights = (
        tensor.flatten(0, 1) for tensor in (grad, queries, keys, values, weights)
    )
    grad_queries = torch.empty_like(flat_queries)
    grad_keys, grad_values = torch.zeros_like(flat_keys), torch.zeros_like(flat_values)
    for part in _parts(rows, max(queries.shape[2], values.shape[2])):
        chosen, weight, grad_out = rows[part].flatten(), flat_weights[part], flat_grad[part]
        grad_values.index_add_(0, chosen, (used[part, :, None] * grad_out[:, None]).flatten(0, 1))
        grad_weight = (_gather(flat_values, rows[part]) * grad_out[:, None]).sum(-1)
        if kept is not None:
            grad_weight *= kept[part]
        grad_score = weight * (grad_weight - (grad_weight * weight).sum(-1, keepdim=True)) * scale
        grad_queries[part] = _weighted_sum(grad_score, _gather(flat_keys, rows[part]))
        query = flat_queries[part]
        grad_keys.index_add_(0, chosen, (grad_score[:, :, None] * query[:, None]).flatten(0, 1))
    return grad_queries.view_as(queries), grad_keys.view_as(keys), grad_values.view_as(values)


def differentiable(
    queries: Tensor, keys: Tensor, values: Tensor, indices: Tensor, keep: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Attend as :func:`forward` does, in operations that PyTorch differentiates in any mode.

    The scores are computed from queries and keys. It holds the gathered rows, (H, N, k, d), all at once.
    """
    heads = torch.arange(len(indices), device=indices.device)[:, None, None]
    missing, rows = indices < 0, indices.clamp_min(0).long()
    scores = (queries[:, :, None] * keys[heads, rows]).sum(-1) * scale
    # A row without any key: a softmax of zeros, cleared below, where one of -inf would be NaN.
    silent = missing & ~missing.all(-1, keepdim=True)
    weights = scores.masked_fill(silent, -torch.inf).softmax(-1).masked_fill(missing, 0)
    used = weights if keep is None else weights * keep
    return (used[..., None] * values[heads, rows]).sum(2), weights.detach()


def _flat_rows(indices: Tensor, keys: int) -> Tensor:
    """(H, N, k) rows of each head → (H · N, k) rows of all heads' keys laid one after another.

    Missing ones become their head's first row, which their weight of zero silences.
    """
    heads = torch.arange(indices.shape[0], device=indices.device)[:, None, None]
    return (indices.clamp_min(0) + heads * keys).flatten(0, 1)


def _parts(rows: Tensor, width: int) -> Iterator[slice]:
    step = max(1, SCRATCH // (8 * max(1, rows.shape[1] * width)))
    for start in range(0, rows.shape[0], step):
        yield slice(start, start + step)


def _gather(flat: Tensor, rows: Tensor) -> Tensor:
    """(rows, k, width)."""
    return flat.index_select(0, rows.flatten()).view(*rows.shape, -1)


def _weighted_sum(weights: Tensor, gathered: Tensor) -> Tensor:
    """Σ_k weights[r, k] · gathered[r, k, :]; no matrix product, which autocast and TF32 would round."""
    return (weights[:, :, None] * gathered).sum(1)
