"""Compiled search that scores every key by the rule: small graphs, few queries, and data full of ties.

Eight queries are the lanes of a register. The scores of a group of keys, one register a key, are sorted and
merged with the best so far by comparing and exchanging whole registers, so that no branch but one depends
on the data (ADR 0220).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kmip_data.arrays import F32, I64
from kmip_data.models.search.cpu import lanes
from kmip_data.models.search.cpu.candidates import LAST, unordered
from kmip_data.models.search.cpu.lanes import (
    larger,
    load,
    multiply_add,
    packed,
    pointer,
    smaller,
    splat,
    store,
)
from kmip_data.runtime.threads import njit_nogil

TILE = 16  #: queries of two registers
LEAST = 16  #: keys of the smallest group
_CACHE = 16384  # float64 numbers of keys that stay near
_STATE = 512  # best keys of a query times tiles that are searched together
_EMPTY = np.int64(-(2**63))


class _Memory(NamedTuple):
    """Pointers to what a range of queries is searched with."""

    block: Any  #: (room, d) float64, keys
    wide: Any  #: (tiles, d, 16) float64, queries
    best: Any  #: (2 tiles, size, 8) int64, the best so far of eight queries each, see :func:`.lanes.packed`
    fresh: Any  #: the same of what may be better
    filled: Any  #: (2 tiles,) int64, how much of it there is


@njit_nogil(error_model="numpy", forceinline=True)
def _exchange(rows: Any, a: int, b: int) -> None:
    """Put the larger of two registers first."""
    x = load(rows, a * 8)
    y = load(rows, b * 8)
    store(rows, a * 8, larger(x, y))
    store(rows, b * 8, smaller(x, y))


@njit_nogil(error_model="numpy", forceinline=True)
def _merge(rows: Any, start: int, size: int) -> None:
    """Sort ``size`` registers that fall and then rise, or rise and fall."""
    step = size // 2
    while step >= LEAST:
        for first in range(start, start + size, 2 * step):
            for i in range(first, first + step):
                _exchange(rows, i, i + step)
        step //= 2
    for first in range(start, start + size, LEAST):
        lanes.merge_16(rows, first * 8)


@njit_nogil(error_model="numpy", forceinline=True)
def _sort(rows: Any, start: int, size: int) -> None:
    """Sort ``size`` registers, a power of two from 16 on, lane by lane, the largest first."""
    for first in range(start, start + size, LEAST):
        lanes.sort_16(rows, first * 8)
    part = 2 * LEAST
    while part <= size:
        for first in range(start, start + size, part):
            for i in range(part // 2):
                _exchange(rows, first + i, first + part - 1 - i)
            _merge(rows, first, part // 2)
            _merge(rows, first + part // 2, part // 2)
        part *= 2


@njit_nogil(error_model="numpy", forceinline=True)
def _score(
    wide: Any, query: int, block: Any, key: int, dim: int, row: int, fresh: Any, to: int, other: int
) -> None:
    """Score four keys, ``row`` …, with 16 queries by the rule: float64 sums in index order, rounded once."""
    zero = splat(0.0)
    a = zero
    b = zero
    c = zero
    d = zero
    e = zero
    f = zero
    g = zero
    h = zero
    for column in range(dim):
        left = load(wide, (query + column) * TILE)
        right = load(wide, (query + column) * TILE + 8)
        value = splat(block[key + column])
        a = multiply_add(value, left, a)
        b = multiply_add(value, right, b)
        value = splat(block[key + dim + column])
        c = multiply_add(value, left, c)
        d = multiply_add(value, right, d)
        value = splat(block[key + 2 * dim + column])
        e = multiply_add(value, left, e)
        f = multiply_add(value, right, f)
        value = splat(block[key + 3 * dim + column])
        g = multiply_add(value, left, g)
        h = multiply_add(value, right, h)
    last = LAST - row
    store(fresh, to * 8, packed(a, splat(last)))
    store(fresh, other * 8, packed(b, splat(last)))
    store(fresh, (to + 1) * 8, packed(c, splat(last - 1)))
    store(fresh, (other + 1) * 8, packed(d, splat(last - 1)))
    store(fresh, (to + 2) * 8, packed(e, splat(last - 2)))
    store(fresh, (other + 2) * 8, packed(f, splat(last - 2)))
    store(fresh, (to + 3) * 8, packed(g, splat(last - 3)))
    store(fresh, (other + 3) * 8, packed(h, splat(last - 3)))


@njit_nogil(error_model="numpy", forceinline=True)
def _better(fresh: Any, start: int, limit: Any) -> bool:
    """True if one of 16 registers is above ``limit`` in any lane."""
    top = load(fresh, start * 8)
    for i in range(start + 1, start + LEAST):
        top = larger(top, load(fresh, i * 8))
    return bool(lanes.above(top, limit) != 0)


@njit_nogil(error_model="numpy", forceinline=True)
def _absorb(best: Any, fresh: Any, start: int, size: int) -> None:
    """Merge ``size`` registers of scores into the best so far, which are at the same place."""
    if size == LEAST:
        lanes.absorb_16(fresh, start * 8, best, start * 8)
        return
    _sort(fresh, start, size)
    for i in range(size):
        at = (start + i) * 8
        store(best, at, larger(load(best, at), load(fresh, (start + size - 1 - i) * 8)))
    _merge(best, start, size)


@njit_nogil(error_model="numpy")
def _begin(queries: Any, head: int, first: int, rows: int, size: int, memory: _Memory) -> None:
    """Take some queries, by columns, up to a whole tile; nothing is found yet."""
    dim = queries.shape[2]
    for row in range((rows + TILE - 1) // TILE * TILE):
        at = row // TILE * dim * TILE + row % TILE
        for c in range(dim):
            memory.wide[at + c * TILE] = (
                np.float64(queries[head, first + row, c]) if row < rows else 0.0
            )
    for half in range((rows + 7) // 8):
        memory.filled[half] = 0
        for i in range(half * size, (half + 1) * size):
            store(memory.best, i * 8, splat(_EMPTY))


@njit_nogil(error_model="numpy")
def _widen(keys: Any, head: int, begin: int, width: int, block: Any) -> None:
    """Take some keys, and zeros up to a multiple of four."""
    dim = keys.shape[2]
    for j in range(width):
        for c in range(dim):
            block[j * dim + c] = keys[head, begin + j, c]
    for j in range(width * dim, (width + 3) // 4 * 4 * dim):
        block[j] = 0.0


@njit_nogil(error_model="numpy")
def _search_tile(
    memory: _Memory, tile: int, halves: int, size: int, few: int, dim: int, width: int, row: int
) -> None:
    """Search ``width`` keys, whose rows are ``row`` …, for a tile of queries."""
    fresh = memory.fresh
    best = memory.best
    filled = memory.filled
    for group in range(0, width, LEAST):
        here = min(LEAST, width - group)
        left = 2 * tile * size + filled[2 * tile]
        right = (2 * tile + 1) * size + filled[2 * tile + 1]
        for j in range(0, here, 4):
            key = group + j
            _score(
                memory.wide,
                tile * dim,
                memory.block,
                key * dim,
                dim,
                row + key,
                fresh,
                left + j,
                right + j,
            )
        for j in range(here, LEAST):
            store(fresh, (left + j) * 8, splat(_EMPTY))
            store(fresh, (right + j) * 8, splat(_EMPTY))
        for half in range(2 * tile, min(2 * tile + 2, halves)):
            start = half * size
            if _better(fresh, start + filled[half], load(best, (start + few - 1) * 8)):
                filled[half] += LEAST
                if filled[half] == size:
                    _absorb(best, fresh, start, size)
                    filled[half] = 0


@njit_nogil(error_model="numpy")
def _finish(
    memory: _Memory,
    rows: int,
    size: int,
    few: int,
    low: int,
    k: int,
    scores: Any,
    indices: Any,
    to: int,
) -> None:
    """Write what was found for ``rows`` queries to places ``to`` …."""
    best = memory.best
    fresh = memory.fresh
    for half in range((rows + 7) // 8):
        if memory.filled[half]:
            for i in range(half * size + memory.filled[half], (half + 1) * size):
                store(fresh, i * 8, splat(_EMPTY))
            _absorb(best, fresh, half * size, size)
    for row in range(rows):
        place = row // 8 * size * 8 + row % 8
        for i in range(few):
            value = best[place + i * 8]
            scores[to + row * k + i] = unordered(value >> 32)
            indices[to + row * k + i] = LAST - (value & LAST) + low


@njit_nogil(error_model="numpy")
def search_rows(
    queries: F32, keys: F32, query_ptr: I64, key_ptr: I64, row_graph: I64, k: int, start: int, stop: int,
    scores: F32, indices: I64,
) -> None:  # fmt: skip
    """Search for the rows ``start`` to ``stop`` of the H · R queries of some graphs, head after head.

    Queries are (H, N, d), keys (H, M, d); of ``query_ptr`` and ``key_ptr`` (G, 2), where each graph begins
    and ends, graphs may be left out. ``row_graph`` (G + 1,) has R and how many of the R queries come before
    each graph. Scores and indices (H, N, k) come filled with −inf and −1; those rows are written.
    """
    dim = queries.shape[2]
    most = LEAST
    while most < k:
        most *= 2
    tiles = max(1, _STATE // most)
    room = max(LEAST, _CACHE // dim // LEAST * LEAST)
    blocks = np.empty(room * dim)
    wides = np.empty(tiles * dim * TILE)
    bests = np.empty(tiles * TILE * most, np.int64)
    freshes = np.empty(tiles * TILE * most, np.int64)
    counts = np.zeros(2 * tiles, np.int64)
    memory = _Memory(
        pointer(blocks), pointer(wides), pointer(bests), pointer(freshes), pointer(counts)
    )
    to_scores = pointer(scores)
    to_indices = pointer(indices)
    count = row_graph[-1]
    at = start
    graph = 0
    while at < stop:
        head = at // count
        offset = at % count
        if row_graph[graph] > offset or row_graph[graph + 1] <= offset:
            graph = np.searchsorted(row_graph, offset, side="right") - 1
        first = query_ptr[graph, 0] + offset - row_graph[graph]
        rows = min(tiles * TILE, query_ptr[graph, 1] - first, stop - at)
        low = key_ptr[graph, 0]
        high = key_ptr[graph, 1]
        few = min(k, high - low)
        size = LEAST
        while size < few:
            size *= 2
        _begin(queries, head, first, rows, size, memory)
        for begin in range(low, high, room):
            width = min(room, high - begin)
            _widen(keys, head, begin, width, memory.block)
            for tile in range((rows + TILE - 1) // TILE):
                _search_tile(memory, tile, (rows + 7) // 8, size, few, dim, width, begin - low)
        to = (head * scores.shape[1] + first) * k
        _finish(memory, rows, size, few, low, k, to_scores, to_indices, to)
        at += rows
    (
        lanes.hold(blocks),
        lanes.hold(wides),
        lanes.hold(bests),
        lanes.hold(freshes),
        lanes.hold(counts),
    )
