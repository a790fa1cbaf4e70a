"""Slow, obvious oracles for search and the published layer over its result: loops over queries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def slow_score(query: Tensor, key: Tensor) -> float:
    """The rule for one pair: Python floats are float64, the sum runs in index order."""
    total = 0.0
    for a, b in zip(query.tolist(), key.tolist(), strict=True):
        total += a * b
    with np.errstate(over="ignore"):
        return float(np.float32(total)) + 0.0  # no −0


def slow_search(
    queries: Tensor, keys: Tensor, k: int, query_ptr: Sequence[int], key_ptr: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Sort all keys of the query's graph by (score descending, index); cut to k."""
    heads, rows, _ = queries.shape
    scores, indices = torch.full((heads, rows, k), -math.inf), torch.full((heads, rows, k), -1)
    ranges = zip(itertools.pairwise(query_ptr), itertools.pairwise(key_ptr), strict=True)
    for head, (asked, there) in itertools.product(range(heads), ranges):
        for row in range(*asked):
            ranked = [(slow_score(queries[head, row], keys[head, j]), j) for j in range(*there)]
            ranked.sort(key=lambda pair: (-pair[0], pair[1]))
            for slot, (score, j) in enumerate(ranked[:k]):
                scores[head, row, slot], indices[head, row, slot] = score, j
    return scores, indices


def slow_padded_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    k: int,
    ptr: Sequence[int],
    pads: Sequence[Tensor],
) -> Tensor:
    """The published layer, each query alone: softmax over the k best keys of a padded graph.

    Every graph is padded to the longest with ``pads``, a key (H, d) and a value (H, v); pads are
    attended, and key 0 fills slots beyond that length.
    """
    longest = max(b - a for a, b in itertools.pairwise(ptr))
    out = torch.zeros(*queries.shape[:2], values.shape[2], dtype=values.dtype)
    for head, (start, stop) in itertools.product(range(len(queries)), itertools.pairwise(ptr)):
        rows = [keys[head, start:stop], values[head, start:stop]]
        more = longest - (stop - start)
        rows = [torch.cat([a, b[head].expand(more, -1)]) for a, b in zip(rows, pads, strict=True)]
        for row in range(start, stop):
            scores = rows[0] @ queries[head, row]
            best = scores.argsort(descending=True, stable=True)[:k]
            best = torch.cat([best, best.new_zeros(k - len(best))])
            weights = torch.softmax(scores[best] / math.sqrt(queries.shape[2]), 0)
            out[head, row] = weights @ rows[1][best]
    return out
