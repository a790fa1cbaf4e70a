"""Your own point clouds as k-NN graphs, whole or in blocks. Facts: ``docs/point-clouds.md``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, InstanceOf, PrivateAttr, field_validator, model_validator

from kmip_data.arrays import F32, Array
from kmip_data.columns.conform_to_schema import conform_rows
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.graphs.split_rules import grouped_split
from kmip_data.pipelines.base import CardAdditions, Prepared, RawFolder, Records, Split, Unit
from kmip_data.pipelines.common_columns import class_column, feature_column
from kmip_data.pipelines.datasets.points.cloud_from_columns import Cloud, pick_columns
from kmip_data.pipelines.datasets.points.columns import ReadOptions
from kmip_data.pipelines.datasets.points.files import LABEL_SUFFIXES, SUFFIXES, label_files
from kmip_data.pipelines.datasets.points.first_pass import Survey, load_cloud
from kmip_data.pipelines.datasets.points.labels import MAX_CLASSES, NO_CLASS, encode_labels
from kmip_data.pipelines.domains.point_clouds import (
    MIN_POINTS,
    PointParams,
    block_rows,
    check_neighbors,
    knn_record,
    knn_schema,
    normalised_positions,
)
from kmip_data.pipelines.user_files import (
    KEY_LENGTH,
    OwnPipeline,
    OwnSplitParams,
    OwnTextParams,
    escaped_key,
    files_below,
    format_classes_option,
    parse_class_count,
    parse_class_values,
)
from kmip_data.runtime.extras import require_extra
from kmip_data.strict_model import Strict

FOLDER = "points"
LIDAR = (".las", ".laz")
NONE = "none"


class PointSource(Strict):
    """Source of point clouds."""

    path: Path | None = Field(
        default=None, description=f"folder of point clouds, or one: {' '.join(sorted(SUFFIXES))}"
    )
    _unread: dict[str, str] = PrivateAttr(default_factory=dict)

    def files(self) -> dict[str, Path]:
        """Return the files to copy, by their names in the raw copy.

        Raises ``UsageError`` if there are none, ``MissingExtra`` for a missing package.
        """
        files, self._unread = files_below(self.path, "--archive", SUFFIXES, LABEL_SUFFIXES)
        if any(name.lower().endswith(LIDAR) for name in files):
            require_extra("lidar", "A LAS or LAZ file")
        return {f"{FOLDER}/{name}": path for name, path in files.items()}

    @property
    def unread(self) -> dict[str, str]:
        """Files that are not copied -> reason."""
        return self._unread

    @property
    def origin(self) -> str:
        """Name of the folder, for the card."""
        return "" if self.path is None else self.path.resolve().name


@dataclass(frozen=True)
class Facts:
    """Facts about the columns of a build, as its files state them."""

    classes: tuple[int | str, ...] | None = None  #: label of each class in order; ``None``: numbers
    complete: bool = True  #: True if every point has a label
    missing: tuple[str, ...] = ()  #: features with missing numbers
    summary: dict[str, Any] = field(default_factory=dict)


class OwnPointParams(PointParams, OwnTextParams):
    """Parameters that change the records."""

    k: int = Field(
        default=16,
        ge=1,
        le=65_535,
        description="neighbours per point",
    )
    position: str = Field(default="x,y,z", description="columns of the position; of two, z is 0")
    feature: tuple[str, ...] = Field(
        default=(),
        description="feature column besides the position, such as red, red/255 or time-1700000000; repeat",
    )
    label_column: str | None = Field(
        default=None,
        description="column of the label of each point (default: label, if all files have it); none: no labels",
    )
    task: Literal["classification", "regression"] | None = Field(
        default=None, description="meaning of the labels (default: as their values suggest)"
    )
    classes: str | None = Field(
        default=None,
        description="number of classes, or their labels in order, such as 2,6,9; other labels are no class"
        " (default: the largest label + 1)",
    )
    header: Literal["yes", "no"] | None = Field(
        default=None, description="first line of a text: names or a point (default: as it looks)"
    )
    bin: str | None = Field(
        default=None,
        description="names of the float32 columns of .bin files, such as x,y,z,intensity",
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

    @field_validator("classes", mode="before")
    @classmethod
    def _classes_as_text(cls, value: object) -> object:
        return format_classes_option(value)

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if len(self.position_columns) not in {2, 3} or not all(self.position_columns):
            raise ValueError("position names three columns, such as x,y,z, or two")
        names = len(self.class_name)
        if names == 1:
            raise ValueError("a classification needs at least two classes")
        classes = 0 if self.classes is None else parse_class_count(self.classes, MAX_CLASSES)
        if not names:
            return self
        if classes not in {0, names}:
            raise ValueError(f"{names} names for {classes} classes")
        return self if self.codes else self.model_copy(update={"classes": str(names)})

    @property
    def position_columns(self) -> tuple[str, ...]:
        """The three columns of the position, or two: z is 0."""
        return tuple(column.strip() for column in self.position.split(","))

    @property
    def codes(self) -> tuple[int, ...]:
        """Labels of the classes in order, if given."""
        return parse_class_values(self.classes)

    @property
    def read_options(self) -> ReadOptions:
        """Answers to what files do not say."""
        names = tuple(name.strip() for name in self.bin.split(",")) if self.bin else ()
        return ReadOptions(self.position_columns, self.header, names, self.encoding)


class ResolvedPointParams(OwnPointParams):
    """Parameters with the columns and classes of the files."""

    facts: InstanceOf[Facts] = Field(exclude=True)


class OwnPointPipeline(OwnPipeline[ResolvedPointParams]):
    """Pipeline of ``points``, for datasets of any name."""

    version = 2
    Params = OwnPointParams
    Source = PointSource

    def schema(self, params: ResolvedPointParams) -> Schema:
        """Position, features, in blocks also the position in the room, and the class."""
        facts = params.facts
        fields = (*(f"{axis} [unit of the file]" for axis in "xyz"), *params.feature)
        fields += tuple(f"{feature} missing" for feature in facts.missing)
        doc = "position from the lowest corner of the cloud"
        most = self.manifest.max_nodes
        if params.block is not None:
            fields += tuple(f"{axis} / room extent" for axis in "xyz")
            doc = "position centred on the block's floor, features, position in the room"
            most = params.block_points
        columns = [feature_column("node/x", fields, doc)]
        if params.label_column is not None:
            columns.append(_label_column(params.label_column, facts))
        return knn_schema(
            tuple(columns),
            params,
            pos=0,
            max_nodes=most,
            key_length=KEY_LENGTH,
        )

    def class_names(self, params: ResolvedPointParams) -> tuple[str, ...]:
        """Return the given class names, else labels that are texts or chosen."""
        classes = params.facts.classes or ()
        if params.class_name or list(classes) == list(range(len(classes))):
            return params.class_name
        return tuple(map(str, classes))

    def resolve(self, params: OwnPointParams, raw: RawFolder) -> ResolvedPointParams:
        """Read all clouds once; return the parameters with the label, its task and its classes.

        Raises ``DamagedInput`` that names every cloud that cannot be used, unless they are skipped.
        """
        given = params.label_column
        label = "" if given == NONE else given
        survey = Survey(params.read_options, params.feature, label)
        labels = label_files(raw.members)
        clouds = _cloud_members(raw.members)
        strays = sorted(raw.members.keys() - {*clouds, *labels.values()})
        check = partial(_check_size, params=params, most=self.manifest.max_nodes)
        for name in clouds:
            own_labels = raw.path / labels[name] if name in labels else None
            survey.add(name, raw.path / name, own_labels, check)
        self.stop_or_skip_all(survey.unusable, len(clouds), params)

        column = survey.label_column()
        chosen: dict[str, Any] = {"label_column": column, "task": None}
        facts = Facts(missing=tuple(text for text in params.feature if text in survey.missing))
        warnings = survey.warnings()
        without = 0
        if column is not None and survey.clouds:
            task = survey.labels.task(params.task, column)
            without = survey.labels.missing
            if task == "classification":
                codes = params.codes
                count = int(params.classes) if params.classes and not codes else None
                classes = survey.labels.classes(codes, count, column)
                without = survey.labels.without_class(classes)
                chosen["classes"] = params.classes or str(len(classes))
                facts = replace(facts, classes=tuple(classes))
                if not params.classes and (advice := survey.labels.advice(classes, column)):
                    warnings.append(advice)
            facts = replace(facts, complete=not without)
            chosen["task"] = task
        summary: dict[str, Any] = {}
        if column is not None and without:
            total = survey.labels.points
            summary["without_label"] = f"{without:,} of {total:,} points"
        strays_of = dict.fromkeys(strays, "labels of no cloud: none has its name")
        unread = {**self.unread, **strays_of}
        summary["ignored"] = survey.unused_data() + [
            f"{name}: {why}" for name, why in unread.items()
        ]
        summary["warnings"] = warnings
        facts = replace(facts, summary=summary)
        return ResolvedPointParams.from_params(params, facts=facts, **chosen)

    def prepare(self, raw: RawFolder, params: ResolvedPointParams, workdir: Path) -> Prepared:
        """Write nothing: each unit reads its cloud."""
        labels = label_files(raw.members)
        return Prepared(raw.path, {"clouds": _cloud_members(raw.members), "labels": labels})

    def card_additions(self, prepared: Prepared, params: ResolvedPointParams) -> CardAdditions:
        """Return what the files have that is not used, and warnings."""
        summary = params.facts.summary
        return CardAdditions({"files": summary}, summary.get("warnings", []))

    def units(self, prepared: Prepared, params: ResolvedPointParams) -> list[Unit]:
        """Make each cloud a shard; a limit counts clouds."""
        clouds = prepared.plan["clouds"]
        chosen = params.positions_to_build(len(clouds))
        return [Unit(i, clouds[row], {"cloud": clouds[row]}) for i, row in enumerate(chosen)]

    def records(
        self, prepared: Prepared, unit: Unit, params: ResolvedPointParams
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the graph of a cloud, or the graphs of its blocks."""
        name = unit.items["cloud"]
        key = escaped_key(name.partition("/")[2], KEY_LENGTH - len("/000000"))
        labels = prepared.plan["labels"].get(name)
        try:
            cloud = read_cloud(prepared.path, name, labels, params)
            _check_size(name, cloud, params, self.manifest.max_nodes)
            yield from self._cloud_graphs(key, cloud, params)
        except DamagedInput as error:
            yield self.stop_or_skip(key, error, params)

    def _cloud_graphs(
        self, key: str, cloud: Cloud, params: ResolvedPointParams
    ) -> Iterator[GraphRecord | Skipped]:
        facts = params.facts
        size = params.block
        flags = [at for at, text in enumerate(params.feature) if text in facts.missing]
        features = np.column_stack([cloud.features, cloud.missing[:, flags]])
        label = np.empty(0)
        if cloud.label is not None:
            label = encode_labels(cloud.label, facts.classes)
        if size is None:
            x = np.column_stack([cloud.xyz, features]).astype(np.float32)
            yield self._cloud_record(key, x, label, params)
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
            hint = "leave out --set block"
            if len(cloud.xyz) >= MIN_POINTS:
                hint = f"--set block={float(cloud.xyz.max()) * 1.01:.3g}, or {hint}"
            raise DamagedInput(
                f"{key} ({len(cloud.xyz)} points) has no block: no window of at least 100 points.",
                next=hint,
            )
        top = cloud.xyz.max(axis=0)
        for number, rows in enumerate(blocks):
            centred, share = normalised_positions(cloud.xyz, rows, size, top)
            x = np.column_stack([centred, features[rows], share]).astype(np.float32)
            y = label[rows] if len(label) else label
            yield self._cloud_record(f"{key}/{number:06d}", x, y, params)

    def _cloud_record(
        self,
        key: str,
        x: F32,
        y: Array,
        params: ResolvedPointParams,
    ) -> GraphRecord | Skipped:
        schema = self.schema(params)
        columns: dict[str, Array] = {"node/x": x}
        if params.label_column is not None:
            columns["node/y"] = conform_rows(y, schema.column("node/y"), key)
        pos = np.ascontiguousarray(x[:, :3])
        record = knn_record(key, pos, columns, params, schema.index_dtype)
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
        clouds = {row: self.file_of_record(key) for row, key in enumerate(records.keys)}
        if len(set(clouds.values())) in {1, len(clouds)}:
            return split
        val = len(split.parts["val"])
        test = len(split.parts["test"])
        seed = params.split_seed
        # Draw twice: first the test clouds out of all, then the validation clouds out of the rest.
        dealt = grouped_split(list(clouds), [], clouds, val=test, seed=seed)
        parts = grouped_split(
            dealt["train"],
            dealt["val"],
            clouds,
            val=val,
            seed=seed,
        )
        return replace(split, parts=parts, note="whole clouds are dealt: blocks of one overlap")

    def file_of_record(self, key: str) -> str:
        """Return the name of a cloud, by the key of one of its blocks."""
        return re.sub(r"/\d{6}$", "", key)

    def folder_name_pieces(self, params: ResolvedPointParams) -> list[str]:
        """Neighbours, and the width of blocks."""
        block = [] if params.block is None else [f"block{params.block:g}"]
        return [*params.edge_name_parts, *block, *super().folder_name_pieces(params)]


PIPELINE = OwnPointPipeline


def _cloud_members(members: Iterable[str]) -> list[str]:
    """Return the members that are clouds, not labels of others."""
    names = sorted(members)
    labels = {*label_files(names).values()}
    return [name for name in names if name.lower().endswith(SUFFIXES) and name not in labels]


def read_cloud(folder: Path, name: str, labels: str | None, params: ResolvedPointParams) -> Cloud:
    """Read the columns named by the parameters; ``DamagedInput`` if the file cannot be used."""
    own_labels = None if labels is None else folder / labels
    columns = load_cloud(folder / name, name, own_labels, params.read_options)
    return pick_columns(columns, name, params.position_columns, params.feature, params.label_column)


def _check_size(name: str, cloud: Cloud, params: OwnPointParams, most: int) -> None:
    """Raise ``DamagedInput`` for a cloud of too many points, or too few."""
    count = len(cloud.xyz)
    if params.block is not None:
        return
    if count > most:
        # Windows of as many points as a block has.
        floor = cloud.xyz[:, :2].max(axis=0)
        width = math.sqrt(max(float(floor.prod()), 1e-6) * params.block_points / count)
        raise DamagedInput(
            f"{name} has {count:,} points; at most {most:,} are allowed.",
            next=f"cut it into blocks of a width: --set block={width:.2g}",
        )
    check_neighbors(name, count, params)


def _label_column(name: str, facts: Facts) -> Column:
    """Return the column of labels: classes, -1 where there is none, or numbers."""
    if facts.classes is None:
        return Column(
            key="node/y",
            attribute="y",
            stored="float32",
            presented="float32",
            doc=f"number, column {name!r}",
            finite=facts.complete,
        )
    column = class_column("node/y", len(facts.classes), f"class, column {name!r}")
    return column if facts.complete else replace(column, stored="int32", low=NO_CLASS)
