"""Full attention within each graph: PyTorch's multi-head attention, without padding."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from kmip_data.models.attention.gate import Gate, apply_gate, build_gate
from kmip_data.models.attention.kmip import kmip_attention
from kmip_data.models.attention.overflow import check_inner_products
from kmip_data.models.layers.batch import BatchOrPointers, batch_pointers
from kmip_data.models.layers.linear import Linear, can_use_onednn, linear
from kmip_data.models.layers.norms import dropout as hashed_dropout
from kmip_data.models.search.problem import check_heads, check_nodes
from kmip_data.runtime.memory import keep_alive_for_capture

CACHED_ORDERS = 8  #: number of cached orders; all layers of a batch share one
#: Attention weights that dropout stores per call; only a single graph may have more.
MAX_STORED_WEIGHTS = 2**23
MIN_TILED_NODES = 512  #: fewest nodes per graph for tiled dropout
#: Factor of a row's logits as a polynomial of its entropy, highest power first.
ADAPTIVE_TEMPERATURE = (-0.037, 0.481, -2.3, 4.917, -1.791)


class SizeGroups(NamedTuple):
    """Order of rows in which graphs of equal size are adjacent."""

    order: Tensor  #: (N,) row at each position
    inverse: Tensor  #: (N,) position of each row
    groups: tuple[tuple[int, int], ...]  #: (graphs, nodes per graph) for each size


@functools.lru_cache(CACHED_ORDERS)
@torch.inference_mode(False)  # the cached tensors are also used in training
def group_equal_sizes(ptr: tuple[int, ...], device: torch.device) -> SizeGroups:
    """Group graphs of equal size, without empty graphs."""
    sizes = np.diff(ptr)
    nodes, counts = np.unique(sizes[sizes > 0], return_counts=True)
    groups = tuple(zip(counts.tolist(), nodes.tolist(), strict=True))
    graph = np.repeat(np.arange(len(sizes)), sizes)
    order = torch.from_numpy(np.argsort(sizes[graph], kind="stable"))
    inverse = order.argsort()
    return SizeGroups(order.to(device), inverse.to(device), groups)


def _dense_attention(queries: Tensor, keys: Tensor, values: Tensor, p: float) -> Tensor:
    """Return the ``scaled_dot_product_attention`` of (graphs, H, n, d) operands with dropout ``p``.

    With dropout on a CPU, PyTorch falls back to separate operations. Here, dropout is faster, and
    large graphs are processed in tiles.
    """
    if not p or queries.device.type != "cpu" or queries.dtype != torch.float32:
        return scaled_dot_product_attention(queries, keys, values, dropout_p=p)
    scale = queries.shape[-1] ** -0.25
    queries = queries * scale
    keys = keys * scale
    prefers_tiles = p < 1 and keys.shape[-2] >= MIN_TILED_NODES
    if prefers_tiles and can_use_onednn(queries, keys, values):
        from kmip_data.models.attention.full_attention_cpu import tiled_attention  # numba

        return tiled_attention(queries, keys, values, p)
    return hashed_dropout((queries @ keys.mT).softmax(-1), p) @ values


def logit_factor(temperature: str, queries: Tensor, keys: Tensor) -> Tensor | float:
    """Return the factor β of the logits, which keeps a softmax over more keys as sharp.

    ``log-n:M``: β = max(1, ln n / ln M) for n keys (Chiang and Cholak, arXiv 2202.12172, with M = e).
    ``adaptive``: a polynomial of the entropy of each row of weights, if that exceeds 0.5, and at
    least 1 (Veličković et al., "Softmax is not enough", ICML 2025, arXiv 2410.01104), (…, n, 1).
    """
    nodes = keys.shape[-2]
    if temperature != "adaptive":
        return max(1.0, math.log(nodes) / math.log(int(temperature.removeprefix("log-n:"))))

    factors = []
    rows_per_block = max(1, MAX_STORED_WEIGHTS // keys[..., 0].numel())
    for block in torch.split(queries, rows_per_block, dim=-2):
        logits = block @ keys.mT / math.sqrt(keys.shape[-1])
        # Half precision loses long sums.
        weights = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        entropy = torch.special.entr(weights).sum(-1, keepdim=True)
        factor = torch.zeros_like(entropy)
        for coefficient in ADAPTIVE_TEMPERATURE:
            factor = factor * entropy + coefficient
        factors.append(factor.clamp_min(1).where(entropy > 0.5, 1.0))
    return torch.cat(factors, -2).to(queries.dtype)


class TransformerAttention(nn.Module):
    """Multi-head softmax attention of each node to all nodes of its graph.

    Parameters and their initial values equal the parameters of ``torch.nn.MultiheadAttention``, whose
    weights load with ``strict=True``. One call of ``scaled_dot_product_attention`` processes all
    graphs of a size, without padding or masks. On a CPU, memory is linear in the nodes, except in
    training with dropout, where it is quadratic for graphs below 512 nodes.

    Parameters
    ----------
    dim, heads
        Input and output channels, a multiple of the number of heads H.
    dropout
        Dropout probability of attention weights in training.
    k
        Keys per query, those of k-MIP attention; 0: all nodes.
    temperature
        ``none``, or the factor of the logits that :func:`logit_factor` returns.
    gate
        ``"output"``: multiply each head's output by a learned number
        (:class:`~kmip_data.models.attention.gate.HeadGate`).

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
        heads: int = 4,
        *,
        dropout: float = 0.0,
        k: int = 0,
        temperature: str = "none",
        gate: Gate = "none",
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.heads = heads
        self.dropout = dropout
        self.k = k
        self.temperature = temperature
        self.in_proj_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * dim))
        self.out_proj = Linear(dim, dim)
        # Drawn after the output layer, as in PyTorch, so that the same seed gives the same weights.
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)
        self.gate = build_gate(gate, dim, heads)

    def forward(self, x: Tensor, ptr: BatchOrPointers = None) -> Tensor:
        """Attend within each graph: (N, dim) → (N, dim).

        ``ptr`` are pointers (G + 1), so that graph g has the rows ``ptr[g]:ptr[g + 1]``, or a batch;
        None: one graph.
        """
        x = check_nodes(x, self.in_proj_weight)
        projected = linear(x, self.in_proj_weight, self.in_proj_bias)
        joined_heads = apply_gate(self.gate, x, self._attend(projected, ptr))
        out: Tensor = self.out_proj(joined_heads)
        return out

    @torch.compiler.disable  # type: ignore[untyped-decorator] # sizes depend on the data
    def _attend(self, projected: Tensor, ptr: BatchOrPointers) -> Tensor:
        """Attend with queries, keys and values (N, 3 · dim); return concatenated heads (N, dim)."""
        starts = batch_pointers(ptr, projected.shape[0])
        by_size = keep_alive_for_capture(group_equal_sizes(starts, projected.device))
        dropout = self.dropout if self.training else 0.0
        projected = projected.index_select(0, by_size.order)
        dim = projected.shape[1] // 3
        queries, keys, _ = projected.view(-1, 3, self.heads, dim // self.heads).unbind(1)
        check_inner_products(queries, keys)
        outputs = [projected[:0, :dim]]
        # The gradient of one split is a single copy; the gradient of each slice fills a full tensor.
        counts = [graphs * nodes for graphs, nodes in by_size.groups]
        groups = torch.split(projected, counts)
        for group, (graphs, nodes) in zip(groups, by_size.groups, strict=True):
            rows = group.view(graphs, nodes, 3, self.heads, -1)

            # Only dropout holds all weights of a call in memory.
            graphs_per_call = graphs
            if dropout:
                graphs_per_call = max(1, MAX_STORED_WEIGHTS // (self.heads * nodes**2))
            for block in torch.split(rows, graphs_per_call):
                queries, keys, values = block.permute(2, 0, 3, 1, 4)  # (graphs, H, nodes, d) each
                if self.temperature != "none":
                    queries = queries * logit_factor(self.temperature, queries, keys)
                if self.k:
                    attended = kmip_attention(
                        queries.flatten(0, 1),
                        keys.flatten(0, 1),
                        values.flatten(0, 1),
                        self.k,
                        dropout=dropout,
                    ).view_as(values)
                else:
                    attended = _dense_attention(queries, keys, values, dropout)
                by_node = attended.transpose(1, 2).flatten(0, 1)
                outputs.append(by_node.flatten(1))

        return torch.cat(outputs).index_select(0, by_size.inverse)
