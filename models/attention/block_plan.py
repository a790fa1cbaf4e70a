"""Block layout of BigBird: global, window and random blocks of a graph's nodes.

The nodes of a graph stand in a row, in the order of the data, and are cut into blocks of R. The first and
the last block are global: they attend to all blocks, and all attend to them. Every other block attends
besides to itself, to its two neighbours and to a few random blocks, which differ by head. A block that is
named twice counts twice in the softmax, as it does in the published code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WINDOW = 5  #: blocks that a block attends to beside random ones: first, its left, itself, its right, last
SPARSE_FROM = 4  #: blocks of a graph; one with fewer is attended whole, where the published code fails


@dataclass(frozen=True)
class Pattern:
    """How blocks attend."""

    heads: int  #: attention heads H
    block_size: int  #: nodes of a block R
    random_blocks: int  #: random blocks of each block and head
    seed: int  #: of the draw
    legacy_padding: bool  #: every graph as long as the longest of its batch, the rest of it masked


class Group(NamedTuple):
    """Blocks that attend to as many blocks each."""

    queries: Tensor  #: (M,) int64
    keys: Tensor  #: (H or 1, M, S) int64; the last block of all holds no node: it fills empty slots


@dataclass(frozen=True, eq=False)
class BlockPlan:
    """The blocks of a batch: those of one graph after those of another, and an empty one."""

    rows: Tensor  #: (N,) int64, place of each node among the rows of all blocks, B · R
    filled: Tensor  #: (B, R) bool, where there is a node
    groups: tuple[Group, ...]  #: what each block attends to; every block with a node is in one of them

    def to(self, device: torch.device) -> BlockPlan:
        """Return the plan on a device."""
        groups = (Group(*(table.to(device) for table in group)) for group in self.groups)
        return BlockPlan(self.rows.to(device), self.filled.to(device), tuple(groups))


def plan_blocks(ptr: Tensor, pattern: Pattern) -> BlockPlan:
    """Lay out the graphs ``ptr`` (G + 1), on the CPU."""
    # 1. Blocks of all graphs in one row; each graph's last block may be short.
    sizes, block = ptr.diff(), pattern.block_size
    held = (sizes + block - 1) // block  # blocks with nodes
    first = held.cumsum(0) - held
    total = int(held.sum())
    rows = torch.arange(int(sizes.sum())) + (first * block - ptr[:-1]).repeat_interleave(sizes)
    filled = torch.zeros((total + 1) * block, dtype=torch.bool)
    filled[rows] = True

    # 2. Blocks that attend to their whole graph: the first and last, and all of graphs below four blocks.
    graph = torch.arange(len(sizes)).repeat_interleave(held)
    place = torch.arange(total) - first[graph]
    length = held.max().expand(total) if pattern.legacy_padding and total else held[graph]
    whole = (place == 0) | (place == length - 1) | (length < SPARSE_FROM)

    def of_all(places: Tensor, blocks: Tensor) -> Tensor:
        """Places in the graph of each of ``blocks`` → blocks of the batch."""
        there = (places >= 0) & (places < held[graph[blocks], None])
        return torch.where(there, places + first[graph[blocks], None], total)

    # 3. Whole-graph blocks in groups of similar length: padded to a power of two, at most half is empty.
    groups = []
    for blocks in _alike(whole.nonzero()[:, 0], held[graph]):
        places = torch.arange(int(held[graph[blocks]].max())).expand(len(blocks), -1)
        groups.append(Group(blocks, of_all(places, blocks)[None]))
    # 4. All others in one group: first, left, itself, right, last (−1 where that would repeat a global
    #    block), then the random ones of each head.
    blocks = (~whole).nonzero()[:, 0]
    if len(blocks):
        at, end = place[blocks], length[blocks]
        window = [at * 0, torch.where(at > 1, at - 1, -1), at, torch.where(at < end - 2, at + 1, -1), end - 1]
        near = of_all(torch.stack(window, 1), blocks).expand(pattern.heads, -1, -1)
        far = torch.stack([of_all(drawn, blocks) for drawn in _random_places(at, end, pattern)])
        groups.append(Group(blocks, torch.cat([near, far], 2)))
    return BlockPlan(rows, filled.view(-1, block), tuple(groups))


def _alike(blocks: Tensor, lengths: Tensor) -> Iterator[Tensor]:
    """``blocks`` by the power of two that the length of their graph reaches, so that little is filled up."""
    power = lengths[blocks].double().log2().ceil().long()
    for value in power.bincount().nonzero()[:, 0].tolist():
        yield blocks[power == value]


def _random_places(at: Tensor, end: Tensor, pattern: Pattern) -> Tensor:
    """(H, M, random_blocks) random blocks of the blocks ``at`` in graphs of ``end`` blocks."""
    out = torch.empty(pattern.heads, len(at), pattern.random_blocks, dtype=torch.int64)
    long = 2 * pattern.random_blocks + WINDOW + 1  # from here on the same, however long
    alike = end.clamp_max(long)
    for length in alike.bincount().nonzero()[:, 0].tolist():
        chosen = alike == length
        # Drawn for a power of two, so that a few draws serve all lengths.
        blocks = 1 << (int(end.max()) - 1).bit_length() if length == long else length
        drawn = torch.from_numpy(
            draw_random_blocks(blocks, pattern.heads, pattern.random_blocks, pattern.seed)
        )
        out[:, chosen] = drawn[:, at[chosen]]
    return out


@functools.lru_cache(maxsize=128)
def draw_random_blocks(blocks: int, heads: int, count: int, seed: int) -> NDArray[np.int64]:
    """Draw as the published code does after ``numpy.random.seed(seed)``; that generator is left alone.

    Up to ``count`` + 5 blocks any may be drawn; up to twice ``count`` + 5 about half of them come from the
    first ``count`` + 5 and the others from the rest; in longer graphs all come from the first
    2 · ``count`` + 5. What a block attends to anyway is not left out. Gives (heads, blocks, count); the first
    and last block of a graph have no use for theirs.
    """
    generator = np.random.RandomState(seed)  # the stream of numpy.random.seed
    drawn = np.zeros((heads, blocks, count), np.int64)

    def draw(rows: range, columns: slice, among: range) -> None:
        width = len(range(*columns.indices(count)))
        if not width:
            return
        for row in rows:
            for head in range(heads):
                # Repeated where there are too few: the published code does so with one, and else fails.
                drawn[head, row, columns] = np.resize(generator.permutation(np.array(among)), width)

    short, every = count + WINDOW, slice(None)
    if short < blocks <= short + count:
        half = count // 2
        for rows in (range(1, short), range(short, blocks)):
            draw(rows, slice(half), range(short))
            draw(rows, slice(half, None), range(short, blocks))
    else:
        draw(range(1, blocks), every, range(min(blocks, short + count)))
    return drawn
