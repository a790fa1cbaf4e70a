"""Sample superpixel graphs in the layout of PascalVOC-SP and COCO-SP: generated, never the real data.

A picture has one or two things in front of a background; it is cut into the cells of a jittered
grid, which are described and joined as upstream describes and joins superpixels. What a thing is
decides its colour.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from kmip_data.arrays import F32, I64
from kmip_data.graphs.split_rules import meta_labels, stratified_draw
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.superpixel_graphs import COCO_IDS
from kmip_data.pipelines.graph_arrays.reverse_edges import append_reverse_edges
from kmip_data.pipelines.sample_writers import Tensor, write_pickle

DEFAULT_PICTURES = 90
SIZES = (500, 375)  #: columns and rows of a picture in pixels
_VOC_CLASSES = 21

Picture = tuple[NDArray[np.float16], F32, I64, I64]


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``train.pickle`` (3/5 of the pictures), and two halves of the rest as ``val`` and ``test``.

    The halves of a Pascal VOC sample are drawn by the stratified rule, as upstream's are.
    """
    count = limit or DEFAULT_PICTURES
    coco = manifest.registered_name == "coco-sp"
    rng = Generator(PCG64(seed))
    ids = np.array(COCO_IDS) if coco else np.arange(_VOC_CLASSES)
    pictures = [sample_picture_graph(i, len(ids), rng, side=(6, 11)) for i in range(count)]
    held = 2 * count // 5
    pool = pictures[count - held :]
    val_size = held - held // 2
    if coco:
        val = np.arange(val_size)
        test = np.arange(val_size, held)
    else:
        classes = np.zeros((held, len(ids)), np.int64)
        for row, (*_, y) in enumerate(pool):
            classes[row] = np.bincount(y, minlength=len(ids))
        val, test = stratified_draw(meta_labels(classes, 0), val_size)

    # Labels are as in the raw file: ids of COCO in one byte, classes of Pascal VOC in four.
    parts = {
        "train": pictures[: count - held],
        "val": [pool[i] for i in val],
        "test": [pool[i] for i in test],
    }
    dtype = np.uint8 if coco else np.int32
    for name, chosen in parts.items():
        graphs = [
            (Tensor(x), Tensor(attr), Tensor(edges), ids[y].astype(dtype))
            for x, attr, edges, y in chosen
        ]
        write_pickle(folder / f"{name}.pickle", graphs)


def sample_picture_graph(
    number: int,
    classes: int,
    rng: Generator,
    *,
    side: tuple[int, int],
) -> Picture:
    """Return features, edge features, edges and classes of one picture.

    Picture number 1 is a single superpixel.

    ``side`` is the least and the largest number of cells along a side of the grid.
    """
    columns = 1
    rows = 1
    if number != 1:
        columns, rows = rng.integers(*side, 2, endpoint=True).tolist()
    cells = np.column_stack(np.divmod(np.arange(rows * columns), columns))
    shift = rng.uniform(-0.2, 0.2, cells.shape)
    height_width = np.array(SIZES[::-1])
    # Centres in pixels, off the middle of their cell by up to a fifth of it.
    centre = (cells + 0.5 + shift) * height_width / (rows, columns)

    # Things are discs; the number of the picture is the class of the first, so that all occur.
    y = np.zeros(len(cells), np.int64)
    for thing in range(1 + int(rng.random() < 0.3)):
        thing_class = number if thing == 0 else int(rng.integers(classes))
        middle = rng.uniform(0.3, 0.7, 2) * SIZES[::-1]
        distance = np.linalg.norm((centre - middle) / SIZES[::-1], axis=1)
        radius = rng.uniform(0.15, 0.3)
        y[distance < radius] = thing_class % (classes - 1) + 1

    hue = 2 * np.pi * y[:, None] / classes + np.array([0.0, 2.1, 4.2])
    colour = 0.35 * np.cos(hue) * (y > 0)[:, None]  # the background is grey
    noise = rng.normal(0, 0.05, hue.shape)
    mean = np.clip(0.5 + colour + noise, 0, 1)
    spread = rng.uniform(0.01, 0.1, mean.shape)
    brightest = np.clip(mean + 3 * spread, 0, 1)
    darkest = np.clip(mean - 3 * spread, 0, 1)
    x = np.hstack([mean, spread, brightest, darkest, centre])

    single = len(cells) == 1
    # A single superpixel has an edge to itself, without features.
    edges = np.zeros((2, 1), np.int64) if single else _grid_edges(rows, columns)
    difference = mean[edges[0]] - mean[edges[1]]
    strength = np.linalg.norm(difference, axis=1) / 4
    # Both directions of a pair have one length: the smaller end's.
    lengths = rng.integers(1, 60, len(cells))
    length = lengths[edges.min(axis=0)]
    attr = np.stack([strength, length], axis=1) * (not single)
    return x.astype(np.float16), attr.astype(np.float32), edges, y


def _grid_edges(rows: int, columns: int) -> I64:
    """Cells that touch, also at a corner from the upper left.

    Both directions are listed, by source and target.
    """
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = [
        (number[:, :-1], number[:, 1:]),
        (number[:-1], number[1:]),
        (number[:-1, :-1], number[1:, 1:]),
    ]
    sides = [np.stack([first.reshape(-1), second.reshape(-1)]) for first, second in pairs]
    both = append_reverse_edges(np.concatenate(sides, axis=1))
    order = np.lexsort(both[::-1])
    return both[:, order]
