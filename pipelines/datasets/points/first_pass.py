"""The only pass over all clouds: columns, labels and unusable files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kmip_data.arrays import Array
from kmip_data.columns.labels import LabelStatistics
from kmip_data.errors import DamagedInput
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.points.cloud_from_columns import (
    Cloud,
    cloud_from_columns,
    parse_feature,
)
from kmip_data.pipelines.datasets.points.files import (
    add_labels,
    is_annotation,
    read_annotations,
    read_point_columns,
)
from kmip_data.pipelines.domains.cloud_columns import CloudOptions, comparable_name

_MIN_ROWS_OF_RUN = 16  #: average number of points of a cloud in a column of clouds
_MAX_FILES_SHOWN = 5  #: file names listed in a message


@dataclass
class Survey:
    """Columns and labels of all clouds, collected one cloud at a time."""

    options: CloudOptions
    features: Sequence[str]
    #: Label column; empty for no labels, None for the first with a known name.
    requested_label_column: str | None
    is_label_optional: bool = False  #: True if no cloud needs the requested label column
    label_statistics: LabelStatistics = field(default_factory=LabelStatistics)
    missing: set[str] = field(default_factory=set)  #: features with missing values
    unusable: dict[str, DamagedInput] = field(default_factory=dict)  #: error of each unusable file
    points: int = 0
    clouds: int = 0
    #: label column of each cloud that has one
    _label_columns: list[str] = field(default_factory=list)
    _unused_columns: dict[str, None] = field(default_factory=dict)
    _columns_of_runs: list[str] = field(default_factory=list)  #: which may name several clouds
    _ignored: dict[str, str] = field(default_factory=dict)  #: reason per ignored part of a file
    _files_by_note: dict[str, list[str]] = field(default_factory=dict)
    #: points without position per file
    _num_without_position: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        name: str,
        paths: Sequence[Path],
        labels: Path | None,
        check: Callable[[str, Cloud], None],
    ) -> Cloud | None:
        """Read and return a cloud, of one file or of annotations, or collect its error."""
        try:
            if is_annotation(paths[0].as_posix()):
                columns = read_annotations(paths, name, self.options)
            else:
                columns = read_point_columns(paths[0], name, self.options)
            if labels is not None:
                columns = add_labels(columns, labels, labels.name, self.options)
            label = self.requested_label_column
            if label is None:
                likely = (*known_names.CLOUD_LABELS, *known_names.LIKELY_CLOUD_LABELS)
                label = next(filter(None, map(columns.find_column, likely)), None)
            elif self.is_label_optional and columns.find_column(label) is None:
                label = None
            cloud = cloud_from_columns(
                columns, name, self.options.position, self.features, label or None
            )
            check(name, cloud)
        except DamagedInput as error:
            self.unusable[name] = error
            return None

        self.clouds += 1
        self.points += len(cloud.xyz) + cloud.num_without_position
        if cloud.num_without_position:
            self._num_without_position[name] = cloud.num_without_position
        if cloud.label is not None:
            self._label_columns.append(label or "")
            self.label_statistics.add(cloud.label)
        for feature, is_missing in zip(self.features, cloud.is_missing.T, strict=True):
            if is_missing.any():
                self.missing.add(feature)
        if columns.note:
            self._files_by_note.setdefault(columns.note, []).append(name)
        self._ignored |= columns.ignored
        feature_columns = [parse_feature(text, columns).column for text in self.features]
        used_names = (*feature_columns, *self.options.position, label or "")
        used = {columns.find_column(name) for name in used_names}
        unused = [column for column in columns.values if column not in used]
        self._unused_columns |= dict.fromkeys(unused)
        self._columns_of_runs += filter(lambda name: _has_runs(columns.values[name]), unused)
        return cloud

    def label_column(self) -> str | None:
        """Return the given label column, or one by its name if all clouds have it."""
        if self.requested_label_column is not None:
            is_missing = self.is_label_optional and len(self._label_columns) < self.clouds
            return None if is_missing else self.requested_label_column or None
        names = {*map(comparable_name, self._label_columns)}
        if len(names) != 1 or len(self._label_columns) < self.clouds:
            return None
        counts = self.label_statistics.counts
        non_integer = self.label_statistics.non_integer
        is_constant = len(counts) < 2 and not non_integer
        if is_constant and names.isdisjoint(known_names.CLOUD_LABELS):
            return None
        return self._label_columns[0]

    @property
    def is_label_guessed(self) -> bool:
        """True if the label column was chosen by a name that other columns may have, too."""
        column = self.label_column()
        is_given = self.requested_label_column is not None or column is None
        return not is_given and comparable_name(column or "") not in known_names.CLOUD_LABELS

    def unused_data(self) -> list[str]:
        """Return messages about unused columns and ignored parts of files, with reasons."""
        unused = list(self._unused_columns)
        messages = []
        if (
            self.requested_label_column is None
            and self._label_columns
            and self.label_column() is None
        ):
            unused.append(self._label_columns[0])
        if unused:
            messages.append(f"{', '.join(dict.fromkeys(unused))}: not among the features")
        return messages + [f"{name}: {reason}" for name, reason in self._ignored.items()]

    def warnings(self) -> list[str]:
        """Return the readers' assumptions, and the number of points without a position."""
        messages = [f"{note}: {_list_files(names)}" for note, names in self._files_by_note.items()]
        if self.clouds == 1 and self._columns_of_runs:
            messages.append(
                f"all rows are one cloud; if each {self._columns_of_runs[0]!r} is a cloud, write a file for each"
            )
        if self._num_without_position:
            total = sum(self._num_without_position.values())
            messages.append(
                f"{total:,} of {self.points:,} points have no position and are left out:"
                f" {_list_files(self._num_without_position)}"
            )
        return messages


def _has_runs(values: Array) -> bool:
    """True for texts or integers (N,) of which each is in one run of many rows."""
    is_whole = values.dtype == object or not (values % 1).any()
    runs = int((values[1:] != values[:-1]).sum()) + 1
    return is_whole and 1 < runs == len({*values.tolist()}) <= len(values) / _MIN_ROWS_OF_RUN


def _list_files(names: Sequence[str] | Mapping[str, int]) -> str:
    """Format the first file names, with their counts if given."""
    if isinstance(names, Mapping):
        names = [f"{name} {count:,}" for name, count in names.items()]
    more = len(names) - _MAX_FILES_SHOWN
    return ", ".join(names[:_MAX_FILES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
