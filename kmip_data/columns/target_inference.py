"""Task of the targets of all graphs, and the column that stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from kmip_data.arrays import Array, Bools
from kmip_data.columns.column_values import narrowest_integer_dtype
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column
from kmip_data.text import count_with_noun

TaskName = Literal["classification", "multilabel", "regression"]
NO_CLASS = -1  #: class of a node or graph without a label
_LARGEST = float(np.finfo(np.float32).max)
_MOST_CLASSES = 65_535  #: largest class
_CERTAIN_CLASSES = (
    20  #: so many different integers, or fewer, are classes however few rows each has
)
_ROWS_PER_CLASS = 3  #: mean rows of a value below which more different integers may be numbers


@dataclass(frozen=True)
class Target:
    """Column of the targets of all graphs, and how a graph's targets become its rows."""

    column: Column
    class_names: tuple[str, ...] = ()  #: texts of the classes, if targets are texts
    missing: int = 0  #: targets without a value

    def stored_rows(self, y: Array) -> Array:
        """Return the stored rows of the targets (n,) or (n, C) of a graph."""
        column = self.column
        y = targets_as_numbers(y, self.class_names)
        if column.num_classes and not column.shape and y.ndim > 1:
            y = y.argmax(axis=1)
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
    described: Sequence[str] = (),
    *,
    named: bool = False,
) -> Target:
    """Return the column of the targets (n,) or (n, C) of all graphs.

    ``names`` are those of its components, ``described`` the classes that an earlier build has.
    Integers from 0 are classes; others, such as 1 to 5 or years, are the names of classes if they
    are ``named``, as in a table.
    Raises ``DamagedInput`` if values do not fit the ``task`` or the classes, or without them may be
    of several tasks.
    """
    if len({y.shape[1:] for y in targets}) > 1:
        raise DamagedInput(f"Graphs differ in their number of labels {', '.join(names)}.")
    y = np.concatenate(targets)
    classes: tuple[str, ...] = ()
    if y.dtype == object and y.ndim == 1:
        classes = tuple(described) or tuple(sorted({*y.astype(str)} - {""}))
    elif named and task in {None, "classification"} and y.ndim == 1:
        classes = tuple(described) or _class_names_of_integers(targets_as_numbers(y, ()))
        classes = () if classes == tuple(map(str, range(len(classes)))) else classes
    if classes and task in {"regression", "multilabel"}:
        raise DamagedInput(
            f"The labels {', '.join(names)} are texts, such as {str(classes[0])!r}, and no numbers.",
            next="--set task=classification; or write numbers",
        )
    y = _classes_of_one_hot(targets_as_numbers(y, classes), names, task)
    known = y[~np.isnan(y)]
    if not known.size:
        raise DamagedInput(
            "All labels are missing.",
            found=", ".join(names),
            next="--set label= and another one",
        )
    if not described:
        task = _infer_task(known, y.ndim, names, task)
    if task != "regression":
        known = known[known != NO_CLASS]
    missing = y.size - known.size
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
        if mask_changed_by_float32(known).any():
            column = replace(column, stored="float64", presented="float64")
        return Target(column, (), missing)
    if task == "multilabel":
        stored = "float16" if missing else "uint8"
        column = replace(column, stored=stored, low=0, high=1, num_classes=len(names))
        return Target(column, (), missing)
    high = len(described) - 1 if described else int(known.max())
    if known.size and (known.max() > high or (known % 1).any() or known.min() < 0):
        raise DamagedInput(
            f"{', '.join(names)} is {known.max():g}, none of the classes of the description.",
            expected=", ".join(described),
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
    return Target(column, classes, missing)


def _infer_task(known: Array, axes: int, names: Sequence[str], task: TaskName | None) -> TaskName:
    """Return the task of labels that are not NaN; refuse one that does not fit, and ask for one.

    −1 is a number in a regression, and no class or label elsewhere.
    """
    given = known[known != NO_CLASS]
    low = known.min()
    high = known.max()
    whole = bool((known == np.rint(known)).all())
    # With -1 for one of two classes, the other would be the only one.
    two = given.size == known.size or bool((given != given[:1]).any())
    fitting: list[TaskName] = []
    if whole and axes == 1 and given.size and low >= NO_CLASS and high <= _MOST_CLASSES and two:
        fitting.append("classification")
    if bool(np.isin(given, (0, 1)).all()) and given.size and two:
        fitting.append("multilabel")
    if max(-low, high) <= _LARGEST:
        fitting.append("regression")

    # Many integers, most of them in one or two rows, are rarely classes: a count, a price, a year.
    distinct = np.unique(given).size
    few_rows = distinct > _CERTAIN_CLASSES and given.size < _ROWS_PER_CLASS * distinct
    if task is None and axes == 1 and "classification" in fitting and few_rows:
        raise DamagedInput(
            f"{count_with_noun(distinct, 'different integer')} in {given.size:,} rows of {', '.join(names)} "
            "may be classes or numbers.",
            next="--set task=regression for numbers, or --set task=classification",
        )

    if task is None and not (whole and low <= NO_CLASS and axes > 1 and high <= 1):
        task = "classification"
        if not whole:
            task = "regression"
        elif axes > 1:
            task = "multilabel" if low >= 0 and high <= 1 else "regression"
    if task in fitting:
        return task
    problem = ": numbers, or labels of which some are missing"
    if task:
        problem = f", which does not fit {task}"
    choices = " or ".join(f"--set task={name}" for name in fitting)
    if not two:
        choices += ", where -1 is a number; write 0 for it, where it is a class"
    raise DamagedInput(
        f"The labels {', '.join(names)} are {low:g} to {high:g}{problem}.",
        expected="one label, a text or an integer from 0 (-1: none); several of 0 and 1; or numbers",
        next=choices or "correct the labels, or --set label= and other ones",
    )


def _class_names_of_integers(y: Array) -> tuple[str, ...]:
    """Return the classes of integers (n,) above 0 as texts, in ascending order; none of other numbers."""
    known = y[~np.isnan(y)]
    known = known[known != NO_CLASS]
    values = np.unique(known)
    if len(values) < 2 or values[0] <= 0 or values[-1] > _MOST_CLASSES or (values % 1).any():
        return ()
    return tuple(f"{value:.0f}" for value in values.tolist())


def _classes_of_one_hot(y: Array, names: Sequence[str], task: TaskName | None) -> Array:
    """Return the position of the only 1 of each row if that is the class; raise if that is not known."""
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
    """Return which numbers, of any shape, are integers that float32 changes, such as 1700000001."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    changed: Bools = (values == np.rint(values)) & (rounded != values) & np.isfinite(rounded)
    return changed


def targets_as_numbers(targets: Array, classes: Sequence[str]) -> Array:
    """Return targets (n,) or (n, C) as numbers: positions in ``classes`` for texts, NaN if missing."""
    if targets.ndim == 1 and (targets.dtype == object or classes):
        codes = {name: number for number, name in enumerate(classes)}
        texts = targets
        if targets.dtype != object:
            texts = np.array([f"{value:.0f}" for value in targets.tolist()], object)
        return np.array([codes.get(str(text), np.nan) for text in texts], np.float64)
    try:
        return targets.astype(np.float64)
    except ValueError as error:
        words = [text for text in targets.reshape(-1).tolist() if isinstance(text, str) and text]
        raise DamagedInput(
            f"The labels are texts, such as {words[0] if words else str(error)!r}, and no numbers.",
            next="--set task=classification of one label; or write numbers",
        ) from error
