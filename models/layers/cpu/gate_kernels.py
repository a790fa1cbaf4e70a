"""Compiled passes over edges grouped by target, for GatedGCN.

Arrays are flat float32; node i's channels start at ``i · d``, edge e's at ``e · d``. Node i has the
edges ``i · k`` to ``(i + 1) · k``. A kernel processes the nodes ``start:stop``, 16 channels at a
time, so that a node's edges stay in the cache between two reads. A node's results do not depend on
the range. Edges must name existing nodes, which is not checked.

The last group of channels may be short: only the first ``count`` lanes of its SIMD register are
used. The others are zero when loaded, and are not stored.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from kmip_data.arrays import F32, I32, I64
from kmip_data.models.search.cpu.simd import (
    DATA,
    IRBuilder,
    Lanes,
    Value,
    broadcast,
    call_llvm_intrinsic,
    kernel_instruction,
    like_first,
    multiply_add,
    splat_lanes,
    types,
)
from kmip_data.runtime.parallel import njit_nogil

LANES = 16
#: Edges, or nodes, whose rows are prefetched. For 12,950 × 72 uncached edges, :func:`update_edges`
#: takes 0.31 ms with prefetching and 0.94 without, as blocks of 16 channels are not sequential.
PREFETCH_DISTANCE = 8

_WORD = ir.IntType(32)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(_WORD, LANES)
_NUMBERS = ir.Constant(_INTEGERS, list(range(LANES)))
_ALIGNED = ir.Constant(_WORD, 4)


def _repeat_number(value: float) -> Value:
    return ir.Constant(_FLOATS, [float(value)] * LANES)


def _repeat_integer(value: int) -> Value:
    return ir.Constant(_INTEGERS, [value] * LANES)


def _element_pointer(builder: IRBuilder, array: Value, start: Value, element_type: Value) -> Value:
    data = builder.extract_value(array, DATA)
    return builder.bitcast(builder.gep(data, [start]), element_type.as_pointer())


def _first_lanes(builder: IRBuilder, count: Value) -> Value:
    """Return a mask of the first ``count`` lanes."""
    limit = broadcast(builder, builder.trunc(count, _WORD), LANES)
    return builder.icmp_signed("<", _NUMBERS, limit)


@kernel_instruction(Lanes(types.float32))
def load_lanes(builder, array, start, count):
    """Load ``count`` elements of a flat float32 array from ``start`` on, without bounds checks."""
    address = _element_pointer(builder, array, start, _FLOATS)
    args = [address, _ALIGNED, _first_lanes(builder, count), _repeat_number(0)]
    return call_llvm_intrinsic(builder, "masked.load.v16f32.p0", _FLOATS, args)


@kernel_instruction(types.none)
def store_lanes(builder, array, start, count, lanes):
    """Store the first ``count`` lanes to a flat float32 array from ``start`` on."""
    address = _element_pointer(builder, array, start, _FLOATS)
    args = [lanes, address, _ALIGNED, _first_lanes(builder, count)]
    call_llvm_intrinsic(builder, "masked.store.v16f32.p0", ir.VoidType(), args)


@kernel_instruction(types.none)
def prefetch(builder, array, start):
    """Prefetch the cache line of an element of a flat float32 array; it may be out of bounds."""
    address = _element_pointer(builder, array, start, ir.IntType(8))
    flags = [ir.Constant(_WORD, number) for number in (0, 3, 1)]
    call_llvm_intrinsic(builder, "prefetch.p0", ir.VoidType(), [address, *flags])


_MAY_FUSE = ("contract",)
#: ``a + b``; with a product, rounded once where the processor can
add_lanes = like_first(lambda builder, a, b: builder.fadd(a, b, flags=_MAY_FUSE))
#: ``a − b``
subtract_lanes = like_first(lambda builder, a, b: builder.fsub(a, b, flags=_MAY_FUSE))
#: ``a · b``
multiply_lanes = like_first(lambda builder, a, b: builder.fmul(a, b, flags=_MAY_FUSE))
#: ``a / b``
divide_lanes = like_first(lambda builder, a, b: builder.fdiv(a, b))


_LOG2_E = 1.44269504088896341
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_ROUND = 12582912.0  # 1.5 · 2²³: adding it leaves the nearest integer in the low bits
# exp(r) = 1 + r + r²(½ + …) for |r| ≤ ln 2 / 2, to 2 units in the last place (Cephes, expf)
_EXP = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_LARGEST = 87.0  # e^87 is finite in float32, e^-87 is normal


@like_first
def sigmoid(builder, lanes):
    """Return 1 / (1 + e^−z), within a few units in the last place even for tiny results (z > −87).

    NaN stays NaN.
    """

    def fused(a, b, c):
        return call_llvm_intrinsic(builder, "fmuladd.v16f32", _FLOATS, [a, b, c])

    # 1. Negate z, and clamp it to ±87.
    z = builder.fsub(_repeat_number(-0.0), lanes)
    for sign, limit in ((">", _LARGEST), ("<", -_LARGEST)):
        beyond = builder.fcmp_ordered(sign, z, _repeat_number(limit))
        z = builder.select(beyond, _repeat_number(limit), z)

    # 2. Split −z = whole · ln 2 + rest; ln 2 has two parts, the first exact in few bits.
    shifted = fused(z, _repeat_number(_LOG2_E), _repeat_number(_ROUND))
    whole = builder.fsub(shifted, _repeat_number(_ROUND))
    rest = fused(whole, _repeat_number(-_LN2_HIGH), z)
    rest = fused(whole, _repeat_number(-_LN2_LOW), rest)

    # 3. Compute e^rest by Horner's rule.
    series = _repeat_number(_EXP[0])
    for factor in _EXP[1:]:
        series = fused(series, rest, _repeat_number(factor))
    square = builder.fmul(rest, rest)
    small = builder.fadd(fused(square, series, rest), _repeat_number(1))

    # 4. Compute 2^whole from the bits of its exponent, and the quotient.
    exponent = builder.add(builder.bitcast(shifted, _INTEGERS), _repeat_integer(127))
    power = builder.bitcast(builder.shl(exponent, _repeat_integer(23)), _FLOATS)
    return builder.fdiv(_repeat_number(1), fused(small, power, _repeat_number(1)))


@like_first
def where_above(builder, lanes, limit, value):
    """Return ``value`` in the lanes that are above ``limit``, else 0."""
    above = builder.fcmp_ordered(">", lanes, limit)
    return builder.select(above, value, _repeat_number(0))


@kernel_instruction(Lanes(types.float32))
def drop_lanes(builder, seed, number, dropped, value):
    """Return ``value`` in the lanes that dropout keeps, else 0; lane i is element ``number + i``.

    An element is dropped if a hash of its index and the 64-bit ``seed`` is below ``dropped`` out of
    2³², so that masks do not depend on the order of elements. The hash is Wellons' "triple32", with
    half of the seed mixed in before the first multiplication and half before the second.
    """

    def mixed(lanes, shift, factor):
        shifted = builder.lshr(lanes, _repeat_integer(shift))
        lanes = builder.xor(lanes, shifted)
        return builder.mul(lanes, _repeat_integer(factor))

    def low(value):
        return builder.trunc(value, _WORD)

    def high(value):
        half = builder.lshr(value, ir.Constant(value.type, 32))
        return low(half)

    # 1. Mix the index with the low half of the seed; indices from 2³² on change the high half.
    start = builder.add(broadcast(builder, low(number), LANES), _NUMBERS)
    start = builder.xor(start, broadcast(builder, low(seed), LANES))
    beyond = builder.mul(high(number), ir.Constant(_WORD, 0x9E3779B9))
    second = builder.add(high(seed), beyond)

    # 2. Three rounds of the hash.
    hashed = mixed(start, 17, 0xED5AD4BB)
    hashed = builder.xor(hashed, broadcast(builder, second, LANES))
    hashed = mixed(hashed, 11, 0xAC4C1B51)
    hashed = mixed(hashed, 15, 0x31848BAB)
    hashed = builder.xor(hashed, builder.lshr(hashed, _repeat_integer(14)))

    limit = broadcast(builder, low(dropped), LANES)
    below = builder.icmp_unsigned("<", hashed, limit)
    return builder.select(below, _repeat_number(0), value)


Arrays = tuple[F32, ...]
NeighborSources = tuple[int, I32 | I64]  #: edges per node k, and source of each edge
#: Seed, probability times 2³² (0: none), and factor of kept elements.
DropoutOptions = tuple[int, int, float]


@njit_nogil()
def gate_edges(
    d: int,
    edges: NeighborSources,
    nodes: Arrays,
    pre: F32,
    add: bool,
    statistics: bool,
    results: Arrays,
    start: int,
    stop: int,
) -> None:
    """Gate each edge, and average the messages at the target.

    ``nodes`` are (at_target, at_source, message). Writes z = at_target of the target + at_source of
    the source, + its old value if ``add``, to ``pre`` (E, d). Writes to ``results``, for each node,
    Σ sigmoid(z) · message of the source / divisor, the divisor Σ sigmoid(z) + 10⁻⁶ and, with
    ``statistics``, Σ z and Σ (z − mean of the node)².
    """
    at_target, at_source, message = nodes
    quotients, divisors, sums, squares = results
    k, sources = edges
    zero = splat_lanes(np.float32(0))
    least = splat_lanes(np.float32(1e-6))
    share = splat_lanes(np.float32(1 / max(1, k)))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            row = node * d + channel
            for rows in results:
                prefetch(rows, row + PREFETCH_DISTANCE * d)
            of_target = load_lanes(at_target, row, count)
            message_sum = zero
            gate_sum = zero
            total = zero

            # 1. Compute each edge's z and gate, and sum at the target.
            for entry in range(node * k, (node + 1) * k):
                source = np.int64(sources[entry]) * d + channel
                edge = entry * d + channel
                prefetch(pre, edge + PREFETCH_DISTANCE * d)
                z = add_lanes(of_target, load_lanes(at_source, source, count))
                if add:
                    z = add_lanes(z, load_lanes(pre, edge, count))
                store_lanes(pre, edge, count, z)
                total = add_lanes(total, z)
                opened = sigmoid(z)
                gate_sum = add_lanes(gate_sum, opened)
                passed = multiply_lanes(opened, load_lanes(message, source, count))
                message_sum = add_lanes(message_sum, passed)
            divisor = add_lanes(gate_sum, least)
            store_lanes(quotients, row, count, divide_lanes(message_sum, divisor))
            store_lanes(divisors, row, count, divisor)

            # 2. Sum squares about the node's mean, while z is in the cache.
            if statistics:
                mean = multiply_lanes(total, share)
                square = zero
                for entry in range(node * k, (node + 1) * k):
                    edge = entry * d + channel
                    away = subtract_lanes(load_lanes(pre, edge, count), mean)
                    square = add_lanes(square, multiply_lanes(away, away))
                store_lanes(sums, row, count, total)
                store_lanes(squares, row, count, square)


@njit_nogil()
def update_edges(
    d: int,
    pre: F32,
    norm: F32,
    dropout: DropoutOptions,
    old: F32,
    new: F32,
    start: int,
    stop: int,
) -> None:
    """Write ``old`` + dropout(relu(factor · z + shift)) of the edges ``start:stop`` to ``new`` (E, d).

    ``norm`` holds (d,) factors, then (d,) shifts. ``old`` has one row per edge, or one for all edges.
    ``new`` may be ``pre`` itself.
    """
    seed, dropped, kept_scale = dropout
    shared = old.shape[0] == d
    zero = splat_lanes(np.float32(0))
    scale = splat_lanes(np.float32(kept_scale))
    for number in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            edge = number * d + channel
            for rows in (pre, old, new):
                prefetch(rows, edge + PREFETCH_DISTANCE * d)
            y = multiply_lanes(load_lanes(pre, edge, count), load_lanes(norm, channel, count))
            y = add_lanes(y, load_lanes(norm, d + channel, count))
            y = where_above(y, zero, y)
            if dropped > 0:
                y = drop_lanes(seed, edge, dropped, y)
            before = load_lanes(old, channel if shared else edge, count)
            store_lanes(new, edge, count, multiply_add(y, scale, before))


@njit_nogil()
def sum_norm_gradients(
    d: int,
    k: int,
    pre: F32,
    grad: F32,
    norm: F32,
    dropout: DropoutOptions,
    results: Arrays,
    start: int,
    stop: int,
) -> None:
    """Sum g and g · (z − mean) over the edges of each node; g (E, d) is the gradient of the norm's output.

    ``grad`` is the gradient of :func:`update_edges`'s ``new``; ``norm`` holds factors, shifts and
    means.
    """
    seed, dropped, kept_scale = dropout
    sums, products = results
    zero = splat_lanes(np.float32(0))
    scale = splat_lanes(np.float32(kept_scale))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            a = load_lanes(norm, channel, count)
            b = load_lanes(norm, d + channel, count)
            middle = load_lanes(norm, 2 * d + channel, count)
            total = zero
            product = zero
            for number in range(node * k, (node + 1) * k):
                edge = number * d + channel
                prefetch(pre, edge + PREFETCH_DISTANCE * d)
                prefetch(grad, edge + PREFETCH_DISTANCE * d)
                z = load_lanes(pre, edge, count)
                y = add_lanes(multiply_lanes(z, a), b)
                g = where_above(y, zero, load_lanes(grad, edge, count))
                if dropped > 0:
                    g = multiply_lanes(drop_lanes(seed, edge, dropped, g), scale)
                total = add_lanes(total, g)
                product = add_lanes(product, multiply_lanes(g, subtract_lanes(z, middle)))
            row = node * d + channel
            store_lanes(sums, row, count, total)
            store_lanes(products, row, count, product)


@njit_nogil()
def differentiate_gate(
    start: int,
    stop: int,
    d: int,
    entries: NeighborSources,
    edges: Arrays,
    message: F32,
    means: Arrays,
    norm: F32,
    dropout: DropoutOptions,
    firsts: tuple[int, int],
    results: Arrays,
    at_sources: Arrays,
) -> None:
    """Compute the gradient of z for each edge, and sum it at targets and sources.

    ``edges`` are (pre, grad), (E, d) each; ``means`` are the gradient of :func:`gate_edges`'s
    quotients, the quotients and their divisors. If grad, the gradient of the new edges, is not
    empty, z's gradient includes factor · g − offset − slope · (z − mean), where g is as in
    :func:`sum_norm_gradients` and ``norm`` holds factors, shifts, means, offsets and slopes.

    ``firsts`` are (first_edge, first). Writes z's gradient from ``first_edge`` on, and at_target's
    gradient, to ``results``. Adds the gradients of at_source and message, in the order of the edges,
    to ``at_sources``, those of node i to row ``i - first``.
    """
    seed, dropped, kept_scale = dropout
    pre, grad = edges
    grad_quotients, quotients, divisors = means
    grad_pre, grad_target = results
    grad_source, grad_message = at_sources
    first_edge, first = firsts
    # Pad sums to whole groups of channels: a load would wait for an earlier partial store.
    width = -(-d // LANES) * LANES
    updates = grad.shape[0] > 0
    k, sources = entries
    zero = splat_lanes(np.float32(0))
    one = splat_lanes(np.float32(1))
    scale = splat_lanes(np.float32(kept_scale))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            target_row = node * d + channel
            for rows in (grad_quotients, quotients, divisors, grad_target):
                prefetch(rows, target_row + PREFETCH_DISTANCE * d)
            of_quotient = load_lanes(grad_quotients, target_row, count)
            divisor = load_lanes(divisors, target_row, count)
            of_message = divide_lanes(of_quotient, divisor)
            of_divisor = divide_lanes(load_lanes(quotients, target_row, count), divisor)
            of_gate = subtract_lanes(zero, multiply_lanes(of_quotient, of_divisor))
            if updates:
                a = load_lanes(norm, channel, count)
                b = load_lanes(norm, d + channel, count)
                middle = load_lanes(norm, 2 * d + channel, count)
                offset = load_lanes(norm, 3 * d + channel, count)
                slope = load_lanes(norm, 4 * d + channel, count)
            else:
                a = zero
                b = zero
                middle = zero
                offset = zero
                slope = zero
            total = zero
            for entry in range(node * k, (node + 1) * k):
                source = np.int64(sources[entry])
                edge = entry * d + channel
                result = edge - first_edge * d
                prefetch(pre, edge + PREFETCH_DISTANCE * d)
                prefetch(grad, edge + PREFETCH_DISTANCE * d)
                prefetch(grad_pre, result + PREFETCH_DISTANCE * d)

                # 1. Backpropagate through the sums and the gate.
                z = load_lanes(pre, edge, count)
                opened = sigmoid(z)
                slope_of_gate = multiply_lanes(opened, subtract_lanes(one, opened))
                sent = load_lanes(message, source * d + channel, count)
                of_opened = add_lanes(of_gate, multiply_lanes(of_message, sent))
                g = multiply_lanes(slope_of_gate, of_opened)

                # 2. Backpropagate through dropout, ReLU and norm of the new edges.
                if updates:
                    y = add_lanes(multiply_lanes(z, a), b)
                    passed = where_above(y, zero, load_lanes(grad, edge, count))
                    if dropped > 0:
                        passed = multiply_lanes(drop_lanes(seed, edge, dropped, passed), scale)
                    through = subtract_lanes(multiply_lanes(a, passed), offset)
                    g = add_lanes(
                        g, subtract_lanes(through, multiply_lanes(slope, subtract_lanes(z, middle)))
                    )
                store_lanes(grad_pre, result, count, g)
                total = add_lanes(total, g)

                # 3. Sum at the source.
                row = (source - first) * width + channel
                store_lanes(
                    grad_source, row, LANES, add_lanes(load_lanes(grad_source, row, LANES), g)
                )
                grad_edge = add_lanes(
                    load_lanes(grad_message, row, LANES), multiply_lanes(opened, of_message)
                )
                store_lanes(grad_message, row, LANES, grad_edge)
            store_lanes(grad_target, target_row, count, total)
