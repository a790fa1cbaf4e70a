"""Edges as a list, with sums over the edges of each node in one order on every device.

``index_add`` adds in the order of the index on a CPU; on a GPU by atomics, in another order each time, and
slowly where many rows meet in one. There rows are sorted by their node first, and each list of them is summed
by itself. Where a message is its source's row, or a multiple of it, the sum needs no (edges, d) tensor: with
the edges sorted by target it is one ``embedding_bag``, and its gradient one with them sorted by source.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag

if TYPE_CHECKING:
    from kmip_data.models.layers.partition import AllNodes, Partition


class Bags(NamedTuple):
    """The edges of one node after those of another."""

    node: Tensor  #: (E,) the end of each edge that is looked up
    start: Tensor  #: (N + 1,) node i has the entries ``start[i]:start[i + 1]``
    edge: Tensor | None  #: (E,) which edge an entry is; None: in order

    def sum(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """Sum the rows of each node's bag: (N, d), weights (E,) of the edges → (N, d)."""
        if self.node.numel() == 0:
            return (
                x * 0 if weight is None else x * weight.sum()
            )  # for its gradient, of which there is none
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


TILE = 64  #: rows of a long list that are summed at a time
LONG = 32  #: rows of a list, on average, from which lists are cut into tiles: a thread sums a list or a tile


def sum_lists(rows: Tensor, start: Tensor, order: Tensor | None = None) -> Tensor:
    """Sum the rows of each list: (E, d) → (N, d), in an order that follows from ``start`` alone.

    List i has the rows ``order[start[i]:start[i + 1]]``; without an ``order`` they lie one after another.
    """
    if len(start) == 2:
        return rows.sum(0, keepdim=True)
    cuts = start
    if tiled := len(rows) > LONG * (len(start) - 1):
        # Every list is cut where a multiple of TILE falls into it; no number of cuts depends on values.
        cuts = (
            torch.cat([start, torch.arange(0, len(rows), TILE, device=start.device)]).sort().values
        )
    order = torch.arange(len(rows), device=rows.device) if order is None else order
    sums = embedding_bag(order, rows, cuts, mode="sum", include_last_offset=True)
    return sum_lists(sums, torch.searchsorted(cuts, start)) if tiled else sums


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Any edges, in any order: edge values are (E, d). Sorted on first use, for all layers of a batch."""

    #: source, target: (E,) int64
    source: Tensor
    target: Tensor
    num_nodes: int  #: N
    distance: Tensor | None = None  #: (E, 1), where nodes have positions
    by_target: bool = False  #: True if they are sorted by target
    #: Of a graph on several processes: sources from N on are rows of its halo.
    partition: Partition | AllNodes | None = None

    @property
    def index(self) -> Tensor:
        """(2, E)."""
        return torch.stack([self.source, self.target])

    @property
    def adjacency(self) -> EdgeList:
        """The edges themselves: a table has to be written out as a list."""
        return self

    def extended(self, x: Tensor) -> Tensor:
        """Rows of all sources: (N, d), and behind them the halo where there is one."""
        return x if self.partition is None else self.partition.extended(x)

    def at_source(self, x: Tensor) -> Tensor:
        """Value of each edge's source: (N, d) → (E, d)."""
        return _LookUp.apply(self.extended(x), self, False)  # type: ignore[no-any-return, no-untyped-call]

    def at_target(self, x: Tensor) -> Tensor:
        """Value of each edge's target: (N, d) → (E, d)."""
        return _LookUp.apply(x, self, True)  # type: ignore[no-any-return, no-untyped-call]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum the values of each node's incoming edges, (E, d) → (N, d); half precision in float32."""
        return _SumAtTargets.apply(values, self)  # type: ignore[no-any-return, no-untyped-call]

    def sum(self, values: Tensor, *, targets: bool) -> Tensor:
        """Sum the values of the edges at their targets, or at their sources, without a gradient."""
        if values.device.type == "cpu":
            out = values.new_zeros(self.num_nodes if targets else self.num_sources, values.shape[1])
            # Not in place: torch 2.11 compiled to a wrong gradient then.
            return out.index_add(0, self.target if targets else self.source, values)
        bags = self.incoming if targets else self.outgoing
        return sum_lists(values, bags.start, bags.edge)

    @functools.cached_property
    def incoming(self) -> Bags:
        """The sources of each node."""
        return self._bags(self.target, self.source, self.num_nodes, ordered=self.by_target)

    @functools.cached_property
    def outgoing(self) -> Bags:
        """The targets of each node."""
        return self._bags(self.source, self.target, self.num_sources, ordered=False)

    @property
    def num_sources(self) -> int:
        """Rows that a source may be."""
        return self.num_nodes + (0 if self.partition is None else self.partition.halo)

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

    def _bags(self, key: Tensor, other: Tensor, count: int, *, ordered: bool) -> Bags:
        edge = None
        if not ordered:
            # Of 32-bit numbers, which torch sorts by their digits: several times as fast as of 64 bits.
            key, edge = key.int().sort(stable=True)
        nodes = torch.arange(count + 1, dtype=key.dtype, device=key.device)
        start = torch.searchsorted(key.contiguous(), nodes)
        return Bags(other.contiguous() if edge is None else other[edge], start, edge)


class SharedMembers(EdgeList):
    """Each node as an edge into its graph, of which other processes have nodes as well."""

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum over the nodes of each graph, on all processes."""
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        return self.partition.sum_of_nodes(wide)  # type: ignore[union-attr]


class _LookUp(torch.autograd.Function):
    """``index_select`` whose gradient is summed in one order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: EdgeList, targets: bool) -> Tensor:
        ctx.edges = edges
        ctx.targets = targets
        return x.index_select(0, edges.target if targets else edges.source)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.edges.sum(grad, targets=ctx.targets), None, None


class _SumAtTargets(torch.autograd.Function):
    """``index_add`` that keeps no values; torch's keeps all of them, for their shape."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, edges: EdgeList) -> Tensor:
        ctx.target = edges.target
        ctx.dtype = values.dtype
        return edges.sum(values.to(torch.promote_types(values.dtype, torch.float32)), targets=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad.index_select(0, ctx.target).to(ctx.dtype), None


def neighbor_sum(edges: EdgeList, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum the rows of each node's sources: (N, d) to the same; half precision is summed in float32.

    ``weight`` is that of the edges, (E,); None: 1.
    """
    wide = edges.extended(x if x.dtype == torch.float64 else x.float())
    weight = weight if weight is None else weight.to(wide.dtype)
    out: Tensor = _NeighborSum.apply(wide, weight, edges)  # type: ignore[no-untyped-call]
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
        grad_x = edges.outgoing.sum(grad, weight) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return grad_x, None, None
        with torch.enable_grad():  # its own gradient for weights has no row for each edge either
            weight = weight.detach().requires_grad_()
            again = edges.incoming.sum(x, weight)
        (grad_weight,) = torch.autograd.grad(again, weight, grad)
        return grad_x, grad_weight, None
