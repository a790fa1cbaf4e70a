"""Generated shapes in the layout of ShapeNet-Part with normals.

A shape has randomly scaled boxes, cylinders and ellipsoids, at least one per part. Points on their
surfaces are written with normals in upstream's format: ``x y z nx ny nz label`` with six decimals.
The published shapes have 500 to 3,000 points, and 72 / 11 / 17 % of them are in the train, val and
test lists.
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
from kmip_data.pipelines.sample_writers import cut_into_parts, part_sizes, write_lines
from kmip_data.strict_model import read_shipped

DEFAULT_SHAPES = 48

Piece = tuple[str, int, F64, F64]  #: solid, part, centre, size


def load_shapes() -> dict[str, list[Piece]]:
    """Return the pieces of each category from ``manifests/tables/shapes.toml``, mirrored."""
    shapes: dict[str, list[Piece]] = {}
    for category, pieces in read_shipped("tables", "shapes").items():
        for solid, part, centre, size, *mirrored in pieces:
            axes = "".join(mirrored)
            choices = [(-1, 1) if axis in axes else (1,) for axis in "xyz"]
            # A mirrored piece, such as a wing, is on both sides of an axis.
            for signs in itertools.product(*choices):
                piece = solid, part, np.array(signs) * np.array(centre), np.array(size)
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
    scale = rng.uniform(0.8, 1.2, 3)
    jittered = []
    areas = []
    for solid, part, centre, size in pieces:
        # Scale the shape, and each piece a little more.
        jitter = rng.uniform(0.85, 1.15, 3)
        sides = size * scale * jitter
        dx, dy, dz = sides
        jittered.append((solid, part, centre * scale, sides))
        areas.append(2 * (dx * dy + dy * dz + dx * dz))

    # Distribute points by area, but give small parts enough points to learn their labels.
    total = int(rng.integers(2_000, 3_001))
    area_fraction = np.array(areas) / np.sum(areas)
    by_area = (area_fraction * total).astype(int)
    counts = np.maximum(by_area, 40).tolist()
    blocks = []
    for (solid, part, centre, size), count in zip(jittered, counts, strict=True):
        position, normal = _surface_points(solid, size, count, rng)
        label = np.full((count, 1), float(first_label + part))
        blocks.append(np.concatenate([centre + position, normal, label], axis=1))
    points = np.concatenate(blocks)
    return points[rng.permutation(len(points))]


def _surface_points(
    solid: str,
    size: F64,
    count: int,
    rng: Generator,
) -> tuple[F64, F64]:
    """Return points (count, 3) on the surface of a piece around the origin, and unit normals."""
    half = size / 2
    # Draw on a ball, cube or cylinder of radius 1, then stretch; normals are divided by the sides.
    if solid == "ball":
        unit = rng.normal(size=(count, 3))
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        normal = unit / half
    elif solid == "box":
        unit, normal = _box_surface(half, count, rng)
    else:
        unit, normal = _tube_surface(half, "xyz".index(solid[-1]), count, rng)
    return unit * half, normal / np.linalg.norm(normal, axis=1, keepdims=True)


def _box_surface(half: F64, count: int, rng: Generator) -> tuple[F64, F64]:
    """Return points on a cube of side 2, distributed by the areas of the stretched box, and normals."""
    x, y, z = half
    faces = np.repeat([y * z, x * z, x * y], 2)
    face = rng.choice(6, size=count, p=faces / faces.sum())
    side = face % 2 * 2.0 - 1.0
    rows = np.arange(count)

    unit = rng.uniform(-1, 1, (count, 3))
    normal = np.zeros((count, 3))
    unit[rows, face // 2] = side
    normal[rows, face // 2] = side
    return unit, normal


def _tube_surface(
    half: F64,
    axis: int,
    count: int,
    rng: Generator,
) -> tuple[F64, F64]:
    """Return points on a cylinder of radius 1 and height 2 along ``axis``, and normals."""
    round_axes = [i for i in range(3) if i != axis]
    angle = rng.uniform(0, 2 * np.pi, count)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    # Put a fifth of the points on the two caps, uniformly over their area.
    on_cap = rng.random(count) < 0.2
    ends = rng.choice([-1.0, 1.0], count)
    heights = rng.uniform(-1, 1, count)
    radius = np.where(on_cap, np.sqrt(rng.random(count)), 1.0)

    unit = np.empty((count, 3))
    unit[:, axis] = np.where(on_cap, ends, heights)
    unit[:, round_axes] = ring * radius[:, None]

    # Normals of the caps point along the axis, normals of the side away from it.
    outwards = ring / half[round_axes]
    normal = np.zeros((count, 3))
    normal[:, round_axes] = np.where(on_cap[:, None], 0.0, outwards)
    normal[:, axis] = np.where(on_cap, unit[:, axis], 0.0)
    return unit, normal
