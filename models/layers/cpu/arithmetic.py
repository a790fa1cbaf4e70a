"""Arithmetic of message passing on 16 channels at a time, as SIMD registers in compiled kernels.

Channels come in groups of 16, the last of which may be short: ``count`` says how many of the lanes are
there. Lanes that are not are zero when loaded, and are not stored.
"""

# ruff: noqa: ARG001 -- numba calls intrinsics and their code generators with fixed arguments

from __future__ import annotations

from typing import Any

from llvmlite import ir

from kmip_data.models.search.cpu.lanes import Lanes, binary, broadcast, cgutils, llvm, primitive, types

LANES = 16

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_KIND = Lanes(types.float32)


def _every(value: float) -> Any:
    return ir.Constant(_FLOATS, [float(value)] * LANES)


def _every_integer(value: int) -> Any:
    return ir.Constant(_INTEGERS, [value] * LANES)


_NUMBERS = ir.Constant(_INTEGERS, list(range(LANES)))


def _there(builder: Any, count: Any) -> Any:
    """Mask of the first ``count`` lanes."""
    limit = broadcast(builder, builder.trunc(count, ir.IntType(32)), LANES)
    return builder.icmp_signed("<", _NUMBERS, limit)


def _place(context: Any, builder: Any, kind: Any, array: Any, start: Any) -> Any:
    data = cgutils.create_struct_proxy(kind)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [start]), _FLOATS.as_pointer())


_ALIGNED = ir.Constant(ir.IntType(32), 4)


@primitive
def load(typing: Any, array: Any, start: Any, count: Any) -> Any:
    """The first ``count`` elements from ``start`` of a flat float32 array; nothing checks that they exist."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1])
        there = _there(builder, args[2])
        return llvm(builder, "masked.load.v16f32.p0", _FLOATS, [place, _ALIGNED, there, _every(0)])

    return _KIND(array, types.int64, types.int64), generate


@primitive
def store(typing: Any, array: Any, start: Any, count: Any, lanes: Any) -> Any:
    """Write the first ``count`` lanes to the elements from ``start`` of a flat float32 array."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1])
        there = _there(builder, args[2])
        llvm(builder, "masked.store.v16f32.p0", ir.VoidType(), [args[3], place, _ALIGNED, there])
        return context.get_dummy_value()

    return types.none(array, types.int64, types.int64, _KIND), generate


_MAY_FUSE = ("contract",)
#: ``a + b``; with a product, rounded once where the processor can
plus = binary(lambda builder, a, b: builder.fadd(a, b, flags=_MAY_FUSE))
minus = binary(lambda builder, a, b: builder.fsub(a, b, flags=_MAY_FUSE))  #: ``a − b``
times = binary(lambda builder, a, b: builder.fmul(a, b, flags=_MAY_FUSE))  #: ``a · b``

_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.44269504088896341, 0.693359375, -2.12194440e-4
_ROUND = 12582912.0  # 1.5 · 2²³: adding it leaves the nearest whole number in the low bits
# exp(r) = 1 + r + r²(½ + …) for |r| ≤ ln 2 / 2, to 2 units in the last place (Cephes, expf)
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
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

    The chance of an element is a hash of its number and the 64 bits of ``seed``, so that it can be asked
    for again, in any order: Wellons' "triple32", with half of the seed before its first round of
    multiplication and half before its second. It is dropped where the hash is below ``dropped``, of 2³².
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
