"""Ranking rule of all search backends, in torch operations, and proofs for filtered candidates.

The score of a pair is the float64 sum, in index order from +0, of its exact products, rounded once
to float32 (−0 to +0); the result is the k largest, descending, equal scores by lower index.
(Products of two float32 numbers are exact in float64, so fused multiply-add changes nothing.)
Float64 operands are summed in the same way, with rounded products and float64 scores.

A backend may rank all keys by any arithmetic whose error has a bound, and keep the best few. These
are scored by the rule; rows without a proof that nothing better was missed, such as rows full of
ties, are scored completely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from kmip_data.models.search.problem import SearchProblem

_LOW = 0xFFFFFFFF


def score_block(queries: Tensor, keys: Tensor) -> Tensor:
    """Scores of all pairs by the rule: (B, R, d) × (B, M, d) → (B, R, M)."""
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
    """Scores of chosen pairs by the rule, (B, R, c), dtype of ``queries``.

    Queries are (B, R, d), keys (B, M, d), candidates (B, R, c) int64 rows of ``keys``.
    """
    total = torch.zeros(candidates.shape, dtype=torch.float64, device=queries.device)
    flat = candidates.flatten(1)
    for c in range(queries.shape[2]):
        gathered = keys[:, :, c].gather(1, flat)
        key = gathered.view(candidates.shape).double()
        query = queries[:, :, None, c].double()
        total.addcmul_(query, key)
    return total.to(queries.dtype).add_(0.0)  # + 0: no −0


def largest_scores(scores: Tensor, k: int, index: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k largest scores (…, M) of each row and their indices, (…, k), descending, equal ones by index.

    No score is NaN, and M ≥ k. ``index`` (…, M) int64 below 2³² identifies each score (rising along
    M if float64); its position when absent.
    """
    # Float64 scores fill all 64 bits: a stable sort keeps equal ones in index order.
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
    # torch.topk breaks ties arbitrarily, so rank distinct int64 numbers, one per pair.
    # 1. Bits of a float32 as an integer of the same order: negative ones have their magnitude inverted.
    bits = (scores + 0.0).view(torch.int32)  # + 0.0 makes −0 equal to +0
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    # 2. The score in the high half; below it the index, inverted so that the lower one is larger.
    keys = (bits.long() << 32) | (_LOW - index)
    positions = keys.topk(k, dim=-1).indices
    return scores.gather(-1, positions), index.gather(-1, positions)


SPARE = 6  #: extra candidates beyond k, which make a proof likely
PAIRS = 2**21  #: pairs scored at a time
#: Pairs ranked on the CPU between checks for an interrupt, 0.1 to 0.5 s.
RANKED = 2**26
_OVERFLOW = 1e38  # bound on |q| |k| below which no partial sum overflows float32


def float32_sum_error(queries: Tensor, keys: Tensor) -> Tensor:
    """Bound on the error of a float32 inner product summed in any order, (B, R) float64.

    (d + 2) · 2⁻²⁴ · 1.01 times |q| times the longest key (Cauchy-Schwarz on the classical
    d · 2⁻²⁴ · Σ|q_c k_c|; the rest covers the bound's own arithmetic), plus what flushed subnormals
    may cost. Infinite where a partial sum could overflow.
    """
    dim = queries.shape[2]
    relative = (dim + 2) * 2.0**-24 * 1.01
    subnormal = dim * 2.0**-124
    return _product_error(queries, keys, relative, subnormal)


def float64_sum_error(queries: Tensor, keys: Tensor) -> Tensor:
    """Bound on the error of a float64 inner product of float32 rows, once rounded to float32, (B, R)."""
    rounding = 2.0**-24 * 1.01
    summing = queries.shape[2] * 2.0**-51
    return _product_error(queries, keys, rounding + summing, 2.0**-148)


def _product_error(queries: Tensor, keys: Tensor, relative: float, absolute: float) -> Tensor:
    longest = keys.double().norm(dim=2).amax(1, keepdim=True)
    product = queries.double().norm(dim=2) * longest
    bound = product * relative + absolute
    return torch.where(product > _OVERFLOW, torch.inf, bound)


class Filter(NamedTuple):
    """Ranks all keys with a bounded error."""

    #: From queries (H, R, d), keys (H, M, d) and a count c < M to (H, R, c) distinct rows of keys,
    #: those that rank highest; a negative one where it ranks none, such as NaN from an overflow.
    find: Callable[[Tensor, Tensor, int], Tensor]
    #: Bound on the error of its scores, (H, R) float64.
    error: Callable[[Tensor, Tensor], Tensor] = float32_sum_error


def prove_or_rescore(
    queries: Tensor,
    keys: Tensor,
    candidates: Tensor,
    k: int,
    error: Tensor,
    *,
    pairs_scored: int,
    fallback: Filter | None = None,
) -> tuple[Tensor, Tensor]:
    """Return scores and rows (B, R, k) of the k best keys by the rule, from a filter's best c > k.

    The filter ranked all keys by a score within ``error`` of the exact one. A key that it left out
    ranked no higher than any candidate j, so its exact score is at most the score of j + 2 · error: if
    the lowest candidate plus that stays below the k-th best, nothing was missed.

    Queries are (B, R, d) and keys (B, M, d) float32, candidates (B, R, c) distinct rows of keys,
    the error (B, R) float64; at most ``pairs_scored`` pairs are scored at a time. Rows without a
    proof go through the more precise filter ``fallback``.
    """
    # 1. Rank the candidates by the rule.
    exact = score_candidates(queries, keys, candidates)
    scores, rows = largest_scores(exact, k, candidates)

    # 2. Best score that a missed key can have: the worst candidate's, plus twice the filter's
    #    error, plus a rounding to float32. NaN and infinities prove nothing.
    lowest = exact.amin(-1).double()
    rounding = lowest.abs() * 2.0**-23 + 2.0**-148
    highest_missed = (lowest + 2 * error + rounding).to(exact.dtype)
    proven = torch.isfinite(lowest) & (highest_missed < scores[..., -1])
    unproven = ~proven

    # 3. Rows without a proof are filtered once more, or scored whole as those full of ties, a
    #    bounded number of pairs at a time.
    step = max(1, pairs_scored // keys.shape[1])
    for b in unproven.any(1).nonzero().flatten().tolist():
        queries_left = unproven[b].nonzero().flatten()
        all_keys = keys[b : b + 1]
        for block in torch.split(queries_left, step):
            few = queries[b : b + 1, block]
            if fallback is None:
                best, best_rows = largest_scores(score_block(few, all_keys), k)
            else:
                narrower = fallback.find(few, all_keys, candidates.shape[2])
                bound = fallback.error(few, all_keys)
                best, best_rows = prove_or_rescore(
                    few, all_keys, narrower, k, bound, pairs_scored=pairs_scored
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
    pairs_filtered: int | None = None,
    pairs_scored: int = PAIRS,
) -> None:
    """Search one graph at a time, behind a filter unless the problem is float64.

    Rows that the filter cannot prove go through ``fallback``, if given. At most ``pairs_filtered``
    pairs are filtered at a time (None: all of a graph), and ``pairs_scored`` scored completely.
    Fills in the ``result``, scores (H, N, k) and indices (H, N, k).
    """
    scores, indices = result
    for graph in graphs:
        start, stop = problem.query_rows[graph].tolist()
        low, high = problem.key_rows[graph].tolist()
        count = high - low
        if start == stop or count == 0:
            continue

        # 1. Six candidates beyond k make a proof likely; a graph that has fewer keys is scored
        #    whole.
        keys = problem.keys[:, low:high].contiguous()
        k = min(problem.k, count)
        wanted = problem.k + SPARE
        filtered = problem.dtype == torch.float32 and wanted < count
        at_once = pairs_filtered if filtered else pairs_scored  # all pairs of a small graph are few
        step = stop - start
        if at_once is not None:
            step = max(1, at_once // (problem.heads * count))

        for first in range(start, stop, step):
            rows = slice(first, min(first + step, stop))
            queries = problem.queries[:, rows].contiguous()
            if filtered:
                # 2. Where the filter ranks nothing, any candidates with an infinite bound: scored
                #    whole.
                candidates = first_filter.find(queries, keys, wanted)
                bound = first_filter.error(queries, keys)
                lost = (candidates < 0).any(-1)
                candidates[lost] = torch.arange(wanted, device=problem.device)
                bound[lost] = torch.inf
                best, positions = prove_or_rescore(
                    queries,
                    keys,
                    candidates,
                    k,
                    bound,
                    pairs_scored=pairs_scored,
                    fallback=fallback,
                )
            else:
                all_scores = score_block(queries, keys)
                best, positions = largest_scores(all_scores, k)
            scores[:, rows, :k] = best
            indices[:, rows, :k] = positions + low
