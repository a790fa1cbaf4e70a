"""Generated peptides in the layout of peptides-func and peptides-struct.

Chains of random amino acids are written as SMILES in upstream's style. Labels and targets depend on
the residues and some noise, so that they can be learned.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F64, I64
from kmip_data.files.small_files import csv_bytes
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.peptides import PIPELINE
from kmip_data.pipelines.sample_writers import cut_into_parts, gzip_bytes, part_sizes
from kmip_data.strict_model import read_shipped

DEFAULT_PEPTIDES = 64
NUM_LABELS = 10  #: labels of peptides-func
RESIDUE_COUNTS = (4, 40)  #: minimum and maximum residues, for atom counts like the published ones

#: SMILES of each amino acid by its one-letter code.
RESIDUES: dict[str, str] = read_shipped("tables", "residues")


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write the CSV and the split pickle of one of the two datasets."""
    pipeline = PIPELINE(manifest)
    target_fields = pipeline.target_fields
    count = limit or DEFAULT_PEPTIDES
    rng = Generator(PCG64(seed))
    chains = [_draw_chain(rng) for _ in range(count)]
    composition = np.zeros((count, len(RESIDUES)))
    for row, chain in enumerate(chains):
        composition[row] = [chain.count(code) / len(chain) for code in RESIDUES]

    header = ["", "smiles", "peptide_seq", *target_fields]
    target_cells = []
    if len(target_fields) == 1:
        header.append("identifier")
        for i, labels in enumerate(_draw_labels(composition, NUM_LABELS, rng).tolist()):
            target_cells.append([str(labels), 3 * i + 4])
    else:
        # Write all digits, like upstream.
        targets = _draw_targets(composition, len(target_fields), rng).tolist()
        target_cells += [list(map(repr, row)) for row in targets]
    rows = []
    for i, chain in enumerate(chains):
        smiles = "".join(RESIDUES[code] for code in chain) + "O"
        rows.append([i, smiles, chain, *target_cells[i]])
    (folder / pipeline.table_file).write_bytes(gzip_bytes(csv_bytes(header, rows)))

    parts = cut_into_parts(
        rng.permutation(count), part_sizes(count, manifest.expected.splits["upstream"])
    )
    lists = {part: np.sort(rows) for part, rows in parts.items()}
    (folder / pipeline.split_files["upstream"]).write_bytes(pickle.dumps(lists, protocol=4))


def _draw_chain(rng: Generator) -> str:
    codes = list(RESIDUES)
    # Favour few residue types per peptide to vary the compositions.
    weights = rng.dirichlet(np.full(len(codes), 0.35))
    length = int(rng.integers(*RESIDUE_COUNTS, endpoint=True))
    return "".join(rng.choice(codes, size=length, p=weights))


def _draw_labels(composition: F64, count: int, rng: Generator) -> I64:
    """Set label i if residues i and 19 − i are frequent; every peptide has at least one label."""
    noise = rng.normal(0, 0.02, (len(composition), count))
    score = (composition + composition[:, ::-1])[:, :count] + noise
    labels: I64 = (score > 0.16).astype(np.int64)
    labels[np.arange(len(labels)), score.argmax(axis=1)] = 1
    return labels


def _draw_targets(composition: F64, count: int, rng: Generator) -> F64:
    """Return the fractions of ``count`` residues with some noise, standardised like upstream's."""
    raw = composition[:, :count] + rng.normal(0, 0.02, (len(composition), count))
    if len(raw) < 2:
        return raw * 0
    scaled: F64 = (raw - raw.mean(axis=0)) / raw.std(axis=0, ddof=1)
    return scaled
