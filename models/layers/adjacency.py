"""Edges as a list, with sums over the edges of each node in one order on every device.

``index_add`` adds in the order of the index on a CPU; on a GPU by atomics, in a different order
each time, and slowly where many rows go to one node. There rows are sorted by node first, and each
list of them is summed by itself. Where a message is its source's row, or a multiple of it, the sum
needs no (edges, d) tensor: with the edges sorted by target it is one ``embedding_bag``, and its
gradient one with them sorted by source.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag


@dataclass(frozen=True, eq=False)
class Bags:
    """Edges grouped by node."""

    #: (E,) the other end of each edge.
    node: Tensor
    #: (N + 1,) node i has the entries ``start[i]:start[i + 1]``.
    start: Tensor
    #: (E,) number of each entry's edge; None: in order.
    edge: Tensor | None

    def sum(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Sum the rows of each node's bag: (N, d), weights (E,) of the edges → (N, d)."""
        if self.node.numel() == 0:
            # Zeros that keep the gradient's path.
            return x * 0 if weight is None else x * weight.sum()
        if weight is not None and self.edge is not None:
            weight = weight[self.edge]
        return embedding_bag(
            self.node,
            x,
            self.start,
            mode="sum",
            include_last_offset=True,
            per_sample_weights=weight,
        )


#: Rows of a long list that are summed at a time.
TILE_ROWS = 64
#: Mean length from which lists are cut into tiles; a thread sums a list or a tile.
MIN_TILED_LENGTH = 32


def sum_rows_of_lists(rows: Tensor, start: Tensor, order: Tensor | None = None) -> Tensor:
    """Sum the rows of each list: (E, d) → (N, d), in an order that follows from ``start`` alone.

    List i has the rows ``order[start[i]:start[i + 1]]``; without an ``order`` they are contiguous.
    """
    lists = len(start) - 1
    if lists == 1:
        return rows.sum(0, keepdim=True)
    if order is None:
        order = torch.arange(len(rows), device=rows.device)
    if len(rows) <= MIN_TILED_LENGTH * lists:
        return embedding_bag(order, rows, start, mode="sum", include_last_offset=True)

    # Cut every list at the multiples of TILE_ROWS inside it; the number of cuts does not depend on
    # values.
    tiles = torch.arange(0, len(rows), TILE_ROWS, device=start.device)
    cuts = torch.cat([start, tiles]).sort().values
    sums = embedding_bag(order, rows, cuts, mode="sum", include_last_offset=True)
    return sum_rows_of_lists(sums, torch.searchsorted(cuts, start))


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Any edges, in any order: edge values are (E, d).

    Sorted on first use, for all layers of a batch.
    """

    #: source, target: (E,) int64
    source: Tensor
    target: Tensor
    #: N
    num_nodes: int
    #: (E, 1), where nodes have positions.
    distance: Tensor | None = None
    #: True if sorted by target.
    by_target: bool = False
    #: Number of possible sources, of which the nodes are the first; None: the nodes.
    sources: int | None = None
    #: The edges that these are the first of; degrees are counted among them.
    untrimmed: EdgeList | None = None

    def first_edges(self, nodes: int, edges: int, sources: int) -> EdgeList:
        """Return the first edges, from the first ``sources`` to the first ``nodes``; degrees stay."""
        distance = self.distance
        return replace(
            self,
            source=self.source[:edges],
            target=self.target[:edges],
            num_nodes=nodes,
            distance=None if distance is None else distance[:edges],
            sources=sources,
            untrimmed=self,
        )

    @property
    def index(self) -> Tensor:
        """Return sources and targets of the edges, (2, E)."""
        return torch.stack([self.source, self.target])

    @property
    def adjacency(self) -> EdgeList:
        """The edges themselves; a table is written out as a list."""
        return self

    def at_source(self, x: Tensor) -> Tensor:
        """Value of each edge's source: (N, d) → (E, d)."""
        return _LookUp.apply(x, self, False)  # type: ignore[no-any-return, no-untyped-call]

    def at_target(self, x: Tensor) -> Tensor:
        """Value of each edge's target: (N, d) → (E, d)."""
        return _LookUp.apply(x, self, True)  # type: ignore[no-any-return, no-untyped-call]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum the values of each node's incoming edges in float32 at least, (E, d) → (N, d)."""
        return _SumAtTargets.apply(values, self)  # type: ignore[no-any-return, no-untyped-call]

    def sum(self, values: Tensor, *, targets: bool) -> Tensor:
        """Sum the values of the edges at their targets, or at their sources, without a gradient."""
        if values.device.type != "cpu":
            bags = self.incoming if targets else self.outgoing
            return sum_rows_of_lists(values, bags.start, bags.edge)
        if targets:
            count = self.num_nodes
            index = self.target
        else:
            count = self.num_sources
            index = self.source
        # Not in place: torch 2.11 compiled to a wrong gradient then.
        return values.new_zeros(count, values.shape[1]).index_add(0, index, values)

    @functools.cached_property
    def incoming(self) -> Bags:
        """The sources of each node."""
        return self._group_by_node(self.target, self.source, self.num_nodes, ordered=self.by_target)

    @functools.cached_property
    def outgoing(self) -> Bags:
        """The targets of each node."""
        return self._group_by_node(self.source, self.target, self.num_sources, ordered=False)

    @property
    def num_sources(self) -> int:
        """Number of possible sources."""
        return self.num_nodes if self.sources is None else self.sources

    @functools.cached_property
    def is_loop(self) -> Tensor:
        """(E,) bool, True for an edge from a node to itself."""
        return self.source == self.target

    @functools.cached_property
    def degrees(self) -> tuple[Tensor, Tensor]:
        """(N, 1) float64 each: edges from others into each node, and edges from itself.

        Edges of every source, among all edges of the sample, for its first edges: (S, 1).
        """
        if self.untrimmed is not None:
            others, loops = self.untrimmed.degrees
            return others[: self.num_sources], loops[: self.num_sources]
        loops = torch.zeros(self.num_nodes, dtype=torch.float64, device=self.source.device)
        loops.index_add_(0, self.target, self.is_loop.to(loops))
        others = self.incoming.start.diff() - loops
        return others[:, None], loops[:, None]

    def _group_by_node(self, key: Tensor, other: Tensor, count: int, *, ordered: bool) -> Bags:
        edge = None
        if ordered:
            other = other.contiguous()
        else:
            # 32-bit keys, which torch sorts by their digits: several times as fast as 64-bit ones.
            key, edge = key.clamp(-1, count).int().sort(stable=True)
            other = other[edge]
        nodes = torch.arange(count + 1, dtype=key.dtype, device=key.device)
        start = torch.searchsorted(key.contiguous(), nodes)
        return Bags(other, start, edge)


def widen_half_precision(values: Tensor) -> Tensor:
    """Return values (N, d) of half precision as float32, which sums need; wider types as they are."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class _LookUp(torch.autograd.Function):
    """``index_select`` whose gradient is summed in one order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: EdgeList, targets: bool) -> Tensor:
        ctx.edges = edges
        ctx.targets = targets
        index = edges.target if targets else edges.source
        return x.index_select(0, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.edges.sum(grad, targets=ctx.targets), None, None


class _SumAtTargets(torch.autograd.Function):
    """``index_add`` that saves no values; torch's saves all of them, for their shape."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, edges: EdgeList) -> Tensor:
        ctx.target = edges.target
        ctx.dtype = values.dtype
        return edges.sum(widen_half_precision(values), targets=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rows = grad.index_select(0, ctx.target)
        return rows.to(ctx.dtype), None


def neighbor_sum(edges: EdgeList, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum the rows of each node's sources: (N, d) to the same; half precision is summed in float32.

    ``weight`` (E,) has a number for each edge; None: 1.
    """
    rows = widen_half_precision(x)
    if weight is not None:
        weight = weight.to(rows.dtype)
    out: Tensor = _NeighborSum.apply(rows, weight, edges)  # type: ignore[no-untyped-call]
    return out


class _NeighborSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, edges: EdgeList) -> Tensor:
        ctx.edges = edges
        if weight is not None:
            ctx.save_for_backward(x, weight)
        return edges.incoming.sum(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        edges = ctx.edges
        grad = grad.contiguous()
        saved = ctx.saved_tensors  # read once: a recomputed layer gives them once
        if not saved:
            return edges.outgoing.sum(grad, None), None, None
        x, weight = saved
        wants_x, wants_weight, _ = ctx.needs_input_grad
        grad_x = edges.outgoing.sum(grad, weight) if wants_x else None
        if not wants_weight:
            return grad_x, None, None
        # embedding_bag's own gradient of the weights has no (E, d) tensor either.
        with torch.enable_grad():
            weight = weight.detach().requires_grad_()
            out = edges.incoming.sum(x, weight)
        (grad_weight,) = torch.autograd.grad(out, weight, grad)
        return grad_x, grad_weight, None
