"""BigBird: block-sparse attention within a full encoder layer.

The nodes of a graph, in data order, are cut into blocks of R. The first and the last block are
global: they attend to all blocks, and all blocks attend to them. Every other block also attends to
itself, its two neighbours and a few random blocks, drawn for each head. A block listed twice counts
twice in the softmax, as in the published code.
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
from kmip_data.models.attention.gate import Gate, apply_gate, build_gate
from kmip_data.models.attention.overflow import check_inner_products
from kmip_data.models.layers.batch import BatchOrPointers, GraphBatch, batch_pointers
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search.problem import check_heads, check_nodes


class BigBirdAttention(nn.Module):
    """Encoder layer of BigBird (Zaheer et al., 2020), as GraphGPS uses it for global attention.

    Block-sparse attention and a linear layer, then two linear layers of the same width with ReLU
    between. A residual connection and a layer norm follow each of the two parts.
    :func:`plan_blocks` decides which blocks attend to which. Blocks, and so results, depend on the
    order of the nodes.

    Parameters
    ----------
    dim, heads
        Input and output channels d, split among the attention heads.
    block_size
        Nodes per block.
    random_blocks, seed
        Random blocks per block and head, and their seed, shared by all layers and steps.
    dropout
        Dropout probability before each residual connection; attention itself has no dropout.
    norm_eps
        Epsilon of the layer norms.
    legacy_padding
        Reproduce the published code: graphs are padded to the longest of the batch, so the random
        blocks and the last block, which is then padding, depend on the other graphs. False: treat
        each graph as if it were alone.
    gate
        ``"output"``: multiply each head's output by a learned number
        (:class:`~kmip_data.models.attention.gate.HeadGate`).

    Examples
    --------
    >>> import torch
    >>> from kmip_data.models import BigBirdAttention
    >>> attention = BigBirdAttention(8, heads=2)
    >>> attention(torch.randn(50, 8), [0, 20, 50]).shape  # two graphs
    torch.Size([50, 8])
    """

    def __init__(  # noqa: PLR0913 -- options, by keyword
        self,
        dim: int,
        heads: int = 4,
        *,
        block_size: int = 3,
        random_blocks: int = 3,
        seed: int = 0,
        dropout: float = 0.0,
        norm_eps: float = 1e-6,
        legacy_padding: bool = False,
        gate: Gate = "none",
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.pattern = BlockPattern(heads, block_size, random_blocks, seed, legacy_padding)
        self.query = Linear(dim, dim, bias=False)
        self.key = Linear(dim, dim, bias=False)
        self.value = Linear(dim, dim, bias=False)
        self.output = Linear(dim, dim)
        self.norm_attention = nn.LayerNorm(dim, eps=norm_eps)
        self.feed_in = Linear(dim, dim)
        self.feed_out = Linear(dim, dim)
        self.norm_out = nn.LayerNorm(dim, eps=norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.gate = build_gate(gate, dim, heads)

    def forward(self, x: Tensor, ptr: BatchOrPointers = None) -> Tensor:
        """Attend within each graph: (N, d) → (N, d).

        ``ptr`` are pointers (G + 1), so that graph g has the rows ``ptr[g]:ptr[g + 1]``, or a batch;
        None: one graph.
        """
        x = check_nodes(x, self.query.weight)
        joined_heads = apply_gate(self.gate, x, self._attend(x, ptr))
        attended = self.output(joined_heads)
        x = self.norm_attention(x + self.dropout(attended))
        hidden = self.feed_in(x).relu()
        return self.norm_out(x + self.dropout(self.feed_out(hidden)))  # type: ignore[no-any-return]

    def _attend(self, x: Tensor, ptr: BatchOrPointers) -> Tensor:
        # Lay out the nodes in blocks of R rows; the last block of a graph is zero-padded.
        plan = _get_block_plan(ptr, x, self.pattern)
        zeros = x.new_zeros(plan.filled.numel(), x.shape[1])
        padded = zeros.index_copy(0, plan.rows, x)
        blocks, size = plan.filled.shape
        dtype = torch.promote_types(x.dtype, torch.float32)

        def project_by_head(linear: nn.Linear) -> Tensor:
            projected: Tensor = linear(padded).to(dtype)
            rows = projected.view(blocks, size, self.pattern.heads, -1)
            return rows.permute(2, 0, 1, 3).contiguous()

        queries = project_by_head(self.query)
        keys = project_by_head(self.key)
        values = project_by_head(self.value)
        check_inner_products(queries, keys)
        with torch.autocast(x.device.type, enabled=False):
            out = _attend_by_blocks(queries, keys, values, plan)
        # Convert (H, B, R, d) to rows with concatenated heads, and remove padding.
        nodes = out.permute(1, 2, 0, 3).reshape(padded.shape)
        return nodes.index_select(0, plan.rows).to(x.dtype)


@torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
def _get_block_plan(ptr: BatchOrPointers, x: Tensor, pattern: BlockPattern) -> BlockPlan:
    if not isinstance(ptr, GraphBatch):
        starts = torch.tensor(batch_pointers(ptr, x.shape[0]))
        return plan_blocks(starts, pattern, x.device)
    # All layers share a plan, as their random blocks are equal.
    if pattern not in ptr.layer_cache:
        ptr.layer_cache[pattern] = plan_blocks(ptr.ptr, pattern, x.device)
    plan: BlockPlan = ptr.layer_cache[pattern]
    return plan


def _attend_by_blocks(queries: Tensor, keys: Tensor, values: Tensor, plan: BlockPlan) -> Tensor:
    """Compute softmax attention between blocks (H, B, R, d) according to a plan."""
    out = torch.zeros_like(queries)
    for group in plan.groups:
        chosen_keys = _gather_blocks(keys, group.keys)
        scores = queries[:, group.queries] @ chosen_keys.transpose(2, 3)
        scores = scores / math.sqrt(queries.shape[3])

        # A block attends to itself, so no node has all its scores masked.
        filled = plan.filled[group.keys].flatten(2)
        weights = scores.masked_fill(~filled[:, :, None], -torch.inf).softmax(-1)
        out[:, group.queries] = weights @ _gather_blocks(values, group.keys)
    return out


def _gather_blocks(rows: Tensor, lists: Tensor) -> Tensor:
    """Gather from rows (H, B, R, d) the blocks ``lists`` (H or 1, M, S): (H, M, S · R, d)."""
    heads, count, size, width = rows.shape
    # Index all heads as one table, whose gradient is summed in a fixed order.
    head = torch.arange(heads, device=rows.device)
    index = lists + head[:, None, None] * count
    blocks = nn.functional.embedding(index, rows.reshape(heads * count, size * width))
    return blocks.view(*blocks.shape[:2], -1, width)


#: Blocks that a block attends to besides random ones: first, left, itself, right, last.
WINDOW_BLOCKS = 5
#: Fewest blocks for sparse attention. Smaller graphs, on which the published code fails, get full
#: attention.
MIN_SPARSE_BLOCKS = 4


@dataclass(frozen=True)
class BlockPattern:
    """Options of block-sparse attention."""

    heads: int  #: attention heads H
    block_size: int  #: nodes per block R
    random_blocks: int  #: random blocks per block and head
    seed: int  #: seed of the random blocks
    legacy_padding: bool  #: pad every graph to the longest of its batch


class BlockGroup(NamedTuple):
    """Blocks that attend to the same number of blocks."""

    queries: Tensor  #: (M,) int64 query blocks
    keys: Tensor  #: (H or 1, M, S) int64 key blocks; B − 1, an empty block, fills unused slots


class BlockPlan(NamedTuple):
    """Concatenated blocks of all graphs in a batch, followed by one empty block."""

    rows: Tensor  #: (N,) int64, position of each node among the B · R rows of all blocks
    filled: Tensor  #: (B, R) bool, True for rows that hold a node
    groups: tuple[BlockGroup, ...]  #: every block with a node is a query block of one group


def plan_blocks(ptr: Tensor, pattern: BlockPattern, device: torch.device) -> BlockPlan:
    """Plan the blocks of the graphs ``ptr`` (G + 1) on the CPU, for use on a device."""
    # 1. Number the blocks of all graphs; a graph's last block may be short.
    sizes = ptr.diff()
    block_size = pattern.block_size
    blocks_per_graph = (sizes + block_size - 1) // block_size
    first = blocks_per_graph.cumsum(0) - blocks_per_graph
    total = int(blocks_per_graph.sum())
    nodes = torch.arange(int(sizes.sum()))
    shift = first * block_size - ptr[:-1]  # from rows of nodes to rows of blocks
    rows = nodes + shift.repeat_interleave(sizes)
    filled = torch.zeros((total + 1) * block_size, dtype=torch.bool)
    filled[rows] = True

    # 2. Find blocks with full attention: first and last, and all blocks of small graphs.
    graph = torch.arange(len(sizes)).repeat_interleave(blocks_per_graph)
    position = torch.arange(total) - first[graph]
    length = blocks_per_graph[graph]
    if pattern.legacy_padding and total:
        length = blocks_per_graph.max().expand(total)
    is_end = (position == 0) | (position == length - 1)
    attends_fully = is_end | (length < MIN_SPARSE_BLOCKS)

    def to_batch_blocks(positions: Tensor, blocks: Tensor) -> Tensor:
        """Convert positions in the graphs of ``blocks`` to blocks of the batch; ``total`` is none."""
        graphs = graph[blocks]
        offset = first[graphs, None]
        exists = (positions >= 0) & (positions < blocks_per_graph[graphs, None])
        return torch.where(exists, positions + offset, total)

    # 3. Group them by graph size up to the next power of two, so that at most half is padding.
    groups = []
    power = blocks_per_graph[graph].double().log2().ceil()
    for value in sorted(set(power[attends_fully].tolist())):
        in_group = attends_fully & (power == value)
        blocks = in_group.nonzero()[:, 0]
        longest = int(blocks_per_graph[graph[blocks]].max())
        positions = torch.arange(longest).expand(len(blocks), -1)
        keys = to_batch_blocks(positions, blocks)
        groups.append(BlockGroup(blocks.to(device), keys[None].to(device)))

    # 4. Put all others into one group: first, left, itself, right, last (−1 if left or right is a
    # global block), then the random blocks of each head.
    blocks = (~attends_fully).nonzero()[:, 0]
    if len(blocks):
        middle = position[blocks]
        end = length[blocks]
        left = torch.where(middle > 1, middle - 1, -1)
        right = torch.where(middle < end - 2, middle + 1, -1)
        window = torch.stack([middle * 0, left, middle, right, end - 1], 1)
        window_keys = to_batch_blocks(window, blocks).expand(pattern.heads, -1, -1)
        drawn = _random_positions(middle, end, pattern)
        random_keys = torch.stack([to_batch_blocks(positions, blocks) for positions in drawn])
        keys = torch.cat([window_keys, random_keys], 2)
        groups.append(BlockGroup(blocks.to(device), keys.to(device)))

    filled = filled.view(-1, block_size)
    return BlockPlan(rows.to(device), filled.to(device), tuple(groups))


def _random_positions(blocks: Tensor, end: Tensor, pattern: BlockPattern) -> Tensor:
    """Return random key blocks (H, M, random_blocks) for ``blocks`` (M,) of graphs with ``end`` blocks."""
    count = pattern.random_blocks
    out = torch.empty(pattern.heads, len(blocks), count, dtype=torch.int64)
    long = 2 * count + WINDOW_BLOCKS + 1  # from this length on, draws do not depend on the length
    lengths = end.clamp_max(long)
    # Round up to a power of two, so that few cached draws serve all long graphs.
    longest = 1 << (int(end.max()) - 1).bit_length()
    for length in lengths.bincount().nonzero()[:, 0].tolist():
        has_length = lengths == length
        drawn = draw_random_blocks(
            longest if length == long else length,
            pattern.heads,
            count,
            pattern.seed,
        )
        table = torch.from_numpy(drawn)
        out[:, has_length] = table[:, blocks[has_length]]
    return out


@functools.lru_cache(maxsize=128)
def draw_random_blocks(
    blocks: int,
    heads: int,
    count: int,
    seed: int,
) -> I64:
    """Draw the blocks that the published code draws after ``numpy.random.seed(seed)``.

    NumPy's global generator is not used.
    Graphs of up to ``count`` + 5 blocks draw from all blocks. In graphs of up to 2 · ``count`` + 5,
    about half of the draws come from the first ``count`` + 5 blocks and the others from the rest.
    In longer graphs, all come from the first 2 · ``count`` + 5. Draws may repeat window blocks.
    Return (heads, blocks, count), where the first and last block are unused.
    """
    generator = np.random.RandomState(seed)  # the same stream as numpy.random.seed
    drawn = np.zeros((heads, blocks, count), np.int64)

    def draw(rows: range, columns: slice, candidates: range) -> None:
        width = len(range(*columns.indices(count)))
        if not width:
            return
        for row in rows:
            for head in range(heads):
                shuffled = generator.permutation(np.array(candidates))
                # Repeat too few candidates; the published code repeats one, and fails for more.
                drawn[head, row, columns] = np.resize(shuffled, width)

    short = count + WINDOW_BLOCKS
    if short < blocks <= short + count:
        first_half = slice(count // 2)
        second_half = slice(count // 2, None)
        for rows in (range(1, short), range(short, blocks)):
            draw(rows, first_half, range(short))
            draw(rows, second_half, range(short, blocks))
    else:
        draw(range(1, blocks), slice(None), range(min(blocks, short + count)))
    return drawn
