"""What the Triton kernels compute with: sort keys, TF32 rounding, powers of two, and sorting networks.

The networks are bitonic, over int64 keys in registers. Rows of a (R, 2ⁿ) tensor are sorted side by side in
the view of shape (2, 2, …, 2). A place finds its partner across a bit by subtracting itself from the pair's
sum, which wraps around and is exact.
"""

from __future__ import annotations

import triton
import triton.language as tl

MISSING = tl.constexpr(-0x7FFFFFFFFFFFFFFF)  # below the sort key of every real pair
LOW = tl.constexpr(0xFFFFFFFF)


@triton.jit  # type: ignore[untyped-decorator]
def rank_key(score: tl.tensor, row: tl.tensor) -> tl.tensor:
    """One int64 that orders as (score, lower row first): float32 score above, inverted row below."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)  # + 0.0 makes −0 equal to +0
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits.to(tl.int64) << 32) | (LOW - row.to(tl.int64))


@triton.jit  # type: ignore[untyped-decorator]
def key_score(key: tl.tensor) -> tl.tensor:
    """Float32 score of a sort key."""
    bits = (key >> 32).to(tl.int32)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return bits.to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def key_row(key: tl.tensor) -> tl.tensor:
    """Int64 row of a sort key."""
    return LOW - (key & LOW)


@triton.jit  # type: ignore[untyped-decorator]
def to_tf32(wide: tl.tensor) -> tl.tensor:
    """Float64 → the nearest float32 with a 10-bit mantissa, which tensor cores take as it is.

    Off by at most (2⁻¹¹ + 2⁻²³) of the value, or 2⁻¹²⁶ below the normal range.
    """
    bits = wide.to(tl.float32).to(tl.int32, bitcast=True)
    return ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def unit_power(norm: tl.tensor) -> tl.tensor:
    """The power of two that brings a float64 norm into [1, 2); 1 for norm 0."""
    exponent = (norm.to(tl.int64, bitcast=True) >> 52) & 0x7FF
    exponent = tl.where(norm > 0, exponent, 1023)
    return ((2046 - exponent) << 52).to(tl.float64, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def _bit(DIMS: tl.constexpr, bit: tl.constexpr) -> tl.tensor:
    """That bit of each place's number, shaped to broadcast over the view."""
    return tl.reshape(tl.arange(0, 2), [1] * (DIMS - 1 - bit) + [2] + [1] * bit)


@triton.jit  # type: ignore[untyped-decorator]
def _exchange(x: tl.tensor, falling: tl.tensor, DIMS: tl.constexpr, bit: tl.constexpr) -> tl.tensor:
    """Order the pairs of places that differ in one bit."""
    partner = tl.sum(x, DIMS - 1 - bit, keep_dims=True) - x
    takes_larger = _bit(DIMS, bit) ^ falling
    return tl.where((x < partner) == (takes_larger != 0), partner, x)


@triton.jit  # type: ignore[untyped-decorator]
def _merge_runs(x: tl.tensor, DIMS: tl.constexpr, RUN: tl.constexpr, ALTERNATE: tl.constexpr) -> tl.tensor:
    """Sort bitonic runs of 2^RUN: falling, or every second one rising."""
    falling = 1
    if ALTERNATE:
        falling = 1 - _bit(DIMS, RUN)
    for step in tl.static_range(RUN):
        x = _exchange(x, falling, DIMS, RUN - 1 - step)
    return x


@triton.jit  # type: ignore[untyped-decorator]
def sort_bitonic(x: tl.tensor, LOG_ROWS: tl.constexpr, LOG_SIZE: tl.constexpr) -> tl.tensor:
    """(2^LOG_ROWS, 2^LOG_SIZE) rows that rise and then fall, or the like → falling rows."""
    cube = tl.reshape(x, [2] * (LOG_ROWS + LOG_SIZE))
    return tl.reshape(_merge_runs(cube, LOG_ROWS + LOG_SIZE, LOG_SIZE, False), x.shape)


@triton.jit  # type: ignore[untyped-decorator]
def largest_falling(
    x: tl.tensor, LOG_ROWS: tl.constexpr, LOG_SIZE: tl.constexpr, LOG_K: tl.constexpr
) -> tl.tensor:
    """(2^LOG_ROWS, 2^LOG_SIZE) → the 2^LOG_K largest of each row, falling."""
    cube = tl.reshape(x, [2] * (LOG_ROWS + LOG_SIZE))
    for run in tl.static_range(1, LOG_K + 1):
        cube = _merge_runs(cube, LOG_ROWS + LOG_SIZE, run, run < LOG_SIZE)
    # A falling run beside a rising one: the larger of each two places are the largest half, bitonic.
    for left in tl.static_range(LOG_SIZE - LOG_K):
        cube = tl.max(cube, LOG_ROWS + LOG_SIZE - left - 1 - LOG_K)
        cube = _merge_runs(cube, LOG_ROWS + LOG_SIZE - left - 1, LOG_K, left + 1 < LOG_SIZE - LOG_K)
    return tl.reshape(cube, [2**LOG_ROWS, 2**LOG_K])
