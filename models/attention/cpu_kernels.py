"""CPU kernels of attention over chosen pairs, which never store gathered rows.

Every sum has a fixed order, so outputs and gradients are bitwise equal for any number of threads. A
range counts the rows of all heads, one head after another.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from kmip_data.arrays import Array
from kmip_data.runtime.parallel import njit_nogil, num_threads, run_in_ranges

MIN_PAIRS_PER_RANGE = 20_000  #: fewest rows per thread

# Sums may be reordered into vector lanes, always the same way; −inf stays −inf.
_compiled = njit_nogil(fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")


def forward(
    values: Array,
    scores: Array,
    indices: Array,
    keep: Array,
    scale: float,
) -> tuple[Array, Array]:
    """Return the softmax-weighted sum of the chosen values (H, N, v), and the weights (H, N, k).

    Values are (H, M, v) float32 or float64, scores (H, N, k) of that dtype, indices int32 or int64
    rows of values, −1: no key. ``keep`` (H, N, k) bool masks the weights after the softmax
    (dropout); size 0: no mask. The returned weights are unmasked. ``scale`` multiplies the scores.
    """
    heads, rows, k = indices.shape
    out = np.empty((heads, rows, values.shape[2]), values.dtype)
    weights = np.empty(indices.shape, values.dtype)
    factor = values.dtype.type(scale)

    work = partial(_forward, values, scores, indices, keep, factor, weights, out)
    run_in_ranges(work, heads * rows, grain=max(1, MIN_PAIRS_PER_RANGE // k))
    return out, weights


def backward(
    grad: Array,
    queries: Array,
    keys: Array,
    values: Array,
    indices: Array,
    weights: Array,
    keep: Array,
    scale: float,
) -> tuple[Array, Array, Array]:
    """Gradients of queries, keys and values from the output's gradient, (H, N, v).

    Queries are independent rows. Keys and values are written by the thread that owns them: each
    thread walks all pairs in order and adds those that chose one of its keys. That costs one
    comparison per pair and thread, and neither locks nor a sorted copy of the pairs.
    """
    heads, rows, k = indices.shape
    many = keys.shape[1]
    factor = keys.dtype.type(scale)
    grad_scores = np.empty(indices.shape, keys.dtype)
    grad_queries = np.empty(queries.shape, keys.dtype)
    grad_keys = np.zeros(keys.shape, keys.dtype)
    grad_values = np.zeros(values.shape, keys.dtype)

    chosen = (indices, weights, keep)
    of_queries = partial(
        _backward_queries, grad, keys, values, *chosen, factor, grad_scores, grad_queries
    )
    of_keys = partial(_backward_keys, grad, queries, *chosen, grad_scores, grad_keys, grad_values)

    run_in_ranges(of_queries, heads * rows, grain=max(1, MIN_PAIRS_PER_RANGE // k))
    if k == 1:
        # The weight of a single key is 1 whatever its score. Handled outside the kernel, where a
        # branch would reorder sums.
        grad_scores[:] = grad_queries[:] = 0
    # One range a thread, as each walks all pairs of the heads whose keys it owns.
    pairs_per_key = max(1, rows * k // max(1, many))
    grain = max(-(-heads * many // num_threads()), MIN_PAIRS_PER_RANGE // pairs_per_key, 1)
    run_in_ranges(of_keys, heads * many, grain=grain)
    return grad_queries, grad_keys, grad_values


@_compiled
def _forward(
    values: Array,
    scores: Array,
    indices: Array,
    keep: Array,
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
        # 1. Softmax about the largest score; a slot without a key (−1) has weight 0.
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
        # 2. Weighted sum of the chosen rows, read where they lie.
        out[head, row] = 0
        for slot in range(k):
            key = indices[head, row, slot]
            if key < 0:
                continue
            weights[head, row, slot] /= total
            if keep.shape[0] > 0 and not keep[head, row, slot]:
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
    keep: Array,
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
        # 1. Gradient of each weight: output gradient · value; and its mean under the weights.
        mean = nothing
        for slot in range(k):
            product = nothing
            key = indices[head, row, slot]
            if key >= 0 and (keep.shape[0] == 0 or keep[head, row, slot]):
                for channel in range(values.shape[2]):
                    product += grad[head, row, channel] * values[head, key, channel]
            grad_scores[head, row, slot] = product
            mean += product * weights[head, row, slot]
        # 2. Through the softmax to the scores, and on to the query.
        grad_queries[head, row] = 0
        for slot in range(k):
            # A missing key has no weight, hence no gradient.
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
    keep: Array,
    grad_scores: Array,
    grad_keys: Array,
    grad_values: Array,
    start: int,
    stop: int,
) -> None:
    _, rows, k = indices.shape
    many = grad_keys.shape[1]
    for head in range(start // many, (stop - 1) // many + 1):
        # This thread owns the keys from first to last: it walks all pairs and adds those that chose
        # one.
        first = max(start - head * many, 0)
        last = min(stop - head * many, many)
        for row in range(rows):
            for slot in range(k):
                key = indices[head, row, slot]
                if key < first or key >= last:  # also where there is none: −1
                    continue
                grad_score = grad_scores[head, row, slot]
                for channel in range(queries.shape[2]):
                    grad_keys[head, key, channel] += grad_score * queries[head, row, channel]
                if keep.shape[0] > 0 and not keep[head, row, slot]:
                    continue
                for channel in range(grad.shape[2]):
                    grad_values[head, key, channel] += (
                        weights[head, row, slot] * grad[head, row, channel]
                    )
