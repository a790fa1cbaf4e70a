"""A graph of papers of any size in the layout of ogbn-papers100M: generated block by block, never real data.

In-degrees follow a power law; features and most citations follow a paper's class, known for few
papers. Memory stays far below the size of the graph.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F32, I64, Array
from kmip_data.pipelines.datasets.ogb.papers import FEATURES
from kmip_data.pipelines.datasets.ogb.tables import FILES
from kmip_data.pipelines.shared.sample_files import gzipped, lines_bytes

CITATIONS = 14.548  #: edges per node of the published graph
LABELLED = 0.3  #: share of labels in a small sample, 0.0139 of the published nodes
ALIKE = 0.7  #: share of citations inside a class
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

    def both_ends() -> Iterator[Array]:
        yield from papers.ends(0)
        yield from papers.ends(1)

    arrays = {
        "edge_index": ((2, edges), both_ends()),
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
                begun = False
                for block in blocks:
                    if not begun:
                        header = np.lib.format.header_data_from_array_1_0(block)
                        header["shape"] = shape
                        np.lib.format.write_array_header_1_0(member, header)
                        begun = True
                    member.write(np.ascontiguousarray(block).data)
