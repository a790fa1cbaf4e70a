"""Labels of points: values across all files, inferred task, and class codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.target_inference import NO_CLASS
from kmip_data.errors import DamagedInput

MAX_CLASSES = 65_536
_MAX_VALUES_SHOWN = 20
_VOID_LABELS = {255, 65_535}  #: largest integers of a byte and of two, which often mark no class
_MAX_LISTED_CLASSES = 128  #: classes up to which their labels can be listed in an option
Task = Literal["classification", "regression"]


@dataclass
class LabelStatistics:
    """Values of the label column in all files."""

    counts: Counter[int | str] = field(default_factory=Counter)  #: points per integer or string
    has_strings: bool = False
    non_integer: float | None = None  #: a value that is not an integer, if any
    missing: int = 0
    points: int = 0

    def add(self, label: Array) -> None:
        """Count the labels (n,) of a cloud."""
        self.points += len(label)
        if label.dtype == object:
            self.has_strings = True
            strings = Counter(label.tolist())
            self.missing += strings.pop(None, 0)
            self.counts += Counter({str(string): count for string, count in strings.items()})
            return
        finite = label[np.isfinite(label)]
        self.missing += len(label) - len(finite)
        non_integers = finite[finite != np.rint(finite)]
        if len(non_integers):
            self.non_integer = float(non_integers[0])
        # Stop counting beyond the maximum of classes, because a regression may have any number.
        if self.non_integer is None and len(self.counts) <= MAX_CLASSES:
            values, counts = np.unique(finite, return_counts=True)
            self.counts += Counter(dict(zip(map(int, values), counts.tolist(), strict=True)))

    def task(self, requested: Task | None, column: str) -> Task:
        """Return the requested task, or infer a regression from a value that is not an integer."""
        mostly_distinct = self.points > _MAX_VALUES_SHOWN and 2 * len(self.counts) > self.points
        if requested != "regression" and mostly_distinct:
            raise DamagedInput(
                f"The labels in {column!r} differ for most points, so they are not classes.",
                next="--set label_column=none, or --set task=regression",
            )
        if self.has_strings and requested == "regression":
            raise DamagedInput(
                f"The labels in {column!r} are strings: {_list_values(self.counts)}.",
                next="--set task=classification",
            )
        if self.non_integer is not None and requested == "classification":
            raise DamagedInput(
                f"The labels in {column!r} are numbers such as {self.non_integer:g}, not classes.",
                next="--set task=regression",
            )
        if requested is None and self.non_integer is not None and not self.has_strings:
            return "regression"
        return requested or "classification"

    def classes(
        self, class_labels: Sequence[int], count: int | None, column: str
    ) -> list[int | str]:
        """Return the label of each class: ``class_labels`` if given, sorted strings, or integers from 0."""
        allowed = count or MAX_CLASSES
        if self.has_strings:
            names = sorted(map(str, self.counts))
            if len(names) > allowed:
                remedy = "another --set label_column="
                if len(names) <= MAX_CLASSES:
                    remedy = f"--set classes={len(names)}"
                raise DamagedInput(
                    f"{column!r} has {len(names)} distinct strings: {_list_values(names)}.",
                    next=remedy,
                )
            return [*names]
        if class_labels:
            return [*class_labels]
        numbers = sorted(
            value for value in self.counts if isinstance(value, int) and value != NO_CLASS
        )
        if not numbers:
            raise DamagedInput(
                f"No point has a label in {column!r}.", next="--set label_column=none"
            )
        if count is None and numbers[-1] in _VOID_LABELS and len(numbers) <= _MAX_LISTED_CLASSES:
            raise _void_error(numbers, column)
        if numbers[0] < 0 or numbers[-1] >= allowed:
            if 1 < len(numbers) <= _MAX_VALUES_SHOWN:
                remedy = f"--set classes={','.join(map(str, numbers))}"
            elif numbers[0] < 0 or numbers[-1] >= MAX_CLASSES:
                remedy = "--set task=regression"
            else:
                remedy = f"--set classes={numbers[-1] + 1}"
            raise DamagedInput(
                f"The labels in {column!r} are {_list_values(numbers)}; classes must be 0 to {allowed - 1}.",
                next=remedy,
            )
        return list(range(count or numbers[-1] + 1))

    def count_without_class(self, classes: Sequence[int | str]) -> int:
        """Count the points whose label is missing or not a class."""
        if self.has_strings:
            return self.missing
        class_set = set(classes)
        non_classes = (count for value, count in self.counts.items() if value not in class_set)
        return self.missing + sum(non_classes)

    def suggest_classes_option(self, classes: Sequence[int | str], column: str) -> str:
        """Suggest an option if some classes never occur, else return an empty string."""
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
            f"--set classes={','.join(map(str, present))} makes them {len(present)} classes"
        )


def _void_error(numbers: Sequence[int], column: str) -> DamagedInput:
    """Return the error for a largest label that may mark points without a class."""
    *others, last = map(str, numbers)
    remedy = f"--set classes={','.join([*others, last])}"
    if len(others) > 1:
        remedy = f"--set classes={','.join(others)} if it marks no class, else {remedy}"
    return DamagedInput(
        f"The labels in {column!r} are {_list_values(numbers)}: {last} may be a class, or mark points "
        "without one.",
        next=remedy,
    )


def _list_values(values: Sequence[int | str] | Counter[int | str]) -> str:
    strings = list(map(str, values))
    more = ", …" if len(strings) > _MAX_VALUES_SHOWN else ""
    return ", ".join(strings[:_MAX_VALUES_SHOWN]) + more


def encode_labels(label: Array, classes: Sequence[int | str] | None) -> Array:
    """Map labels (n,) to positions in ``classes``, -1 if missing; without classes return them."""
    if classes is None:
        return label
    if label.dtype == object or isinstance(classes[0], str):
        codes = {str(value): code for code, value in enumerate(classes)}
        # Labels that are strings in one file may all be integers in another.
        strings = (f"{value:.0f}" if isinstance(value, float) else str(value) for value in label)
        return np.fromiter(
            (codes.get(string, NO_CLASS) for string in strings), np.int64, len(label)
        )
    class_labels = np.array(classes, np.int64)
    order = np.argsort(class_labels)
    integers = np.nan_to_num(label, nan=NO_CLASS).astype(np.int64)
    position = np.searchsorted(class_labels[order], integers).clip(max=len(class_labels) - 1)
    is_class = (class_labels[order][position] == integers) & np.isfinite(label)
    y: Array = np.where(is_class, order[position], NO_CLASS)
    return y
