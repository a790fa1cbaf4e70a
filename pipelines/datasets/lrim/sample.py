"""Generated grids in the raw layout of LRIM, with the construction of ``lrim-generated``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kmip_data.arrays import Array
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.lrim_generated import (
    SIGMAS,
    TEMPERATURES,
    draw_spins_and_energies,
)
from kmip_data.pipelines.datasets.lrim_generated.cluster_sampler import BondTables
from kmip_data.pipelines.datasets.lrim_generated.ising import couplings_by_displacement, grid_edges
from kmip_data.pipelines.sample_writers import write_graphs

DEFAULT_GRAPHS = 120
GRID_SIZE = 16  #: rows and columns


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``limit`` grids to the raw file."""
    difficulty = "hard" if manifest.registered_name.endswith("hard") else "easy"
    table = couplings_by_displacement(GRID_SIZE, SIGMAS[difficulty])
    bonds = BondTables.at_temperature(table, TEMPERATURES[GRID_SIZE, difficulty])
    edges = grid_edges(GRID_SIZE)
    # Keep one direction of each edge, as published.
    edges = edges[:, edges[0] < edges[1]]
    graphs = []
    for row in range(limit or DEFAULT_GRAPHS):
        x, y = draw_spins_and_energies(table, bonds, np.random.default_rng([seed, row]))
        graph: dict[str, Array] = {"x": x.astype(np.float32), "edge_index": edges, "y": y[:, 0]}
        graphs.append(graph)
    write_graphs(folder / manifest.sources[0].name, graphs)
