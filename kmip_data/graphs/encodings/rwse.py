"""RWSE: return probabilities of random walks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import Encoding, Graphs
from kmip_data.graphs.random_walk import random_walk_encoding


class RandomWalk(Encoding):
    """RWSE: return probabilities of T steps of a random walk."""

    stem = "rwse"
    metavar = "T"
    help = "Return probabilities of T steps of a random walk."

    @property
    def definition(self) -> str:
        """For the card."""
        return f"diagonals of P, P², … to the power {self.parameter}; P = D⁻¹A of the stored edges"

    def columns(self) -> tuple[Column, ...]:
        """``rwse`` (N, T)."""
        return (self.column("node", "rwse", self.parameter, low=0.0),)

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """All graphs at once: they are one graph of several components."""
        check()
        edges, nodes = graphs.joined(), int(graphs.node_ptr[-1])
        return {"node/rwse": random_walk_encoding(edges, nodes, self.parameter, node_ptr=graphs.node_ptr)}


ENCODING = RandomWalk
