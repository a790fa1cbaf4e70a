"""Colour refinement of graphs: the S-SEG-WL test of the paper's Theorem 1, of which 1-WL is one case."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64
from kmip_data.graphs.encoding import Encoding, Graphs, parse_encoding

SAME = 1e-5  #: values of an encoding that are no further apart count as one: they are float32 on disk
ENCODINGS = ("rwse20", "rwse3", "lappe10")  #: that S-SEG-WL is run with
Pair = tuple[I64, I64]  #: two adjacency matrices (N, N)


def known_pairs() -> dict[str, Pair]:
    """Return pairs that are not isomorphic, by name: of the paper's argument, and of families of BREC."""
    import networkx as nx

    torus = [(a, b) for a in range(4) for b in range(4)]
    cayley = [((a, b), ((a + i) % 4, (b + j) % 4)) for a, b in torus for i, j in ((0, 1), (1, 0), (1, 1))]
    rook, shrikhande = nx.line_graph(nx.complete_bipartite_graph(4, 4)), nx.Graph(cayley)
    rings = {
        n: (nx.cycle_graph(2 * n), nx.disjoint_union(nx.cycle_graph(n), nx.cycle_graph(n))) for n in (5, 8)
    }
    for graph in (*rings[5], *rings[8]):
        graph.add_edge(0, len(graph) // 2)  # two rings of n + 1 share it, or two of n are joined by it
    pairs = {
        "P4, K1,3": (nx.path_graph(4), nx.star_graph(3)),
        "2 C3, C6": (nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)), nx.cycle_graph(6)),
        "decalin, bicyclopentyl": rings[5],
        "two rings of 9, of 8": rings[8],
        "CSL(41, 2), CSL(41, 3)": (nx.circulant_graph(41, [1, 2]), nx.circulant_graph(41, [1, 3])),
        "dodecahedron, Desargues": (nx.dodecahedral_graph(), nx.desargues_graph()),
        "4x4 rook, Shrikhande": (rook, shrikhande),
        "these, a leaf at a node": tuple(
            nx.Graph([*g.edges, (next(iter(g)), "leaf")]) for g in (rook, shrikhande)
        ),
    }
    matrix = nx.to_numpy_array
    return {name: (matrix(a, dtype=np.int64), matrix(b, dtype=np.int64)) for name, (a, b) in pairs.items()}


class Refinement(NamedTuple):
    """Colours of the nodes of each graph by iteration, until their classes stay as they are."""

    colours: list[list[I64]]

    @property
    def separated(self) -> int | None:
        """The iteration in which the first two graphs have different multisets of colours; None: never."""
        differ = (not np.array_equal(np.sort(one), np.sort(other)) for one, other, *_ in self.colours)
        return next((iteration for iteration, differs in enumerate(differ) if differs), None)


def refine(start: I64, relations: Sequence[I64]) -> Refinement:
    """Refine colours: a node's next one encodes the multiset {{(colour of r, relation to r)}} over all r.

    ``start`` (ΣN,) are those of all nodes, graph after graph; ``relations`` (N, N) each graph's f_R of the
    row's node to the column's, from 0.
    """
    ptr = np.cumsum([0, *map(len, relations)])
    kinds = 1 + max(int(relation.max(initial=0)) for relation in relations)
    colour, found = _numbered(start[:, None]), []
    for _ in range(ptr[-1] + 1):
        found.append([colour[a:b] for a, b in pairwise(ptr)])
        seen = np.full((ptr[-1], int(np.diff(ptr).max())), -1)
        for (a, b), relation in zip(pairwise(ptr), relations, strict=True):
            seen[a:b, : b - a] = np.sort(colour[a:b] * kinds + relation, axis=1)
        new = _numbered(seen)
        if _numbered(np.stack([colour, new], 1)).max() == colour.max() == new.max():  # other names, no more
            break
        colour = new
    return Refinement(found)


def all_tests(matrices: Sequence[I64]) -> dict[str, Refinement]:
    """1-WL, S-SEG-WL, and this with each of :data:`ENCODINGS`, by name; graphs are adjacency matrices."""
    enhanced = {f"+ {name}": seg_wl(matrices, parse_encoding(name)) for name in ENCODINGS}
    alike = np.zeros(sum(map(len, matrices)), np.int64)
    return {"1-WL": refine(alike, matrices), "S-SEG-WL": seg_wl(matrices), **enhanced}


def seg_wl(matrices: Sequence[I64], encoding: Encoding | None = None) -> Refinement:
    """S-SEG-WL with the S of Theorem 1, for nodes without other features than an encoding.

    f_R separates neighbours, the node itself and the rest. Of LapPE only the eigenvalues are used:
    the entries of eigenvectors change with the order of the nodes, and would separate a graph from itself.
    """
    graphs = as_graphs(matrices)
    columns = {} if encoding is None else encoded(graphs, encoding)
    columns.pop("node/lappe_vectors", None)
    sizes, rows = np.diff(graphs.node_ptr), [np.zeros((graphs.node_ptr[-1], 1))]
    rows += [np.repeat(v, sizes, 0) if key.startswith("graph/") else v for key, v in columns.items()]
    start = _numbered(np.nan_to_num(np.concatenate(rows, axis=1), nan=-1))
    return refine(start, [2 * matrix + np.eye(len(matrix), dtype=np.int64) for matrix in matrices])


def as_graphs(matrices: Sequence[I64]) -> Graphs:
    """Adjacency matrices as the edges that encodings are computed from."""
    edges = [np.stack(np.nonzero(matrix)) for matrix in matrices]
    edge_ptr = np.cumsum([0, *(each.shape[1] for each in edges)])
    return Graphs(np.cumsum([0, *map(len, matrices)]), edge_ptr, np.concatenate(edges, axis=1))


def encoded(graphs: Graphs, encoding: Encoding) -> dict[str, NDArray[Any]]:
    """Columns of an encoding, without the differences of rounding that equal values may have."""
    found = encoding.compute(graphs, lambda: None)
    for key, values in found.items():
        levels, place = np.unique(values, return_inverse=True)
        first = np.flatnonzero(np.append(True, ~(np.diff(levels) <= SAME)))  # NaN is a level of its own
        found[key] = levels[first][np.searchsorted(first, place, "right") - 1].reshape(values.shape)
    return found


def _numbered(rows: NDArray[Any]) -> I64:
    """Number rows from 0, equal ones alike."""
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
