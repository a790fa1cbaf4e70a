"""Sample shapes in the layout of ShapeNet-Part with normals: generated, never the real data.

A shape is a few boxes, cylinders and ellipsoids, one or more a part, scaled at random; points are
drawn on their surfaces with the surface's normal and written as upstream writes them: ``x y z nx ny nz
label`` with six decimals. The published set has 500 to 3,000 points per shape and 72 / 11 / 17 % of the
shapes in its train, val and test lists.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from kmip_data.pipelines.samples.writers import deal, part_sizes
from kmip_data.pipelines.shapenet_part import CATEGORIES, list_name

DEFAULT_SHAPES = 48
PUBLISHED = {"train": 12_137, "val": 1_870, "test": 2_874}

Vector = tuple[float, float, float]
#: kind, part (from 0 inside the category), centre, size; y is up. Kinds: ``box``, ``ball`` (ellipsoid) and
#: ``rod-x|y|z`` (elliptic cylinder along an axis).
Piece = tuple[str, int, Vector, Vector]


def _two(kind: str, part: int, x: float, y: float, z: float, size: Vector) -> list[Piece]:
    """Two equal pieces at (±x, y, z)."""
    return [(kind, part, (sx * x, y, z), size) for sx in (-1, 1)]


def _four(kind: str, part: int, x: float, y: float, z: float, size: Vector) -> list[Piece]:
    """Four equal pieces at (±x, y, ±z)."""
    return [(kind, part, (sx * x, y, sz * z), size) for sx in (-1, 1) for sz in (-1, 1)]


SHAPES: dict[str, list[Piece]] = {
    "Airplane": [
        ("rod-z", 0, (0, 0, 0), (0.12, 0.12, 0.9)),
        ("box", 1, (0, 0, 0.05), (0.9, 0.02, 0.2)),
        ("box", 2, (0, 0.1, -0.4), (0.3, 0.16, 0.1)),
        *_two("rod-z", 3, 0.2, -0.06, 0.08, (0.07, 0.07, 0.16)),
    ],
    "Bag": [("box", 1, (0, -0.1, 0), (0.6, 0.5, 0.25)), ("rod-x", 0, (0, 0.28, 0), (0.35, 0.1, 0.04))],
    "Cap": [("ball", 0, (0, 0, 0), (0.6, 0.4, 0.6)), ("box", 1, (0, -0.02, 0.4), (0.5, 0.03, 0.3))],
    "Car": [
        ("box", 0, (0, 0.18, 0), (0.36, 0.1, 0.4)),
        ("box", 1, (0, 0.0, 0.48), (0.38, 0.08, 0.03)),
        *_four("rod-x", 2, 0.19, -0.1, 0.28, (0.07, 0.18, 0.18)),
        ("box", 3, (0, 0.02, 0), (0.4, 0.2, 0.92)),
    ],
    "Chair": [
        ("box", 0, (0, 0.28, -0.22), (0.45, 0.45, 0.05)),
        ("box", 1, (0, 0.0, 0), (0.48, 0.06, 0.48)),
        *_four("rod-y", 2, 0.2, -0.24, 0.2, (0.05, 0.45, 0.05)),
        *_two("box", 3, 0.25, 0.15, 0, (0.04, 0.04, 0.4)),
    ],
    "Earphone": [
        *_two("ball", 0, 0.3, -0.1, 0, (0.12, 0.26, 0.24)),
        ("rod-x", 1, (0, 0.25, 0), (0.55, 0.06, 0.08)),
        ("rod-y", 2, (0.3, -0.4, 0), (0.02, 0.4, 0.02)),
    ],
    "Guitar": [
        ("box", 0, (0, 0.44, 0), (0.08, 0.12, 0.03)),
        ("box", 1, (0, 0.15, 0), (0.05, 0.5, 0.03)),
        ("ball", 2, (0, -0.28, 0), (0.36, 0.44, 0.1)),
    ],
    "Knife": [("box", 0, (0, 0, 0.22), (0.03, 0.12, 0.5)), ("rod-z", 1, (0, 0, -0.25), (0.06, 0.09, 0.4))],
    "Lamp": [
        ("rod-y", 0, (0, -0.45, 0), (0.34, 0.05, 0.34)),
        ("ball", 1, (0, 0.3, 0), (0.42, 0.36, 0.42)),
        ("box", 2, (0, 0.5, 0), (0.1, 0.04, 0.1)),
        ("rod-y", 3, (0, -0.15, 0), (0.04, 0.6, 0.04)),
    ],
    "Laptop": [
        ("box", 0, (0, -0.2, 0.15), (0.7, 0.03, 0.48)),
        ("box", 1, (0, 0.06, -0.1), (0.7, 0.46, 0.03)),
    ],
    "Motorbike": [
        ("box", 0, (0, 0.16, 0.02), (0.12, 0.12, 0.22)),
        ("box", 1, (0, 0.14, -0.2), (0.14, 0.05, 0.3)),
        *[("rod-x", 2, (0.0, -0.16, z), (0.08, 0.34, 0.34)) for z in (-0.33, 0.33)],
        ("rod-x", 3, (0, 0.3, 0.26), (0.4, 0.03, 0.03)),
        ("ball", 4, (0, 0.16, 0.34), (0.08, 0.08, 0.08)),
        ("box", 5, (0, -0.04, 0), (0.12, 0.18, 0.4)),
    ],
    "Mug": [("box", 0, (0.32, 0, 0), (0.14, 0.3, 0.05)), ("rod-y", 1, (0, 0, 0), (0.5, 0.6, 0.5))],
    "Pistol": [
        ("box", 0, (0, 0.16, 0.05), (0.08, 0.14, 0.8)),
        ("box", 1, (0, -0.14, -0.25), (0.08, 0.42, 0.16)),
        ("box", 2, (0, -0.0, -0.08), (0.03, 0.12, 0.12)),
    ],
    "Rocket": [
        ("rod-y", 0, (0, -0.05, 0), (0.16, 0.7, 0.16)),
        *_four("box", 1, 0.12, -0.4, 0.12, (0.08, 0.2, 0.08)),
        ("ball", 2, (0, 0.36, 0), (0.16, 0.26, 0.16)),
    ],
    "Skateboard": [
        *_four("rod-x", 0, 0.1, -0.08, 0.32, (0.06, 0.08, 0.08)),
        ("box", 1, (0, 0.02, 0), (0.24, 0.03, 0.9)),
        *[("box", 2, (0, -0.03, z), (0.2, 0.03, 0.06)) for z in (-0.32, 0.32)],
    ],
    "Table": [
        ("box", 0, (0, 0.22, 0), (0.9, 0.05, 0.55)),
        *_four("rod-y", 1, 0.4, -0.05, 0.22, (0.05, 0.5, 0.05)),
        ("box", 2, (0, -0.15, 0), (0.76, 0.03, 0.4)),
    ],
}


def write_sample(folder: Path, *, limit: int | None = None, seed: int = 0) -> None:
    """Write ``limit`` shapes, the categories in turn, with their split lists into ``folder``."""
    total = DEFAULT_SHAPES if limit is None else limit
    for category in CATEGORIES:
        (folder / category.synset).mkdir(parents=True, exist_ok=True)
    (folder / "train_test_split").mkdir(exist_ok=True)
    lines = [f"{category.name}\t{category.synset}\n" for category in CATEGORIES]
    (folder / "synsetoffset2category.txt").write_bytes("".join(lines).encode())
    paths = []
    for number in range(total):
        category = CATEGORIES[number % len(CATEGORIES)]
        rng = Generator(PCG64([seed, number]))
        path = f"{category.synset}/{rng.bytes(16).hex()}"
        points = _shape(SHAPES[category.name], category.first, rng)
        text = ("%.6f %.6f %.6f %.6f %.6f %.6f %.6f\n" * len(points)) % tuple(points.ravel().tolist())
        (folder / f"{path}.txt").write_bytes(text.encode())
        paths.append(path)
    order = Generator(PCG64([seed, total, 1])).permutation(total)
    for part, rows in deal(order, part_sizes(total, PUBLISHED)).items():
        listed = [f"shape_data/{paths[i]}" for i in rows]
        (folder / list_name(part)).write_bytes(json.dumps(listed).encode())


def _shape(pieces: list[Piece], first_label: int, rng: Generator) -> NDArray[np.float64]:
    """Draw one shape: (N, 7) of x, y, z, normal x, y, z, label."""
    scale = rng.uniform(0.8, 1.2, 3)
    jittered = [
        (kind, part, np.array(centre) * scale, np.array(size) * scale * rng.uniform(0.85, 1.15, 3))
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
