"""Number formats that the Triton kernels share: sort keys, TF32 rounding and powers of two."""

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
