"""Product of the columns of two tall matrices on a CPU, as the gradient of a weight needs it.

oneDNN transposes one of them first, which takes as long as the product: 6,147 × 72 by 6,147 × 72 takes
0.56 ms of one core and 0.78 of two, these sums of rows in registers 0.33 and 0.26.
"""

from __future__ import annotations

import torch
from llvmlite import ir
from torch import Tensor

from kmip_data.arrays import F32
from kmip_data.models.search.cpu.lanes import (
    broadcast,
    cgutils,
    hold,
    llvm,
    pointer,
    primitive,
    processor_has,
    types,
)
from kmip_data.runtime.threads import for_ranges, njit_nogil

LANES = 16
#: Columns of the two matrices whose products stay in registers: 4 × 5 sums and 5 factors of 32.
HEIGHT = 4
WIDTH = 5 * LANES
#: Rows that stay in the cache while all columns are multiplied.
BLOCK = 64
#: Rows of a part at least and at most, and parts, for as many threads, as far as these allow.
LEAST = 1 << 10
MOST = 1 << 13
PARTS = 16

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_ALIGNED = ir.Constant(ir.IntType(32), 4)


def suits_processor() -> bool:
    """True if all sums stay in registers: those of AVX-512, 32 of 16 lanes."""
    return processor_has("avx512f")


def product_of_columns(a: Tensor, b: Tensor) -> Tensor:
    """``a``ᵀ · ``b``: (n, k), (n, m) float32 → (k, m), the same bits for any number of threads."""
    rows, height = a.shape
    width = b.shape[1]
    parts = max(1, min(rows // LEAST, PARTS), -(-rows // MOST))
    # Sums of columns that do not exist fill up the last registers.
    sums = torch.zeros(parts, -(-height // HEIGHT) * HEIGHT, -(-width // WIDTH) * WIDTH)
    arrays = [tensor.detach().contiguous().view(-1).numpy() for tensor in (a, b, sums)]

    def work(start: int, stop: int) -> None:
        _multiply(start, stop, parts, rows, height, width, *arrays)

    for_ranges(work, parts)
    return sums[:, :height, :width].sum(0)


@njit_nogil()
def _multiply(
    first: int, last: int, parts: int, rows: int, height: int, width: int, a: F32, b: F32, sums: F32
) -> None:
    """Add up the rows of the parts ``first`` to ``last``."""
    of_a = pointer(a)
    of_b = pointer(b)
    of_sums = pointer(sums)
    line = (width + WIDTH - 1) // WIDTH * WIDTH
    lines = (height + HEIGHT - 1) // HEIGHT * HEIGHT
    for part in range(first, last):
        end = rows * (part + 1) // parts
        for row in range(rows * part // parts, end, BLOCK):
            count = min(BLOCK, end - row)
            for right in range(0, width, WIDTH):
                for left in range(0, height, HEIGHT):
                    _add_products(
                        count,
                        (of_a, row * height + left, height, height - left),
                        (of_b, row * width + right, width, width - right),
                        (of_sums, (part * lines + left) * line + right, line),
                    )
    hold(a)
    hold(b)
    hold(sums)


@primitive
def _add_products(typing, count, left, right, sums):
    """Add the products of ``HEIGHT`` × ``WIDTH`` columns in ``count`` rows to ``sums``.

    ``left`` and ``right`` are where the columns begin, elements from row to row, and columns that
    exist; ``sums`` where sums begin, and elements from line to line.
    """

    def generate(context, builder, signature, args):
        count, *tuples = args
        left, right, sums = (cgutils.unpack_tuple(builder, value) for value in tuples)

        def number(value):
            return ir.Constant(ir.IntType(64), value)

        def address(data, *offsets):
            for offset in offsets:
                data = builder.gep(data, [offset])
            return data

        def registers(data):
            return builder.bitcast(data, _FLOATS.as_pointer())

        # 1. Sums so far; LLVM keeps these variables in registers.
        cells = []
        for i in range(HEIGHT):
            for j in range(0, WIDTH, LANES):
                line = builder.mul(number(i), sums[2])
                target = registers(address(sums[0], sums[1], line, number(j)))
                before = builder.load(target)
                before.align = 4
                cells.append((target, cgutils.alloca_once_value(builder, before)))

        # 2. A left column that does not exist is the last one; of right ones nothing is read.
        columns = []
        for i in range(HEIGHT):
            exists = builder.icmp_signed("<", number(i), left[3])
            last = builder.sub(left[3], number(1))
            columns.append(builder.select(exists, number(i), last))
        masks = []
        for j in range(0, WIDTH, LANES):
            lanes = ir.Constant(ir.VectorType(ir.IntType(64), LANES), list(range(j, j + LANES)))
            masks.append(builder.icmp_signed("<", lanes, broadcast(builder, right[3], LANES)))

        # 3. Row by row, each left element times all right ones.
        with cgutils.for_range(builder, count) as loop:
            of_left = address(left[0], left[1], builder.mul(loop.index, left[2]))
            of_right = address(right[0], right[1], builder.mul(loop.index, right[2]))
            row = []
            for j, mask in enumerate(masks):
                source = registers(address(of_right, number(j * LANES)))
                arguments = [source, _ALIGNED, mask, ir.Constant(_FLOATS, None)]
                row.append(llvm(builder, "masked.load.v16f32.p0", _FLOATS, arguments))
            for i, column in enumerate(columns):
                element = builder.load(address(of_left, column))
                factor = broadcast(builder, element, LANES)
                for (_, cell), values in zip(cells[i * len(row) :], row, strict=False):
                    arguments = [factor, values, builder.load(cell)]
                    builder.store(llvm(builder, "fmuladd.v16f32", _FLOATS, arguments), cell)

        for target, cell in cells:
            builder.store(builder.load(cell), target).align = 4
        return context.get_dummy_value()

    return types.none(count, left, right, sums), generate
