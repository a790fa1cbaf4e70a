"""Generated molecules in the raw layout of ZINC.

A molecule is a branched chain with at most two rings; its target is a sum over atoms, bonds and
rings.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.long_range import tree_edges
from kmip_data.pipelines.datasets.zinc import ATOM_TYPE, BOND_TYPE, TARGET
from kmip_data.pipelines.sample_writers import PickledTensor, part_sizes, write_pickle

DEFAULT_MOLECULES = 240
PART_WEIGHTS = {"train": 10, "val": 1, "test": 1}
NUM_UNLISTED = 3  #: molecules per pickle missing from its index
_ATOM_FRACTIONS = np.array([0.7, 0.1, 0.1, 0.02, 0.04, 0.02, 0.01, 0.01])  #: by atom type
_ATOM_CONTRIBUTIONS = np.array([0.15, -0.2, -0.25, 0.1, -0.3, 0.2, 0.25, -0.35])


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``limit`` molecules; for the benchmark also unlisted ones, and index files."""
    rng = Generator(PCG64(seed))
    has_index = manifest.registered_name == "zinc"
    for part, size in part_sizes(limit or DEFAULT_MOLECULES, PART_WEIGHTS).items():
        total = size + NUM_UNLISTED * has_index
        molecules = [_draw_molecule(rng) for _ in range(total)]
        write_pickle(folder / f"{part}.pickle", molecules)
        if has_index:
            positions = ",".join(map(str, rng.permutation(total)[:size]))
            (folder / f"{part}.index").write_bytes(f"{positions}\r\n".encode())


def _draw_molecule(rng: Generator) -> dict[str, Any]:
    count = int(rng.integers(9, 31))
    atoms = rng.choice(len(_ATOM_FRACTIONS), count, p=_ATOM_FRACTIONS)
    bonds = np.zeros((count, count), np.int8)
    earlier, later = tree_edges(count, rng)
    bonds[later, earlier] = rng.choice([1, 2, 3], count - 1, p=[0.75, 0.2, 0.05])
    rings = int(rng.integers(3))
    for ring in range(rings):
        bonds[6 + ring, ring] = 1
    bonds = np.maximum(bonds, bonds.T)

    double_bonds = (bonds == 2).sum() / 2
    target = _ATOM_CONTRIBUTIONS[atoms].sum() - 0.1 * double_bonds - 0.5 * rings
    return {
        "num_atom": count,
        ATOM_TYPE: PickledTensor(atoms.astype(np.int8)),
        BOND_TYPE: PickledTensor(bonds),
        TARGET: PickledTensor(np.array([target], np.float32)),
    }
