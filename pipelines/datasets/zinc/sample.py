"""Sample molecules in the raw layout of ZINC: generated, never the real data.

A molecule is a chain with branches and at most two rings; its target is a sum over atoms and bonds,
less for each ring.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.zinc import ATOMS, BONDS, TARGET
from kmip_data.pipelines.sample_writers import Tensor, part_sizes, write_pickle

DEFAULT_MOLECULES = 240
PUBLISHED = {"train": 10, "val": 1, "test": 1}
UNLISTED = 3  #: molecules of each pickle that its index does not list
_SHARES = np.array([0.7, 0.1, 0.1, 0.02, 0.04, 0.02, 0.01, 0.01])  #: shares of the types of atoms
_VALUES = np.array([0.15, -0.2, -0.25, 0.1, -0.3, 0.2, 0.25, -0.35])


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``limit`` molecules; for the benchmark's subset more, and index files that list as many."""
    rng = Generator(PCG64(seed))
    subset = manifest.registered_name == "zinc"
    for part, size in part_sizes(limit or DEFAULT_MOLECULES, PUBLISHED).items():
        total = size + UNLISTED * subset
        molecules = [_draw_molecule(rng) for _ in range(total)]
        write_pickle(folder / f"{part}.pickle", molecules)
        if subset:
            listed = ",".join(map(str, rng.permutation(total)[:size]))
            (folder / f"{part}.index").write_bytes(f"{listed}\r\n".encode())


def _draw_molecule(rng: Generator) -> dict[str, Any]:
    count = int(rng.integers(9, 31))
    atoms = rng.choice(len(_SHARES), count, p=_SHARES)
    bonds = np.zeros((count, count), np.int8)
    # Each atom hangs on one of the three before it.
    for atom in range(1, count):
        bonds[atom, rng.integers(max(atom - 3, 0), atom)] = rng.choice(
            [1, 2, 3], p=[0.75, 0.2, 0.05]
        )
    rings = int(rng.integers(3))
    for ring in range(rings):
        bonds[6 + ring, ring] = 1
    bonds = np.maximum(bonds, bonds.T)

    double = (bonds == 2).sum() / 2
    target = _VALUES[atoms].sum() - 0.1 * double - 0.5 * rings
    return {
        "num_atom": count,
        ATOMS: Tensor(atoms.astype(np.int8)),
        BONDS: Tensor(bonds),
        TARGET: Tensor(np.array([target], np.float32)),
    }
