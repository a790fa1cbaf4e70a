"""Per-query attention kernels: forward pass, and gradients of scores and queries.

A program has BQ queries of one head with all of their keys, BK ≥ k places; rows of values and keys pass
through it BC channels at a time, so nothing of size (N, k, d) is ever stored. A pair is a place in (H, N, k).
Rows are those of (H, ·, d) tensors with any stride between heads and between rows, and 1 between channels.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def _pairs(
    indices: tl.tensor, row: tl.tensor, rows: tl.tensor, k: tl.tensor, BK: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """Pairs of these rows (BQ, BK), whether they are in the tensor, their keys and whether there is one."""
    slot = tl.arange(0, BK)
    pair = (tl.program_id(1).to(tl.int64) * rows + row)[:, None] * k + slot[None, :]
    inside = (row < rows)[:, None] & (slot < k)[None, :]
    key = tl.load(indices + pair, inside, -1)
    return pair, inside, key.to(tl.int64), key >= 0


@triton.jit  # type: ignore[untyped-decorator]
def _gather(
    of_head: tl.tensor,
    key: tl.tensor,
    stride: tl.tensor,
    there: tl.tensor,
    channel: tl.tensor,
    width: tl.tensor,
) -> tl.tensor:
    """Some channels of the chosen rows: (BQ, BK, BC); zero where there is no key."""
    place = of_head + key[:, :, None] * stride + channel[None, None, :]
    return tl.load(place, there[:, :, None] & (channel < width)[None, None, :], 0.0)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def attend_rows(
    scores: tl.tensor, indices: tl.tensor, keep: tl.tensor, values: tl.tensor, value_head: tl.tensor,
    value_row: tl.tensor, weights: tl.tensor, out: tl.tensor, rows: tl.tensor, k: tl.tensor,
    width: tl.tensor, scale: tl.tensor,
    BQ: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr, DROP: tl.constexpr, WEIGHTS: tl.constexpr,
) -> None:  # fmt: skip
    """Softmax of the scores and the weighted sum of the values; program (tile of queries, head).

    Parameters
    ----------
    scores, indices, keep
        (H, rows, k) float32, int32 or int64 (−1: no key), and bytes, 0 where dropped (read with DROP).
    values
        (H, M, width) float32, strides ``value_head`` and ``value_row``.
    weights
        Out, with WEIGHTS: (H, rows, k) float32, of the softmax itself.
    out
        Out: (H, rows, width) float32; zero for a row without keys.
    """
    head, row = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64) * BQ + tl.arange(0, BQ)
    pair, inside, key, there = _pairs(indices, row, rows, k, BK)
    score = tl.where(there, tl.load(scores + pair, inside, 0.0), float("-inf"))
    largest = tl.max(score, 1)
    score = (score - tl.where(largest == float("-inf"), 0.0, largest)[:, None]) * scale
    weight = tl.where(there, tl.exp(score), 0.0)
    total = tl.sum(weight, 1)
    # Rounded as on the CPU: the weight of an only key is 1, not nearly.
    weight = tl.div_rn(weight, tl.broadcast_to(tl.where(total > 0, total, 1.0)[:, None], [BQ, BK]))
    if WEIGHTS:
        tl.store(weights + pair, weight, inside)
    if DROP:
        weight = tl.where(tl.load(keep + pair, inside, 0) != 0, weight, 0.0)
    for first in range(0, width, BC):
        channel = first + tl.arange(0, BC)
        value = _gather(values + head * value_head, key, value_row, there, channel, width)
        place = out + (head * rows + row)[:, None] * width + channel[None, :]
        tl.store(
            place, tl.sum(weight[:, :, None] * value, 1), (row < rows)[:, None] & (channel < width)[None, :]
        )


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def slope_rows(
    grad: tl.tensor, grad_head: tl.tensor, grad_row: tl.tensor, keys: tl.tensor, key_head: tl.tensor,
    key_row: tl.tensor, values: tl.tensor, value_head: tl.tensor, value_row: tl.tensor, indices: tl.tensor,
    weights: tl.tensor, keep: tl.tensor, slopes: tl.tensor, grad_queries: tl.tensor, rows: tl.tensor,
    k: tl.tensor, dim: tl.tensor, width: tl.tensor, scale: tl.tensor,
    BQ: tl.constexpr, BK: tl.constexpr, BC: tl.constexpr, DROP: tl.constexpr,
) -> None:  # fmt: skip
    """Derivatives of the scores, and of the queries; program (tile of queries, head).

    Parameters
    ----------
    grad
        (H, rows, width) float32, gradient of the output.
    keys, values
        (H, M, dim) and (H, M, width) float32.
    indices, weights, keep
        As :func:`attend_rows` takes and gives them.
    slopes
        Out: (H, rows, k) float32, gradient of query · key of each pair; 0 where there is no key.
    grad_queries
        Out: (H, rows, dim) float32.
    """
    head, row = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64) * BQ + tl.arange(0, BQ)
    pair, inside, key, there = _pairs(indices, row, rows, k, BK)
    of_weight = tl.zeros((BQ, BK), tl.float32)
    for first in range(0, width, BC):
        channel = first + tl.arange(0, BC)
        value = _gather(values + head * value_head, key, value_row, there, channel, width)
        place = grad + head * grad_head + row[:, None] * grad_row + channel[None, :]
        gradient = tl.load(place, (row < rows)[:, None] & (channel < width)[None, :], 0.0)
        of_weight += tl.sum(value * gradient[:, None, :], 2)
    if DROP:
        of_weight = tl.where(tl.load(keep + pair, inside, 0) != 0, of_weight, 0.0)
    weight = tl.load(weights + pair, inside, 0.0)
    slope = weight * (of_weight - tl.sum(of_weight * weight, 1)[:, None]) * scale
    tl.store(slopes + pair, slope, inside)
    for first in range(0, dim, BC):
        channel = first + tl.arange(0, BC)
        chosen = _gather(keys + head * key_head, key, key_row, there, channel, dim)
        place = grad_queries + (head * rows + row)[:, None] * dim + channel[None, :]
        tl.store(
            place, tl.sum(slope[:, :, None] * chosen, 1), (row < rows)[:, None] & (channel < dim)[None, :]
        )
