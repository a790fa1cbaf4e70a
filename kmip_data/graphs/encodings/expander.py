"""Expander edges: random permutations of the nodes of each graph (Exphormer's ``Random-d``)."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from kmip_data.arrays import I32, Array, Integers
from kmip_data.errors import UsageError
from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import ConcatenatedGraphs, Encoding
from kmip_data.graphs.encodings.lappe import symmetric_adjacency

MAX_COMPLETE_NODES = 10  #: graphs of at most this many nodes are complete instead
MAX_DRAWS = 100  #: maximum number of draws; the best one is kept if none reaches the bound
_TOLERANCE = 1e-3  #: relative tolerance of the eigenvalue; the bound has a slack of 0.1


def expander_targets(num_nodes: int, degree: int, rng: int | np.random.Generator) -> I32:
    """Draw a 2d-regular multigraph of N nodes from d = ``degree`` permutations.

    Returns int32 (N, d): node i has edges to and from each entry of row i. A graph of at most
    :data:`MAX_COMPLETE_NODES` nodes is complete, without loops, and all its entries are −1. Columns
    from N − 1 on are always −1.

    Permutations are redrawn until the second eigenvalue of the Laplacian is at least 2d - 2√(2d -
    1) - 0.1, close to the best expanders (Friedman). Loops and repeated edges stay, as in
    ``graphgps/transform/expander_edges.py`` of Exphormer, which filters loops but returns the
    unfiltered edges. Raises ``UsageError`` if ``degree`` is less than 1.
    """
    if degree < 1:
        raise UsageError(f"The degree must be 1 or more, not {degree}.")
    rng = np.random.default_rng(rng)
    targets = np.full((num_nodes, degree), -1, np.int32)
    if num_nodes <= MAX_COMPLETE_NODES:
        return targets
    bound = max(0.0, 2 * degree - 2 * math.sqrt(2 * degree - 1) - 0.1)
    best_draw = targets[:, : num_nodes - 1]
    best_eigenvalue = -1.0
    for _ in range(MAX_DRAWS):
        permutations = [rng.permutation(num_nodes) for _ in range(best_draw.shape[1])]
        candidate = np.stack(permutations, axis=1)
        # Rounding must not push the 0 of a disconnected graph below the bound of d = 1.
        eigenvalue = max(0.0, second_eigenvalue(candidate))
        if eigenvalue > best_eigenvalue:
            best_eigenvalue = eigenvalue
            best_draw[:] = candidate
        if eigenvalue >= bound:
            break
    return targets


def second_eigenvalue(targets: Integers) -> float:
    """Return the second smallest Laplacian eigenvalue of the graph of permutations (N, d), N > 2.

    Loops and repeated edges count, so every degree is 2d, and the eigenvalue is 2d minus the second
    largest eigenvalue of the adjacency matrix without loops. The result is deterministic.
    """
    from scipy.sparse.linalg import eigsh

    nodes, degree = targets.shape
    source = np.repeat(np.arange(nodes), degree)
    adjacency = symmetric_adjacency(source, targets.ravel(), nodes)

    # With a fixed start, which ARPACK would draw at random, equal graphs give equal bytes.
    start = np.random.Generator(np.random.PCG64(0)).standard_normal(nodes)
    values = eigsh(adjacency, 2, which="LA", tol=_TOLERANCE, v0=start, return_eigenvectors=False)
    return float(2 * degree - values.min())


@dataclass(frozen=True)
class Expander(Encoding):
    """Edges of a random 2D-regular graph; they depend on size, key and seed, but not on its edges."""

    prefix = "expander"
    parameter_letter = "D"
    bytes_per_node = 750
    help = "Edges of a random 2D-regular expander, as D permutations of the nodes."
    seeded = True
    has_node_numbers = True
    definition_template = (
        "{parameter} random permutations, seed {seed}: numbers of nodes in the same graph, each an edge in"
        f" both directions; -1: none; graphs of at most {MAX_COMPLETE_NODES} nodes are complete instead"
    )

    seed: int = 0

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """Parse a name such as ``expander3-seed1``; ``expander3`` has seed 0."""
        match = re.fullmatch(r"(.*?)(?:-seed(0|[1-9]\d{0,8}))?", name)
        if match is None:
            return None
        unseeded = super().parse(match[1])
        if unseeded is None:
            return None
        return cls(unseeded.parameter, int(match[2] or 0))

    @property
    def name(self) -> str:
        """``expander3-seed0``."""
        return f"{super().name}-seed{self.seed}"

    def columns(self) -> tuple[Column, ...]:
        """``expander`` (N, D)."""
        dtype_and_bound = {"stored": "int32", "presented": "int64", "low": -1}
        return (self.column("node", "expander", self.parameter, **dtype_and_bound),)

    def compute(self, graphs: ConcatenatedGraphs, check: Callable[[], None]) -> dict[str, Array]:
        """Draw the permutations of each graph."""
        targets = [np.empty((0, self.parameter), np.int32)]
        for g, nodes in enumerate(np.diff(graphs.node_ptr).tolist()):
            check()
            # Seed by the record's key, not by its position or the number of processes.
            key = graphs.keys[g] if graphs.keys else str(g)
            words = np.frombuffer(hashlib.sha256(key.encode()).digest(), "<u4")
            rng = np.random.Generator(np.random.PCG64([self.seed, *words.tolist()]))
            targets.append(expander_targets(nodes, self.parameter, rng))
        return {"node/expander": np.concatenate(targets)}


ENCODING = Expander
