"""What a program keeps of its queries: the best so far, sorted, in scratch; merging, and writing out."""

from __future__ import annotations

import triton
import triton.language as tl

from kmip_data.models.search.gpu.arithmetic import (
    MISSING,
    key_row,
    key_score,
    largest_falling,
    rank_key,
    sort_bitonic,
)


@triton.jit  # type: ignore[untyped-decorator]
def clear(best: tl.tensor, BM: tl.constexpr, K2: tl.constexpr, RG: tl.constexpr) -> None:
    """Begin with nothing."""
    for first in range(0, BM, RG):
        slots = (first + tl.arange(0, RG))[:, None] * K2 + tl.arange(0, K2)[None, :]
        tl.store(best + slots, tl.full([RG, K2], MISSING, tl.int64))
    tl.debug_barrier()


@triton.jit  # type: ignore[untyped-decorator]
def merge(
    queries: tl.tensor,
    keys: tl.tensor,
    query_rows: tl.tensor,
    best: tl.tensor,
    noted: tl.tensor,
    noted_counts: tl.tensor,
    counts: tl.tensor,
    dim: tl.tensor,
    BM: tl.constexpr,
    LOG_K2: tl.constexpr,
    LOG_C: tl.constexpr,
    LOG_RG: tl.constexpr,
) -> None:
    """Score the noted keys of all queries by the rule and merge them into the sorted best."""
    K2: tl.constexpr = 2**LOG_K2
    C: tl.constexpr = 2**LOG_C
    RG: tl.constexpr = 2**LOG_RG
    tl.store(noted_counts + tl.arange(0, BM), counts)
    tl.debug_barrier()  # other threads read what these wrote
    note = tl.arange(0, C)
    slot = tl.arange(0, K2)
    for first in range(0, BM, RG):
        row = first + tl.arange(0, RG)
        held = note[None, :] < tl.load(noted_counts + row)[:, None]
        key = tl.load(noted + row[:, None] * C + note[None, :], held, 0).to(tl.int64)
        query = tl.maximum(tl.load(query_rows + row), 0).to(tl.int64)
        total = tl.zeros([RG, C], tl.float64)
        for c in range(dim):
            a = tl.load(queries + query * dim + c).to(tl.float64)
            b = tl.load(keys + key * dim + c, held, 0.0).to(tl.float64)
            total += a[:, None] * b
        ranked = tl.where(held, rank_key(total.to(tl.float32), key), MISSING)
        ranked = largest_falling(ranked, LOG_RG, LOG_C, LOG_K2)
        # The old best, read backwards, and the new ones form a bitonic sequence: one merge sorts it.
        places = best + row[:, None] * K2
        old = tl.load(places + (K2 - 1 - slot)[None, :])
        merged = sort_bitonic(tl.where(ranked > old, ranked, old), LOG_RG, LOG_K2)
        tl.debug_barrier()
        tl.store(places + slot[None, :], merged)
    tl.debug_barrier()


@triton.jit  # type: ignore[untyped-decorator]
def raise_cut(
    best: tl.tensor,
    cut: tl.tensor,
    factor: tl.tensor,
    offset: tl.tensor,
    k: tl.tensor,
    BM: tl.constexpr,
    K2: tl.constexpr,
) -> tl.tensor:
    """Filter value below which no key can reach the k-th best so far, not even by a tie after rounding."""
    kth = tl.load(best + tl.arange(0, BM) * K2 + k - 1)
    score = key_score(kth).to(tl.float64)
    # The float32 below the k-th best is nearer than 2⁻²³ of it (2⁻¹⁴⁹ if subnormal).
    below = (score - tl.abs(score) * 2.0**-23 - 2.0**-149) * factor - offset
    below = below - tl.abs(below) * 2.0**-22 - 2.0**-40
    raised = tl.maximum(cut, below.to(tl.float32))
    return tl.where(kth > MISSING, raised, cut)


@triton.jit  # type: ignore[untyped-decorator]
def write_best(
    best: tl.tensor,
    query_rows: tl.tensor,
    scores: tl.tensor,
    indices: tl.tensor,
    k: tl.tensor,
    BM: tl.constexpr,
    K2: tl.constexpr,
    RG: tl.constexpr,
) -> None:
    """Write scores and indices of the k best of every query; −inf and −1 where there are fewer."""
    slot = tl.arange(0, K2)
    for first in range(0, BM, RG):
        row = first + tl.arange(0, RG)
        key = tl.load(best + row[:, None] * K2 + slot[None, :])
        query = tl.load(query_rows + row)
        place = query.to(tl.int64)[:, None] * k + slot[None, :]
        wanted = (query >= 0)[:, None] & (slot < k)[None, :]
        there = key > MISSING
        tl.store(scores + place, tl.where(there, key_score(key), float("-inf")), wanted)
        tl.store(indices + place, tl.where(there, key_row(key), -1), wanted)


@triton.jit  # type: ignore[untyped-decorator]
def write_attention(
    best: tl.tensor,
    query_rows: tl.tensor,
    values: tl.tensor,
    output: tl.tensor,
    k: tl.tensor,
    width: tl.tensor,
    scale: tl.tensor,
    BM: tl.constexpr,
    K2: tl.constexpr,
    VCHUNK: tl.constexpr,
) -> None:
    """Σ softmax(scale · score) · value over the best, slot after slot; zero where there is no key."""
    row = tl.arange(0, BM)
    query = tl.load(query_rows + row)
    highest = key_score(tl.load(best + row * K2))
    for start in range(0, width, VCHUNK):
        column = start + tl.arange(0, VCHUNK)
        total = tl.zeros([BM, VCHUNK], tl.float32)
        weights = tl.zeros([BM], tl.float32)
        for slot in range(k):
            key = tl.load(best + row * K2 + slot)
            there = key > MISSING
            weight = tl.where(there, tl.exp((key_score(key) - highest) * scale), 0.0)
            inside = there[:, None] & (column < width)[None, :]
            source = key_row(key)
            value = tl.load(values + source[:, None] * width + column[None, :], inside, 0.0)
            total += weight[:, None] * value.to(tl.float32)
            weights += weight
        result = total / tl.where(weights > 0, weights, 1.0)[:, None]
        place = output + query.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(place, result.to(output.dtype.element_ty), (query >= 0)[:, None] & (column < width)[None, :])
