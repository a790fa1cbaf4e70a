"""Softmax over chosen pairs, with a backward pass that keeps no (N, k, d) tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SCRATCH = 32 * 2**20  #: bytes of gathered rows held at a time


def attend_to_chosen(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    indices: Tensor,
    scale: float,
    keep: Tensor | None = None,
) -> Tensor:
    """Weigh the chosen values by the softmax of their scores.

    Parameters
    ----------
    queries, keys, values
        (H, N, d), (H, M, d) and (H, M, v).
    scores, indices
        (H, N, k) inner products and rows of ``keys``, as the search gives them; index −1: no key.
        The scores are taken as they are, and differentiated as queries · keys.
    scale
        Factor of the scores in the softmax.
    keep
        (H, N, k) factors of the weights after the softmax (dropout), or None.

    Returns
    -------
    Tensor
        (H, N, v), dtype of ``values``; a row without any key is zero.
    """
    out: Tensor = _Attend.apply(queries, keys, values, scores, indices, scale, keep)  # type: ignore[no-untyped-call]
    return out


class _Attend(torch.autograd.Function):
    """Saves operands, indices and weights; gathers rows again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        scores: Tensor,
        indices: Tensor,
        scale: float,
        keep: Tensor | None,
    ) -> Tensor:
        missing = indices < 0
        weights = torch.softmax((scores * scale).masked_fill_(missing, -torch.inf), -1)
        weights.masked_fill_(missing, 0)  # also clears the NaN of rows without any key
        ctx.save_for_backward(queries, keys, values, indices, weights, keep)
        ctx.scale = scale
        used = (weights if keep is None else weights * keep).flatten(0, 1)
        flat_values, rows = values.flatten(0, 1), _flat_rows(indices, values.shape[1])
        out = values.new_empty((rows.shape[0], values.shape[2]))
        for part in _parts(rows, values.shape[2]):
            out[part] = _weighted_sum(used[part], _gather(flat_values, rows[part], weights.dtype))
        return out.view(*indices.shape[:2], values.shape[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, indices, weights, keep = ctx.saved_tensors
        dtype = weights.dtype
        rows = _flat_rows(indices, keys.shape[1])
        flat_queries, flat_keys, flat_values = (x.flatten(0, 1) for x in (queries, keys, values))
        grad, weights = grad.flatten(0, 1), weights.flatten(0, 1)
        keep = None if keep is None else keep.flatten(0, 1)
        grad_queries = torch.empty(flat_queries.shape, dtype=dtype, device=queries.device)
        grad_keys = torch.zeros(flat_keys.shape, dtype=dtype, device=queries.device)
        grad_values = torch.zeros(flat_values.shape, dtype=dtype, device=queries.device)
        for part in _parts(rows, max(queries.shape[2], values.shape[2])):
            chosen, weight, grad_out = rows[part].flatten(), weights[part], grad[part].to(dtype)
            used = weight if keep is None else weight * keep[part]
            grad_values.index_add_(0, chosen, (used[:, :, None] * grad_out[:, None]).flatten(0, 1))
            grad_weight = (_gather(flat_values, rows[part], dtype) * grad_out[:, None]).sum(-1)
            if keep is not None:
                grad_weight *= keep[part]
            grad_score = weight * (grad_weight - (grad_weight * weight).sum(-1, keepdim=True)) * ctx.scale
            grad_queries[part] = _weighted_sum(grad_score, _gather(flat_keys, rows[part], dtype))
            query = flat_queries[part].to(dtype)
            grad_keys.index_add_(0, chosen, (grad_score[:, :, None] * query[:, None]).flatten(0, 1))
        return (
            grad_queries.view(queries.shape).to(queries.dtype),
            grad_keys.view(keys.shape).to(keys.dtype),
            grad_values.view(values.shape).to(values.dtype),
            None,
            None,
            None,
            None,
        )


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


def _gather(flat: Tensor, rows: Tensor, dtype: torch.dtype) -> Tensor:
    """(rows, k, width) in the dtype of the computation."""
    return flat.index_select(0, rows.flatten()).view(*rows.shape, -1).to(dtype)


def _weighted_sum(weights: Tensor, gathered: Tensor) -> Tensor:
    """Σ_k weights[r, k] · gathered[r, k, :]; no matrix product, which autocast and TF32 would round."""
    return (weights[:, :, None] * gathered).sum(1)
