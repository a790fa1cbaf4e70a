"""Heads: the network's last node states to predictions, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from kmip_data.models.layers.batch import GraphBatch, by_graph, pointers_of

Pooling = Literal["mean", "max", "sum"]


class NodeHead(nn.Module):
    """A perceptron on each row (GraphGym's ``inductive_node`` and ``node``).

    Of ``layers`` linear layers all but the last are ``dim`` wide and followed by ``relu`` or ``gelu``;
    dropout comes before each. ``l2norm`` scales each row to length 1 after an activation. GraphGym does so
    unasked, and with it went all published numbers on nodes; the paper does not mention it.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        layers: int,
        l2norm: bool,
        dropout: float = 0.0,
        activation: str = "relu",
        pooling: Pooling = "mean",
    ) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers - 1))
        self.out = nn.Linear(dim, classes)
        self.dropout = nn.Dropout(dropout)
        self.activation = nn.functional.gelu if activation == "gelu" else nn.functional.relu
        self.l2norm, self.pooling = l2norm, pooling

    def forward(self, x: Tensor, batch: GraphBatch | None = None) -> Tensor:
        """(N, dim) → (N, classes)."""
        for linear in self.hidden:
            x = self.activation(linear(self.dropout(x)))
            if self.l2norm:
                x = nn.functional.normalize(x, dim=1)
        return self.out(self.dropout(x))  # type: ignore[no-any-return]


class GraphHead(NodeHead):
    """The nodes of each graph pooled, then the perceptron.

    With ``l2norm=False``, dropout and GELU it is LRGB's ``mlp_graph``, with ``l2norm=True`` GraphGym's
    ``graph``.
    """

    def forward(self, x: Tensor, batch: GraphBatch | None = None) -> Tensor:
        """(N, dim) → (G, classes)."""
        return super().forward(x if batch is None else pool(x, batch, self.pooling))


class LinkHead(NodeHead):
    """The perceptron on each node, then the dot product of each pair of a graph.

    LRGB's ``inductive_edge`` with ``dot``.
    """

    def __init__(self, dim: int, classes: int, **options: Any) -> None:
        super().__init__(dim, dim, **options)

    def forward(self, x: Tensor, batch: GraphBatch | None = None) -> Tensor:
        """(N, dim) → (G, W, W), W nodes of the largest graph; 0 beyond the others' nodes."""
        x = super().forward(x)
        ends = x[None] if batch is None else by_graph(x, batch.graph, batch.ptr)
        with torch.autocast(x.device.type, enabled=False):  # half precision has too few scores to rank by
            ends = ends.to(_at_least_single(ends.dtype))
            return ends @ ends.mT


def pool(x: Tensor, batch: GraphBatch, pooling: Pooling) -> Tensor:
    """(N, d) → (G, d): mean, largest or sum over the nodes of each graph; zero for a graph without any."""
    index = batch.graph[:, None].expand_as(x)
    out = x.new_zeros(batch.num_graphs, x.shape[1])
    if pooling == "max":
        return out.scatter_reduce(0, index, x, "amax", include_self=False)
    # Accumulate in float32; half precision loses long sums.
    work = _at_least_single(x.dtype)
    total = out.to(work).index_add(0, batch.graph, x.to(work))
    if pooling == "mean":
        total = total / pointers_of(batch.graph, batch.num_graphs).diff().clamp_min(1)[:, None]
    return total.to(x.dtype)


def _at_least_single(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


HEADS: dict[str, Callable[..., nn.Module]] = {"node": NodeHead, "graph": GraphHead, "link": LinkHead}
