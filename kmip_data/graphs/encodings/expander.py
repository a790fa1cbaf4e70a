"""Expander edges: d random permutations of each graph's nodes, for Exphormer's attention."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import Encoding, Graphs
from kmip_data.graphs.expanders import COMPLETE, expander_targets


@dataclass(frozen=True)
class Expander(Encoding):
    """Edges of a random 2D-regular graph. They follow from size, key and seed, not from the graph's edges."""

    stem = "expander"
    metavar = "D"
    help = "Edges of a random 2D-regular expander, as D permutations of the nodes."
    seeded = True
    names_nodes = True
    about = (
        "{parameter} random permutations, seed {seed}: numbers of nodes in the same graph, each an edge in"
        f" both directions; -1: none; graphs of at most {COMPLETE} nodes are complete instead"
    )

    seed: int = 0

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Make it from ``expander3-seed1``; ``expander3`` has the seed 0."""
        match = re.fullmatch(r"(.*?)(?:-seed(0|[1-9]\d{0,8}))?", name)
        plain = super().parse(match[1]) if match else None
        return cls(plain.parameter, int(match[2] or 0)) if match and plain else None

    @property
    def name(self) -> str:
        """``expander3-seed0``."""
        return f"{super().name}-seed{self.seed}"

    def columns(self) -> tuple[Column, ...]:
        """``expander`` (N, D)."""
        kind = {"stored": "int32", "presented": "int64", "low": -1}
        return (self.column("node", "expander", self.parameter, **kind),)

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """Graph by graph, each with a generator of its own."""
        found = [np.empty((0, self.parameter), np.int32)]
        for g, nodes in enumerate(np.diff(graphs.node_ptr).tolist()):
            check()
            # A key is the record's own: neither its place nor the number of processes makes a difference.
            key = graphs.keys[g] if graphs.keys else str(g)
            words = np.frombuffer(hashlib.sha256(key.encode()).digest(), "<u4")
            rng = np.random.Generator(np.random.PCG64([self.seed, *words.tolist()]))
            found.append(expander_targets(nodes, self.parameter, rng))
        return {"node/expander": np.concatenate(found)}


ENCODING = Expander
