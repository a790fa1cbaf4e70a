"""Attention kernels: forward pass, gradients of scores and queries, gradients of keys and values.

A program over queries holds BQ queries of one head with all of their keys in BK ≥ k slots, and
streams values and keys BC channels at a time, so nothing of size (N, k, d) is ever stored. A pair
is an element of (H, N, k). Rows belong to (H, ·, d) tensors with contiguous channels and any
strides between heads and between rows.

Gradients of keys and values are sums over sorted pairs, in a fixed order and without atomics (ADR
0270). :func:`.launch.sort_pairs_by_key` sorts the pairs by key and then by query, so the pairs of a
key form a list. Lists are cut at multiples of SEGMENT, so that many programs share a key chosen by
thousands of queries, and cuts depend only on the indices. Segment s is the first one of key s
(counted over all heads). Later segments start at the multiples of SEGMENT, and :func:`add_segments`
adds them to the first one of their list. No size depends on values, so the host never waits for the
GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _pair_offsets_and_keys(indices, row, rows, k, BK: tl.constexpr):
    """Return offsets (BQ, BK) of the rows' pairs, mask of existing pairs, their keys, mask of valid keys."""
    slot = tl.arange(0, BK)
    flat = tl.program_id(1).to(tl.int64) * rows + row
    pair = flat[:, None] * k + slot[None, :]
    inside = (row < rows)[:, None] & (slot < k)[None, :]
    key = tl.load(indices + pair, inside, -1)
    return pair, inside, key.to(tl.int64), key >= 0


@triton.jit
def _load_chosen_rows(of_head, key, stride, has_key, channel, width):
    """Load channels of the chosen rows, (BQ, BK, BC), with zeros for missing keys."""
    address = of_head + key[:, :, None] * stride + channel[None, None, :]
    inside = has_key[:, :, None] & (channel < width)[None, None, :]
    return tl.load(address, inside, 0.0)


@triton.jit(do_not_specialize=["rows"])
def attend_rows(
    scores,
    indices,
    dropout_mask,
    values,
    value_head,
    value_row,
    weights,
    out,
    not_finite,
    rows,
    k,
    width,
    scale,
    BQ: tl.constexpr,
    BK: tl.constexpr,
    BC: tl.constexpr,
):
    """Compute softmax weights and the weighted sum of values; program (tile of queries, head).

    ``scores``, ``indices`` (int32 or int64; −1: no key) and ``dropout_mask`` (bytes, 0: dropped; or None)
    are (H, rows, k), and ``values`` (H, M, width). Writes ``weights`` (H, rows, k), before dropout,
    and ``out`` (H, rows, width), zero for a row without keys. Floats are float32. Sets ``not_finite``
    (int32) to 1 if a row's largest score overflowed.
    """
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BQ + tl.arange(0, BQ)
    pair, inside, key, has_key = _pair_offsets_and_keys(indices, row, rows, k, BK)

    # 1. Softmax relative to the largest score; for a row without keys, −inf − −inf would be NaN.
    score = tl.load(scores + pair, inside, 0.0)
    score = tl.where(has_key, score, float("-inf"))
    largest = tl.max(score, 1)
    undefined = (tl.abs(largest) == float("inf")) & (tl.max(key, 1) >= 0)
    tl.store(not_finite + 0 * row, 1, undefined)
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    score = (score - shift[:, None]) * scale
    weight = tl.where(has_key, tl.exp(score), 0.0)
    total = tl.sum(weight, 1)
    # Round as on the CPU, so that the weight of a single key is exactly 1.
    divisor = tl.where(total > 0, total, 1.0)
    weight = tl.div_rn(weight, tl.broadcast_to(divisor[:, None], [BQ, BK]))
    tl.store(weights + pair, weight, inside)

    # 2. Dropout, after the weights are stored.
    if dropout_mask is not None:
        survives = tl.load(dropout_mask + pair, inside, 0) != 0
        weight = tl.where(survives, weight, 0.0)

    # 3. Weighted sum of the values, BC channels at a time, with (BQ, BK, BC) numbers in registers.
    of_head = values + head * value_head
    for first in range(0, width, BC):
        channel = first + tl.arange(0, BC)
        value = _load_chosen_rows(of_head, key, value_row, has_key, channel, width)
        result = tl.sum(weight[:, :, None] * value, 1)
        address = out + (head * rows + row)[:, None] * width + channel[None, :]
        written = (row < rows)[:, None] & (channel < width)[None, :]
        tl.store(address, result, written)


@triton.jit(do_not_specialize=["rows"])
def attend_rows_backward(
    grad,
    grad_head,
    grad_row,
    keys,
    key_head,
    key_row,
    values,
    value_head,
    value_row,
    indices,
    weights,
    dropout_mask,
    grad_scores,
    grad_queries,
    rows,
    k,
    dim,
    width,
    scale,
    BQ: tl.constexpr,
    BK: tl.constexpr,
    BC: tl.constexpr,
):
    """Compute the gradients of scores and queries; program (tile of queries, head).

    ``grad`` (H, rows, width) is the output's gradient, ``keys`` are (H, M, dim), and the others are
    as in :func:`attend_rows`. Writes ``grad_scores`` (H, rows, k), the gradient of each pair's query
    · key, 0 without a key, and ``grad_queries`` (H, rows, dim).
    """
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BQ + tl.arange(0, BQ)
    pair, inside, key, has_key = _pair_offsets_and_keys(indices, row, rows, k, BK)

    # 1. Gradient of each weight, value · output gradient.
    of_weight = tl.zeros((BQ, BK), tl.float32)
    of_head = values + head * value_head
    for first in range(0, width, BC):
        channel = first + tl.arange(0, BC)
        value = _load_chosen_rows(of_head, key, value_row, has_key, channel, width)
        address = grad + head * grad_head + row[:, None] * grad_row + channel[None, :]
        read = (row < rows)[:, None] & (channel < width)[None, :]
        gradient = tl.load(address, read, 0.0)
        of_weight += tl.sum(value * gradient[:, None, :], 2)
    if dropout_mask is not None:
        survives = tl.load(dropout_mask + pair, inside, 0) != 0
        of_weight = tl.where(survives, of_weight, 0.0)

    # 2. Backpropagate through the softmax: weight · (gradient − its mean under the weights).
    weight = tl.load(weights + pair, inside, 0.0)
    mean = tl.sum(of_weight * weight, 1)
    grad_score = weight * (of_weight - mean[:, None]) * scale
    tl.store(grad_scores + pair, grad_score, inside)

    # 3. Gradient of the queries, the keys weighted by the gradients of the scores.
    of_head = keys + head * key_head
    for first in range(0, dim, BC):
        channel = first + tl.arange(0, BC)
        chosen = _load_chosen_rows(of_head, key, key_row, has_key, channel, dim)
        result = tl.sum(grad_score[:, :, None] * chosen, 1)
        address = grad_queries + (head * rows + row)[:, None] * dim + channel[None, :]
        written = (row < rows)[:, None] & (channel < dim)[None, :]
        tl.store(address, result, written)


@triton.jit
def _load_rows(source, row, stride, live, channel, width):
    """Load channels of rows, (BP, BC), with zeros for masked rows."""
    address = source + row[:, None] * stride + channel[None, :]
    inside = live[:, None] & (channel < width)[None, :]
    return tl.load(address, inside, 0.0)


@triton.jit(do_not_specialize=["rows", "keys", "all_keys"])
def sum_segments(
    order,
    cuts,
    start,
    grad_scores,
    queries,
    query_head,
    query_row,
    weights,
    dropout_mask,
    grad,
    grad_head,
    grad_row,
    grad_keys,
    grad_values,
    rows,
    k,
    keys,
    all_keys,
    dim,
    width,
    SEGMENT: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Sum grad_score · query and weight · gradient over a segment's pairs; program (segment, channels).

    ``order``, ``cuts`` and ``start`` come from :func:`.launch.sort_pairs_by_key`; the others are as
    in :func:`attend_rows_backward`. Writes ``grad_keys`` (segments, dim) and ``grad_values``
    (segments, width). Entries of later segments that start a list, or have no key, are not read.
    """
    # 1. A program sums at most SEGMENT pairs of one key, from the start of its list or from a cut.
    segment = tl.program_id(0).to(tl.int64)
    is_first = segment < all_keys
    cut = (segment - all_keys + 1) * SEGMENT
    key = tl.load(cuts + segment - all_keys + 1, segment >= all_keys, 0).to(tl.int64)
    key = tl.where(is_first, segment, key)
    first = tl.where(is_first, tl.load(start + key), cut)
    # Without a key, there is no list.
    last = tl.load(start + key + 1, key < all_keys, 0)
    next_cut = (first // SEGMENT + 1) * SEGMENT
    last = tl.minimum(last, next_cut)
    head = key // keys
    channel = tl.program_id(1) * BC + tl.arange(0, BC)

    # 2. Add BP pairs in parallel, in a fixed order, then reduce.
    of_key = tl.zeros((BP, BC), tl.float32)
    of_value = tl.zeros((BP, BC), tl.float32)
    head_queries = queries + head * query_head
    head_grad = grad + head * grad_head
    for begin in range(first, last, BP):
        position = begin + tl.arange(0, BP)
        live = position < last
        pair = tl.load(order + position, live, 0)
        grad_score = tl.load(grad_scores + pair, live, 0.0)
        weight = tl.load(weights + pair, live, 0.0)
        if dropout_mask is not None:
            survives = tl.load(dropout_mask + pair, live, 0) != 0
            weight = tl.where(survives, weight, 0.0)
        row = tl.where(live, pair // k - head * rows, 0)
        query = _load_rows(head_queries, row, query_row, live, channel, dim)
        of_key += grad_score[:, None] * query
        gradient = _load_rows(head_grad, row, grad_row, live, channel, width)
        of_value += weight[:, None] * gradient
    tl.store(grad_keys + segment * dim + channel, tl.sum(of_key, 0), channel < dim)
    tl.store(grad_values + segment * width + channel, tl.sum(of_value, 0), channel < width)


@triton.jit(do_not_specialize=["all_keys"])
def add_segments(
    cuts,
    start,
    sums,
    all_keys,
    width,
    SEGMENT: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Add a list's later segments to its first one; program (later segment, channels).

    Only the program of the first cut in a list does any work. ``sums`` (segments, width) are
    gradients of keys or values from :func:`sum_segments`; the other arguments are the same as there.
    """
    number = tl.program_id(0).to(tl.int64)
    cut = (number + 1) * SEGMENT
    key = tl.load(cuts + number + 1).to(tl.int64)
    first = tl.load(start + key)
    last = tl.load(start + key + 1, key < all_keys, 0)
    if (key < all_keys) & (first < cut) & (first >= cut - SEGMENT):
        channel = tl.program_id(1) * BC + tl.arange(0, BC)
        later = (last - 1 - cut) // SEGMENT + 1
        total = tl.zeros((BP, BC), tl.float32)
        for begin in range(0, later, BP):
            offset = begin + tl.arange(0, BP)
            segment = all_keys + number + offset
            total += _load_rows(sums, segment, width, offset < later, channel, width)
        address = sums + key * width + channel
        before = tl.load(address, channel < width, 0.0)
        tl.store(address, before + tl.sum(total, 0), channel < width)
