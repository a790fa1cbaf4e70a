"""Ranking rule of all search backends, in torch operations for any device.

The score of a pair is the float64 sum, in index order from +0, of its exact products, rounded once
to float32 (−0 to +0); the result is the k largest, descending, equal scores by lower index. (Products of two
float32 numbers are exact in float64, so fused multiply-add changes nothing.) Float64 operands are
summed the same way but their products are rounded and their scores stay float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF


def score_block(queries: Tensor, keys: Tensor) -> Tensor:
    """Scores of all pairs by the rule: (B, R, d) × (B, M, d) → (B, R, M)."""
    total = torch.zeros((*queries.shape[:2], keys.shape[1]), dtype=torch.float64, device=queries.device)
    wide_queries, wide_keys = queries.double(), keys.double()
    for c in range(queries.shape[2]):
        total.addcmul_(wide_queries[:, :, None, c], wide_keys[:, None, :, c])
    return total.to(queries.dtype).add_(0.0)  # + 0: no −0


def score_candidates(queries: Tensor, keys: Tensor, candidates: Tensor) -> Tensor:
    """Scores of chosen pairs by the rule, (B, R, c), dtype of ``queries``.

    Queries are (B, R, d), keys (B, M, d), candidates (B, R, c) int64 rows of ``keys``.
    """
    total = torch.zeros(candidates.shape, dtype=torch.float64, device=queries.device)
    flat = candidates.flatten(1)
    for c in range(queries.shape[2]):
        gathered = keys[:, :, c].gather(1, flat).view(candidates.shape)
        total.addcmul_(queries[:, :, None, c].double(), gathered.double())
    return total.to(queries.dtype).add_(0.0)  # + 0: no −0


def largest(scores: Tensor, k: int, index: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest scores (…, M) of each row and their indices, (…, k), descending, equal ones by index.

    No score is NaN, and M ≥ k. ``index`` (…, M) int64 below 2³² stands for each score (rising along M if
    float64); its position when absent.
    """
    # Float64 scores fill all 64 bits: a stable sort keeps equal ones in index order.
    if scores.dtype == torch.float64:
        best, places = scores.sort(dim=-1, descending=True, stable=True)
        return best[..., :k], places[..., :k] if index is None else index.gather(-1, places[..., :k])
    if index is None:
        index = torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape)
    # torch.topk breaks ties arbitrarily, so it is given numbers without ties: one int64 per pair.
    # 1. Bits of a float32 as an integer of the same order: negative ones have their magnitude inverted.
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes −0 equal to +0
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    # 2. The score in the high half; below it the index, inverted so that the lower one is larger.
    keys = (bits.long() << 32) | (_LOW - index)
    places = keys.topk(k, dim=-1).indices
    return scores.gather(-1, places), index.gather(-1, places)
