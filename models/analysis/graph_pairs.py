"""Pairs of graphs that tests of isomorphism are measured by."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import I64

Pair = tuple[I64, I64]  #: two adjacency matrices (N, N)


def known_pairs() -> dict[str, Pair]:
    """Pairs by name, none isomorphic: those of the paper's argument, and of the families of BREC."""
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
