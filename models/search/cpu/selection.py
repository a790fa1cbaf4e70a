"""Compiled selection: the k-th largest of some numbers by counting, and results in the rule's order.

Counting how many numbers reach a trial value takes a comparison for 16 of them and no branch, so halving the
range of trial values beats partitioning (measured: docs/adr/0100). A result is one int64, the score's bits
above its row counted backwards: their order is the rule's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kmip_data.models.search.cpu.lanes import (
    above,
    at_least,
    bits_float,
    count_bits,
    float_bits,
    hold,
    largest_lane,
    load,
    maximum,
    minimum,
    pointer,
    smallest_lane,
    splat,
    store,
)
from kmip_data.runtime.threads import njit_nogil

LAST = 0xFFFFFFFF
_FLIP = 0x7FFFFFFF
_EMPTY = np.int64(-(2**63))
_LONG = 256  # results beyond which sorting beats counting for each
_HALVINGS = 16  # of the range of values, before halving that of bits, which always ends


@njit_nogil(error_model="numpy")
def ordered(value: Any) -> Any:
    """A float32 as an integer of the same order (−0 below +0)."""
    bits = float_bits(value)
    return bits ^ _FLIP if bits < 0 else bits


@njit_nogil(error_model="numpy")
def unordered(rank: Any) -> Any:
    """The float32 of that :func:`ordered` integer."""
    return bits_float(rank ^ _FLIP if rank < 0 else rank)


@njit_nogil(error_model="numpy")
def kth_largest(values: Any, start: int, stop: int, k: int, spare: int) -> Any:
    """Enclose the k-th largest of more than k float32 numbers, none NaN, ``start`` to ``stop`` of a pointer.

    16 more may be overwritten, and up to ``spare`` more than k reach ``low``. Gives ``low``, which at least k
    numbers reach; ``high``, which fewer do; how many reach each. With ``spare = 0`` either exactly k reach
    ``low`` or nothing lies between the two.
    """
    store(values, stop, splat(np.float32(np.nan)))  # reaches nothing
    least = splat(values[start])
    most = least
    for i in range(start, stop, 16):
        lanes = load(values, i)
        least = minimum(lanes, least)
        most = maximum(lanes, most)
    low, high = ordered(smallest_lane(least)), ordered(largest_lane(most)) + 1
    reach_low, reach_high = stop - start, 0
    halvings = 0
    while reach_low > k + spare and high - low > 1:
        middle = (low + high) >> 1
        if halvings < _HALVINGS:
            halvings += 1
            near = ordered(np.float32(0.5) * unordered(low) + np.float32(0.5) * unordered(high))
            if low < near < high:
                middle = near
        reach = 0
        limit = splat(unordered(middle))
        for i in range(start, stop, 16):
            reach += count_bits(at_least(load(values, i), limit))
        if reach >= k:
            low, reach_low = middle, reach
        else:
            high, reach_high = middle, reach
    return unordered(low), unordered(high), reach_low, reach_high


@njit_nogil(error_model="numpy")
def pack(score: Any, row: Any) -> Any:
    """One integer that orders as (score, lower row first)."""
    return (ordered(score) << 32) | (LAST - row)


@njit_nogil(error_model="numpy")
def write_sorted(packed: Any, count: int, k: int, low: int, scores: Any, indices: Any, to: int) -> None:
    """Write the k ≤ ``count`` best of ``packed[:count]`` to places ``to`` … behind two pointers, best first.

    The int64 of ``packed`` are distinct, see :func:`pack`; they are overwritten, and so are 8 after
    ``count``. ``low`` is added to each row.
    """
    if count > _LONG:
        packed[:count].sort()
        for i in range(k):
            best = packed[count - 1 - i]
            scores[to + i], indices[to + i] = unordered(best >> 32), LAST - (best & LAST) + low
        return
    numbers = pointer(packed)
    store(numbers, count, splat(_EMPTY))
    for i in range(count):
        value = numbers[i]
        limit = splat(value)
        place = 0
        for j in range(0, count, 8):  # how many are better: no branch to guess, unlike sorting
            place += count_bits(above(load(numbers, j), limit))
        if place < k:
            scores[to + place], indices[to + place] = unordered(value >> 32), LAST - (value & LAST) + low
    hold(packed)
