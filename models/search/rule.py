"""Ranking rule of all search backends, in torch operations, and proofs for filtered candidates.

The score of a pair is the float64 sum, in index order from +0, of its exact products, rounded once
to float32 (−0 to +0). The result is the k largest scores, descending; equal scores are ordered by
index. Products of two float32 numbers are exact in float64, so fused multiply-add changes nothing.
Float64 operands are summed in the same way, with rounded products and float64 scores.

A backend may filter all keys by any arithmetic with a bounded error. The remaining candidates are
scored by the rule. Queries without a proof that the filter missed no better key, such as those with
many ties, are scored against all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from kmip_data.models.search.problem import SearchProblem

_LOW_32_BITS = 0xFFFFFFFF


def score_block(queries: Tensor, keys: Tensor) -> Tensor:
    """Score all pairs by the rule: (B, R, d) × (B, M, d) → (B, R, M)."""
    shape = (*queries.shape[:2], keys.shape[1])
    total = torch.zeros(shape, dtype=torch.float64, device=queries.device)
    wide_queries = queries.double()
    wide_keys = keys.double()
    for c in range(queries.shape[2]):
        query = wide_queries[:, :, None, c]
        key = wide_keys[:, None, :, c]
        total.addcmul_(query, key)
    return total.to(queries.dtype).add_(0.0)  # + 0: no −0


def score_candidates(queries: Tensor, keys: Tensor, candidates: Tensor) -> Tensor:
    """Score candidates by the rule: (B, R, c), in the dtype of ``queries``.

    Queries are (B, R, d), keys (B, M, d), candidates (B, R, c) int64 rows of ``keys``.
    """
    total = torch.zeros(candidates.shape, dtype=torch.float64, device=queries.device)
    rows = candidates.flatten(1)
    for c in range(queries.shape[2]):
        gathered = keys[:, :, c].gather(1, rows)
        key = gathered.view(candidates.shape).double()
        query = queries[:, :, None, c].double()
        total.addcmul_(query, key)
    return total.to(queries.dtype).add_(0.0)  # + 0: no −0


def largest_scores(scores: Tensor, k: int, index: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the k largest of scores (…, M) and their indices, (…, k), descending, ties by index.

    No score may be NaN, and M ≥ k. ``index`` (…, M) int64 below 2³² identifies each score
    (ascending along M if float64); by default, its position.
    """
    # Float64 scores fill all 64 bits. A stable sort keeps equal ones in index order.
    if scores.dtype == torch.float64:
        ordered, positions = scores.sort(dim=-1, descending=True, stable=True)
        best = ordered[..., :k]
        positions = positions[..., :k]
        if index is None:
            return best, positions
        return best, index.gather(-1, positions)

    if index is None:
        index = torch.arange(scores.shape[-1], device=scores.device)
        index = index.expand(scores.shape)
    # torch.topk breaks ties arbitrarily, so rank pairs by distinct int64 numbers.
    # 1. Read a float32 as an integer of the same order, with the magnitude of negative ones inverted.
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes −0 equal to +0
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    # 2. Put the score into the high half, and the inverted index, so that lower ones win, below it.
    keys = (bits.long() << 32) | (_LOW_32_BITS - index)
    positions = keys.topk(k, dim=-1).indices
    return scores.gather(-1, positions), index.gather(-1, positions)


SPARE_CANDIDATES = 6  #: candidates beyond k, which make a proof likely
MAX_SCORED_PAIRS = 2**21  #: pairs scored at a time
#: Pairs filtered on the CPU between checks for an interrupt, 0.1 to 0.5 s.
MAX_FILTERED_PAIRS = 2**26
_MAX_NORM_PRODUCT = 1e38  # largest |q| |k| for which no partial sum overflows float32


def float32_sum_error(queries: Tensor, keys: Tensor) -> Tensor:
    """Return an error bound of float32 inner products summed in any order, (B, R) float64.

    The bound is (d + 2) · 2⁻²⁴ · 1.01 times |q| times the longest key, plus the error of flushed
    subnormals. It follows from the classical d · 2⁻²⁴ · Σ|q_c k_c| by Cauchy-Schwarz, with a margin
    for its own arithmetic. It is infinite if a partial sum could overflow.
    """
    dim = queries.shape[2]
    relative = (dim + 2) * 2.0**-24 * 1.01
    subnormal = dim * 2.0**-124
    return _product_error(queries, keys, relative, subnormal)


def float64_sum_error(queries: Tensor, keys: Tensor) -> Tensor:
    """Return an error bound of float64 inner products of float32 rows, rounded to float32, (B, R)."""
    rounding = 2.0**-24 * 1.01
    summing = queries.shape[2] * 2.0**-51
    return _product_error(queries, keys, rounding + summing, 2.0**-148)


def _product_error(queries: Tensor, keys: Tensor, relative: float, absolute: float) -> Tensor:
    longest = keys.double().norm(dim=2).amax(1, keepdim=True)
    product = queries.double().norm(dim=2) * longest
    bound = product * relative + absolute
    return torch.where(product > _MAX_NORM_PRODUCT, torch.inf, bound)


class Filter(NamedTuple):
    """Approximate ranking of all keys, with a bounded error."""

    #: Map queries (H, R, d), keys (H, M, d) and a count c < M to (H, R, c) distinct rows of keys,
    #: the highest-ranking ones; negative for a query whose scores cannot be ranked, such as NaN.
    find: Callable[[Tensor, Tensor, int], Tensor]
    #: Map queries and keys to an error bound of the scores, (H, R) float64.
    error: Callable[[Tensor, Tensor], Tensor] = float32_sum_error


def prove_or_rescore(
    queries: Tensor,
    keys: Tensor,
    candidates: Tensor,
    k: int,
    error: Tensor,
    *,
    max_scored_pairs: int,
    fallback: Filter | None = None,
) -> tuple[Tensor, Tensor]:
    """Return scores and rows (B, R, k) of the k best keys by the rule, from a filter's c > k candidates.

    The filter's scores are within ``error`` of the exact ones. A key that it left out ranked no
    higher than any candidate j, so its exact score is at most the score of j + 2 · error. If this
    bound for the lowest candidate is below the k-th best score, no better key was missed.

    Queries are (B, R, d) and keys (B, M, d) float32, candidates (B, R, c) distinct rows of keys,
    and the error (B, R) float64. At most ``max_scored_pairs`` pairs are scored at a time. Queries
    without a proof go through the more precise filter ``fallback``.
    """
    # 1. Rank the candidates by the rule.
    exact = score_candidates(queries, keys, candidates)
    scores, rows = largest_scores(exact, k, candidates)

    # 2. A missed key scores at most as the lowest candidate, plus twice the filter's error, plus a
    #    rounding to float32. NaN and infinities prove nothing.
    lowest = exact.amin(-1).double()
    rounding = lowest.abs() * 2.0**-23 + 2.0**-148
    highest_missed = (lowest + 2 * error + rounding).to(exact.dtype)
    is_proven = torch.isfinite(lowest) & (highest_missed < scores[..., -1])

    # 3. Filter queries without a proof more precisely, or score them against all keys, in blocks.
    step = max(1, max_scored_pairs // keys.shape[1])
    for b in (~is_proven).any(1).nonzero().flatten().tolist():
        unproven = (~is_proven[b]).nonzero().flatten()
        all_keys = keys[b : b + 1]
        for block in torch.split(unproven, step):
            block_queries = queries[b : b + 1, block]
            if fallback is None:
                best, best_rows = largest_scores(score_block(block_queries, all_keys), k)
            else:
                best, best_rows = prove_or_rescore(
                    block_queries,
                    all_keys,
                    fallback.find(block_queries, all_keys, candidates.shape[2]),
                    k,
                    fallback.error(block_queries, all_keys),
                    max_scored_pairs=max_scored_pairs,
                )
            scores[b, block] = best[0]
            rows[b, block] = best_rows[0]
    return scores, rows


def search_by_graph(
    problem: SearchProblem,
    first_filter: Filter,
    graphs: Iterable[int],
    result: tuple[Tensor, Tensor],
    *,
    fallback: Filter | None = None,
    max_filtered_pairs: int | None = None,
    max_scored_pairs: int = MAX_SCORED_PAIRS,
) -> None:
    """Search one graph at a time, after a filter unless the problem is float64.

    Queries without a proof go through ``fallback``, if given. At most ``max_filtered_pairs`` pairs
    are filtered at a time (None: a whole graph), and at most ``max_scored_pairs`` are scored.
    Writes scores (H, N, k) and indices (H, N, k) to ``result``.
    """
    scores, indices = result
    for graph in graphs:
        start, stop = problem.query_rows[graph].tolist()
        low, high = problem.key_rows[graph].tolist()
        count = high - low
        if start == stop or count == 0:
            continue

        # 1. Filter unless the graph has too few keys.
        keys = problem.keys[:, low:high].contiguous()
        k = min(problem.k, count)
        num_candidates = problem.k + SPARE_CANDIDATES
        uses_filter = problem.dtype == torch.float32 and num_candidates < count
        max_pairs = max_filtered_pairs if uses_filter else max_scored_pairs
        step = stop - start
        if max_pairs is not None:
            step = max(1, max_pairs // (problem.heads * count))

        for first in range(start, stop, step):
            rows = slice(first, min(first + step, stop))
            queries = problem.queries[:, rows].contiguous()
            if uses_filter:
                # 2. If the filter cannot rank, an infinite bound of any candidates prevents a proof.
                candidates = first_filter.find(queries, keys, num_candidates)
                bound = first_filter.error(queries, keys)
                is_unranked = (candidates < 0).any(-1)
                candidates[is_unranked] = torch.arange(num_candidates, device=problem.device)
                bound[is_unranked] = torch.inf
                best, positions = prove_or_rescore(
                    queries,
                    keys,
                    candidates,
                    k,
                    bound,
                    max_scored_pairs=max_scored_pairs,
                    fallback=fallback,
                )
            else:
                all_scores = score_block(queries, keys)
                best, positions = largest_scores(all_scores, k)
            scores[:, rows, :k] = best
            indices[:, rows, :k] = positions + low
