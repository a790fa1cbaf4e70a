"""LRIM's construction (ICLR 2026): spins of the long-range Ising model at criticality, and energies of flips.

Record ``i`` is a pure function of the parameters and ``i``: its own Markov chain from random spins.
Nothing is read. The published files are ``lrim-16-hard`` and its like. Facts: ``docs/datasets/lrim.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from kmip_data.arrays import F32, F64, I8
from kmip_data.format.schema import Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.base import (
    BuildParams,
    CardAdditions,
    Pipeline,
    Prepared,
    PublishedSplitParams,
    Unit,
)
from kmip_data.pipelines.datasets.lrim_generated.clusters import (
    Bonds,
    Rng,
    random_spins,
    run_sampler,
)
from kmip_data.pipelines.datasets.lrim_generated.ising import (
    couplings_by_displacement,
    flip_energies,
    grid_edges,
)
from kmip_data.pipelines.graph_arrays.layout_reader import columns_of
from kmip_data.pipelines.record_assignment import units_of_rows

SIGMA: dict[str, float] = {"hard": 0.6, "easy": 1.5}
#: Temperatures at which grids have the errors of the authors' one-hop oracle on the published files
#: (docs/datasets/lrim.md).
TEMPERATURE: dict[tuple[int, str], float] = {
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
#: Sweeps of a chain from random spins: at least ten autocorrelation times of the magnetisation.
SWEEPS = 100
UNIT_NODES = 2**22


def _parse_digits(value: object) -> object:
    """Return text of digits, as of the command line, as a number; anything else unchanged."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class LRIMParams(BuildParams):
    """Parameters that change the records."""

    size: Annotated[Literal[16, 32, 64, 128, 256], BeforeValidator(_parse_digits)] = Field(
        default=16,
        description="rows and columns of a grid",
    )
    difficulty: Literal["hard", "easy"] = Field(
        default="hard",
        description="hard: sigma 0.6; easy: sigma 1.5, where far nodes count less",
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
        """Assign grids in their order."""
        size = min(1_000, UNIT_NODES // params.size**2)
        return units_of_rows(params.positions_to_build(params.graphs), size, "graphs")

    def records(self, prepared: Prepared, unit: Unit, params: LRIMParams) -> Iterator[GraphRecord]:
        """Generate each grid from the seed and its number."""
        table = couplings_by_displacement(params.size, SIGMA[params.difficulty])
        bonds = Bonds.at_temperature(table, TEMPERATURE[params.size, params.difficulty])
        edge_index = grid_edges(params.size).astype(self.schema(params).index_dtype)
        for row in unit.items["rows"]:
            x, y = make_grid(table, bonds, np.random.default_rng([params.seed, row]))
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
        """Note the numbers of the construction."""
        temperature = TEMPERATURE[params.size, params.difficulty]
        note = (
            f"Generated here from seed {params.seed}, not the published files: sigma"
            f" {SIGMA[params.difficulty]}, temperature {temperature}, {SWEEPS} sweeps a grid."
        )
        return CardAdditions(notes=[note])

    def folder_name_pieces(self, params: LRIMParams) -> list[str]:
        """Return the benchmark's name of the set."""
        return [f"{params.size}-{params.difficulty}"]


PIPELINE = LRIMGeneratedPipeline


def make_grid(table: F64, bonds: Bonds, rng: Rng) -> tuple[I8, F32]:
    """Return spins and energies of one grid, (L², 1) each, row after row."""
    spins = random_spins(len(table), rng)
    run_sampler(spins, bonds, SWEEPS, rng)
    energies = flip_energies(spins, table)
    return spins.reshape(-1, 1), energies.reshape(-1, 1).astype(np.float32)
