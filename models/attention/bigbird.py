"""BigBird: block-sparse attention within a full encoder layer.

The nodes of a graph, in data order, are cut into blocks of R. The
first and the last block are global: they attend to all blocks, and all attend to them. Every other
block also attends to itself, to its two neighbours and to a few random blocks, which differ by
head. A block listed twice counts twice in the softmax, as in the published code.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from kmip_data.arrays import I64
from kmip_data.models.attention.overflow import check_lengths
from kmip_data.models.layers.batch import GraphBatch, Pointers, pointers_of_batch
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search.problem import check_heads, check_nodes


class BigBirdAttention(nn.Module):
    """An encoder layer of BigBird (Zaheer et al., 2020), as GraphGPS uses it for global attention.

    Block-sparse attention, a linear layer, residual connection and layer norm; then two linear
    layers of the same width with ReLU between, residual connection and layer norm.
    :func:`plan_blocks` decides which blocks attend to which. The order of the nodes matters, as
    blocks are cut from it.

    Parameters
    ----------
    dim, heads
        Channels d in and out, split among the attention heads.
    block_size
        Nodes of a block.
    random_blocks, seed
        Random blocks per block and head, and the seed they are drawn with, equal in every layer and
        step.
    dropout
        Dropout probability before each of the two residual connections; attention itself has no
        dropout.
    norm_eps
        Epsilon of the layer norms.
    legacy_padding
        Reproduce the published code: graphs are padded to the longest of the batch, so the random
        blocks and the last block, then padding, depend on the other graphs. False: each graph as if
        alone.

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
        self.query = Linear(dim, dim, bias=False)
        self.key = Linear(dim, dim, bias=False)
        self.value = Linear(dim, dim, bias=False)
        self.output = Linear(dim, dim)
        self.norm_attention = nn.LayerNorm(dim, eps=norm_eps)
        self.feed_in = Linear(dim, dim)
        self.feed_out = Linear(dim, dim)
        self.norm_out = nn.LayerNorm(dim, eps=norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, ptr: Pointers = None) -> Tensor:
        """Attend within each graph: nodes of all graphs (N, d) to the same.

        ``ptr`` (G + 1): graph g has the rows ``ptr[g]:ptr[g + 1]``; or a batch that has it; None:
        one graph.
        """
        x = check_nodes(x, self.query.weight)
        attended = self.output(self._attend(x, ptr))
        x = self.norm_attention(x + self.dropout(attended))
        hidden = self.feed_in(x).relu()
        return self.norm_out(x + self.dropout(self.feed_out(hidden)))  # type: ignore[no-any-return]

    def _attend(self, x: Tensor, ptr: Pointers) -> Tensor:
        # Nodes in blocks of R rows; the last block of a graph is zero-padded.
        plan = _block_plan(ptr, x, self.pattern)
        empty = x.new_zeros(plan.filled.numel(), x.shape[1])
        padded = empty.index_copy(0, plan.rows, x)
        blocks, size = plan.filled.shape
        precise = torch.promote_types(x.dtype, torch.float32)

        def project_by_head(linear: nn.Linear) -> Tensor:
            projected: Tensor = linear(padded).to(precise)
            rows = projected.view(blocks, size, self.pattern.heads, -1)
            return rows.permute(2, 0, 1, 3).contiguous()

        queries = project_by_head(self.query)
        keys = project_by_head(self.key)
        values = project_by_head(self.value)
        check_lengths(queries, keys)
        with torch.autocast(x.device.type, enabled=False):  # as precise as it is without
            out = _block_attention(queries, keys, values, plan)
        # (H, B, R, d) to rows with concatenated heads, without padding.
        nodes = out.permute(1, 2, 0, 3).reshape(padded.shape)
        return nodes.index_select(0, plan.rows).to(x.dtype)


@torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
def _block_plan(ptr: Pointers, x: Tensor, pattern: Pattern) -> BlockPlan:
    if not isinstance(ptr, GraphBatch):
        starts = torch.tensor(pointers_of_batch(ptr, x.shape[0]))
        return plan_blocks(starts, pattern, x.device)
    # All layers share a plan: their random blocks are equal.
    if pattern not in ptr.plans:
        ptr.plans[pattern] = plan_blocks(ptr.ptr, pattern, x.device)
    plan: BlockPlan = ptr.plans[pattern]
    return plan


def _block_attention(queries: Tensor, keys: Tensor, values: Tensor, plan: BlockPlan) -> Tensor:
    """Softmax attention of blocks (H, B, R, d) according to a plan."""
    out = torch.zeros_like(queries)
    for group in plan.groups:
        chosen = _gather_blocks(keys, group.keys)
        scores = queries[:, group.queries] @ chosen.transpose(2, 3)
        scores = scores / math.sqrt(queries.shape[3])

        # A block attends to itself, so no row with a node is fully masked.
        filled = plan.filled[group.keys].flatten(2)
        weights = scores.masked_fill(~filled[:, :, None], -torch.inf).softmax(-1)
        out[:, group.queries] = weights @ _gather_blocks(values, group.keys)
    return out


def _gather_blocks(rows: Tensor, lists: Tensor) -> Tensor:
    """Gather rows (H, B, R, d) of the blocks ``lists`` (H or 1, M, S): (H, M, S · R, d)."""
    heads, count, size, width = rows.shape
    # View the blocks as rows of one table, head after head: its gradient has one order of sums.
    head = torch.arange(heads, device=rows.device)
    index = lists + head[:, None, None] * count
    blocks = nn.functional.embedding(index, rows.reshape(heads * count, size * width))
    return blocks.view(*blocks.shape[:2], -1, width)


WINDOW = 5  #: blocks that a block attends to besides random ones: first, its left, itself, its right, last
#: Fewest blocks for sparse attention; smaller graphs get full attention, where the published code
#: fails.
SPARSE_FROM = 4


@dataclass(frozen=True)
class Pattern:
    """Options of block-sparse attention."""

    heads: int  #: attention heads H
    block_size: int  #: nodes per block R
    random_blocks: int  #: random blocks per block and head
    seed: int  #: seed of the random blocks
    legacy_padding: bool  #: pad every graph to the longest of its batch, and mask the padding


class Group(NamedTuple):
    """Blocks that attend to the same number of blocks."""

    queries: Tensor  #: (M,) int64
    keys: Tensor  #: (H or 1, M, S) int64; the very last block has no nodes and fills empty slots


class BlockPlan(NamedTuple):
    """Blocks of all graphs in a batch, concatenated, and one empty block."""

    rows: Tensor  #: (N,) int64, position of each node among the rows of all blocks, B · R
    filled: Tensor  #: (B, R) bool, True where there is a node
    #: keys of each block; every block with a node is in one group
    groups: tuple[Group, ...]


def plan_blocks(ptr: Tensor, pattern: Pattern, device: torch.device) -> BlockPlan:
    """Lay out the graphs ``ptr`` (G + 1) on the CPU, for use on a device."""
    # 1. Number the blocks of all graphs; a graph's last block may be short.
    sizes = ptr.diff()
    block = pattern.block_size
    held = (sizes + block - 1) // block  # blocks with nodes
    first = held.cumsum(0) - held
    total = int(held.sum())
    nodes = torch.arange(int(sizes.sum()))
    shift = first * block - ptr[:-1]  # from rows of nodes to rows of blocks
    rows = nodes + shift.repeat_interleave(sizes)
    filled = torch.zeros((total + 1) * block, dtype=torch.bool)
    filled[rows] = True

    # 2. Blocks with full attention: first and last, and all blocks of graphs with fewer than four.
    graph = torch.arange(len(sizes)).repeat_interleave(held)
    position = torch.arange(total) - first[graph]
    length = held[graph]
    if pattern.legacy_padding and total:
        length = held.max().expand(total)
    is_end = (position == 0) | (position == length - 1)
    attends_fully = is_end | (length < SPARSE_FROM)

    def to_batch_blocks(positions: Tensor, blocks: Tensor) -> Tensor:
        """Positions in the graph of each of ``blocks`` → blocks of the batch; ``total``: none."""
        graphs = graph[blocks]
        begins = first[graphs, None]
        exists = (positions >= 0) & (positions < held[graphs, None])
        return torch.where(exists, positions + begins, total)

    # 3. Group them by length, padded to a power of two: at most half is empty.
    groups = []
    power = held[graph].double().log2().ceil()
    for value in sorted(set(power[attends_fully].tolist())):
        alike = attends_fully & (power == value)
        blocks = alike.nonzero()[:, 0]
        longest = int(held[graph[blocks]].max())
        positions = torch.arange(longest).expand(len(blocks), -1)
        keys = to_batch_blocks(positions, blocks)
        groups.append(Group(blocks.to(device), keys[None].to(device)))

    # 4. All others form one group: first, left, itself, right, last (−1 where that repeats a global
    # block), then the random blocks of each head.
    blocks = (~attends_fully).nonzero()[:, 0]
    if len(blocks):
        middle = position[blocks]
        end = length[blocks]
        left = torch.where(middle > 1, middle - 1, -1)
        right = torch.where(middle < end - 2, middle + 1, -1)
        window = torch.stack([middle * 0, left, middle, right, end - 1], 1)
        near = to_batch_blocks(window, blocks).expand(pattern.heads, -1, -1)
        drawn = _random_positions(middle, end, pattern)
        far = torch.stack([to_batch_blocks(positions, blocks) for positions in drawn])
        keys = torch.cat([near, far], 2)
        groups.append(Group(blocks.to(device), keys.to(device)))

    filled = filled.view(-1, block)
    return BlockPlan(rows.to(device), filled.to(device), tuple(groups))


def _random_positions(blocks: Tensor, end: Tensor, pattern: Pattern) -> Tensor:
    """Return (H, M, random_blocks) random blocks of ``blocks`` in graphs of ``end`` blocks."""
    count = pattern.random_blocks
    out = torch.empty(pattern.heads, len(blocks), count, dtype=torch.int64)
    long = 2 * count + WINDOW + 1  # longer graphs draw alike
    lengths = end.clamp_max(long)
    # Draw for a power of two, so that a few draws serve all long graphs.
    longest = 1 << (int(end.max()) - 1).bit_length()
    for length in lengths.bincount().nonzero()[:, 0].tolist():
        chosen = lengths == length
        drawn = draw_random_blocks(
            longest if length == long else length,
            pattern.heads,
            count,
            pattern.seed,
        )
        table = torch.from_numpy(drawn)
        out[:, chosen] = table[:, blocks[chosen]]
    return out


@functools.lru_cache(maxsize=128)
def draw_random_blocks(
    blocks: int,
    heads: int,
    count: int,
    seed: int,
) -> I64:
    """Draw as the published code does after ``numpy.random.seed(seed)``, which is not called.

    Up to ``count`` + 5 blocks any may be drawn; up to twice ``count`` + 5 about half of them come
    from the first ``count`` + 5 and the others from the rest; in longer graphs all come from the
    first 2 · ``count`` + 5. Blocks that are attended anyway are not left out. Return (heads,
    blocks, count), unused for the first and last block of a graph.
    """
    generator = np.random.RandomState(seed)  # the stream of numpy.random.seed
    drawn = np.zeros((heads, blocks, count), np.int64)

    def draw(rows: range, columns: slice, among: range) -> None:
        width = len(range(*columns.indices(count)))
        if not width:
            return
        for row in rows:
            for head in range(heads):
                shuffled = generator.permutation(np.array(among))
                # Repeated where there are too few: the published code does so with one, and else
                # fails.
                drawn[head, row, columns] = np.resize(shuffled, width)

    short = count + WINDOW
    if short < blocks <= short + count:
        first = slice(count // 2)
        others = slice(count // 2, None)
        for rows in (range(1, short), range(short, blocks)):
            draw(rows, first, range(short))
            draw(rows, others, range(short, blocks))
    else:
        draw(range(1, blocks), slice(None), range(min(blocks, short + count)))
    return drawn
