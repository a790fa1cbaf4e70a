"""Compiled passes over the edges of a neighbour table, for GatedGCN.

Arrays are flat float32; node i's channels begin at ``i · d``, those of its edge in slot s at
``(i · k + s) · d``. A kernel works on the nodes ``start`` to ``stop``, 16 channels at a time, so a node's
edges stay in the cache between two looks at them. What it writes for a node does not depend on the range.
Nothing is checked: the table must name nodes that are there.

The last group of 16 channels may be short: ``count`` says how many of the lanes of its SIMD register are
there. Lanes that are not are zero when loaded, and are not stored.
"""

# ruff: noqa: ARG001 -- numba calls intrinsics and their code generators with fixed arguments
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from kmip_data.arrays import F32, I32, I64
from kmip_data.models.search.cpu.lanes import (
    Lanes,
    binary,
    broadcast,
    cgutils,
    llvm,
    primitive,
    splat,
    types,
)
from kmip_data.runtime.threads import njit_nogil

LANES = 16

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_KIND = Lanes(types.float32)


_NUMBERS = ir.Constant(_INTEGERS, list(range(LANES)))
_ALIGNED = ir.Constant(ir.IntType(32), 4)


def _every(value: float) -> Any:
    return ir.Constant(_FLOATS, [float(value)] * LANES)


def _every_integer(value: int) -> Any:
    return ir.Constant(_INTEGERS, [value] * LANES)


def _lanes(context: Any, builder: Any, signature: Any, args: Any) -> tuple[Any, Any]:
    """Address of an array's elements from ``start``, and mask of the first ``count`` lanes."""
    data = cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0]).data
    limit = broadcast(builder, builder.trunc(args[2], ir.IntType(32)), LANES)
    place = builder.bitcast(builder.gep(data, [args[1]]), _FLOATS.as_pointer())
    return place, builder.icmp_signed("<", _NUMBERS, limit)


@primitive
def load(typing: Any, array: Any, start: Any, count: Any) -> Any:
    """The first ``count`` elements from ``start`` of a flat float32 array; nothing checks that they exist."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, there = _lanes(context, builder, signature, args)
        return llvm(builder, "masked.load.v16f32.p0", _FLOATS, [place, _ALIGNED, there, _every(0)])

    return _KIND(array, types.int64, types.int64), generate


@primitive
def store(typing: Any, array: Any, start: Any, count: Any, lanes: Any) -> Any:
    """Write the first ``count`` lanes to the elements from ``start`` of a flat float32 array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, there = _lanes(context, builder, signature, args)
        llvm(builder, "masked.store.v16f32.p0", ir.VoidType(), [args[3], place, _ALIGNED, there])
        return context.get_dummy_value()

    return types.none(array, types.int64, types.int64, _KIND), generate


_MAY_FUSE = ("contract",)
#: ``a + b``; with a product, rounded once where the processor can
plus = binary(lambda builder, a, b: builder.fadd(a, b, flags=_MAY_FUSE))
minus = binary(lambda builder, a, b: builder.fsub(a, b, flags=_MAY_FUSE))  #: ``a − b``
times = binary(lambda builder, a, b: builder.fmul(a, b, flags=_MAY_FUSE))  #: ``a · b``

_LOG2_E = 1.44269504088896341
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_ROUND = 12582912.0  # 1.5 · 2²³: adding it leaves the nearest whole number in the low bits
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


@primitive
def sigmoid(typing: Any, lanes: Any) -> Any:
    """1 / (1 + e^−z), to a few units in the last place also where it is tiny (z > −87); NaN stays NaN."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def fused(a: Any, b: Any, c: Any) -> Any:
            return llvm(builder, "fmuladd.v16f32", _FLOATS, [a, b, c])

        z = builder.fsub(_every(-0.0), args[0])
        for sign, limit in ((">", _LARGEST), ("<", -_LARGEST)):
            z = builder.select(builder.fcmp_ordered(sign, z, _every(limit)), _every(limit), z)
        shifted = fused(z, _every(_LOG2_E), _every(_ROUND))
        whole = builder.fsub(shifted, _every(_ROUND))
        rest = fused(whole, _every(-_LN2_LOW), fused(whole, _every(-_LN2_HIGH), z))
        sum_ = _every(_EXP[0])
        for factor in _EXP[1:]:
            sum_ = fused(sum_, rest, _every(factor))
        small = builder.fadd(fused(builder.fmul(rest, rest), sum_, rest), _every(1))
        exponent = builder.add(builder.bitcast(shifted, _INTEGERS), _every_integer(127))
        power = builder.bitcast(builder.shl(exponent, _every_integer(23)), _FLOATS)
        return builder.fdiv(_every(1), fused(small, power, _every(1)))

    return _KIND(_KIND), generate


@primitive
def where_above(typing: Any, lanes: Any, limit: Any, value: Any) -> Any:
    """``value`` in the lanes that are above ``limit``, else 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], _every(0))

    return _KIND(_KIND, _KIND, _KIND), generate


@primitive
def where_drawn(typing: Any, seed: Any, number: Any, dropped: Any, value: Any) -> Any:
    """``value`` in the lanes that dropout keeps, else 0: lane i asks for element ``number + i``.

    The chance of an element is a hash of its number and the 64 bits of ``seed``, asked for again in any
    order: Wellons' "triple32", with half of the seed before its first round of multiplication and half
    before its second. It is dropped where the hash is below ``dropped``, of 2³².
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        seed, number, dropped, value = args
        word = ir.IntType(32)

        def mixed(lanes: Any, shift: int, factor: int) -> Any:
            lanes = builder.xor(lanes, builder.lshr(lanes, _every_integer(shift)))
            return builder.mul(lanes, _every_integer(factor))

        def high(value: Any) -> Any:
            return builder.trunc(builder.lshr(value, ir.Constant(value.type, 32)), word)

        # Numbers beyond 2³² differ in the second half of the seed.
        start = builder.add(broadcast(builder, builder.trunc(number, word), LANES), _NUMBERS)
        start = builder.xor(start, broadcast(builder, builder.trunc(seed, word), LANES))
        second = builder.add(high(seed), builder.mul(high(number), ir.Constant(word, 0x9E3779B9)))
        hashed = builder.xor(mixed(start, 17, 0xED5AD4BB), broadcast(builder, second, LANES))
        hashed = mixed(mixed(hashed, 11, 0xAC4C1B51), 15, 0x31848BAB)
        hashed = builder.xor(hashed, builder.lshr(hashed, _every_integer(14)))
        limit = broadcast(builder, builder.trunc(dropped, word), LANES)
        return builder.select(builder.icmp_unsigned("<", hashed, limit), _every(0), value)

    return _KIND(types.int64, types.int64, types.int64, _KIND), generate


Several = tuple[F32, ...]
Table = I32 | I64
Dropout = tuple[int, int, float]  #: seed, chance of 2³² (0: none), factor of what is kept


@njit_nogil()
def gate(
    start: int, stop: int, d: int, neighbor: Table, nodes: Several, pre: F32, add: bool, statistics: bool,
    results: Several,
) -> None:  # fmt: skip
    """Gate each edge, and sum messages and gates at the target.

    Of ``nodes`` = (at_target, at_source, message), ``pre`` becomes z = at_target of the target +
    at_source of the source, + what it held if ``add``. ``results`` are for each node Σ sigmoid(z) · message
    of the source, Σ sigmoid(z), and with ``statistics`` Σ z and Σ (z − mean of the node)².
    """
    at_target, at_source, message = nodes
    messages, gates, sums, squares = results
    k = neighbor.shape[1]
    share = splat(np.float32(1 / k))
    nothing = splat(np.float32(0))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            place = node * d + channel
            own = load(at_target, place, count)
            message_sum = nothing
            gate_sum = nothing
            total = nothing
            for slot in range(k):
                source = np.int64(neighbor[node, slot]) * d + channel
                edge = (node * k + slot) * d + channel
                z = plus(own, load(at_source, source, count))
                if add:
                    z = plus(z, load(pre, edge, count))
                store(pre, edge, count, z)
                total = plus(total, z)
                opened = sigmoid(z)
                gate_sum = plus(gate_sum, opened)
                message_sum = plus(message_sum, times(opened, load(message, source, count)))
            store(messages, place, count, message_sum)
            store(gates, place, count, gate_sum)
            if statistics:
                mean = times(total, share)
                square = nothing
                for slot in range(k):
                    away = minus(load(pre, (node * k + slot) * d + channel, count), mean)
                    square = plus(square, times(away, away))
                store(sums, place, count, total)
                store(squares, place, count, square)


@njit_nogil()
def update(
    start: int, stop: int, d: int, k: int, pre: F32, norm: F32, dropout: Dropout, old: F32, new: F32
) -> None:
    """New edge features: ``old`` + dropout(relu(factor · z + shift)).

    ``norm`` holds (d,) factors, then (d,) shifts. ``old`` has a row per edge, or one for all. ``new`` may
    be ``pre`` itself.
    """
    seed, dropped, kept_scale = dropout
    shared = old.shape[0] == d
    nothing = splat(np.float32(0))
    scale = splat(np.float32(kept_scale))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            a = load(norm, channel, count)
            b = load(norm, d + channel, count)
            for slot in range(k):
                edge = (node * k + slot) * d + channel
                y = plus(times(load(pre, edge, count), a), b)
                y = where_above(y, nothing, y)
                if dropped > 0:
                    y = times(where_drawn(seed, edge, dropped, y), scale)
                store(new, edge, count, plus(load(old, channel if shared else edge, count), y))


@njit_nogil()
def sum_gradients(
    start: int,
    stop: int,
    d: int,
    k: int,
    pre: F32,
    grad: F32,
    norm: F32,
    dropout: Dropout,
    results: Several,
) -> None:
    """For each node, Σ g and Σ g · (z − mean), g the gradient of what the norm gives.

    ``grad`` is that of :func:`update`'s ``new``; ``norm`` holds factors, shifts and means.
    """
    seed, dropped, kept_scale = dropout
    sums, products = results
    nothing = splat(np.float32(0))
    scale = splat(np.float32(kept_scale))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            a = load(norm, channel, count)
            b = load(norm, d + channel, count)
            middle = load(norm, 2 * d + channel, count)
            total = nothing
            product = nothing
            for slot in range(k):
                edge = (node * k + slot) * d + channel
                z = load(pre, edge, count)
                g = where_above(plus(times(z, a), b), nothing, load(grad, edge, count))
                if dropped > 0:
                    g = times(where_drawn(seed, edge, dropped, g), scale)
                total = plus(total, g)
                product = plus(product, times(g, minus(z, middle)))
            store(sums, node * d + channel, count, total)
            store(products, node * d + channel, count, product)


@njit_nogil()
def differentiate(
    start: int, stop: int, d: int, neighbor: Table, edges: Several, message: F32, grad_sums: Several,
    norm: F32, dropout: Dropout, results: Several, first: int, at_sources: Several,
) -> None:  # fmt: skip
    """Gradient of z for each edge, and its sums at targets and at sources.

    ``edges`` are (pre, grad), ``grad_sums`` the gradients of the messages and gates that :func:`gate`
    gives. Where grad, that of the new edges, is not empty, g is as in :func:`sum_gradients`, ``norm``
    holds factors, shifts, means, offsets and slopes, and z takes
    factor · g − offset − slope · (z − mean) besides. ``results`` are the gradient of z, from its
    beginning on, and that of at_target. Gradients of at_source and message are added to ``at_sources``,
    node i's to row ``i - first``, in the order of the edges.
    """
    seed, dropped, kept_scale = dropout
    pre, grad = edges
    grad_messages, grad_gates = grad_sums
    grad_pre, grad_target = results
    grad_source, grad_message = at_sources
    updates = grad.shape[0] > 0
    k = neighbor.shape[1]
    nothing = splat(np.float32(0))
    one = splat(np.float32(1))
    scale = splat(np.float32(kept_scale))
    for node in range(start, stop):
        for channel in range(0, d, LANES):
            count = min(LANES, d - channel)
            place = node * d + channel
            of_message = load(grad_messages, place, count)
            of_gate = load(grad_gates, place, count)
            if updates:
                a = load(norm, channel, count)
                b = load(norm, d + channel, count)
                middle = load(norm, 2 * d + channel, count)
                below = load(norm, 3 * d + channel, count)
                by = load(norm, 4 * d + channel, count)
            else:
                a = nothing
                b = nothing
                middle = nothing
                below = nothing
                by = nothing
            total = nothing
            for slot in range(k):
                source = np.int64(neighbor[node, slot])
                edge = (node * k + slot) * d + channel
                z = load(pre, edge, count)
                opened = sigmoid(z)
                slope_of_gate = times(opened, minus(one, opened))
                of_opened = plus(
                    of_gate, times(of_message, load(message, source * d + channel, count))
                )
                g = times(slope_of_gate, of_opened)
                if updates:
                    passed = where_above(plus(times(z, a), b), nothing, load(grad, edge, count))
                    if dropped > 0:
                        passed = times(where_drawn(seed, edge, dropped, passed), scale)
                    g = plus(g, minus(minus(times(a, passed), below), times(by, minus(z, middle))))
                store(grad_pre, edge - start * k * d, count, g)
                total = plus(total, g)
                row = (source - first) * d + channel
                store(grad_source, row, count, plus(load(grad_source, row, count), g))
                part = plus(load(grad_message, row, count), times(opened, of_message))
                store(grad_message, row, count, part)
            store(grad_target, place, count, total)
