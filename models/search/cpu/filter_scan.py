"""Compiled search behind a float32 filter: of every key, or of those that no cone of the tree excludes."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import F32, I64, Bools
from kmip_data.models.search.cpu import candidates, lanes
from kmip_data.models.search.cpu.candidates import OUT, Block, append, cut, offer, set_floor
from kmip_data.models.search.cpu.lanes import (
    Pointer,
    Register,
    at_least,
    load,
    multiply_add,
    pointer,
    splat,
)
from kmip_data.models.search.cpu.tree import BRANCH, CONE, LEAF, SHELL, Tree
from kmip_data.runtime.threads import njit_nogil

BLOCK = 64  # queries that share what they bring into the cache
_SHELL_LEAVES = SHELL // LEAF  # keys of a shell may have any order
_NEAR = 8192  # float32 numbers of keys that stay in the nearest cache


@njit_nogil(error_model="numpy", forceinline=True)
def _multiply_leaf(
    points: Pointer,
    leaf: int,
    dim: int,
    block: Block,
    pick: Pointer,
    first: int,
) -> None:
    """Multiply a leaf with four queries."""
    query_0 = pick[first]
    query_1 = pick[first + 1]
    query_2 = pick[first + 2]
    query_3 = pick[first + 3]
    zero = splat(np.float32(0))
    dots_0 = zero
    dots_1 = zero
    dots_2 = zero
    dots_3 = zero
    for column in range(dim):
        keys = load(points, (leaf * dim + column) * 16)
        unit = splat(block.unit[query_0 * dim + column])
        dots_0 = multiply_add(unit, keys, dots_0)
        unit = splat(block.unit[query_1 * dim + column])
        dots_1 = multiply_add(unit, keys, dots_1)
        unit = splat(block.unit[query_2 * dim + column])
        dots_2 = multiply_add(unit, keys, dots_2)
        unit = splat(block.unit[query_3 * dim + column])
        dots_3 = multiply_add(unit, keys, dots_3)
    offer(block, query_0, dots_0, leaf * 16)
    offer(block, query_1, dots_1, leaf * 16)
    offer(block, query_2, dots_2, leaf * 16)
    offer(block, query_3, dots_3, leaf * 16)


@njit_nogil(error_model="numpy")
def search_flat(
    tree: Tree,
    queries: F32,
    keys: F32,
    k: int,
    low: int,
    start: int,
    stop: int,
    scores: F32,
    indices: I64,
    failed: Bools,
) -> int:
    """Search for the rows ``start`` to ``stop``; count the leaves multiplied.

    Arguments as of :func:`search_tree`.
    """
    dim = tree.dim
    visited = 0
    leaves = -(-tree.keys // 16)
    block, memory = candidates.new_block(BLOCK, dim, k)
    every = np.arange(BLOCK)
    pick = pointer(every)
    points = pointer(tree.points)
    number = pointer(tree.number)
    to_scores = pointer(scores)
    to_indices = pointer(indices)
    step = max(1, _NEAR // (16 * dim))  # leaves

    for first in range(start, stop, BLOCK):
        count = min(BLOCK, stop - first)
        candidates.begin(block, queries, first, count, tree.scale, tree.longest)
        # Queries missing in the last tile of four let nothing pass.
        for i in range(count, (count + 3) & ~3):
            block.filled[i] = 0
            set_floor(block, i, OUT)

        # 8192 numbers of keys stay in the nearest cache while all queries of the block pass over
        # them. Keys fall in length: from some on they are shorter than a product that passes.
        for leaf in range(0, leaves, step):
            last = min(leaf + step, leaves)
            for i in range(0, count, 4):
                if tree.reach[leaf & -_SHELL_LEAVES] < candidates.least_limit(block, i):
                    continue
                visited += min(4, count - i) * (last - leaf)
                for near in range(leaf, last):
                    _multiply_leaf(points, near, dim, block, pick, i)

        candidates.finish(
            block, count, number, queries, keys, first, low, to_scores, to_indices, failed
        )

    lanes.hold(memory)
    lanes.hold(every)
    return visited


@njit_nogil(error_model="numpy", forceinline=True)
def _reach(
    cones: Pointer,
    group: int,
    dim: int,
    unit: Pointer,
    base: int,
) -> Register:
    """Upper bounds of a query's products with the keys in each of 16 cones, where positive.

    With the angle a between query and axis and the half-angle b: R inside the cone (a ≤ b), else
    R cos(a − b) = R (cos a cos b + sin a sin b).
    """
    # 1. cos a of 16 cones at once: one lane a cone.
    first = group * (dim + CONE) * 16
    dot = splat(np.float32(0))
    for c in range(dim):
        query = splat(unit[base + c])
        dot = multiply_add(query, load(cones, first + 16 * c), dot)
    first += 16 * dim
    cosine = load(cones, first)
    r_cosine = load(cones, first + 16)
    r_sine = load(cones, first + 32)
    longest = load(cones, first + 48)
    # 2. sin a. The root of a number near 0 errs by more than the number: add its largest error
    #    first.
    room = splat(np.float32(1 + 4 * candidates.error_of_cones(dim)))
    square = lanes.minus(room, lanes.times(dot, dot))
    across = lanes.square_root(square)
    # 3. R cos a cos b + R sin a sin b, or R for a query inside; set_floor's margin covers the
    #    rounding.
    outside = multiply_add(dot, r_cosine, lanes.times(across, r_sine))
    return lanes.where_at_least(dot, cosine, longest, outside)


@njit_nogil(error_model="numpy", forceinline=True)
def _visit(
    points: Pointer,
    cones: Pointer,
    dim: int,
    twig: int,
    block: Block,
    i: int,
) -> int:
    """Search one twig for one query; return the number of leaves searched."""
    base = i * dim
    leaves = 0
    reach = _reach(cones, twig, dim, block.unit, base)
    mask = at_least(reach, splat(block.limit[i]))
    while mask:
        leaf = twig * 16 + lanes.lowest_bit(mask)
        mask &= mask - 1
        dots = splat(np.float32(0))
        for c in range(dim):
            query = splat(block.unit[base + c])
            key = load(points, (leaf * dim + c) * 16)
            dots = multiply_add(query, key, dots)
        leaves += 1
        hits = at_least(dots, splat(block.floor[i]))
        # A cut raises the floor: leaves whose cone no longer reaches it drop out of the mask.
        if hits and append(block, i, dots, hits, leaf * 16):
            cut(block, i, block.k // 8)
            mask &= at_least(reach, splat(block.limit[i]))
    return leaves


@njit_nogil(error_model="numpy", forceinline=True)
def _visit_together(
    points: Pointer,
    cones: Pointer,
    dim: int,
    twig: int,
    lane: int,
    block: Block,
    count: int,
    masks: Pointer,
    pick: Pointer,
    picked: Pointer,
) -> int:
    """Search a twig for all queries whose mask asks for it; return the number of leaves."""
    # 1. List the queries of each leaf: those whose bound of its cone reaches their floor.
    for leaf in range(16):
        picked[leaf] = 0
    for i in range(count):
        if (masks[i] >> lane) & 1:
            reach = _reach(cones, twig, dim, block.unit, i * dim)
            mask = at_least(reach, splat(block.limit[i]))
            while mask:
                leaf = lanes.lowest_bit(mask)
                mask &= mask - 1
                pick[leaf * (BLOCK + 4) + picked[leaf]] = i
                picked[leaf] += 1
    # 2. Multiply each leaf with its queries by fours; the last four are filled with the query that
    #    nothing reaches.
    leaves = 0
    for leaf in range(16):
        queries = picked[leaf]
        leaves += queries
        first = leaf * (BLOCK + 4)
        for j in range(queries, (queries + 3) & ~3):
            pick[first + j] = BLOCK
        for j in range(0, queries, 4):
            _multiply_leaf(points, twig * 16 + leaf, dim, block, pick, first + j)
    return leaves


@njit_nogil(error_model="numpy", forceinline=True)
def _most_promising(
    cones: Pointer,
    branches: int,
    dim: int,
    block: Block,
    i: int,
    twigs: Pointer,
    reaches: Pointer,
    count: int,
) -> None:
    """Find the ``count`` twigs that reach farthest, best first; −1 where there are fewer."""
    for j in range(count):
        twigs[j] = -1
        reaches[j] = -OUT
    for branch in range(branches):
        reach = _reach(cones, branch, dim, block.unit, i * dim)
        mask = at_least(reach, splat(reaches[count - 1]))
        if mask:
            lanes.store(block.line, 0, reach)
        while mask:
            lane = lanes.lowest_bit(mask)
            mask &= mask - 1
            value = block.line[lane]
            # Insertion into a sorted list: of 3 twigs nothing is simpler.
            if value > reaches[count - 1]:
                j = count - 1
                while j > 0 and reaches[j - 1] < value:
                    twigs[j] = twigs[j - 1]
                    reaches[j] = reaches[j - 1]
                    j -= 1
                twigs[j] = branch * 16 + lane
                reaches[j] = value


@njit_nogil(error_model="numpy")
def _take_hint(
    tree: Tree,
    hint: I64,
    row: int,
    low: int,
    seen: I64,
    block: Block,
    i: int,
) -> bool:
    """Set the floor from the keys a hint names; False where these are fewer than k.

    ``seen`` (M,) holds the last row of queries for which each key was named.
    """
    # 1. The filter's products with at most 2 k of the named keys, each once.
    points = pointer(tree.points)
    n = 0
    base = i * block.space
    for j in range(hint.shape[1]):
        key = hint[row, j] - low
        if key < 0 or key >= tree.keys or seen[key] == row or n == 2 * block.k:
            continue
        seen[key] = row
        position = tree.place[key]
        first = (position // 16) * tree.dim * 16 + position % 16
        dot = np.float32(0)
        for c in range(tree.dim):
            dot += block.unit[i * tree.dim + c] * points[first + 16 * c]
        block.near[base + n] = dot
        n += 1
    if n < block.k:
        return False
    # 2. A floor one slack below the k-th best of them. Products are summed without fused
    #    operations: as near the exact one as the filter's, so twice the slack is safe.
    least = np.float32(np.inf)
    if n > block.k:
        least = candidates.kth_largest(block.near, base, base + n, block.k, 0)[0]
    else:
        for j in range(n):
            least = min(least, block.near[base + j])
    set_floor(block, i, least - block.slack[i])
    return True


@njit_nogil(error_model="numpy", forceinline=True)
def _mark_twigs(
    cones: Pointer,
    branch: int,
    dim: int,
    block: Block,
    count: int,
    first_twigs: Pointer,
    warm: int,
    masks: Pointer,
) -> int:
    """Set the mask of each query's twigs of a branch, its warm-up left out; return the union."""
    union = 0
    for i in range(count):
        reach = _reach(cones, branch, dim, block.unit, i * dim)
        mask = at_least(reach, splat(block.limit[i]))
        for j in range(i * warm, (i + 1) * warm):
            if first_twigs[j] >> 4 == branch:
                mask &= ~(1 << (first_twigs[j] & 15))
        masks[i] = mask
        union |= mask
    return union


@njit_nogil(error_model="numpy")
def search_tree(
    tree: Tree,
    queries: F32,
    keys: F32,
    hint: I64,
    k: int,
    low: int,
    warm: int,
    start: int,
    stop: int,
    scores: F32,
    indices: I64,
    failed: Bools,
) -> int:
    """Search for rows ``start`` to ``stop`` of a graph's queries; count the leaves multiplied.

    The tree is of the graph's M > k keys (M, d), of which ``low`` is the first among those of the
    head. Queries are (R, d), hints (R, h), rows of all keys of the head; h = 0: none. ``warm``
    twigs are searched first, which sets the floor. Scores and indices (R, k) are written for those
    rows, but those that fail: ``failed`` (R,) is set where the filter cannot separate too many
    keys.
    """
    dim = tree.dim
    branches = -(-tree.keys // BRANCH)
    block, memory = candidates.new_block(BLOCK + 1, dim, k)  # the last fills an unfinished tile
    # Scratch memory: masks of the queries, and for each leaf of a twig the queries that visit it.
    lists = np.empty(BLOCK + 16 * (BLOCK + 5), np.int64)
    masks = pointer(lists)
    picked = pointer(lists[BLOCK:])
    pick = pointer(lists[BLOCK + 16 :])
    twigs = np.empty(BLOCK * warm, np.int64)
    reach = np.empty(warm, np.float32)
    seen = np.full(tree.keys if hint.shape[1] else 0, -1, np.int64)

    reaches = pointer(reach)
    first_twigs = pointer(twigs)
    points = pointer(tree.points)
    leaf_cones = pointer(tree.leaf)
    twig_cones = pointer(tree.twig)
    number = pointer(tree.number)
    to_scores = pointer(scores)
    to_indices = pointer(indices)

    leaves = 0
    for first in range(start, stop, BLOCK):
        count = min(BLOCK, stop - first)
        candidates.begin(block, queries, first, count, tree.scale, tree.longest)

        # 1. Warm up each query alone: a floor from the hint or the 3 most promising twigs, 768 keys.
        for i in range(count):
            for j in range(warm):
                twigs[i * warm + j] = -1
            if block.floor[i] == OUT:
                continue
            if hint.shape[1] and _take_hint(tree, hint, first + i, low, seen, block, i):
                continue
            promising = pointer(twigs[i * warm :])
            _most_promising(twig_cones, branches, dim, block, i, promising, reaches, warm)
            for j in range(warm):
                if promising[j] >= 0:
                    leaves += _visit(points, leaf_cones, dim, promising[j], block, i)
            cut(block, i, 0)

        # 2. One query more, which nothing reaches, fills the last tile of four.
        block.filled[BLOCK] = 0
        set_floor(block, BLOCK, OUT)

        # 3. All 64 queries walk the tree together, branch by branch, so that a twig is read into
        #    the cache once: a twig is visited if any query's bound reaches its floor, by those
        #    queries only.
        for branch in range(branches):
            union = _mark_twigs(twig_cones, branch, dim, block, count, first_twigs, warm, masks)
            while union:
                lane = lanes.lowest_bit(union)
                union &= union - 1
                leaves += _visit_together(
                    points,
                    leaf_cones,
                    dim,
                    branch * 16 + lane,
                    lane,
                    block,
                    count,
                    masks,
                    pick,
                    picked,
                )

        # 4. Rank the candidates by the rule.
        candidates.finish(
            block, count, number, queries, keys, first, low, to_scores, to_indices, failed
        )

    lanes.hold(memory)
    lanes.hold(lists)
    lanes.hold(twigs)
    lanes.hold(reach)
    return leaves
