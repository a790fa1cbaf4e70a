"""Compiled search that scores every key by the rule, for small graphs, few queries and many ties.

The lanes of a register hold eight queries. The scores of a group of keys, one register per key, are
sorted and merged into the best so far by compare-exchange of registers, so that only one branch
depends on the data (ADR 0220).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, I64
from kmip_data.models.search.cpu import simd
from kmip_data.models.search.cpu.candidates import LOW_32_BITS, float_of_integer
from kmip_data.models.search.cpu.simd import (
    Pointer,
    Register,
    larger,
    load_lanes,
    multiply_add,
    pack_scores,
    pointer_to_elements,
    smaller,
    splat_lanes,
    store_lanes,
)
from kmip_data.runtime.parallel import njit_nogil

TILE = 16  #: queries per tile, two registers of eight; fixed by the kernels
MIN_GROUP = 16  #: keys in the smallest group
_KEY_BLOCK = 16384  # float64 values of the keys of a block, 128 KiB, which stay in the cache
_MAX_STATE = 512  # best keys per query times tiles searched together
_EMPTY = np.int64(-(2**63))


class _Scratch(NamedTuple):
    """Pointers to the scratch memory of a range of queries."""

    block: Pointer  #: (room, d) float64, keys
    wide: Pointer  #: (tiles, d, 16) float64, queries
    best: Pointer  #: (2 tiles, size, 8) int64, best so far of eight queries, see :func:`.simd.pack_scores`
    fresh: Pointer  #: (2 tiles, size, 8) int64, new scores, not yet merged into the best
    filled: Pointer  #: (2 tiles,) int64, number of fresh registers


# Numba compiles each function once by itself and once in every caller. Inlining small functions as
# source, and omitting wrappers of internal ones, cuts the compile time from 9.5 s to 7.4 s.
_internal = njit_nogil(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_inlined = njit_nogil(error_model="numpy", inline="always")


@_inlined
def _exchange_registers(rows: Pointer, upper: int, lower: int) -> None:
    """Compare and exchange two registers, the larger first."""
    a = load_lanes(rows, upper * 8)
    b = load_lanes(rows, lower * 8)
    store_lanes(rows, upper * 8, larger(a, b))
    store_lanes(rows, lower * 8, smaller(a, b))


@_inlined
def _merge_bitonic(rows: Pointer, start: int, size: int) -> None:
    """Sort ``size`` registers whose lanes are bitonic: they fall and then rise, or rise and then fall."""
    step = size // 2
    while step >= MIN_GROUP:
        for first in range(start, start + size, 2 * step):
            for i in range(first, first + step):
                _exchange_registers(rows, i, i + step)
        step //= 2
    # The last four steps, 8 to 1, run within 16 registers.
    for first in range(start, start + size, MIN_GROUP):
        simd.merge_16_registers(rows, first * 8)


@_inlined
def _sort_registers(rows: Pointer, start: int, size: int) -> None:
    """Sort ``size`` registers, a power of two of at least 16, lane by lane, the largest first."""
    # 1. Sort runs of 16 by a branch-free network of 63 comparisons.
    for first in range(start, start + size, MIN_GROUP):
        simd.sort_16_registers(rows, first * 8)
    # 2. Merge runs of 16, 32 …: after comparison with the reversed other run, both are bitonic.
    run_length = 2 * MIN_GROUP
    while run_length <= size:
        for first in range(start, start + size, run_length):
            for i in range(run_length // 2):
                _exchange_registers(rows, first + i, first + run_length - 1 - i)
            _merge_bitonic(rows, first, run_length // 2)
            _merge_bitonic(rows, first + run_length // 2, run_length // 2)
        run_length *= 2


@_inlined
def _score_keys(
    wide: Pointer,
    query: int,
    block: Pointer,
    key: int,
    dim: int,
    row: int,
    fresh: Pointer,
    to: int,
    other: int,
) -> None:
    """Score four keys from ``row`` on with 16 queries by the rule."""
    # 1. Keep eight sums in registers (4 keys × 2 halves of the queries): six loads serve eight
    #    products, and eight chains of additions hide each other's latency.
    zero = splat_lanes(0.0)
    left_0 = zero
    right_0 = zero
    left_1 = zero
    right_1 = zero
    left_2 = zero
    right_2 = zero
    left_3 = zero
    right_3 = zero
    for column in range(dim):
        left = load_lanes(wide, (query + column) * TILE)
        right = load_lanes(wide, (query + column) * TILE + 8)
        value = splat_lanes(block[key + column])
        left_0 = multiply_add(value, left, left_0)
        right_0 = multiply_add(value, right, right_0)
        value = splat_lanes(block[key + dim + column])
        left_1 = multiply_add(value, left, left_1)
        right_1 = multiply_add(value, right, right_1)
        value = splat_lanes(block[key + 2 * dim + column])
        left_2 = multiply_add(value, left, left_2)
        right_2 = multiply_add(value, right, right_2)
        value = splat_lanes(block[key + 3 * dim + column])
        left_3 = multiply_add(value, left, left_3)
        right_3 = multiply_add(value, right, right_3)
    # 2. Pack score and row into one integer, with rows counted backwards so that lower ones win ties.
    low = splat_lanes(LOW_32_BITS - row)
    store_lanes(fresh, to * 8, pack_scores(left_0, low))
    store_lanes(fresh, other * 8, pack_scores(right_0, low))
    low = splat_lanes(LOW_32_BITS - row - 1)
    store_lanes(fresh, (to + 1) * 8, pack_scores(left_1, low))
    store_lanes(fresh, (other + 1) * 8, pack_scores(right_1, low))
    low = splat_lanes(LOW_32_BITS - row - 2)
    store_lanes(fresh, (to + 2) * 8, pack_scores(left_2, low))
    store_lanes(fresh, (other + 2) * 8, pack_scores(right_2, low))
    low = splat_lanes(LOW_32_BITS - row - 3)
    store_lanes(fresh, (to + 3) * 8, pack_scores(left_3, low))
    store_lanes(fresh, (other + 3) * 8, pack_scores(right_3, low))


@_inlined
def _is_any_above(fresh: Pointer, start: int, limit: Register) -> bool:
    """True if one of 16 registers is above ``limit`` in any lane."""
    top = load_lanes(fresh, start * 8)
    for i in range(start + 1, start + MIN_GROUP):
        top = larger(top, load_lanes(fresh, i * 8))
    return bool(simd.above(top, limit) != 0)


@_internal
def _merge_into_best(best: Pointer, fresh: Pointer, start: int, size: int) -> None:
    """Merge ``size`` registers of fresh scores into the best so far at the same offset."""
    if size == MIN_GROUP:
        simd.sort_and_merge_16(fresh, start * 8, best, start * 8)
        return
    _sort_registers(fresh, start, size)
    # Both descend: after reversing the fresh ones, the larger of each pair are the best.
    for i in range(size):
        offset = (start + i) * 8
        old = load_lanes(best, offset)
        new = load_lanes(fresh, (start + size - 1 - i) * 8)
        store_lanes(best, offset, larger(old, new))
    _merge_bitonic(best, start, size)


@_internal
def _load_queries(
    queries: F32,
    head: int,
    first: int,
    rows: int,
    size: int,
    scratch: _Scratch,
) -> None:
    """Load queries column by column, zero-padded to whole tiles, and reset their best keys."""
    dim = queries.shape[2]
    for row in range((rows + TILE - 1) // TILE * TILE):
        offset = row // TILE * dim * TILE + row % TILE
        for c in range(dim):
            value = 0.0
            if row < rows:
                value = np.float64(queries[head, first + row, c])
            scratch.wide[offset + c * TILE] = value
    for half in range((rows + 7) // 8):
        scratch.filled[half] = 0
        for i in range(half * size, (half + 1) * size):
            store_lanes(scratch.best, i * 8, splat_lanes(_EMPTY))


@_internal
def _load_as_float64(
    keys: F32,
    head: int,
    begin: int,
    width: int,
    block: Pointer,
) -> None:
    """Load ``width`` keys as float64, zero-padded to a multiple of four."""
    dim = keys.shape[2]
    for j in range(width):
        for c in range(dim):
            block[j * dim + c] = keys[head, begin + j, c]
    for j in range(width * dim, (width + 3) // 4 * 4 * dim):
        block[j] = 0.0


@_internal
def _search_tile(
    scratch: _Scratch,
    tile: int,
    halves: int,
    size: int,
    few: int,
    dim: int,
    width: int,
    row: int,
) -> None:
    """Search ``width`` keys from ``row`` on for a tile of queries."""
    fresh = scratch.fresh
    best = scratch.best
    filled = scratch.filled
    for group in range(0, width, MIN_GROUP):
        # 1. Score 16 keys, after the fresh scores of each half of the queries.
        count = min(MIN_GROUP, width - group)
        left = 2 * tile * size + filled[2 * tile]
        right = (2 * tile + 1) * size + filled[2 * tile + 1]
        for j in range(0, count, 4):
            key = group + j
            _score_keys(
                scratch.wide,
                tile * dim,
                scratch.block,
                key * dim,
                dim,
                row + key,
                fresh,
                left + j,
                right + j,
            )
        for j in range(count, MIN_GROUP):
            store_lanes(fresh, (left + j) * 8, splat_lanes(_EMPTY))
            store_lanes(fresh, (right + j) * 8, splat_lanes(_EMPTY))
        # 2. Keep the 16 scores if any lane exceeds its k-th best: the only data-dependent branch.
        for half in range(2 * tile, min(2 * tile + 2, halves)):
            start = half * size
            worst = load_lanes(best, (start + few - 1) * 8)
            if _is_any_above(fresh, start + filled[half], worst):
                filled[half] += MIN_GROUP
                if filled[half] == size:
                    _merge_into_best(best, fresh, start, size)
                    filled[half] = 0


@_internal
def _write_results(
    scratch: _Scratch,
    rows: int,
    size: int,
    few: int,
    low: int,
    k: int,
    scores: Pointer,
    indices: Pointer,
    to: int,
) -> None:
    """Write the results of ``rows`` queries from position ``to`` on."""
    best = scratch.best
    fresh = scratch.fresh
    for half in range((rows + 7) // 8):
        if scratch.filled[half]:
            for i in range(half * size + scratch.filled[half], (half + 1) * size):
                store_lanes(fresh, i * 8, splat_lanes(_EMPTY))
            _merge_into_best(best, fresh, half * size, size)

    for row in range(rows):
        offset = row // 8 * size * 8 + row % 8
        for i in range(few):
            value = best[offset + i * 8]
            scores[to + row * k + i] = float_of_integer(value >> 32)
            indices[to + row * k + i] = LOW_32_BITS - (value & LOW_32_BITS) + low


@njit_nogil(error_model="numpy")
def search_rows(
    queries: F32,
    keys: F32,
    scores: F32,
    indices: I64,
    query_rows: I64,
    key_rows: I64,
    before: I64,
    start: int,
    stop: int,
) -> None:
    """Search for the rows ``start:stop`` of the H · R queries of the graphs, head after head.

    Queries are (H, N, d) and keys (H, M, d). ``query_rows`` and ``key_rows`` (G, 2) are the start
    and stop of each graph. ``before`` (G + 1,) counts the queries of one head before each graph, and
    then all R. Writes those rows of scores and indices (H, N, k), which must be filled with −inf and
    −1.
    """
    # 1. Allocate memory for all graphs of the range: the larger k, the fewer tiles of queries.
    dim = queries.shape[2]
    k = scores.shape[2]
    most = MIN_GROUP
    while most < k:
        most *= 2
    tiles = max(1, _MAX_STATE // most)
    room = max(MIN_GROUP, _KEY_BLOCK // dim // MIN_GROUP * MIN_GROUP)
    blocks = np.empty(room * dim)
    wides = np.empty(tiles * dim * TILE)
    bests = np.empty(tiles * TILE * most, np.int64)
    freshes = np.empty(tiles * TILE * most, np.int64)
    counts = np.zeros(2 * tiles, np.int64)
    scratch = _Scratch(
        pointer_to_elements(blocks),
        pointer_to_elements(wides),
        pointer_to_elements(bests),
        pointer_to_elements(freshes),
        pointer_to_elements(counts),
    )
    to_scores = pointer_to_elements(scores)
    to_indices = pointer_to_elements(indices)

    count = before[-1]
    query = start
    graph = 0
    while query < stop:
        # 2. Take the next queries of one graph and head, as many as fit the tiles.
        head = query // count
        offset = query % count
        if before[graph] > offset:  # the first graph of another head
            graph = 0
        while before[graph + 1] <= offset:
            graph += 1
        first = query_rows[graph, 0] + offset - before[graph]
        rows = min(tiles * TILE, query_rows[graph, 1] - first, stop - query)
        low = key_rows[graph, 0]
        high = key_rows[graph, 1]
        few = min(k, high - low)
        size = MIN_GROUP
        while size < few:
            size *= 2

        # 3. All tiles read a block of keys while it is in the cache.
        _load_queries(queries, head, first, rows, size, scratch)
        for begin in range(low, high, room):
            width = min(room, high - begin)
            _load_as_float64(keys, head, begin, width, scratch.block)
            for tile in range((rows + TILE - 1) // TILE):
                _search_tile(scratch, tile, (rows + 7) // 8, size, few, dim, width, begin - low)
        to = (head * scores.shape[1] + first) * k
        _write_results(scratch, rows, size, few, low, k, to_scores, to_indices, to)
        query += rows

    simd.keep_alive((blocks, wides, bests, freshes, counts))
