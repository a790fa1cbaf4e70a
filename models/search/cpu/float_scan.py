"""Compiled search with a float32 filter, if bytes separate too few keys or are not supported.

Keys are sorted by length, 16 per register. Once the remaining keys are too short for a query's
threshold, the query is done.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, I32, I64, Bools
from kmip_data.models.search.cpu import candidates, simd
from kmip_data.models.search.cpu.candidates import INFINITY, QueryBlock, add_candidates
from kmip_data.models.search.cpu.simd import (
    Pointer,
    load_lanes,
    multiply_add,
    pointer_to_elements,
    splat_lanes,
)
from kmip_data.models.search.cpu.sorted_keys import LEAF, KeysByLength
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

BLOCK = 64  # queries per block, which share the cache
_CACHED_VALUES = 8192  # float32 values of keys that fit in the L1 cache


class PackedKeys(NamedTuple):
    """Keys in float32, the longest first."""

    points: F32  #: flat (leaves, d, 16) shifted and scaled keys, followed by NaN
    key_row: I32  #: (M,) row of each key in its graph
    sorted_keys: KeysByLength


def pack_keys(keys: F32, sorted_keys: KeysByLength) -> PackedKeys:
    """Shift, scale and pack keys (M, d)."""
    count, dim = keys.shape
    points = np.full(-(-count // LEAF) * dim * LEAF, np.nan, np.float32)
    run_in_ranges(partial(_pack_leaves, keys, sorted_keys, points), count, grain=10_000)
    return PackedKeys(points, sorted_keys.order.astype(np.int32), sorted_keys)


@njit_nogil(error_model="numpy")
def _pack_leaves(
    keys: F32,
    sorted_keys: KeysByLength,
    points: F32,
    start: int,
    stop: int,
) -> None:
    dim = keys.shape[1]
    order = sorted_keys.order
    centre = sorted_keys.centre
    for i in range(start, stop):
        to = i // LEAF * dim * LEAF + i % LEAF
        for c in range(dim):
            points[to + c * LEAF] = (keys[order[i], c] - centre[c]) * sorted_keys.factor


@njit_nogil(error_model="numpy", forceinline=True)
def _multiply_leaf(points: Pointer, leaf: int, dim: int, block: QueryBlock, i: int) -> None:
    """Multiply a leaf of 16 keys by four queries, and add the candidates."""
    zero = splat_lanes(np.float32(0))
    dots_0 = zero
    dots_1 = zero
    dots_2 = zero
    dots_3 = zero
    base = i * dim
    for column in range(dim):
        keys = load_lanes(points, (leaf * dim + column) * 16)
        unit = splat_lanes(block.unit_queries[base + column])
        dots_0 = multiply_add(unit, keys, dots_0)
        unit = splat_lanes(block.unit_queries[base + dim + column])
        dots_1 = multiply_add(unit, keys, dots_1)
        unit = splat_lanes(block.unit_queries[base + 2 * dim + column])
        dots_2 = multiply_add(unit, keys, dots_2)
        unit = splat_lanes(block.unit_queries[base + 3 * dim + column])
        dots_3 = multiply_add(unit, keys, dots_3)
    add_candidates(block, i, dots_0, leaf * 16)
    add_candidates(block, i + 1, dots_1, leaf * 16)
    add_candidates(block, i + 2, dots_2, leaf * 16)
    add_candidates(block, i + 3, dots_3, leaf * 16)


@njit_nogil(error_model="numpy")
def search_floats(
    packed: PackedKeys,
    queries: F32,
    keys: F32,
    scores: F32,
    indices: I64,
    failed: Bools,
    start: int,
    stop: int,
) -> int:
    """Search for rows ``start:stop`` of a graph's queries (R, d); return the number of multiplied leaves.

    ``packed`` are the graph's M > k keys (M, d). Writes scores and indices (R, k) of these rows, or
    sets ``failed`` (R,) for queries whose keys the filter cannot separate.
    """
    dim = keys.shape[1]
    k = scores.shape[1]
    visited = 0
    max_length = packed.sorted_keys.max_length
    leaves = len(max_length)
    block, memory = candidates.new_block(BLOCK, dim, k)
    points = pointer_to_elements(packed.points)
    key_row = pointer_to_elements(packed.key_row)
    query_values = pointer_to_elements(queries)
    key_values = pointer_to_elements(keys)
    to_scores = pointer_to_elements(scores)
    to_indices = pointer_to_elements(indices)
    step = max(1, _CACHED_VALUES // (16 * dim))  # leaves

    for first in range(start, stop, BLOCK):
        count = min(BLOCK, stop - first)
        candidates.load_queries(block, queries, first, count, packed.sorted_keys)

        # These keys stay in the L1 cache while all queries of the block pass over them. Keys get
        # shorter, so from some position on none can pass.
        for leaf in range(0, leaves, step):
            last = min(leaf + step, leaves)
            for i in range(0, count, 4):
                if max_length[leaf] < candidates.least_passing_length(block, i):
                    continue
                visited += min(4, count - i) * (last - leaf)
                for j in range(leaf, last):
                    _multiply_leaf(points, j, dim, block, i)

        # Drop candidates below the final floor, then score and rank the rest by the rule.
        for i in range(count):
            query = first + i
            if block.floor[i] != INFINITY:
                candidates.prune_candidates(block, i, 0)
            failed[query] = block.floor[i] == INFINITY
            if block.floor[i] != INFINITY:
                candidates.score_candidates(
                    block, i, 0, key_row, query_values, query, key_values, dim
                )
                candidates.write_best(block, i, key_row, to_scores, to_indices, query * k)

    simd.keep_alive(memory)
    return visited
