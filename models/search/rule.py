"""The ranking rule that every backend obeys, in plain torch for any device.

The score of a pair is the float64 sum, in index order from +0, of its exact products, rounded once
to float32; the result is the k largest, descending, equal scores by lower index. (Products of two
float32 numbers are exact in float64, so fused multiply-add changes nothing.) Float64 operands are
summed the same way but their products are rounded and their scores stay float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_OVERFLOW = 1e38  # below this bound on |q| |k| no partial sum leaves the float32 range


def score_block(queries: Tensor, keys: Tensor) -> Tensor:
    """Scores of all pairs by the rule: (B, R, d) × (B, M, d) → (B, R, M)."""
    total = torch.zeros((*queries.shape[:2], keys.shape[1]), dtype=torch.float64, device=queries.device)
    wide_queries, wide_keys = queries.double(), keys.double()
    for c in range(queries.shape[2]):
        total.addcmul_(wide_queries[:, :, None, c], wide_keys[:, None, :, c])
    return total.to(queries.dtype)


def score_candidates(queries: Tensor, keys: Tensor, candidates: Tensor) -> Tensor:
    """Scores of chosen pairs by the rule.

    Parameters
    ----------
    queries, keys
        (B, R, d) and (B, M, d).
    candidates
        (B, R, c) int64, rows of ``keys``.

    Returns
    -------
    Tensor
        (B, R, c), dtype of ``queries``.
    """
    total = torch.zeros(candidates.shape, dtype=torch.float64, device=queries.device)
    flat = candidates.flatten(1)
    for c in range(queries.shape[2]):
        gathered = keys[:, :, c].gather(1, flat).view(candidates.shape)
        total.addcmul_(queries[:, :, None, c].double(), gathered.double())
    return total.to(queries.dtype)


def largest(scores: Tensor, k: int, index: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row, descending, equal ones by lower index.

    Parameters
    ----------
    scores
        (…, M), no NaN, M ≥ k.
    index
        (…, M) int64 below 2³², what stands for each score (rising along M if float64); its position
        when absent.

    Returns
    -------
    tuple
        Scores (…, k) and indices (…, k).
    """
    if scores.dtype == torch.float64:
        best, places = scores.sort(dim=-1, descending=True, stable=True)
        return best[..., :k], places[..., :k] if index is None else index.gather(-1, places[..., :k])
    if index is None:
        index = torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape)
    # One integer a pair orders as (score, lower index first): all distinct, so topk has no ties to break.
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes −0 equal to +0
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (bits.long() << 32) | (_LOW - index)
    places = keys.topk(k, dim=-1).indices
    return scores.gather(-1, places), index.gather(-1, places)


def float32_sum_error(queries: Tensor, keys: Tensor) -> Tensor:
    """Bound on the error of a float32 inner product summed in any order, (B, R) float64.

    (d + 2) · 2⁻²⁴ · 1.01 times |q| times the longest key (Cauchy-Schwarz on the classical
    d · 2⁻²⁴ · Σ|q_c k_c|; the rest covers the bound's own arithmetic), plus what flushed subnormals
    may cost. Infinite where a partial sum could overflow.
    """
    dim = queries.shape[2]
    return _error(queries, keys, (dim + 2) * 2.0**-24 * 1.01, dim * 2.0**-124)


def float64_sum_error(queries: Tensor, keys: Tensor) -> Tensor:
    """Bound on the error of a float64 inner product of float32 rows, once rounded to float32, (B, R)."""
    dim = queries.shape[2]
    return _error(queries, keys, 2.0**-24 * 1.01 + dim * 2.0**-51, 2.0**-148)


def _error(queries: Tensor, keys: Tensor, relative: float, absolute: float) -> Tensor:
    longest = keys.double().norm(dim=2).amax(1, keepdim=True)
    product = queries.double().norm(dim=2) * longest
    return torch.where(product > _OVERFLOW, torch.inf, product * relative + absolute)


def settle(
    queries: Tensor, keys: Tensor, candidates: Tensor, k: int, error: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Rank a filter's candidates by the rule and say for which rows that proves the answer.

    The filter ranked all keys by a score within ``error`` of the exact one. A key that it left out
    ranked no higher than any candidate j, so its exact score is at most that of j + 2 · error: when
    even the lowest candidate plus that stays below the k-th best, nothing was missed.

    Parameters
    ----------
    queries, keys
        (B, R, d) and (B, M, d) float32.
    candidates
        (B, R, c) distinct rows of ``keys``, the filter's c best, c > k.
    error
        (B, R) float64.

    Returns
    -------
    tuple
        Scores (B, R, k), rows of ``keys`` (B, R, k), and (B, R) bool: proven.
    """
    exact = score_candidates(queries, keys, candidates)
    scores, rows = largest(exact, k, candidates)
    lowest = exact.amin(-1).double()
    rounding = lowest.abs() * 2.0**-23 + 2.0**-148
    highest_missed = (lowest + 2 * error + rounding).to(exact.dtype)
    return scores, rows, torch.isfinite(lowest) & (highest_missed < scores[..., -1])
