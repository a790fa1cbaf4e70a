"""Edge lists whose sums over each node's edges have a fixed order on every device.

On a GPU, ``index_add`` uses atomics: it adds in a different order each time, and slowly if many
rows go to one node. There, rows are sorted by node and each node's segment is summed separately. If
a message is its source's row, or a multiple of it, the sum needs no (E, d) tensor: it is one
``embedding_bag`` over the edges sorted by target, and its gradient one over the edges sorted by
source.
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
class GroupedEdges:
    """Edges grouped by one of their ends."""

    other_end: Tensor  #: (E,) node at the other end of each edge
    start: Tensor  #: (N + 1,) node i has the edges ``start[i]:start[i + 1]``
    edge: Tensor | None  #: (E,) index of each edge in the original list; None: the same order

    def sum(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Sum the rows at the other ends of each node's edges, with edge weights (E,): (N, d) → (N, d)."""
        if self.other_end.numel() == 0:
            # Zeros that keep the gradient's path.
            return x * 0 if weight is None else x * weight.sum()
        if weight is not None and self.edge is not None:
            weight = weight[self.edge]
        return embedding_bag(
            self.other_end,
            x,
            self.start,
            mode="sum",
            include_last_offset=True,
            per_sample_weights=weight,
        )


TILE_ROWS = 64  #: rows per tile of a long segment
MIN_TILED_LENGTH = 32  #: mean segment length above which segments are cut into tiles


def sum_segments(rows: Tensor, start: Tensor, order: Tensor | None = None) -> Tensor:
    """Sum the rows of each segment: (E, d) → (N, d), in an order that depends only on ``start``.

    Segment i has the rows ``order[start[i]:start[i + 1]]``; without ``order``, they are contiguous.
    """
    segments = len(start) - 1
    if segments == 1:
        return rows.sum(0, keepdim=True)
    if order is None:
        order = torch.arange(len(rows), device=rows.device)
    # One thread sums one segment, so long segments are cut into tiles first.
    if len(rows) <= MIN_TILED_LENGTH * segments:
        return embedding_bag(order, rows, start, mode="sum", include_last_offset=True)

    # Cut at all multiples of TILE_ROWS: the number of cuts does not depend on the values.
    tiles = torch.arange(0, len(rows), TILE_ROWS, device=start.device)
    cuts = torch.cat([start, tiles]).sort().values
    sums = embedding_bag(order, rows, cuts, mode="sum", include_last_offset=True)
    return sum_segments(sums, torch.searchsorted(cuts, start))


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges in any order; edge values are (E, d).

    The edges are sorted on first use, once for all layers of a batch.
    """

    source: Tensor  #: (E,) int64
    target: Tensor  #: (E,) int64
    num_nodes: int  #: number of possible targets N
    distance: Tensor | None = None  #: (E, 1) squared distance of the ends; None: no positions
    is_sorted_by_target: bool = False
    extra_sources: int = 0  #: number of nodes after the N targets that are only sources
    #: List that this one was trimmed from, in which degrees are counted.
    untrimmed: EdgeList | None = None

    def trim(self, nodes: int, edges: int, sources: int) -> EdgeList:
        """Keep the first ``edges``, from the first ``sources`` to the first ``nodes``, and all degrees."""
        distance = self.distance
        return replace(
            self,
            source=self.source[:edges],
            target=self.target[:edges],
            num_nodes=nodes,
            distance=None if distance is None else distance[:edges],
            extra_sources=sources - nodes,
            untrimmed=self,
        )

    @property
    def index(self) -> Tensor:
        """Sources and targets of the edges, (2, E)."""
        return torch.stack([self.source, self.target])

    @property
    def edge_list(self) -> EdgeList:
        """The edge list itself; a neighbour table converts itself to one."""
        return self

    def at_source(self, x: Tensor) -> Tensor:
        """Gather the row of each edge's source: (N, d) → (E, d)."""
        return _GatherRows.apply(x, self, False)  # type: ignore[no-any-return, no-untyped-call]

    def at_target(self, x: Tensor) -> Tensor:
        """Gather the row of each edge's target: (N, d) → (E, d)."""
        return _GatherRows.apply(x, self, True)  # type: ignore[no-any-return, no-untyped-call]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum the values of each node's incoming edges in at least float32: (E, d) → (N, d)."""
        return _SumAtTargets.apply(values, self)  # type: ignore[no-any-return, no-untyped-call]

    def sum(self, values: Tensor, *, targets: bool) -> Tensor:
        """Sum edge values at their targets, or else at their sources, without a gradient."""
        if values.device.type != "cpu":
            grouped = self.incoming if targets else self.outgoing
            return sum_segments(values, grouped.start, grouped.edge)
        if targets:
            count = self.num_nodes
            index = self.target
        else:
            count = self.num_sources
            index = self.source
        # Not in-place: torch 2.11 compiles that to a wrong gradient.
        return values.new_zeros(count, values.shape[1]).index_add(0, index, values)

    @functools.cached_property
    def incoming(self) -> GroupedEdges:
        """Edges grouped by target."""
        return _group_edges(
            self.target, self.source, self.num_nodes, is_sorted=self.is_sorted_by_target
        )

    @functools.cached_property
    def outgoing(self) -> GroupedEdges:
        """Edges grouped by source."""
        return _group_edges(self.source, self.target, self.num_sources, is_sorted=False)

    @property
    def num_sources(self) -> int:
        """Number of possible sources."""
        return self.num_nodes + self.extra_sources

    @functools.cached_property
    def self_loop_mask(self) -> Tensor:
        """(E,) bool mask of self-loops."""
        return self.source == self.target

    @functools.cached_property
    def degrees(self) -> tuple[Tensor, Tensor]:
        """Incoming edges from other nodes, and self-loops: (N, 1) float64 each.

        A trimmed list returns the degrees of all its sources in the untrimmed list.
        """
        if self.untrimmed is not None:
            others, loops = self.untrimmed.degrees
            return others[: self.num_sources], loops[: self.num_sources]
        loops = torch.zeros(self.num_nodes, dtype=torch.float64, device=self.source.device)
        loops.index_add_(0, self.target, self.self_loop_mask.to(loops))
        others = self.incoming.start.diff() - loops
        return others[:, None], loops[:, None]


def _group_edges(end: Tensor, other_end: Tensor, count: int, *, is_sorted: bool) -> GroupedEdges:
    """Group edges by ``end`` (E,), one of ``count`` nodes."""
    edge = None
    if is_sorted:
        other_end = other_end.contiguous()
    else:
        # torch sorts 32-bit keys by radix: several times as fast as 64-bit ones.
        end, edge = end.clamp(-1, count).int().sort(stable=True)
        other_end = other_end[edge]
    nodes = torch.arange(count + 1, dtype=end.dtype, device=end.device)
    start = torch.searchsorted(end.contiguous(), nodes)
    return GroupedEdges(other_end, start, edge)


def widen_half_precision(values: Tensor) -> Tensor:
    """Convert values (N, d) of half precision to float32 for sums; leave wider types unchanged."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class _GatherRows(torch.autograd.Function):
    """``index_select`` whose gradient is summed in a fixed order."""

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
    """``index_add`` that saves no values; torch's saves all of them, only for their shape."""

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
    """Sum the rows of each node's sources: (N, d) → (N, d), in at least float32.

    ``weight`` (E,) multiplies the row of each edge's source.
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
        saved = ctx.saved_tensors  # read only once: checkpointing unpacks them once
        if not saved:
            return edges.outgoing.sum(grad, None), None, None
        x, weight = saved
        wants_x, wants_weight, _ = ctx.needs_input_grad
        grad_x = edges.outgoing.sum(grad, weight) if wants_x else None
        if not wants_weight:
            return grad_x, None, None
        # The weights' gradient in embedding_bag needs no (E, d) tensor either.
        with torch.enable_grad():
            weight = weight.detach().requires_grad_()
            out = edges.incoming.sum(x, weight)
        (grad_weight,) = torch.autograd.grad(out, weight, grad)
        return grad_x, grad_weight, None
