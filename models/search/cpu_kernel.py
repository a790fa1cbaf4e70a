"""Compiled row search of the ``cpu`` backend: float64 scores by the rule, a heap a query."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

BLOCK = 256  # keys widened and transposed at a time: d of these rows stay in the L1 cache up to d ≈ 16
TILE = 32  # queries that share a block
STRIP = 32  # keys tested at once against the k-th best so far


@njit(nogil=True, cache=True, error_model="numpy")
def _sift(scores: Any, indices: Any, place: int, size: int) -> None:
    """Let a slot sink to its place in the heap, whose root is the worst: lowest score, highest index."""
    score, index = scores[place], indices[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            scores[other] < scores[child]
            or (scores[other] == scores[child] and indices[other] > indices[child])
        ):
            child = other
        if scores[child] > score or (scores[child] == score and indices[child] < index):
            break
        scores[place], indices[place] = scores[child], indices[child]
        place = child
    scores[place], indices[place] = score, index


@njit(nogil=True, cache=True, error_model="numpy")
def _heapify(scores: Any, indices: Any, size: int) -> None:
    for place in range(size // 2 - 1, -1, -1):
        _sift(scores, indices, place, size)


@njit(nogil=True, cache=True, error_model="numpy")
def _sort_heap(scores: Any, indices: Any, size: int) -> None:
    """Move the worst to the end, then the worst of the others before it, and so on."""
    for last in range(size - 1, 0, -1):
        score, index = scores[0], indices[0]
        scores[0], indices[0] = scores[last], indices[last]
        scores[last], indices[last] = score, index
        _sift(scores, indices, 0, last)


@njit(nogil=True, cache=True, error_model="numpy")
def _score_block(query: Any, block: Any, width: int, line: Any) -> None:
    """line[:width] = Σ_c query[c] · block[c, :width] in index order; four terms a pass over the line."""
    dim = query.shape[0]
    line[:width] = 0.0
    c = 0
    while c + 4 <= dim:
        q0, q1, q2, q3 = query[c], query[c + 1], query[c + 2], query[c + 3]
        for j in range(width):
            total = line[j] + q0 * block[c, j]
            total += q1 * block[c + 1, j]
            total += q2 * block[c + 2, j]
            line[j] = total + q3 * block[c + 3, j]
        c += 4
    while c < dim:
        q0 = query[c]
        for j in range(width):
            line[j] += q0 * block[c, j]
        c += 1


@njit(nogil=True, cache=True, error_model="numpy")
def _keep_best(line: Any, width: int, begin: int, scores: Any, indices: Any, filled: int, k: int) -> int:
    """Offer the scores of keys ``begin`` … to a query's slots; returns how many are filled."""
    j = 0
    while j < width and filled < k:
        scores[filled], indices[filled] = np.float32(line[j]), begin + j
        filled += 1
        j += 1
        if filled == k:
            _heapify(scores, indices, k)
    while j < width:
        end = min(j + STRIP, width)
        # Rounding never reorders: only a float64 sum above the worst kept can round to above it.
        worst = np.float64(scores[0])
        above = 0
        for i in range(j, end):
            above += line[i] > worst
        if above:
            for i in range(j, end):
                score = np.float32(line[i])
                if score > scores[0]:  # keys come by rising index: an equal one never displaces
                    scores[0], indices[0] = score, begin + i
                    _sift(scores, indices, 0, k)
        j = end
    return filled


@njit(nogil=True, cache=True, error_model="numpy")
def search_rows(
    queries: NDArray[np.float32],
    keys: NDArray[np.float32],
    query_ptr: NDArray[np.int64],
    key_ptr: NDArray[np.int64],
    k: int,
    start: int,
    stop: int,
    scores: NDArray[np.float32],
    indices: NDArray[np.int64],
) -> None:
    """Search for the rows ``start`` to ``stop`` of the H · N queries laid head after head.

    Parameters
    ----------
    queries, keys
        (H, N, d) and (H, M, d).
    query_ptr, key_ptr
        (G + 1,).
    scores, indices
        (H, N, k), filled with −inf and −1; rows ``start`` to ``stop`` are written.
    """
    count, dim = queries.shape[1], queries.shape[2]
    block = np.empty((dim, BLOCK), np.float64)
    wide = np.empty((TILE, dim), np.float64)
    line = np.empty(BLOCK, np.float64)
    filled = np.empty(TILE, np.int64)
    row = start
    while row < stop:
        head, first = row // count, row % count
        graph = np.searchsorted(query_ptr, first, side="right") - 1
        tile = min(TILE, query_ptr[graph + 1] - first, stop - row)
        low, high = key_ptr[graph], key_ptr[graph + 1]
        filled[:tile] = 0
        for i in range(tile):
            for c in range(dim):
                wide[i, c] = queries[head, first + i, c]
        for begin in range(low, high, BLOCK):
            width = min(BLOCK, high - begin)
            for j in range(width):
                for c in range(dim):
                    block[c, j] = keys[head, begin + j, c]
            for i in range(tile):
                _score_block(wide[i], block, width, line)
                filled[i] = _keep_best(
                    line, width, begin, scores[head, first + i], indices[head, first + i], filled[i], k
                )
        for i in range(tile):
            if filled[i] < k:
                _heapify(scores[head, first + i], indices[head, first + i], filled[i])
            _sort_heap(scores[head, first + i], indices[head, first + i], filled[i])
        row += tile
