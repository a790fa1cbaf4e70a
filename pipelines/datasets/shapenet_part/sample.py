"""Generated shapes in the layout of ShapeNet-Part with normals.

A shape has randomly scaled boxes, at least one per part. Points on their surfaces are written with
normals in upstream's format: ``x y z nx ny nz label`` with six decimals. The published shapes have
500 to 3,000 points, and 72 / 11 / 17 % of them are in the train, val and test lists.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F64
from kmip_data.manifest import Manifest
from kmip_data.pipelines.datasets.shapenet_part import CATEGORIES, split_list_name
from kmip_data.pipelines.sample_drawings import box_areas, draw_box_points
from kmip_data.pipelines.sample_writers import cut_into_parts, part_sizes, write_lines
from kmip_data.strict_model import read_shipped

DEFAULT_SHAPES = 48

Piece = tuple[int, F64, F64]  #: part, centre, size


def load_shapes() -> dict[str, list[Piece]]:
    """Return the pieces of each category from ``manifests/tables/shapes.toml``, mirrored."""
    shapes: dict[str, list[Piece]] = {}
    for category, pieces in read_shipped("tables", "shapes").items():
        for part, centre, size, *mirrored in pieces:
            axes = "".join(mirrored)
            choices = [(-1, 1) if axis in axes else (1,) for axis in "xyz"]
            # A mirrored piece, such as a wing, is on both sides of an axis.
            for signs in itertools.product(*choices):
                piece = part, np.array(signs) * np.array(centre), np.array(size)
                shapes.setdefault(category, []).append(piece)
    return shapes


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``limit`` shapes, cycling through the categories, and their split lists."""
    total = DEFAULT_SHAPES if limit is None else limit
    for category in CATEGORIES:
        (folder / category.synset).mkdir(parents=True, exist_ok=True)
    (folder / "train_test_split").mkdir(exist_ok=True)
    lines = [f"{category.name}\t{category.synset}" for category in CATEGORIES]
    write_lines(folder / "synsetoffset2category.txt", lines)

    pieces = load_shapes()
    paths = []
    row_format = "%.6f %.6f %.6f %.6f %.6f %.6f %.6f\n"
    # Seed each shape by its number, so that a larger sample extends a smaller one.
    for number in range(total):
        category = CATEGORIES[number % len(CATEGORIES)]
        rng = Generator(PCG64([seed, number]))
        path = f"{category.synset}/{rng.bytes(16).hex()}"
        points = _draw_shape(pieces[category.name], category.first, rng)
        numbers = tuple(points.ravel().tolist())
        text = (row_format * len(points)) % numbers
        (folder / f"{path}.txt").write_bytes(text.encode())
        paths.append(path)

    order = Generator(PCG64([seed, total, 1])).permutation(total)
    for part, rows in cut_into_parts(
        order, part_sizes(total, manifest.expected.splits["upstream"])
    ).items():
        entries = [f"shape_data/{paths[i]}" for i in rows]
        (folder / split_list_name(part)).write_bytes(json.dumps(entries).encode())


def _draw_shape(pieces: list[Piece], first_label: int, rng: Generator) -> F64:
    """Draw one shape: (N, 7) of x, y, z, normal x, y, z, label."""
    part, centre, size = map(np.array, zip(*pieces, strict=True))
    # Scale the shape, and each piece a little more.
    scale = rng.uniform(0.8, 1.2, 3)
    size = size * scale * rng.uniform(0.85, 1.15, size.shape)

    # Distribute points by area, but give small parts enough points to learn their labels.
    total = int(rng.integers(2_000, 3_001))
    areas = box_areas(size).sum(axis=1)
    counts = np.maximum((areas / areas.sum() * total).astype(int), 40)
    position, normal, piece = draw_box_points(size, counts, rng)
    label = first_label + part[piece]
    points = np.column_stack([(centre * scale)[piece] + position, normal, label])
    return rng.permutation(points)
