"""Labels of points: their values in all files, and the classes or numbers that they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput

MAX_CLASSES = 65_536
NO_CLASS = -1
_SHOWN = 20
Task = Literal["classification", "regression"]


@dataclass
class LabelFacts:
    """Values of the label column in all files."""

    counts: Counter[int | str] = field(default_factory=Counter)  #: of integers, or of texts
    texts: bool = False
    fraction: float | None = None  #: a number that is no integer
    missing: int = 0
    points: int = 0

    def add(self, label: Array) -> None:
        """Count the labels (n,) of a cloud."""
        self.points += len(label)
        if label.dtype == object:
            self.texts = True
            words = Counter(label.tolist())
            self.missing += words.pop(None, 0)
            self.counts += Counter({str(word): count for word, count in words.items()})
            return
        known = label[np.isfinite(label)]
        self.missing += len(label) - len(known)
        broken = known[known != np.rint(known)]
        if len(broken):
            self.fraction = float(broken[0])
        # Numbers of a regression may all differ: no more of them are counted than can be classes.
        if self.fraction is None and len(self.counts) <= MAX_CLASSES:
            values, counts = np.unique(known, return_counts=True)
            self.counts += Counter(dict(zip(map(int, values), counts.tolist(), strict=True)))

    def task(self, asked: Task | None, column: str) -> Task:
        """Return the task: a regression if asked for, or if a number is no integer."""
        if asked != "regression" and self.points > _SHOWN and 2 * len(self.counts) > self.points:
            raise DamagedInput(
                f"The labels in {column!r} differ for most points: they are names, or numbers.",
                next="--set label_column=none, or --set task=regression",
            )
        if self.texts and asked == "regression":
            raise DamagedInput(
                f"The labels in {column!r} are texts: {_list_values(self.counts)}.",
                next="--set task=classification",
            )
        if self.fraction is not None and asked == "classification":
            raise DamagedInput(
                f"The labels in {column!r} are numbers such as {self.fraction:g}, not classes.",
                next="--set task=regression",
            )
        if asked is None and self.fraction is not None and not self.texts:
            return "regression"
        return asked or "classification"

    def classes(self, codes: Sequence[int], count: int | None, column: str) -> list[int | str]:
        """Return the value of each class in order.

        They are the ``codes``, if given, the sorted texts, or the integers from 0.
        """
        values = [value for value in self.counts if value != NO_CLASS]
        if self.texts:
            names = sorted(map(str, self.counts))
            if len(names) > (count or MAX_CLASSES):
                raise DamagedInput(
                    f"{column!r} has {len(names)} texts: {_list_values(names)}.",
                    next=f"--set classes={len(names)}"
                    if len(names) <= MAX_CLASSES
                    else "another --set label_column=",
                )
            return [*names]
        if codes:
            return [*codes]
        numbers = sorted(value for value in values if isinstance(value, int))
        if not numbers:
            raise DamagedInput(
                f"No point has a label in {column!r}.", next="--set label_column=none"
            )
        if numbers[0] < 0 or numbers[-1] >= (count or MAX_CLASSES):
            few = ",".join(map(str, sorted({*numbers})))
            hint = f"--set classes={few}"
            if len(numbers) > _SHOWN or len(numbers) < 2:
                hint = f"--set classes={numbers[-1] + 1}"
            if numbers[0] < 0 or numbers[-1] >= MAX_CLASSES:
                hint = (
                    f"--set classes={few}"
                    if 1 < len(numbers) <= _SHOWN
                    else "--set task=regression"
                )
            allowed = count or MAX_CLASSES
            raise DamagedInput(
                f"The labels in {column!r} are {_list_values(numbers)}, and classes are 0 to {allowed - 1}.",
                next=hint,
            )
        return list(range(count or numbers[-1] + 1))

    def without_class(self, classes: Sequence[int | str]) -> int:
        """Return the number of points whose label is missing or no class."""
        if self.texts:
            return self.missing
        known = set(classes)
        others = (count for value, count in self.counts.items() if value not in known)
        return self.missing + sum(others)

    def advice(self, classes: Sequence[int | str], column: str) -> str:
        """Return a hint where some of the classes never occur."""
        present = sorted(
            value for value in self.counts if value in set(classes) and isinstance(value, int)
        )
        if self.texts or len(present) == len(classes) or not 1 < len(present) <= _SHOWN:
            return ""
        return (
            f"the labels in {column!r} are {_list_values(present)}: "
            f"--set classes={','.join(map(str, present))} makes {len(present)} classes of them"
        )


def _list_values(values: Sequence[int | str] | Counter[int | str]) -> str:
    words = list(map(str, values))
    more = ", …" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more


def encode_labels(label: Array, classes: Sequence[int | str] | None) -> Array:
    """Return the position of each label (n,) in ``classes``, -1 if missing; without classes the numbers."""
    if classes is None:
        return label
    if label.dtype == object or isinstance(classes[0], str):
        codes = {str(value): code for code, value in enumerate(classes)}
        # In another file texts may all be integers.
        texts = (f"{value:.0f}" if isinstance(value, float) else str(value) for value in label)
        return np.fromiter((codes.get(text, NO_CLASS) for text in texts), np.int64, len(label))
    numbers = np.array(classes, np.int64)
    order = np.argsort(numbers)
    whole = np.nan_to_num(label, nan=NO_CLASS).astype(np.int64)
    at = np.searchsorted(numbers[order], whole).clip(max=len(numbers) - 1)
    hit = (numbers[order][at] == whole) & np.isfinite(label)
    y: Array = np.where(hit, order[at], NO_CLASS)
    return y
