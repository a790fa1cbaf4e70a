"""Formula of k-MIP attention, the reference that every kernel is tested against."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def attend_in_graph(
    queries: Tensor, keys: Tensor, values: Tensor, k: int, dropout: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute k-MIP attention in one graph (paper, Algorithm 1, lines 1 to 4), in O(H · N · M) memory.

    Each query qᵢ attends to Tᵢ, the k keys with the largest inner products ⟨qᵢ, kⱼ⟩ (the lower j
    of equal ones), by a softmax over these keys only::

        Aᵢⱼ = exp(⟨qᵢ, kⱼ⟩ / √d) / Σ_{t ∈ Tᵢ} exp(⟨qᵢ, kₜ⟩ / √d)   for j ∈ Tᵢ, else 0
        outᵢ = Σⱼ Aᵢⱼ vⱼ

    Takes queries (H, N, d), keys (H, M, d) and values (H, M, v). Returns the output (H, N, v), and
    the weights before dropout and chosen rows of the keys, (H, N, min(k, M)) each. PyTorch
    differentiates it any number of times and in every mode; the choice of keys has no gradient.
    """
    scores = queries @ keys.mT
    chosen = scores.argsort(dim=-1, descending=True, stable=True)[..., :k]
    largest = scores.gather(-1, chosen)
    weights = torch.softmax(largest / math.sqrt(queries.shape[-1]), dim=-1)
    kept = functional.dropout(weights, dropout)
    attention = torch.zeros_like(scores).scatter(-1, chosen, kept)
    return attention @ values, weights, chosen


def attend_by_graph(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    query_ptr: Sequence[int],
    key_ptr: Sequence[int],
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attend within each graph, one after the other.

    Graph g has the queries ``query_ptr[g]:query_ptr[g + 1]`` and the keys ``key_ptr[g]:key_ptr[g +
    1]``. Returns the output (H, N, v), zero for graphs without keys; weights (H, N, k), padded with
    0; and rows of ``keys`` (H, N, k) int64, padded with −1.
    """
    # torch.cat needs at least one tensor, even for an empty batch.
    outputs = [values.new_empty(len(values), 0, values.shape[2])]
    weights = [values.new_empty(len(values), 0, k)]
    indices = [torch.empty(len(values), 0, k, dtype=torch.int64, device=values.device)]
    graphs = zip(itertools.pairwise(query_ptr), itertools.pairwise(key_ptr), strict=True)
    for (start, stop), (first, last) in graphs:
        out, weight, chosen = attend_in_graph(
            queries[:, start:stop], keys[:, first:last], values[:, first:last], k, dropout
        )
        padding = (0, k - chosen.shape[2])
        outputs.append(out)
        weights.append(functional.pad(weight, padding))
        indices.append(functional.pad(chosen + first, padding, value=-1))
    return torch.cat(outputs, 1), torch.cat(weights, 1), torch.cat(indices, 1)
