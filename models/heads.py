"""Prediction heads for nodes, graphs or pairs of nodes."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor, nn

from kmip_data.models.components import Activation
from kmip_data.models.layers.batch import GraphBatch, pad_by_graph
from kmip_data.models.layers.linear import Linear
from kmip_data.models.layers.norms import dropout as dropout_rows


class NodeHead(nn.Module):
    """Perceptron applied to each row (GraphGym's ``inductive_node`` and ``node``).

    All but the last of ``layers`` linear layers are ``dim`` wide and followed by ``relu`` or
    ``gelu``; dropout precedes each layer. ``l2norm`` scales each row to length 1 after an
    activation: GraphGym, and so all published numbers on nodes, always does; the paper does not
    mention it. A :class:`GraphHead` reads ``pooling``: ``mean``, ``max``, ``sum`` or ``first``.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        layers: int,
        l2norm: bool,
        dropout: float = 0.0,
        activation: Activation = "relu",
        pooling: str = "mean",
    ) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(Linear(dim, dim) for _ in range(layers - 1))
        self.out = Linear(dim, classes)
        self.dropout = nn.Dropout(dropout)
        self.activation = getattr(nn.functional, activation)
        self.l2norm = l2norm
        self.pooling = pooling

    def forward(self, x: Tensor, batch: GraphBatch | None = None) -> Tensor:
        """(N, dim) → (N, classes)."""
        p = self.dropout.p if self.training else 0.0
        for linear in self.hidden:
            x = dropout_rows(x, p)
            x = self.activation(linear(x))
            if self.l2norm:
                x = nn.functional.normalize(x, dim=1)
        x = dropout_rows(x, p)
        return self.out(x)  # type: ignore[no-any-return]


class GraphHead(NodeHead):
    """Pool the nodes of each graph, then apply the perceptron.

    Equals LRGB's ``mlp_graph`` with ``l2norm=False``, dropout and GELU, and GraphGym's ``graph``
    with ``l2norm=True``.
    """

    def forward(self, x: Tensor, batch: GraphBatch | None = None) -> Tensor:
        """(N, dim) → (G, classes)."""
        if batch is not None:
            x = pool_nodes(x, batch, self.pooling)
        return super().forward(x)


class SANHead(nn.Module):
    """Pool the nodes of each graph, then halve the width in each linear layer (GraphGPS's ``san_graph``).

    Three ``layers`` map dim → dim / 2 → dim / 4 → classes, with an activation after all but the
    last. ``l2norm`` and dropout are ignored, as in GraphGPS.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        layers: int,
        activation: Activation = "relu",
        pooling: str = "mean",
        **_ignored: object,
    ) -> None:
        super().__init__()
        widths = [dim // 2**number for number in range(layers)]
        pairs = itertools.pairwise([*widths, classes])
        self.linears = nn.ModuleList(Linear(wide, narrow) for wide, narrow in pairs)
        self.activation = getattr(nn.functional, activation)
        self.pooling = pooling

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(N, dim) → (G, classes)."""
        *hidden, last = self.linears
        x = pool_nodes(x, batch, self.pooling)
        for linear in hidden:
            x = self.activation(linear(x))
        return last(x)  # type: ignore[no-any-return]


class LinkHead(NodeHead):
    """Apply the perceptron to each node, then take dot products of all pairs within a graph (LRGB)."""

    def __init__(self, dim: int, classes: int, **options: Any) -> None:
        super().__init__(dim, dim, **options)

    def forward(self, x: Tensor, batch: GraphBatch | None = None) -> Tensor:
        """(N, dim) → (G, W, W), where W is the size of the largest graph; padding is 0."""
        x = super().forward(x)
        ends = x[None] if batch is None else pad_by_graph(x, batch.graph_index, batch.ptr)
        # Half precision has too few distinct scores for ranking.
        with torch.autocast(x.device.type, enabled=False):
            ends = ends.to(torch.promote_types(ends.dtype, torch.float32))
            return ends @ ends.mT


def pool_nodes(x: Tensor, batch: GraphBatch, pooling: str) -> Tensor:
    """Return the mean, maximum, sum or first of each graph's nodes: (N, d) → (G, d), 0 for empty graphs."""
    if pooling == "max":
        out = x.new_zeros(batch.num_graphs, x.shape[1])
        index = batch.graph_index[:, None].expand_as(x)
        return out.scatter_reduce(0, index, x, "amax", include_self=False)
    if pooling == "first":
        starts = batch.nodes_to_graphs.incoming.start
        # The start of an empty graph is a row of the next graph, or lies behind the last row.
        rows = nn.functional.pad(x, (0, 0, 0, 1)).index_select(0, starts[:-1])
        return rows.masked_fill(starts.diff()[:, None] == 0, 0.0)
    pooled = batch.nodes_to_graphs.sum_at_target(x)
    if pooling == "mean":
        pooled = pooled / batch.graph_sizes
    return pooled.to(x.dtype)
