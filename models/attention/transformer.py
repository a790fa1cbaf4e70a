"""Full attention within each graph: PyTorch's multi-head attention without padding."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from kmip_data.models.attention.overflow import check_lengths
from kmip_data.models.layers.batch import Pointers, pointers_of_batch
from kmip_data.models.layers.linear import Linear, linear, suits_onednn
from kmip_data.models.layers.norms import dropout as dropped
from kmip_data.models.search.problem import check_heads, check_nodes
from kmip_data.runtime.memory import keep_alive_for_capture

CACHED_ORDERS = 8  #: all layers of a batch share one
#: Most attention weights per call where dropout stores them all, unless one graph has more.
WEIGHTS = 2**23
#: Fewest nodes of a graph whose dropout works tile by tile.
TILED = 512


class SizeGroups(NamedTuple):
    """Order of rows that groups graphs of equal size."""

    order: Tensor  #: (N,) row at each position
    inverse: Tensor  #: (N,) position of each row
    groups: tuple[tuple[int, int], ...]  #: (graphs, nodes per graph) of each group


@functools.lru_cache(CACHED_ORDERS)
@torch.inference_mode(False)  # remembered for training, too
def group_by_size(ptr: tuple[int, ...], device: torch.device) -> SizeGroups:
    """Group graphs of equal size; empty graphs are left out."""
    sizes = np.diff(ptr)
    nodes, counts = np.unique(sizes[sizes > 0], return_counts=True)
    groups = tuple(zip(counts.tolist(), nodes.tolist(), strict=True))
    graph = np.repeat(np.arange(len(sizes)), sizes)
    order = torch.from_numpy(np.argsort(sizes[graph], kind="stable"))
    inverse = order.argsort()
    return SizeGroups(order.to(device), inverse.to(device), groups)


def _dense_attention(queries: Tensor, keys: Tensor, values: Tensor, p: float) -> Tensor:
    """``scaled_dot_product_attention`` of (graphs, H, n, d) each, with dropout by probability ``p``.

    With dropout on a CPU, PyTorch falls back to separate operations. Here these have a fast
    dropout, and work tile by tile on large graphs.
    """
    if not p or queries.device.type != "cpu" or queries.dtype != torch.float32:
        return scaled_dot_product_attention(queries, keys, values, dropout_p=p)
    scale = queries.shape[-1] ** -0.25
    queries = queries * scale
    keys = keys * scale
    tiled = p < 1 and keys.shape[-2] >= TILED
    if tiled and suits_onednn(queries, keys, values):
        from kmip_data.models.attention.tiled import tiled_attention  # numba

        return tiled_attention(queries, keys, values, p)
    return dropped((queries @ keys.mT).softmax(-1), p) @ values


class TransformerAttention(nn.Module):
    """Multi-head softmax attention of each node to all nodes of its graph.

    Parameters and their initial values are as in ``torch.nn.MultiheadAttention``, whose weights
    load with ``strict=True``. Graphs of one size go through ``scaled_dot_product_attention`` in one
    call, so that nothing is padded or masked. On a CPU, memory is linear in the nodes, except in
    training with dropout, where it is quadratic for graphs below 512 nodes.

    Parameters
    ----------
    dim, heads
        Channels of the input and the output, a multiple of the number of heads H.
    dropout
        Dropout probability of attention weights in training.

    Examples
    --------
    >>> import torch
    >>> from kmip_data.models import TransformerAttention
    >>> attention = TransformerAttention(8, heads=2)
    >>> attention(torch.randn(7, 8), [0, 3, 7]).shape  # two graphs, of three nodes and of four
    torch.Size([7, 8])
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.heads = heads
        self.dropout = dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * dim))
        self.out_proj = Linear(dim, dim)
        # Drawn after the output layer, as in PyTorch: the same seed gives the same weights.
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Tensor, ptr: Pointers = None) -> Tensor:
        """Attend within each graph: nodes of all graphs (N, dim) to the same.

        ``ptr`` (G + 1): graph g has the rows ``ptr[g]:ptr[g + 1]``; or a batch that has it; None:
        one graph.
        """
        x = check_nodes(x, self.in_proj_weight)
        projected = linear(x, self.in_proj_weight, self.in_proj_bias)
        out: Tensor = self.out_proj(self._attend(projected, ptr))
        return out

    @torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
    def _attend(self, projected: Tensor, ptr: Pointers) -> Tensor:
        """Queries, keys and values (N, 3 · dim) to the heads' results side by side (N, dim)."""
        starts = pointers_of_batch(ptr, projected.shape[0])
        plan = keep_alive_for_capture(group_by_size(starts, projected.device))
        dropout = self.dropout if self.training else 0.0
        projected = projected.index_select(0, plan.order)
        dim = projected.shape[1] // 3
        queries, keys, _ = projected.view(-1, 3, self.heads, dim // self.heads).unbind(1)
        check_lengths(queries, keys)
        done = [projected[:0, :dim]]
        # One split, whose gradient is a single copy; the gradient of a slice fills a full tensor.
        counts = [graphs * nodes for graphs, nodes in plan.groups]
        groups = torch.split(projected, counts)
        for group, (graphs, nodes) in zip(groups, plan.groups, strict=True):
            rows = group.view(graphs, nodes, 3, self.heads, -1)

            # With dropout all weights of a call are in memory; without it none.
            at_once = graphs
            if dropout:
                at_once = max(1, WEIGHTS // (self.heads * nodes**2))
            for block in torch.split(rows, at_once):
                queries, keys, values = block.permute(2, 0, 3, 1, 4)  # (graphs, H, nodes, d) each
                attended = _dense_attention(queries, keys, values, dropout)
                by_node = attended.transpose(1, 2).flatten(0, 1)
                done.append(by_node.flatten(1))

        return torch.cat(done).index_select(0, plan.inverse)
