"""Position, features and labels of a cloud, picked from its columns."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from kmip_data.arrays import F32, F64, Array
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.points.columns import Columns, comparable_name

_EXACT = 2**24  #: integers up to it are float32 numbers
_LARGEST = 2**53  #: integers up to it are float64 numbers
_LEVELS = 2**12  #: fewest float32 numbers between the quartiles of a column
_CHANGED = re.compile(r"(.*?)(?:-(-?\d+\.?\d*))?")


class Cloud(NamedTuple):
    """The used columns of a cloud of N points."""

    xyz: F64  #: (N, 3), the smallest of each axis 0: coordinates of maps are too large for float32
    features: F64  #: (N, F), 0 where missing
    missing: Array  #: (N, F) bool
    label: Array | None  #: (N,) numbers, NaN if missing, or texts as objects, ``None`` if missing
    left_out: int  #: points without a position


class Feature(NamedTuple):
    """A column with an offset and a divisor, such as ``red/255`` or ``time-1700000000``."""

    column: str
    offset: float = 0.0
    divisor: float = 1.0


def parse_feature(text: str, columns: Columns) -> Feature:
    """Return the parts of a feature; a column may itself be called ``red/255``."""
    if (column := columns.find_column(text)) is not None:
        return Feature(column)
    name, divisor = text, 1.0
    # A name may hold a slash: only a number behind the last one is a divisor.
    before, _, number = text.rpartition("/")
    with contextlib.suppress(ValueError):
        if before and 0 < float(number) < math.inf:
            name, divisor = before, float(number)
    if (column := columns.find_column(name)) is not None:
        return Feature(column, 0.0, divisor)
    match = _CHANGED.fullmatch(name)
    if match and match[2] and (column := columns.find_column(match[1])) is not None:
        return Feature(column, float(match[2]), divisor)
    return Feature(name, 0.0, divisor)


def pick_columns(
    columns: Columns, name: str, position: Sequence[str], features: Sequence[str], label: str | None
) -> Cloud:
    """Return the columns that parameters name; points without a position are left out.

    Raises ``DamagedInput`` for a missing column, one of texts, or one that float32 cannot hold.
    """
    # Columns by name, in float64: scaling and the shift to 0 come before float32.
    xyz = np.column_stack([_finite_numbers(columns, axis, name, "position") for axis in position])
    if len(position) == 2:
        xyz = np.column_stack([xyz, np.zeros(len(xyz))])
    known = np.isfinite(xyz).all(axis=1)
    if not known.any():
        raise DamagedInput(
            f"{name}: no point has a position: {', '.join(position)} are not finite.",
            next=f"--set position={_guess_position(columns)}",
        )
    left_out = int((~known).sum())
    rows = np.flatnonzero(known)

    def location_of_row(row: int) -> str:
        return columns.location(rows[row])

    xyz = xyz[known] - xyz[known].min(axis=0)
    _check_position(xyz, name, location_of_row)

    table = np.empty((len(xyz), len(features)))
    for number, text in enumerate(features):
        feature = parse_feature(text, columns)
        values = _finite_numbers(columns, feature.column, name, "feature")[known]
        table[:, number] = (values - feature.offset) / feature.divisor
        _check_feature(table[:, number], text, name, feature, location_of_row)
    missing = np.isnan(table)

    labels: Array | None = None
    if label is not None:
        column = columns.find_column(label)
        if column is None:
            raise _missing_column_error(columns, label, name, "label_column")
        labels = columns.values[column]
        if labels.dtype != object:
            labels = labels.astype(np.float64)
        labels = labels[known]
    return Cloud(xyz, np.where(missing, 0.0, table), missing, labels, left_out)


def _finite_numbers(columns: Columns, wanted: str, name: str, key: str) -> F64:
    column = columns.find_column(wanted)
    if column is None:
        raise _missing_column_error(columns, wanted, name, key)
    values = columns.values[column]
    if values.dtype != object:
        return values.astype(np.float64)
    row = next(row for row, text in enumerate(values) if not _is_float(text))
    guess = _guess_position(columns)
    hint = f"--set position={guess}" if guess.count(",") == 2 else "repair or replace the file"
    if key == "feature":
        hint = "leave out the feature; a column of texts can be the label"
    raise DamagedInput(
        f"{name}, {columns.location(row)}: {column!r} is {values[row]!r}, not a number.", next=hint
    )


def _is_float(text: Any) -> bool:
    try:
        float(text)
    except (TypeError, ValueError):
        return text is None
    return True


def _missing_column_error(columns: Columns, wanted: str, name: str, key: str) -> DamagedInput:
    names = list(columns.values)
    twins = [
        other
        for other in names
        if comparable_name(other).rpartition(".")[0] == comparable_name(wanted)
    ]
    hint = f"--set position={_guess_position(columns)}"
    if key != "position":
        choice = twins or names
        hint = " or ".join(f"--set {key}={shlex.quote(column)}" for column in choice[:6])
    if key == "position" and "," not in hint:
        hint = "points need two or three columns of numbers"
    problem = f"has no column {wanted!r}"
    if twins:
        problem = f"has {len(twins)} columns called {wanted!r}"
    return DamagedInput(f"{name} {problem}, only {', '.join(names)[:500]}.", next=hint)


def _guess_position(columns: Columns) -> str:
    """Return three columns that may be the position, or two, as an option's value."""
    numbers = [name for name, values in columns.values.items() if values.dtype != object]
    axes = []
    for axis in ("x|east.*|lon.*", "y|north.*|lat.*", "z|elev.*|height|alt.*"):
        # x, x.1, pos_x, X_coord
        like = re.compile(rf"(.*[ _.:-])?({axis})([ _.:-].*)?", re.IGNORECASE)
        axes += [name for name in numbers if like.fullmatch(name)][:1]
    if len(axes) < 3:
        # The index of pandas is no position; two columns are points of a plane.
        axes = [name for name in numbers if not name.startswith("unnamed")][:3]
    return shlex.quote(",".join(axes))


def _check_position(xyz: F64, name: str, location_of_row: Callable[[int], str]) -> None:
    low, high = np.percentile(xyz, [25, 75], axis=0)
    # The widest axis: a wall is thin, and no less known for it.
    between = float((high - low).max())
    step = float(np.spacing(np.float32(high.max())))
    if 0 < between < _LEVELS * step:
        far = int(np.abs(xyz - np.median(xyz, axis=0)).max(axis=1).argmax())
        raise DamagedInput(
            f"{name}: float32 rounds the positions to {step:g}, and half of the points lie within {between:g}"
            f" of each other: {location_of_row(far)} is far away from them.",
            next="remove such points",
        )


def _check_feature(
    values: F64, text: str, name: str, feature: Feature, location_of_row: Callable[[int], str]
) -> None:
    """Refuse a feature that float32 changes: large integers, and numbers much nearer to each other than to 0."""
    infinite = np.isinf(values)
    with np.errstate(over="ignore", invalid="ignore"):
        stored: F32 = values.astype(np.float32)
    infinite |= np.isinf(stored)
    if infinite.any():
        row = int(infinite.argmax())
        raise DamagedInput(
            f"{name}, {location_of_row(row)}: the feature {text} is {values[row]:g}, which float32 cannot hold.",
            next="leave out the feature",
        )
    known = values[~np.isnan(values)]
    large = (np.abs(values) > _EXACT) & (np.abs(values) <= _LARGEST)
    changed = large & (values == np.rint(values)) & (stored != values)
    if changed.any():
        row = int(changed.argmax())
        where = f", {location_of_row(row)}"
        problem = f"is {values[row]:.0f}, and float32 would make it {stored[row]:.0f}"
    elif known.size:
        low, high = np.percentile(known, [25, 75])
        step = float(np.spacing(np.float32(max(abs(low), abs(high)))))
        if not 0 < high - low < _LEVELS * step:
            return
        where = ""
        problem = f"is about {low:g}, which float32 rounds to {step:g}"
    else:
        return
    # Smaller by an offset, they may fit.
    offset = math.floor(known.min() * feature.divisor + feature.offset)
    hint = "leave out the feature"
    if known.max() - known.min() <= _EXACT:
        divisor = f"/{feature.divisor:g}" if feature.divisor != 1 else ""
        hint = f"--set feature={shlex.quote(f'{feature.column}-{offset}{divisor}')}, or {hint}"
    raise DamagedInput(f"{name}{where}: the feature {text} {problem}.", next=hint)
