"""Sums over neighbours without a row for each edge.

Where a message is its source's row, or a multiple of it, the sum at the targets needs no (edges, d) tensor:
with the edges sorted by target it is one ``embedding_bag``, and its gradient one with them sorted by source.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag


class Bags(NamedTuple):
    """The edges of one node after those of another."""

    node: Tensor  #: (E,) the end of each edge that is looked up
    start: Tensor  #: (N + 1,) node i has the entries ``start[i]:start[i + 1]``
    edge: Tensor | None  #: (E,) which edge an entry is; None: in order

    def sum(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Sum the rows of each node's bag: (N, d), weights (E,) of the edges → (N, d)."""
        if self.node.numel() == 0:
            return x * 0 if weight is None else x * weight.sum()  # for its gradient, of which there is none
        if weight is not None and self.edge is not None:
            weight = weight[self.edge]
        return embedding_bag(
            self.node, x, self.start, mode="sum", include_last_offset=True, per_sample_weights=weight
        )


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Connections between nodes, sorted by source or target on first use: once for all layers of a batch."""

    #: source, target: (E,) int64
    source: Tensor
    target: Tensor
    num_nodes: int  #: N
    by_target: bool = False  #: whether they are sorted by target

    @functools.cached_property
    def incoming(self) -> Bags:
        """The sources of each node."""
        return self._bags(self.target, self.source, ordered=self.by_target)

    @functools.cached_property
    def outgoing(self) -> Bags:
        """The targets of each node."""
        return self._bags(self.source, self.target, ordered=False)

    @functools.cached_property
    def is_loop(self) -> Tensor:
        """(E,) bool, edges from a node to itself."""
        return self.source == self.target

    @functools.cached_property
    def degrees(self) -> tuple[Tensor, Tensor]:
        """(N, 1) float64 each: edges from others into each node, and edges from itself."""
        loops = torch.zeros(self.num_nodes, dtype=torch.float64, device=self.source.device)
        loops.index_add_(0, self.target, self.is_loop.to(loops))
        return (self.incoming.start.diff() - loops)[:, None], loops[:, None]

    def _bags(self, key: Tensor, other: Tensor, *, ordered: bool) -> Bags:
        start = torch.zeros(self.num_nodes + 1, dtype=torch.int64, device=key.device)
        # Not by bincount, which waits for a GPU to see the largest number.
        start[1:] = start[1:].index_add(0, key, torch.ones_like(key)).cumsum(0)
        if ordered:
            return Bags(other.contiguous(), start, None)
        # Of 32-bit numbers, which torch sorts by their digits: several times as fast as of 64 bits.
        edge = key.int().sort(stable=True).indices
        return Bags(other[edge], start, edge)


def neighbor_sum(adjacency: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum the rows of each node's sources: (N, d) to the same; half precision is summed in float32.

    ``weight`` is that of the edges, (E,); None: 1.
    """
    wide = x if x.dtype == torch.float64 else x.float()
    weight = weight if weight is None else weight.to(wide.dtype)
    out: Tensor = _NeighborSum.apply(wide, weight, adjacency)  # type: ignore[no-untyped-call]
    return out


class _NeighborSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, adjacency: Adjacency) -> Tensor:
        ctx.adjacency = adjacency
        if weight is not None:
            ctx.save_for_backward(x, weight)
        return adjacency.incoming.sum(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        adjacency, grad = ctx.adjacency, grad.contiguous()
        saved = ctx.saved_tensors  # read once: a recomputed layer gives them once
        if not saved:
            return adjacency.outgoing.sum(grad, None), None, None
        x, weight = saved
        grad_x = adjacency.outgoing.sum(grad, weight) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return grad_x, None, None
        with torch.enable_grad():  # its own gradient for weights has no row for each edge either
            weight = weight.detach().requires_grad_()
            again = adjacency.incoming.sum(x, weight)
        (grad_weight,) = torch.autograd.grad(again, weight, grad)
        return grad_x, grad_weight, None
