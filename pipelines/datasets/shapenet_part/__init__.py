"""ShapeNet-Part: shapes with normals and part labels from the ``v0_normal`` release, as k-NN graphs.

Raw layout: ``synsetoffset2category.txt``, ``<synset>/<shape>.txt`` with one point per line (``x y z
nx ny nz label``) and ``train_test_split/shuffled_{train,val,test}_file_list.json``. Facts and
deviations: ``docs/datasets/shapenet-part.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field, field_validator

from kmip_data.arrays import F32, F64
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import read_json
from kmip_data.format.schema import Column, Schema
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest, read_shipped, unknown_name
from kmip_data.pipelines.base import (
    Pipeline,
    Prepared,
    PublishedSplitParams,
    RawFolder,
    Records,
    Split,
    Unit,
    raw_lists,
)
from kmip_data.pipelines.formats.text import parse_points, read_lines
from kmip_data.pipelines.shared.clouds import PointParams, connect, knn_schema, nodes_per_shard
from kmip_data.pipelines.shared.records import (
    split_by_lists,
    units_by_size,
)
from kmip_data.pipelines.shared.sample_files import deal, part_sizes, write_lines
from kmip_data.pipelines.short import columns_of

#: Bytes of "0 0 0 0 0 0 0" with its line break; bounds the points of a file by its size.
SHORTEST_LINE = 14


class Category(NamedTuple):
    """One of the 16 categories: its WordNet synset and its part labels ``first`` to ``last``."""

    name: str
    synset: str
    first: int
    last: int


CATEGORIES = tuple(Category(*row) for row in read_shipped("tables", "categories")["categories"])
BY_SYNSET = {category.synset: category for category in CATEGORIES}


class ShapeNetPartParams(PointParams):
    """Parameters that change the records."""

    k: int = Field(
        default=8,
        ge=1,
        le=65_535,
        description="neighbours per point",
    )
    category: tuple[str, ...] = Field(
        default=(),
        description="only shapes of this category, such as Airplane; repeatable (default: all 16)",
    )

    @field_validator("category")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Sort the names by category; all 16 are equivalent to none."""
        known = {category.name.lower(): category.name for category in CATEGORIES}
        wanted = {name.lower() for name in names}
        for name in names:
            if name.lower() not in known:
                error = unknown_name("category", name, list(known.values()), command="")
                raise ValueError(error.what)
        if wanted == known.keys():
            return ()
        return tuple(name for lower, name in known.items() if lower in wanted)

    @property
    def categories(self) -> tuple[Category, ...]:
        """Categories to build, in order."""
        return tuple(c for c in CATEGORIES if not self.category or c.name in self.category)


class ShapeNetPartPipeline(Pipeline[ShapeNetPartParams, PublishedSplitParams]):
    """Pipeline of ``shapenet-part``."""

    version = 1
    Params = ShapeNetPartParams

    def schema(self, params: ShapeNetPartParams) -> Schema:
        """Normals before positions, as the k-MIP code fed them; part label; category."""
        category = Column(
            key="graph/category", attribute="category", stored="uint8", presented="int64",
            low=0, high=len(params.categories) - 1,
            doc="position of the category among those built: " + ", ".join(c.name for c in params.categories),
        )  # fmt: skip
        return knn_schema(
            (*columns_of(self.manifest), category),
            params,
            pos=3,
            max_nodes=self.manifest.max_nodes,
        )

    def prepare(self, raw: RawFolder, params: ShapeNetPartParams, workdir: Path) -> Prepared:
        """Check the category list and the split lists, and that every listed shape is there."""
        known = {(category.name, category.synset) for category in CATEGORIES}
        path = raw.path / "synsetoffset2category.txt"
        for number, line in enumerate(read_lines(path), 1):
            if tuple(line.split()) not in known:
                fault = f"not one of the 16 categories: {line[:100]!r}"
                raise DamagedInput(f"{path.name}, line {number}: {fault}")

        # The published lists have 35 shapes twice; those of a part may not repeat one.
        lists = read_split_lists(raw.path)
        shapes = sum(map(len, lists.values()))
        twice = [key for keys in lists.values() for key in keys if "@" in key]
        complete = not raw.sample and shapes == self.manifest.expected.graphs
        if twice and not complete:
            raise DamagedInput(f"{len(twice)} shapes are in another list, too, such as {twice[0]}.")

        for part, keys in lists.items():
            for key in keys:
                name = _file_name(key)
                if not (raw.path / name).is_file():
                    raise DamagedInput(f"A shape of the {part} list is not there: {name}")
        return Prepared(raw.path)

    def units(self, prepared: Prepared, params: ShapeNetPartParams) -> list[Unit]:
        """Assign the listed shapes (train, val, test) by file size."""
        synsets = {category.synset for category in params.categories}
        keys = []
        for listed in read_split_lists(prepared.path).values():
            keys += [key for key in listed if key[:8] in synsets]
        most_points = {}
        for position in params.choose(len(keys)):
            key = keys[position]
            size = (prepared.path / _file_name(key)).stat().st_size
            # A bound by the size alone: nothing is read before the workers do.
            most_points[key] = size // SHORTEST_LINE + 1
        most = nodes_per_shard(self.schema(params), params)
        return units_by_size(most_points, most, "shapes")

    def records(
        self, prepared: Prepared, unit: Unit, params: ShapeNetPartParams
    ) -> Iterator[GraphRecord]:
        """Yield the shapes of one unit in the order of the lists."""
        index_dtype = self.schema(params).index_dtype
        position = {category.synset: i for i, category in enumerate(params.categories)}
        for key in unit.items["shapes"]:
            name = _file_name(key)
            category = BY_SYNSET[key[:8]]
            points = read_shape(prepared.path / name, category, name, self.manifest.max_nodes)
            # Normals before positions: the order that produced the paper's numbers.
            columns = {
                "node/x": np.concatenate([points[:, 3:6], points[:, :3]], axis=1),
                "node/y": points[:, 6].astype(np.uint8),
                "graph/category": np.array(position[category.synset], np.uint8),
            }
            record = connect(key, points[:, :3], columns, params, index_dtype)
            if record is not None:
                yield record

    def split(self, records: Records, params: PublishedSplitParams, raw: Path | None) -> Split:
        """Apply the published lists, in their (shuffled) order."""
        return split_by_lists(
            read_split_lists(raw_lists(self.manifest, raw)), records.keys, "lists"
        )

    def name_parts(self, params: ShapeNetPartParams) -> list[str]:
        """Return ``k8``, the categories and deviations from the defaults."""
        parts = list(params.edge_name_parts)
        if len(params.category) > 2:
            parts.append(f"{len(params.category)}-categories")
        elif params.category:
            parts.append("-".join(params.category).lower())
        return parts


PIPELINE = ShapeNetPartPipeline


def read_split_lists(folder: Path) -> dict[str, list[str]]:
    """Return ``{train, val, test: [key, …]}`` from the JSON lists, in their order.

    A key is ``<synset>/<shape>``. The published lists have 35 shapes twice, in two lists each;
    their second listing is a record of its own with the list's name in its key,
    ``<synset>/<shape>@test``.
    """
    lists = {}
    seen: set[str] = set()
    for part in PARTS:
        name = list_name(part)
        try:
            entries = read_json(folder / name)
        except (OSError, ValueError) as error:
            raise DamagedInput(f"{name} cannot be read: {error}") from error
        if not isinstance(entries, list):
            raise DamagedInput(f"{name} is not a list, but a {type(entries).__name__}.")

        shapes = {}
        for entry in entries:
            # Entries become paths, so accept names of this form alone.
            match = _ENTRY.fullmatch(entry) if isinstance(entry, str) else None
            shape = f"{match[1]}/{match[2]}" if match else ""
            if match is None or match[1] not in BY_SYNSET or shape in shapes:
                raise DamagedInput(
                    f"{name} has an entry twice, or one of no known category: {repr(entry)[:100]}",
                    expected="shape_data/<synset>/<shape>",
                )
            shapes[shape] = f"{shape}@{part}" if shape in seen else shape
        seen |= shapes.keys()
        lists[part] = list(shapes.values())
    return lists


_ENTRY = re.compile(r"[^/]+/(\d{8})/([A-Za-z0-9_-]{1,48})")


def list_name(part: str) -> str:
    """Return the member that lists the shapes of a part."""
    return f"train_test_split/shuffled_{part}_file_list.json"


def _file_name(key: str) -> str:
    return f"{key.partition('@')[0]}.txt"


def read_shape(
    path: Path,
    category: Category,
    name: str,
    max_points: int,
) -> F32:
    """Return the points of one file as (N, 7) float32: x, y, z, normal x, y, z, part label."""
    points = parse_points(path.read_bytes(), 7, name=name)
    if len(points) > max_points:
        raise DamagedInput(f"{name} has {len(points)} points; {max_points} at most are allowed.")
    label = points[:, 6]
    wrong = ~np.isin(label, range(category.first, category.last + 1))
    if wrong.any():
        row = int(wrong.argmax())
        raise DamagedInput(
            f"{name}, line {row + 1}: {label[row]:g} is no part of {category.name}, "
            f"{category.first} to {category.last}."
        )
    return points


# --- Sample ---------------------------------------------------------------------------------------

# Sample shapes in the layout of ShapeNet-Part with normals: generated, never the real data.
#
# A shape is a few boxes, cylinders and ellipsoids, one or more a part, scaled at random; points are
# drawn on their surfaces with the surface's normal and written as upstream writes them: ``x y z nx ny
# nz label`` with six decimals. The published set has 500 to 3,000 points per shape and 72 / 11 / 17 %
# of the shapes in its train, val and test lists.

DEFAULT_SHAPES = 48

Piece = tuple[str, int, F64, F64]  #: kind, part, centre, size


def shapes() -> dict[str, list[Piece]]:
    """Return the pieces of each category: those of ``manifests/tables/shapes.toml``, mirrored."""
    pieces_of: dict[str, list[Piece]] = {}
    for category, pieces in read_shipped("tables", "shapes").items():
        for kind, part, centre, size, *mirrored in pieces:
            axes = "".join(mirrored)
            choices = [(-1, 1) if axis in axes else (1,) for axis in "xyz"]
            # A mirrored piece, such as a wing, stands on both sides of an axis.
            for signs in itertools.product(*choices):
                piece = kind, part, np.array(signs) * np.array(centre), np.array(size)
                pieces_of.setdefault(category, []).append(piece)
    return pieces_of


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``limit`` shapes, the categories in turn, with their split lists into ``folder``."""
    total = DEFAULT_SHAPES if limit is None else limit
    for category in CATEGORIES:
        (folder / category.synset).mkdir(parents=True, exist_ok=True)
    (folder / "train_test_split").mkdir(exist_ok=True)
    lines = [f"{category.name}\t{category.synset}" for category in CATEGORIES]
    write_lines(folder / "synsetoffset2category.txt", lines)

    pieces = shapes()
    paths = []
    row_format = "%.6f %.6f %.6f %.6f %.6f %.6f %.6f\n"
    # Each shape draws from its number, so that a larger sample begins with the smaller one.
    for number in range(total):
        category = CATEGORIES[number % len(CATEGORIES)]
        rng = Generator(PCG64([seed, number]))
        path = f"{category.synset}/{rng.bytes(16).hex()}"
        points = _shape(pieces[category.name], category.first, rng)
        numbers = tuple(points.ravel().tolist())
        text = (row_format * len(points)) % numbers
        (folder / f"{path}.txt").write_bytes(text.encode())
        paths.append(path)

    order = Generator(PCG64([seed, total, 1])).permutation(total)
    for part, rows in deal(order, part_sizes(total, manifest.expected.splits["upstream"])).items():
        listed = [f"shape_data/{paths[i]}" for i in rows]
        (folder / list_name(part)).write_bytes(json.dumps(listed).encode())


def _shape(pieces: list[Piece], first_label: int, rng: Generator) -> F64:
    """Draw one shape: (N, 7) of x, y, z, normal x, y, z, label."""
    scale = rng.uniform(0.8, 1.2, 3)
    jittered = []
    areas = []
    for kind, part, centre, size in pieces:
        # The whole shape is scaled, and each piece a little on its own.
        jitter = rng.uniform(0.85, 1.15, 3)
        sides = size * scale * jitter
        dx, dy, dz = sides
        jittered.append((kind, part, centre * scale, sides))
        areas.append(2 * (dx * dy + dy * dz + dx * dz))

    # Small parts get some points more than their share, so that every label has examples.
    total = int(rng.integers(2_000, 3_001))
    share = np.array(areas) / np.sum(areas)
    by_area = (share * total).astype(int)
    counts = np.maximum(by_area, 40).tolist()
    blocks = []
    for (kind, part, centre, size), count in zip(jittered, counts, strict=True):
        position, normal = _surface(kind, size, count, rng)
        label = np.full((count, 1), float(first_label + part))
        blocks.append(np.concatenate([centre + position, normal, label], axis=1))
    points = np.concatenate(blocks)
    return points[rng.permutation(len(points))]


def _surface(
    kind: str,
    size: F64,
    count: int,
    rng: Generator,
) -> tuple[F64, F64]:
    """Return points (count, 3) on the surface of a piece around the origin, and unit normals."""
    half = size / 2
    # Drawn on a ball, cube or cylinder of radius 1; stretching divides the normal by the sides.
    if kind == "ball":
        unit = rng.normal(size=(count, 3))
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        normal = unit / half
    elif kind == "box":
        unit, normal = _box_surface(half, count, rng)
    else:
        unit, normal = _tube_surface(half, "xyz".index(kind[-1]), count, rng)
    return unit * half, normal / np.linalg.norm(normal, axis=1, keepdims=True)


def _box_surface(half: F64, count: int, rng: Generator) -> tuple[F64, F64]:
    """Return points on a cube of side 2, as many a face as its area in the box asks, and normals."""
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
    caps = rng.random(count) < 0.2
    ends = rng.choice([-1.0, 1.0], count)
    heights = rng.uniform(-1, 1, count)
    # A fifth of the points lie on the two caps, evenly over their area.
    radius = np.where(caps, np.sqrt(rng.random(count)), 1.0)

    unit = np.empty((count, 3))
    unit[:, axis] = np.where(caps, ends, heights)
    unit[:, round_axes] = ring * radius[:, None]

    # Normals of the caps point along the axis, those of the side away from it.
    outwards = ring / half[round_axes]
    normal = np.zeros((count, 3))
    normal[:, round_axes] = np.where(caps[:, None], 0.0, outwards)
    normal[:, axis] = np.where(caps, unit[:, axis], 0.0)
    return unit, normal
