"""Positional encodings against PyTorch Geometric's transform."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.table import Row, thread_count
from benchmarks.turns import compare

GRAPHS, QUICK_GRAPHS = 5_000, 500
STEPS = 20


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on graphs like peptides: trees of about 150 atoms with a few rings."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.transforms import AddRandomWalkPE

    from kmip_data.graphs.encodings.rwse import random_walk_encoding

    count = QUICK_GRAPHS if quick else GRAPHS
    graphs = [_draw_molecule(number) for number in range(count)]
    items = [Data(edge_index=torch.from_numpy(edges), num_nodes=nodes) for edges, nodes in graphs]
    pyg = AddRandomWalkPE(STEPS, "pe")
    random_walk_encoding(*graphs[0], STEPS)  # compiles

    def walks() -> None:
        for edges, nodes in graphs:
            random_walk_encoding(edges, nodes, STEPS)

    def pyg_walks() -> None:
        for item in items:
            pyg(item)

    pyg(items[0])
    with thread_count(1):  # more threads do not help with 150 nodes
        times = compare(walks, pyg_walks, repeats=3, warmup=0)
    note = "encodings: one graph at a time and one thread on both sides"
    what = f"RWSE-{STEPS} on {count:,} graphs like the peptides"
    return [Row.from_times(what, "PyG AddRandomWalkPE", times, target=3, note=note)]


def _draw_molecule(seed: int) -> tuple[Any, int]:
    """Draw a random chain with side branches, and a ring for every twelve atoms."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(100, 200))
    child = np.arange(1, nodes)
    parent = np.maximum(0, child - 1 - rng.geometric(0.6, nodes - 1) + 1)
    ring = rng.integers(6, nodes, nodes // 12)
    edges = np.concatenate([[child, parent], [ring, ring - 5]], axis=1)
    return np.ascontiguousarray(np.concatenate([edges, edges[::-1]], axis=1)), nodes
