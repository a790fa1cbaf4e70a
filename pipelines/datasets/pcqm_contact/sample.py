"""Generated molecules in the layout of PCQM-Contact.

A molecule is a chain with all hydrogens written out. Contacts between atoms at least five bonds
apart are random, more often between hydrogens.
"""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.pipelines.datasets.pcqm_contact import ROW_STEP, SPLIT_FILES, TABLE_FILE
from kmip_data.pipelines.sample_writers import (
    cut_into_parts,
    gzip_bytes,
    lines_bytes,
    write_torch_zip,
)

DEFAULT_MOLECULES = 96
VALENCE = {"C": 4, "N": 3, "O": 2}


def write_sample(
    folder: Path,
    _: object,
    limit: int | None,
    seed: int,
) -> None:
    """Write the table, of which every sixth row is used, and both split files."""
    count = limit or DEFAULT_MOLECULES
    rng = Generator(PCG64(seed))
    lines = ["\tcxsmiles"]
    sizes: list[int] = []
    while len(sizes) < count:
        text, atoms, contacts = _draw_molecule(rng)
        lines.append(f"{len(lines) - 1}\t{text}")
        # Only one row in six is used, and only if it has contacts.
        for _ in range(ROW_STEP - 1):
            lines.append(f"{len(lines) - 1}\t[H][H]")
        if contacts:
            sizes.append(atoms)
    (folder / TABLE_FILE).write_bytes(gzip_bytes(lines_bytes(lines)))

    by_size = np.argsort(sizes, kind="stable")
    held_out = max(1, count // 20) if count > 2 else 0
    parts = {"train": count - 2 * held_out, "val": held_out, "test": held_out}
    by_size[parts["train"] :] = rng.permutation(by_size[parts["train"] :])
    for rule, order in (("shuffle", rng.permutation(count)), ("num-atoms", by_size)):
        lists = {part: rows.astype(np.int64) for part, rows in cut_into_parts(order, parts).items()}
        write_torch_zip(folder / SPLIT_FILES[rule], pickle.dumps(lists, protocol=2))


def _draw_molecule(rng: Generator) -> tuple[str, int, int]:
    """Draw a molecule: extended SMILES, number of atoms, number of contacts."""
    elements = [*rng.choice(["C", "C", "C", "N", "O"], size=int(rng.integers(5, 13)))]
    elements[0] = elements[-1] = "C"
    depth = []  # position of each atom in the chain
    is_hydrogen = []
    words = []
    for position, element in enumerate(elements):
        neighbours = 1 if position in {0, len(elements) - 1} else 2
        open_ends = VALENCE[str(element)] - neighbours
        words.append(f"[{element}]" + "([H])" * open_ends)
        depth += [position] * (1 + open_ends)
        is_hydrogen += [False] + [True] * open_ends

    contacts: dict[int, list[str]] = {}
    number = 0
    for i, j in itertools.combinations(range(len(depth)), 2):
        if depth[j] - depth[i] < 5:
            continue
        probability = 0.06 if is_hydrogen[i] and is_hydrogen[j] else 0.01
        if rng.random() < probability:
            contacts.setdefault(i, []).append(str(number))
            contacts.setdefault(j, []).append(str(number))
            number += 1

    # Escape semicolons like RDKit.
    properties = []
    for atom, numbers in sorted(contacts.items()):
        properties.append(f"{atom}.contact.{'&#59;'.join(numbers)}")
    extension = ""
    if properties:
        extension = f" |atomProp:{':'.join(properties)}|"
    return "".join(words) + extension, len(depth), number
