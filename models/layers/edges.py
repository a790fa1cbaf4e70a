"""The edges of a batch in one of two forms, behind the three things message passing asks of them.

An edge list (2, E) gathers and scatters by index. Where every node has exactly k sources, the
neighbour table (N, k) needs no index for the target side: values at the target broadcast along k
and sums run over k. Both give the same numbers to float tolerance.

Edge values have the channels last and one or two leading axes, by form: ``at_source`` gives them newly
allocated, and what ``at_target`` gives broadcasts against them. ``distance`` is the squared distance of the
positions of each edge's ends, edge values with one channel, or None; ``index`` (2, E) are sources and
targets, as PyTorch Geometric's layers take them.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from kmip_data.errors import UsageError
from kmip_data.models.layers.adjacency import Adjacency

PARTS: Final = 16  #: of a neighbour table, for as many threads
PARTS_OF_ONE_GRAPH: Final = 4  #: of one whose nodes have sources anywhere: each has a sum for every node


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Any edges, in any order: edge values are (E, d)."""

    #: source, target: (E,) int64
    source: Tensor
    target: Tensor
    num_nodes: int  #: N
    distance: Tensor | None = None  #: (E, 1), where nodes have positions

    @property
    def index(self) -> Tensor:
        """(2, E)."""
        return torch.stack([self.source, self.target])

    @functools.cached_property
    def adjacency(self) -> Adjacency:
        """Made once."""
        return Adjacency(self.source, self.target, self.num_nodes)

    def at_source(self, x: Tensor) -> Tensor:
        """Value of each edge's source: (N, d) → (E, d)."""
        return x.index_select(0, self.source)

    def at_target(self, x: Tensor) -> Tensor:
        """Value of each edge's target: (N, d) → (E, d)."""
        return x.index_select(0, self.target)

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum of the values of each node's incoming edges: (E, d) → (N, d)."""
        out: Tensor = _SumByIndex.apply(values, self.target, self.num_nodes)  # type: ignore[no-untyped-call]
        return out


@dataclass(frozen=True, eq=False)
class NeighborTable:
    """Fixed in-degree k: edge values are (N, k, d)."""

    neighbor: Tensor  #: (N, k) int64, the sources of each target, as rows of the whole batch
    distance: Tensor | None = None  #: (N, k, 1), where nodes have positions

    @property
    def index(self) -> Tensor:
        """(2, N · k), the edges of a target one after the other."""
        targets = torch.arange(len(self.neighbor), device=self.neighbor.device)[:, None]
        return torch.stack([self.neighbor.long(), targets.expand_as(self.neighbor)]).flatten(1)

    @functools.cached_property
    def adjacency(self) -> Adjacency:
        """Made once."""
        source, target = self.index
        return Adjacency(source, target, len(self.neighbor), by_target=True)

    def at_source(self, x: Tensor) -> Tensor:
        """Value of each edge's source: (N, d) → (N, k, d)."""
        # An embedding look-up, because its result is not a view: adding to a view in place copies it.
        return nn.functional.embedding(self.neighbor, x)

    def at_target(self, x: Tensor) -> Tensor:
        """Value of each edge's target: (N, d) → (N, 1, d)."""
        return x[:, None, :]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum of the values of each node's incoming edges: (N, k, d) → (N, d)."""
        return values.sum(1, dtype=_sum_dtype(values))

    @functools.cached_property
    def parts(self) -> list[TableRange]:
        """The nodes in a few parts, by the data alone, with the range that each one's sources lie in.

        For compiled kernels that sum at the sources: each part has sums of its own for that range, added
        up in this order. In a batch of graphs the ranges are short; where they all are long there are
        fewer parts.
        """
        table = self.neighbor.contiguous().numpy()
        for count in (PARTS, PARTS_OF_ONE_GRAPH):
            ends = [len(table) * i // count for i in range(count + 1)]
            found = [
                TableRange(a, b, int(table[a:b].min()), int(table[a:b].max()) + 1)
                for a, b in itertools.pairwise(ends)
                if a < b
            ]
            if sum(part.high - part.low for part in found) <= PARTS_OF_ONE_GRAPH * len(table):
                break
        low, high = min(part.low for part in found), max(part.high for part in found)
        if low < 0 or high > len(table):
            raise UsageError(
                "the neighbour table names nodes that are not there",
                expected=f"numbers from 0 to {len(table) - 1}",
                found=f"{low} to {high - 1}",
            )
        return found


Edges = EdgeList | NeighborTable


class UnformedEdges(ABC):
    """New edges that no one has formed yet: the next layer does, in its first pass over them."""

    @abstractmethod
    def tensor(self) -> Tensor:
        """Form them: edge values, as a layer would have given them."""


def formed(edges: Any) -> Any:
    """``edges``, which are formed if they are not."""
    return edges.tensor() if isinstance(edges, UnformedEdges) else edges


class TableRange(NamedTuple):
    """Nodes ``start`` to ``stop`` of a neighbour table, whose sources are all from ``low`` to ``high``."""

    start: int
    stop: int
    low: int
    high: int


def _sum_dtype(values: Tensor) -> torch.dtype:
    """Half precision is summed in float32."""
    return values.dtype if values.dtype == torch.float64 else torch.float32


class _SumByIndex(torch.autograd.Function):
    """``index_add`` that keeps the index alone; torch's keeps all values, for their shape."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(index)
        ctx.dtype = values.dtype
        out = torch.zeros(rows, values.shape[1], dtype=_sum_dtype(values), device=values.device)
        # Not in place: torch 2.11 compiled to a wrong gradient then.
        return out.index_add(0, index, values.to(out.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return grad.index_select(0, index).to(ctx.dtype), None, None
