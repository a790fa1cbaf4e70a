"""Passes over the edges of a batch, for GatedGCN: those of ``cpu.gate_kernels``, in Triton.

Edge tensors are (E, D), node tensors (N, D), both row by row, of any floating dtype; sums are
float32. Node i has the entries ``start[i]`` to ``start[i + 1]`` of ``end``, the node at the other
end of each, and of ``edge``, the number of each; in a neighbour table (``K`` > 0) they follow from
i, and ``start`` and ``edge`` are not read. A program takes BN nodes in parallel, slot by slot, so
that threads meet only at the end and each sum has one order: there are no atomics, and results do
not depend on the number of processors. Nothing is checked: the ends must be existing nodes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kmip_data.models.layers.gpu.norm_kernels import before_norm, elements, join, loaded, tile_of


@triton.jit
def _entries(start, node, live, K: tl.constexpr):
    """First and last entry of each node, and the largest number of entries."""
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
def _looked_up(end, edge, entry, alive, K: tl.constexpr):
    """Node at the other end and number of each entry, int64."""
    other = tl.load(end + entry, mask=alive, other=0).to(tl.int64)
    if K == 0:
        entry = tl.load(edge + entry, mask=alive, other=0)
    return other, entry


@triton.jit
def gate(
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
    """Gate each edge, and sum at the target.

    ``pre`` becomes z = at_target of the target + at_source of the source, + its old value if
    ``ADD``. ``inverse`` (N, D) is 1 / (Σ sigmoid(z) + 10⁻⁶), ``quotient`` Σ sigmoid(z) · message
    times that. With ``STATISTICS`` ``parts`` (tiles, 3, D) are the number of a tile's edges, their
    mean z and Σ (z − mean)².
    """
    # 1. A tile of nodes × channels; each node walks its entries slot by slot.
    node, live, channel, exists = tile_of(nodes, D, BN, BC)
    tile_mask = live[:, None] & exists[None, :]
    tile = elements(node, channel, D)
    of_target = loaded(at_target + tile, tile_mask)
    first, last, most = _entries(start, node, live, K)
    gates = tl.zeros((BN, BC), tl.float32)
    messages = tl.zeros((BN, BC), tl.float32)
    pivot = tl.zeros((BN, BC), tl.float32)
    total = tl.zeros((BN, BC), tl.float32)
    square = tl.zeros((BN, BC), tl.float32)
    for slot in tl.range(0, most, loop_unroll_factor=UNROLL):
        alive = first + slot < last
        source, number = _looked_up(end, edge, first + slot, alive, K)
        mask = alive[:, None] & exists[None, :]
        edges = elements(number, channel, D)
        sources = elements(source, channel, D)
        # 2. z of one edge of each node; it is stored, because the backward pass computes the gate
        #    again from it.
        z = of_target + loaded(at_source + sources, mask)
        if ADD:
            z += loaded(pre + edges, mask)
        stored = z.to(pre.dtype.element_ty)
        tl.store(pre + edges, stored, mask=mask)
        z = stored.to(tl.float32)  # as the backward pass will read it
        # 3. Its gate, and the two sums at the target.
        opened = tl.where(mask, tl.sigmoid(z), 0.0)
        gates += opened
        messages += opened * loaded(message + sources, mask)
        if STATISTICS:
            # About the node's first edge, so that a mean far from zero costs no accuracy.
            pivot = tl.where(slot == 0, z, pivot)
            away = tl.where(mask, z - pivot, 0.0)
            total += away
            square += away * away
    # 4. The quotient is formed here, so that no further pass reads the sums.
    inverted = 1.0 / (gates + 1e-6)
    tl.store(inverse + tile, inverted, mask=tile_mask)
    tl.store(quotient + tile, messages * inverted, mask=tile_mask)
    if STATISTICS:
        blocks: tl.constexpr = (D + BC - 1) // BC
        row = parts + (tl.program_id(0) // blocks) * 3 * D + channel
        join(row, exists, last - first, pivot, total, square, D, BN, BC)


@triton.jit
def differentiate(
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
    """Gradient of z for each edge, and its sum at the target.

    ``of_message`` (N, D) becomes the gradient of Σ sigmoid(z) · message. Where ``grad`` is not
    None, g is as in :func:`.norm_kernels.sum_gradients`, ``norm`` (5, D) holds factors, shifts,
    means, offsets and slopes, and z also takes factor · g − offset − slope · (z − mean).
    """
    # 1. The gradient of the sum of messages, by node.
    node, live, channel, exists = tile_of(nodes, D, BN, BC)
    tile_mask = live[:, None] & exists[None, :]
    tile = elements(node, channel, D)
    ratio = loaded(quotient + tile, tile_mask)
    of_sum = loaded(grad_quotient + tile, tile_mask)
    of_sum *= loaded(inverse + tile, tile_mask)
    tl.store(of_message + tile, of_sum, mask=tile_mask)
    total = tl.zeros((BN, BC), tl.float32)
    first, last, most = _entries(start, node, live, K)
    for slot in tl.range(0, most, loop_unroll_factor=UNROLL):
        alive = first + slot < last
        source, number = _looked_up(end, edge, first + slot, alive, K)
        mask = alive[:, None] & exists[None, :]
        edges = elements(number, channel, D)
        sources = elements(source, channel, D)
        value = loaded(message + sources, mask)
        z = loaded(pre + edges, mask)
        # 2. From the new edges, through dropout, ReLU and the norm.
        if grad is not None:
            g = loaded(grad + edges, mask)
            g = before_norm(z, g, norm, seed, dropped, kept_scale, edges, channel, D, True)
        else:
            g = tl.zeros((BN, BC), tl.float32)
        # 3. Through quotient and gate: d(Σ s m / Σ s)/dz = s (1 − s) (m − quotient) / Σ s.
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
    """Gradients at the sources: Σ of that of z, and Σ sigmoid(z) · ``of_message`` of the target.

    Over the outgoing edges of each node: entries by source, whose other ends are targets.
    """
    node, live, channel, exists = tile_of(nodes, D, BN, BC)
    first, last, most = _entries(start, node, live, 0)
    of_source = tl.zeros((BN, BC), tl.float32)
    of_value = tl.zeros((BN, BC), tl.float32)
    for slot in range(most):
        alive = first + slot < last
        target, number = _looked_up(end, edge, first + slot, alive, 0)
        mask = alive[:, None] & exists[None, :]
        edges = elements(number, channel, D)
        of_source += loaded(grad_pre + edges, mask)
        opened = tl.sigmoid(loaded(pre + edges, mask))
        targets = elements(target, channel, D)
        of_value += opened * loaded(of_message + targets, mask)
    tile_mask = live[:, None] & exists[None, :]
    tile = elements(node, channel, D)
    tl.store(grad_source + tile, of_source, mask=tile_mask)
    tl.store(grad_message + tile, of_value, mask=tile_mask)
