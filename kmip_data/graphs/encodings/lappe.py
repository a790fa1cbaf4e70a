"""LapPE: eigenvectors and eigenvalues of the Laplacian."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.format.schema import Column
from kmip_data.graphs.encoding import Encoding, Graphs
from kmip_data.graphs.laplacian import laplacian_encoding


class Laplacian(Encoding):
    """LapPE: the K smallest eigenpairs of the Laplacian."""

    stem = "lappe"
    metavar = "K"
    help = "The K smallest eigenpairs of the Laplacian."

    @property
    def definition(self) -> str:
        """For the card."""
        return (
            f"{self.parameter} smallest eigenpairs of D - A of the simple, undirected graph, "
            "the trivial one among them; NaN where there are fewer; the largest entry of a vector is positive"
        )

    def columns(self) -> tuple[Column, ...]:
        """``lappe_vectors`` (N, K), and ``lappe_values`` (K) a graph."""
        count = self.parameter
        return (
            self.column("graph", "lappe_values", count, finite=False, low=0.0),
            self.column("node", "lappe_vectors", count, finite=False, low=-1.0001, high=1.0001),
        )

    def compute(self, graphs: Graphs, check: Callable[[], None]) -> dict[str, NDArray[Any]]:
        """Graph by graph."""
        values = np.empty((len(graphs.node_ptr) - 1, self.parameter), np.float32)
        vectors = np.empty((int(graphs.node_ptr[-1]), self.parameter), np.float32)
        ends = zip(pairwise(graphs.node_ptr.tolist()), pairwise(graphs.edge_ptr.tolist()), strict=True)
        for g, ((a, b), (start, stop)) in enumerate(ends):
            check()
            edges = graphs.edge_index[:, start:stop]
            values[g], vectors[a:b] = laplacian_encoding(edges, b - a, self.parameter)
        return {"graph/lappe_values": values, "node/lappe_vectors": vectors}


ENCODING = Laplacian
