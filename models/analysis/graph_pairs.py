"""Pairs of graphs for tests of isomorphism."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import first_fault, read_small

Pair = tuple[I64, I64]  #: two adjacency matrices (N, N)

MOST_PAIRS, MOST_NODES, MOST_BYTES = 1_000, 1_000, 2**26
#: Families of BREC and their pairs, in the order of its file (customize/dataset_v3.py of GraphPKU/BREC).
BREC = {
    "basic": 60,
    "simple regular": 50,
    "strongly regular": 50,
    "extension": 100,
    "CFI": 100,
    "4-vertex condition": 20,
    "distance regular": 20,
}
COPIES = 128  #: entries of a pair in that file: 64 with the pair in turn, all of them before 64 of one graph


def known_pairs() -> dict[str, Pair]:
    """Return pairs that are not isomorphic, by name: of the paper's argument, and of the families of BREC."""
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


def read_pairs(path: Path) -> dict[str, Pair]:
    """Pairs of a file of graph6 strings: BREC's ``brec_v3.npy``, another array, or a text with one a line.

    Those of BREC are called by their families; of its renumbered copies the first is taken. Elsewhere graphs
    that follow each other are a pair. Nothing in the file is run: a pickled array is refused.

    Raises ``DamagedInput`` where it cannot be read, or holds no pairs, too many, or too large graphs.
    """
    import networkx as nx

    try:
        matrices = _matrices(_entries(path))
    except (OSError, ValueError, IndexError, nx.NetworkXError) as error:
        raise DamagedInput(
            f"{path} holds no pairs of graphs.",
            expected=f"graph6, pair by pair, at most {MOST_PAIRS:,} of graphs with 1 to {MOST_NODES:,} nodes:"
            " BREC's brec_v3.npy, an array of bytes or text, or one graph a line",
            found=first_fault(error),
            next="of an array of objects, whose pickle is not run: numpy.save(FILE, numpy.asarray([*them]))",
        ) from error
    pairs = [*zip(matrices[::2], matrices[1::2], strict=True)]
    named = [f"{name} {i + 1}" for name, count in BREC.items() for i in range(count)]
    if path.suffix != ".npy" or len(pairs) != len(named):
        named = [f"pair {i + 1}" for i in range(len(pairs))]
    return dict(zip(named, pairs, strict=True))


def _entries(path: Path) -> Sequence[bytes]:
    """Return the strings of a file; of each pair of BREC's the first two."""
    if path.suffix != ".npy":
        return read_small(path, MOST_BYTES).split()
    array = np.lib.format.open_memmap(path, mode="r").reshape(-1)  # never unpickles; BREC's are 167 MB
    if array.dtype.kind not in "SU":
        raise ValueError(f"an array of {array.dtype}")
    pairs = sum(BREC.values())
    if len(array) == pairs * COPIES:
        array = array[: pairs * COPIES // 2].reshape(pairs, -1)[:, :2].reshape(-1)
    if len(array) > 2 * MOST_PAIRS:
        raise ValueError(f"{len(array):,} graphs")
    return [text.encode() if isinstance(text, str) else bytes(text) for text in array]


def _matrices(texts: Sequence[bytes]) -> list[I64]:
    """Return the adjacency matrices of an even number of graphs."""
    import networkx as nx

    if len(texts) % 2 or not 0 < len(texts) <= 2 * MOST_PAIRS:
        raise ValueError(f"{len(texts):,} graphs")
    graphs = [nx.from_graph6_bytes(text) for text in texts]
    for graph in graphs:
        if not 0 < len(graph) <= MOST_NODES:
            raise ValueError(f"a graph of {len(graph):,} nodes")
    return [nx.to_numpy_array(graph, dtype=np.int64) for graph in graphs]
