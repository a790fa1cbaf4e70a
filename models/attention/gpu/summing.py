"""Sums over the pairs that chose a key, in one order and without atomics: gradients of keys and values.

The pairs are sorted by key, stably: those of one key are a list, by query. A list is cut where a multiple of
SEGMENT of the sorted places falls into it, so a key that thousands of queries chose is summed by many
programs, and where the cuts are depends on the indices alone. Segment s is the first of key s (keys of all
heads in one row); those after the keys' begin at the multiples of SEGMENT, and :func:`add_segments` adds them
to the first of their list. No size depends on values, so nothing waits for the GPU.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Transposed(NamedTuple):
    """Which pairs chose a key; of P = H · N · k pairs and H · M keys."""

    order: Tensor  #: (P,) int64 pairs, by key; those without one last
    key: Tensor  #: (P,) the key of each, row of all heads; H · M: none
    start: (
        Tensor  #: (H · M + 2,) int64, where the list of each key begins, that of the pairs without one, and P
    )


def transpose(indices: Tensor, keys: int) -> Transposed:
    """Sort pairs by their keys: indices (H, N, k), −1: none, of ``keys`` M of a head."""
    heads = indices.shape[0]
    none = heads * keys
    kind = torch.int32 if none < 2**31 - 1 else torch.int64  # half the bytes to sort
    offset = torch.arange(0, heads, dtype=kind, device=indices.device)[:, None, None] * keys
    key, order = (indices.to(kind) + offset).masked_fill_(indices < 0, none).flatten().sort(stable=True)
    return Transposed(
        order, key, torch.searchsorted(key, torch.arange(none + 2, dtype=kind, device=key.device))
    )


@triton.jit(do_not_specialize=["rows", "keys", "all_keys"])  # type: ignore[untyped-decorator]
def sum_segments(
    order: tl.tensor,
    sorted_key: tl.tensor,
    start: tl.tensor,
    coefficients: tl.tensor,
    keep: tl.tensor,
    source: tl.tensor,
    source_head: tl.tensor,
    source_row: tl.tensor,
    sums: tl.tensor,
    rows: tl.tensor,
    k: tl.tensor,
    keys: tl.tensor,
    all_keys: tl.tensor,
    width: tl.tensor,
    SEGMENT: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
    DROP: tl.constexpr,
) -> None:
    """Σ coefficient · row of the query, over the pairs of a segment; program (segment, block of channels).

    Parameters
    ----------
    order, sorted_key, start
        As :class:`Transposed` has them.
    coefficients, keep
        (H, rows, k) float32, and bytes, 0 where a coefficient counts as 0 (read with DROP).
    source
        (H, rows, width) float32, strides ``source_head`` and ``source_row``.
    sums
        Out: (segments, width) float32. Where a segment after the keys' begins a list, or has no key, what
        stands there is not read.
    """
    segment = tl.program_id(0).to(tl.int64)
    own, cut = segment < all_keys, (segment - all_keys + 1) * SEGMENT
    key = tl.load(sorted_key + cut, segment >= all_keys, 0).to(tl.int64)
    key = tl.where(own, segment, key)
    first = tl.where(own, tl.load(start + key), cut)
    last = tl.minimum(tl.load(start + key + 1), (first // SEGMENT + 1) * SEGMENT)
    last = tl.where(key < all_keys, last, first)
    head = key // keys
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    total = tl.zeros((BP, BC), tl.float32)
    for begin in range(first, last, BP):
        place = begin + tl.arange(0, BP)
        live = place < last
        pair = tl.load(order + place, live, 0)
        coefficient = tl.load(coefficients + pair, live, 0.0)
        if DROP:
            coefficient = tl.where(tl.load(keep + pair, live, 0) != 0, coefficient, 0.0)
        query = tl.where(live, pair // k - head * rows, 0)
        row = source + head * source_head + query[:, None] * source_row + channel[None, :]
        total += coefficient[:, None] * tl.load(row, live[:, None] & (channel < width)[None, :], 0.0)
    tl.store(sums + segment * width + channel, tl.sum(total, 0), channel < width)


@triton.jit(do_not_specialize=["all_keys"])  # type: ignore[untyped-decorator]
def add_segments(
    sorted_key: tl.tensor,
    start: tl.tensor,
    sums: tl.tensor,
    all_keys: tl.tensor,
    width: tl.tensor,
    SEGMENT: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
) -> None:
    """Add a list's later segments to its first; program (segment after the keys', block of channels).

    The program of the first cut in a list does it, the others nothing. Arguments as of :func:`sum_segments`.
    """
    number = tl.program_id(0).to(tl.int64)
    cut = (number + 1) * SEGMENT
    key = tl.load(sorted_key + cut).to(tl.int64)
    first, last = tl.load(start + key), tl.load(start + key + 1)
    if (key < all_keys) & (first < cut) & (first >= cut - SEGMENT):
        channel = tl.program_id(1) * BC + tl.arange(0, BC)
        later = (last - 1 - cut) // SEGMENT + 1
        total = tl.zeros((BP, BC), tl.float32)
        for begin in range(0, later, BP):
            each = begin + tl.arange(0, BP)
            row = sums + (all_keys + number + each)[:, None] * width + channel[None, :]
            total += tl.load(row, (each < later)[:, None] & (channel < width)[None, :], 0.0)
        own = sums + key * width + channel
        tl.store(own, tl.load(own, channel < width, 0.0) + tl.sum(total, 0), channel < width)
