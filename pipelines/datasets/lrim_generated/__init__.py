"""LRIM's construction (ICLR 2026): critical spins of the long-range Ising model, and flip energies.

Record ``i`` is a pure function of the parameters and ``i``: a separate Markov chain from random
spins. No files are read; for the published ones see ``lrim-16-hard`` and others. Facts:
``docs/datasets/lrim.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from kmip_data.arrays import F32, F64, I8
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.pipelines.base import CardAdditions, Pipeline, Prepared, Unit
from kmip_data.pipelines.datasets.lrim_generated.cluster_sampler import (
    BondTables,
    Rng,
    random_spins,
    run_sampler,
)
from kmip_data.pipelines.datasets.lrim_generated.ising import (
    couplings_by_displacement,
    grid_edges,
    half_flip_energies,
)
from kmip_data.pipelines.graph_arrays.layout_reader import columns_of
from kmip_data.pipelines.parameters import BuildParams, PublishedSplitParams
from kmip_data.pipelines.units_and_splits import units_of_rows

SIGMAS: dict[str, float] = {"hard": 0.6, "easy": 1.5}
#: Temperatures at which the authors' one-hop oracle errs as much as on the published files
#: (docs/datasets/lrim.md).
TEMPERATURES: dict[tuple[int, str], float] = {
    (16, "hard"): 8.89,
    (16, "easy"): 5.415,
    (32, "hard"): 10.248,
    (32, "easy"): 5.517,
    (64, "hard"): 11.0,
    (64, "easy"): 5.557,
    (128, "hard"): 11.505,
    (128, "easy"): 5.597,
    (256, "hard"): 11.91,
    (256, "easy"): 5.605,
}
NUM_SWEEPS = 100  #: at least ten autocorrelation times of the magnetisation
NODES_PER_UNIT = 2**22


def _parse_digits(value: object) -> object:
    """Convert a string of digits from the command line to a number."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class LRIMParams(BuildParams):
    """Parameters that change the records."""

    size: Annotated[Literal[16, 32, 64, 128, 256], BeforeValidator(_parse_digits)] = Field(
        default=16,
        description="rows and columns of a grid",
    )
    difficulty: Literal["hard", "easy"] = Field(
        default="hard",
        description="hard: sigma 0.6; easy: sigma 1.5, with weaker long-range couplings",
    )
    graphs: int = Field(default=10_000, ge=10, le=1_000_000, description="number of grids")
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="seed of all grids")


class LRIMGeneratedPipeline(Pipeline[LRIMParams, PublishedSplitParams]):
    """Pipeline of ``lrim-generated``."""

    version = 1
    Params = LRIMParams

    def schema(self, params: LRIMParams) -> Schema:
        """Return the columns of the published files."""
        return Schema(
            columns=columns_of(self.manifest),
            max_nodes=params.size**2,
            directed=False,
            key_length=16,
        )

    def units(self, prepared: Prepared, params: LRIMParams) -> list[Unit]:
        """Assign grids in order."""
        size = min(1_000, NODES_PER_UNIT // params.size**2)
        return units_of_rows(params.positions_to_build(params.graphs), size, "graphs")

    def records(self, prepared: Prepared, unit: Unit, params: LRIMParams) -> Iterator[GraphRecord]:
        """Generate each grid from the seed and its number."""
        table = couplings_by_displacement(params.size, SIGMAS[params.difficulty])
        bonds = BondTables.at_temperature(table, TEMPERATURES[params.size, params.difficulty])
        edge_index = grid_edges(params.size).astype(self.schema(params).index_dtype)
        for row in unit.selection["rows"]:
            x, y = draw_spins_and_energies(table, bonds, np.random.default_rng([params.seed, row]))
            part = "train" if row < 0.8 * params.graphs else "val"
            if row >= 0.9 * params.graphs:
                part = "test"
            yield GraphRecord(
                key=f"{part}/{row:06d}",
                num_nodes=len(x),
                columns={"node/x": x, "node/y": y},
                edge_index=edge_index,
            )

    def card_additions(self, prepared: Prepared, params: LRIMParams) -> CardAdditions:
        """State the parameters of the construction."""
        temperature = TEMPERATURES[params.size, params.difficulty]
        note = (
            f"Generated here from seed {params.seed}, not the published files: sigma"
            f" {SIGMAS[params.difficulty]}, temperature {temperature}, {NUM_SWEEPS} sweeps per grid."
        )
        return CardAdditions(notes=[note])

    def folder_name_pieces(self, params: LRIMParams) -> list[str]:
        """Return the benchmark's name of the dataset."""
        return [f"{params.size}-{params.difficulty}"]


PIPELINE = LRIMGeneratedPipeline


def draw_spins_and_energies(table: F64, bonds: BondTables, rng: Rng) -> tuple[I8, F32]:
    """Return spins and energies of one grid, (L², 1) each, in row-major order."""
    spins = random_spins(len(table), rng)
    run_sampler(spins, bonds, NUM_SWEEPS, rng)
    energies = half_flip_energies(spins, table)
    return spins.reshape(-1, 1), energies.reshape(-1, 1).astype(np.float32)
