"""Sample graphs in the layouts of benchmarking-gnns: generated, never the real data.

An image is a coloured shape on a coloured background, cut into cells around jittered grid points;
cells become graphs like upstream's superpixels: similarities of centres, and eight edges from each
cell to similar ones. The class decides colour and shape, with some noise.

Graphs of stochastic blocks have more edges inside a block than between blocks, as upstream's: in
``pattern`` the task is to find one block, in ``cluster`` one node of each block is known.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F32, F64, Array
from kmip_data.manifest import Manifest
from kmip_data.pipelines.sample_writers import part_sizes, write_torch_file

DEFAULT_GRAPHS = 120
CLASSES = 10  #: classes of pictures
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
        # Classes in turn, so that every part has several.
        graphs = (_sample_picture(i % CLASSES, name == "mnist", rng) for i in range(count))
    sizes = part_sizes(count, manifest.expected.splits["upstream"])
    parts = [list(itertools.islice(graphs, size)) for size in sizes.values()]
    write_torch_file(folder / manifest.content.anchor, parts)


def _draw_block_graph(pattern: bool, rng: Generator) -> dict[str, Array]:
    """Draw a graph of ``pattern`` (three random signals) or ``cluster`` (one known node of a class)."""
    sizes = rng.integers(5, 16, 4 if pattern else 6)
    block = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    inside = block[:, None] == block
    linked = np.triu(rng.random(inside.shape) < np.where(inside, 0.55, 0.2), 1)
    edges = np.stack((linked | linked.T).nonzero())
    if pattern:
        signal = rng.integers(0, 3, len(block))
        label = block == 0
        width = 3
    else:
        signal = np.zeros(len(block), np.int64)
        _, known = np.unique(block, return_index=True)
        signal[known] = block[known] + 1
        label = block
        width = 7
    return {
        "x": np.eye(width, dtype=np.float32)[signal],
        "edge_index": edges,
        "y": label.astype(np.int64),
    }


def _sample_picture(label: int, grey: bool, rng: Generator) -> dict[str, Array]:
    pos = _draw_centres(7 if grey else 10, rng)
    colour = _paint_cells(pos, label, rng)
    if grey:
        colour = colour[:, :1]

    # All but one of the nine most similar cells, as upstream.
    similar = _cell_similarity(pos)
    nearest = np.argsort(-similar, axis=1, kind="stable")[:, : DEGREE + 1]
    left_out = int(rng.integers(DEGREE + 1))
    chosen = np.delete(nearest, left_out, axis=1)
    source = np.repeat(np.arange(len(pos)), DEGREE)
    target = np.sort(chosen, axis=1).reshape(-1)
    return {
        "x": _round_to_half(np.clip(colour, 0, 1)),
        "edge_index": np.stack([source, target]).astype(np.int64),
        "edge_attr": _round_to_half(similar[source, target]),
        "y": np.array([label], np.int64),
        "pos": _round_to_half(pos),
    }


def _draw_centres(least: int, rng: Generator) -> F64:
    """Draw the centres of cells (N, 2): nine of ten points of a jittered grid, in no order."""
    side = int(rng.integers(least, least + 3))
    row, column = np.divmod(np.arange(side * side), side)
    middle = (np.column_stack([row, column]) + 0.5) / side
    jitter = rng.normal(0, 0.15 / side, middle.shape)
    pos = np.clip(middle + jitter, 0, 1)
    is_cell = rng.random(len(pos)) < 0.9
    return rng.permutation(pos[is_cell])


def _paint_cells(pos: F64, label: int, rng: Generator) -> F64:
    """Paint a square or a disc, by the class, in a colour before its complement: (N, 3)."""
    centre = 0.5 + rng.normal(0, 0.06, 2)
    size = 0.28 + 0.02 * (label % 5)
    offset = np.abs(pos - centre)
    distance = offset.max(axis=1) if label % 2 else np.hypot(*offset.T)
    inside = distance < size

    hue = 2 * np.pi * (label + rng.normal(0, 0.25)) / CLASSES
    phases = np.array([0.0, 2.1, 4.2])  # phases of red, green, blue
    front = 0.5 + 0.35 * np.cos(hue + phases)
    noise = rng.normal(0, 0.06, (len(pos), 3))
    return np.where(inside[:, None], front, 1 - front) + noise


def _round_to_half(values: F64) -> F32:
    """Round to half precision, kept in float32, as upstream's features are."""
    return values.astype(np.float16).astype(np.float32)


def _cell_similarity(pos: F64) -> F64:
    """exp(−(distance / width)²), width the mean distance of the eight nearest, made symmetric."""
    distance = np.linalg.norm(pos[:, None] - pos[None], axis=-1)
    width = np.sort(distance, axis=1)[:, 1 : DEGREE + 1].mean(axis=1, keepdims=True)
    one_way = np.exp(-((distance / width) ** 2))
    both: F64 = (one_way + one_way.T) / 2
    np.fill_diagonal(both, 0)
    return both
