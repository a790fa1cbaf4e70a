"""Tiles of rows and channels, and the random numbers of dropout, for message passing in Triton.

A tile has 16, 32 or 64 channels, the most that divide d rounded up to a multiple of 16: a row of d = 56 or 64
is one tile wide, one of d = 76 five, where a power of two would take 128 channels.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": True}  #: of every kernel


def channels_of_a_tile(d: int) -> int:
    """Number of channels."""
    padded = -(-d // 16) * 16
    return min(64, padded & -padded)


def programs(rows: int, a_tile: int, d: int) -> tuple[int]:
    """Number of programs: row tiles × channel tiles."""
    return (triton.cdiv(rows, a_tile) * triton.cdiv(d, channels_of_a_tile(d)),)


@triton.jit  # type: ignore[untyped-decorator]
def tile_of(rows: tl.tensor, D: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Rows (BR,) int64 and channels (BC,) of this program, and which of them are there.

    Programs side by side have the same rows: what one leaves of a row in the cache another takes.
    """
    blocks: tl.constexpr = (D + BC - 1) // BC
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64) * BR + tl.arange(0, BR)
    channel = program % blocks * BC + tl.arange(0, BC)
    return row, row < rows, channel, channel < D


@triton.jit  # type: ignore[untyped-decorator]
def kept(seed: tl.tensor, number: tl.tensor, channel: tl.tensor, dropped: tl.tensor) -> tl.tensor:
    """Which elements dropout keeps: the same for the same seed as ``cpu.arithmetic.where_drawn`` keeps.

    ``seed`` points to an int64, ``number`` is the int64 number of each element, in a row of edges that begins
    with channel 0; dropped is what is below ``dropped`` of 2³².
    """
    bits = tl.load(seed)
    # The CPU draws for 16 channels at a time, and takes the high half of the first one's number.
    high = ((number - (channel & 15)) >> 32).to(tl.uint32)
    second = (bits >> 32).to(tl.uint32) + high * 0x9E3779B9
    x = number.to(tl.uint32) ^ bits.to(tl.uint32)
    x = (x ^ (x >> 17)) * 0xED5AD4BB
    x = x ^ second
    x = (x ^ (x >> 11)) * 0xAC4C1B51
    x = (x ^ (x >> 15)) * 0x31848BAB
    x = x ^ (x >> 14)
    return x >= tl.cast(dropped, tl.uint32)
