"""Labels of your own data: the task, the classes and their codes, and the column that stores them.

The task follows from counts of the labels (:func:`infer_task`). Graphs infer their column from all
targets (:func:`infer_target`), points from the counts of each cloud (:class:`LabelStatistics`). Labels
become codes by one function (:func:`class_codes`), also those of masks of pictures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from kmip_data.arrays import I64, Array, Bools
from kmip_data.columns.column_statistics import narrowest_integer_dtype
from kmip_data.errors import DamagedInput, OpenQuestions, Setting, Step
from kmip_data.format.schema import Column
from kmip_data.text import count_with_noun

TaskName = Literal["classification", "multilabel", "regression"]
NO_CLASS = -1  #: class of a node or graph without a label
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
MAX_CLASSES = 65_536
_MAX_VALUES_SHOWN = 20
_VOID_LABELS = {255, 65_535}  #: largest integers of a byte and of two, which often mark no class
_MAX_LISTED_CLASSES = 128  #: classes up to which their labels can be listed in an option
#: Up to this number of distinct integers, labels are classes regardless of the rows per value.
_CERTAIN_CLASSES = 20
#: Above that, labels may be numbers if values have fewer rows than this on average.
_ROWS_PER_CLASS = 3
_CLASSIFICATION = Setting(task="classification")
_REGRESSION = Setting(task="regression")


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
            steps=["write numbers, or make them classes", _CLASSIFICATION],
        )
    texts = y if y.dtype == object and y.ndim == 1 else None
    numbers = targets_as_numbers(y, class_names)
    y = _classes_of_one_hot(numbers, names, task)
    if is_table and y.ndim < numbers.ndim:  # the column of the 1 names the class
        class_names = tuple(names)
    labels = y[~np.isnan(y)]
    if not labels.size:
        raise DamagedInput(
            "All labels are missing.",
            found=", ".join(names),
            steps="choose another column as label",
        )

    # 2. Task; the classes of a description imply the classification of a single label.
    if not described_classes or y.ndim > 1:
        statistics = LabelStatistics()
        statistics.add(labels if texts is None else texts[texts != ""])
        task = fitting_task(statistics, task, names, axes=y.ndim)
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
                steps="correct the labels; a model has no output for them",
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


def infer_task(labels: LabelStatistics, names: str, axes: int = 1) -> TaskName | None:
    """Infer the task of labels, ``axes`` 1 for one label a row, from their values.

    Strings are classes, and fractions are a regression. One integer a row is a class, several of 0
    and 1 are a multi-label classification. Return ``None`` for several labels of -1, 0 and 1, which
    may be numbers, or labels with missing ones. Raises ``OpenQuestions`` if most values of a single
    label have one or two rows each: such integers may be a count, a price or a year.
    """
    if labels.non_integer is not None and not labels.has_strings:
        return "regression"
    low = labels.low
    high = labels.high
    if axes > 1:
        if low <= NO_CLASS and high <= 1:
            return None
        return "multilabel" if low >= 0 and high <= 1 else "regression"

    values = labels.counts.keys() - {NO_CLASS}
    rows = labels.points - labels.missing - labels.counts[NO_CLASS]
    has_few_rows_per_value = len(values) > _CERTAIN_CLASSES and rows < _ROWS_PER_CLASS * len(values)
    if labels.has_strings and has_few_rows_per_value:
        question = (
            f"{count_with_noun(len(values), 'different text')} in {rows:,} rows of {names} may be classes "
            "or names: task=classification, or another column as label, or label=none"
        )
        raise OpenQuestions({question: _CLASSIFICATION})
    if has_few_rows_per_value and low >= NO_CLASS and high < MAX_CLASSES:
        question = (
            f"{count_with_noun(len(values), 'different integer')} in {rows:,} rows of {names} may be "
            "classes or numbers: task=regression for numbers, or task=classification"
        )
        raise OpenQuestions({question: _REGRESSION})
    return "classification"


def fitting_task(
    labels: LabelStatistics,
    task: TaskName | None,
    names: Sequence[str],
    axes: int = 1,
    *,
    others_are_missing: bool = False,
) -> TaskName:
    """Return ``task`` if the labels fit it, and infer it if ``None``.

    −1 is a number in a regression, and a missing label in other tasks. If ``others_are_missing``, so
    is every integer that names no class, and any integers fit a classification. Raises
    ``DamagedInput`` if no task fits, or if the user must choose one.
    """
    listed = ", ".join(names)
    if task is None:
        task = infer_task(labels, listed, axes)
    are_integers = labels.non_integer is None and not labels.has_strings
    values = labels.counts.keys() - {NO_CLASS}
    # If -1 and one other value are the only labels, -1 is more likely a class than missing.
    is_missing_clear = not labels.counts[NO_CLASS] or len(values) > 1 or others_are_missing
    has_class_codes = labels.low >= NO_CLASS and labels.high < MAX_CLASSES
    fitting: list[TaskName] = []
    if labels.has_strings or (are_integers and others_are_missing):
        fitting.append("classification")
    elif values and are_integers and is_missing_clear:
        if axes == 1 and has_class_codes:
            fitting.append("classification")
        if values <= {0, 1}:
            fitting.append("multilabel")
    if not labels.has_strings and max(-labels.low, labels.high) <= _MAX_FLOAT32:
        fitting.append("regression")
    if task in fitting:
        return task

    found = f"{labels.low:g} to {labels.high:g}"
    if labels.has_strings:
        found = f"strings: {_list_values(labels.counts)}"
    problem = ": numbers, or labels of which some are missing"
    if task:
        problem = f", which does not fit {task}"
    steps: list[Step] = [Setting(task=name) for name in fitting]
    if not is_missing_clear:
        steps.insert(0, "write 0 for -1 if it is a class; in a regression, it is a number")
    raise DamagedInput(
        f"The labels {listed} are {found}{problem}.",
        expected="one label, a string or an integer from 0 (-1: missing); several 0/1 labels; or numbers",
        steps=steps or "correct the labels, or choose other columns as label",
    )


def _class_names_of_integers(y: Array, lowest: int) -> tuple[str, ...]:
    """Return the distinct integers of labels (n,) as strings, ascending; empty for other numbers.

    Names are needed if no label is 0, or if the ``lowest`` class that is allowed is -1.
    """
    labels = y[~np.isnan(y)]
    values = np.unique(labels if lowest == NO_CLASS else labels[labels != NO_CLASS])
    if not len(values) or values[0] < lowest or values[-1] >= MAX_CLASSES or (values % 1).any():
        return ()
    # Next to one other value, -1 may be a class: fitting_task asks.
    if len(values) == 1 and len(labels[labels == NO_CLASS]):
        return ()
    # Numbers from 0 are classes, also if some do not occur.
    return () if values[0] == 0 else tuple(f"{value:.0f}" for value in values.tolist())


def _classes_of_one_hot(y: Array, names: Sequence[str], task: TaskName | None) -> Array:
    """Return the position of the 1 in each one-hot row (n, C), or other targets unchanged.

    Raises ``OpenQuestions`` if the task is not given: such rows may also be several labels.
    """
    if task in {"multilabel", "regression"} or y.ndim < 2 or y.shape[1] < 2:
        return y
    if not (np.isin(y, (0, 1)).all(axis=1) & (y.sum(axis=1) == 1)).all():
        return y
    if task is None:
        question = (
            f"Each row of the labels {', '.join(names)} has a single 1: task=classification, where its "
            "position is the class, or task=multilabel for several labels"
        )
        raise OpenQuestions({question: _CLASSIFICATION})
    classes: Array = y.argmax(axis=1).astype(np.float64)
    return classes


def mask_changed_by_float32(values: Array) -> Bools:
    """Return the mask of integers, of any shape, that float32 would change, such as 1700000001."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    changed: Bools = (values == np.rint(values)) & (rounded != values) & np.isfinite(rounded)
    return changed


def stored_labels(labels: Array, classes: Sequence[int | str] | None) -> Array:
    """Return labels (n,) as codes of ``classes``, or without classes rounded to float32."""
    return labels.astype(np.float32) if classes is None else class_codes(labels, classes)


def class_codes(labels: Array, classes: Sequence[int | str]) -> I64:
    """Return the position in ``classes`` of each label; -1 for any other label.

    Labels are numbers of any shape, or strings (n,). A number is the class of a string that it is
    written as, without a fraction.
    """
    if all(isinstance(label, int) for label in classes) and labels.dtype != object:
        values = np.asarray(classes, np.float64)
        order = np.argsort(values)
        position = np.searchsorted(values[order], labels).clip(max=len(values) - 1)
        is_class = values[order][position] == labels
        return np.where(is_class, order[position], NO_CLASS)
    codes = {str(label): code for code, label in enumerate(classes)}
    is_number = labels.dtype != object
    # Labels that are strings in one file may all be numbers in another.
    names = (
        f"{label:.0f}" if is_number or isinstance(label, float) else str(label)
        for label in labels.tolist()
    )
    return np.fromiter((codes.get(name, NO_CLASS) for name in names), np.int64, len(labels))


def classes_option(values: Iterable[int], max_classes: int) -> Setting:
    """Return the setting that makes these integers classes: a number of classes, or their list."""
    classes = sorted({*values})
    are_numbered = classes == list(range(len(classes)))
    if 1 < len(classes) <= _MAX_VALUES_SHOWN and not are_numbered:
        return Setting(classes=",".join(map(str, classes)))
    return Setting(classes=max(2, min(max(classes, default=0) + 1, max_classes)))


def targets_as_numbers(targets: Array, classes: Sequence[str]) -> Array:
    """Convert targets (n,) or (n, C) to floats: class names to positions in ``classes``, missing to NaN."""
    if targets.ndim == 1 and (targets.dtype == object or classes):
        codes = class_codes(targets, classes).astype(np.float64)
        return np.where(codes == NO_CLASS, np.nan, codes)
    try:
        return targets.astype(np.float64)
    except ValueError as error:
        strings = [
            value for value in targets.reshape(-1).tolist() if isinstance(value, str) and value
        ]
        raise DamagedInput(
            f"The labels are strings, such as {strings[0] if strings else str(error)!r}, not numbers.",
            steps=["write numbers, or make one label classes", _CLASSIFICATION],
        ) from error


@dataclass
class LabelStatistics:
    """Values of labels, collected file by file."""

    #: Rows per integer or string; integers are not counted behind a fraction, or beyond 65,536.
    counts: Counter[int | str] = field(default_factory=Counter)
    low: float = math.inf  #: smallest number
    high: float = -math.inf  #: largest number
    has_strings: bool = False
    non_integer: float | None = None  #: a value that is not an integer, if any
    missing: int = 0
    points: int = 0

    def add(self, label: Array) -> None:
        """Count labels (n,)."""
        self.points += len(label)
        if label.dtype == object:
            self.has_strings = True
            strings = Counter(label.tolist())
            self.missing += strings.pop(None, 0)
            self.counts += Counter({str(string): count for string, count in strings.items()})
            return
        self.low = min(self.low, np.nanmin(label, initial=math.inf))
        self.high = max(self.high, np.nanmax(label, initial=-math.inf))
        finite = label[np.isfinite(label)]
        self.missing += len(label) - len(finite)
        non_integers = finite[finite != np.rint(finite)]
        if len(non_integers):
            self.non_integer = float(non_integers[0])
        # Stop counting beyond the maximum of classes, because a regression may have any number.
        if self.non_integer is None and len(self.counts) <= MAX_CLASSES:
            values, counts = np.unique(finite, return_counts=True)
            counted = zip(map(int, values[: MAX_CLASSES + 1]), counts.tolist(), strict=False)
            self.counts += Counter(dict(counted))

    def classes(
        self, class_labels: Sequence[int | str], count: int | None, column: str
    ) -> list[int | str]:
        """Return the label of each class: ``class_labels`` if given, sorted strings, or integers from 0."""
        allowed = count or MAX_CLASSES
        if class_labels:
            return [*class_labels]
        if self.has_strings:
            names = sorted(map(str, self.counts))
            if len(names) > allowed:
                remedy: Step = "choose another column as label"
                if len(names) <= MAX_CLASSES:
                    remedy = Setting(classes=len(names))
                raise DamagedInput(
                    f"{column!r} has {len(names)} distinct strings: {_list_values(names)}.",
                    steps=remedy,
                )
            return [*names]
        numbers = sorted(
            value for value in self.counts if isinstance(value, int) and value != NO_CLASS
        )
        if not numbers:
            raise DamagedInput(f"No point has a label in {column!r}.", steps=Setting(label="none"))
        if count is None and numbers[-1] in _VOID_LABELS and len(numbers) <= _MAX_LISTED_CLASSES:
            raise _void_error(numbers, column)
        if numbers[0] < 0 or numbers[-1] >= allowed:
            remedy = classes_option(numbers, MAX_CLASSES)
            if (
                len(numbers) > _MAX_VALUES_SHOWN
                and not 0 <= numbers[0] <= numbers[-1] < MAX_CLASSES
            ):
                remedy = _REGRESSION
            raise DamagedInput(
                f"The labels in {column!r} are {_list_values(numbers)}; classes must be 0 to {allowed - 1}.",
                steps=remedy,
            )
        return list(range(count or numbers[-1] + 1))

    def count_without_class(self, classes: Sequence[int | str]) -> int:
        """Count the points whose label is missing or not a class."""
        class_set = {*classes, *map(str, classes)} if self.has_strings else {*classes}
        non_classes = (count for value, count in self.counts.items() if value not in class_set)
        return self.missing + sum(non_classes)

    def suggest_classes_option(self, classes: Sequence[int | str], column: str) -> str:
        """Suggest a setting if some classes never occur, else return an empty string."""
        present = sorted(
            value for value in self.counts if value in set(classes) and isinstance(value, int)
        )
        if (
            self.has_strings
            or len(present) == len(classes)
            or not 1 < len(present) <= _MAX_VALUES_SHOWN
        ):
            return ""
        return (
            f"the labels in {column!r} are {_list_values(present)}: "
            f"{classes_option(present, MAX_CLASSES)} makes them {len(present)} classes"
        )


def _void_error(numbers: Sequence[int], column: str) -> OpenQuestions:
    """Return the question about a largest label that may mark points without a class."""
    *others, last = map(str, numbers)
    choices = [",".join([*others, last])]
    if len(others) > 1:
        choices.append(",".join(others))
    question = (
        f"The labels in {column!r} are {_list_values(numbers)}: {last} may be a class, or mark points "
        f"without one: {' or '.join(f'classes={choice}' for choice in choices)}"
    )
    return OpenQuestions({question: Setting(classes=choices[-1])})


def _list_values(values: Sequence[int | str] | Counter[int | str]) -> str:
    strings = list(map(str, values))
    more = ", …" if len(strings) > _MAX_VALUES_SHOWN else ""
    return ", ".join(strings[:_MAX_VALUES_SHOWN]) + more
