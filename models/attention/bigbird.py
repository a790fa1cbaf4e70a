"""BigBird: attention of blocks of nodes to a few blocks, in a whole encoder layer.

The nodes of a graph stand in a row, in the order of the data, and are cut into blocks of R. The first and
the last block are global: they attend to all blocks, and all attend to them. Every other block also attends
to itself, to its two neighbours and to a few random blocks, which differ by head. A block that is named
twice counts twice in the softmax, as it does in the published code.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kmip_data.models.layers.adjacency import EdgeList
from kmip_data.models.layers.batch import GraphBatch, Pointers, pointers
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search.problem import check_heads, check_nodes


class BigBirdAttention(nn.Module):
    """An encoder layer of BigBird (Zaheer et al., 2020), as GraphGPS uses it for global attention.

    Block-sparse attention, a linear layer, residual connection and layer norm; then two linear layers of
    the same width with ReLU between, residual connection and layer norm. :func:`plan_blocks` says which
    blocks attend to which. The order of the nodes matters: it is what blocks are cut from.

    Parameters
    ----------
    dim, heads
        Channels d of the input and the output, and attention heads, which share them.
    block_size
        Nodes of a block.
    random_blocks, seed
        Random blocks that a block attends to, for each head, and seed of their draw, the same in every layer
        and step.
    dropout
        Probability, before each of the two residual connections; attention itself has none.
    norm_eps
        Added to the variance in layer norms.
    legacy_padding
        Reproduce the published code: every graph is as long as the longest of its batch, so its random
        blocks and its last block, which is then padding, depend on the others. False: each as if alone.

    Examples
    --------
    >>> import torch
    >>> from kmip_data.models import BigBirdAttention
    >>> attention = BigBirdAttention(8, heads=2)
    >>> attention(torch.randn(50, 8), [0, 20, 50]).shape  # two graphs
    torch.Size([50, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 4,
        block_size: int = 3,
        random_blocks: int = 3,
        seed: int = 0,
        dropout: float = 0.0,
        norm_eps: float = 1e-6,
        legacy_padding: bool = False,
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.pattern = Pattern(heads, block_size, random_blocks, seed, legacy_padding)
        self.query, self.key, self.value = (Linear(dim, dim, bias=False) for _ in range(3))
        self.output = Linear(dim, dim)
        self.norm_attention = nn.LayerNorm(dim, eps=norm_eps)
        self.feed_in = Linear(dim, dim)
        self.feed_out = Linear(dim, dim)
        self.norm_out = nn.LayerNorm(dim, eps=norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, ptr: Pointers = None) -> Tensor:
        """Attend within each graph: nodes of all graphs (N, d) to the same.

        ``ptr`` (G + 1): graph g has the rows ``ptr[g]:ptr[g + 1]``; or a batch that has it; None: one graph.
        """
        x = check_nodes(x, self.query.weight)
        x = self.norm_attention(x + self.dropout(self.output(self._attend(x, ptr))))
        return self.norm_out(x + self.dropout(self.feed_out(self.feed_in(x).relu())))  # type: ignore[no-any-return]

    def _attend(self, x: Tensor, ptr: Pointers) -> Tensor:
        plan = _plan(ptr, x, self.pattern)
        padded = x.new_zeros(plan.filled.numel(), x.shape[1]).index_copy(0, plan.rows, x)
        shape = (*plan.filled.shape, self.pattern.heads, -1)
        work = torch.promote_types(x.dtype, torch.float32)
        queries, keys, values = (
            linear(padded).to(work).view(shape).permute(2, 0, 1, 3).contiguous()
            for linear in (self.query, self.key, self.value)
        )
        with torch.autocast(x.device.type, enabled=False):  # as precise as it is without
            out: Tensor = _BlockAttention.apply(queries, keys, values, plan)  # type: ignore[no-untyped-call]
        return out.permute(1, 2, 0, 3).reshape(padded.shape).index_select(0, plan.rows).to(x.dtype)


@torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
def _plan(ptr: Pointers, x: Tensor, pattern: Pattern) -> BlockPlan:
    if not isinstance(ptr, GraphBatch):
        return plan_blocks(torch.tensor(pointers(ptr, x.shape[0])), pattern, x.device)
    if pattern not in ptr.plans:  # which the layers of a network share
        ptr.plans[pattern] = plan_blocks(ptr.ptr, pattern, x.device)
    plan: BlockPlan = ptr.plans[pattern]
    return plan


class _BlockAttention(torch.autograd.Function):
    """Softmax attention of blocks (H, B, R, d) to those of a plan. Keeps the weights, no gathered row."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, plan: BlockPlan) -> Tensor:
        out = torch.zeros_like(queries)
        kept = []
        for group in plan.groups:
            scores = queries[:, group.queries] @ _gather(keys, group.keys).transpose(2, 3)
            empty = ~plan.filled[group.keys].flatten(2)[:, :, None]
            # A block with a node is among those that it attends to, so no row is masked whole.
            weights = (
                (scores / math.sqrt(queries.shape[3])).masked_fill_(empty, -torch.inf).softmax(-1)
            )
            out[:, group.queries] = weights @ _gather(values, group.keys)
            kept.append(weights)
        ctx.save_for_backward(queries, keys, values, *kept)
        ctx.plan = plan
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        queries, keys, values, *kept = ctx.saved_tensors
        of_queries, of_keys, of_values = (torch.zeros_like(t) for t in (queries, keys, values))
        for group, weights in zip(ctx.plan.groups, kept, strict=True):
            of_out = grad[:, group.queries]
            slopes = of_out @ _gather(values, group.keys).transpose(2, 3)
            slopes = (
                weights
                * (slopes - (slopes * weights).sum(-1, keepdim=True))
                / math.sqrt(keys.shape[3])
            )
            of_queries[:, group.queries] = slopes @ _gather(keys, group.keys)
            _add(of_keys, group.keys, slopes.transpose(2, 3) @ queries[:, group.queries])
            _add(of_values, group.keys, weights.transpose(2, 3) @ of_out)
        return of_queries, of_keys, of_values, None


def _gather(rows: Tensor, lists: Tensor) -> Tensor:
    """Rows (H, B, R, d) of the blocks ``lists`` (H or 1, M, S): (H, M, S · R, d)."""
    blocks = nn.functional.embedding(_flat(rows, lists), rows.flatten(2).flatten(0, 1))
    return blocks.view(*blocks.shape[:2], -1, rows.shape[3])


def _add(rows: Tensor, lists: Tensor, values: Tensor) -> None:
    """Add ``values`` (H, M, S · R, d) to the rows that :func:`_gather` took them from."""
    width = rows.shape[2] * rows.shape[3]
    index = _flat(rows, lists).flatten()
    flat = rows.view(-1, width)
    values = values.reshape(-1, width)
    if rows.device.type == "cpu":
        flat.index_add_(0, index, values)
    else:  # in one order
        flat += EdgeList(index, index, len(flat)).sum(values, targets=True)


def _flat(rows: Tensor, lists: Tensor) -> Tensor:
    """Blocks of each head → blocks of all heads, one head after another: (H, M, S)."""
    return lists + torch.arange(len(rows), device=rows.device)[:, None, None] * rows.shape[1]


WINDOW = 5  #: blocks that a block attends to besides random ones: first, its left, itself, its right, last
SPARSE_FROM = (
    4  #: blocks of a graph; one with fewer is attended whole, where the published code fails
)


@dataclass(frozen=True)
class Pattern:
    """Options of block-sparse attention."""

    heads: int  #: attention heads H
    block_size: int  #: nodes of a block R
    random_blocks: int  #: random blocks of each block and head
    seed: int  #: of the draw
    legacy_padding: bool  #: every graph as long as the longest of its batch, the rest of it masked


class Group(NamedTuple):
    """Blocks that attend to as many blocks each."""

    queries: Tensor  #: (M,) int64
    keys: Tensor  #: (H or 1, M, S) int64; the last block of all holds no node: it fills empty slots


class BlockPlan(NamedTuple):
    """The blocks of a batch: those of one graph after those of another, and an empty one."""

    rows: Tensor  #: (N,) int64, place of each node among the rows of all blocks, B · R
    filled: Tensor  #: (B, R) bool, where there is a node
    groups: tuple[
        Group, ...
    ]  #: what each block attends to; every block with a node is in one of them


def plan_blocks(ptr: Tensor, pattern: Pattern, device: torch.device) -> BlockPlan:
    """Lay out the graphs ``ptr`` (G + 1) on the CPU, for use on a device."""
    # 1. Blocks of all graphs in one row; each graph's last block may be short.
    sizes = ptr.diff()
    block = pattern.block_size
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
    power = held[graph].double().log2().ceil()
    for value in sorted(set(power[whole].tolist())):
        blocks = (whole & (power == value)).nonzero()[:, 0]
        places = torch.arange(int(held[graph[blocks]].max())).expand(len(blocks), -1)
        groups.append(Group(blocks, of_all(places, blocks)[None]))
    # 4. All others in one group: first, left, itself, right, last (−1 where that would repeat a global
    #    block), then the random ones of each head.
    blocks = (~whole).nonzero()[:, 0]
    if len(blocks):
        at = place[blocks]
        end = length[blocks]
        window = [
            at * 0,
            torch.where(at > 1, at - 1, -1),
            at,
            torch.where(at < end - 2, at + 1, -1),
            end - 1,
        ]
        near = of_all(torch.stack(window, 1), blocks).expand(pattern.heads, -1, -1)
        far = torch.stack([of_all(drawn, blocks) for drawn in _random_places(at, end, pattern)])
        groups.append(Group(blocks, torch.cat([near, far], 2)))
    groups = [Group(*(table.to(device) for table in group)) for group in groups]
    return BlockPlan(rows.to(device), filled.view(-1, block).to(device), tuple(groups))


def _random_places(at: Tensor, end: Tensor, pattern: Pattern) -> Tensor:
    """(H, M, random_blocks) random blocks of the blocks ``at`` in graphs of ``end`` blocks."""
    out = torch.empty(pattern.heads, len(at), pattern.random_blocks, dtype=torch.int64)
    long = 2 * pattern.random_blocks + WINDOW + 1  # from here on the same, however long
    alike = end.clamp_max(long)
    for length in alike.bincount().nonzero()[:, 0].tolist():
        chosen = alike == length
        # Drawn for a power of two, so that a few draws serve all lengths.
        blocks = 1 << (int(end.max()) - 1).bit_length() if length == long else length
        drawn = draw_random_blocks(blocks, pattern.heads, pattern.random_blocks, pattern.seed)
        out[:, chosen] = torch.from_numpy(drawn)[:, at[chosen]]
    return out


@functools.lru_cache(maxsize=128)
def draw_random_blocks(blocks: int, heads: int, count: int, seed: int) -> NDArray[np.int64]:
    """Draw as the published code does after ``numpy.random.seed(seed)``; that generator is left alone.

    Up to ``count`` + 5 blocks any may be drawn; up to twice ``count`` + 5 about half of them come from the
    first ``count`` + 5 and the others from the rest; in longer graphs all come from the first
    2 · ``count`` + 5. Blocks that are attended anyway are not left out. Gives (heads, blocks, count), unused
    for the first and last block of a graph.
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

    short = count + WINDOW
    every = slice(None)
    if short < blocks <= short + count:
        half = count // 2
        for rows in (range(1, short), range(short, blocks)):
            draw(rows, slice(half), range(short))
            draw(rows, slice(half, None), range(short, blocks))
    else:
        draw(range(1, blocks), every, range(min(blocks, short + count)))
    return drawn
