"""Task of the targets of all graphs, and the column that stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from kmip_data.arrays import Array, Bools
from kmip_data.columns.column_statistics import narrowest_integer_dtype
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column
from kmip_data.text import count_with_noun

TaskName = Literal["classification", "multilabel", "regression"]
NO_CLASS = -1  #: class of a node or graph without a label
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_MAX_CLASS = 65_535
#: Up to this number of distinct integers, labels are classes regardless of the rows per value.
_CERTAIN_CLASSES = 20
#: Above that, labels may be numbers if values have fewer rows than this on average.
_ROWS_PER_CLASS = 3


@dataclass(frozen=True)
class InferredTarget:
    """Column of the targets, and conversion of a graph's targets to its rows."""

    column: Column
    class_names: tuple[str, ...] = ()  #: set if the targets are strings or named integers
    missing: int = 0  #: number of missing targets

    def stored_rows(self, y: Array) -> Array:
        """Convert the targets (n,) or (n, C) of a graph to stored rows."""
        column = self.column
        y = targets_as_numbers(y, self.class_names)
        if column.num_classes and not column.shape and y.ndim > 1:
            y = y[:, 0] if y.shape[1] == 1 else y.argmax(axis=1)
        if column.low == NO_CLASS:
            y = np.nan_to_num(y, nan=NO_CLASS)
        if column.num_classes and not column.finite:
            y = np.where(y == NO_CLASS, np.nan, y)
        return y.astype(column.stored)


def infer_target(
    key: str,
    names: Sequence[str],
    targets: Sequence[Array],
    task: TaskName | None,
    described_classes: Sequence[str] = (),
    *,
    is_table: bool = False,
    minus_one_is_class: bool = False,
) -> InferredTarget:
    """Infer task and column of the targets (n,) or (n, C) of all graphs.

    ``names`` are the names of the components; ``described_classes`` come from a description, and fix
    the classes. Integers from 0 are classes. In a table, other integers, such as 1 to 5, are names
    of classes. -1 is a missing label unless ``minus_one_is_class``. Raises ``DamagedInput`` if values
    do not fit the task or the classes, or if several tasks are possible.
    """
    if len({y.shape[1:] for y in targets}) > 1:
        raise DamagedInput(f"Graphs differ in their number of labels {', '.join(names)}.")

    # 1. Numbers: strings become positions in the class names, one-hot rows the position of the 1.
    y = np.concatenate(targets)
    if task == "classification" and y.shape[1:] == (1,):
        y = y[:, 0]
    lowest_named = None  #: lowest integer that may name a class
    if is_table and task in {None, "classification"}:
        lowest_named = NO_CLASS if minus_one_is_class else 1
    class_names = _class_names(y, described_classes, lowest_named)
    if class_names and task in {"regression", "multilabel"}:
        raise DamagedInput(
            f"The labels {', '.join(names)} are strings, such as {str(class_names[0])!r}, not numbers.",
            next="--set task=classification; or write numbers",
        )
    numbers = targets_as_numbers(y, class_names)
    y = _classes_of_one_hot(numbers, names, task)
    if is_table and y.ndim < numbers.ndim:  # the column of the 1 names the class
        class_names = tuple(names)
    labels = y[~np.isnan(y)]
    if not labels.size:
        raise DamagedInput(
            "All labels are missing.",
            found=", ".join(names),
            next="--set label= and another column",
        )

    # 2. Task; the classes of a description imply the classification of a single label.
    if not described_classes or y.ndim > 1:
        task = _infer_task(labels, y.ndim, names, task)
    if task != "regression":
        labels = labels[labels != NO_CLASS]
    missing = y.size - labels.size

    # 3. Column.
    column = Column(
        key=key,
        attribute="y",
        stored="float32",
        presented="float32",
        doc=", ".join(names),
        finite=not missing,
    )
    if y.ndim > 1 or task == "multilabel":
        column = replace(column, shape=(len(names),), fields=tuple(names))
    if task == "regression":
        if mask_changed_by_float32(labels).any():
            column = replace(column, stored="float64", presented="float64")
    elif task == "multilabel":
        stored = "float16" if missing else "uint8"
        column = replace(column, stored=stored, low=0, high=1, num_classes=len(names))
    else:
        high = len(described_classes) - 1 if described_classes else int(labels.max())
        if labels.size and (labels.max() > high or (labels % 1).any() or labels.min() < 0):
            raise DamagedInput(
                f"{', '.join(names)} is {labels.max():g}, which is not a class of the description.",
                expected=", ".join(described_classes),
                next="correct the labels; a model has no output for them",
            )
        low = NO_CLASS if missing else 0
        column = replace(
            column,
            stored=narrowest_integer_dtype(low, high),
            presented="int64",
            low=low,
            high=high,
            num_classes=high + 1,
            finite=True,
        )
        return InferredTarget(column, class_names, missing)
    return InferredTarget(column, (), missing)


def _class_names(
    y: Array, described_classes: Sequence[str], lowest_named: int | None
) -> tuple[str, ...]:
    """Return the names of the classes of strings, or of integers; empty for other labels."""
    if y.ndim != 1:
        return ()
    if y.dtype == object:
        return tuple(described_classes) or tuple(sorted({*y.astype(str)} - {""}))
    if lowest_named is None:
        return ()
    names = tuple(described_classes)
    if not names:
        names = _class_names_of_integers(targets_as_numbers(y, ()), lowest_named)
    is_numbered_from_0 = names == tuple(map(str, range(len(names))))
    return () if is_numbered_from_0 else names


def _infer_task(labels: Array, axes: int, names: Sequence[str], task: TaskName | None) -> TaskName:
    """Return ``task`` if the labels, without NaN, fit it; infer it if ``None``.

    −1 is a number in a regression, and a missing label in other tasks. Raises ``DamagedInput`` if
    no task fits, or if the user must choose one.
    """
    without_missing = labels[labels != NO_CLASS]
    low = labels.min()
    high = labels.max()
    are_integers = bool((labels == np.rint(labels)).all())
    # If -1 and one other value are the only labels, -1 is more likely a class than missing.
    is_missing_clear = without_missing.size == labels.size or bool(
        (without_missing != without_missing[:1]).any()
    )
    can_be_classes = bool(without_missing.size) and is_missing_clear
    fitting: list[TaskName] = []
    if can_be_classes and are_integers and axes == 1 and low >= NO_CLASS and high <= _MAX_CLASS:
        fitting.append("classification")
    if can_be_classes and bool(np.isin(without_missing, (0, 1)).all()):
        fitting.append("multilabel")
    if max(-low, high) <= _MAX_FLOAT32:
        fitting.append("regression")

    # Many distinct integers with one or two rows each are rarely classes: a count, a price, a year.
    distinct = np.unique(without_missing).size
    rows = without_missing.size
    has_few_rows_per_value = distinct > _CERTAIN_CLASSES and rows < _ROWS_PER_CLASS * distinct
    if task is None and axes == 1 and "classification" in fitting and has_few_rows_per_value:
        raise DamagedInput(
            f"{count_with_noun(distinct, 'different integer')} in {rows:,} rows of {', '.join(names)} "
            "may be classes or numbers.",
            next="--set task=regression for numbers, or --set task=classification",
        )

    # Several labels of -1, 0 and 1 may be numbers, or labels with missing ones: the user decides.
    is_ambiguous = are_integers and low <= NO_CLASS and axes > 1 and high <= 1
    if task is None and not is_ambiguous:
        task = "classification"
        if not are_integers:
            task = "regression"
        elif axes > 1:
            task = "multilabel" if low >= 0 and high <= 1 else "regression"
    if task in fitting:
        return task
    problem = ": numbers, or labels of which some are missing"
    if task:
        problem = f", which does not fit {task}"
    choices = " or ".join(f"--set task={name}" for name in fitting)
    if not is_missing_clear:
        choices += ", where -1 is a number; write 0 for it if it is a class"
    raise DamagedInput(
        f"The labels {', '.join(names)} are {low:g} to {high:g}{problem}.",
        expected="one label, a string or an integer from 0 (-1: missing); several 0/1 labels; or numbers",
        next=choices or "correct the labels, or --set label= and other columns",
    )


def _class_names_of_integers(y: Array, lowest: int) -> tuple[str, ...]:
    """Return the distinct integers of labels (n,) as strings, ascending; empty for other numbers.

    Names are needed if no label is 0, or if the ``lowest`` class that is allowed is -1.
    """
    labels = y[~np.isnan(y)]
    values = np.unique(labels if lowest == NO_CLASS else labels[labels != NO_CLASS])
    if not len(values) or values[0] < lowest or values[-1] > _MAX_CLASS or (values % 1).any():
        return ()
    # Next to one other value, -1 may be a class: _infer_task asks.
    if len(values) == 1 and len(labels[labels == NO_CLASS]):
        return ()
    # Numbers from 0 are classes, also if some do not occur.
    return () if values[0] == 0 else tuple(f"{value:.0f}" for value in values.tolist())


def _classes_of_one_hot(y: Array, names: Sequence[str], task: TaskName | None) -> Array:
    """Return the position of the 1 in each one-hot row (n, C), or other targets unchanged.

    Raises ``DamagedInput`` if the task is not given: such rows may also be several labels.
    """
    if task in {"multilabel", "regression"} or y.ndim < 2 or y.shape[1] < 2:
        return y
    if not (np.isin(y, (0, 1)).all(axis=1) & (y.sum(axis=1) == 1)).all():
        return y
    if task is None:
        raise DamagedInput(
            f"Each row of the labels {', '.join(names)} has a single 1.",
            expected="one class, or several labels",
            next="--set task=classification, where its position is the class; else --set task=multilabel",
        )
    classes: Array = y.argmax(axis=1).astype(np.float64)
    return classes


def mask_changed_by_float32(values: Array) -> Bools:
    """Return the mask of integers, of any shape, that float32 would change, such as 1700000001."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    changed: Bools = (values == np.rint(values)) & (rounded != values) & np.isfinite(rounded)
    return changed


def targets_as_numbers(targets: Array, classes: Sequence[str]) -> Array:
    """Convert targets (n,) or (n, C) to floats: class names to positions in ``classes``, missing to NaN."""
    if targets.ndim == 1 and (targets.dtype == object or classes):
        codes = {name: number for number, name in enumerate(classes)}
        names = targets
        if targets.dtype != object:
            names = np.array([f"{value:.0f}" for value in targets.tolist()], object)
        return np.array([codes.get(str(name), np.nan) for name in names], np.float64)
    try:
        return targets.astype(np.float64)
    except ValueError as error:
        strings = [
            value for value in targets.reshape(-1).tolist() if isinstance(value, str) and value
        ]
        raise DamagedInput(
            f"The labels are strings, such as {strings[0] if strings else str(error)!r}, not numbers.",
            next="--set task=classification of one label; or write numbers",
        ) from error
