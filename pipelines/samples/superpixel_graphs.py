"""Sample superpixel graphs in the layout of PascalVOC-SP and COCO-SP: generated, never the real data.

A picture has one or two things in front of a background; it is cut into the cells of a jittered grid, which
are described and joined as upstream describes and joins superpixels. What a thing is decides its colour.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from kmip_data.graphs.splits import meta_labels, stratified_draw
from kmip_data.pipelines.samples.writers import write_pickled_list
from kmip_data.pipelines.superpixel_graphs import COCO_IDS

DEFAULT_PICTURES = 90
SIZES = (500, 375)  #: columns and rows of a picture in pixels
_VOC_CLASSES = 21

Picture = tuple[NDArray[np.float16], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]


def write_sample(folder: Path, *, coco: bool, limit: int | None = None, seed: int = 0) -> None:
    """Write ``train.pickle`` (3/5 of the pictures), and two halves of the rest as ``val`` and ``test``.

    The halves of a Pascal VOC sample are drawn by the stratified rule, as upstream's are.
    """
    count = limit or DEFAULT_PICTURES
    rng = Generator(PCG64(seed))
    ids = np.array(COCO_IDS) if coco else np.arange(_VOC_CLASSES)
    made = [make_picture(i, len(ids), rng, side=(6, 11)) for i in range(count)]
    held = 2 * count // 5
    train = made[: count - held]
    pool = made[count - held :]
    if coco:
        halves = np.arange(held - held // 2), np.arange(held - held // 2, held)
    else:
        classes = np.array([np.bincount(y, minlength=len(ids)) for *_, y in pool]).reshape(
            held, len(ids)
        )
        halves = stratified_draw(meta_labels(classes, 0), held - held // 2)
    parts = {
        "train": train,
        "val": [pool[i] for i in halves[0]],
        "test": [pool[i] for i in halves[1]],
    }
    for name, chosen in parts.items():
        dtype = np.uint8 if coco else np.int32
        graphs = ((x, attr, edges, ids[y].astype(dtype)) for x, attr, edges, y in chosen)
        write_pickled_list(folder / f"{name}.pickle", graphs)


def make_picture(number: int, classes: int, rng: Generator, *, side: tuple[int, int]) -> Picture:
    """Return features, edge features, edges and classes of one picture; number 1 is a single superpixel.

    ``side`` is the least and the largest number of cells along a side of the grid.
    """
    columns, rows = (
        (1, 1) if number == 1 else (int(n) for n in rng.integers(*side, 2, endpoint=True))
    )
    cells = np.stack(
        np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), axis=-1
    ).reshape(-1, 2)
    centre = (
        (cells + 0.5 + rng.uniform(-0.2, 0.2, cells.shape))
        * np.array(SIZES[::-1])
        / (rows, columns)
    )
    y = np.zeros(len(cells), np.int64)
    for thing in range(1 + int(rng.random() < 0.3)):
        kind = (number if thing == 0 else int(rng.integers(classes))) % (classes - 1) + 1
        place = rng.uniform(0.3, 0.7, 2) * SIZES[::-1]
        y[np.linalg.norm((centre - place) / SIZES[::-1], axis=1) < rng.uniform(0.15, 0.3)] = kind
    hue = 2 * np.pi * y[:, None] / classes + np.array([0.0, 2.1, 4.2])
    mean = np.clip(
        0.5 + 0.35 * np.cos(hue) * (y > 0)[:, None] + rng.normal(0, 0.05, hue.shape), 0, 1
    )
    spread = rng.uniform(0.01, 0.1, mean.shape)
    x = np.hstack(
        [mean, spread, np.clip(mean + 3 * spread, 0, 1), np.clip(mean - 3 * spread, 0, 1), centre]
    )
    edges = _grid_edges(rows, columns) if len(cells) > 1 else np.zeros((2, 1), np.int64)
    strength = np.linalg.norm(mean[edges[0]] - mean[edges[1]], axis=1) / 4
    length = rng.integers(1, 60, len(cells))  # symmetric: of the smaller end
    attr = np.stack([strength, length[edges.min(axis=0)]], axis=1) * (len(cells) > 1)
    return x.astype(np.float16), attr.astype(np.float32), edges, y


def _grid_edges(rows: int, columns: int) -> NDArray[np.int64]:
    """Cells that touch, also at a corner from the upper left; both directions, by source and target."""
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = [
        (number[:, :-1], number[:, 1:]),
        (number[:-1], number[1:]),
        (number[:-1, :-1], number[1:, 1:]),
    ]
    one_way = np.concatenate([np.stack([a.reshape(-1), b.reshape(-1)]) for a, b in pairs], axis=1)
    both = np.concatenate([one_way, one_way[::-1]], axis=1)
    return both[:, np.lexsort((both[1], both[0]))]
