"""Labels, groups and parts of clouds or pictures, from a table beside them, lists or their folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import Array
from kmip_data.columns.labels import NO_CLASS, LabelStatistics, TaskName, fitting_task
from kmip_data.errors import OpenQuestions, Setting
from kmip_data.format.schema import GROUP_DOC, PART_DOC, Column
from kmip_data.format.split_files import PARTS, part_name
from kmip_data.pipelines import known_names
from kmip_data.pipelines.common_columns import class_column, regression_column
from kmip_data.pipelines.companion_files.companions import Companions
from kmip_data.pipelines.companion_files.legends import find_legend
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.domains.text_clouds import values_of_column
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.pipelines.own.columns.facts import ColumnFacts
from kmip_data.pipelines.own.columns.parts import read_groups, read_parts
from kmip_data.pipelines.own.names import matching
from kmip_data.pipelines.own_pipeline import parse_class_values
from kmip_data.strict_model import StrictModel
from kmip_data.text import list_names

FOLDER_LABEL = "folder"  #: value of ``label``: the folder of an item is its class
_MIN_ITEMS_PER_CLASS = (
    2  #: average number of items from which a folder or value is a class by default
)


@dataclass(frozen=True)
class ItemLabels:
    """Label of each item, and where it comes from."""

    name: str  #: column, or ``folder``
    source: str  #: description for messages
    values: Mapping[str, Any]  #: item -> text, number, or ``None`` if it is missing

    def statistics(self) -> LabelStatistics:
        """Return the counts of the labels."""
        statistics = LabelStatistics()
        has_texts = any(isinstance(value, str) for value in self.values.values())
        labels: Array = np.array([*self.values.values()], object if has_texts else float)
        statistics.add(labels)
        return statistics


def label_row(value: str | float | None) -> Array:
    """Return the label of an item as an array (1,): a string, or a number, NaN if it is missing."""
    if isinstance(value, str):
        return np.array([value], object)
    return np.array([value], float)


def labels_of_items(
    label: str | None,
    items: Sequence[str],
    companions: Companions,
    paths: Iterable[str] | None = None,
    *,
    group: str = "",
) -> ItemLabels | None:
    """Return the labels that ``label`` names, by default a table's column, or else folders.

    The default column has a known name, or is the only one of all tables with values of a target.
    ``paths`` of the items have the folders, by default the items themselves.

    ``None`` if there are none, or if ``label`` is no column of a table. Raises ``OpenQuestions`` if
    several columns or folders may be the target.
    """
    folders: dict[str, str] = {}
    if label in {None, FOLDER_LABEL}:
        classes = class_folders(paths or items, by_default=label is None)
        folders = dict(zip(items if classes else (), classes.values(), strict=True))
    if label is None:
        label = _default_label(companions, {*folders.values()}, group)
    if label in companions.sources:
        notices = Notices()
        values = companions.by_item(values_of_column(companions.column(label), notices))
        notices.raise_questions()
        source = f"the column {label!r} of {companions.sources[label]}"
        return ItemLabels(label, source, {item: values[item] for item in items})
    return ItemLabels(FOLDER_LABEL, "the folder of each file", folders) if folders else None


def _default_label(companions: Companions, folders: set[str], group: str) -> str | None:
    """Return the column that is the target by its name, or else the only one, or the folders.

    Folders such as batch1 and batch2 are classes only if the user says so. Raises ``OpenQuestions``
    if several of these may be the target.
    """
    sources = companions.sources
    free = [name for name in sources if name not in {group, *companions.part_columns}]
    likely = matching(free, known_names.ITEM_LABELS)
    choices = likely or [name for name in free if _is_target(companions.column(name).facts)]
    # Folders such as batch1 and batch2.
    are_numbered = all(re.search(r"\D\d+$", folder) for folder in folders)
    if folders and not likely and not are_numbered:
        choices = [FOLDER_LABEL, *choices]
    if len(choices) == 1:
        return choices[0]
    if not choices and not folders:
        return None
    if not choices:
        choices = [NO_LABEL, FOLDER_LABEL]
    titles = {name: f"the column {name!r} of {sources[name]}" for name in free}
    titles |= {FOLDER_LABEL: f"the folders {list_names(sorted(folders), 100)}", NO_LABEL: "nothing"}
    listed = [
        f"{titles[name]}: {Setting(label=name)}" for name in dict.fromkeys([*choices, NO_LABEL])
    ]
    raise OpenQuestions({f"The target may be {', or '.join(listed)}": Setting(label=choices[0])})


def _is_target(facts: ColumnFacts) -> bool:
    """True for numbers with fractions, and for texts or whole numbers that repeat."""
    if facts.numbers is not None and not facts.are_whole:
        return facts.distinct > 1
    return not facts.are_dates and 1 < facts.distinct <= facts.filled / _MIN_ITEMS_PER_CLASS


class InferredLabels(StrictModel):
    """Labels of points or items, inferred from the files of a build."""

    label: str | None = None  #: column or source of the labels; None if there are none
    classes: tuple[int | str, ...] | None = None  #: label of each class; None for a regression
    class_names: tuple[str, ...] = ()  #: names of the classes in a legend
    is_complete: bool = True  #: True if every point or item has a label
    split_columns: tuple[Column, ...] = ()  #: parts and groups of items
    summary: dict[str, Any] = Field(default_factory=dict)  #: entries of the card


def infer_labels(
    statistics: LabelStatistics,
    label: str,
    task: TaskName | None,
    legends: Mapping[str, Mapping[int, str]],
    given_classes: str | None,
) -> dict[str, Any]:
    """Return fields of ``InferredLabels``: classes as given, else of a legend, else by values."""
    task = fitting_task(statistics, task, [label], others_are_missing=True)
    class_labels = parse_class_values(given_classes)
    count = int(given_classes) if given_classes and not class_labels else None
    summary: dict[str, Any] = {"warnings": []}
    classes = None
    names: tuple[str, ...] = ()
    missing = statistics.missing
    if task == "classification":
        codes: tuple[Any, ...] = class_labels or tuple(range(count or 0))
        legend = None
        if not statistics.has_strings:
            legend = find_legend(legends, codes or statistics.counts.keys() - {NO_CLASS})
        if legend is not None:
            codes = codes or tuple(legend.names)
            names = tuple(legend.names[code] for code in codes)
            class_labels = codes
            summary["legend"] = legend.file
        classes = tuple(statistics.classes(class_labels, count, label))
        missing = statistics.count_without_class(classes)
        suggestion = statistics.suggest_classes_option(classes, label)
        if suggestion and legend is None and not given_classes:
            summary["warnings"].append(suggestion)
    if missing:
        summary["without_label"] = f"{missing:,} of {statistics.points:,}"
    return {
        "label": label,
        "classes": classes,
        "class_names": names,
        "is_complete": not missing,
        "summary": summary,
    }


def label_column(
    name: str,
    level: Literal["node", "graph"],
    classes: Sequence[int | str] | None,
    *,
    is_complete: bool,
) -> Column:
    """Return the column of labels: numbers, or classes with -1 for a missing label."""
    key = f"{level}/y"
    source = "folder" if name == FOLDER_LABEL else f"column {name!r}"
    if classes is None:
        return replace(regression_column(key, f"number, {source}"), finite=is_complete)
    column = class_column(key, len(classes), f"class, {source}")
    return column if is_complete else replace(column, stored="int32", low=NO_CLASS)


def split_columns(
    companions: Companions, group: str, label: str | None
) -> dict[Column, dict[str, int]]:
    """Return the columns of parts and groups that a split reads, with the value of each item.

    Parts come from lists, such as ``train.txt``, or a table's column that is called ``split`` or
    has the values of parts, but is neither ``group`` nor ``label``. Raises ``UsageError`` if no table
    has the column ``group``.
    """
    columns: dict[Column, dict[str, int]] = {}
    parts = [name for name in companions.part_columns if name not in {group, label}]
    for name in sorted(parts, key=lambda name: name != known_names.PART_NAME)[:1]:
        values = companions.by_item(read_parts(companions.column(name)))
        columns[_split_column("split", name, "uint8", "uint8", PART_DOC)] = values
    if group:
        if group not in companions.sources:
            companions.refuse_missing("group", group)
        values = companions.by_item(read_groups(companions.column(group)))
        columns[_split_column("group", group, "int32", "int64", GROUP_DOC)] = values
    return columns


def _split_column(attribute: str, name: str, stored: str, presented: str, doc: str) -> Column:
    return Column(
        key=f"graph/{attribute}",
        attribute=attribute,
        stored=stored,
        presented=presented,
        fields=(name,),
        doc=doc,
    )


def class_folders(names: Iterable[str], *, by_default: bool = False) -> dict[str, str]:
    """Return the class of each item by the folder that it lies in; nothing if folders are no classes.

    Each item must be in one folder; folders named train, val and test do not count. Classes
    ``by_default`` are several, with two items on average.
    """
    folders: dict[str, str] = {}
    for name in names:
        above = [
            folder
            for folder in PurePosixPath(name).parts[:-1]
            if part_name(folder.lower()) not in PARTS
        ]
        if len(above) != 1:
            return {}
        folders[name] = above[0]
    classes = len({*folders.values()})
    is_likely = classes > 1 and len(folders) >= _MIN_ITEMS_PER_CLASS * classes
    return folders if is_likely or not by_default else {}
