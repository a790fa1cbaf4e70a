"""Block plans equal those of the published code, for each graph alone."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from support.cases import check_each

from kmip_data.models.attention.bigbird import Pattern, draw_random_blocks, plan_blocks

#: Blocks of 3 nodes -> what upstream's ``_bigbird_block_rand_mask_with_head`` gave for 4 heads, 3 random
#: blocks and ``numpy.random.seed(0)``: rows 1 and 2 of the first head, the last two of the last, the sum of
#: all, and the sum of all times 1, 2, 3 ….
DRAWN = {
    4: ([[2, 3, 1], [1, 2, 3]], [[1, 0, 2], [0, 2, 3]], 36, 425),
    8: ([[6, 2, 1], [4, 5, 1]], [[5, 1, 0], [1, 6, 4]], 257, 9_490),
    9: ([[6, 8, 8], [4, 8, 8]], [[1, 8, 8], [2, 8, 8]], 549, 23_340),
    11: ([[6, 10, 8], [4, 8, 10]], [[4, 10, 9], [2, 8, 9]], 783, 42_497),
    12: ([[4, 9, 2], [8, 9, 5]], [[1, 3, 8], [8, 3, 4]], 586, 37_415),
    40: ([[4, 9, 2], [8, 9, 5]], [[6, 1, 10], [8, 6, 10]], 2_306, 537_871),
}


def test_random_blocks_are_those_of_the_published_code() -> None:
    def holds(blocks) -> None:
        found = draw_random_blocks(blocks, 4, 3, 0)[:, 1:-1]
        first, last, total, weighted = DRAWN[blocks]
        assert (found[0, :2].tolist(), found[3, -2:].tolist()) == (first, last)
        assert (int(found.sum()), int((found.ravel() * np.arange(1, found.size + 1)).sum())) == (
            total,
            weighted,
        )

    check_each(holds, DRAWN)


def test_the_draw_leaves_numpys_generator_alone() -> None:
    np.random.seed(3)  # noqa: NPY002 -- the one that must be left alone
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    draw_random_blocks.cache_clear()
    draw_random_blocks(30, 2, 3, 0)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_any_number_of_random_blocks_lies_within_the_graph() -> None:
    """Also where there are fewer blocks than random ones, for which the published code fails."""

    def holds(case) -> None:
        count, blocks = case
        drawn = draw_random_blocks(blocks, 2, count, 0)
        assert drawn.shape == (2, blocks, count)
        assert count == 0 or (drawn.min() >= 0 and drawn.max() < blocks)

    check_each(holds, itertools.product([0, 1, 2, 5, 9], [4, 6, 7, 9, 12, 16, 30]))


def attended(sizes: list[int], pattern: Pattern) -> list[list[list[int]]]:
    """For each head and node: the nodes that it attends to, sorted, some of them more than once."""
    ptr = torch.tensor([0, *np.cumsum(sizes).tolist()])
    plan = plan_blocks(ptr, pattern)
    node = torch.full(plan.filled.shape, -1)
    node.view(-1)[plan.rows] = torch.arange(sum(sizes))
    assert torch.equal(node >= 0, plan.filled)
    found: list[list[list[int]]] = [[[] for _ in range(sum(sizes))] for _ in range(pattern.heads)]
    for group in plan.groups:
        for head in range(pattern.heads):
            for block, keys in zip(group.queries, group.keys[head % len(group.keys)], strict=True):
                for row in node[block][node[block] >= 0].tolist():
                    assert found[head][row] == []  # no block is in two groups
                    found[head][row] = sorted(node[keys][node[keys] >= 0].tolist())
    return found


def test_a_block_attends_to_global_window_and_random_ones() -> None:
    def holds(case) -> None:
        legacy, block_size = case
        sizes = [1, 2, 9, 10, 0, 13, 40, 29, 64]
        pattern = Pattern(2, block_size, 3, 0, legacy)
        found = attended(sizes, pattern)
        padded = [-(-(max(sizes) if legacy else size) // block_size) for size in sizes]
        for head in range(2):
            for graph, (size, blocks) in enumerate(zip(sizes, padded, strict=True)):
                start = sum(sizes[:graph])
                for row in range(size):
                    b = row // block_size
                    if blocks < 4 or b in {0, blocks - 1}:
                        keys = list(range(blocks))
                    else:
                        keys = [0, blocks - 1, *range(max(b - 1, 1), min(b + 2, blocks - 1))]
                        keys += draw_random_blocks(blocks, 2, 3, 0)[head, b].tolist()
                    nodes = [key * block_size + i for key in keys for i in range(block_size)]
                    assert found[head][start + row] == sorted(start + node for node in nodes if node < size)

    check_each(holds, itertools.product([False, True], [1, 3, 4]))
