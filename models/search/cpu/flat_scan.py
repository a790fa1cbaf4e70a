"""Compiled search that multiplies out every key in float32, in tiles of registers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import F32, I64
from kmip_data.models.search.cpu.candidates import (
    OUT,
    Block,
    begin,
    finish,
    new_store,
    offer,
    set_floor,
    view,
)
from kmip_data.models.search.cpu.lanes import hold, load, multiply_add, pointer, splat
from kmip_data.models.search.cpu.tree import Tree
from kmip_data.runtime.threads import njit_nogil

BLOCK = 64  # queries that share what they bring into the cache
_NEAR = 8192  # float32 numbers of keys that stay in the nearest cache


@njit_nogil(error_model="numpy", forceinline=True)
def _tile(points: Any, leaf: int, dim: int, block: Block, i: int) -> None:
    """Multiply two leaves with four queries: eight sums in registers, six loads for eight products."""
    zero = splat(np.float32(0))
    a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
    at = leaf * dim * 16
    unit = i * dim
    for column in range(dim):
        left = load(points, at + column * 16)
        right = load(points, at + (dim + column) * 16)
        query = splat(block.unit[unit + column])
        a, b = multiply_add(query, left, a), multiply_add(query, right, b)
        query = splat(block.unit[unit + dim + column])
        c, d = multiply_add(query, left, c), multiply_add(query, right, d)
        query = splat(block.unit[unit + 2 * dim + column])
        e, f = multiply_add(query, left, e), multiply_add(query, right, f)
        query = splat(block.unit[unit + 3 * dim + column])
        g, h = multiply_add(query, left, g), multiply_add(query, right, h)
    place = leaf * 16
    offer(block, i, a, place)
    offer(block, i, b, place + 16)
    offer(block, i + 1, c, place)
    offer(block, i + 1, d, place + 16)
    offer(block, i + 2, e, place)
    offer(block, i + 2, f, place + 16)
    offer(block, i + 3, g, place)
    offer(block, i + 3, h, place + 16)


@njit_nogil(error_model="numpy")
def search_flat(
    tree: Tree, queries: F32, keys: F32, k: int, low: int, start: int, stop: int,
    scores: F32, indices: I64, failed: NDArray[np.bool_]
) -> None:  # fmt: skip
    """Search for the rows ``start`` to ``stop``; arguments as of :func:`.tree_scan.search_tree`."""
    dim, leaves = tree.dim, -(-tree.keys // 16)
    memory = new_store(BLOCK, dim, k)
    block = view(memory, BLOCK, dim, k)
    points, number = pointer(tree.points), pointer(tree.number)
    to_scores, to_indices = pointer(scores), pointer(indices)
    step = max(2, _NEAR // (16 * dim)) & ~1
    for first in range(start, stop, BLOCK):
        count = min(BLOCK, stop - first)
        begin(block, queries, first, count, tree.scale, tree.longest)
        for i in range(count, (count + 3) & ~3):  # of an unfinished tile
            block.filled[i] = 0
            set_floor(block, i, OUT)
        for leaf in range(0, leaves, step):
            for i in range(0, count, 4):
                for pair in range(leaf, min(leaf + step, leaves), 2):
                    _tile(points, pair, dim, block, i)
        finish(block, count, number, queries, keys, first, low, to_scores, to_indices, failed)
    hold(memory)
