"""SIMD registers as values in compiled kernels: 16 of 32 bits or 8 of 64, one cache line each.

LLVM vectorises plain loops of the search only behind overlap checks, and never those that look for
the few lanes above a threshold (ADR 0100). These functions are explicit; a processor with narrower
registers uses two or four for one.
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
from numba.extending import intrinsic, register_model

# Numba is partly typed, but not for intrinsics inside kernels.
cgutils: Any = numba.core.cgutils
types: Any = numba.types
Pointer: TypeAlias = Any  #: result of :func:`pointer`, in a kernel
Register: TypeAlias = Any  #: result of :func:`load` or :data:`splat`, in a kernel
Builder: TypeAlias = Any  #: LLVM's builder of instructions, in a code generator
Value: TypeAlias = Any  #: LLVM's value or type, in a code generator
#: Kernels call these with other arguments than the code generator's.
primitive: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic

_WHOLE = ir.IntType(64)
_HALF = ir.IntType(32)
_REAL = ir.FloatType()
_LLVM = {
    types.float32: _REAL,
    types.float64: ir.DoubleType(),
    types.int32: _HALF,
    types.int64: _WHOLE,
}
_LINE = 512  # bits


class Lanes(numba.types.Type):
    """Numba's type of a register."""

    def __init__(self, element: Value) -> None:
        self.element = element
        self.count = _LINE // element.bitwidth
        super().__init__(f"lanes({element})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Value, kind: Lanes) -> None:
        vector = ir.VectorType(_LLVM[kind.element], kind.count)
        super().__init__(manager, kind, vector)


@primitive
def pointer(typing, array):
    """Where the elements of a contiguous array begin.

    ``p[i]`` reads and writes them, counted from the front.

    Passing arrays to functions or loops counts references by atomic instructions (measured: half of
    the search's time); pointers do not. :func:`hold` the array to the end.
    """

    def generate(context, builder, signature, args):
        proxy = cgutils.create_struct_proxy(signature.args[0])
        return proxy(context, builder, value=args[0]).data

    return types.CPointer(array.dtype)(array), generate


@primitive
def hold(typing, array):
    """Keep an array alive up to this call, as a pointer does not."""

    def generate(context, builder, signature, args):
        return context.get_dummy_value()

    return types.none(array), generate


def _address(builder: Builder, data: Value, start: Value, vector: Value) -> Value:
    element = builder.gep(data, [start])
    return builder.bitcast(element, vector.as_pointer())


@primitive
def load(typing, data, start):
    """Read the elements ``start`` … behind a pointer; without bounds checks."""
    kind = Lanes(data.dtype)

    def generate(context, builder, signature, args):
        vector = context.get_value_type(kind)
        register = builder.load(_address(builder, args[0], args[1], vector))
        # Rows begin at any element, so no more than an element's alignment may be promised.
        register.align = data.dtype.bitwidth // 8
        return register

    return kind(data, types.int64), generate


@primitive
def store(typing, data, start, lanes):
    """Write a register to the elements ``start`` … behind a pointer."""

    def generate(context, builder, signature, args):
        target = _address(builder, args[0], args[1], args[2].type)
        written = builder.store(args[2], target)
        written.align = data.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.none(data, types.int64, lanes), generate


def broadcast(builder: Builder, value: Value, count: int) -> Value:
    """Return a vector with ``count`` copies of a value."""
    undefined = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(undefined, value, _HALF(0))
    zeros = ir.Constant(ir.VectorType(_HALF, count), [0] * count)
    return builder.shuffle_vector(first, undefined, zeros)


def llvm(
    builder: Builder,
    name: str,
    result: Value,
    args: Sequence[Value],
    **options: Any,
) -> Value:
    """Call an LLVM intrinsic by name."""
    kind = ir.FunctionType(result, [value.type for value in args])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}")
    return builder.call(function, args, **options)


@primitive
def multiply_add(typing, a, b, c):
    """``a · b + c``, rounded once where the processor can, else twice."""

    def generate(context, builder, signature, args):
        name = f"fmuladd.v{a.count}f{a.element.bitwidth}"
        return llvm(builder, name, args[0].type, args)

    return a(a, b, c), generate


def _same(kind: Value) -> Value:
    return kind


def _whole(_kind: Value) -> Value:
    return types.int64


def unary(
    emit: Callable[..., Value],
    result: Callable[[Value], Value] = _same,
    of: Value = None,
) -> Callable[..., Any]:
    """Make a unary kernel function of a value converted to type ``of``; see :func:`binary`."""

    def typed(typing, a):
        def generate(context, builder, signature, args):
            return emit(builder, *args)

        return result(a)(of or a), generate

    return primitive(typed)


def binary(
    emit: Callable[..., Value], result: Callable[[Value], Value] = _same
) -> Callable[..., Any]:
    """Make a kernel function of two registers from ``emit(builder, a, b)``, typed by ``result``."""

    def typed(typing, a, b):
        def generate(context, builder, signature, args):
            return emit(builder, *args)

        return result(a)(a, b), generate

    return primitive(typed)


def _mask(compare: str, sign: str) -> Callable[..., Any]:
    def emit(builder, a, b):
        holds = getattr(builder, compare)(sign, a, b)
        bits = builder.bitcast(holds, ir.IntType(a.type.count))
        return builder.zext(bits, _WHOLE)

    return binary(emit, _whole)


def _choose(compare: str, sign: str) -> Callable[..., Value]:
    """Select ``a`` where the comparison with ``b`` holds, else ``b``, lane by lane."""

    def emit(builder, a, b):
        holds = getattr(builder, compare)(sign, a, b)
        return builder.select(holds, a, b)

    return emit


def _across(name: str) -> Callable[..., Any]:
    def emit(builder, a):
        function = f"vector.reduce.{name}.v{a.type.count}f32"
        # Without "nnan" each step looks for NaN.
        return llvm(builder, function, a.type.element, [a], fastmath=("nnan",))

    return unary(emit, lambda a: a.element)


def _of_bits(name: str, *more: Value) -> Callable[..., Any]:
    def emit(builder, mask):
        return llvm(builder, f"{name}.i64", _WHOLE, [mask, *more])

    return unary(emit, _whole, types.int64)


def _splat(builder, value):
    count = 16 if value.type in {_REAL, _HALF} else 8
    return broadcast(builder, value, count)


def _float_bits(builder, value):
    bits = builder.bitcast(value, _HALF)
    return builder.sext(bits, _WHOLE)


def _bits_float(builder, bits):
    half = builder.trunc(bits, _HALF)
    return builder.bitcast(half, _REAL)


_REALS = "fcmp_ordered"
_WHOLES = "icmp_signed"
_LARGER = _choose(_WHOLES, ">")
_SMALLER = _choose(_WHOLES, "<")

#: A register whose lanes all hold a value.
splat = unary(_splat, Lanes)
#: Bit i of an int64: lane i of ``a`` is ≥ that of ``b``; not for NaN.
at_least = _mask(_REALS, ">=")
#: Bit i of an int64: lane i of ``a`` is > that of ``b``; integers.
above = _mask(_WHOLES, ">")
#: The larger, lane by lane; ``b`` where ``a`` is NaN.
maximum = binary(_choose(_REALS, ">"))
#: The smaller, lane by lane; ``b`` where ``a`` is NaN.
minimum = binary(_choose(_REALS, "<"))
#: The larger, lane by lane; integers.
larger = binary(_LARGER)
#: The smaller, lane by lane; integers.
smaller = binary(_SMALLER)
#: Largest lane of float32 without NaN.
largest_lane = _across("fmax")
#: Smallest lane of float32 without NaN.
smallest_lane = _across("fmin")
#: Number of the lowest bit set; not of 0.
lowest_bit = _of_bits("cttz", ir.Constant(ir.IntType(1), 1))
#: Number of bits set.
count_bits = _of_bits("ctpop")
#: The 32 bits of a float32 as a signed integer.
float_bits = unary(_float_bits, _whole, types.float32)
#: The float32 whose bits are the low 32 of an integer.
bits_float = unary(_bits_float, lambda _: types.float32, types.int64)


@primitive
def as_floats(typing, a):
    """Lanes of int32 as float32."""
    kind = Lanes(types.float32)

    def generate(context, builder, signature, args):
        return builder.sitofp(args[0], context.get_value_type(kind))

    return kind(a), generate


def multiplies_bytes() -> bool:
    """True if kernels are compiled for a processor with :func:`add_byte_products`, AVX-512 VNNI."""
    return processor_has("avx512vnni")


@functools.cache
def processor_has(feature: str) -> bool:
    """True if kernels are compiled for a processor with one of LLVM's features."""
    codegen = numba.core.registry.cpu_target.target_context.codegen()
    features: str = codegen.magic_tuple()[2]
    return f"+{feature}" in features.split(",")


@primitive
def add_byte_products(typing, sums, unsigned, signed):
    """``sums`` plus the products of the four bytes of each int32 of ``unsigned`` and ``signed``."""

    def generate(context, builder, signature, args):
        return llvm(builder, "x86.avx512.vpdpbusd.512", args[0].type, args)

    return sums(sums, unsigned, signed), generate


@primitive
def add_products(typing, sums, keys, rows, column, query, start, count):
    """``sums`` plus the products of ``count`` ≤ 8 columns of eight keys with those of a query, in their order.

    Float64; ``rows`` points to where the keys begin, ``column`` is added, and the query's columns
    begin at ``start``.
    """
    kind = ir.VectorType(ir.DoubleType(), 8)

    def generate(context, builder, signature, args):
        total, data, rows, column, query, start, count = args
        numbers = ir.Constant(ir.VectorType(_WHOLE, 8), list(range(8)))
        mask = builder.icmp_signed("<", numbers, broadcast(builder, count, 8))
        rest = ir.Constant(ir.VectorType(_REAL, 8), [0.0] * 8)
        narrow = rest.type

        def widened(data, start):
            address = _address(builder, data, start, narrow)
            name = "masked.load.v8f32.p0v8f32"
            align = ir.Constant(_HALF, 4)
            return builder.fpext(llvm(builder, name, narrow, [address, align, mask, rest]), kind)

        # 1. Products of each key, which are exact.
        factors = widened(query, start)
        lines = []
        for i in range(8):
            row = builder.load(builder.gep(rows, [_WHOLE(i)]))
            lines.append(builder.fmul(widened(data, builder.add(row, column)), factors))

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

        # 3. Add column after column.
        for line in lines:
            total = builder.fadd(total, line)
        return total

    args = (sums, keys, rows, types.int64, query, types.int64, types.int64)
    return sums(*args), generate


@primitive
def as_scores(typing, sums):
    """Round float64 sums to float32, −0 to +0, in the lower half of a register of 16."""
    kind = Lanes(types.float32)
    half = ir.VectorType(_REAL, 8)

    def generate(context, builder, signature, args):
        scores = builder.fptrunc(args[0], half)
        zeros = ir.Constant(half, [0.0] * 8)
        scores = builder.fadd(scores, zeros)
        order = ir.Constant(ir.VectorType(_HALF, 16), list(range(16)))
        return builder.shuffle_vector(scores, zeros, order)

    return kind(sums), generate


@primitive
def store_passing(typing, data, start, first, values, least):
    """Write the numbers ``first`` … of the lanes of ``values`` that reach ``least``; count them.

    Only with AVX-512. All 16 elements behind ``start`` are overwritten.
    """

    def generate(context, builder, signature, args):
        data, start, first, values, least = args
        kind = ir.VectorType(_HALF, 16)
        mask = builder.fcmp_ordered(">=", values, least)
        lane = ir.Constant(kind, list(range(16)))
        number = builder.add(broadcast(builder, builder.trunc(first, _HALF), 16), lane)
        packed = llvm(builder, "x86.avx512.mask.compress.v16i32", kind, [number, number, mask])
        written = builder.store(packed, _address(builder, data, start, kind))
        written.align = 4
        bits = builder.zext(builder.bitcast(mask, ir.IntType(16)), _WHOLE)
        return llvm(builder, "ctpop.i64", _WHOLE, [bits])

    return types.int64(data, types.int64, types.int64, values, least), generate


@primitive
def packed(typing, sums, low):
    """Round float64 sums to float32 (−0 to +0), and pack them as int64 of the same order above ``low``."""
    kind = Lanes(types.int64)
    reals = ir.VectorType(_REAL, sums.count)
    halves = ir.VectorType(_HALF, sums.count)
    wholes = ir.VectorType(_WHOLE, sums.count)

    def constant(kind, value):
        return ir.Constant(kind, [value] * sums.count)

    def generate(context, builder, signature, args):
        # 1. Round once; adding +0 turns −0 into +0, so that both rank alike.
        scores = builder.fadd(builder.fptrunc(args[0], reals), constant(reals, 0.0))
        # 2. Invert the magnitude of negative numbers: their bits then order as the numbers do.
        bits = builder.bitcast(scores, halves)
        sign = builder.ashr(bits, constant(halves, 31))
        flip = builder.and_(sign, constant(halves, 0x7FFFFFFF))
        ordered = builder.zext(builder.xor(bits, flip), wholes)
        # 3. The score goes into the high half, the row into the low one.
        high = builder.shl(ordered, constant(wholes, 32))
        return builder.or_(high, args[1])

    return kind(sums, low), generate


def _network(*phases: list[tuple[int, int]]) -> Callable[..., Any]:
    """Apply a compare-exchange network, larger first, to 16 consecutive registers of int64.

    A second phase first takes 16 more registers, each the larger of its old value and the last,
    last but one … of the first phase.
    """

    def generate(context, builder, signature, args):
        kind = context.get_value_type(Lanes(types.int64))
        rows: list[Value] = []
        for phase, data, start in zip(phases, args[::2], args[1::2], strict=True):
            # 1. Load 16 registers: all stay in registers for the phase, none is stored between
            #    exchanges.
            before = rows[::-1]
            addresses = []
            rows = []
            for i in range(16):
                first = builder.add(start, start.type(i * kind.count))
                address = _address(builder, data, first, kind)
                row = builder.load(address)
                row.align = 8
                addresses.append(address)
                rows.append(row)

            # 2. Two sorted runs, one of them reversed: the larger of each pair are the best 16 of
            #    the 32.
            if before:
                pairs = zip(rows, before, strict=True)
                rows = [_LARGER(builder, a, b) for a, b in pairs]

            # 3. The network's comparisons: as many instructions for any data, and no branch.
            for a, b in phase:
                high = _LARGER(builder, rows[a], rows[b])
                low = _SMALLER(builder, rows[a], rows[b])
                rows[a] = high
                rows[b] = low

        for address, row in zip(addresses, rows, strict=True):
            written = builder.store(row, address)
            written.align = 8
        return context.get_dummy_value()

    def once(typing, data, start):
        return types.none(data, types.int64), generate

    def twice(typing, data, start, to, offset):
        return types.none(data, types.int64, to, types.int64), generate

    return once if len(phases) == 1 else twice


def _odd_even(count: int) -> list[tuple[int, int]]:
    """Batcher's odd-even merge sort: pairs to compare, 63 for 16."""
    pairs = []
    width = 1
    while width < count:
        step = width
        while step:
            for first in range(step % width, count - step, 2 * step):
                for i in range(first, min(first + step, count - step)):
                    if i // (2 * width) == (i + step) // (2 * width):
                        pairs.append((i, i + step))  # noqa: PERF401 -- three conditions deep
            step //= 2
        width *= 2
    return pairs


def _halves(count: int) -> list[tuple[int, int]]:
    """Comparisons that sort a bitonic sequence."""
    pairs = []
    step = count // 2
    while step:
        pairs += [(i, i + step) for i in range(count) if not i & step]
        step //= 2
    return pairs


#: Sort 16 registers lane by lane, the largest first.
sort_16 = primitive(_network(_odd_even(16)))
#: Sort 16 registers and merge them into 16 sorted ones, of which the largest 16 stay.
absorb_16 = primitive(_network(_odd_even(16), _halves(16)))
#: Sort 16 registers whose lanes fall and then rise, or rise and fall.
merge_16 = primitive(_network(_halves(16)))
