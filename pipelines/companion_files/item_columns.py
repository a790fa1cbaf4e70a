"""Labels, groups and parts of clouds or pictures, from a table beside them, lists or their folders."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import Array
from kmip_data.columns.labels import NO_CLASS, LabelStatistics, TaskName, fitting_task
from kmip_data.columns.part_masks import are_parts, part_code
from kmip_data.errors import DamagedInput, OpenQuestions, Setting, UsageError
from kmip_data.format.schema import GROUP_DOC, PART_DOC, Column
from kmip_data.format.split_files import NO_PART, PARTS, part_name
from kmip_data.pipelines import known_names
from kmip_data.pipelines.common_columns import class_column, regression_column
from kmip_data.pipelines.companion_files.companions import Companions, ItemColumn
from kmip_data.pipelines.companion_files.legends import find_legend
from kmip_data.pipelines.domains.cloud_columns import comparable_name
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.pipelines.own_pipeline import parse_class_values
from kmip_data.strict_model import StrictModel
from kmip_data.text import list_names

FOLDER_LABEL = "folder"  #: value of ``label``: the folder of an item is its class
_MIN_ITEMS_PER_CLASS = (
    2  #: average number of items from which a folder or value is a class by default
)
_CLASS_WORDS = {"", "c", "category", "class", "label", "type"}  #: before the number of a class


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
    optional: bool = False,
) -> ItemLabels | None:
    """Return the labels that ``label`` names, by default a table's column, or else folders.

    The default column has a known name, or is the only one of all tables with values of a target.
    ``paths`` of the items have the folders, by default the items themselves.

    ``None`` if there are none, or if ``label`` is no column of a table. Raises ``UsageError`` if
    folders are given as labels, but are none and not ``optional``, and ``OpenQuestions`` if folders
    may be classes or not.
    """
    if label == NO_LABEL:
        return None
    column = None
    if label != FOLDER_LABEL:
        column = companions.find_column(known_names.ITEM_LABELS if label is None else [label])
    folders: Mapping[str, str] = {}
    if label == FOLDER_LABEL or (label is None and column is None):
        classes = class_folders(paths or items, by_default=label is None).values()
        folders = dict(zip(items, classes, strict=True)) if classes else {}
    if label is None and column is None:
        column = _only_target(companions, {*folders.values()}, group)
    if column is not None:
        values = {item: column.by_item.get(item) for item in items}
        return ItemLabels(column.name, f"the column {column.name!r} of {column.file}", values)
    if label == FOLDER_LABEL and items and not folders and not optional:
        raise UsageError(
            "The files are not in a folder for each class.",
            expected="several folders, such as chair/a.txt and table/b.txt",
            found=list_names(items, 200),
            steps=Setting(label=None),
        )
    return ItemLabels(FOLDER_LABEL, "the folder of each file", folders) if folders else None


def _only_target(companions: Companions, folders: set[str], group: str) -> ItemColumn | None:
    """Return the only column of all tables that can be a target; ``None`` if ``folders`` are.

    Folders such as batch1 and batch2 are classes only if the user says so. Raises ``OpenQuestions``
    if several of these may be the target; texts are likelier than numbers.
    """
    targets: dict[str, ItemColumn] = {}
    for column in companions.columns:
        name = comparable_name(column.name)
        if column.is_key or column.name == group or name in targets or _has_parts(column):
            continue
        joined = companions.find_column([name])
        if joined is not None and _is_target(joined):
            targets[name] = joined
    likely = sorted(targets.values(), key=lambda column: not _has_texts(column))
    are_numbered = are_numbered_alike(folders)
    if len(likely) < 2 and (not folders or (likely and are_numbered)):
        return likely[0] if likely else None
    if not likely and not are_numbered:
        return None
    answers = [(f"the column {column.name!r} of {column.file}", column.name) for column in likely]
    nothing = ("nothing", NO_LABEL)
    in_folders = (f"the folders {list_names(sorted(folders), 100)}", FOLDER_LABEL)
    if are_numbered:
        answers += [nothing, in_folders]
    elif folders:
        answers = [in_folders, *answers, nothing]
    else:
        answers.append(nothing)
    listed = [f"{source}: {Setting(label=name)}" for source, name in answers]
    likeliest = Setting(label=answers[0][1])
    raise OpenQuestions({f"The target may be {', or '.join(listed)}": likeliest})


def _has_texts(column: ItemColumn) -> bool:
    """True for a column with texts."""
    return any(isinstance(value, str) for value in column.by_item.values())


def are_numbered_alike(folders: Collection[str]) -> bool:
    """True for folders such as ``batch1`` and ``batch2``: one word, which is none of classes."""
    words = {re.sub(r"[\W_]*\d+$", "", folder).lower() for folder in folders}
    have_numbers = all(folder[-1:].isdecimal() for folder in folders)
    return have_numbers and len(words) == 1 and words.isdisjoint(_CLASS_WORDS)


def _is_target(column: ItemColumn) -> bool:
    """True for numbers with fractions, and for texts or whole numbers that repeat."""
    values = [value for value in column.by_item.values() if value is not None]
    distinct = {*values}
    if any(isinstance(value, float) and value % 1 for value in values):
        return len(distinct) > 1
    return 1 < len(distinct) <= len(values) / _MIN_ITEMS_PER_CLASS


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
            integers = {code: n for code, n in statistics.counts.items() if isinstance(code, int)}
            legend = find_legend(legends, integers, codes)
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
    items: Sequence[str], companions: Companions, group: str, label: str | None
) -> dict[Column, dict[str, int]]:
    """Return the columns of parts and groups that a split reads, with the value of each item.

    Parts come from lists, such as ``train.txt``, or a table's column that is called ``split`` or
    has the values of parts, but is neither ``group`` nor ``label``. An item without a group is a
    group of its own. Raises ``UsageError`` if no table has the column ``group``.
    """
    columns: dict[Column, dict[str, int]] = {}
    codes: Mapping[str, int] = companions.parts
    fields: tuple[str, ...] = ()
    part_column = None if codes else _part_column(companions, {group, label})
    if part_column is not None:
        codes = _codes_of_parts(part_column)
        fields = (part_column.name,)
    if codes:
        column = Column(
            key="graph/split",
            attribute="split",
            stored="uint8",
            presented="uint8",
            fields=fields,
            doc=PART_DOC,
        )
        columns[column] = {item: codes.get(item, NO_PART) for item in items}
    if not group:
        return columns

    found = companions.find_column([group])
    if found is None:
        companions.refuse_missing("group", group, items)
    values = found.by_item
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values.values()))}
    own_number = len(numbers)
    groups = {}
    for item in items:
        value = values.get(item)
        groups[item] = own_number if value is None else numbers[value]
        own_number += value is None
    column = Column(
        key="graph/group",
        attribute="group",
        stored="int32",
        presented="int64",
        fields=(found.name,),
        doc=GROUP_DOC,
    )
    columns[column] = groups
    return columns


def _part_column(companions: Companions, used: Collection[str | None]) -> ItemColumn | None:
    """Return the column called ``split``, or else the first with the values of parts."""
    columns = [
        column
        for column in companions.columns
        if not column.is_key and column.name not in used and _has_parts(column)
    ]
    named = [column for column in columns if comparable_name(column.name) == known_names.PART_NAME]
    return next(iter(named + columns), None)


def _has_parts(column: ItemColumn) -> bool:
    """True for a column called ``split``, or with the values of parts."""
    values = {value for value in column.by_item.values() if value is not None}
    return comparable_name(column.name) == known_names.PART_NAME or are_parts(values)


def _codes_of_parts(column: ItemColumn) -> dict[str, int]:
    """Return the code of the part of each item in a column; refuse other values."""
    codes = {}
    for item, value in column.by_item.items():
        code = part_code("" if value is None else str(value).strip())
        if code is None:
            raise DamagedInput(
                f"{column.file}: {column.name!r} has the value {value!r}, which is no part.",
                expected="train, val or test, or an empty cell",
                steps=["correct it, or draw the parts", Setting(ignore=column.name)],
            )
        codes[item] = code
    return codes


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
