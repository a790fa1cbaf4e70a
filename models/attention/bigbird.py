"""BigBird: attention of blocks of nodes to a few blocks, in a whole encoder layer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kmip_data.models.attention.block_plan import BlockPlan, Pattern, plan_blocks
from kmip_data.models.attention.ragged import Pointers, pointers
from kmip_data.models.attention.transformer import check_heads
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.search.problem import check_nodes


class BigBirdAttention(nn.Module):
    """An encoder layer of BigBird (Zaheer et al., 2020), as GraphGPS uses it for global attention.

    Block-sparse attention, a linear layer, residual connection and layer norm; then two linear layers of
    the same width with ReLU between, residual connection and layer norm. :mod:`.block_plan` says which
    blocks attend to which. The order of the nodes matters: it is what blocks are cut from.

    Parameters
    ----------
    dim
        Channels d of the input and the output.
    heads
        Attention heads, which share the channels.
    block_size
        Nodes of a block.
    random_blocks
        Random blocks that a block attends to, for each head; the same in every layer and step.
    seed
        Of their draw.
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
        self.query, self.key, self.value = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.output = nn.Linear(dim, dim)
        self.norm_attention = nn.LayerNorm(dim, eps=norm_eps)
        self.feed_in = nn.Linear(dim, dim)
        self.feed_out = nn.Linear(dim, dim)
        self.norm_out = nn.LayerNorm(dim, eps=norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, ptr: Pointers = None) -> Tensor:
        """Attend within each graph: nodes of all graphs (N, d) to the same.

        ``ptr`` (G + 1): graph g has the rows ``ptr[g]:ptr[g + 1]``; or a batch that has it; None: one graph.
        """
        x = check_nodes(x, self.query.weight)
        x = self.norm_attention(x + self.dropout(self.output(self.attend(x, ptr))))
        return self.norm_out(x + self.dropout(self.feed_out(self.feed_in(x).relu())))  # type: ignore[no-any-return]

    def attend(self, x: Tensor, ptr: Pointers = None) -> Tensor:
        """Attention alone, without what follows: (N, d), the heads side by side."""
        plan = _plan(ptr, x, self.pattern)
        blocks, size = plan.filled.shape
        padded = x.new_zeros(blocks * size, x.shape[1]).index_copy(0, plan.rows, x)
        work = torch.float64 if x.dtype == torch.float64 else torch.float32
        queries, keys, values = (
            linear(padded)
            .to(work)
            .view(blocks, size, self.pattern.heads, -1)
            .permute(2, 0, 1, 3)
            .contiguous()
            for linear in (self.query, self.key, self.value)
        )
        with torch.autocast(x.device.type, enabled=False):  # as precise as it is without
            out: Tensor = _BlockAttention.apply(queries, keys, values, plan)  # type: ignore[no-untyped-call]
        return out.permute(1, 2, 0, 3).reshape(padded.shape).index_select(0, plan.rows).to(x.dtype)

    def extra_repr(self) -> str:
        """Options that the sub-modules do not show."""
        return str(self.pattern).removeprefix("Pattern(").removesuffix(")")


@torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
def _plan(ptr: Pointers, x: Tensor, pattern: Pattern) -> BlockPlan:
    if not isinstance(ptr, GraphBatch):
        return plan_blocks(torch.tensor(pointers(ptr, x.shape[0])), pattern).to(x.device)
    if pattern not in ptr.plans:  # which the layers of a network share
        ptr.plans[pattern] = plan_blocks(ptr.ptr, pattern).to(x.device)
    plan: BlockPlan = ptr.plans[pattern]
    return plan


class _BlockAttention(torch.autograd.Function):
    """Softmax attention of blocks to the blocks of a plan. Keeps the weights, but no gathered row.

    Queries, keys, values and the result are (H, B, R, d).
    """

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, plan: BlockPlan) -> Tensor:
        out, kept = torch.zeros_like(queries), []
        for group in plan.groups:
            scores = queries[:, group.queries] @ _gather(keys, group.keys).transpose(2, 3)
            empty = ~plan.filled[group.keys].flatten(2)[:, :, None]
            # A block with a node is among those that it attends to, so no row is masked whole.
            weights = (scores / math.sqrt(queries.shape[3])).masked_fill_(empty, -torch.inf).softmax(-1)
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
            slopes = weights * (slopes - (slopes * weights).sum(-1, keepdim=True)) / math.sqrt(keys.shape[3])
            of_queries[:, group.queries] = slopes @ _gather(keys, group.keys)
            _add(of_keys, group.keys, slopes.transpose(2, 3) @ queries[:, group.queries])
            _add(of_values, group.keys, weights.transpose(2, 3) @ of_out)
        return of_queries, of_keys, of_values, None


def _gather(rows: Tensor, lists: Tensor) -> Tensor:
    """Rows (H, B, R, d) of the blocks ``lists`` (H or 1, M, S): (H, M, S · R, d)."""
    blocks = nn.functional.embedding(_flat(rows, lists), rows.flatten(2).flatten(0, 1))
    return blocks.view(*blocks.shape[:2], -1, rows.shape[3])


def _add(rows: Tensor, lists: Tensor, values: Tensor) -> None:
    """Add ``values`` (H, M, S · R, d) to the rows that :func:`_gather` took them from.

    On a GPU in a fixed order only under ``torch.use_deterministic_algorithms``.
    """
    width = rows.shape[2] * rows.shape[3]
    rows.view(-1, width).index_add_(0, _flat(rows, lists).flatten(), values.reshape(-1, width))


def _flat(rows: Tensor, lists: Tensor) -> Tensor:
    """Blocks of each head → blocks of all heads, one head after another: (H, M, S)."""
    return lists + torch.arange(len(rows), device=rows.device)[:, None, None] * rows.shape[1]
