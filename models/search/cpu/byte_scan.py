"""Compiled search behind a filter of bytes: a quarter of the loads and products of float32.

Keys and queries are rounded to 8 bits; a processor with AVX-512 VNNI multiplies and adds 64 pairs
of bytes in one instruction. How far a product of bytes can lie from the real one follows from the
lengths of what rounding took away, so keys below the floor are excluded by proof; the others are
scored by the rule at once (ADR 0320). Keys are sorted by length: where the longest of the rest
is shorter than a query's floor asks for, the query is done.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, F64, I32, I64, U8, Bools
from kmip_data.models.search.cpu import candidates, lanes
from kmip_data.models.search.cpu.candidates import OUT, Block
from kmip_data.models.search.cpu.lanes import (
    Pointer,
    Register,
    above,
    add_byte_products,
    larger,
    load,
    pointer,
    splat,
    store,
)
from kmip_data.models.search.cpu.tree import LEAF, ByLength
from kmip_data.runtime.threads import for_ranges, njit_nogil

MOST_DIM = 512  #: above, sums of products might be no exact float32
BLOCK = 64  # queries that share what they bring into the cache
_NEAR = 4096  # int32 of keys that stay in the nearest cache, with its queries
_LARGEST = 127  # magnitude of a code
_OPEN = 2**30  # beyond every sum of products
_ABOVE_ROUNDING = 1 + 1e-6


class Codes(NamedTuple):
    """Keys as unsigned bytes, 128 for zero, the longest first."""

    quads: I32  #: (leaves + 1, d / 4, 16) flat: four coordinates of a key in each number
    number: I32  #: (leaves + 1, 16) flat: row of each key in its graph, −1 where there is none
    reach: F32  #: (leaves,) bound on the scaled lengths of a leaf's keys and of all behind
    sorted_keys: ByLength
    step: float  #: what a code of one is worth, for keys of length 1 at most
    error: float  #: bound on the length of the difference of a key and its codes


class _Coded(NamedTuple):
    """A block of queries as signed bytes, and pointers to what they search."""

    block: Block  #: its products are scores by the rule
    keys: Pointer  #: (M, d) float32
    queries: Pointer  #: (R, d) float32
    first: int  #: row of the block's first query
    dim: int
    number: Pointer  #: row of the key at a position
    quads: Pointer  #: (B, d / 4) int32
    gate: Pointer  #: (B,) int32, what a sum begins with: it passes if it ends at 0 or above
    bias: Pointer  #: (B,) int64, sum of products with zero's code
    scored: Pointer  #: (B,) int64, number of candidates that are scored
    shift: Pointer  #: (B,) float64, product with the mean of the keys
    length: Pointer  #: (B,) float64, of the query times that of the longest shifted key
    worth: Pointer  #: (B,) float64, what a sum of one is worth
    error: Pointer  #: (B,) float64, bound on the error of a product of bytes
    slack: Pointer  #: (B,) float64, bound on all other errors


def encode(keys: F32, sorted_keys: ByLength) -> Codes:
    """Shift and scale (M, d) keys, d ≤ :data:`MOST_DIM`, and round them to bytes."""
    count, dim = keys.shape
    leaves = -(-count // LEAF)
    quads = -(-dim // 4)
    centre = sorted_keys.centre
    factor = sorted_keys.factor
    largest = max((keys.max(0) - centre).max(), (centre - keys.min(0)).max()) * factor
    step = max(float(largest), 2.0**-60) / _LARGEST

    # On cache lines: a register across two of them is loaded in twice the time.
    size = (leaves + 1) * quads * 64
    room = np.full(size + 63, 128, np.uint8)
    begin = -room.ctypes.data % 64
    codes = room[begin : begin + size]
    number = np.full((leaves + 1) * LEAF, -1, np.int32)
    number[:count] = sorted_keys.order
    errors = np.empty(leaves, np.float32)
    for_ranges(
        lambda start, stop: _encode(keys, number, centre, factor, step, codes, errors, start, stop),
        leaves,
        grain=max(1, 20_000 // dim),
    )
    error = float(errors.max())
    return Codes(codes.view(np.int32), number, sorted_keys.reach, sorted_keys, step, error)


@njit_nogil(error_model="numpy")
def _encode(
    keys: F32,
    number: I32,
    centre: F64,
    factor: float,
    step: float,
    codes: U8,
    errors: F32,
    start: int,
    stop: int,
) -> None:
    """Round the keys of some leaves; the largest length of what this takes from a key of each."""
    dim = keys.shape[1]
    quads = (dim + 3) // 4
    inverse = factor / step
    for leaf in range(start, stop):
        largest = 0.0
        for lane in range(LEAF):
            row = number[leaf * LEAF + lane]
            if row < 0:
                continue
            square = 0.0
            for c in range(dim):
                shifted = keys[row, c] - centre[c]
                code = np.floor(shifted * inverse + 0.5)
                to = (leaf * quads + c // 4) * 64 + lane * 4 + c % 4
                codes[to] = np.uint8(code + 128)
                square += (shifted * factor - code * step) ** 2
            largest = max(largest, square)
        errors[leaf] = np.sqrt(largest) * _ABOVE_ROUNDING


@njit_nogil(error_model="numpy")
def _begin(
    coded: _Coded,
    signed: Pointer,
    count: int,
    codes: Codes,
) -> None:
    """Round queries to signed bytes, each by its largest coordinate, and let everything pass."""
    block = coded.block
    dim = coded.dim
    width = (dim + 3) // 4 * 4
    for i in range(count):
        row = (coded.first + i) * dim
        square = 0.0
        shift = 0.0
        largest = 0.0
        for c in range(dim):
            value = np.float64(coded.queries[row + c])
            square += value * value
            shift += value * codes.sorted_keys.centre[c]
            largest = max(largest, abs(value))
        if block.floor[i] == OUT:
            _open_gate(coded, i)
            continue
        length = np.sqrt(square)
        step = largest / length / _LARGEST
        total = np.int64(0)
        square = 0.0
        for c in range(dim):
            value = np.float64(coded.queries[row + c])
            code = np.floor(value / largest * _LARGEST + 0.5)
            signed[i * width + c] = np.int8(code)
            total += np.int64(code)
            square += (value / length - code * step) ** 2
        # With u = q / |q|, its codes v, a key p and its codes w: |u p − v w| ≤ |u| |p − w| + |u − v| |w|.
        error = np.sqrt(square) * _ABOVE_ROUNDING
        coded.error[i] = codes.error + error * (1 + codes.error)
        coded.bias[i] = 128 * total
        coded.shift[i] = shift
        coded.length[i] = length * codes.sorted_keys.scale
        coded.worth[i] = step * codes.step
        coded.scored[i] = 0
        coded.slack[i] = block.slack[i]
        block.slack[i] = 0  # of scores, which are exact
        _open_gate(coded, i)


@njit_nogil(error_model="numpy")
def _open_gate(coded: _Coded, i: int) -> None:
    """Let those sums pass whose keys may score as much as a query's floor, the k-th best so far."""
    block = coded.block
    floor = block.floor[i]
    if floor == -OUT:
        block.limit[i] = -OUT
        coded.gate[i] = _OPEN
    elif floor == OUT:
        block.limit[i] = OUT
        coded.gate[i] = -_OPEN
    else:
        # In units of the filter.
        _set_gate(coded, i, (floor - coded.shift[i]) / coded.length[i] - coded.slack[i])


@njit_nogil(error_model="numpy")
def _set_gate(coded: _Coded, i: int, least: float) -> None:
    """Let those sums pass whose keys may have a product of ``least`` with the query."""
    coded.block.limit[i] = least
    total = np.floor((least - coded.error[i]) / coded.worth[i])
    coded.gate[i] = -(np.int64(total) + coded.bias[i])


@njit_nogil(error_model="numpy")
def _settle(coded: _Coded, i: int, spare: int) -> None:
    """Score new candidates, raise the floor to the k-th best score and drop those below."""
    block = coded.block
    query = coded.first + i
    start = coded.scored[i]
    candidates.score(block, i, start, coded.number, coded.queries, query, coded.keys, coded.dim)
    candidates.cut(block, i, spare)
    coded.scored[i] = block.filled[i]
    _open_gate(coded, i)


@njit_nogil(error_model="numpy")
def _collect(coded: _Coded, i: int, hits: int, leaf: int) -> int:
    """Add the keys of a leaf that pass, 16 bits for each of four queries; count them."""
    block = coded.block
    scored = 0
    while hits:
        bit = lanes.lowest_bit(hits)
        hits &= hits - 1
        query = i + (bit >> 4)
        key = leaf * 16 + (bit & 15)
        filled = block.filled[query]
        block.place[query * block.space + filled] = key
        filled += coded.number[key] >= 0
        block.filled[query] = filled
        scored += 1
        if filled >= block.due[query]:
            _settle(coded, query, block.k // 8)
    return scored


@njit_nogil(error_model="numpy", forceinline=True)
def _multiply_pair(
    coded: _Coded,
    codes: Pointer,
    quads: int,
    leaf: int,
    i: int,
) -> tuple[Register, ...]:
    """Sums of two leaves with four queries: the first leaf's, then the second's."""
    left_0 = splat(coded.gate[i])
    left_1 = splat(coded.gate[i + 1])
    left_2 = splat(coded.gate[i + 2])
    left_3 = splat(coded.gate[i + 3])
    right_0 = left_0
    right_1 = left_1
    right_2 = left_2
    right_3 = left_3
    first = leaf * quads * 16
    base = i * quads
    for quad in range(quads):
        left = load(codes, first + quad * 16)
        right = load(codes, first + (quads + quad) * 16)
        query = splat(coded.quads[base + quad])
        left_0 = add_byte_products(left_0, left, query)
        right_0 = add_byte_products(right_0, right, query)
        query = splat(coded.quads[base + quads + quad])
        left_1 = add_byte_products(left_1, left, query)
        right_1 = add_byte_products(right_1, right, query)
        query = splat(coded.quads[base + 2 * quads + quad])
        left_2 = add_byte_products(left_2, left, query)
        right_2 = add_byte_products(right_2, right, query)
        query = splat(coded.quads[base + 3 * quads + quad])
        left_3 = add_byte_products(left_3, left, query)
        right_3 = add_byte_products(right_3, right, query)
    return left_0, left_1, left_2, left_3, right_0, right_1, right_2, right_3


@njit_nogil(error_model="numpy", forceinline=True)
def _passing(
    query_0: Register,
    query_1: Register,
    query_2: Register,
    query_3: Register,
) -> int:
    """Sums of four queries that are 0 or above, 16 bits each."""
    least = splat(np.int32(-1))
    first: int = above(query_0, least) | above(query_1, least) << 16
    second: int = above(query_2, least) | above(query_3, least) << 16
    return first | second << 32


@njit_nogil(error_model="numpy", forceinline=True)
def _search_pair(
    coded: _Coded,
    codes: Pointer,
    quads: int,
    leaf: int,
    i: int,
) -> int:
    """Search two leaves for four queries; count the candidates."""
    sums = _multiply_pair(coded, codes, quads, leaf, i)
    lefts = larger(larger(sums[0], sums[1]), larger(sums[2], sums[3]))
    rights = larger(larger(sums[4], sums[5]), larger(sums[6], sums[7]))
    # One branch for 128 sums: few pass.
    if not above(larger(lefts, rights), splat(np.int32(-1))):
        return 0
    left = _passing(sums[0], sums[1], sums[2], sums[3])
    right = _passing(sums[4], sums[5], sums[6], sums[7])
    return _collect(coded, i, left, leaf) + _collect(coded, i, right, leaf + 1)


@njit_nogil(error_model="numpy")
def _warm_up(
    coded: _Coded,
    codes: Pointer,
    quads: int,
    i: int,
    groups: int,
    span: int,
) -> None:
    """Raise the gates of four queries to what k of the first ``groups · span`` leaves reach."""
    # 1. The largest sums of as many groups of keys, 16 a register. They are of different keys.
    block = coded.block
    for query in range(i, i + 4):
        coded.gate[query] = 0
    for group in range(groups):
        top_0 = splat(np.int32(-_OPEN))
        top_1 = top_0
        top_2 = top_0
        top_3 = top_0
        for leaf in range(group * span, (group + 1) * span, 2):
            sums = _multiply_pair(coded, codes, quads, leaf, i)
            top_0 = larger(top_0, larger(sums[0], sums[4]))
            top_1 = larger(top_1, larger(sums[1], sums[5]))
            top_2 = larger(top_2, larger(sums[2], sums[6]))
            top_3 = larger(top_3, larger(sums[3], sums[7]))
        to = i * block.space + group * 16
        store(block.near, to, lanes.as_floats(top_0))
        store(block.near, to + block.space, lanes.as_floats(top_1))
        store(block.near, to + 2 * block.space, lanes.as_floats(top_2))
        store(block.near, to + 3 * block.space, lanes.as_floats(top_3))
    for query in range(i, i + 4):
        # 2. The k-th of them is a product of bytes that k keys reach. So k products reach it less
        #    the error, and those of bytes it less twice the error.
        if block.floor[query] == OUT:
            coded.gate[query] = -_OPEN
            continue
        base = query * block.space
        kth = candidates.kth_largest(block.near, base, base + groups * 16, block.k, 0)[0]
        kth = (kth - coded.bias[query]) * coded.worth[query] - coded.error[query]
        _set_gate(coded, query, kth - coded.slack[query])
        block.due[query] = block.k + 16 + block.k // 2


@njit_nogil(error_model="numpy")
def search_bytes(
    codes: Codes,
    queries: F32,
    keys: F32,
    k: int,
    low: int,
    start: int,
    stop: int,
    scores: F32,
    indices: I64,
    failed: Bools,
) -> tuple[int, int]:
    """Search for the rows ``start`` to ``stop``; count leaves multiplied and candidates scored.

    Arguments as of :func:`kmip_data.models.search.cpu.filter_scan.search_tree`.
    """
    dim = keys.shape[1]
    quads = (dim + 3) // 4
    leaves = len(codes.reach)
    step = max(2, _NEAR // (16 * quads)) & ~1  # leaves, in pairs
    block, memory = candidates.new_block(BLOCK, dim, k)
    signed = np.zeros(BLOCK * quads * 4, np.int8)
    halves = np.empty(BLOCK, np.int32)
    wholes = np.empty(2 * BLOCK, np.int64)
    reals = np.empty(5 * BLOCK)
    bytes_of_keys = pointer(codes.quads)
    number = pointer(codes.number)
    to_scores = pointer(scores)
    to_indices = pointer(indices)
    scale = codes.sorted_keys.scale
    longest = codes.sorted_keys.longest
    visited = 0
    scored = 0
    groups = block.space // 16 - 1
    span = min(16, len(keys) // LEAF // (4 * groups)) & ~1

    for first in range(start, stop, BLOCK):
        count = min(BLOCK, stop - first)
        coded = _Coded(
            block=block,
            keys=pointer(keys),
            queries=pointer(queries),
            first=first,
            dim=dim,
            number=number,
            quads=pointer(signed.view(np.int32)),
            gate=pointer(halves),
            bias=pointer(wholes),
            scored=pointer(wholes[BLOCK:]),
            shift=pointer(reals),
            length=pointer(reals[BLOCK:]),
            worth=pointer(reals[2 * BLOCK :]),
            error=pointer(reals[3 * BLOCK :]),
            slack=pointer(reals[4 * BLOCK :]),
        )
        candidates.begin(block, queries, first, count, scale, longest)
        _begin(coded, pointer(signed), count, codes)
        # Queries missing in the last tile of four let nothing pass.
        for i in range(count, (count + 3) & ~3):
            block.filled[i] = 0
            block.floor[i] = OUT
            _open_gate(coded, i)

        if span >= 2:
            for i in range(0, count, 4):
                _warm_up(coded, bytes_of_keys, quads, i, groups, span)
        for leaf in range(0, leaves, step):
            last = min(leaf + step, leaves)
            for i in range(0, count, 4):
                if codes.reach[leaf] < candidates.least_limit(block, i):
                    continue
                visited += min(4, count - i) * (last - leaf)
                for pair in range(leaf, last, 2):
                    scored += _search_pair(coded, bytes_of_keys, quads, pair, i)

        for i in range(count):
            if block.floor[i] != OUT:
                _settle(coded, i, 0)
            failed[first + i] = block.floor[i] == OUT
            if block.floor[i] != OUT:
                to = (first + i) * k
                candidates.write_best(block, i, number, low, to_scores, to_indices, to)

    lanes.hold(memory)
    lanes.hold(signed)
    lanes.hold(halves)
    lanes.hold(wholes)
    lanes.hold(reals)
    return visited, scored
