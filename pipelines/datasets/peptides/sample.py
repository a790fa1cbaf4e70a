"""Sample peptides in the layout of peptides-func and peptides-struct: generated, never the real data.

Chains of random amino acids are written as SMILES the way upstream writes them, with a D-residue, a
charged side chain or an amide end here and there. Labels and targets follow from the residues, with
some noise, so that they can be learned.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F64, I64
from kmip_data.files.reading import csv_bytes
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.peptides import PIPELINE
from kmip_data.pipelines.sample_writers import cut_into_parts, gzip_bytes, part_sizes
from kmip_data.strict_model import read_shipped

DEFAULT_PEPTIDES = 64
NUM_LABELS = 10  #: labels of peptides-func
LENGTHS = (4, 40)  #: residues; about as many atoms as the published peptides have

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
    """Write the CSV and the split pickle of one of the two sets."""
    pipeline = PIPELINE(manifest)
    columns = pipeline.columns
    count = limit or DEFAULT_PEPTIDES
    rng = Generator(PCG64(seed))
    chains = [_draw_chain(rng) for _ in range(count)]
    composition = np.zeros((count, len(SIDE_CHAINS)))
    for row, chain in enumerate(chains):
        composition[row] = [chain.upper().count(code) for code in SIDE_CHAINS]

    header = ["", "smiles", "peptide_seq", *columns]
    more = []
    if len(columns) == 1:
        header.append("identifier")
        for i, labels in enumerate(_draw_labels(composition, NUM_LABELS, rng).tolist()):
            more.append([str(labels), 3 * i + 4])
    else:
        # All digits, as upstream's tables have them.
        targets = _draw_targets(composition, len(columns), rng).tolist()
        more += [list(map(repr, row)) for row in targets]
    rows = []
    for i, chain in enumerate(chains):
        rows.append([i, _write_smiles(chain, rng), chain, *more[i]])
    (folder / pipeline.table).write_bytes(gzip_bytes(csv_bytes(header, rows)))

    dealt = cut_into_parts(
        rng.permutation(count), part_sizes(count, manifest.expected.splits["upstream"])
    )
    listed = {part: np.sort(rows) for part, rows in dealt.items()}
    (folder / pipeline.lists["upstream"]).write_bytes(pickle.dumps(listed, protocol=4))


def _write_smiles(chain: str, rng: Generator) -> str:
    """Write a chain of one-letter codes (small ones for D-residues) as SMILES, from its amine end."""
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
    # Few kinds of residues per peptide: compositions differ, as they do between functions.
    weights = rng.dirichlet(np.full(len(codes), 0.35))
    length = int(rng.integers(LENGTHS[0], LENGTHS[1] + 1))
    chain = rng.choice(codes, size=length, p=weights).tolist()
    small = rng.random(length) < 0.08
    for i in np.flatnonzero(small):
        chain[i] = chain[i].lower()
    return "".join(chain)


def _draw_labels(composition: F64, count: int, rng: Generator) -> I64:
    """At least one label per peptide; label i goes with what residues i and 19 − i outweigh."""
    total = composition.sum(axis=1, keepdims=True)
    share = composition / total
    opposite = share[:, ::-1]
    noise = rng.normal(0, 0.02, (len(share), count))
    score = share[:, :count] + opposite[:, :count] + noise
    labels: I64 = (score > 0.16).astype(np.int64)
    labels[np.arange(len(labels)), score.argmax(axis=1)] = 1
    return labels


def _draw_targets(composition: F64, count: int, rng: Generator) -> F64:
    """Sums over the residues, standardised over all rows as upstream's are.

    Residue by residue, in one order: a matrix product adds in the order of the CPU's own kernel.
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
