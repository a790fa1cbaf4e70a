"""Generated superpixel graphs in the layout of PascalVOC-SP and COCO-SP.

A picture has an object on a background, coloured by its class. The cells of a jittered grid stand for
superpixels, with upstream's features and edges.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from kmip_data.arrays import F32, I64
from kmip_data.graphs.split_rules import majority_classes, stratified_draw
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.superpixel_graphs import COCO_IDS
from kmip_data.pipelines.graph_arrays.reverse_edges import append_reverse_edges
from kmip_data.pipelines.sample_drawings import draw_superpixels
from kmip_data.pipelines.sample_writers import PickledTensor, write_pickle

DEFAULT_PICTURES = 90
PICTURE_SIZE = (500, 375)  #: columns and rows, pixels
_VOC_CLASSES = 21

Picture = tuple[NDArray[np.float16], F32, I64, I64]


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write 3/5 of the pictures as ``train.pickle``, and halves of the rest as ``val`` and ``test``.

    The halves of a Pascal VOC sample are drawn by upstream's stratified rule.
    """
    count = limit or DEFAULT_PICTURES
    is_coco = manifest.registered_name == "coco-sp"
    rng = Generator(PCG64(seed))
    ids = np.array(COCO_IDS) if is_coco else np.arange(_VOC_CLASSES)
    pictures = [draw_picture_graph(i, len(ids), rng, side=(6, 11)) for i in range(count)]
    held_out_size = 2 * count // 5
    held_out = pictures[count - held_out_size :]
    val_size = held_out_size - held_out_size // 2
    if is_coco:
        val = np.arange(val_size)
        test = np.arange(val_size, held_out_size)
    else:
        class_counts = np.zeros((held_out_size, len(ids)), np.int64)
        for row, (*_, y) in enumerate(held_out):
            class_counts[row] = np.bincount(y, minlength=len(ids))
        val, test = stratified_draw(majority_classes(class_counts, 0), val_size)

    # The raw files have one-byte category ids for COCO, four-byte classes for Pascal VOC.
    parts = {
        "train": pictures[: count - held_out_size],
        "val": [held_out[i] for i in val],
        "test": [held_out[i] for i in test],
    }
    dtype = np.uint8 if is_coco else np.int32
    for name, part_pictures in parts.items():
        graphs = [
            (PickledTensor(x), PickledTensor(attr), PickledTensor(edges), ids[y].astype(dtype))
            for x, attr, edges, y in part_pictures
        ]
        write_pickle(folder / f"{name}.pickle", graphs)


def draw_picture_graph(
    number: int,
    classes: int,
    rng: Generator,
    *,
    side: tuple[int, int],
) -> Picture:
    """Return features, edge features, edges and classes of one picture.

    Picture number 1 is a single superpixel. ``side`` has the minimum and maximum cells along a side
    of the grid.
    """
    rows, columns = rng.integers(*side, 2, endpoint=True).tolist() if number != 1 else (1, 1)
    # The object has the picture's number as class, so that all classes occur.
    object_class = number % (classes - 1) + 1
    picture = draw_superpixels(rows, columns, object_class / classes, rng)
    y = object_class * picture.is_object

    mean = picture.colour
    spread = rng.uniform(0.01, 0.1, mean.shape)
    brightest = np.clip(mean + 3 * spread, 0, 1)
    darkest = np.clip(mean - 3 * spread, 0, 1)
    centre = picture.pos * PICTURE_SIZE[::-1]
    x = np.hstack([mean, spread, brightest, darkest, centre])

    is_single = len(mean) == 1
    # A single superpixel has a self-loop with zero features.
    edges = np.zeros((2, 1), np.int64) if is_single else _grid_edges(rows, columns)
    difference = mean[edges[0]] - mean[edges[1]]
    strength = np.linalg.norm(difference, axis=1) / 4
    # Draw a length per node; both directions of an edge take the length of its smaller end.
    lengths = rng.integers(1, 60, len(mean))
    length = lengths[edges.min(axis=0)]
    attr = np.stack([strength, length], axis=1) * (not is_single)
    return x.astype(np.float16), attr.astype(np.float32), edges, y


def _grid_edges(rows: int, columns: int) -> I64:
    """Return edges in both directions between cells sharing a side or a corner along one diagonal."""
    number = np.arange(rows * columns).reshape(rows, columns)
    pairs = [
        (number[:, :-1], number[:, 1:]),
        (number[:-1], number[1:]),
        (number[:-1, :-1], number[1:, 1:]),
    ]
    sides = [np.stack([first.reshape(-1), second.reshape(-1)]) for first, second in pairs]
    edges = append_reverse_edges(np.concatenate(sides, axis=1))
    order = np.lexsort(edges[::-1])
    return edges[:, order]
