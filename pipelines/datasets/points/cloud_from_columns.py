"""Select position, features and labels of a cloud from its columns."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F32, F64, Array
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.columns.labels import mask_changed_by_float32
from kmip_data.errors import DamagedInput, Setting, Step
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.domains.cloud_columns import (
    CloudColumns,
    comparable_name,
    is_number_or_missing,
)
from kmip_data.text import list_names, nearest_names

_MAX_EXACT_FLOAT32 = 2**24  #: float32 represents all integers up to this
_MAX_EXACT_FLOAT64 = 2**53  #: float64 represents all integers up to this
_MIN_FLOAT32_STEPS = 2**12  #: minimum float32 steps between the quartiles of a column
_WITH_OFFSET = re.compile(r"(.*?)(?:-(-?\d+\.?\d*))?")


class MissingLabel(DamagedInput):
    """A cloud has no column of labels."""


class Cloud(NamedTuple):
    """Position, features and labels of a cloud of N points."""

    #: (N, 3), shifted to a minimum of 0, because map coordinates are too large for float32.
    xyz: F64
    features: F64  #: (N, F), 0 if missing
    is_missing: Array  #: (N, F) bool
    label: Array | None  #: (N,) numbers, NaN if missing, or string objects, None if missing
    num_without_position: int = 0  #: number of points without a position

    def as_graph(self, key: str) -> GraphRecord:
        """Return the arrays as a graph without edges, for a spool."""
        columns = {"xyz": self.xyz, "features": self.features, "is_missing": self.is_missing}
        if self.label is not None:
            columns["label"] = self.label
            if self.label.dtype == object:  # a spool has no missing string
                columns["label"] = np.where(self.label == None, "", self.label)  # noqa: E711
        return GraphRecord(key=key, num_nodes=len(self.xyz), columns=columns)

    @classmethod
    def from_block(cls, block: GraphBlock) -> Cloud:
        """Return the cloud that :meth:`as_graph` has spooled alone."""
        columns = block.columns
        label = columns.get("label")  # an empty string is missing: no class has this name
        return cls(columns["xyz"], columns["features"], columns["is_missing"], label)


class ScaledColumn(NamedTuple):
    """Scaled column such as ``red/255`` or ``time-1700000000``."""

    column: str
    offset: float = 0.0
    divisor: float = 1.0


def parse_feature(text: str, columns: CloudColumns) -> ScaledColumn:
    """Parse a feature; a column may itself be called ``red/255``."""
    if (column := columns.find_column(text)) is not None:
        return ScaledColumn(column)
    name, divisor = text, 1.0
    # A name may contain slashes; only a number after the last one is a divisor.
    before, _, number = text.rpartition("/")
    with contextlib.suppress(ValueError):
        if before and 0 < float(number) < math.inf:
            name, divisor = before, float(number)
    if (column := columns.find_column(name)) is not None:
        return ScaledColumn(column, 0.0, divisor)
    match = _WITH_OFFSET.fullmatch(name)
    if match and match[2] and (column := columns.find_column(match[1])) is not None:
        return ScaledColumn(column, float(match[2]), divisor)
    return ScaledColumn(name, 0.0, divisor)


def cloud_from_columns(
    columns: CloudColumns,
    name: str,
    position: Sequence[str],
    features: Sequence[str],
    label: str | None,
) -> Cloud:
    """Select columns by name, leaving out points without a position.

    Raises ``DamagedInput`` if a column is missing, is not numeric, or exceeds float32.
    """
    # Scale and shift in float64, before rounding to float32.
    xyz = np.column_stack([_read_numbers(columns, axis, name, "position") for axis in position])
    if len(position) == 2:
        xyz = np.column_stack([xyz, np.zeros(len(xyz))])
    has_position = np.isfinite(xyz).all(axis=1)
    if not has_position.any():
        raise DamagedInput(
            f"{name}: no point has a finite position ({', '.join(position)}).",
            steps=Setting(position=_suggest_position(columns)),
        )
    num_without_position = int((~has_position).sum())
    rows = np.flatnonzero(has_position)

    def location_of_row(row: int) -> str:
        return columns.location(rows[row])

    xyz = xyz[has_position] - xyz[has_position].min(axis=0)
    _check_position(xyz, name, location_of_row)

    table = np.empty((len(xyz), len(features)))
    for i, text in enumerate(features):
        feature = parse_feature(text, columns)
        values = _read_numbers(columns, feature.column, name, "feature")[has_position]
        table[:, i] = (values - feature.offset) / feature.divisor
        _check_feature(table[:, i], text, name, feature, location_of_row)
    is_missing = np.isnan(table)

    labels: Array | None = None
    if label is not None:
        column = columns.find_column(label)
        if column is None:
            raise _missing_column_error(columns, label, name, "label")
        labels = columns.values[column]
        if labels.dtype != object:
            labels = labels.astype(np.float64)
        labels = labels[has_position]
    return Cloud(xyz, np.where(is_missing, 0.0, table), is_missing, labels, num_without_position)


def _read_numbers(columns: CloudColumns, column_name: str, name: str, key: str) -> F64:
    column = columns.find_column(column_name)
    if column is None:
        raise _missing_column_error(columns, column_name, name, key)
    values = columns.values[column]
    if values.dtype != object:
        return values.astype(np.float64)
    row = next(row for row, text in enumerate(values) if not is_number_or_missing(text))
    suggestion = _suggest_position(columns)
    remedy: Step = "repair or replace the file"
    if suggestion.count(",") == 2:
        remedy = Setting(position=suggestion)
    if key == "feature":
        remedy = "leave out the feature; a column of strings can be the label"
    raise DamagedInput(
        f"{name}, {columns.location(row)}: {column!r} is {values[row]!r}, not a number.",
        steps=remedy,
    )


def _missing_column_error(
    columns: CloudColumns,
    column_name: str,
    name: str,
    key: str,
) -> DamagedInput:
    names = list(columns.values)
    duplicates = [
        candidate
        for candidate in names
        if comparable_name(candidate).rpartition(".")[0] == comparable_name(column_name)
    ]
    position = _suggest_position(columns)
    steps: list[Step] = [Setting(position=position)]
    if key != "position":
        # CloudCompare writes scalar_Classification for Classification.
        wanted = comparable_name(column_name)
        longer = [candidate for candidate in names if wanted in comparable_name(candidate)]
        candidates = duplicates or longer or nearest_names(column_name, names)
        if key == "feature":
            candidates = candidates or names
        steps = [Setting({key: column}) for column in candidates[:6]]
        steps = steps or [Setting(label="none")]
    elif "," not in position:
        steps = ["points need two or three columns of numbers"]
    problem = f"has no column {column_name!r}"
    if duplicates:
        problem = f"has {len(duplicates)} columns called {column_name!r}"
    error_class = MissingLabel if key == "label" and not duplicates else DamagedInput
    return error_class(f"{name} {problem}, only {list_names(names, 500)}.", steps=steps)


def _suggest_position(columns: CloudColumns) -> str:
    """Suggest two or three position columns as an option value."""
    numbers = [name for name, values in columns.values.items() if values.dtype != object]
    axes = []
    for axis in ("x|east.*|lon.*", "y|north.*|lat.*", "z|elev.*|height|alt.*"):
        # x, x.1, pos_x, X_coord
        pattern = re.compile(rf"(.*[ _.:-])?({axis})([ _.:-].*)?", re.IGNORECASE)
        axes += [name for name in numbers if pattern.fullmatch(name)][:1]
    if len(axes) < 3:
        # Skip the unnamed index that pandas writes; two columns are points of a plane.
        axes = [name for name in numbers if not name.startswith("unnamed")][:3]
    return ",".join(axes)


def _check_position(xyz: F64, name: str, location_of_row: Callable[[int], str]) -> None:
    low, high = np.percentile(xyz, [25, 75], axis=0)
    # Judge by the widest axis, because a wall is thin.
    quartile_range = float((high - low).max())
    step = float(np.spacing(np.float32(high.max())))
    if 0 < quartile_range < _MIN_FLOAT32_STEPS * step:
        outlier = int(np.abs(xyz - np.median(xyz, axis=0)).max(axis=1).argmax())
        raise DamagedInput(
            f"{name}: float32 rounds the positions to {step:g}, but half of the points lie within"
            f" {quartile_range:g} of each other; {location_of_row(outlier)} is far away from them.",
            steps="remove outliers",
        )


def _check_feature(
    values: F64, text: str, name: str, feature: ScaledColumn, location_of_row: Callable[[int], str]
) -> None:
    """Raise ``DamagedInput`` for large integers, and for values close together but far from 0."""
    infinite = np.isinf(values)
    with np.errstate(over="ignore", invalid="ignore"):
        stored: F32 = values.astype(np.float32)
    infinite |= np.isinf(stored)
    if infinite.any():
        row = int(infinite.argmax())
        raise DamagedInput(
            f"{name}, {location_of_row(row)}: the feature {text} is {values[row]:g}, which float32 cannot hold.",
            steps="leave out the feature",
        )
    finite = values[~np.isnan(values)]
    is_rounded = mask_changed_by_float32(values) & (np.abs(values) <= _MAX_EXACT_FLOAT64)
    if is_rounded.any():
        row = int(is_rounded.argmax())
        location = f", {location_of_row(row)}"
        problem = f"is {values[row]:.0f}, which float32 rounds to {stored[row]:.0f}"
    elif finite.size:
        low, high = np.percentile(finite, [25, 75])
        step = float(np.spacing(np.float32(max(abs(low), abs(high)))))
        if not 0 < high - low < _MIN_FLOAT32_STEPS * step:
            return
        location = ""
        problem = f"is about {low:g}, which float32 rounds to multiples of {step:g}"
    else:
        return
    # The values may fit after subtracting an offset.
    offset = math.floor(finite.min() * feature.divisor + feature.offset)
    steps: list[Step] = ["leave out the feature"]
    if finite.max() - finite.min() <= _MAX_EXACT_FLOAT32:
        divisor = f"/{feature.divisor:g}" if feature.divisor != 1 else ""
        steps.insert(0, Setting(feature=f"{feature.column}-{offset}{divisor}"))
    raise DamagedInput(f"{name}{location}: the feature {text} {problem}.", steps=steps)
