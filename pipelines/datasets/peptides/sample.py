"""Generated peptides in the layout of peptides-func and peptides-struct.

Chains of random amino acids are written as SMILES in upstream's style, some with D-residues, charged
side chains or amide ends. Labels and targets depend on the residues and some noise, so that they
can be learned.
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

_RESIDUES = read_shipped("tables", "residues")
#: Side chains by one-letter code.
SIDE_CHAINS: dict[str, str] = _RESIDUES["side_chains"]
CHARGED: dict[str, str] = _RESIDUES["charged"]


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
    composition = np.zeros((count, len(SIDE_CHAINS)))
    for row, chain in enumerate(chains):
        composition[row] = [chain.upper().count(code) for code in SIDE_CHAINS]

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
        rows.append([i, _write_smiles(chain, rng), chain, *target_cells[i]])
    (folder / pipeline.table_file).write_bytes(gzip_bytes(csv_bytes(header, rows)))

    parts = cut_into_parts(
        rng.permutation(count), part_sizes(count, manifest.expected.splits["upstream"])
    )
    lists = {part: np.sort(rows) for part, rows in parts.items()}
    (folder / pipeline.split_files["upstream"]).write_bytes(pickle.dumps(lists, protocol=4))


def _write_smiles(chain: str, rng: Generator) -> str:
    """Convert one-letter codes, lower-case for D-residues, to SMILES from the amine end."""
    parts = []
    for code in chain:
        residue = code.upper()
        side = SIDE_CHAINS[residue]
        if residue in CHARGED and rng.random() < 0.15:
            side = CHARGED[residue]
        if residue == "G":
            parts.append("NCC(=O)")
        elif residue == "P":
            parts.append("N1CCC[C@H]1C(=O)")
        else:
            centre = "C@H" if code.islower() else "C@@H"
            parts.append(f"N[{centre}]({side})C(=O)")
    parts.append("N" if rng.random() < 0.3 else "O")
    return "".join(parts)


def _draw_chain(rng: Generator) -> str:
    codes = list(SIDE_CHAINS)
    # Favour few residue types per peptide to vary the compositions.
    weights = rng.dirichlet(np.full(len(codes), 0.35))
    length = int(rng.integers(RESIDUE_COUNTS[0], RESIDUE_COUNTS[1] + 1))
    chain = rng.choice(codes, size=length, p=weights).tolist()
    is_d_residue = rng.random(length) < 0.08
    for i in np.flatnonzero(is_d_residue):
        chain[i] = chain[i].lower()
    return "".join(chain)


def _draw_labels(composition: F64, count: int, rng: Generator) -> I64:
    """Set label i if residues i and 19 − i are frequent; every peptide has at least one label."""
    total = composition.sum(axis=1, keepdims=True)
    fraction = composition / total
    opposite = fraction[:, ::-1]
    noise = rng.normal(0, 0.02, (len(fraction), count))
    score = fraction[:, :count] + opposite[:, :count] + noise
    labels: I64 = (score > 0.16).astype(np.int64)
    labels[np.arange(len(labels)), score.argmax(axis=1)] = 1
    return labels


def _draw_targets(composition: F64, count: int, rng: Generator) -> F64:
    """Return weighted sums over the residues, standardised over all rows like upstream's.

    The sums are added residue by residue, because the order in a matrix product depends on the CPU.
    """
    weights = rng.normal(1.0, 0.4, (composition.shape[1], count))
    raw = np.zeros((len(composition), count))
    for residues, weight in zip(composition.T, weights, strict=True):
        raw += residues[:, None] * weight
    raw += rng.normal(0, 0.1, raw.shape)
    if len(raw) < 2:
        return raw * 0
    scaled: F64 = (raw - raw.mean(axis=0)) / raw.std(axis=0, ddof=1)
    return scaled
