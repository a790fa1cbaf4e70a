"""ShapeNet-Part: shapes with normals and part labels from the ``v0_normal`` release, as k-NN graphs.

Raw layout: ``synsetoffset2category.txt``, ``<synset>/<shape>.txt`` with one point per line (``x y z
nx ny nz label``) and ``train_test_split/shuffled_{train,val,test}_file_list.json``. Facts and
deviations: ``docs/datasets/shapenet-part.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import Field, field_validator

from kmip_data.arrays import F32
from kmip_data.errors import DamagedInput, unknown_name_error
from kmip_data.files.small_files import read_json
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.base import (
    Pipeline,
    Prepared,
    RawCopy,
    RecordTable,
    Split,
    Unit,
    require_raw,
)
from kmip_data.pipelines.domains.point_clouds import (
    KnnParams,
    knn_record,
    knn_schema,
    nodes_per_shard,
)
from kmip_data.pipelines.formats.text import parse_points, read_lines
from kmip_data.pipelines.graph_arrays.layout_reader import columns_of
from kmip_data.pipelines.parameters import PublishedSplitParams
from kmip_data.pipelines.units_and_splits import split_from_lists, units_by_size
from kmip_data.strict_model import read_shipped

#: Bytes of "0 0 0 0 0 0 0" and a line break, which bound the points of a file by its size.
MIN_LINE_BYTES = 14


class Category(NamedTuple):
    """Category with its WordNet synset, and its part labels ``first`` to ``last``."""

    name: str
    synset: str
    first: int
    last: int


CATEGORIES = tuple(Category(*row) for row in read_shipped("tables", "categories")["categories"])
CATEGORY_BY_SYNSET = {category.synset: category for category in CATEGORIES}


class ShapeNetPartParams(KnnParams):
    """Parameters that change the records."""

    k: int = Field(
        default=8,
        ge=1,
        le=65_535,
        description="neighbours per point",
    )
    category: tuple[str, ...] = Field(
        default=(),
        description="only shapes of this category, such as Airplane; repeat (default: all 16)",
    )

    @field_validator("category")
    @classmethod
    def _sort_categories(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Sort the names in category order; all 16 are equivalent to none."""
        valid_names = {category.name.lower(): category.name for category in CATEGORIES}
        lower_names = {name.lower() for name in names}
        for name in names:
            if name.lower() not in valid_names:
                known = list(valid_names.values())
                raise ValueError(unknown_name_error("category", name, known).message)
        if lower_names == valid_names.keys():
            return ()
        return tuple(name for lower, name in valid_names.items() if lower in lower_names)

    @property
    def categories(self) -> tuple[Category, ...]:
        """Categories to build, in order."""
        return tuple(c for c in CATEGORIES if not self.category or c.name in self.category)


class ShapeNetPartPipeline(Pipeline[ShapeNetPartParams, PublishedSplitParams]):
    """Pipeline of ``shapenet-part``."""

    version = 1
    Params = ShapeNetPartParams

    def schema(self, params: ShapeNetPartParams) -> Schema:
        """Return features (normals before positions, as in the k-MIP code), part label and category."""
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

    def prepare(self, raw: RawCopy, params: ShapeNetPartParams, workdir: Path) -> Prepared:
        """Check the category list and the split lists, and that every listed shape exists."""
        categories = {(category.name, category.synset) for category in CATEGORIES}
        path = raw.path / "synsetoffset2category.txt"
        for line_number, line in enumerate(read_lines(path), 1):
            if tuple(line.split()) not in categories:
                problem = f"not one of the 16 categories: {line[:100]!r}"
                raise DamagedInput(f"{path.name}, line {line_number}: {problem}")

        # Only the complete published lists may have shapes in two lists; 35 are.
        lists = read_part_lists(raw.path)
        num_shapes = sum(map(len, lists.values()))
        duplicates = [key for keys in lists.values() for key in keys if "@" in key]
        is_complete = not raw.sample and num_shapes == self.manifest.expected.graphs
        if duplicates and not is_complete:
            raise DamagedInput(
                f"{len(duplicates)} shapes are in two lists, such as {duplicates[0]}."
            )

        for part, keys in lists.items():
            for key in keys:
                name = _file_name(key)
                if not (raw.path / name).is_file():
                    raise DamagedInput(f"A shape of the {part} list is missing: {name}")
        return Prepared(raw.path)

    def units(self, prepared: Prepared, params: ShapeNetPartParams) -> list[Unit]:
        """Assign the listed shapes (train, val, test) by file size."""
        synsets = {category.synset for category in params.categories}
        keys = []
        for part_keys in read_part_lists(prepared.path).values():
            keys += [key for key in part_keys if key[:8] in synsets]
        max_points = {}
        for position in params.positions_to_build(len(keys)):
            key = keys[position]
            # Bound the points by the file size, without reading the file.
            size = (prepared.path / _file_name(key)).stat().st_size
            max_points[key] = size // MIN_LINE_BYTES + 1
        return units_by_size(max_points, nodes_per_shard(self.schema(params), params), "shapes")

    def records(
        self, prepared: Prepared, unit: Unit, params: ShapeNetPartParams
    ) -> Iterator[GraphRecord]:
        """Yield the graphs of a unit's shapes in list order."""
        index_dtype = self.schema(params).index_dtype
        position = {category.synset: i for i, category in enumerate(params.categories)}
        for key in unit.selection["shapes"]:
            name = _file_name(key)
            category = CATEGORY_BY_SYNSET[key[:8]]
            points = read_shape(prepared.path / name, category, name, self.manifest.max_nodes)
            # The paper's results have normals before positions.
            columns = {
                "node/x": np.concatenate([points[:, 3:6], points[:, :3]], axis=1),
                "node/y": points[:, 6].astype(np.uint8),
                "graph/category": np.array(position[category.synset], np.uint8),
            }
            record = knn_record(key, points[:, :3], columns, params, index_dtype)
            if record is not None:
                yield record

    def split(
        self, records: RecordTable, params: PublishedSplitParams, raw_folder: Path | None
    ) -> Split:
        """Apply the published lists in their shuffled order."""
        return split_from_lists(
            read_part_lists(require_raw(self.manifest, raw_folder)), records.keys, "lists"
        )

    def folder_name_pieces(self, params: ShapeNetPartParams) -> list[str]:
        """Return ``k8``, non-default edge parameters, and the categories."""
        parts = list(params.folder_name_pieces)
        if len(params.category) > 2:
            parts.append(f"{len(params.category)}-categories")
        elif params.category:
            parts.append("-".join(params.category).lower())
        return parts


PIPELINE = ShapeNetPartPipeline


def read_part_lists(folder: Path) -> dict[str, list[str]]:
    """Return the keys of each part, ``<synset>/<shape>``, in list order.

    The published lists have 35 shapes in two lists. The second occurrence is a separate record,
    with the list's name in its key: ``<synset>/<shape>@test``.
    """
    lists = {}
    listed_shapes: set[str] = set()
    for part in PARTS:
        name = split_list_name(part)
        try:
            entries = read_json(folder / name)
        except (OSError, ValueError) as error:
            raise DamagedInput(f"{name} cannot be read: {error}") from error
        if not isinstance(entries, list):
            raise DamagedInput(f"{name} is not a list, but a {type(entries).__name__}.")

        shapes = {}
        for entry in entries:
            # Validate entries, because they become paths.
            match = _ENTRY.fullmatch(entry) if isinstance(entry, str) else None
            shape = f"{match[1]}/{match[2]}" if match else ""
            if match is None or match[1] not in CATEGORY_BY_SYNSET or shape in shapes:
                raise DamagedInput(
                    f"{name} has a duplicate entry, or one of an unknown category: {repr(entry)[:100]}",
                    expected="shape_data/<synset>/<shape>",
                )
            shapes[shape] = f"{shape}@{part}" if shape in listed_shapes else shape
        listed_shapes |= shapes.keys()
        lists[part] = list(shapes.values())
    return lists


_ENTRY = re.compile(r"[^/]+/(\d{8})/([A-Za-z0-9_-]{1,48})")


def split_list_name(part: str) -> str:
    """Return the raw file that lists the shapes of a part."""
    return f"train_test_split/shuffled_{part}_file_list.json"


def _file_name(key: str) -> str:
    return f"{key.partition('@')[0]}.txt"


def read_shape(
    path: Path,
    category: Category,
    name: str,
    max_points: int,
) -> F32:
    """Return the points of one file, (N, 7) float32: x, y, z, normal x, y, z, part label."""
    points = parse_points(path.read_bytes(), 7, name=name)
    if len(points) > max_points:
        raise DamagedInput(f"{name} has {len(points)} points; at most {max_points} are allowed.")
    label = points[:, 6]
    is_invalid = ~np.isin(label, range(category.first, category.last + 1))
    if is_invalid.any():
        row = int(is_invalid.argmax())
        raise DamagedInput(
            f"{name}, line {row + 1}: {label[row]:g} is not a part of {category.name}, "
            f"{category.first} to {category.last}."
        )
    return points
