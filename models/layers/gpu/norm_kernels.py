"""Batch norms in Triton, of edges or of nodes, fused with the operations around them.

Rows are (E, D), row by row, of any floating dtype; sums are float32 within a tile, whose size is fixed, and
float64 over tiles: each sum has one order, and results do not depend on the number of processors. A norm's
``constants`` (3, D) are factors, shifts and means: it makes of z factor · z + shift.

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


@triton.jit
def tile_of(rows, D: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Rows (BR,) int64 and channels (BC,) of this program, and a mask of the existing ones.

    Programs side by side have the same rows: what one leaves of a row in the cache another takes.
    """
    blocks: tl.constexpr = (D + BC - 1) // BC
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64) * BR + tl.arange(0, BR)
    channel = program % blocks * BC + tl.arange(0, BC)
    return row, row < rows, channel, channel < D


@triton.jit
def kept(seed, number, channel, dropped):
    """Mask of elements that dropout keeps: for one seed the same as ``cpu.gate_kernels.where_drawn`` keeps.

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


@triton.jit
def join(
    out, there, count, pivot, total, square, D: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr
):
    """Write number, mean and Σ (z − mean)² of a tile, from Σ (z − pivot) and squares of each of BN lanes."""
    count = count.to(tl.float32)[:, None] + tl.zeros((BN, BC), tl.float32)
    share = total / tl.maximum(count, 1.0)
    edges = tl.sum(count, 0)
    mean = tl.sum(count * (pivot + share), 0) / tl.maximum(edges, 1.0)
    away = pivot + share - mean[None, :]
    squares = tl.maximum(square - total * share, 0.0) + count * away * away
    tl.store(out, edges, mask=there)
    tl.store(out + D, mean, mask=there)
    tl.store(out + 2 * D, tl.sum(squares, 0), mask=there)


@triton.jit
def add_and_count(
    rows, more, out, parts, seed, dropped, kept_scale, count, first, D: tl.constexpr, STEPS: tl.constexpr,
    BE: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """``out`` = z = ``rows`` + dropout(``more``), and z's statistics; where ``more`` is None z is ``rows``.

    ``parts`` (tiles, 3, D) are number, mean and Σ (z − mean)² of BE · STEPS of the ``count`` rows;
    of those among the ``first`` (1,) where that is not None.
    """
    row, _live, channel, there = tile_of(count, D, BE * STEPS, BC)
    begin = tl.min(row, 0)
    counted = count
    if first is not None:
        counted = tl.load(first)
    pivot = tl.zeros((BE, BC), tl.float32)
    total = tl.zeros((BE, BC), tl.float32)
    square = tl.zeros((BE, BC), tl.float32)
    for step in range(STEPS):
        number = begin + step * BE + tl.arange(0, BE)
        mask = (number < count)[:, None] & there[None, :]
        at = number[:, None] * D + channel[None, :]
        z = tl.load(rows + at, mask=mask, other=0.0).to(tl.float32)
        if more is not None:
            added = tl.load(more + at, mask=mask, other=0.0).to(tl.float32)
            if seed is not None:
                added = tl.where(kept(seed, at, channel[None, :], dropped), added * kept_scale, 0.0)
            stored = (z + added).to(out.dtype.element_ty)
            tl.store(out + at, stored, mask=mask)
            z = stored.to(tl.float32)  # what the norm will read
        # About each lane's first row, so that a mean far from zero costs no accuracy.
        pivot = tl.where(step == 0, z, pivot)
        mask &= (number < counted)[:, None]
        away = tl.where(mask, z - pivot, 0.0)
        total += away
        square += away * away
    lane = tl.arange(0, BE)
    numbers = tl.minimum(tl.maximum(counted - begin - lane + BE - 1, 0) // BE, STEPS)
    out_row = parts + (tl.program_id(0) // ((D + BC - 1) // BC)) * 3 * D + channel
    join(out_row, there, numbers, pivot, total, square, D, BE, BC)


@triton.jit
def finish(
    parts, tiles, scale, shift, running_mean, running_variance, batches, constants, deviation,
    D: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, EPS: tl.constexpr, MOMENTUM: tl.constexpr,
    NOTE: tl.constexpr,
):  # fmt: skip
    """``constants`` and 1 / ``deviation`` (D,) float64 of a norm by the statistics of tiles (tiles, 3, D).

    With ``NOTE`` the running statistics take them up, as torch's batch norm does.
    """
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    there = channel < D
    # Sums about the first tile's mean; in float64 any number near would do.
    pivot = tl.load(parts + D + channel, mask=there, other=0.0).to(tl.float64)
    count = tl.zeros((BP, BC), tl.float64)
    total = tl.zeros((BP, BC), tl.float64)
    square = tl.zeros((BP, BC), tl.float64)
    for first in range(0, tiles, BP):
        tile = first + tl.arange(0, BP)
        mask = (tile < tiles)[:, None] & there[None, :]
        at = tile.to(tl.int64)[:, None] * 3 * D + channel[None, :]
        number = tl.load(parts + at, mask=mask, other=0.0).to(tl.float64)
        away = tl.load(parts + at + D, mask=mask, other=0.0).to(tl.float64) - pivot[None, :]
        count += number
        total += number * away
        square += (
            tl.load(parts + at + 2 * D, mask=mask, other=0.0).to(tl.float64) + number * away * away
        )
    rows = tl.maximum(tl.sum(count, 0), 1.0)
    away = tl.sum(total, 0) / rows
    mean = pivot + away
    variance = tl.maximum(tl.sum(square, 0) / rows - away * away, 0.0)
    inverse = 1.0 / tl.sqrt(variance + EPS)
    factor = tl.load(scale + channel, mask=there, other=0.0).to(tl.float64) * inverse
    shifted = tl.load(shift + channel, mask=there, other=0.0).to(tl.float64) - mean * factor
    tl.store(constants + channel, factor.to(tl.float32), mask=there)
    tl.store(constants + D + channel, shifted.to(tl.float32), mask=there)
    tl.store(constants + 2 * D + channel, mean.to(tl.float32), mask=there)
    tl.store(deviation + channel, inverse, mask=there)
    if NOTE:
        unbiased = variance * (rows / tl.maximum(rows - 1.0, 1.0))
        old = tl.load(running_mean + channel, mask=there, other=0.0).to(tl.float64)
        tl.store(running_mean + channel, (old + MOMENTUM * (mean - old)).to(tl.float32), mask=there)
        old = tl.load(running_variance + channel, mask=there, other=0.0).to(tl.float64)
        tl.store(
            running_variance + channel,
            (old + MOMENTUM * (unbiased - old)).to(tl.float32),
            mask=there,
        )
        if tl.program_id(0) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def activated(y, seed, number, channel, dropped, kept_scale, RELU: tl.constexpr):
    """dropout(relu(y)) of the elements ``number``."""
    if RELU:
        y = tl.where(y > 0, y, 0.0)
    if seed is not None:
        y = tl.where(kept(seed, number, channel, dropped), y * kept_scale, 0.0)
    return y


@triton.jit
def form(
    old, pre, norm, at, channel, mask, seed, dropped, kept_scale, D: tl.constexpr, SHARED: tl.constexpr,
    RELU: tl.constexpr,
):  # fmt: skip
    """Elements ``at`` of new features, as :func:`update` describes them."""
    there = channel < D
    factor = tl.load(norm + channel, mask=there, other=0.0)[None, :]
    shift = tl.load(norm + D + channel, mask=there, other=0.0)[None, :]
    y = tl.load(pre + at, mask=mask, other=0.0).to(tl.float32) * factor + shift
    y = activated(y, seed, at, channel[None, :], dropped, kept_scale, RELU)
    if old is not None and SHARED:
        y += tl.load(old + channel, mask=there, other=0.0).to(tl.float32)[None, :]
    elif old is not None:
        y += tl.load(old + at, mask=mask, other=0.0).to(tl.float32)
    return y


@triton.jit
def update(
    old, pre, norm, new, seed, dropped, kept_scale, rows, D: tl.constexpr, BE: tl.constexpr,
    BC: tl.constexpr, SHARED: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """New features: ``old`` + dropout(relu(factor · z + shift)), z (rows, D) being ``pre``.

    ``norm`` (≥ 2, D) begins with factors and shifts. ``old`` has a row for each of z's, or one for all if
    ``SHARED``. What is None, or RELU does not say, is left out. ``new`` may be ``pre`` itself.
    """
    number, live, channel, there = tile_of(rows, D, BE, BC)
    mask = live[:, None] & there[None, :]
    at = number[:, None] * D + channel[None, :]
    y = form(old, pre, norm, at, channel, mask, seed, dropped, kept_scale, D, SHARED, RELU)
    tl.store(new + at, y.to(new.dtype.element_ty), mask=mask)


@triton.jit
def through_norm(
    z, g, norm, seed, dropped, kept_scale, at, channel, D: tl.constexpr, RELU: tl.constexpr
):
    """Z − mean of the elements ``at``, and the gradient of what the norm gives, from g behind it."""
    there = channel < D
    if RELU:
        factor = tl.load(norm + channel, mask=there, other=0.0)[None, :]
        shift = tl.load(norm + D + channel, mask=there, other=0.0)[None, :]
        g = tl.where(z * factor + shift > 0, g, 0.0)
    if seed is not None:
        g = tl.where(kept(seed, at, channel[None, :], dropped), g * kept_scale, 0.0)
    return z - tl.load(norm + 2 * D + channel, mask=there, other=0.0)[None, :], g


@triton.jit
def before_norm(
    z, g, norm, seed, dropped, kept_scale, at, channel, D: tl.constexpr, RELU: tl.constexpr
):
    """The gradient of z, from g behind the norm; ``norm`` (5, D) is of :func:`finish_gradients`."""
    away, g = through_norm(z, g, norm, seed, dropped, kept_scale, at, channel, D, RELU)
    there = channel < D
    factor = tl.load(norm + channel, mask=there, other=0.0)[None, :]
    offset = tl.load(norm + 3 * D + channel, mask=there, other=0.0)[None, :]
    slope = tl.load(norm + 4 * D + channel, mask=there, other=0.0)[None, :]
    return factor * g - offset - slope * away


@triton.jit
def sum_gradients(
    pre, grad, norm, parts, seed, dropped, kept_scale, edges, D: tl.constexpr, STEPS: tl.constexpr,
    BE: tl.constexpr, BC: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Σ g and Σ g · (z − mean) over BE · STEPS rows, g the gradient of what the norm gives: (tiles, 2, D).

    ``grad`` is that of :func:`update`'s ``new``; ``norm`` (≥ 3, D) begins with factors, shifts and means.
    """
    row, _live, channel, there = tile_of(edges, D, BE * STEPS, BC)
    first = tl.min(row, 0)
    total = tl.zeros((BE, BC), tl.float32)
    product = tl.zeros((BE, BC), tl.float32)
    for step in range(STEPS):
        number = first + step * BE + tl.arange(0, BE)
        mask = (number < edges)[:, None] & there[None, :]
        at = number[:, None] * D + channel[None, :]
        z = tl.load(pre + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        away, g = through_norm(z, g, norm, seed, dropped, kept_scale, at, channel, D, RELU)
        total += g
        product += g * away
    out = parts + (tl.program_id(0) // ((D + BC - 1) // BC)) * 2 * D + channel
    tl.store(out, tl.sum(total, 0), mask=there)
    tl.store(out + D, tl.sum(product, 0), mask=there)


@triton.jit
def finish_gradients(
    parts,
    tiles,
    constants,
    deviation,
    out,
    share,
    first,
    D: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Compute :func:`.norms.gradients_of` from the sums of tiles (tiles, 2, D).

    ``out`` (7, D) are ``constants``, offsets and slopes, then the gradients of the norm's weight and bias;
    ``share`` is 1 / the number of rows, or 0 where running statistics were taken; 1 / ``first`` (1,) where
    that is not None.
    """
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    there = channel < D
    total = tl.zeros((BP, BC), tl.float64)
    product = tl.zeros((BP, BC), tl.float64)
    for begin in range(0, tiles, BP):
        tile = begin + tl.arange(0, BP)
        mask = (tile < tiles)[:, None] & there[None, :]
        at = tile.to(tl.int64)[:, None] * 2 * D + channel[None, :]
        total += tl.load(parts + at, mask=mask, other=0.0).to(tl.float64)
        product += tl.load(parts + at + D, mask=mask, other=0.0).to(tl.float64)
    of_shift = tl.sum(total, 0)
    inverse = tl.load(deviation + channel, mask=there, other=0.0)
    of_scale = tl.sum(product, 0) * inverse
    for row in tl.static_range(3):
        constant = tl.load(constants + row * D + channel, mask=there, other=0.0)
        tl.store(out + row * D + channel, constant, mask=there)
    if first is not None:
        share = 1.0 / tl.load(first).to(tl.float64)
    factor = tl.load(constants + channel, mask=there, other=0.0).to(tl.float64) * share
    tl.store(out + 3 * D + channel, (factor * of_shift).to(tl.float32), mask=there)
    tl.store(out + 4 * D + channel, (factor * of_scale * inverse).to(tl.float32), mask=there)
    tl.store(out + 5 * D + channel, of_scale.to(tl.float32), mask=there)
    tl.store(out + 6 * D + channel, of_shift.to(tl.float32), mask=there)


@triton.jit
def spread_gradients(
    pre, grad, norm, of_rows, of_more, after, after_dropped, after_scale, seed, dropped, kept_scale, rows,
    first, D: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Gradients of what :func:`add_and_count` added up, from that of :func:`update`'s ``new``.

    ``norm`` (5, D) is of :func:`finish_gradients`; ``after`` is the seed of the dropout behind the norm.
    ``of_more`` may be None. Rows after the ``first`` (1,) have none, where that is not None.
    """
    number, live, channel, there = tile_of(rows, D, BE, BC)
    mask = live[:, None] & there[None, :]
    at = number[:, None] * D + channel[None, :]
    z = tl.load(pre + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
    g = before_norm(z, g, norm, after, after_dropped, after_scale, at, channel, D, RELU)
    if first is not None:
        g = tl.where((number < tl.load(first))[:, None], g, 0.0)
    tl.store(of_rows + at, g.to(of_rows.dtype.element_ty), mask=mask)
    if of_more is not None:
        if seed is not None:
            g = tl.where(kept(seed, at, channel[None, :], dropped), g * kept_scale, 0.0)
        tl.store(of_more + at, g.to(of_more.dtype.element_ty), mask=mask)
