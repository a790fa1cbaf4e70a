"""The edges of a batch in one of two forms, behind the three things message passing asks of them.

An edge list (2, E) gathers and scatters by index. Where every node has exactly k sources, the
neighbour table (N, k) needs no index for the target side: values at the target broadcast along k
and sums run over k. Both give the same numbers to float tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class Edges(Protocol):
    """Edge values have the channels last and one or two leading axes, by form."""

    def at_source(self, x: Tensor) -> Tensor:
        """Value of each edge's source: (N, d) → edge values, newly allocated."""
        ...

    def at_target(self, x: Tensor) -> Tensor:
        """Value of each edge's target: (N, d) → something that broadcasts against edge values."""
        ...

    def sum_at_target(self, values: Tensor) -> Tensor:
        """Sum of the values of each node's incoming edges: edge values → (N, d)."""
        ...


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Any edges, in any order: edge values are (E, d).

    Attributes
    ----------
    source, target
        (E,) int64.
    num_nodes
        N.
    """

    source: Tensor
    target: Tensor
    num_nodes: int

    def at_source(self, x: Tensor) -> Tensor:
        """(N, d) → (E, d)."""
        return x.index_select(0, self.source)

    def at_target(self, x: Tensor) -> Tensor:
        """(N, d) → (E, d)."""
        return x.index_select(0, self.target)

    def sum_at_target(self, values: Tensor) -> Tensor:
        """(E, d) → (N, d)."""
        out = values.new_zeros(self.num_nodes, values.shape[-1])
        return out.index_add(0, self.target, values)


@dataclass(frozen=True, eq=False)
class NeighborTable:
    """Fixed in-degree k: edge values are (N, k, d).

    Attributes
    ----------
    neighbor
        (N, k) int64, the sources of each target, as rows of the whole batch.
    """

    neighbor: Tensor

    def at_source(self, x: Tensor) -> Tensor:
        """(N, d) → (N, k, d)."""
        return x.index_select(0, self.neighbor.flatten()).view(*self.neighbor.shape, -1)

    def at_target(self, x: Tensor) -> Tensor:
        """(N, d) → (N, 1, d)."""
        return x[:, None, :]

    def sum_at_target(self, values: Tensor) -> Tensor:
        """(N, k, d) → (N, d)."""
        return values.sum(1)
