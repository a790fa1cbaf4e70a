"""Generated graphs in the raw layout of ECHO.

Graph tasks use the topologies of ``long-range``, with correct targets. Molecules are trees of atoms
with artificial charges and energies.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import Array
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.long_range import TOPOLOGIES, hop_distances, tree_edges
from kmip_data.pipelines.graph_arrays.reverse_edges import append_reverse_edges
from kmip_data.pipelines.sample_writers import part_sizes, write_graphs

DEFAULT_GRAPHS = 120
_PART_WEIGHTS = {"train": 8, "val": 1, "test": 1}
_ATOMIC_NUMBERS = (1, 6, 7, 8)


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write the three files, with alternating topologies."""
    rng = Generator(PCG64(seed))
    task = manifest.registered_name.removeprefix("echo-")
    draw = _draw_molecule if task in {"charge", "energy"} else _draw_graph
    row = 0
    for part, size in part_sizes(limit or DEFAULT_GRAPHS, _PART_WEIGHTS).items():
        graphs = [draw(row + i, task, rng) for i in range(size)]
        write_graphs(folder / f"{part}_data.pt", graphs)
        row += size


def _draw_graph(number: int, _task: str, rng: Generator) -> dict[str, Array]:
    topologies = list(TOPOLOGIES.values())
    make_topology = topologies[number % len(topologies)]
    nodes = 2 * int(rng.integers(9, 21))
    order = rng.permutation(nodes)
    edges = append_reverse_edges(order[make_topology(nodes, rng)])

    distance = hop_distances(edges, nodes, np.arange(nodes))
    source = int(rng.integers(nodes))
    is_source = np.arange(nodes) == source
    x = np.stack([is_source, rng.random(nodes)], axis=1)
    diameter = np.full(nodes, distance.max())
    y = np.stack([distance.max(1), diameter, distance[source]], axis=1)
    return {
        "x": x.astype(np.float32),
        "edge_index": edges,
        "y": y.astype(np.float32),
    }


def _draw_molecule(_number: int, task: str, rng: Generator) -> dict[str, Array]:
    atoms = int(rng.integers(30, 60))
    edges = append_reverse_edges(tree_edges(atoms, rng))
    number = rng.choice(_ATOMIC_NUMBERS, atoms)
    x = np.stack([number, 10 * rng.random(atoms)], axis=1)

    bonds = edges.shape[1] // 2
    bond_type = rng.integers(1, 4, bonds)
    bond_length = 1 + rng.random(bonds) / 2
    attr = np.tile(np.stack([bond_type, bond_length], axis=1), (2, 1))

    numbers = x[:, :1]
    y = (numbers - numbers.mean()) / 10
    if task == "energy":
        y = np.log10(numbers.sum(keepdims=True))
    return {
        "x": x.astype(np.float32),
        "edge_attr": attr.astype(np.float32),
        "y": y.astype(np.float32),
        "edge_index": edges,
    }
