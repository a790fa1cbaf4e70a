"""CPU kernels of attention to chosen keys, which do not store gathered rows.

Every sum has a fixed order, so outputs and gradients are bitwise equal for any number of threads.
Threads share the rows of all heads, numbered head after head.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from kmip_data.arrays import Array
from kmip_data.runtime.parallel import njit_nogil, num_threads, run_in_ranges

MIN_PAIRS_PER_RANGE = 20_000  #: fewest pairs per thread

# The compiler may reorder sums into vector lanes, always in the same way, and preserves −inf.
_compiled = njit_nogil(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")


def forward(
    values: Array,
    scores: Array,
    indices: Array,
    dropout_mask: Array,
    scale: float,
) -> tuple[Array, Array]:
    """Return the softmax-weighted sum of the chosen values (H, N, v), and the weights (H, N, k).

    Values are (H, M, v) float32 or float64, scores (H, N, k) have the same dtype, and indices (H,
    N, k) are int32 or int64 rows of values; −1: no key. ``dropout_mask`` (H, N, k) bool selects the
    kept weights; size 0: all. The returned weights are unmasked. ``scale`` multiplies the scores.
    """
    heads, rows, k = indices.shape
    out = np.empty((heads, rows, values.shape[2]), values.dtype)
    weights = np.empty(indices.shape, values.dtype)
    factor = values.dtype.type(scale)

    work = partial(_forward, values, scores, indices, dropout_mask, factor, weights, out)
    run_in_ranges(work, heads * rows, grain=max(1, MIN_PAIRS_PER_RANGE // k))
    return out, weights


def backward(
    grad: Array,
    queries: Array,
    keys: Array,
    values: Array,
    indices: Array,
    weights: Array,
    dropout_mask: Array,
    scale: float,
) -> tuple[Array, Array, Array]:
    """Return the gradients of queries, keys and values from the output's gradient (H, N, v).

    Queries are independent. Each key belongs to one thread, which walks all pairs in order and adds
    the pairs that chose one of its keys. That costs one comparison per pair and thread, but needs
    neither locks nor a sorted copy of the pairs.
    """
    heads, rows, k = indices.shape
    num_keys = keys.shape[1]
    factor = keys.dtype.type(scale)
    grad_scores = np.empty(indices.shape, keys.dtype)
    grad_queries = np.empty(queries.shape, keys.dtype)
    grad_keys = np.zeros(keys.shape, keys.dtype)
    grad_values = np.zeros(values.shape, keys.dtype)

    pairs = (indices, weights, dropout_mask)
    query_work = partial(
        _backward_queries, grad, keys, values, *pairs, factor, grad_scores, grad_queries
    )
    key_work = partial(_backward_keys, grad, queries, *pairs, grad_scores, grad_keys, grad_values)

    run_in_ranges(query_work, heads * rows, grain=max(1, MIN_PAIRS_PER_RANGE // k))
    if k == 1:
        # The weight of a single key is always 1. A branch inside the kernel would reorder sums.
        grad_scores[:] = grad_queries[:] = 0
    # One range per thread, as each range walks all pairs of its heads.
    pairs_per_key = max(1, rows * k // max(1, num_keys))
    grain = max(-(-heads * num_keys // num_threads()), MIN_PAIRS_PER_RANGE // pairs_per_key, 1)
    run_in_ranges(key_work, heads * num_keys, grain=grain)
    return grad_queries, grad_keys, grad_values


@_compiled
def _forward(
    values: Array,
    scores: Array,
    indices: Array,
    dropout_mask: Array,
    scale: float,
    weights: Array,
    out: Array,
    start: int,
    stop: int,
) -> None:
    _, rows, k = indices.shape
    nothing = scale * 0
    for flat in range(start, stop):
        head, row = divmod(flat, rows)
        # 1. Softmax relative to the largest score; an empty slot (−1) has weight 0.
        largest = nothing - np.inf
        for slot in range(k):
            if indices[head, row, slot] >= 0:
                largest = max(largest, scores[head, row, slot])
        total = nothing
        for slot in range(k):
            weight = nothing
            if indices[head, row, slot] >= 0:
                weight = math.exp((scores[head, row, slot] - largest) * scale)
            weights[head, row, slot] = weight
            total += weight
        # 2. Weighted sum of the chosen rows, read in place.
        out[head, row] = 0
        for slot in range(k):
            key = indices[head, row, slot]
            if key < 0:
                continue
            weights[head, row, slot] /= total
            if dropout_mask.shape[0] > 0 and not dropout_mask[head, row, slot]:
                continue
            for channel in range(out.shape[2]):
                out[head, row, channel] += weights[head, row, slot] * values[head, key, channel]


@_compiled
def _backward_queries(
    grad: Array,
    keys: Array,
    values: Array,
    indices: Array,
    weights: Array,
    dropout_mask: Array,
    scale: float,
    grad_scores: Array,
    grad_queries: Array,
    start: int,
    stop: int,
) -> None:
    _, rows, k = indices.shape
    nothing = scale * 0
    for flat in range(start, stop):
        head, row = divmod(flat, rows)
        # 1. Gradient of each weight, output gradient · value, and its mean under the weights.
        mean = nothing
        for slot in range(k):
            product = nothing
            key = indices[head, row, slot]
            if key >= 0 and (dropout_mask.shape[0] == 0 or dropout_mask[head, row, slot]):
                for channel in range(values.shape[2]):
                    product += grad[head, row, channel] * values[head, key, channel]
            grad_scores[head, row, slot] = product
            mean += product * weights[head, row, slot]
        # 2. Backpropagate through the softmax to the scores, and to the query.
        grad_queries[head, row] = 0
        for slot in range(k):
            # An empty slot has weight 0, hence no gradient.
            grad_score = weights[head, row, slot] * (grad_scores[head, row, slot] - mean) * scale
            grad_scores[head, row, slot] = grad_score
            key = indices[head, row, slot]
            if key >= 0:
                for channel in range(keys.shape[2]):
                    grad_queries[head, row, channel] += grad_score * keys[head, key, channel]


@_compiled
def _backward_keys(
    grad: Array,
    queries: Array,
    indices: Array,
    weights: Array,
    dropout_mask: Array,
    grad_scores: Array,
    grad_keys: Array,
    grad_values: Array,
    start: int,
    stop: int,
) -> None:
    _, rows, k = indices.shape
    num_keys = grad_keys.shape[1]
    for head in range(start // num_keys, (stop - 1) // num_keys + 1):
        # This thread owns the keys first:last of the head.
        first = max(start - head * num_keys, 0)
        last = min(stop - head * num_keys, num_keys)
        for row in range(rows):
            for slot in range(k):
                key = indices[head, row, slot]
                if key < first or key >= last:  # includes empty slots (−1)
                    continue
                grad_score = grad_scores[head, row, slot]
                for channel in range(queries.shape[2]):
                    grad_keys[head, key, channel] += grad_score * queries[head, row, channel]
                if dropout_mask.shape[0] > 0 and not dropout_mask[head, row, slot]:
                    continue
                for channel in range(grad.shape[2]):
                    grad_values[head, key, channel] += (
                        weights[head, row, slot] * grad[head, row, channel]
                    )
