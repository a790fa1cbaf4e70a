"""Counting sort of pairs by key, with the same order in every run.

A pair is a place in (H, N, k). Atomics count pairs and give them turns: counts do not depend on who comes
first, but turns do. So a list of L pairs is dealt into 1 + L / 16 buckets, by query; then each pair takes
the place that the number of smaller ones in its bucket says. No query chose a key twice, so a bucket has at
most min(L, 32 N / L) pairs, and a key that all queries chose costs no more than others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK, _SHARED = 512, 16  # pairs of a program; pairs of a list for each of its buckets


class Transposed(NamedTuple):
    """Pairs sorted by key; P = H · N · k pairs and H · M keys."""

    order: Tensor  #: (P,) pairs by key, those of a key rising; what follows them is not set
    cuts: Tensor  #: (⌈P / segment⌉,) key at each multiple of ``segment`` in ``order``; H · M: none
    start: Tensor  #: (H · M + 1,) where the list of each key begins, and the last one ends


def transpose(indices: Tensor, keys: int, segment: int) -> Transposed:
    """Order pairs by their keys: contiguous indices (H, N, k), −1: none, of ``keys`` M of a head."""
    # Sizes follow from shapes alone, so that nothing waits for the GPU: at most 1 + L/16 buckets a list.
    heads, total = indices.shape[0], indices.numel()
    all_keys, pairs = heads * keys, total // heads
    buckets = all_keys + total // _SHARED
    kind = torch.int32 if max(buckets, total) < 2**31 - 2 else torch.int64
    # Counts stand one place on, so that their sums are where lists and buckets start.
    counts = indices.new_zeros(all_keys + buckets + 2, dtype=kind)
    of_lists, of_buckets = counts[: all_keys + 1], counts[all_keys + 1 :]
    each = (triton.cdiv(pairs, _BLOCK), heads)
    shape = pairs, keys, max(0, pairs - 1).bit_length()
    sizes = {"SHARED": _SHARED, "BLOCK": _BLOCK, "num_warps": 4}
    # 1. Pairs of each key, and by their sums where its list begins.
    count_lists[each](indices, of_lists, pairs, keys, BLOCK=_BLOCK, num_warps=4)
    start = of_lists.cumsum(0, dtype=kind)
    # 2. The same for buckets. Turns within a bucket come from atomics, so their order differs from run to
    #    run.
    dealt, order = indices.new_empty(2, total, dtype=kind)
    count_buckets[each](indices, start, of_buckets, order, *shape, **sizes)  # whose turns ``order`` keeps
    bucket_start = of_buckets.cumsum(0, dtype=kind)
    fill_buckets[each](indices, start, bucket_start, order, dealt, *shape, **sizes)
    # 3. Each pair counts the smaller ones in its bucket, of about 16: that place is the same in every run.
    cuts = indices.new_empty(triton.cdiv(total, segment), dtype=kind)
    order_buckets[(triton.cdiv(total, _BLOCK),)](
        indices, start, bucket_start, dealt, order, cuts, total, all_keys, *shape, SEGMENT=segment, **sizes
    )
    return Transposed(order, cuts, start)


@triton.jit  # type: ignore[untyped-decorator]
def _keys_of(
    indices: tl.tensor, pairs: tl.tensor, keys: tl.tensor, BLOCK: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """Pairs of this program counted from the first of its head and of all, their keys, and who has one."""
    head = tl.program_id(1).to(tl.int64)
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(indices + head * pairs + pair, pair < pairs, -1).to(tl.int64)
    return pair, head * pairs + pair, head * keys + key, key >= 0


@triton.jit  # type: ignore[untyped-decorator]
def _bucket(
    pair: tl.tensor, key: tl.tensor, there: tl.tensor, start: tl.tensor, bits: tl.tensor, SHARED: tl.constexpr
) -> tl.tensor:
    """The bucket of a pair, counted from its head's first, of which there are at most 2^``bits``.

    A list's buckets end before those of the next begin: of a sum of quotients each is rounded down.
    """
    first, last = tl.load(start + key, there, 0), tl.load(start + key + 1, there, 0)
    many = 1 + (last - first) // SHARED
    return key + first // SHARED + (pair.to(tl.int64) * many >> bits)


@triton.jit(do_not_specialize=["pairs", "keys"])  # type: ignore[untyped-decorator]
def count_lists(
    indices: tl.tensor, counts: tl.tensor, pairs: tl.tensor, keys: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """Count each key's pairs into ``counts`` (H · M + 1), one place on; program (block of pairs, head)."""
    _, _, key, there = _keys_of(indices, pairs, keys, BLOCK)
    tl.atomic_add(counts + key + 1, 1, there, sem="relaxed")


@triton.jit(do_not_specialize=["pairs", "keys", "bits"])  # type: ignore[untyped-decorator]
def count_buckets(
    indices: tl.tensor, start: tl.tensor, counts: tl.tensor, turn: tl.tensor, pairs: tl.tensor,
    keys: tl.tensor, bits: tl.tensor, SHARED: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Count each bucket's pairs into ``counts``, one place on, and note turns (P,); program as before."""
    pair, of_all, key, there = _keys_of(indices, pairs, keys, BLOCK)
    own = counts + _bucket(pair, key, there, start, bits, SHARED) + 1
    tl.store(turn + of_all, tl.atomic_add(own, 1, there, sem="relaxed"), there)


@triton.jit(do_not_specialize=["pairs", "keys", "bits"])  # type: ignore[untyped-decorator]
def fill_buckets(
    indices: tl.tensor, start: tl.tensor, bucket_start: tl.tensor, turn: tl.tensor, dealt: tl.tensor,
    pairs: tl.tensor, keys: tl.tensor, bits: tl.tensor, SHARED: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Deal pairs into buckets, ``dealt`` (P,), by their turns; program as before."""
    pair, of_all, key, there = _keys_of(indices, pairs, keys, BLOCK)
    first = tl.load(bucket_start + _bucket(pair, key, there, start, bits, SHARED), there, 0)
    tl.store(dealt + first + tl.load(turn + of_all, there, 0), of_all, there)


@triton.jit(do_not_specialize=["total", "all_keys", "pairs", "keys", "bits"])  # type: ignore[untyped-decorator]
def order_buckets(
    indices: tl.tensor, start: tl.tensor, bucket_start: tl.tensor, dealt: tl.tensor, order: tl.tensor,
    cuts: tl.tensor, total: tl.tensor, all_keys: tl.tensor, pairs: tl.tensor, keys: tl.tensor,
    bits: tl.tensor, SEGMENT: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Order each bucket into ``order`` (P,) and write the keys at ``cuts``; program (block of places)."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = place < tl.load(start + all_keys)
    pair = tl.load(dealt + place, there, 0)
    head = pair // pairs
    key = head.to(tl.int64) * keys + tl.load(indices + pair, there, 0)
    bucket = _bucket(pair - head * pairs, key, there, start, bits, SHARED)
    first = tl.load(bucket_start + bucket, there, 0)
    last = tl.load(bucket_start + bucket + 1, there, 0)
    at = first
    for other in range(tl.max(last - first)):
        smaller = tl.load(dealt + first + other, there & (first + other < last), pair) < pair
        at += smaller.to(at.dtype)
    tl.store(order + at, pair, there)
    tl.store(cuts + at // SEGMENT, key, there & (at % SEGMENT == 0))
    none = ~there & (place < total) & (place % SEGMENT == 0)
    tl.store(cuts + place // SEGMENT, tl.zeros_like(place) + all_keys, none)
