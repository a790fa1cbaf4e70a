"""SIMD registers as values in compiled kernels: 16 float32 or 8 of 64 bits, one cache line each.

LLVM turns plain loops of the search into such code only behind checks whether arrays overlap, and never
the ones that look for the few lanes above a threshold (ADR 0100). These functions say it outright; a
processor with narrower registers takes two or four for one.
"""

# ruff: noqa: ARG001 -- numba prescribes the arguments

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba.core.cgutils
import numba.types
from llvmlite import ir
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

# Numba is typed in part, and not for what a kernel sees of an intrinsic.
cgutils: Any = numba.core.cgutils
types: Any = numba.types
#: What kernels call has other arguments than its code generator.
primitive: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic

_WHOLE = ir.IntType(64)
_HALF = ir.IntType(32)
_REAL = ir.FloatType()
_LLVM = {types.float32: _REAL, types.float64: ir.DoubleType(), types.int64: _WHOLE}
_LINE = 512  # bits


class Lanes(numba.types.Type):
    """Numba's type of a register."""

    def __init__(self, element: Any) -> None:
        self.element = element
        self.count = _LINE // element.bitwidth
        super().__init__(f"lanes({element})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes) -> None:
        vector = ir.VectorType(_LLVM[kind.element], kind.count)
        super().__init__(manager, kind, vector)  # type: ignore[no-untyped-call]


@primitive
def pointer(typing: Any, array: Any) -> Any:
    """Where the elements of a contiguous array begin; ``p[i]`` reads and writes them, counted from the front.

    Arrays that go from function to function, or into a loop, have their references counted by atomic
    instructions (measured: half of the search's time); pointers do not. :func:`hold` the array to the end.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.create_struct_proxy(signature.args[0])(context, builder, value=args[0]).data

    return types.CPointer(array.dtype)(array), generate


@primitive
def hold(typing: Any, array: Any) -> Any:
    """Keep an array alive up to here: a pointer to it does not."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_dummy_value()

    return types.none(array), generate


def _place(builder: Any, data: Any, start: Any, vector: Any) -> Any:
    return builder.bitcast(builder.gep(data, [start]), vector.as_pointer())


@primitive
def load(typing: Any, data: Any, start: Any) -> Any:
    """The elements ``start`` … behind a pointer; without bounds checks."""
    kind = Lanes(data.dtype)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(_place(builder, args[0], args[1], context.get_value_type(kind)))
        found.align = data.dtype.bitwidth // 8
        return found

    return kind(data, types.int64), generate


@primitive
def store(typing: Any, data: Any, start: Any, lanes: Any) -> Any:
    """Write a register to the elements ``start`` … behind a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = _place(builder, args[0], args[1], args[2].type)
        builder.store(args[2], target).align = data.dtype.bitwidth // 8
        return context.get_dummy_value()

    return types.none(data, types.int64, lanes), generate


def broadcast(builder: Any, value: Any, count: int) -> Any:
    """A vector of ``count`` times the same value."""
    nothing = ir.Constant(ir.VectorType(value.type, count), ir.Undefined)
    first = builder.insert_element(nothing, value, _HALF(0))
    zeros = ir.Constant(ir.VectorType(_HALF, count), [0] * count)
    return builder.shuffle_vector(first, nothing, zeros)


def llvm(builder: Any, name: str, result: Any, args: Sequence[Any], **options: Any) -> Any:
    """Call LLVM's function of that name."""
    kind = ir.FunctionType(result, [value.type for value in args])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}")
    return builder.call(function, args, **options)


@primitive
def multiply_add(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """``a · b + c``, rounded once where the processor can, else twice."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return llvm(builder, f"fmuladd.v{a.count}f{a.element.bitwidth}", args[0].type, args)

    return a(a, b, c), generate


def unary(emit: Any, result: Callable[[Any], Any] = lambda a: a, of: Any = None) -> Any:
    """Make a kernel's function of one value, converted to the type ``of``; as :func:`binary`."""

    def typed(typing: Any, a: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(builder, *args)

        return result(a)(of or a), generate

    return primitive(typed)


def binary(emit: Any, result: Callable[[Any], Any] = lambda a: a) -> Any:
    """Make a kernel's function of two registers: ``emit(builder, a, b)``, typed by ``result`` from theirs."""

    def typed(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return emit(builder, *args)

        return result(a)(a, b), generate

    return primitive(typed)


def _mask(compare: str, sign: str) -> Any:
    def emit(builder: Any, a: Any, b: Any) -> Any:
        holds = getattr(builder, compare)(sign, a, b)
        return builder.zext(builder.bitcast(holds, ir.IntType(a.type.count)), _WHOLE)

    return binary(emit, lambda _: types.int64)


def _choose(compare: str, sign: str) -> Callable[[Any, Any, Any], Any]:
    """LLVM's choice of ``a`` where it compares so with ``b``, else of ``b``, lane by lane."""
    return lambda builder, a, b: builder.select(getattr(builder, compare)(sign, a, b), a, b)


def _across(name: str) -> Any:
    def emit(builder: Any, a: Any) -> Any:
        # Without "nnan" each step looks for NaN.
        full = f"vector.reduce.{name}.v{a.type.count}f32"
        return llvm(builder, full, a.type.element, [a], fastmath=("nnan",))

    return unary(emit, lambda a: a.element)


def _of_bits(name: str, *more: Any) -> Any:
    def emit(builder: Any, mask: Any) -> Any:
        return llvm(builder, f"{name}.i64", _WHOLE, [mask, *more])

    return unary(emit, lambda _: types.int64, types.int64)


#: A register whose lanes all hold a value.
splat = unary(lambda builder, a: broadcast(builder, a, 16 if a.type == _REAL else 8), Lanes)
_REALS = "fcmp_ordered"
_WHOLES = "icmp_signed"
_LARGER = _choose(_WHOLES, ">")
_SMALLER = _choose(_WHOLES, "<")
minus = binary(lambda builder, a, b: builder.fsub(a, b))  #: ``a − b``
times = binary(lambda builder, a, b: builder.fmul(a, b))  #: ``a · b``
square_root = unary(
    lambda builder, a: llvm(builder, f"sqrt.v{a.type.count}f32", a.type, [a])
)  #: of float32
at_least = _mask(
    _REALS, ">="
)  #: bit i of an int64: lane i of ``a`` is ≥ that of ``b``; not for NaN
above = _mask(_WHOLES, ">")  #: bit i of an int64: lane i of ``a`` is > that of ``b``; integers
maximum = binary(_choose(_REALS, ">"))  #: the larger, lane by lane; ``b`` where ``a`` is NaN
minimum = binary(_choose(_REALS, "<"))  #: the smaller, lane by lane; ``b`` where ``a`` is NaN
larger = binary(_LARGER)  #: the larger, lane by lane; integers
smaller = binary(_SMALLER)  #: the smaller, lane by lane; integers
largest_lane = _across("fmax")  #: of float32, without NaN
smallest_lane = _across("fmin")  #: of float32, without NaN
lowest_bit = _of_bits(
    "cttz", ir.Constant(ir.IntType(1), 1)
)  #: number of the lowest bit set; not of 0
count_bits = _of_bits("ctpop")  #: how many bits are set
#: The 32 bits of a float32 as a signed integer, and the float32 whose bits are the low 32 of an integer.
float_bits = unary(
    lambda b, x: b.sext(b.bitcast(x, _HALF), _WHOLE), lambda _: types.int64, types.float32
)
bits_float = unary(
    lambda b, x: b.bitcast(b.trunc(x, _HALF), _REAL), lambda _: types.float32, types.int64
)


@primitive
def where_at_least(typing: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """``yes`` where ``a`` ≥ ``b``, else ``no``, lane by lane."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">=", *args[:2]), *args[2:])

    return yes(a, b, yes, no), generate


@primitive
def packed(typing: Any, sums: Any, low: Any) -> Any:
    """Float64 sums rounded to float32, as int64 of the same order above the 32 bits of ``low``; −0 as +0."""
    kind = Lanes(types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        reals, halves, wholes = (ir.VectorType(each, sums.count) for each in (_REAL, _HALF, _WHOLE))

        def constant(kind: Any, value: Any) -> Any:
            return ir.Constant(kind, [value] * sums.count)

        scores = builder.fadd(builder.fptrunc(args[0], reals), constant(reals, 0.0))
        bits = builder.bitcast(scores, halves)
        flip = builder.and_(builder.ashr(bits, constant(halves, 31)), constant(halves, 0x7FFFFFFF))
        wide = builder.zext(builder.xor(bits, flip), wholes)
        return builder.or_(builder.shl(wide, constant(wholes, 32)), args[1])

    return kind(sums, low), generate


def _network(*phases: Any) -> Callable[..., Any]:
    """Compare and exchange 16 registers of int64, in a row behind a pointer, so that the larger goes first.

    A second phase first takes 16 more registers, each the larger of what is there and the last, last but one
    … of the first phase.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(Lanes(types.int64))
        rows: list[Any] = []
        for phase, data, start in zip(phases, args[::2], args[1::2], strict=True):
            starts = (builder.add(start, start.type(i * kind.count)) for i in range(16))
            at = [_place(builder, data, each, kind) for each in starts]
            before = rows[::-1]
            rows = [builder.load(place) for place in at]
            for row in rows:
                row.align = 8
            if before:
                rows = [_LARGER(builder, a, b) for a, b in zip(rows, before, strict=True)]
            for a, b in phase:
                rows[a], rows[b] = (
                    choose(builder, rows[a], rows[b]) for choose in (_LARGER, _SMALLER)
                )
        for place, row in zip(at, rows, strict=True):
            builder.store(row, place).align = 8
        return context.get_dummy_value()

    def once(typing: Any, data: Any, start: Any) -> Any:
        return types.none(data, types.int64), generate

    def twice(typing: Any, data: Any, start: Any, to: Any, place: Any) -> Any:
        return types.none(data, types.int64, to, types.int64), generate

    return once if len(phases) == 1 else twice


def _odd_even(count: int) -> list[tuple[int, int]]:
    """Batcher's odd-even merge sort: pairs to compare, 63 for 16."""
    pairs = []
    width = 1
    while width < count:
        step = width
        while step:
            pairs += [
                (i, i + step)
                for first in range(step % width, count - step, 2 * step)
                for i in range(first, min(first + step, count - step))
                if i // (2 * width) == (i + step) // (2 * width)
            ]
            step //= 2
        width *= 2
    return pairs


def _halves(count: int) -> list[tuple[int, int]]:
    """Pairs to compare that sort what falls and then rises."""
    steps = [count >> i for i in range(1, count.bit_length())]
    return [(i, i + step) for step in steps for i in range(count) if not i & step]


sort_16 = primitive(_network(_odd_even(16)))  #: sort 16 registers lane by lane, the largest first
absorb_16 = primitive(_network(_odd_even(16), _halves(16)))
merge_16 = primitive(
    _network(_halves(16))
)  #: the same, for lanes that fall and then rise, or rise and fall
