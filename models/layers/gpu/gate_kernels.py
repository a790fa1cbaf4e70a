"""Edge kernels of GatedGCN in Triton, the counterparts of ``cpu.gate_kernels``.

Edge tensors are (E, D) and node tensors (N, D), both contiguous and of any floating dtype; sums are
float32. Node i has the entries ``start[i]:start[i + 1]`` of ``end``, the node at the other end of
each edge, and of ``edge``, its index. In a neighbour table (``K`` > 0), entries follow from i, and
``start`` and ``edge`` are not read. A program processes BN nodes in parallel, slot by slot. Each sum
has a fixed order without atomics, so results do not depend on the number of processors. Ends must
be existing nodes, which is not checked.

A tile has 16, 32 or 64 channels, the largest of these that divides d rounded up to a multiple of
16: a row of d = 56 or 64 is one tile wide; a row of d = 76 is five, where a power of two would take
128 channels. The first three ``norm`` constants (·, D) are factors, shifts and means; z is
normalised to factor · z + shift.
"""

from __future__ import annotations

import triton
import triton.language as tl

#: Launch options of every kernel.
OPTIONS: dict[str, int] = {"num_warps": 4, "enable_fp_fusion": True}


def channels_per_tile(d: int) -> int:
    """Return the channels per tile for rows of ``d`` channels."""
    padded = -(-d // 16) * 16
    return min(64, padded & -padded)


def count_programs(rows: int, rows_per_tile: int, d: int) -> tuple[int]:
    """Return the number of programs, row tiles × channel tiles."""
    row_tiles = triton.cdiv(rows, rows_per_tile)
    channel_tiles = triton.cdiv(d, channels_per_tile(d))
    return (row_tiles * channel_tiles,)


@triton.jit
def load_float32(pointers, mask):
    """Load elements as float32, with 0 for masked ones."""
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def element_offsets(row, channel, D: tl.constexpr):
    """Return the offsets of rows × channels."""
    return row[:, None] * D + channel[None, :]


@triton.jit
def tile_rows_and_channels(rows, D: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Return rows (BR,) int64 and channels (BC,) of this program, each with a mask of existing ones.

    Consecutive programs share rows, so that they share the cache.
    """
    blocks: tl.constexpr = (D + BC - 1) // BC
    program = tl.program_id(0)
    row = (program // blocks).to(tl.int64) * BR + tl.arange(0, BR)
    channel = program % blocks * BC + tl.arange(0, BC)
    return row, row < rows, channel, channel < D


@triton.jit
def load_constant(norm, channel, exists, ROW: tl.constexpr, D: tl.constexpr):
    """Load row ``ROW`` of a norm's constants (·, D) as (1, BC)."""
    return load_float32(norm + ROW * D + channel, exists)[None, :]


@triton.jit
def keep_mask(seed, number, channel, dropped):
    """Return the mask of elements that dropout keeps, as ``cpu.gate_kernels.drop_lanes`` for equal seeds.

    ``seed`` points to an int64; ``number`` (int64) is the element's index in row-major order. An
    element is dropped if its 32-bit hash is below ``dropped``.
    """
    bits = tl.load(seed)
    # The CPU hashes 16 channels at a time, with the high half of the first channel's index.
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
def apply_dropout(y, seed, number, channel, dropped, kept_scale):
    """Apply dropout to y, whose elements have the indices ``number``; without a seed, return y."""
    if seed is not None:
        mask = keep_mask(seed, number, channel[None, :], dropped)
        y = tl.where(mask, y * kept_scale, 0.0)
    return y


@triton.jit
def write_tile_moments(
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
    """Write count, mean and Σ (z − mean)² of a tile, from each lane's Σ (z − pivot) and Σ (z − pivot)²."""
    count = count.to(tl.float32)[:, None] + tl.zeros((BN, BC), tl.float32)
    share = total / tl.maximum(count, 1.0)
    edges = tl.sum(count, 0)
    mean = tl.sum(count * (pivot + share), 0) / tl.maximum(edges, 1.0)
    # Shift the squares from each lane's mean to the mean of the tile.
    away = pivot + share - mean[None, :]
    within = tl.maximum(square - total * share, 0.0)
    squares = within + count * away * away
    tl.store(out, edges, mask=exists)
    tl.store(out + D, mean, mask=exists)
    tl.store(out + 2 * D, tl.sum(squares, 0), mask=exists)


@triton.jit
def update_edges(
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
):
    """Write ``new`` = ``old`` + dropout(relu(factor · z + shift)), where z (rows, D) is ``pre``.

    ``norm`` (≥ 2, D) starts with factors and shifts. ``old`` has one row per edge, or a single row
    if ``SHARED``. ``new`` may be ``pre`` itself.
    """
    number, live, channel, exists = tile_rows_and_channels(rows, D, BE, BC)
    mask = live[:, None] & exists[None, :]
    at = element_offsets(number, channel, D)
    factor = load_constant(norm, channel, exists, 0, D)
    shift = load_constant(norm, channel, exists, 1, D)
    y = load_float32(pre + at, mask) * factor + shift
    y = tl.where(y > 0, y, 0.0)
    y = apply_dropout(y, seed, at, channel, dropped, kept_scale)
    if SHARED:
        y += load_float32(old + channel, exists)[None, :]
    else:
        y += load_float32(old + at, mask)
    tl.store(new + at, y.to(new.dtype.element_ty), mask=mask)


@triton.jit
def gradient_through_norm(
    z,
    g,
    norm,
    seed,
    dropped,
    kept_scale,
    at,
    channel,
    D: tl.constexpr,
):
    """Return z − mean, and the gradient of the norm's output from g, the gradient after ReLU and dropout."""
    exists = channel < D
    factor = load_constant(norm, channel, exists, 0, D)
    shift = load_constant(norm, channel, exists, 1, D)
    g = tl.where(z * factor + shift > 0, g, 0.0)
    g = apply_dropout(g, seed, at, channel, dropped, kept_scale)
    return z - load_constant(norm, channel, exists, 2, D), g


@triton.jit
def sum_norm_gradients(
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
):
    """Write Σ g and Σ g · (z − mean) over tiles of BE · STEPS rows to ``parts`` (tiles, 2, D).

    g is the gradient of the norm's output, ``grad`` the gradient of :func:`update_edges`'s ``new``,
    and ``norm`` (≥ 3, D) starts with factors, shifts and means.
    """
    row, _live, channel, exists = tile_rows_and_channels(edges, D, BE * STEPS, BC)
    first = tl.min(row, 0)
    total = tl.zeros((BE, BC), tl.float32)
    product = tl.zeros((BE, BC), tl.float32)
    for step in range(STEPS):
        number = first + step * BE + tl.arange(0, BE)
        mask = (number < edges)[:, None] & exists[None, :]
        at = element_offsets(number, channel, D)
        z = load_float32(pre + at, mask)
        g = load_float32(grad + at, mask)
        away, g = gradient_through_norm(z, g, norm, seed, dropped, kept_scale, at, channel, D)
        total += g
        product += g * away
    blocks: tl.constexpr = (D + BC - 1) // BC
    out = parts + (tl.program_id(0) // blocks) * 2 * D + channel
    tl.store(out, tl.sum(total, 0), mask=exists)
    tl.store(out + D, tl.sum(product, 0), mask=exists)


@triton.jit
def _entry_ranges(start, node, live, K: tl.constexpr):
    """Return start and stop of each node's entries, and the largest number of entries."""
    if K > 0:
        first = node * K
        last = first + tl.where(live, K, 0)
        most = K
    else:
        first = tl.load(start + node, mask=live, other=0)
        last = tl.load(start + node + 1, mask=live, other=0)
        most = tl.max(last - first, 0).to(tl.int32)
    return first, last, most


@triton.jit
def _load_other_ends(end, edge, entry, alive, K: tl.constexpr):
    """Return the node at the other end and the edge index of each entry, int64."""
    other = tl.load(end + entry, mask=alive, other=0).to(tl.int64)
    if K == 0:
        entry = tl.load(edge + entry, mask=alive, other=0)
    return other, entry


@triton.jit
def gate_edges(
    at_target,
    at_source,
    message,
    start,
    end,
    edge,
    pre,
    quotient,
    inverse,
    parts,
    nodes,
    D: tl.constexpr,
    K: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
    ADD: tl.constexpr,
    STATISTICS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Gate each edge, and average the messages at the target.

    Writes z = at_target of the target + at_source of the source, + its old value if ``ADD``, to
    ``pre``; 1 / (Σ sigmoid(z) + 10⁻⁶) to ``inverse`` (N, D); and Σ sigmoid(z) · message times that
    to ``quotient``. With ``STATISTICS``, writes a tile's number of edges, mean z and Σ (z − mean)² to
    ``parts`` (tiles, 3, D).
    """
    # 1. Load a tile of nodes × channels; each node processes its entries slot by slot.
    node, live, channel, exists = tile_rows_and_channels(nodes, D, BN, BC)
    tile_mask = live[:, None] & exists[None, :]
    tile = element_offsets(node, channel, D)
    of_target = load_float32(at_target + tile, tile_mask)
    first, last, most = _entry_ranges(start, node, live, K)
    gates = tl.zeros((BN, BC), tl.float32)
    messages = tl.zeros((BN, BC), tl.float32)
    pivot = tl.zeros((BN, BC), tl.float32)
    total = tl.zeros((BN, BC), tl.float32)
    square = tl.zeros((BN, BC), tl.float32)
    for slot in tl.range(0, most, loop_unroll_factor=UNROLL):
        alive = first + slot < last
        source, number = _load_other_ends(end, edge, first + slot, alive, K)
        mask = alive[:, None] & exists[None, :]
        edges = element_offsets(number, channel, D)
        sources = element_offsets(source, channel, D)
        # 2. Compute z of one edge per node, and store it for the backward pass.
        z = of_target + load_float32(at_source + sources, mask)
        if ADD:
            z += load_float32(pre + edges, mask)
        stored = z.to(pre.dtype.element_ty)
        tl.store(pre + edges, stored, mask=mask)
        z = stored.to(tl.float32)  # rounded as in the backward pass
        # 3. Compute its gate, and the two sums at the target.
        opened = tl.where(mask, tl.sigmoid(z), 0.0)
        gates += opened
        messages += opened * load_float32(message + sources, mask)
        if STATISTICS:
            # Sum relative to the node's first edge, so that a mean far from zero costs no accuracy.
            pivot = tl.where(slot == 0, z, pivot)
            away = tl.where(mask, z - pivot, 0.0)
            total += away
            square += away * away
    # 4. Divide here, so that no other pass reads the sums.
    inverted = 1.0 / (gates + 1e-6)
    tl.store(inverse + tile, inverted, mask=tile_mask)
    tl.store(quotient + tile, messages * inverted, mask=tile_mask)
    if STATISTICS:
        blocks: tl.constexpr = (D + BC - 1) // BC
        row = parts + (tl.program_id(0) // blocks) * 3 * D + channel
        write_tile_moments(row, exists, last - first, pivot, total, square, D, BN, BC)


@triton.jit
def differentiate_gate(
    grad_quotient,
    quotient,
    inverse,
    message,
    start,
    end,
    edge,
    pre,
    grad,
    norm,
    grad_pre,
    grad_target,
    of_message,
    seed,
    dropped,
    kept_scale,
    nodes,
    D: tl.constexpr,
    K: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Compute the gradient of z for each edge, and sum it at the target.

    Writes the gradient of Σ sigmoid(z) · message to ``of_message`` (N, D). If ``grad`` is not None,
    z's gradient includes factor · g − offset − slope · (z − mean), where g is as in
    :func:`sum_norm_gradients` and ``norm`` (5, D) holds factors, shifts, means, offsets and slopes.
    """
    # 1. Compute the gradient of each node's sum of messages.
    node, live, channel, exists = tile_rows_and_channels(nodes, D, BN, BC)
    tile_mask = live[:, None] & exists[None, :]
    tile = element_offsets(node, channel, D)
    ratio = load_float32(quotient + tile, tile_mask)
    of_sum = load_float32(grad_quotient + tile, tile_mask)
    of_sum *= load_float32(inverse + tile, tile_mask)
    tl.store(of_message + tile, of_sum, mask=tile_mask)
    total = tl.zeros((BN, BC), tl.float32)
    first, last, most = _entry_ranges(start, node, live, K)
    for slot in tl.range(0, most, loop_unroll_factor=UNROLL):
        alive = first + slot < last
        source, number = _load_other_ends(end, edge, first + slot, alive, K)
        mask = alive[:, None] & exists[None, :]
        edges = element_offsets(number, channel, D)
        sources = element_offsets(source, channel, D)
        value = load_float32(message + sources, mask)
        z = load_float32(pre + edges, mask)
        # 2. Backpropagate from the new edges through dropout, ReLU and norm.
        if grad is not None:
            g = load_float32(grad + edges, mask)
            away, g = gradient_through_norm(
                z, g, norm, seed, dropped, kept_scale, edges, channel, D
            )
            factor = load_constant(norm, channel, exists, 0, D)
            offset = load_constant(norm, channel, exists, 3, D)
            slope = load_constant(norm, channel, exists, 4, D)
            g = factor * g - offset - slope * away
        else:
            g = tl.zeros((BN, BC), tl.float32)
        # 3. Backpropagate through quotient and gate: d(Σ s m / Σ s)/dz = s (1 − s) (m − quotient) / Σ s.
        opened = tl.sigmoid(z)
        g += opened * (1.0 - opened) * of_sum * (value - ratio)
        stored = tl.where(mask, g, 0.0).to(grad_pre.dtype.element_ty)
        tl.store(grad_pre + edges, stored, mask=mask)
        total += stored.to(tl.float32)
    tl.store(grad_target + tile, total, mask=tile_mask)


@triton.jit
def sum_at_sources(
    pre,
    grad_pre,
    of_message,
    start,
    end,
    edge,
    grad_source,
    grad_message,
    nodes,
    D: tl.constexpr,
    BN: tl.constexpr,
    BC: tl.constexpr,
):
    """Sum the gradients of z, and sigmoid(z) · ``of_message`` (N, D) of the targets, at each source.

    Entries are the outgoing edges of each node, so their other ends are targets.
    """
    node, live, channel, exists = tile_rows_and_channels(nodes, D, BN, BC)
    first, last, most = _entry_ranges(start, node, live, 0)
    of_source = tl.zeros((BN, BC), tl.float32)
    of_value = tl.zeros((BN, BC), tl.float32)
    for slot in range(most):
        alive = first + slot < last
        target, number = _load_other_ends(end, edge, first + slot, alive, 0)
        mask = alive[:, None] & exists[None, :]
        edges = element_offsets(number, channel, D)
        of_source += load_float32(grad_pre + edges, mask)
        opened = tl.sigmoid(load_float32(pre + edges, mask))
        targets = element_offsets(target, channel, D)
        of_value += opened * load_float32(of_message + targets, mask)
    tile_mask = live[:, None] & exists[None, :]
    tile = element_offsets(node, channel, D)
    tl.store(grad_source + tile, of_source, mask=tile_mask)
    tl.store(grad_message + tile, of_value, mask=tile_mask)
