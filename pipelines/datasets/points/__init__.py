"""Your own point clouds as k-NN graphs, optionally cut into blocks. Facts: ``docs/point-clouds.md``."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import Field, InstanceOf, field_validator, model_validator

from kmip_data.arrays import F32, Array
from kmip_data.columns.conform_to_schema import conform_rows
from kmip_data.columns.labels import (
    MAX_CLASSES,
    stored_labels,
)
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import FieldKind, Schema
from kmip_data.format.writer import SkippedRecord
from kmip_data.pipelines.base import CardAdditions, Prepared, RawCopy, Unit
from kmip_data.pipelines.common_columns import feature_column
from kmip_data.pipelines.companion_files.companions import (
    COMPANION_SUFFIXES,
    Companions,
    companions_beside,
    find_companions,
)
from kmip_data.pipelines.companion_files.item_columns import (
    InferredLabels,
    infer_labels,
    label_column,
    label_row,
    labels_of_items,
    split_columns,
)
from kmip_data.pipelines.datasets.points.cloud_from_columns import Cloud, MissingLabel
from kmip_data.pipelines.datasets.points.files import (
    CLOUD_SUFFIXES,
    LABEL_SUFFIXES,
    TEXT_SUFFIXES,
    is_annotation,
)
from kmip_data.pipelines.datasets.points.first_pass import Survey
from kmip_data.pipelines.datasets.points.layouts import find_clouds
from kmip_data.pipelines.described_parameters import DescribedPipeline, DescribedSource
from kmip_data.pipelines.domains.cloud_columns import CloudOptions
from kmip_data.pipelines.domains.point_clouds import (
    MIN_BLOCK_POINTS,
    KnnParams,
    block_rows,
    check_neighbors,
    knn_record,
    knn_schema,
    normalised_positions,
)
from kmip_data.pipelines.graph_arrays.spooled_graphs import SpooledGraphs, spool_graphs
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.pipelines.own_pipeline import (
    KEY_LENGTH,
    OwnTextParams,
    classes_as_text,
    escaped_key,
    files_below,
    format_classes_option,
    parse_class_count,
    parse_class_values,
    skip_reason,
)
from kmip_data.pipelines.own_split import FOLDER_RULE, OwnSplitParams
from kmip_data.runtime.extras import require_extra
from kmip_data.text import nearest_names

_SPOOL_FOLDER = "clouds"
LIDAR_SUFFIXES = (".las", ".laz")


class PointSource(DescribedSource):
    """Source of point clouds."""

    path: Path | None = Field(
        default=None,
        description=f"folder of point clouds, or one file: {' '.join(sorted(CLOUD_SUFFIXES))}",
    )

    def files(self) -> dict[str, Path]:
        """Return the files to copy, by their names below the folder.

        Raises ``UsageError`` if there are none, ``MissingExtra`` if a package is missing.
        """
        files, self._ignored_files = files_below(
            self.path, "archive", CLOUD_SUFFIXES, {*LABEL_SUFFIXES, *COMPANION_SUFFIXES}
        )
        if self.path is not None:
            companions, reasons = companions_beside(self.path, [*find_clouds(files).files])
            files = {**companions, **files}
            self._ignored_files |= reasons
        if any(name.lower().endswith(LIDAR_SUFFIXES) for name in files):
            require_extra("lidar", "A LAS or LAZ file")
        return files

    @property
    def origin(self) -> str:
        """Name of the folder, for the card."""
        return "" if self.path is None else self.path.resolve().name


class InferredPoints(InferredLabels):
    """Labels, classes and missing features, inferred from the files of a build."""

    label_level: Literal["node", "graph"] = "node"  #: owner of a label: a point, or a cloud
    folds: int = 0  #: number of folders that are folds; 0 if there are none
    missing: tuple[str, ...] = ()  #: features with missing values


class OwnPointParams(KnnParams, OwnTextParams):
    """Parameters that change the records."""

    k: int = Field(
        default=16,
        ge=1,
        le=65_535,
        description="neighbours per point",
    )
    position: str = Field(default="x,y,z", description="position columns; with two columns, z is 0")
    feature: tuple[str, ...] = Field(
        default=(),
        description="feature column besides the position, such as red, red/255 or time-1700000000; repeat",
    )
    label: str | None = Field(
        default=None,
        description="column with the labels: of a table beside the clouds, or of points (default: label, "
        "class or classification); folder: the folder of a cloud is its class; none: no labels",
    )
    label_optional: bool = Field(
        default=False, description="build without labels if no file has them, as --like does"
    )
    group: str = Field(
        default="",
        description="column of a table beside the clouds: clouds with equal values stay in one part of a "
        "random split",
    )
    task: Literal["classification", "regression"] | None = Field(
        default=None, description="task of the labels (default: inferred from their values)"
    )
    classes: str | None = Field(
        default=None,
        description="number of classes, or their labels in order, such as 2,6,9 or tree,wall; other labels "
        "count as missing"
        " (default: the largest label + 1)",
    )
    header: Literal["yes", "no"] | None = Field(
        default=None,
        description="first line of a text file has column names (default: inferred)",
    )
    bin: str | None = Field(
        default=None,
        description="names of the float32 columns of .bin files, such as x,y,z,intensity",
    )
    block: float | None = Field(
        default=None,
        gt=0,
        description="cut clouds into blocks of this width, by the rule of S3DIS",
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

    _classes_as_text = field_validator("classes", mode="before")(format_classes_option)

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if len(self.position_columns) not in {2, 3} or not all(self.position_columns):
            raise ValueError("position names three columns, such as x,y,z, or two")
        num_names = len(self.class_name)
        if num_names == 1:
            raise ValueError("a classification needs at least two classes")
        num_classes = 0 if self.classes is None else parse_class_count(self.classes, MAX_CLASSES)
        if not num_names:
            return self
        if num_classes not in {0, num_names}:
            raise ValueError(f"{num_names} names for {num_classes} classes")
        return self if self.class_labels else self.model_copy(update={"classes": str(num_names)})

    @property
    def position_columns(self) -> tuple[str, ...]:
        """Two or three position columns; with two columns, z is 0."""
        return tuple(column.strip() for column in self.position.split(","))

    @property
    def class_labels(self) -> tuple[int | str, ...]:
        """Labels of the classes in order, if given."""
        return parse_class_values(self.classes)

    @property
    def read_options(self) -> CloudOptions:
        """Options for reading the files."""
        names = tuple(name.strip() for name in self.bin.split(",")) if self.bin else ()
        return CloudOptions(self.position_columns, self.header, names, self.encoding, self.decimal)


class InferredPointParams(OwnPointParams):
    """Parameters completed with the columns and classes of the files."""

    inferred: InstanceOf[InferredPoints] = Field(exclude=True)


class OwnPointPipeline(DescribedPipeline[InferredPointParams]):
    """Pipeline of ``points``, for datasets of any name."""

    version = 2
    Params = OwnPointParams
    Source = PointSource

    def schema(self, params: InferredPointParams) -> Schema:
        """Return the columns of positions and features, and of labels if any."""
        inferred = params.inferred
        doc = "position from the lowest corner of the cloud"
        max_points = self.manifest.max_nodes
        if params.block is not None:
            doc = "position centred on the block's floor, features, position in the room"
            max_points = params.block_points
        fields = tuple(name for name, _ in _fields_of_points(params))
        columns = [feature_column("node/x", fields, doc)]
        if inferred.label is not None:
            columns.append(
                label_column(
                    inferred.label,
                    inferred.label_level,
                    inferred.classes,
                    is_complete=inferred.is_complete,
                )
            )
        columns += inferred.split_columns
        return knn_schema(
            tuple(columns),
            params,
            pos=0,
            max_nodes=max_points,
            key_length=KEY_LENGTH,
        )

    def class_names(self, params: InferredPointParams) -> tuple[str, ...]:
        """Return the given class names, or labels that are not consecutive integers from 0."""
        classes = params.inferred.classes or ()
        if params.inferred.class_names and not params.class_name:
            return params.inferred.class_names
        if params.class_name or list(classes) == list(range(len(classes))):
            return params.class_name
        return tuple(map(str, classes))

    def prepare(self, raw: RawCopy, params: OwnPointParams, workdir: Path) -> Prepared:
        """Read all clouds once into a spool of arrays, and infer the label column and classes.

        Raises ``DamagedInput`` naming every unusable cloud, unless they are skipped.
        """
        # 1. Clouds, and what other files say about them.
        folder = find_clouds(raw.members)
        options = params.read_options
        named = [
            name
            for name in raw.members
            if not is_annotation(name) and name not in folder.labels.values()
        ]
        companions = find_companions(raw.path, named, list(folder.files), options)
        companions.leave_out(params.ignore)
        files = {name: folder.files[name] for name in folder.files if name not in companions.files}
        clouds = list(files)

        # 2. Read the clouds.
        labels = None
        if params.label is not None:
            labels = labels_of_items(params.label, clouds, companions)
        is_of_points = labels is None and params.label != NO_LABEL
        survey = Survey(options, params.feature, params.label if is_of_points else "")
        survey.is_label_optional = params.label_optional
        check = partial(_check_size, params=params, max_points=self.manifest.max_nodes)
        positions: dict[str, int] = {}  # cloud -> its position in the spool

        def usable_clouds() -> Iterator[GraphRecord]:
            for name, parts in files.items():
                label_path = raw.path / folder.labels[name] if name in folder.labels else None
                cloud = survey.add(name, [raw.path / part for part in parts], label_path, check)
                if cloud is not None:
                    positions[name] = len(positions)
                    yield cloud.as_graph(str(positions[name]))

        spool_graphs(workdir / _SPOOL_FOLDER, usable_clouds())
        _check_label_of_tables(params.label, survey, companions)
        self.stop_or_skip_all(survey.unusable.values(), len(clouds), params)

        # 3. Labels of points, else of clouds; parts and groups of clouds.
        column = survey.label_column()
        if column is None and params.label is None:
            labels = labels_of_items(None, list(positions), companions, group=params.group)
        statistics = survey.label_statistics
        if labels is not None:
            column = labels.name
            statistics = labels.statistics()
        inferred = InferredPoints()
        warnings = survey.warnings()
        if column is not None and statistics.points:
            inferred = InferredPoints(
                **infer_labels(statistics, column, params.task, companions.legends, params.classes)
            )
            warnings += inferred.summary["warnings"]
        of_clouds = "" if labels is None else labels.name
        for_split = split_columns(companions, params.group, of_clouds)
        inferred = inferred.model_copy(
            update={
                "label_level": "node" if labels is None else "graph",
                "folds": len(folder.annotated_areas),
                "split_columns": tuple(for_split),
                "missing": tuple(name for name in params.feature if name in survey.missing),
            }
        )
        read_files = {*folder.labels.values(), *itertools.chain(*files.values())}
        read_files |= companions.files
        unread = _unread_parameters(params, read_files, inferred)
        params.refuse_unread(unread, **(params.model_dump() if params.label_optional else {}))

        # 4. What was chosen and left out.
        fields = [field for column in for_split for field in column.fields]
        legend = inferred.summary.get("legend", "")
        unused = companions.unused({of_clouds, *fields}, legend)
        ignored_files = {**self.ignored_files, **folder.ignored, **unused}
        inferred.summary["warnings"] = warnings
        missing_note = "; missing features are 0" if inferred.missing else ""
        inferred.summary["positions"] = f"from the lowest corner of each cloud{missing_note}"
        inferred.summary["ignored"] = survey.unused_data() + [
            f"{name}: {reason}" for name, reason in ignored_files.items()
        ]
        if params.label is None and (labels is not None or survey.is_label_guessed):
            source = f"the column {column!r}" if labels is None else labels.source
            inferred.summary["labels"] = f"{source}, by its name; none: label='none'"
        facts = {
            "clouds": clouds,
            "labels": {} if labels is None else dict(labels.values),
            "split_columns": {column.key: values for column, values in for_split.items()},
            "positions": positions,
            "unusable": {name: skip_reason(error) for name, error in survey.unusable.items()},
            "inferred": inferred.model_dump(mode="json"),
        }
        return Prepared(workdir, facts)

    def with_inferred(self, params: OwnPointParams, prepared: Prepared) -> InferredPointParams:
        """Return the parameters with the label column and classes of the files."""
        inferred = InferredPoints.model_validate_json(json.dumps(prepared.facts["inferred"]))
        return InferredPointParams.from_params(params, inferred=inferred)

    def card_additions(self, prepared: Prepared, params: InferredPointParams) -> CardAdditions:
        """Return the unused data of the files, and warnings."""
        summary = params.inferred.summary
        kinds = {"node/x": [kind for _, kind in _fields_of_points(params)]}
        inferred = params.inferred
        parameters = params.described(
            label=inferred.label or params.label or NO_LABEL,
            task=None if inferred.label is None or inferred.classes else "regression",
            classes=classes_as_text(inferred.classes),
            class_name=self.class_names(params) or None,
        )
        files = {**summary, "parameters": parameters}
        return CardAdditions({"files": files, "kinds": kinds}, summary.get("warnings", []))

    def units(self, prepared: Prepared, params: InferredPointParams) -> list[Unit]:
        """Return one unit per cloud; a limit counts clouds."""
        clouds = prepared.facts["clouds"]
        rows = params.positions_to_build(len(clouds))
        return [Unit(i, clouds[row], {"cloud": clouds[row]}) for i, row in enumerate(rows)]

    def records(
        self, prepared: Prepared, unit: Unit, params: InferredPointParams
    ) -> Iterator[GraphRecord | SkippedRecord]:
        """Yield the graph of a cloud, or of each of its blocks."""
        name = unit.selection["cloud"]
        key = escaped_key(name, KEY_LENGTH - len("/000000"))
        if name in prepared.facts["unusable"]:
            yield SkippedRecord(key, prepared.facts["unusable"][name])
            return
        spool = SpooledGraphs(prepared.path / _SPOOL_FOLDER)
        (block,) = spool.blocks([prepared.facts["positions"][name]])
        cloud = Cloud.from_block(block)
        if params.inferred.label_level == "graph":
            cloud = cloud._replace(label=label_row(prepared.facts["labels"][name]))
        for_split = {
            column.key: np.array(prepared.facts["split_columns"][column.key][name], column.stored)
            for column in params.inferred.split_columns
        }
        try:
            for record in self._cloud_graphs(key, cloud, params):
                if isinstance(record, SkippedRecord):
                    yield record
                else:
                    yield replace(record, columns={**record.columns, **for_split})
        except DamagedInput as error:
            yield self.stop_or_skip(key, error, params)

    def _cloud_graphs(
        self, key: str, cloud: Cloud, params: InferredPointParams
    ) -> Iterator[GraphRecord | SkippedRecord]:
        inferred = params.inferred
        size = params.block
        with_gaps = [i for i, name in enumerate(params.feature) if name in inferred.missing]
        features = np.column_stack([cloud.features, cloud.is_missing[:, with_gaps]])
        label: Array = np.empty(0)
        if cloud.label is not None and inferred.label is not None:
            label = stored_labels(cloud.label, inferred.classes)
        if size is None:
            x = np.column_stack([cloud.xyz, features]).astype(np.float32)
            yield self._cloud_record(key, x, label, params)
            return

        # Seed by the cloud's key, so that blocks do not depend on other files.
        blocks = block_rows(
            cloud.xyz[:, :2],
            size=size,
            points=params.block_points,
            key=key,
            seed=params.block_seed,
        )
        if not blocks:
            steps = [Setting(block=None)]
            if len(cloud.xyz) >= MIN_BLOCK_POINTS:
                steps.insert(0, Setting(block=f"{float(cloud.xyz.max()) * 1.01:.3g}"))
            raise DamagedInput(
                f"{key} ({len(cloud.xyz)} points) has no block: no window of at least 100 points.",
                steps=steps,
            )
        top = cloud.xyz.max(axis=0)
        for number, rows in enumerate(blocks):
            centred, fraction_of_room = normalised_positions(cloud.xyz, rows, size, top)
            x = np.column_stack([centred, features[rows], fraction_of_room]).astype(np.float32)
            y = label[rows] if len(label) and inferred.label_level == "node" else label
            yield self._cloud_record(f"{key}/{number:06d}", x, y, params)

    def _cloud_record(
        self,
        key: str,
        x: F32,
        y: Array,
        params: InferredPointParams,
    ) -> GraphRecord | SkippedRecord:
        schema = self.schema(params)
        columns: dict[str, Array] = {"node/x": x}
        if params.inferred.label is not None:
            column = schema.y_column
            assert column is not None, "labels have a column"
            rows = conform_rows(y, column, key)
            columns[column.key] = rows if column.level == "node" else rows[0]
        pos = np.ascontiguousarray(x[:, :3])
        record = knn_record(key, pos, columns, params, schema.index_dtype)
        if record is None:
            return SkippedRecord(key, f"{len(x)} points, too few for k = {params.k}")
        return record

    def group_of_record(self, key: str) -> str:
        """Return the name of a record's cloud, of which blocks overlap by half."""
        return re.sub(r"/\d{6}$", "", key)

    def default_splits(self, params: InferredPointParams) -> list[OwnSplitParams]:
        """Return a split for each area of annotated rooms, which is its test part, else one split."""
        folds = params.inferred.folds
        if not folds:
            return [OwnSplitParams()]
        return [OwnSplitParams(split_rule=FOLDER_RULE, fold=fold) for fold in range(folds)]

    def folder_name_pieces(self, params: InferredPointParams) -> list[str]:
        """Return folder name parts for the neighbours and the block width."""
        block = [] if params.block is None else [f"block{params.block:g}"]
        return [*params.folder_name_pieces, *block, *super().folder_name_pieces(params)]


PIPELINE = OwnPointPipeline


def _fields_of_points(params: InferredPointParams) -> list[tuple[str, FieldKind]]:
    """Return name and kind of each field of the features of points."""
    fields: list[tuple[str, FieldKind]] = []
    fields += [(f"{axis} [unit of the file]", "position") for axis in "xyz"]
    fields += [(feature, "number") for feature in params.feature]
    fields += [(f"{feature} missing", "missing") for feature in params.inferred.missing]
    if params.block is not None:
        fields += [(f"{axis} / room extent", "position") for axis in "xyz"]
    return fields


def _unread_parameters(
    params: OwnPointParams,
    files: Iterable[str],
    inferred: InferredPoints,
) -> dict[str, str]:
    """Return the parameters that clouds of these files are built without, with reasons."""
    suffixes = {Path(name).suffix.lower() for name in files}
    unread = {}
    if ".bin" not in suffixes:
        unread["bin"] = "no file ends in .bin"
    if suffixes.isdisjoint(TEXT_SUFFIXES):
        unread |= dict.fromkeys(("header", "decimal"), "no file is text")
        if suffixes.isdisjoint(LABEL_SUFFIXES):
            unread["encoding"] = "no file is text"
    if params.block is None:
        unread |= dict.fromkeys(("block_points", "block_seed"), "clouds are cut by block only")
    if inferred.label is None:
        unread["task"] = "the points have no labels"
    if inferred.classes is None:
        unread |= dict.fromkeys(("class_name", "classes"), "the points have no classes")
    return unread


def _check_label_of_tables(label: str | None, survey: Survey, companions: Companions) -> None:
    """Refuse a label that no cloud has, if a table has a column like it."""
    is_missing = any(isinstance(error, MissingLabel) for error in survey.unusable.values())
    columns = [*companions.sources, *companions.unmatched]
    if label and is_missing and not survey.clouds and nearest_names(label, columns):
        companions.refuse_missing("label", label)


def _check_size(name: str, cloud: Cloud, params: OwnPointParams, max_points: int) -> None:
    """Raise ``DamagedInput`` for a cloud with too many or too few points."""
    count = len(cloud.xyz)
    if params.block is not None:
        return
    if count > max_points:
        # Suggest the width at which a window has as many points as a block.
        floor = cloud.xyz[:, :2].max(axis=0)
        width = math.sqrt(max(float(floor.prod()), 1e-6) * params.block_points / count)
        raise DamagedInput(
            f"{name} has {count:,} points; at max_points {max_points:,} are allowed.",
            steps=Setting(block=f"{width:.2g}"),
        )
    check_neighbors(name, count, params)
