"""Compiled search that scores every key by the rule: small graphs, few queries, and data full of ties."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.compiled import njit_nogil
from kmip_data.models.search.lanes import (
    at_least,
    hold,
    load,
    lowest_bit,
    multiply_add,
    narrow,
    pointer,
    splat,
    store,
)
from kmip_data.models.search.selection import kth_largest, pack, write_sorted

BLOCK = 1024  #: most keys widened and transposed at a time
_CACHE = 8192  # float64 numbers of a block that stay near
TILE = 32  #: queries that share a block


@njit_nogil(error_model="numpy")
def _widen(keys: Any, head: int, begin: int, width: int, room: int, block: Any) -> None:
    """Columns of the keys ``begin`` … as rows of ``room`` float64 numbers."""
    for j in range(width):
        for c in range(keys.shape[2]):
            block[c * room + j] = keys[head, begin + j, c]


@njit_nogil(error_model="numpy")
def _score(query: Any, dim: int, block: Any, room: int, width: int, line: Any) -> None:
    """line[:width] by the rule: float64 sums in index order, rounded once; 31 more may be garbage."""
    for j in range(0, width, 32):
        a = splat(0.0)
        b = splat(0.0)
        c = splat(0.0)
        d = splat(0.0)
        for i in range(dim):
            factor = splat(query[i])
            at = i * room + j
            a = multiply_add(factor, load(block, at), a)
            b = multiply_add(factor, load(block, at + 8), b)
            c = multiply_add(factor, load(block, at + 16), c)
            d = multiply_add(factor, load(block, at + 24), d)
        store(line, j, narrow(a, b))
        store(line, j + 16, narrow(c, d))


@njit_nogil(error_model="numpy")
def _collect(line: Any, width: int, begin: int, near: Any, row: Any, base: int, n: int, floor: Any) -> Any:
    """Append the scores that reach ``floor``, by rising row, and the rows; returns how many there are."""
    limit = splat(floor)
    for j in range(
        0, width, 64
    ):  # as many bits at once as there are, for few turns that are hard to foretell
        mask = at_least(load(line, j), limit) | at_least(load(line, j + 16), limit) << 16
        mask |= at_least(load(line, j + 32), limit) << 32 | at_least(load(line, j + 48), limit) << 48
        if width - j < 64:
            mask &= (1 << (width - j)) - 1
        while mask:
            lane = j + lowest_bit(mask)
            mask &= mask - 1
            near[base + n], row[base + n] = line[lane], begin + lane
            n += 1
    return n


@njit_nogil(error_model="numpy")
def _keep_best(near: Any, row: Any, base: int, n: int, k: int) -> Any:
    """Cut n > k candidates, which come by rising row, to the k best; returns the lowest score kept."""
    low, high, reach_low, reach_high = kth_largest(near, base, base + n, k, 0)
    ties = k - reach_high if reach_low > k else k  # those below ``high`` then all score ``low``
    kept = base
    worst = np.float32(np.inf)
    for i in range(base, base + n):
        score = near[i]
        if score >= low:
            if score < high:
                if ties == 0:
                    continue
                ties -= 1
            near[kept], row[kept] = score, row[i]
            worst = min(worst, score)
            kept += 1
    return worst


@njit_nogil(error_model="numpy")
def search_rows(
    queries: NDArray[np.float32],
    keys: NDArray[np.float32],
    query_ptr: NDArray[np.int64],
    key_ptr: NDArray[np.int64],
    row_graph: NDArray[np.int64],
    k: int,
    start: int,
    stop: int,
    scores: NDArray[np.float32],
    indices: NDArray[np.int64],
) -> None:
    """Search for the rows ``start`` to ``stop`` of the H · R queries of some graphs, head after head.

    Parameters
    ----------
    queries, keys
        (H, N, d) and (H, M, d).
    query_ptr, key_ptr
        (G, 2), where each graph begins and ends; graphs may be left out.
    row_graph
        (G + 1,), R and how many of the R queries come before each graph.
    scores, indices
        (H, N, k), filled with −inf and −1; those rows are written.
    """
    dim = queries.shape[2]
    room = max(64, min(BLOCK, _CACHE // dim)) & ~31
    blocks, lines, wides = np.zeros(dim * room + 32), np.empty(room + 64, np.float32), np.empty(dim)
    block, line, wide = pointer(blocks), pointer(lines), pointer(wides)
    spare = 2 + k // 4
    space = k + 2 * spare + room + 32
    nears, rows = np.empty(TILE * space, np.float32), np.empty(TILE * space, np.int32)
    near, row = pointer(nears), pointer(rows)
    filled = np.empty(TILE, np.int64)
    floor = np.empty(TILE, np.float32)
    packed = np.empty(space, np.int64)
    all_scores, all_indices = pointer(scores), pointer(indices)
    count = row_graph[-1]
    at = start
    graph = 0
    while at < stop:
        head, offset = at // count, at % count
        if row_graph[graph] > offset or row_graph[graph + 1] <= offset:
            graph = np.searchsorted(row_graph, offset, side="right") - 1
        first = query_ptr[graph, 0] + offset - row_graph[graph]
        tile = min(TILE, query_ptr[graph, 1] - first, stop - at)
        low, high = key_ptr[graph, 0], key_ptr[graph, 1]
        few = min(k, high - low)
        filled[:tile] = 0
        floor[:tile] = -np.inf
        for begin in range(low, high, room):
            width = min(room, high - begin)
            _widen(keys, head, begin, width, room, block)
            for i in range(tile):
                for c in range(dim):
                    wide[c] = queries[head, first + i, c]
                _score(wide, dim, block, room, width, line)
                base = i * space
                if filled[i] == 0 and width > few + spare:
                    floor[i] = kth_largest(line, 0, width, few, spare)[0]
                n = _collect(line, width, begin - low, near, row, base, filled[i], floor[i])
                if n > few + 2 * spare:
                    # Keys come by rising row: one that only equals the k-th best never displaces it.
                    floor[i] = np.nextafter(_keep_best(near, row, base, n, few), np.float32(np.inf))
                    n = few
                filled[i] = n
        if few:
            for i in range(tile):
                for j in range(filled[i]):
                    packed[j] = pack(near[i * space + j], np.int64(row[i * space + j]))
                write_sorted(
                    packed,
                    filled[i],
                    few,
                    low,
                    all_scores,
                    all_indices,
                    (head * scores.shape[1] + first + i) * k,
                )
        at += tile
    hold(blocks), hold(lines), hold(wides), hold(nears), hold(rows)
