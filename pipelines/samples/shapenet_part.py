"""Sample shapes in the layout of ShapeNet-Part with normals: generated, never the real data.

A shape is a few boxes, cylinders and ellipsoids, one or more a part, scaled at random; points are
drawn on their surfaces with the surface's normal and written as upstream writes them: ``x y z nx ny nz
label`` with six decimals. The published set has 500 to 3,000 points per shape and 72 / 11 / 17 % of the
shapes in its train, val and test lists.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from kmip_data.manifest import read_shipped
from kmip_data.pipelines.samples.writers import deal, part_sizes
from kmip_data.pipelines.shapenet_part import CATEGORIES, list_name

DEFAULT_SHAPES = 48
PUBLISHED = {"train": 12_137, "val": 1_870, "test": 2_874}

Piece = tuple[str, int, NDArray[np.float64], NDArray[np.float64]]  #: kind, part, centre, size


def shapes() -> dict[str, list[Piece]]:
    """Return the pieces of each category: those of ``manifests/tables/shapes.toml``, mirrored."""
    found: dict[str, list[Piece]] = {}
    for category, pieces in read_shipped("tables", "shapes").items():
        for kind, part, centre, size, *mirrored in pieces:
            for signs in itertools.product(
                *((-1, 1) if axis in "".join(mirrored) else (1,) for axis in "xyz")
            ):
                piece = kind, part, np.array(signs) * np.array(centre), np.array(size)
                found.setdefault(category, []).append(piece)
    return found


def write_sample(folder: Path, *, limit: int | None = None, seed: int = 0) -> None:
    """Write ``limit`` shapes, the categories in turn, with their split lists into ``folder``."""
    total = DEFAULT_SHAPES if limit is None else limit
    for category in CATEGORIES:
        (folder / category.synset).mkdir(parents=True, exist_ok=True)
    (folder / "train_test_split").mkdir(exist_ok=True)
    lines = [f"{category.name}\t{category.synset}\n" for category in CATEGORIES]
    (folder / "synsetoffset2category.txt").write_bytes("".join(lines).encode())
    pieces = shapes()
    paths = []
    for number in range(total):
        category = CATEGORIES[number % len(CATEGORIES)]
        rng = Generator(PCG64([seed, number]))
        path = f"{category.synset}/{rng.bytes(16).hex()}"
        points = _shape(pieces[category.name], category.first, rng)
        text = ("%.6f %.6f %.6f %.6f %.6f %.6f %.6f\n" * len(points)) % tuple(
            points.ravel().tolist()
        )
        (folder / f"{path}.txt").write_bytes(text.encode())
        paths.append(path)
    order = Generator(PCG64([seed, total, 1])).permutation(total)
    for part, rows in deal(order, part_sizes(total, PUBLISHED)).items():
        (folder / list_name(part)).write_bytes(
            json.dumps([f"shape_data/{paths[i]}" for i in rows]).encode()
        )


def _shape(pieces: list[Piece], first_label: int, rng: Generator) -> NDArray[np.float64]:
    """Draw one shape: (N, 7) of x, y, z, normal x, y, z, label."""
    scale = rng.uniform(0.8, 1.2, 3)
    jittered = [
        (kind, part, centre * scale, size * scale * rng.uniform(0.85, 1.15, 3))
        for kind, part, centre, size in pieces
    ]
    areas = np.array([2 * (s[0] * s[1] + s[1] * s[2] + s[0] * s[2]) for _, _, _, s in jittered])
    total = int(rng.integers(2_000, 3_001))
    # Small parts get some points more than their share, so that every label has examples.
    counts = np.maximum((areas / areas.sum() * total).astype(int), 40)
    blocks = []
    for (kind, part, centre, size), count in zip(jittered, counts, strict=True):
        position, normal = _surface(kind, size, int(count), rng)
        label = np.full((int(count), 1), float(first_label + part))
        blocks.append(np.concatenate([centre + position, normal, label], axis=1))
    points = np.concatenate(blocks)
    return points[rng.permutation(len(points))]


def _surface(
    kind: str, size: NDArray[np.float64], count: int, rng: Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points (count, 3) on the surface of a piece around the origin, and unit normals."""
    half = size / 2
    normal = np.zeros((count, 3))
    if kind == "ball":
        unit = rng.normal(size=(count, 3))
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        normal = unit / half
    elif kind == "box":
        faces = np.repeat([half[1] * half[2], half[0] * half[2], half[0] * half[1]], 2)
        face = rng.choice(6, size=count, p=faces / faces.sum())
        unit = rng.uniform(-1, 1, (count, 3))
        rows = np.arange(count), face // 2
        unit[rows] = normal[rows] = face % 2 * 2.0 - 1.0
    else:
        axis = "xyz".index(kind[-1])
        round_axes = [i for i in range(3) if i != axis]
        angle = rng.uniform(0, 2 * np.pi, count)
        ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        caps = rng.random(count) < 0.2
        unit = np.empty((count, 3))
        unit[:, axis] = np.where(caps, rng.choice([-1.0, 1.0], count), rng.uniform(-1, 1, count))
        unit[:, round_axes] = ring * np.where(caps, np.sqrt(rng.random(count)), 1.0)[:, None]
        normal[:, round_axes] = np.where(caps[:, None], 0.0, ring / half[round_axes])
        normal[:, axis] = np.where(caps, unit[:, axis], 0.0)
    return unit * half, normal / np.linalg.norm(normal, axis=1, keepdims=True)
