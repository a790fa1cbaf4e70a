"""Attention kernels: forward pass, gradients of scores and queries, and of keys and values.

A program by query has BQ queries of one head with all of their keys, BK ≥ k places; rows of values and keys
pass through it BC channels at a time, so nothing of size (N, k, d) is ever stored. A pair is a place in
(H, N, k). Rows are those of (H, ·, d) tensors with any stride between heads and between rows, and 1 between
channels.

Gradients of keys and values are sums over sorted pairs, in one order and without atomics (ADR 0270). Pairs
are in the order of their keys (:func:`.launch.transpose`): those of one key are a list, by query. A list is
cut where a multiple of SEGMENT of the ordered places falls into it, so a key that thousands of queries chose
is summed by many programs, and where the cuts are depends on the indices alone. Segment s is the first of key
s (keys of all heads in one row); those after the keys' begin at the multiples of SEGMENT, and
:func:`add_segments` adds them to the first of their list. No size depends on values, so nothing waits for the
GPU.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _pairs(indices, row, rows, k, BK: tl.constexpr):
    """Pairs of these rows (BQ, BK), whether they are in the tensor, their keys and whether there is one."""
    slot = tl.arange(0, BK)
    pair = (tl.program_id(1).to(tl.int64) * rows + row)[:, None] * k + slot[None, :]
    inside = (row < rows)[:, None] & (slot < k)[None, :]
    key = tl.load(indices + pair, inside, -1)
    return pair, inside, key.to(tl.int64), key >= 0


@triton.jit
def _gather(of_head, key, stride, there, channel, width):
    """Some channels of the chosen rows: (BQ, BK, BC); zero where there is no key."""
    place = of_head + key[:, :, None] * stride + channel[None, None, :]
    return tl.load(place, there[:, :, None] & (channel < width)[None, None, :], 0.0)


@triton.jit(do_not_specialize=["rows"])
def attend_rows(
    scores, indices, keep, values, value_head, value_row, weights, out, rows, k, width, scale,
    BQ: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Softmax of the scores and the weighted sum of the values; program (tile of queries, head).

    ``scores``, ``indices`` (int32 or int64; −1: no key) and ``keep`` (bytes, 0 where dropped, or None) are
    (H, rows, k), ``values`` (H, M, width). Writes ``weights`` (H, rows, k), of the softmax itself, and
    ``out`` (H, rows, width), zero for a row without keys. Floats are float32.
    """
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BQ + tl.arange(0, BQ)
    pair, inside, key, there = _pairs(indices, row, rows, k, BK)
    score = tl.where(there, tl.load(scores + pair, inside, 0.0), float("-inf"))
    largest = tl.max(score, 1)
    score = (score - tl.where(largest == float("-inf"), 0.0, largest)[:, None]) * scale
    weight = tl.where(there, tl.exp(score), 0.0)
    total = tl.sum(weight, 1)
    # Rounded as on the CPU: the weight of an only key is 1, not nearly.
    weight = tl.div_rn(weight, tl.broadcast_to(tl.where(total > 0, total, 1.0)[:, None], [BQ, BK]))
    tl.store(weights + pair, weight, inside)
    if keep is not None:
        weight = tl.where(tl.load(keep + pair, inside, 0) != 0, weight, 0.0)
    for first in range(0, width, BC):
        channel = first + tl.arange(0, BC)
        value = _gather(values + head * value_head, key, value_row, there, channel, width)
        place = out + (head * rows + row)[:, None] * width + channel[None, :]
        tl.store(
            place,
            tl.sum(weight[:, :, None] * value, 1),
            (row < rows)[:, None] & (channel < width)[None, :],
        )


@triton.jit(do_not_specialize=["rows"])
def slope_rows(
    grad, grad_head, grad_row, keys, key_head, key_row, values, value_head, value_row, indices, weights, keep,
    slopes, grad_queries, rows, k, dim, width, scale, BQ: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Derivatives of the scores, and of the queries; program (tile of queries, head).

    ``grad`` (H, rows, width) is that of the output, ``keys`` are (H, M, dim), the others as
    :func:`attend_rows` takes and gives them. Writes ``slopes`` (H, rows, k), the gradient of query · key of
    each pair, 0 where there is no key, and ``grad_queries`` (H, rows, dim).
    """
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BQ + tl.arange(0, BQ)
    pair, inside, key, there = _pairs(indices, row, rows, k, BK)
    of_weight = tl.zeros((BQ, BK), tl.float32)
    for first in range(0, width, BC):
        channel = first + tl.arange(0, BC)
        value = _gather(values + head * value_head, key, value_row, there, channel, width)
        place = grad + head * grad_head + row[:, None] * grad_row + channel[None, :]
        gradient = tl.load(place, (row < rows)[:, None] & (channel < width)[None, :], 0.0)
        of_weight += tl.sum(value * gradient[:, None, :], 2)
    if keep is not None:
        of_weight = tl.where(tl.load(keep + pair, inside, 0) != 0, of_weight, 0.0)
    weight = tl.load(weights + pair, inside, 0.0)
    slope = weight * (of_weight - tl.sum(of_weight * weight, 1)[:, None]) * scale
    tl.store(slopes + pair, slope, inside)
    for first in range(0, dim, BC):
        channel = first + tl.arange(0, BC)
        chosen = _gather(keys + head * key_head, key, key_row, there, channel, dim)
        place = grad_queries + (head * rows + row)[:, None] * dim + channel[None, :]
        tl.store(
            place,
            tl.sum(slope[:, :, None] * chosen, 1),
            (row < rows)[:, None] & (channel < dim)[None, :],
        )


@triton.jit
def _rows(source, row, stride, live, channel, width):
    """Some channels of some rows: (BP, BC); zero where there is none."""
    place = source + row[:, None] * stride + channel[None, :]
    return tl.load(place, live[:, None] & (channel < width)[None, :], 0.0)


@triton.jit(do_not_specialize=["rows", "keys", "all_keys"])
def sum_segments(
    order, cuts, start, slopes, queries, query_head, query_row, weights, keep, grad, grad_head, grad_row,
    grad_keys, grad_values, rows, k, keys, all_keys, dim, width, SEGMENT: tl.constexpr, BP: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Σ slope · query and Σ weight · gradient over the pairs of a segment; program (segment, channels).

    ``order``, ``cuts`` and ``start`` are those of :func:`.launch.transpose`, the others as :func:`slope_rows`
    takes and gives them. Writes ``grad_keys`` (segments, dim) and ``grad_values`` (segments, width); where a
    segment after the keys' begins a list, or has no key, they are not read.
    """
    # 1. A program sums at most SEGMENT pairs of one key: the first of its list, or those from a cut on.
    segment = tl.program_id(0).to(tl.int64)
    own = segment < all_keys
    cut = (segment - all_keys + 1) * SEGMENT
    key = tl.load(cuts + segment - all_keys + 1, segment >= all_keys, 0).to(tl.int64)
    key = tl.where(own, segment, key)
    first = tl.where(own, tl.load(start + key), cut)
    # No key: nothing begins here.
    last = tl.load(start + key + 1, key < all_keys, 0)
    last = tl.minimum(last, (first // SEGMENT + 1) * SEGMENT)
    head = key // keys
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    # 2. Add BP pairs side by side, always in the same order, then across.
    of_key = tl.zeros((BP, BC), tl.float32)
    of_value = tl.zeros((BP, BC), tl.float32)
    for begin in range(first, last, BP):
        place = begin + tl.arange(0, BP)
        live = place < last
        pair = tl.load(order + place, live, 0)
        slope = tl.load(slopes + pair, live, 0.0)
        weight = tl.load(weights + pair, live, 0.0)
        if keep is not None:
            weight = tl.where(tl.load(keep + pair, live, 0) != 0, weight, 0.0)
        row = tl.where(live, pair // k - head * rows, 0)
        of_key += slope[:, None] * _rows(
            queries + head * query_head, row, query_row, live, channel, dim
        )
        of_value += weight[:, None] * _rows(
            grad + head * grad_head, row, grad_row, live, channel, width
        )
    tl.store(grad_keys + segment * dim + channel, tl.sum(of_key, 0), channel < dim)
    tl.store(grad_values + segment * width + channel, tl.sum(of_value, 0), channel < width)


@triton.jit(do_not_specialize=["all_keys"])
def add_segments(
    cuts, start, sums, all_keys, width, SEGMENT: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):
    """Add a list's later segments to its first; program (segment after the keys', channels).

    The program of the first cut in a list does it, the others nothing. ``sums`` (segments, width) are
    gradients of keys or of values as :func:`sum_segments` leaves them, the other arguments are as there.
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
            each = begin + tl.arange(0, BP)
            total += _rows(sums, all_keys + number + each, width, each < later, channel, width)
        own = sums + key * width + channel
        tl.store(own, tl.load(own, channel < width, 0.0) + tl.sum(total, 0), channel < width)
