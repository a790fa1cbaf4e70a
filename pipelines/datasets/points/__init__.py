"""Your own point clouds as k-NN graphs, whole or in blocks. Facts: ``docs/own-data.md``."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from kmip_data.arrays import F32, F64, I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Schema
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.graphs.splits import grouped_split
from kmip_data.pipelines.base import About, Prepared, RawFolder, Records, Split, Unit
from kmip_data.pipelines.datasets.points.files import READERS, read_points
from kmip_data.pipelines.shared.clouds import (
    PointParams,
    block_rows,
    connect,
    knn_schema,
    normalised,
)
from kmip_data.pipelines.shared.own import (
    OwnParams,
    OwnPipeline,
    OwnSplitParams,
    ascii_key,
    files_below,
)
from kmip_data.pipelines.shared.records import class_column, feature_column
from kmip_data.runtime.extras import require_extra
from kmip_data.shipped import Strict

FOLDER = "points"
LIDAR = (".las", ".laz")
KEY_LENGTH = 160
MAX_CLASSES = 65_536


class PointSource(Strict):
    """Source of point clouds."""

    path: Path | None = Field(
        default=None, description=f"folder of point clouds, or one: {' '.join(sorted(READERS))}"
    )

    def files(self) -> dict[str, Path]:
        """Return the files to copy, by their names in the raw copy.

        Raises ``UsageError`` if there are none, ``MissingExtra`` for a missing package.
        """
        files = files_below(self.path, "--archive", READERS)
        if any(name.lower().endswith(LIDAR) for name in files):
            require_extra("lidar", "A LAS or LAZ file")
        return {f"{FOLDER}/{name}": path for name, path in files.items()}

    @property
    def origin(self) -> str:
        """Name of the folder, for the card."""
        return "" if self.path is None else self.path.resolve().name


class OwnPointParams(PointParams, OwnParams):
    """Parameters that change the records."""

    k: int = Field(
        default=16,
        ge=1,
        le=65_535,
        description="neighbours per point",
    )
    position: str = Field(default="x,y,z", description="columns of the position")
    feature: tuple[str, ...] = Field(
        default=(),
        description="feature column besides the position, such as red, or red/255; repeat",
    )
    label_column: str | None = Field(default=None, description="column of the class of each point")
    classes: int | None = Field(
        default=None,
        ge=2,
        le=MAX_CLASSES,
        description="number of classes (default: the largest in the files + 1)",
    )
    block: float | None = Field(
        default=None,
        gt=0,
        description="cut clouds in blocks of this width by the rule of S3DIS",
    )
    block_points: int = Field(
        default=4_096,
        ge=2,
        le=1_000_000,
        description="points per block",
    )
    block_seed: int = Field(
        default=0,
        ge=0,
        description="seed of the points drawn for each block",
    )

    @model_validator(mode="after")
    def _columns(self) -> Self:
        if len(self.position_columns) != 3 or not all(self.position_columns):
            raise ValueError("position names three columns, such as x,y,z")
        names = len(self.class_name)
        if names == 1:
            raise ValueError("a classification needs at least two classes")
        if not names:
            return self
        if self.classes not in {None, names}:
            raise ValueError(f"{names} names for {self.classes} classes")
        return self.model_copy(update={"classes": names})

    @property
    def position_columns(self) -> tuple[str, ...]:
        """The three columns of the position."""
        return tuple(column.strip() for column in self.position.split(","))


def _source(feature: str, columns: Collection[str]) -> tuple[str, float]:
    """Return the column and the divisor of ``red/255``, which may be the name of a column itself."""
    if feature in columns:
        return feature, 1.0
    name, _, number = feature.rpartition("/")
    # A name may hold a slash: only a number behind the last one is a divisor.
    with contextlib.suppress(ValueError):
        if name and 0 < (divisor := float(number)) < math.inf:
            return name, divisor
    return feature, 1.0


class OwnPointPipeline(OwnPipeline[OwnPointParams]):
    """Pipeline of ``points``, for datasets of any name."""

    version = 1
    Params = OwnPointParams
    Source = PointSource

    def schema(self, params: OwnPointParams) -> Schema:
        """Position, features, in blocks also the position in the room, and the class."""
        fields = (*(f"{axis} [unit of the file]" for axis in "xyz"), *params.feature)
        doc = "position from the lowest corner of the cloud"
        most = self.manifest.max_nodes
        if params.block is not None:
            fields += tuple(f"{axis} / room extent" for axis in "xyz")
            doc = "position centred on the block's floor, features, position in the room"
            most = params.block_points
        columns = [feature_column("node/x", fields, doc)]
        if params.label_column is not None:
            doc = f"class, column {params.label_column!r}"
            columns.append(class_column("node/y", params.classes or MAX_CLASSES, doc))
        return knn_schema(
            tuple(columns),
            params,
            pos=0,
            max_nodes=most,
            key_length=KEY_LENGTH,
        )

    def resolve(self, params: OwnPointParams, raw: RawFolder) -> OwnPointParams:
        """Return the parameters with the number of classes, read from the files unless given."""
        if params.label_column is None or params.classes is not None:
            return params
        # The number of classes sets the type of the labels, so all files are read once for it.
        largest = -1
        for name in sorted(raw.members):
            try:
                largest = max(largest, int(read_cloud(raw.path / name, name, params).y.max()))
            except DamagedInput as error:
                self.stop_or_skip(name, error, params)
        return params.model_copy(update={"classes": max(largest + 1, 1)})

    def prepare(self, raw: RawFolder, params: OwnPointParams, workdir: Path) -> Prepared:
        """Write nothing: each unit reads its cloud."""
        clouds = sorted(raw.members)
        ignored: list[str] = []
        with contextlib.suppress(DamagedInput):  # stops or is skipped when its record is made
            columns = read_points(raw.path / clouds[0], clouds[0])
            used = {*params.position_columns, params.label_column}
            used |= {_source(feature, columns)[0] for feature in params.feature}
            ignored = [name for name in columns if name not in used]
        return Prepared(raw.path, {"clouds": clouds, "ignored": ignored})

    def about(self, prepared: Prepared, params: OwnPointParams) -> About:
        """Return the columns of the first cloud that are not used."""
        return About({"files": {"ignored": prepared.plan["ignored"]}})

    def units(self, prepared: Prepared, params: OwnPointParams) -> list[Unit]:
        """Make each cloud a shard; a limit counts clouds."""
        clouds = prepared.plan["clouds"]
        chosen = params.choose(len(clouds))
        return [Unit(i, clouds[row], {"cloud": clouds[row]}) for i, row in enumerate(chosen)]

    def records(
        self, prepared: Prepared, unit: Unit, params: OwnPointParams
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the graph of a cloud, or those of its blocks."""
        name = unit.items["cloud"]
        key = ascii_key(name.partition("/")[2], KEY_LENGTH - len("/000000"))
        try:
            yield from self._graphs(key, read_cloud(prepared.path / name, name, params), params)
        except DamagedInput as error:
            yield self.stop_or_skip(key, error, params)

    def _graphs(
        self, key: str, cloud: Cloud, params: OwnPointParams
    ) -> Iterator[GraphRecord | Skipped]:
        count = len(cloud.xyz)
        most = self.manifest.max_nodes
        size = params.block
        if size is None:
            if count > most:
                raise DamagedInput(
                    f"{key} has {count:,} points; at most {most:,} are allowed.",
                    next="cut it into blocks: --set block=WIDTH",
                )
            x = np.column_stack([cloud.xyz, cloud.features]).astype(np.float32)
            yield self._record(key, x, cloud.y, params)
            return

        # Seed blocks by the cloud's key, so that other files do not affect them.
        blocks = block_rows(
            cloud.xyz[:, :2],
            size=size,
            points=params.block_points,
            room=key,
            seed=params.block_seed,
        )
        if not blocks:
            raise DamagedInput(
                f"{key} ({count} points) has no block: no window of at least 100 points.",
                next="use a larger --set block=WIDTH",
            )
        top = cloud.xyz.max(axis=0)
        for number, rows in enumerate(blocks):
            centred, share = normalised(cloud.xyz, rows, size, top)
            x = np.column_stack([centred, cloud.features[rows], share]).astype(np.float32)
            y = cloud.y[rows] if len(cloud.y) else cloud.y
            yield self._record(f"{key}/{number:06d}", x, y, params)

    def _record(
        self,
        key: str,
        x: F32,
        y: I64,
        params: OwnPointParams,
    ) -> GraphRecord | Skipped:
        schema = self.schema(params)
        columns: dict[str, Array] = {"node/x": x}
        if params.label_column is not None:
            columns["node/y"] = y.astype(schema.column("node/y").stored)
        pos = np.ascontiguousarray(x[:, :3])
        record = connect(key, pos, columns, params, schema.index_dtype)
        if record is None:
            return Skipped(key, f"{len(x)} points, too few for k = {params.k}")
        return record

    def split(self, records: Records, params: OwnSplitParams, raw: Path | None) -> Split:
        """Divide clouds by their folders, else at random, each with all of its overlapping blocks.

        Blocks of a single cloud are divided as records.
        """
        split = super().split(records, params, raw)
        if split.rule == "given":
            return split
        # Blocks of one cloud overlap by half: in two parts they would leak into the test.
        clouds = {row: self.file_of(key) for row, key in enumerate(records.keys)}
        if len(set(clouds.values())) in {1, len(clouds)}:
            return split
        val = len(split.parts["val"])
        test = len(split.parts["test"])
        seed = params.split_seed
        # Draw twice: first the test clouds out of all, then those that validate out of the rest.
        dealt = grouped_split(list(clouds), [], clouds, val=test, seed=seed)
        parts = grouped_split(
            dealt["train"],
            dealt["val"],
            clouds,
            val=val,
            seed=seed,
        )
        return replace(split, parts=parts, note="whole clouds are dealt: blocks of one overlap")

    def file_of(self, key: str) -> str:
        """Return the name of a cloud, by the key of one of its blocks."""
        return re.sub(r"/\d{6}$", "", key)

    def name_parts(self, params: OwnPointParams) -> list[str]:
        """Neighbours, and the width of blocks."""
        block = [] if params.block is None else [f"block{params.block:g}"]
        return [*params.edge_name_parts, *block, *super().name_parts(params)]


PIPELINE = OwnPointPipeline


class Cloud(NamedTuple):
    """The used columns of a cloud of N points."""

    xyz: F64  #: (N, 3), the smallest of each axis 0: coordinates of maps are too large for float32
    features: F64  #: (N, F)
    y: I64  #: (N,), or (0,) without a label column


def read_cloud(path: Path, name: str, params: OwnPointParams) -> Cloud:
    """Read the columns named by the parameters.

    Raises ``DamagedInput`` for a missing or non-finite column.
    """
    columns = read_points(path, name)

    def column(wanted: str) -> F64:
        if wanted not in columns:
            raise DamagedInput(
                f"{name} has no column {wanted!r}, only {', '.join(columns)}.",
                next="name columns of the file: --set position=, feature=, label_column=",
            )
        values = np.asarray(columns[wanted], np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            row = int(np.argmin(finite))
            raise DamagedInput(
                f"{name}: column {wanted!r} of point {row} is not finite: {values[row]}."
            )
        return values

    # Columns by name, in float64: scaling and the shift to 0 come before float32.
    xyz = np.column_stack([column(axis) for axis in params.position_columns])
    features = np.empty((len(xyz), len(params.feature)))
    for number, feature in enumerate(params.feature):
        source, divisor = _source(feature, columns)
        features[:, number] = column(source) / divisor

    # Labels are compared as floats: 1.5 must not become class 1.
    label = np.empty(0) if params.label_column is None else column(params.label_column)
    y = label.astype(np.int64)
    wrong = (y != label) | (y < 0) | (y >= MAX_CLASSES)
    if wrong.any():
        row = int(wrong.argmax())
        raise DamagedInput(
            f"{name}: point {row}: {label[row]:g} in column {params.label_column!r} is not an integer "
            f"from 0 to {MAX_CLASSES - 1}."
        )
    if params.classes is not None and y.max(initial=0) >= params.classes:
        raise DamagedInput(
            f"{name}: the class {y.max()} is out of range, 0 to {params.classes - 1}.",
            next="--set classes=NUMBER",
        )
    return Cloud(xyz - xyz.min(axis=0), features, y)
