"""``papers100M-bin.zip`` of any size: ``python -m support.builds.papers PATH NODES [--stored]``.

Generated in the upstream layout, an archive in an archive, both written as streams: it proves memory
and speed, not accuracy.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F32, I64, Array
from kmip_data.pipelines.datasets.ogb.csv_pipelines import LIST_NAMES
from kmip_data.pipelines.datasets.ogb.papers import NUM_FEATURES
from kmip_data.pipelines.datasets.ogb.sample import (
    CITATIONS_PER_PAPER,
    LABELLED_FRACTION,
    NUM_NOISE_ROWS,
    RANK_MULTIPLIER,
    RANK_POWER,
)
from kmip_data.pipelines.sample_drawings import SAME_CLASS_FRACTION
from kmip_data.pipelines.sample_writers import gzip_bytes, lines_bytes

PUBLISHED = 111_059_956  #: nodes
CLASSES = 172
ROOT = "papers100M-bin"
_BLOCK = 2**17  #: nodes, and eight times as many edges, that are drawn at a time


@dataclass(frozen=True)
class Papers:
    """Sizes of a generated graph, and its arrays, block by block: as in the sample, of any size."""

    nodes: int
    classes: int
    seed: int = 0
    labelled: float = LABELLED_FRACTION

    @property
    def edges(self) -> int:
        """Number of citations."""
        return int(CITATIONS_PER_PAPER * self.nodes)

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
        centres = generator.standard_normal((self.classes, NUM_FEATURES), np.float32)
        # Drawing each number anew would take as long as deflating it.
        noise = generator.standard_normal((NUM_NOISE_ROWS, NUM_FEATURES), np.float32)
        for generator, count, first in self._blocks(3, self.nodes, _BLOCK):
            x = noise[generator.integers(0, NUM_NOISE_ROWS, count)]
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
            rank = (self.nodes * generator.random(count) ** RANK_POWER).astype(np.int64)
            target = rank * RANK_MULTIPLIER % self.nodes
            near = target - target % self.classes + source % self.classes
            alike = (generator.random(count) < SAME_CLASS_FRACTION) & (near < self.nodes)
            yield np.where(alike, near, target)

    def lists(self) -> Mapping[str, I64]:
        """Return the labelled nodes up to 2017, of 2018, and later ones."""
        parts: dict[str, list[I64]] = {name: [] for name in LIST_NAMES.values()}
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


def write_papers(
    papers: Papers,
    opened: Opener,
    compression: int,
) -> None:
    """Write the raw files through ``opened``; ``compression`` is of the arrays."""
    nodes = papers.nodes
    edges = papers.edges

    def number(value: int) -> tuple[tuple[int, ...], Iterator[Array]]:
        return (1,), iter([np.array([value])])

    arrays = {
        "edge_index": ((2, edges), itertools.chain(papers.ends(0), papers.ends(1))),
        "num_nodes_list": number(nodes),
        "num_edges_list": number(edges),
        "node_feat": ((nodes, NUM_FEATURES), papers.features()),
        "node_year": ((nodes, 1), papers.years()),
    }
    write_npz(opened, "raw/data.npz", arrays, compression)
    labels = {"node_label": ((nodes, 1), papers.labels())}
    write_npz(opened, "raw/node-label.npz", labels, compression)
    for name, rows in papers.lists().items():
        with opened(f"split/time/{name}.csv.gz") as file:
            file.write(gzip_bytes(lines_bytes(map(str, rows.tolist()))))


def write_npz(
    opened: Opener,
    name: str,
    arrays: Mapping[str, tuple[tuple[int, ...], Iterator[Array]]],
    compression: int,
) -> None:
    """Write an ``.npz`` file of arrays that come as shape and blocks of rows, as ``numpy.savez`` does."""
    with opened(name) as file, zipfile.ZipFile(file, "w") as archive:
        for key, (shape, blocks) in arrays.items():
            info = zipfile.ZipInfo(f"{key}.npy")
            info.compress_type = compression
            with archive.open(info, "w", force_zip64=True) as member:
                for number, block in enumerate(blocks):
                    if not number:
                        header = np.lib.format.header_data_from_array_1_0(block)
                        header["shape"] = shape
                        np.lib.format.write_array_header_1_0(member, header)
                    member.write(np.ascontiguousarray(block).data)


def write_zip(
    path: Path,
    nodes: int,
    *,
    labelled: float = 0.0139,
    inside: int = zipfile.ZIP_DEFLATED,
    outside: int = zipfile.ZIP_STORED,
) -> Papers:
    """Write the archive and return what is in it; OGB's own arrays are deflated."""
    papers = Papers(nodes, CLASSES, labelled=labelled)
    with zipfile.ZipFile(path, "w", outside, compresslevel=1) as archive:
        write_papers(
            papers,
            lambda name: archive.open(f"{ROOT}/{name}", "w", force_zip64=True),
            inside,
        )
    return papers


def deflate_quickly() -> None:
    """Deflate by run lengths and Huffman codes alone: random floats take a third of the time."""
    vars(zipfile)["_get_compressor"] = lambda method, _: (
        zlib.compressobj(1, zlib.DEFLATED, -15, 9, zlib.Z_RLE) if method else None
    )


if __name__ == "__main__":
    deflate_quickly()
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("nodes", type=int)
    parser.add_argument("--stored", action="store_true", help="arrays are not deflated")
    arguments = parser.parse_args()
    began = time.perf_counter()
    inside = zipfile.ZIP_STORED if arguments.stored else zipfile.ZIP_DEFLATED
    written = write_zip(arguments.path, arguments.nodes, inside=inside)
    size = arguments.path.stat().st_size / 1e9
    seconds = time.perf_counter() - began
    sys.stdout.write(
        f"{written.nodes:,} nodes, {written.edges:,} edges: {size:.2f} GB, {seconds / size:.1f} s a GB\n"
    )
