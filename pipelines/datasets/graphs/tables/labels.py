"""Target columns of a table: which columns they are, and their values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.column_roles import Level
from kmip_data.columns.labels import NO_CLASS
from kmip_data.errors import Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.cell_values import (
    NOTHING_MISSING,
    CellValues,
    TableColumn,
    check_described_values,
    filled_cells,
    is_boolean_column,
    is_identifier_column,
    typed_values,
    value_texts,
)
from kmip_data.text import list_names

#: Fraction of labelled nodes up to which distinct whole numbers are names, not classes.
_NAMED_FRACTION = 0.1


def find_labels(
    columns: Sequence[TableColumn], level: Level, options: ReadOptions, notices: Notices
) -> tuple[list[str], dict[str, str]]:
    """Return the target columns, and ignored columns that are named like a target, with reasons."""
    if not columns:
        return [], {}
    params = options.params
    table = columns[0].table
    names = [column.name for column in columns]
    if params.label:
        labels = [name for name in params.label if name in names]
        if options.described is not None and table.frame[labels].isna().all(axis=None):
            return [], dict.fromkeys(labels, "empty")
        return labels, {}

    named_like_labels = known_columns.matching_names(names, known_names.TABLE_LABELS)
    candidates = []
    ignored = {}
    for name in named_like_labels:
        column = columns[names.index(name)]
        is_label = known_columns.normalized_name(name) == "label"
        reason = ""
        filled = filled_cells(column)
        # Whole numbers that name a few nodes are no classes, as texts are not.
        may_be_integers = is_label or len(filled) <= _NAMED_FRACTION * len(column.cells)
        if filled.empty:
            reason = "empty"
        elif level == "node" and is_identifier_column(
            column, may_be_integers=may_be_integers and params.task is None
        ):
            # Values that are nearly all distinct within each graph are names, not classes.
            reason = (
                "names, a different one for nearly every node that has one; a target by "
                f"{Setting(label=name)}"
            )
        if reason:
            ignored[name] = reason
        else:
            candidates.append(name)

    # Next to x, y is a coordinate if there is another label, and may be one otherwise.
    remaining = [name for name in names if name not in ignored]
    y = next(iter(known_columns.matching_names(remaining, ["y"])), "")
    x = next(iter(known_columns.matching_names(remaining, ["x"])), "")
    if y and x:
        has_label = "label" in map(known_columns.normalized_name, named_like_labels)
        have_fractions = all(table.frame[name].dtype.kind == "f" for name in (x, y))
        if has_label or len(candidates) > 1:
            candidates.remove(y)
        elif have_fractions:
            question = f"{table.name}: {y!r} next to {x!r} may be a coordinate or the target"
            answer = Setting(label="none")
            notices.questions[f"{question}: {Setting(label=y)} or {answer}"] = answer
            return [], ignored
    if len(candidates) > 1:
        question = f"{table.name}: the target may be one of {', '.join(candidates)}"
        notices.questions[question] = Setting(label=candidates[0])
        return [], ignored
    return candidates, ignored


def read_targets(
    columns: Sequence[TableColumn],
    values: Sequence[CellValues],
    classes: Sequence[str],
    params: GraphParams,
) -> Array:
    """Return target columns: one, (R,), or several as rows, (R, C); NaN or an empty string if missing.

    A single target has one of the ``classes``, if they are known.
    """
    is_single = len(columns) == 1 and params.task != "multilabel"
    has_class_names = is_single and params.task != "regression"
    targets = [
        _read_target(*pair, classes if has_class_names else (), has_class_names=has_class_names)
        for pair in zip(columns, values, strict=True)
    ]
    return targets[0] if is_single else np.stack(targets, axis=1)


def _read_target(
    column: TableColumn,
    values: CellValues,
    classes: Sequence[str],
    *,
    has_class_names: bool,
) -> Array:
    """Return a target column: numbers, NaN if missing; or strings, empty if missing.

    If the target ``has_class_names``, booleans are the strings ``false`` and ``true``, unless their
    ``classes`` are numbers.
    """
    cells = column.cells
    missing = int(values.is_missing.sum())
    if missing:
        column.notices.missing[column.name] = missing
    are_booleans = has_class_names and values.numbers is not None and is_boolean_column(column)
    if classes:
        texts = value_texts(column, values)
        typed = typed_values(column, values, classes)
        if are_booleans and typed.keys().isdisjoint(texts):
            texts = CellValues(values.numbers).as_strings()
        listed = list_names(classes, 200)
        is_wrong = ~np.isin(texts, [*typed, ""])
        found = CellValues(None, texts)
        check_described_values(column, is_wrong, found, f"one of the classes {listed}")
        if [*classes] != [str(number) for number in range(len(classes))]:
            return np.array([typed.get(text, "") for text in texts], object)
    elif are_booleans:
        return value_texts(column, values)
    elif has_class_names:
        _ask_about_minus_one(column, values)
    if values.numbers is None:
        return values.strings
    if cells.dtype.kind in "iub" and not missing:
        return cells.to_numpy()
    return values.numbers


def _ask_about_minus_one(column: TableColumn, values: CellValues) -> None:
    """Ask whether -1 among whole numbers is a class or marks a missing label: tables use both."""
    numbers = values.numbers
    if numbers is None or "none" in column.params.missing:
        return
    is_minus_one = numbers == NO_CLASS
    others = numbers[~np.isnan(numbers) & ~is_minus_one]
    if not is_minus_one.any() or (others < NO_CLASS).any() or (others % 1).any():
        return
    # Next to a single other value, it is more likely a class.
    is_class = len(np.unique(others)) < 2
    column.add_question(
        f"{column.locate(is_minus_one.argmax(), '-1')}. Is this a class or a missing label? missing='-1' "
        f"for a missing label, {NOTHING_MISSING} for a class, task='regression' for a number",
        NOTHING_MISSING if is_class else Setting(missing="-1"),
    )
