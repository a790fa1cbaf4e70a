"""Sample graphs in the raw layout of ECHO: generated, never the real data.

The generated tasks have graphs of this package's ``long-range``, with true targets; molecules are trees of
atoms, whose charges and energies are made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from kmip_data.pipelines.long_range import TOPOLOGIES, tree
from kmip_data.pipelines.samples.writers import part_sizes, write_graphs

DEFAULT_GRAPHS: Final = 120
_SHARES: Final = {"train": 8, "val": 1, "test": 1}
_ATOMS: Final = (1, 6, 7, 8)


def write_sample(folder: Path, *, task: str, limit: int | None = None, seed: int = 0) -> None:
    """Write the three files; topologies take turns."""
    rng = Generator(PCG64(seed))
    make = _molecule if task in {"charge", "energy"} else _graph
    row = 0
    for part, size in part_sizes(limit or DEFAULT_GRAPHS, _SHARES).items():
        write_graphs(folder / f"{part}_data.pt", [make(row + i, task, rng) for i in range(size)])
        row += size


def _graph(number: int, _task: str, rng: Generator) -> dict[str, NDArray[Any]]:
    topologies = list(TOPOLOGIES.values())
    nodes = 2 * int(rng.integers(9, 21))
    edges = _both_ways(rng.permutation(nodes)[topologies[number % len(topologies)](nodes, rng)])
    there = coo_array((np.ones(edges.shape[1]), tuple(edges)), shape=(nodes, nodes))
    apart = shortest_path(there.tocsr(), unweighted=True)
    source = int(rng.integers(nodes))
    x = np.stack([np.arange(nodes) == source, rng.random(nodes)], axis=1)
    y = np.stack([apart.max(1), np.full(nodes, apart.max()), apart[source]], axis=1)
    return {"x": x.astype(np.float32), "edge_index": edges, "y": y.astype(np.float32)}


def _molecule(_number: int, task: str, rng: Generator) -> dict[str, NDArray[Any]]:
    atoms = int(rng.integers(30, 60))
    edges = _both_ways(tree(atoms, rng))
    x = np.stack([rng.choice(_ATOMS, atoms), 10 * rng.random(atoms)], axis=1)
    bonds = edges.shape[1] // 2
    attr = np.tile(np.stack([rng.integers(1, 4, bonds), 1 + rng.random(bonds) / 2], axis=1), (2, 1))
    y = x[:, :1].sum(keepdims=True)
    y = np.log10(y) if task == "energy" else (x[:, :1] - x[:, :1].mean()) / 10
    found = {"x": x, "edge_attr": attr, "y": y}
    return {name: array.astype(np.float32) for name, array in found.items()} | {"edge_index": edges}


def _both_ways(edges: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([edges, edges[::-1]], axis=1)
