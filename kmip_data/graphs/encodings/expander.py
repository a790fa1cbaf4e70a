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
from kmip_data.graphs.encoding import Encoding, Graphs
from kmip_data.graphs.encodings.lappe import adjacency_matrix

COMPLETE = 10  #: graphs of at most this many nodes are complete instead
DRAWS = 100  #: most draws; the best counts if none reaches the bound
_TOLERANCE = 1e-3  #: relative, of the eigenvalue: the bound has a slack of 0.1


def expander_targets(num_nodes: int, degree: int, rng: int | np.random.Generator) -> I32:
    """Draw a 2d-regular multigraph on N nodes: d = ``degree`` permutations, edges in both directions.

    Permutations are drawn again until the second eigenvalue of the Laplacian is at least 2d - 2√(2d
    - 1) - 0.1, nearly as for the best expanders (Friedman). Loops and repeated edges stay, as in
    ``graphgps/transform/expander_edges.py`` of Exphormer, which filters loops but returns the
    unfiltered edges. Raises ``UsageError`` if ``degree`` is less than 1.

    Returns int32 (N, d): node i has edges to and from each entry of row i. All are −1 in a graph of
    at most :data:`COMPLETE` nodes, which is complete, without loops; columns from N − 1 on are −1
    in any.
    """
    if degree < 1:
        raise UsageError(f"The degree must be 1 or more, not {degree}.")
    rng = np.random.default_rng(rng)
    targets = np.full((num_nodes, degree), -1, np.int32)
    if num_nodes <= COMPLETE:
        return targets
    bound = max(0.0, 2 * degree - 2 * math.sqrt(2 * degree - 1) - 0.1)
    drawn = targets[:, : num_nodes - 1]
    best = -1.0
    for _ in range(DRAWS):
        permutations = [rng.permutation(num_nodes) for _ in range(drawn.shape[1])]
        candidate = np.stack(permutations, axis=1)
        # A disconnected graph has 0, which rounding must not take below the bound of d = 1.
        eigenvalue = max(0.0, second_eigenvalue(candidate))
        if eigenvalue > best:
            best = eigenvalue
            drawn[:] = candidate
        if eigenvalue >= bound:
            break
    return targets


def second_eigenvalue(targets: Integers) -> float:
    """Return the second smallest eigenvalue of the Laplacian of the graph of permutations (N, d), N > 2.

    A loop counts in the degree of its node, and a repeated edge counts repeatedly, so every degree
    is 2d, and the eigenvalue is 2d minus the second largest of the adjacency matrix without loops.
    Deterministic.
    """
    from scipy.sparse.linalg import eigsh

    nodes, degree = targets.shape
    source = np.repeat(np.arange(nodes), degree)
    adjacency = adjacency_matrix(source, targets.ravel(), nodes)

    # A fixed start, as ARPACK would draw its own: equal graphs give equal bytes.
    start = np.random.Generator(np.random.PCG64(0)).standard_normal(nodes)
    values = eigsh(adjacency, 2, which="LA", tol=_TOLERANCE, v0=start, return_eigenvectors=False)
    return float(2 * degree - values.min())


@dataclass(frozen=True)
class Expander(Encoding):
    """Edges of a random 2D-regular graph.

    They depend on size, key and seed, not on the graph's edges.
    """

    stem = "expander"
    metavar = "D"
    bytes_a_node = 750
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
        """Return the encoding of ``expander3-seed1``; ``expander3`` has seed 0."""
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

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, Array]:
        """Draw the permutations of each graph."""
        targets = [np.empty((0, self.parameter), np.int32)]
        for g, nodes in enumerate(np.diff(graphs.node_ptr).tolist()):
            check()
            # Seeded by the record's key: independent of its position and of the number of
            # processes.
            key = graphs.keys[g] if graphs.keys else str(g)
            words = np.frombuffer(hashlib.sha256(key.encode()).digest(), "<u4")
            rng = np.random.Generator(np.random.PCG64([self.seed, *words.tolist()]))
            targets.append(expander_targets(nodes, self.parameter, rng))
        return {"node/expander": np.concatenate(targets)}


ENCODING = Expander
