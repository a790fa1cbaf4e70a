"""Samples in the layout of the Open Graph Benchmark: generated, never the real data.

Molecules are trees of a few atoms, some with a ring; labels follow from the elements, with some
noise, so that they can be learned. In single graphs, nodes of a class have similar features and
most edges among each other.
"""

from __future__ import annotations

import itertools
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F32, I64, Array
from kmip_data.files.reading import csv_bytes
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.ogb.papers import FEATURES
from kmip_data.pipelines.datasets.ogb.smiles import LISTS, PUBLISHED, TABLE
from kmip_data.pipelines.datasets.ogb.tables import FILES, rule_of
from kmip_data.pipelines.shared.molecules import ATOM_SIZES, BOND_SIZES
from kmip_data.pipelines.shared.sample_files import (
    deal,
    gzipped,
    lines_bytes,
    part_sizes,
    write_archive,
)

DEFAULT_MOLECULES = 128
SIZES = (3, 40)  #: atoms
SHARES = {"train": 8, "val": 1, "test": 1}
ELEMENTS = (5, 6, 7, 8, 15, 16)  #: carbon and others, numbered from 0
UNKNOWN = 0.2  #: share of the labels, where there are several
DEFAULT_NODES = 2_000
EDGES = 6  #: of a node
ALIKE = 0.7  #: share of the edges and citations that lead to a node of the same class
#: Rule of the split of a graph -> shares of its parts, in percent.
NODE_SHARES = {
    "time": {"train": 54, "val": 18, "test": 28},
    "sales_ranking": {"train": 8, "val": 2, "test": 90},
}


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``limit`` molecules, or a graph of ``limit`` nodes, from 50."""
    rng = Generator(PCG64(seed))
    classes = manifest.expected.classes or 1
    if manifest.layout.columns:
        write_graph(folder, max(50, limit or DEFAULT_NODES), rng, manifest)
    elif manifest.file == "ogbn-papers100m":
        papers = Papers(max(200, limit or DEFAULT_NODES), classes, seed=seed)
        write_folder(papers, folder)
    elif manifest.file.startswith("ogbg-"):
        write_molecules(folder, limit or DEFAULT_MOLECULES, rng, labels=classes)
    else:
        write_smiles(folder, limit or DEFAULT_MOLECULES, rng)


def write_smiles(folder: Path, count: int, rng: Generator) -> None:
    """Write a table of SMILES, chains with a ring at times, whose gap falls with their length."""
    published = dealt(rng.permutation(count))
    hidden = np.concatenate([published["test-dev"], published["test-challenge"]]).tolist()
    rows = []
    for row in range(count):
        chain = "".join(rng.choice(["C", "N", "O"], int(rng.integers(2, 12)), p=[0.8, 0.1, 0.1]))
        ring = "C1CCCCC1" if rng.random() < 0.4 else ""
        gap = 8 - 0.3 * len(chain) - 0.1 * len(ring) + 0.1 * rng.normal()
        rows.append([row, chain + ring, "" if row in hidden else repr(float(gap))])
    (folder / "raw").mkdir(parents=True)
    table = csv_bytes(["idx", "smiles", "homolumogap"], rows)
    (folder / TABLE).write_bytes(gzipped(table))
    write_archive(folder / LISTS, pickle.dumps(published, protocol=2))


def dealt(rows: I64) -> dict[str, I64]:
    """Divide rows among the four published parts, the first two nonempty if possible."""
    eighth = len(rows) // 8
    sizes = [len(rows) - 3 * eighth, eighth, eighth, eighth]
    ends = np.cumsum(sizes)[:-1]
    return {name: np.sort(part) for name, part in zip(PUBLISHED, np.split(rows, ends), strict=True)}


def write_graph(
    folder: Path,
    count: int,
    rng: Generator,
    manifest: Manifest,
) -> None:
    """Write a graph of ``count`` nodes with real features; every class occurs."""
    columns = manifest.layout.columns
    (features,) = columns["node/x"].shape
    classes = columns["node/y"].classes or 2
    rule = rule_of(manifest)
    label = rng.permutation(np.arange(count) % classes)
    centres = rng.normal(size=(classes, features))
    x = np.round(centres[label] + 2 * rng.normal(size=(count, features)), 6)

    # Nodes of a class lie next to each other in this order.
    by_class = np.argsort(label, kind="stable")
    size = np.bincount(label)
    start = np.cumsum(size) - size
    source = np.repeat(np.arange(count), EDGES)
    target = rng.integers(0, count, len(source))
    alike = rng.random(len(source)) < ALIKE
    of_class = label[source[alike]]
    target[alike] = by_class[start[of_class] + rng.integers(0, size[of_class])]
    edges = np.stack([source, target], axis=1)[source != target]

    files: dict[str, Array] = {
        "edge": edges,
        "node-feat": x,
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
    write_split(folder, rule, deal(order, part_sizes(count, NODE_SHARES[rule])))


def write_molecules(folder: Path, count: int, rng: Generator, *, labels: int) -> None:
    """Write molecules with their labels."""
    nodes = rng.integers(SIZES[0], SIZES[1] + 1, count)
    bonds = [_bonds(int(size), rng) for size in nodes]
    elements = rng.choice(ELEMENTS, nodes.sum(), p=[0.7, 0.1, 0.1, 0.04, 0.03, 0.03])

    # Features are drawn from the lower half of their values, as most of those of molecules are.
    atoms = rng.integers(0, (np.array(ATOM_SIZES) + 1) // 2, (len(elements), len(ATOM_SIZES)))
    atoms[:, 0] = elements
    edges = np.concatenate(bonds)
    kinds = rng.integers(0, BOND_SIZES, (len(edges), len(BOND_SIZES)))

    molecule = np.repeat(np.arange(count), nodes)
    values = _labels(elements, molecule, nodes, labels, rng)
    files: dict[str, Array] = {
        "edge": edges,
        "edge-feat": kinds,
        "graph-label": values,
        "node-feat": atoms,
        "num-edge-list": np.array([len(pairs) for pairs in bonds]),
        "num-node-list": nodes,
    }
    write_tables(folder, files)
    write_split(folder, "scaffold", deal(rng.permutation(count), part_sizes(count, SHARES)))


def write_tables(folder: Path, files: dict[str, Array]) -> None:
    """Write tables, (rows,) or (rows, columns), into the folder ``raw``."""
    (folder / "raw").mkdir(parents=True)
    for name, values in files.items():
        write_table(folder / "raw" / f"{name}.csv.gz", values)


def write_split(folder: Path, rule: str, parts: dict[str, I64]) -> None:
    """Write the lists of a split."""
    (folder / "split" / rule).mkdir(parents=True)
    for part, rows in parts.items():
        write_table(folder / "split" / rule / f"{FILES[part]}.csv.gz", np.sort(rows))


def write_table(path: Path, values: Array) -> None:
    """Write numbers as OGB's files have them: no header, nothing for NaN."""
    import pandas as pd

    text = pd.DataFrame(values).to_csv(header=False, index=False)
    path.write_bytes(gzipped(text.encode("ascii")))


def _bonds(size: int, rng: Generator) -> I64:
    """Draw bonds of a tree, (B, 2), each atom bound to one of the previous three; occasionally a ring."""
    atom = np.arange(1, size)
    before = np.maximum(0, atom - rng.integers(1, 4, size - 1))
    pairs = np.stack([before, atom], axis=1)
    if size > 5 and rng.random() < 0.5:
        pairs = np.concatenate([pairs, [[0, size - 1]]])
    return pairs


def _labels(
    elements: I64,
    molecule: I64,
    nodes: I64,
    labels: int,
    rng: Generator,
) -> Array:
    """Label i is 1 if element i exceeds its mean, with some noise."""
    share = np.stack(
        [
            np.bincount(molecule, elements == element, minlength=len(nodes)) / nodes
            for element in ELEMENTS
        ],
        axis=1,
    )
    score = share - share.mean(axis=0)
    score = score[:, np.arange(labels) % len(ELEMENTS)]
    score += rng.normal(0, 0.02, score.shape)
    values: Array = (score > 0).astype(np.int64)
    if labels == 1:
        return values
    values = values.astype(np.float64)
    values[rng.random(values.shape) < UNKNOWN] = np.nan
    return values


# --- Papers ---------------------------------------------------------------------------------------

# A graph of papers of any size in the layout of ogbn-papers100M: generated block by block, never real data.
#
# In-degrees follow a power law; features and most citations follow a paper's class, known for few
# papers. Memory stays far below the size of the graph.

CITATIONS = 14.548  #: edges per node of the published graph
LABELLED = 0.3  #: share of labels in a small sample, 0.0139 of the published nodes
_POWER = 3  #: in-degree of rank r falls as r^(1/3 - 1): an exponent of 2.5
_BLOCK = 2**17  #: nodes, and eight times as many edges, that are drawn at a time
_NOISE = 2**14  #: rows of noise, of which each node has one
_MULTIPLIER = 2_654_435_761  #: spreads the ranks over the nodes


@dataclass(frozen=True)
class Papers:
    """Sizes of a generated graph, and its arrays, block by block."""

    nodes: int
    classes: int
    seed: int = 0
    labelled: float = LABELLED

    @property
    def edges(self) -> int:
        """Number of citations."""
        return int(CITATIONS * self.nodes)

    def years(self) -> Iterator[I64]:
        """Yield the year of each node."""
        for generator, count, _ in self._blocks(0, self.nodes, _BLOCK):
            yield generator.integers(1990, 2021, count)

    def labels(self) -> Iterator[F32]:
        """Yield the class of each node, NaN if unknown."""
        for generator, count, first in self._blocks(1, self.nodes, _BLOCK):
            label = (np.arange(first, first + count) % self.classes).astype(np.float32)
            label[generator.random(count) >= self.labelled] = np.nan
            yield label

    def features(self) -> Iterator[F32]:
        """Yield rows of features around the centre of each class."""
        generator = Generator(PCG64([self.seed, 2]))
        centres = generator.standard_normal((self.classes, FEATURES), np.float32)
        # Drawing each number anew would take as long as deflating it.
        noise = generator.standard_normal((_NOISE, FEATURES), np.float32)
        for generator, count, first in self._blocks(3, self.nodes, _BLOCK):
            x = noise[generator.integers(0, _NOISE, count)]
            x += centres[np.arange(first, first + count) % self.classes]
            yield x

    def ends(self, row: int) -> Iterator[I64]:
        """Yield the sources (``row`` 0) or targets (1) of the citations, by source."""
        for generator, count, first in self._blocks(4, self.edges, 8 * _BLOCK):
            # Sources rise through the blocks: papers in order, each with its citations.
            position = first + np.sort(generator.integers(0, count, count))
            source = position * self.nodes // self.edges
            if row == 0:
                yield source
                continue
            rank = (self.nodes * generator.random(count) ** _POWER).astype(np.int64)
            target = rank * _MULTIPLIER % self.nodes
            near = target - target % self.classes + source % self.classes
            alike = (generator.random(count) < ALIKE) & (near < self.nodes)
            yield np.where(alike, near, target)

    def lists(self) -> Mapping[str, I64]:
        """Return the labelled nodes up to 2017, of 2018, and later ones."""
        parts: dict[str, list[I64]] = {name: [] for name in FILES.values()}
        first = 0
        for year, label in zip(self.years(), self.labels(), strict=True):
            is_known = ~np.isnan(label)
            of_part = np.digitize(year, [2018, 2019])
            for part, name in enumerate(parts):
                parts[name].append(first + np.flatnonzero(is_known & (of_part == part)))
            first += len(year)
        return {name: np.concatenate(rows) for name, rows in parts.items()}

    def _blocks(self, stream: int, total: int, step: int) -> Iterator[tuple[Generator, int, int]]:
        """Yield random generator, number of rows and first row of each block of an array."""
        for first in range(0, total, step):
            generator = Generator(PCG64([self.seed, stream, first]))
            yield generator, min(step, total - first), first


#: Opens a file of an archive or folder for writing, by its path.
Opener = Callable[[str], IO[bytes]]


def write_folder(papers: Papers, folder: Path) -> None:
    """Write the raw files with uncompressed arrays, so that bytes do not depend on zlib."""

    def opened(name: str) -> IO[bytes]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")

    write_papers(papers, opened)


def write_papers(
    papers: Papers,
    opened: Opener,
    compression: int = zipfile.ZIP_STORED,
    of_features: int | None = None,
) -> None:
    """Write the raw files through ``opened``; ``compression`` is of the arrays, but for ``of_features``."""
    nodes = papers.nodes
    edges = papers.edges

    def number(value: int) -> tuple[tuple[int, ...], Iterator[Array]]:
        return (1,), iter([np.array([value])])

    arrays = {
        "edge_index": ((2, edges), itertools.chain(papers.ends(0), papers.ends(1))),
        "num_nodes_list": number(nodes),
        "num_edges_list": number(edges),
        "node_feat": ((nodes, FEATURES), papers.features()),
        "node_year": ((nodes, 1), papers.years()),
    }
    methods = dict.fromkeys(arrays, compression)
    if of_features is not None:
        methods["node_feat"] = of_features
    write_npz(opened, "raw/data.npz", arrays, methods)
    labels = {"node_label": ((nodes, 1), papers.labels())}
    write_npz(opened, "raw/node-label.npz", labels, {"node_label": compression})
    for name, rows in papers.lists().items():
        with opened(f"split/time/{name}.csv.gz") as file:
            file.write(gzipped(lines_bytes(map(str, rows.tolist()))))


def write_npz(
    opened: Opener,
    name: str,
    arrays: Mapping[str, tuple[tuple[int, ...], Iterator[Array]]],
    methods: Mapping[str, int],
) -> None:
    """Write an ``.npz`` file of arrays that come as shape and blocks of rows, as ``numpy.savez`` does."""
    with opened(name) as file, zipfile.ZipFile(file, "w") as archive:
        for key, (shape, blocks) in arrays.items():
            info = zipfile.ZipInfo(f"{key}.npy")
            info.compress_type = methods[key]
            with archive.open(info, "w", force_zip64=True) as member:
                for number, block in enumerate(blocks):
                    if not number:
                        header = np.lib.format.header_data_from_array_1_0(block)
                        header["shape"] = shape
                        np.lib.format.write_array_header_1_0(member, header)
                    member.write(np.ascontiguousarray(block).data)
