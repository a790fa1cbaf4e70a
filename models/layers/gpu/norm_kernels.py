"""Batch norms in Triton, of edges or of nodes, fused with the operations around them.

Rows are (E, D), row by row, of any floating dtype; sums are float32 within a tile, whose size is
fixed, and float64 over tiles: each sum has one order, and results do not depend on the number of
processors. A norm's ``constants`` (3, D) are factors, shifts and means: the norm of z is factor · z
+ shift.

A tile has 16, 32 or 64 channels, the most that divide d rounded up to a multiple of 16: a row of d
= 56 or 64 is one tile wide, one of d = 76 five, where a power of two would take 128 channels.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

#: Options of every kernel.
OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": True}


def channels_of_a_tile(d: int) -> int:
    """Return the number of channels of a tile of rows of ``d`` channels."""
    padded = -(-d // 16) * 16
    return min(64, padded & -padded)


def programs(rows: int, a_tile: int, d: int) -> tuple[int]:
    """Number of programs: row tiles × channel tiles."""
    row_tiles = triton.cdiv(rows, a_tile)
    channel_tiles = triton.cdiv(d, channels_of_a_tile(d))
    return (row_tiles * channel_tiles,)


@triton.jit
def loaded(pointers, mask):
    """Elements in float32, 0 where masked."""
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def elements(row, channel, D: tl.constexpr):
    """Offsets of rows × channels."""
    return row[:, None] * D + channel[None, :]


@triton.jit
def tile_of(rows, D: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Rows (BR,) int64 and channels (BC,) of this program, and a mask of the existing ones.

    Neighbouring programs have the same rows: one reads from the cache what another left of a row.
    """
    blocks: tl.constexpr = (D + BC - 1) // BC
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64) * BR + tl.arange(0, BR)
    channel = program % blocks * BC + tl.arange(0, BC)
    return row, row < rows, channel, channel < D


@triton.jit
def constant(norm, channel, exists, ROW: tl.constexpr, D: tl.constexpr):
    """Row ``ROW`` of a norm's constants (·, D), (1, BC)."""
    return loaded(norm + ROW * D + channel, exists)[None, :]


@triton.jit
def kept(seed, number, channel, dropped):
    """Mask of the elements that dropout keeps: for one seed that of ``cpu.gate_kernels.where_drawn``.

    ``seed`` points to an int64, ``number`` is the int64 number of each element, in a row of edges
    that begins with channel 0; an element is dropped where its hash is below ``dropped`` of 2³².
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
def dropped_out(y, seed, number, channel, dropped, kept_scale):
    """dropout(y) of the elements ``number``; without a seed y."""
    if seed is not None:
        mask = kept(seed, number, channel[None, :], dropped)
        y = tl.where(mask, y * kept_scale, 0.0)
    return y


@triton.jit
def join(
    out,
    exists,
    count,
    pivot,
    total,
    square,
    D: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
):
    """Write number, mean and Σ (z − mean)² of a tile, from Σ (z − pivot) and squares of each of BN lanes."""
    count = count.to(tl.float32)[:, None] + tl.zeros((BN, BC), tl.float32)
    share = total / tl.maximum(count, 1.0)
    edges = tl.sum(count, 0)
    mean = tl.sum(count * (pivot + share), 0) / tl.maximum(edges, 1.0)
    # Squares about each lane's mean, and those of its distance to the tile's.
    away = pivot + share - mean[None, :]
    within = tl.maximum(square - total * share, 0.0)
    squares = within + count * away * away
    tl.store(out, edges, mask=exists)
    tl.store(out + D, mean, mask=exists)
    tl.store(out + 2 * D, tl.sum(squares, 0), mask=exists)


@triton.jit
def add_and_count(
    rows,
    more,
    out,
    parts,
    seed,
    dropped,
    kept_scale,
    count,
    D: tl.constexpr,
    STEPS: tl.constexpr,
    BE: tl.constexpr,
    BC: tl.constexpr,
):
    """``out`` = z = ``rows`` + dropout(``more``), and z's statistics.

    Where ``more`` is None z is ``rows``.

    ``parts`` (tiles, 3, D) are number, mean and Σ (z − mean)² of BE · STEPS of the ``count`` rows.
    """
    row, _live, channel, exists = tile_of(count, D, BE * STEPS, BC)
    begin = tl.min(row, 0)
    pivot = tl.zeros((BE, BC), tl.float32)
    total = tl.zeros((BE, BC), tl.float32)
    square = tl.zeros((BE, BC), tl.float32)
    for step in range(STEPS):
        # 1. z, stored where it is a sum.
        number = begin + step * BE + tl.arange(0, BE)
        mask = (number < count)[:, None] & exists[None, :]
        at = elements(number, channel, D)
        z = loaded(rows + at, mask)
        if more is not None:
            added = loaded(more + at, mask)
            added = dropped_out(added, seed, at, channel, dropped, kept_scale)
            stored = (z + added).to(out.dtype.element_ty)
            tl.store(out + at, stored, mask=mask)
            z = stored.to(tl.float32)  # as the norm will read it
        # 2. Sums about each lane's first row, so that a mean far from zero costs no accuracy.
        pivot = tl.where(step == 0, z, pivot)
        away = tl.where(mask, z - pivot, 0.0)
        total += away
        square += away * away
    # 3. The number of rows of each lane, and the statistics of the tile.
    lane = tl.arange(0, BE)
    numbers = tl.minimum(tl.maximum(count - begin - lane + BE - 1, 0) // BE, STEPS)
    blocks: tl.constexpr = (D + BC - 1) // BC
    out_row = parts + (tl.program_id(0) // blocks) * 3 * D + channel
    join(out_row, exists, numbers, pivot, total, square, D, BE, BC)


@triton.jit
def finish(
    parts,
    tiles,
    scale,
    shift,
    running_mean,
    running_variance,
    batches,
    constants,
    deviation,
    D: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
    EPS: tl.constexpr,
    MOMENTUM: tl.constexpr,
    NOTE: tl.constexpr,
):
    """``constants`` and 1 / ``deviation`` (D,) float64 of a norm by the statistics of tiles (tiles, 3, D).

    With ``NOTE`` the running statistics are updated, as by torch's batch norm.
    """
    # 1. Sums over the tiles about the first one's mean; in float64 any number near would do.
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    exists = channel < D
    pivot = _double(parts + D + channel, exists)
    count = tl.zeros((BP, BC), tl.float64)
    total = tl.zeros((BP, BC), tl.float64)
    square = tl.zeros((BP, BC), tl.float64)
    for first in range(0, tiles, BP):
        tile = first + tl.arange(0, BP)
        mask = (tile < tiles)[:, None] & exists[None, :]
        at = tile.to(tl.int64)[:, None] * 3 * D + channel[None, :]
        number = _double(parts + at, mask)
        away = _double(parts + at + D, mask) - pivot[None, :]
        count += number
        total += number * away
        square += _double(parts + at + 2 * D, mask) + number * away * away

    # 2. Mean and variance, and the constants.
    rows = tl.maximum(tl.sum(count, 0), 1.0)
    away = tl.sum(total, 0) / rows
    mean = pivot + away
    variance = tl.maximum(tl.sum(square, 0) / rows - away * away, 0.0)
    inverse = 1.0 / tl.sqrt(variance + EPS)
    factor = _double(scale + channel, exists) * inverse
    shifted = _double(shift + channel, exists) - mean * factor
    tl.store(constants + channel, factor.to(tl.float32), mask=exists)
    tl.store(constants + D + channel, shifted.to(tl.float32), mask=exists)
    tl.store(constants + 2 * D + channel, mean.to(tl.float32), mask=exists)
    tl.store(deviation + channel, inverse, mask=exists)

    # 3. Running statistics.
    if NOTE:
        unbiased = variance * (rows / tl.maximum(rows - 1.0, 1.0))
        _move(running_mean + channel, mean, exists, MOMENTUM)
        _move(running_variance + channel, unbiased, exists, MOMENTUM)
        if tl.program_id(0) == 0:
            tl.store(batches, tl.load(batches) + 1)


@triton.jit
def _double(pointers, mask):
    """Elements in float64, 0 where masked."""
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float64)


@triton.jit
def _move(pointers, value, mask, MOMENTUM: tl.constexpr):
    """Move running statistics towards those of a batch."""
    old = _double(pointers, mask)
    moved = old + MOMENTUM * (value - old)
    tl.store(pointers, moved.to(tl.float32), mask=mask)


@triton.jit
def activated(y, seed, number, channel, dropped, kept_scale, RELU: tl.constexpr):
    """dropout(relu(y)) of the elements ``number``."""
    if RELU:
        y = tl.where(y > 0, y, 0.0)
    return dropped_out(y, seed, number, channel, dropped, kept_scale)


@triton.jit
def form(
    old,
    pre,
    norm,
    at,
    channel,
    mask,
    seed,
    dropped,
    kept_scale,
    D: tl.constexpr,
    SHARED: tl.constexpr,
    RELU: tl.constexpr,
):
    """Elements ``at`` of new features, as :func:`update` describes them."""
    exists = channel < D
    factor = constant(norm, channel, exists, 0, D)
    shift = constant(norm, channel, exists, 1, D)
    y = loaded(pre + at, mask) * factor + shift
    y = activated(y, seed, at, channel, dropped, kept_scale, RELU)
    if old is not None and SHARED:
        y += loaded(old + channel, exists)[None, :]
    elif old is not None:
        y += loaded(old + at, mask)
    return y


@triton.jit
def update(
    old,
    pre,
    norm,
    new,
    seed,
    dropped,
    kept_scale,
    rows,
    D: tl.constexpr,
    BE: tl.constexpr,
    BC: tl.constexpr,
    SHARED: tl.constexpr,
    RELU: tl.constexpr,
):
    """New features: ``old`` + dropout(relu(factor · z + shift)), where z (rows, D) is ``pre``.

    ``norm`` (≥ 2, D) begins with factors and shifts. ``old`` has a row for each of z's, or one for
    all if ``SHARED``. An argument that is None is omitted, and so is the ReLU without RELU. ``new``
    may be ``pre`` itself.
    """
    number, live, channel, exists = tile_of(rows, D, BE, BC)
    mask = live[:, None] & exists[None, :]
    at = elements(number, channel, D)
    y = form(old, pre, norm, at, channel, mask, seed, dropped, kept_scale, D, SHARED, RELU)
    tl.store(new + at, y.to(new.dtype.element_ty), mask=mask)


@triton.jit
def through_norm(
    z,
    g,
    norm,
    seed,
    dropped,
    kept_scale,
    at,
    channel,
    D: tl.constexpr,
    RELU: tl.constexpr,
):
    """Z − mean of the elements ``at``, and the gradient of the norm's output, from g behind it."""
    exists = channel < D
    if RELU:
        factor = constant(norm, channel, exists, 0, D)
        shift = constant(norm, channel, exists, 1, D)
        g = tl.where(z * factor + shift > 0, g, 0.0)
    g = dropped_out(g, seed, at, channel, dropped, kept_scale)
    return z - constant(norm, channel, exists, 2, D), g


@triton.jit
def before_norm(
    z,
    g,
    norm,
    seed,
    dropped,
    kept_scale,
    at,
    channel,
    D: tl.constexpr,
    RELU: tl.constexpr,
):
    """The gradient of z, from g behind the norm; ``norm`` (5, D) is of :func:`finish_gradients`."""
    away, g = through_norm(z, g, norm, seed, dropped, kept_scale, at, channel, D, RELU)
    exists = channel < D
    factor = constant(norm, channel, exists, 0, D)
    offset = constant(norm, channel, exists, 3, D)
    slope = constant(norm, channel, exists, 4, D)
    return factor * g - offset - slope * away


@triton.jit
def sum_gradients(
    pre,
    grad,
    norm,
    parts,
    seed,
    dropped,
    kept_scale,
    edges,
    D: tl.constexpr,
    STEPS: tl.constexpr,
    BE: tl.constexpr,
    BC: tl.constexpr,
    RELU: tl.constexpr,
):
    """Σ g and Σ g · (z − mean) over BE · STEPS rows, g the gradient of the norm's output: (tiles, 2, D).

    ``grad`` is that of :func:`update`'s ``new``; ``norm`` (≥ 3, D) begins with factors, shifts and
    means.
    """
    row, _live, channel, exists = tile_of(edges, D, BE * STEPS, BC)
    first = tl.min(row, 0)
    total = tl.zeros((BE, BC), tl.float32)
    product = tl.zeros((BE, BC), tl.float32)
    for step in range(STEPS):
        number = first + step * BE + tl.arange(0, BE)
        mask = (number < edges)[:, None] & exists[None, :]
        at = elements(number, channel, D)
        z = loaded(pre + at, mask)
        g = loaded(grad + at, mask)
        away, g = through_norm(z, g, norm, seed, dropped, kept_scale, at, channel, D, RELU)
        total += g
        product += g * away
    blocks: tl.constexpr = (D + BC - 1) // BC
    out = parts + (tl.program_id(0) // blocks) * 2 * D + channel
    tl.store(out, tl.sum(total, 0), mask=exists)
    tl.store(out + D, tl.sum(product, 0), mask=exists)


@triton.jit
def finish_gradients(
    parts,
    tiles,
    constants,
    deviation,
    out,
    share,
    D: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Compute :func:`.norms.gradients_of` from the sums of tiles (tiles, 2, D).

    ``out`` (7, D) are ``constants``, offsets and slopes, then the gradients of the norm's weight
    and bias; ``share`` is 1 / the number of rows, or 0 where running statistics were used.
    """
    # 1. Sums over the tiles: the gradients of bias and weight.
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    exists = channel < D
    total = tl.zeros((BP, BC), tl.float64)
    product = tl.zeros((BP, BC), tl.float64)
    for begin in range(0, tiles, BP):
        tile = begin + tl.arange(0, BP)
        mask = (tile < tiles)[:, None] & exists[None, :]
        at = tile.to(tl.int64)[:, None] * 2 * D + channel[None, :]
        total += _double(parts + at, mask)
        product += _double(parts + at + D, mask)
    of_shift = tl.sum(total, 0)
    inverse = tl.load(deviation + channel, mask=exists, other=0.0)
    of_scale = tl.sum(product, 0) * inverse

    # 2. The constants, with offsets and slopes after them.
    for row in tl.static_range(3):
        value = tl.load(constants + row * D + channel, mask=exists, other=0.0)
        tl.store(out + row * D + channel, value, mask=exists)
    factor = _double(constants + channel, exists) * share
    offset = factor * of_shift
    tl.store(out + 3 * D + channel, offset.to(tl.float32), mask=exists)
    slope = factor * of_scale * inverse
    tl.store(out + 4 * D + channel, slope.to(tl.float32), mask=exists)
    tl.store(out + 5 * D + channel, of_scale.to(tl.float32), mask=exists)
    tl.store(out + 6 * D + channel, of_shift.to(tl.float32), mask=exists)


@triton.jit
def spread_gradients(
    pre,
    grad,
    norm,
    of_rows,
    of_more,
    after,
    after_dropped,
    after_scale,
    seed,
    dropped,
    kept_scale,
    rows,
    D: tl.constexpr,
    BE: tl.constexpr,
    BC: tl.constexpr,
    RELU: tl.constexpr,
):
    """Gradients of the summands of :func:`add_and_count`, from that of :func:`update`'s ``new``.

    ``norm`` (5, D) is of :func:`finish_gradients`; ``after`` is the seed of the dropout behind the
    norm. ``of_more`` may be None.
    """
    number, live, channel, exists = tile_of(rows, D, BE, BC)
    mask = live[:, None] & exists[None, :]
    at = elements(number, channel, D)
    z = loaded(pre + at, mask)
    g = loaded(grad + at, mask)
    g = before_norm(z, g, norm, after, after_dropped, after_scale, at, channel, D, RELU)
    tl.store(of_rows + at, g.to(of_rows.dtype.element_ty), mask=mask)
    if of_more is not None:
        g = dropped_out(g, seed, at, channel, dropped, kept_scale)
        tl.store(of_more + at, g.to(of_more.dtype.element_ty), mask=mask)
