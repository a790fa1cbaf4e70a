"""Generated graphs in the layouts of benchmarking-gnns.

A grey picture is a handwritten digit, divided into superpixels. In a coloured one, the cells of a
jittered grid stand for superpixels, and the class determines their colour. Like upstream's
superpixels, each has eight edges to those with the nearest centres.

Stochastic block graphs have more edges within blocks than between them. In ``pattern`` the task is
to find one block; in ``cluster`` one node of each block is labelled.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F32, F64, Array
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.benchmark_gnns.digits import (
    divide_into_superpixels,
    draw_digit,
)
from kmip_data.pipelines.sample_drawings import draw_superpixels
from kmip_data.pipelines.sample_writers import part_sizes, write_torch_file

DEFAULT_GRAPHS = 120
PICTURE_CLASSES = 10
DEGREE = 8


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write the file with train, val and test in the published proportions."""
    name = manifest.registered_name
    count = limit or DEFAULT_GRAPHS
    rng = Generator(PCG64(seed))
    if "node/y" in manifest.layout.columns:
        graphs = (_draw_block_graph(name == "pattern", rng) for _ in range(count))
    else:
        # Cycle through the classes, so that every part has several.
        graphs = (_draw_picture(i % PICTURE_CLASSES, name == "mnist", rng) for i in range(count))
    sizes = part_sizes(count, manifest.expected.splits["upstream"])
    parts = [list(itertools.islice(graphs, size)) for size in sizes.values()]
    write_torch_file(folder / manifest.content.anchor, parts)


def _draw_block_graph(is_pattern: bool, rng: Generator) -> dict[str, Array]:
    """Draw a graph of ``pattern`` (three random signals) or ``cluster`` (one labelled node per class)."""
    sizes = rng.integers(5, 16, 4 if is_pattern else 6)
    block = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    same_block = block[:, None] == block
    has_edge = np.triu(rng.random(same_block.shape) < np.where(same_block, 0.55, 0.2), 1)
    edges = np.stack((has_edge | has_edge.T).nonzero())
    if is_pattern:
        signal = rng.integers(0, 3, len(block))
        label = block == 0
        width = 3
    else:
        signal = np.zeros(len(block), np.int64)
        _, labelled = np.unique(block, return_index=True)
        signal[labelled] = block[labelled] + 1
        label = block
        width = 7
    return {
        "x": np.eye(width, dtype=np.float32)[signal],
        "edge_index": edges,
        "y": label.astype(np.int64),
    }


def _draw_picture(label: int, is_grey: bool, rng: Generator) -> dict[str, Array]:
    """Draw a digit in up to 8 × 9 superpixels, or a coloured picture in 9 to 12 rows and columns.

    The published pictures have at most 75 grey or 150 coloured superpixels.
    """
    if is_grey:
        grid = (8, int(rng.integers(8, 10)))
        pos, grey = divide_into_superpixels(draw_digit(label, rng), grid, rng)
        colour = grey[:, None]
    else:
        rows, columns = rng.integers(9, 13, 2).tolist()
        picture = draw_superpixels(rows, columns, label / PICTURE_CLASSES, rng)
        pos = picture.pos
        colour = picture.colour

    # Drop one of the nine most similar cells, like upstream.
    similarity = _cell_similarity(pos)
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, : DEGREE + 1]
    neighbours = np.delete(nearest, int(rng.integers(DEGREE + 1)), axis=1)
    source = np.repeat(np.arange(len(nearest)), DEGREE)
    target = np.sort(neighbours, axis=1).reshape(-1)
    return {
        "x": _round_to_half(colour),
        "edge_index": np.stack([source, target]).astype(np.int64),
        "edge_attr": _round_to_half(similarity[source, target]),
        "y": np.array([label], np.int64),
        "pos": _round_to_half(pos),
    }


def _round_to_half(values: F64) -> F32:
    """Round to half precision, stored in float32 like upstream's features."""
    return values.astype(np.float16).astype(np.float32)


def _cell_similarity(pos: F64) -> F64:
    """Return exp(−(distance / width)²), symmetrised; width is the mean distance of the eight nearest."""
    distance = np.linalg.norm(pos[:, None] - pos[None], axis=-1)
    width = np.sort(distance, axis=1)[:, 1 : DEGREE + 1].mean(axis=1, keepdims=True)
    one_way = np.exp(-((distance / width) ** 2))
    symmetric: F64 = (one_way + one_way.T) / 2
    np.fill_diagonal(symmetric, 0)
    return symmetric
