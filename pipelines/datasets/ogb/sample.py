"""Generated samples in the layout of the Open Graph Benchmark.

Molecules are small trees of atoms, some with a ring; their labels depend on the elements and some
noise, so they can be learned. In single graphs, nodes of a class have similar features, and most
edges are within a class.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import I64, Array
from kmip_data.files.small_files import csv_bytes
from kmip_data.graphs.molecule_fields import ATOM_SIZES, BOND_SIZES
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.long_range import tree_edges
from kmip_data.pipelines.datasets.ogb.csv_pipelines import LIST_NAMES, published_rule
from kmip_data.pipelines.datasets.ogb.pcqm4m import PUBLISHED_PARTS, SPLIT_FILE, TABLE_FILE
from kmip_data.pipelines.sample_drawings import (
    draw_classes,
    draw_edges,
    draw_features,
)
from kmip_data.pipelines.sample_writers import (
    cut_into_parts,
    gzip_bytes,
    part_sizes,
    write_torch_zip,
)

DEFAULT_NUM_MOLECULES = 128
ATOM_COUNTS = (3, 40)  #: minimum and maximum atoms of a molecule
PART_WEIGHTS = {"train": 8, "val": 1, "test": 1}
ELEMENTS = (5, 6, 7, 8, 15, 16)  #: carbon and others, numbered from 0
UNKNOWN_FRACTION = 0.2  #: unknown labels, for molecules with more than one
DEFAULT_NUM_NODES = 2_000
#: Split rule of a graph -> percentage of each part.
NODE_PART_WEIGHTS = {
    "time": {"train": 54, "val": 18, "test": 28},
    "sales_ranking": {"train": 8, "val": 2, "test": 90},
}


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``limit`` molecules, or a graph of ``limit`` nodes, at least 50."""
    rng = Generator(PCG64(seed))
    classes = manifest.expected.classes or 1
    if manifest.layout.columns:
        write_graph(folder, max(50, limit or DEFAULT_NUM_NODES), rng, manifest)
    elif manifest.registered_name.startswith("ogbg-"):
        write_molecules(folder, limit or DEFAULT_NUM_MOLECULES, rng, labels=classes)
    else:
        write_smiles(folder, limit or DEFAULT_NUM_MOLECULES, rng)


def write_smiles(folder: Path, count: int, rng: Generator) -> None:
    """Write a table of SMILES: chains, some with a ring, whose gap falls with their length."""
    published = divide_rows(rng.permutation(count))
    hidden = np.concatenate([published["test-dev"], published["test-challenge"]]).tolist()
    rows = []
    for row in range(count):
        chain = "".join(rng.choice(["C", "N", "O"], int(rng.integers(2, 12)), p=[0.8, 0.1, 0.1]))
        ring = "C1CCCCC1" if rng.random() < 0.4 else ""
        gap = 8 - 0.3 * len(chain) - 0.1 * len(ring) + 0.1 * rng.normal()
        rows.append([row, chain + ring, "" if row in hidden else repr(float(gap))])
    (folder / "raw").mkdir(parents=True)
    table = csv_bytes(["idx", "smiles", "homolumogap"], rows)
    (folder / TABLE_FILE).write_bytes(gzip_bytes(table))
    write_torch_zip(folder / SPLIT_FILE, pickle.dumps(published, protocol=2))


def divide_rows(rows: I64) -> dict[str, I64]:
    """Divide rows (n,) among the four published parts, keeping train the largest."""
    eighth = len(rows) // 8
    sizes = dict.fromkeys(PUBLISHED_PARTS, eighth)
    sizes["train"] = len(rows) - 3 * eighth
    return {name: np.sort(part) for name, part in cut_into_parts(rows, sizes).items()}


def write_graph(
    folder: Path,
    count: int,
    rng: Generator,
    manifest: Manifest,
) -> None:
    """Write a graph of ``count`` nodes with real-valued features, in which every class occurs."""
    columns = manifest.layout.columns
    (features,) = columns["node/x"].shape
    classes = columns["node/y"].classes or 2
    rule = published_rule(manifest)
    label = draw_classes(count, classes, rng)
    edges = draw_edges(label, rng)
    files: dict[str, Array] = {
        "edge": edges,
        "node-feat": draw_features(label, features, rng),
        "node-label": label,
        "num-edge-list": np.array([len(edges)]),
        "num-node-list": np.array([count]),
    }
    order = rng.permutation(count)
    if "node/year" in columns:
        year = rng.integers(1990, 2021, count)
        order = np.argsort(year, kind="stable")
        files["node_year"] = year
    write_tables(folder, files)
    write_split(folder, rule, cut_into_parts(order, part_sizes(count, NODE_PART_WEIGHTS[rule])))


def write_molecules(folder: Path, count: int, rng: Generator, *, labels: int) -> None:
    """Write molecules with their labels."""
    nodes = rng.integers(ATOM_COUNTS[0], ATOM_COUNTS[1] + 1, count)
    bonds = [_draw_bonds(int(size), rng) for size in nodes]
    elements = rng.choice(ELEMENTS, nodes.sum(), p=[0.7, 0.1, 0.1, 0.04, 0.03, 0.03])

    # Draw features from the lower half of their range, like most real ones.
    atoms = rng.integers(0, (np.array(ATOM_SIZES) + 1) // 2, (len(elements), len(ATOM_SIZES)))
    atoms[:, 0] = elements
    edges = np.concatenate(bonds)
    bond_features = rng.integers(0, BOND_SIZES, (len(edges), len(BOND_SIZES)))

    molecule = np.repeat(np.arange(count), nodes)
    values = _draw_labels(elements, molecule, nodes, labels, rng)
    files: dict[str, Array] = {
        "edge": edges,
        "edge-feat": bond_features,
        "graph-label": values,
        "node-feat": atoms,
        "num-edge-list": np.array([len(pairs) for pairs in bonds]),
        "num-node-list": nodes,
    }
    write_tables(folder, files)
    write_split(
        folder, "scaffold", cut_into_parts(rng.permutation(count), part_sizes(count, PART_WEIGHTS))
    )


def write_tables(folder: Path, files: dict[str, Array]) -> None:
    """Write tables, (rows,) or (rows, columns), to the folder ``raw``."""
    (folder / "raw").mkdir(parents=True)
    for name, values in files.items():
        write_table(folder / "raw" / f"{name}.csv.gz", values)


def write_split(folder: Path, rule: str, parts: dict[str, I64]) -> None:
    """Write the lists (n,) of a split."""
    (folder / "split" / rule).mkdir(parents=True)
    for part, rows in parts.items():
        write_table(folder / "split" / rule / f"{LIST_NAMES[part]}.csv.gz", np.sort(rows))


def write_table(path: Path, values: Array) -> None:
    """Write numbers (n,) or (n, C) in OGB's format: no header, empty fields for NaN."""
    import pandas as pd

    text = pd.DataFrame(values).to_csv(header=False, index=False)
    path.write_bytes(gzip_bytes(text.encode("ascii")))


def _draw_bonds(size: int, rng: Generator) -> I64:
    """Draw the bonds (B, 2) of a tree of atoms, or of a tree and a ring."""
    pairs = tree_edges(size, rng).T
    if size > 5 and rng.random() < 0.5:
        pairs = np.concatenate([pairs, [[0, size - 1]]])
    return pairs


def _draw_labels(
    elements: I64,
    molecule: I64,
    nodes: I64,
    labels: int,
    rng: Generator,
) -> Array:
    """Set label i to 1 if the fraction of element i exceeds its mean, with some noise."""
    fraction = np.stack(
        [
            np.bincount(molecule, elements == element, minlength=len(nodes)) / nodes
            for element in ELEMENTS
        ],
        axis=1,
    )
    score = fraction - fraction.mean(axis=0)
    score = score[:, np.arange(labels) % len(ELEMENTS)]
    score += rng.normal(0, 0.02, score.shape)
    values: Array = (score > 0).astype(np.int64)
    if labels == 1:
        return values
    values = values.astype(np.float64)
    values[rng.random(values.shape) < UNKNOWN_FRACTION] = np.nan
    return values
