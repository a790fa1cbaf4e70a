"""One look at all clouds before the first record: columns, labels, and every file that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.points.cloud_from_columns import (
    Cloud,
    parse_feature,
    pick_columns,
)
from kmip_data.pipelines.datasets.points.columns import Columns, ReadOptions, comparable_name
from kmip_data.pipelines.datasets.points.files import LABEL, read_points, with_labels
from kmip_data.pipelines.datasets.points.labels import LabelFacts

_USUAL = (LABEL, "labels")  #: names of a column of labels
_SHOWN = 5  #: files that a line names


def load_cloud(path: Path, name: str, labels: Path | None, options: ReadOptions) -> Columns:
    """Return the columns of a cloud and of its file of labels."""
    columns = read_points(path, name, options)
    return columns if labels is None else with_labels(columns, labels, labels.name, options)


@dataclass
class Survey:
    """Columns and values of all clouds."""

    options: ReadOptions
    features: Sequence[str]
    label: str | None  #: column of labels, empty for none; ``None``: one of :data:`_USUAL`
    labels: LabelFacts = field(default_factory=LabelFacts)
    missing: set[str] = field(default_factory=set)  #: features with missing numbers
    unusable: dict[str, DamagedInput] = field(default_factory=dict)
    points: int = 0
    clouds: int = 0
    _labelled: list[str] = field(default_factory=list)  #: column of labels of each cloud with one
    _unused: dict[str, None] = field(default_factory=dict)
    _ignored: dict[str, str] = field(default_factory=dict)
    _notes: dict[str, list[str]] = field(default_factory=dict)  #: remark -> files
    _left_out: dict[str, int] = field(default_factory=dict)

    def add(
        self, name: str, path: Path, labels: Path | None, check: Callable[[str, Cloud], None]
    ) -> None:
        """Read a cloud, or keep its problem."""
        try:
            columns = load_cloud(path, name, labels, self.options)
            label = self.label
            if label is None:
                label = next(filter(None, map(columns.find_column, _USUAL)), None)
            cloud = pick_columns(columns, name, self.options.position, self.features, label or None)
            check(name, cloud)
        except DamagedInput as error:
            self.unusable[name] = error
            return

        self.clouds += 1
        self.points += len(cloud.xyz) + cloud.left_out
        if cloud.left_out:
            self._left_out[name] = cloud.left_out
        if cloud.label is not None:
            self._labelled.append(label or "")
            self.labels.add(cloud.label)
        for text, missing in zip(self.features, cloud.missing.T, strict=True):
            if missing.any():
                self.missing.add(text)
        if columns.note:
            self._notes.setdefault(columns.note, []).append(name)
        self._ignored |= columns.ignored
        wanted = [parse_feature(text, columns).column for text in self.features]
        used = {
            columns.find_column(text) for text in (*wanted, *self.options.position, label or "")
        }
        self._unused |= {column: None for column in columns.values if column not in used}

    def label_column(self) -> str | None:
        """Return the column of labels; without a chosen one, the usual one that all clouds have."""
        if self.label is not None:
            return self.label or None
        same = len({*map(comparable_name, self._labelled)}) == 1
        return self._labelled[0] if same and len(self._labelled) == self.clouds else None

    def unused_data(self) -> list[str]:
        """Return what is read and not used, each with its reason."""
        unused = list(self._unused)
        lines = []
        if self.label is None and self._labelled and self.label_column() is None:
            column = self._labelled[0]
            unused.append(column)
        if unused:
            lines.append(f"{', '.join(dict.fromkeys(unused))}: not among --set feature=")
        return lines + [f"{name}: {reason}" for name, reason in self._ignored.items()]

    def warnings(self) -> list[str]:
        """Return assumptions, and points without a position."""
        lines = [f"{note}: {_count_files(names)}" for note, names in self._notes.items()]
        if self._left_out:
            total = sum(self._left_out.values())
            lines.append(
                f"{total:,} of {self.points:,} points have no position and are left out:"
                f" {_count_files(self._left_out)}"
            )
        return lines


def _count_files(names: Sequence[str] | Mapping[str, int]) -> str:
    """Return the first file names of several, with their counts."""
    counts = isinstance(names, Mapping)
    words = [f"{name} {names[name]:,}" if counts else name for name in list(names)[:_SHOWN]]  # type: ignore[call-overload]
    more = len(names) - len(words)
    return ", ".join(words) + (f" and {more:,} more" if more else "")
