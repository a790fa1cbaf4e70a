"""SIMD registers as values in compiled kernels: 16 lanes of 32 bits or 8 of 64, one cache line each.

LLVM vectorises the search's loops only after overlap checks, and never those that look for the few
lanes above a threshold (ADR 0100). These functions vectorise explicitly. A processor with narrower
registers uses two or four of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numba.core.cgutils
import numba.core.registry
import numba.types
from llvmlite import ir
from numba.core.datamodel import models
from numba.core.datamodel.registry import default_manager
from numba.extending import intrinsic, register_model

# Numba is partly typed, but not for intrinsics inside kernels.
types: Any = numba.types
Pointer: TypeAlias = Any  #: result of :func:`pointer_to_elements`, in a kernel
Register: TypeAlias = Any  #: result of :func:`load_lanes` or :data:`splat_lanes`, in a kernel
IRBuilder: TypeAlias = Any  #: LLVM's builder of instructions, in a code generator
Value: TypeAlias = Any  #: LLVM's value or type, in a code generator
Decorator: TypeAlias = Callable[[Callable[..., Value]], Callable[..., Any]]
#: Kernels call these with other arguments than the code generator's.
primitive: Decorator = intrinsic

_WHOLE = ir.IntType(64)
_HALF = ir.IntType(32)
_REAL = ir.FloatType()
_LLVM = {
    types.float32: _REAL,
    types.float64: ir.DoubleType(),
    types.int32: _HALF,
    types.int64: _WHOLE,
}
_LINE = 64  # bytes
#: Bytes of an element.
_SIZES = {_LLVM[element]: element.bitwidth // 8 for element in _LLVM}


class Lanes(numba.types.Type):
    """Numba's type of a register."""

    def __init__(self, element: Value) -> None:
        self.vector = vector_of(_LLVM[element])
        self.element = element
        super().__init__(f"lanes({element})")


def vector_of(element: Value) -> Value:
    """Return LLVM's type of a register of elements."""
    return ir.VectorType(element, _LINE // _SIZES[element])


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Value, lanes: Lanes) -> None:
        super().__init__(manager, lanes, lanes.vector)


def kernel_instruction(result: Callable[..., Value]) -> Decorator:
    """Return a decorator that makes a kernel function of a code generator ``emit(builder, *values)``.

    ``result(*operand_types)`` returns numba's signature; integer operands are int64.
    """

    def decorate(emit):
        @primitive
        @functools.wraps(emit)
        def typed(typing, *operand_types):
            def generate(context, builder, signature, values):
                value = emit(builder, *values)
                return context.get_dummy_value() if value is None else value

            operands = [
                types.int64 if isinstance(operand, types.Integer) else operand
                for operand in operand_types
            ]
            return result(*operands), generate

        return typed

    return decorate


#: Decorator of instructions whose result has the type of the first operand.
like_first = kernel_instruction(lambda *operand_types: operand_types[0](*operand_types))
_REALS = Lanes(types.float32)

#: Member of numba's array that holds the address of its elements.
DATA = default_manager[types.float32[::1]].get_field_position("data")


@kernel_instruction(lambda array: types.CPointer(array.dtype)(array))
def pointer_to_elements(builder, array):
    """Return a pointer to the elements of a contiguous array, indexed as ``p[i]``.

    Passing arrays to functions or loops counts references by atomic instructions, which took half of
    the search's time; pointers do not. :func:`keep_alive` must keep the array alive.
    """
    return builder.extract_value(array, DATA)


@kernel_instruction(types.none)
def keep_alive(builder, arrays):
    """Keep an array, or a tuple of arrays, alive until this call."""


def _vector_pointer(builder: IRBuilder, data: Value, start: Value, vector: Value) -> Value:
    element = builder.gep(data, [start])
    return builder.bitcast(element, vector.as_pointer())


def _load(builder, data, start):
    element = data.type.pointee
    register = builder.load(_vector_pointer(builder, data, start, vector_of(element)))
    # Rows may start at any element, so promise only an element's alignment.
    register.align = _SIZES[element]
    return register


def _store(builder, data, start, lanes) -> None:
    written = builder.store(lanes, _vector_pointer(builder, data, start, lanes.type))
    written.align = _SIZES[lanes.type.element]


@kernel_instruction(lambda data, start: Lanes(data.dtype)(data, start))
def load_lanes(builder, data, start):
    """Load a register from element ``start`` of a pointer, without bounds checks."""
    return _load(builder, data, start)


@kernel_instruction(types.none)
def store_lanes(builder, data, start, lanes):
    """Store a register from element ``start`` of a pointer on."""
    _store(builder, data, start, lanes)


def broadcast(builder: IRBuilder, value: Value, count: int) -> Value:
    """Return a vector with ``count`` copies of a value."""
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, _HALF(0))
    zeros = ir.Constant(ir.VectorType(_HALF, count), [0] * count)
    return builder.shuffle_vector(first, undefined, zeros)


def call_llvm_intrinsic(
    builder: IRBuilder, name: str, result: Value, args: Sequence[Value]
) -> Value:
    """Call an LLVM intrinsic by name."""
    function_type = ir.FunctionType(result, [value.type for value in args])
    function = numba.core.cgutils.get_or_insert_function(
        builder.module, function_type, f"llvm.{name}"
    )
    return builder.call(function, args)


@like_first
def multiply_add(builder, a, b, c):
    """Return ``a · b + c``, rounded once if the processor can, else twice."""
    name = f"fmuladd.v{a.type.count}{a.type.element.intrinsic_name}"
    return call_llvm_intrinsic(builder, name, a.type, [a, b, c])


def _comparison_mask(compare: str, sign: str) -> Callable[..., Any]:
    @kernel_instruction(types.int64)
    def mask(builder, a, b):
        holds = getattr(builder, compare)(sign, a, b)
        bits = builder.bitcast(holds, ir.IntType(a.type.count))
        return builder.zext(bits, _WHOLE)

    return mask


def _selection_by(compare: str, sign: str) -> Callable[..., Value]:
    """Return a code generator that selects ``a`` in lanes where the comparison holds, else ``b``."""

    def emit(builder, a, b):
        holds = getattr(builder, compare)(sign, a, b)
        return builder.select(holds, a, b)

    return emit


def _bit_count(name: str, *more: Value) -> Callable[..., Any]:
    @kernel_instruction(types.int64)
    def count(builder, mask):
        return call_llvm_intrinsic(builder, f"{name}.i64", _WHOLE, [mask, *more])

    return count


_LARGER = _selection_by("icmp_signed", ">")
_SMALLER = _selection_by("icmp_signed", "<")

#: Mask (int64) of the float lanes with ``a`` ≥ ``b``; false for NaN.
at_least = _comparison_mask("fcmp_ordered", ">=")
#: Mask (int64) of the integer lanes with ``a`` > ``b``.
above = _comparison_mask("icmp_signed", ">")
#: Larger float of each lane; ``b`` if ``a`` is NaN.
maximum = like_first(_selection_by("fcmp_ordered", ">"))
#: Larger integer of each lane.
larger = like_first(_LARGER)
#: Smaller integer of each lane.
smaller = like_first(_SMALLER)
#: Index of the lowest set bit; undefined for 0.
lowest_bit = _bit_count("cttz", ir.Constant(ir.IntType(1), 1))
#: Number of set bits.
count_bits = _bit_count("ctpop")


@primitive
def splat_lanes(typing, value):
    """Return a register with ``value`` in all lanes."""
    lanes = Lanes(value)

    def generate(context, builder, signature, args):
        return broadcast(builder, args[0], lanes.vector.count)

    return lanes(value), generate


@kernel_instruction(types.int64)
def bits_of_float(builder, value):
    """Return the 32 bits of a float32 as a signed integer."""
    bits = builder.bitcast(value, _HALF)
    return builder.sext(bits, _WHOLE)


@kernel_instruction(types.float32)
def float_of_bits(builder, bits):
    """Return the float32 whose bits are the low 32 of an integer."""
    half = builder.trunc(bits, _HALF)
    return builder.bitcast(half, _REAL)


@kernel_instruction(_REALS)
def floats_of_integers(builder, a):
    """Convert int32 lanes to float32."""
    return builder.sitofp(a, vector_of(_REAL))


def multiplies_bytes() -> bool:
    """True if kernels are compiled for a processor that supports :func:`add_byte_products`."""
    return processor_has("avx512vnni")


@functools.cache
def processor_has(feature: str) -> bool:
    """True if kernels are compiled for a processor with one of LLVM's features."""
    codegen = numba.core.registry.cpu_target.target_context.codegen()
    features: str = codegen.magic_tuple()[2]
    return f"+{feature}" in features.split(",")


@like_first
def add_byte_products(builder, sums, unsigned, signed):
    """Add the products of the four bytes in each int32 of ``unsigned`` and ``signed`` to ``sums``."""
    return call_llvm_intrinsic(
        builder, "x86.avx512.vpdpbusd.512", sums.type, [sums, unsigned, signed]
    )


@like_first
def add_products(builder, sums, keys, rows, column, query, start, count):
    """Add the products of ``count`` ≤ 8 columns of eight keys and a query to float64 ``sums``, in order.

    ``rows`` points to the offsets of the keys, to which ``column`` is added; the query's columns
    start at ``start``.
    """
    numbers = ir.Constant(ir.VectorType(_WHOLE, 8), list(range(8)))
    mask = builder.icmp_signed("<", numbers, broadcast(builder, count, 8))
    rest = ir.Constant(ir.VectorType(_REAL, 8), [0.0] * 8)
    narrow = rest.type

    def widened(data, start):
        address = _vector_pointer(builder, data, start, narrow)
        name = "masked.load.v8f32.p0v8f32"
        align = ir.Constant(_HALF, 4)
        return builder.fpext(
            call_llvm_intrinsic(builder, name, narrow, [address, align, mask, rest]), sums.type
        )

    # 1. Multiply each key, which is exact.
    factors = widened(query, start)
    lines = []
    for i in range(8):
        row = builder.load(builder.gep(rows, [_WHOLE(i)]))
        lines.append(builder.fmul(widened(keys, builder.add(row, column)), factors))

    # 2. Transpose, by halves of 2, 4 and 8: one lane per key.
    for step in (1, 2, 4):
        for i in range(8):
            if i & step:
                continue
            upper = [j + 8 - step if j & step else j for j in range(8)]
            lower = [j + 8 if j & step else j + step for j in range(8)]
            pair = lines[i], lines[i + step]
            for to, order in ((i, upper), (i + step, lower)):
                chosen = ir.Constant(ir.VectorType(_HALF, 8), order)
                lines[to] = builder.shuffle_vector(*pair, chosen)

    # 3. Add the columns in order.
    for line in lines:
        sums = builder.fadd(sums, line)
    return sums


@kernel_instruction(_REALS)
def round_to_scores(builder, sums):
    """Round float64 sums to float32, −0 to +0, in the lower half of a register of 16."""
    half = ir.VectorType(_REAL, 8)
    zeros = ir.Constant(half, [0.0] * 8)
    scores = builder.fadd(builder.fptrunc(sums, half), zeros)
    order = ir.Constant(ir.VectorType(_HALF, 16), list(range(16)))
    return builder.shuffle_vector(scores, zeros, order)


@kernel_instruction(types.int64)
def store_passing(builder, data, start, first, values, least):
    """Store the numbers, from ``first`` on, of the lanes of ``values`` that reach ``least``; count them.

    Requires AVX-512. All 16 elements from ``start`` on are overwritten.
    """
    vector_type = vector_of(_HALF)
    mask = builder.fcmp_ordered(">=", values, least)
    lane = ir.Constant(vector_type, list(range(16)))
    number = builder.add(broadcast(builder, builder.trunc(first, _HALF), 16), lane)
    packed = call_llvm_intrinsic(
        builder, "x86.avx512.mask.compress.v16i32", vector_type, [number, number, mask]
    )
    _store(builder, data, start, packed)
    bits = builder.zext(builder.bitcast(mask, ir.IntType(16)), _WHOLE)
    return call_llvm_intrinsic(builder, "ctpop.i64", _WHOLE, [bits])


@kernel_instruction(Lanes(types.int64))
def pack_scores(builder, sums, low):
    """Round float64 sums to float32 (−0 to +0), and pack them as int64 of the same order above ``low``."""
    reals = ir.VectorType(_REAL, 8)
    halves = ir.VectorType(_HALF, 8)

    def constant(vector_type, value):
        return ir.Constant(vector_type, [value] * 8)

    # 1. Round once; adding +0 turns −0 into +0, so that both rank equally.
    scores = builder.fadd(builder.fptrunc(sums, reals), constant(reals, 0.0))
    # 2. Invert the magnitude of negative numbers: their bits then order as the numbers do.
    bits = builder.bitcast(scores, halves)
    sign = builder.ashr(bits, constant(halves, 31))
    flip = builder.and_(sign, constant(halves, 0x7FFFFFFF))
    ordered = builder.zext(builder.xor(bits, flip), low.type)
    # 3. The score goes into the high half, the row into the low one.
    high = builder.shl(ordered, constant(low.type, 32))
    return builder.or_(high, low)


def _load_registers(builder, data, start):
    """Load 16 consecutive registers, so that none is stored between exchanges."""
    offsets = [builder.add(start, start.type(8 * i)) for i in range(16)]
    return [_load(builder, data, offset) for offset in offsets]


def _exchange_registers(builder, rows, pairs) -> None:
    """Compare and exchange pairs of int64 registers, the larger first, without a branch."""
    for a, b in pairs:
        high = _LARGER(builder, rows[a], rows[b])
        low = _SMALLER(builder, rows[a], rows[b])
        rows[a] = high
        rows[b] = low


def _exchange_and_store(builder, rows, pairs, data, start) -> None:
    _exchange_registers(builder, rows, pairs)
    for i, row in enumerate(rows):
        _store(builder, data, builder.add(start, start.type(8 * i)), row)


def _odd_even_pairs() -> list[tuple[int, int]]:
    """Return the 63 comparisons of Batcher's odd-even merge sort of 16."""
    pairs = []
    for width in (1, 2, 4, 8):
        step = width
        while step:
            for first in range(step % width, 16 - step, 2 * step):
                for i in range(first, first + step):
                    if i // (2 * width) == (i + step) // (2 * width):
                        pairs.append((i, i + step))  # noqa: PERF401 -- three conditions deep
            step //= 2
    return pairs


def _bitonic_pairs() -> list[tuple[int, int]]:
    """Return the comparisons that sort a bitonic sequence of 16."""
    pairs = []
    for step in (8, 4, 2, 1):
        pairs += [(i, i + step) for i in range(16) if not i & step]
    return pairs


@kernel_instruction(types.none)
def sort_16_registers(builder, data, start):
    """Sort 16 registers lane by lane, the largest first."""
    rows = _load_registers(builder, data, start)
    _exchange_and_store(builder, rows, _odd_even_pairs(), data, start)


@kernel_instruction(types.none)
def merge_16_registers(builder, data, start):
    """Sort 16 registers whose lanes are bitonic."""
    rows = _load_registers(builder, data, start)
    _exchange_and_store(builder, rows, _bitonic_pairs(), data, start)


@kernel_instruction(types.none)
def sort_and_merge_16(builder, data, start, best, to):
    """Sort 16 registers, and merge them into 16 sorted ones, keeping the largest 16."""
    fresh = _load_registers(builder, data, start)
    _exchange_registers(builder, fresh, _odd_even_pairs())
    # Two sorted runs, one of them reversed: the larger of each pair are the best 16 of the 32.
    pairs = zip(_load_registers(builder, best, to), reversed(fresh), strict=True)
    rows = [_LARGER(builder, a, b) for a, b in pairs]
    _exchange_and_store(builder, rows, _bitonic_pairs(), best, to)
