"""Roles of columns that become features, and the features: numbers, booleans and categories."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from kmip_data.arrays import F32, F64, Array, Bools
from kmip_data.columns.column_roles import ColumnRole
from kmip_data.columns.labels import mask_changed_by_float32
from kmip_data.errors import Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.cell_values import (
    NOTHING_MISSING,
    CellValues,
    TableColumn,
    check_described_values,
    is_boolean_column,
    is_identifier_column,
    typed_values,
    value_texts,
)
from kmip_data.pipelines.formats.header_line import UNNAMED_PREFIX
from kmip_data.pipelines.formats.written_numbers import MISSING_WORDS
from kmip_data.text import list_names

_DATE = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})(?:[T ]+[\d:.,+Zz -]*)?"
    # Excel has no dates before 1900, of which only the time is read.
    r"|\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
    # Wed Oct 10 20:19:24 +0000 2018; Wed, 10 Oct 2018 20:19:24 GMT; 10 October 2018
    r"|(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?(?:\d{1,2}[. ]+)?"
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? [\d:., +-]*\d{4}"
    r"(?: [\d:.+ -]*(?:gmt|utc)?)?",
    re.IGNORECASE,
)


def decide_feature_role(column: TableColumn, values: CellValues, role: ColumnRole) -> ColumnRole:
    """Return the role of a column that may be a feature, by its values.

    Numbers and booleans are one feature, strings one for each distinct string. Identifiers, dates,
    prose and row numbers are ignored with a reason. What the values leave open becomes a question.
    """
    if values.numbers is not None:
        reason = _reason_to_ignore_numbers(column, values.numbers)
        if reason:
            return role.model_copy(update={"why": reason})
        use = "boolean" if is_boolean_column(column) else "number"
        nullable = bool(np.isnan(values.numbers).any())
        return role.model_copy(update={"use": use, "nullable": nullable, "unit": values.unit})

    strings = values.strings
    categories, counts = np.unique(strings[strings != ""].astype(str), return_counts=True)
    reason = _reason_to_ignore_strings(column, categories)
    if reason:
        return role.model_copy(update={"why": reason})
    if column.categories:
        categories = np.array(column.categories)
    if _ask_about_categories(column, categories, counts):
        return role
    nullable = bool((strings == "").any())
    return role.model_copy(
        update={"use": "category", "categories": tuple(categories.tolist()), "nullable": nullable}
    )


def read_features(column: TableColumn, values: CellValues, role: ColumnRole) -> list[F32]:
    """Return the features (R,) of a column, as many as its role has; refuse values that do not fit.

    Missing numbers become 0; a second feature marks them.
    """
    is_missing = values.is_missing
    if not role.nullable:
        check_described_values(column, is_missing, values, "")
    if is_missing.any():
        column.notices.missing[column.name] = int(is_missing.sum())
    if role.use == "category":
        texts = value_texts(column, values)
        typed = typed_values(column, values, role.categories)
        listed = list_names(role.categories, 200)
        is_wrong = ~np.isin(texts, [*typed, ""])
        check_described_values(column, is_wrong, values, f"one of the categories {listed}")
        return [(texts == text).astype(np.float32) for text in typed]

    numbers = values.numbers
    if numbers is None:
        numbers = pd.to_numeric(pd.Series(values.strings), errors="coerce").to_numpy(np.float64)
    is_wrong = np.isnan(numbers) & ~is_missing
    expected = "a number"
    if role.use == "boolean":
        is_wrong = ~np.isin(numbers, (0, 1)) & ~is_missing
        expected = "true or false"
    check_described_values(column, is_wrong, values, expected)
    if values.unit != role.unit:
        expected = f"a number with the unit {role.unit}" if role.unit else "a number"
        check_described_values(column, ~is_missing, values, expected)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = numbers.astype(np.float32)
    if question := _question_of_precision(column, numbers, rounded):
        column.add_question(question, Setting(ignore=column.name))
    if not role.nullable:
        return [rounded]
    return [np.where(is_missing, np.float32(0), rounded), is_missing.astype(np.float32)]


def _reason_to_ignore_numbers(column: TableColumn, numbers: F64) -> str:
    """Return why numbers (R,) are no feature; empty if they are one."""
    if np.isnan(numbers).all():
        return "empty"
    if column.name in column.params.feature:
        return ""
    if _is_index(column):
        return "the index of its rows"
    return "ids or names of the rows" if _has_ids(column.name, numbers) else ""


def _reason_to_ignore_strings(column: TableColumn, categories: Array) -> str:
    """Return why a column with these distinct strings is no feature; empty if it is one."""
    if not len(categories):
        return "empty"
    if column.name in column.params.feature:
        return ""
    is_open = not column.categories  # a dtype decides
    if is_open and all(map(_DATE.fullmatch, categories)):
        return f"dates or times, such as {categories[0]}"
    if is_identifier_column(column) or (is_open and _are_prose_or_lists(categories)):
        return f"names or free text, such as {categories[0][:40]!r}"
    return ""


def _ask_about_categories(column: TableColumn, categories: Array, counts: Array) -> bool:
    """Ask whether strings are missing values, or too many for categories; True if so."""
    name = column.name
    location = f"{column.table.name}: {name!r}"
    ambiguous = [str(text) for text in categories if text in MISSING_WORDS]
    if ambiguous and not column.params.missing and not column.categories:
        count = int(counts[np.isin(categories, ambiguous)].sum())
        question = (
            f"{location} has {ambiguous[0]!r} in {count:,} rows. Is this text or a missing value? "
            f"{NOTHING_MISSING} or {Setting(missing=ambiguous[0])}"
        )
        column.add_question(question, NOTHING_MISSING)
        return True
    if len(categories) > column.params.categories:
        question = (
            f"{location} has {len(categories):,} texts ({', '.join(categories[:3])}, …): leave it out, or "
            f"categories={len(categories)}"
        )
        column.add_question(question, Setting(ignore=name))
        return True
    return False


def _are_prose_or_lists(strings: Array) -> bool:
    """True if strings are sentences, lists or objects rather than categories."""
    are_long = np.mean([len(text) for text in strings]) > 60 or any(
        "\n" in text for text in strings
    )
    return bool(are_long) or all(text[0] in "[{(" for text in strings)


def _is_index(column: TableColumn) -> bool:
    """True for the index that pandas writes: distinct integers without a name, or called ``index``."""
    is_unnamed = column.name.startswith(UNNAMED_PREFIX)
    is_index = is_unnamed or known_columns.normalized_name(column.name) == "index"
    return is_index and column.cells.dtype.kind in "iu" and column.cells.is_unique


def _has_ids(name: str, numbers: F64) -> bool:
    """True for distinct integers in a column named like an id."""
    normalized_name = known_columns.normalized_name(name)
    is_known = normalized_name in {*known_names.NODE_ID_NAMES, "label", "key"}
    if not is_known and not known_columns.is_id_name(name):
        return False
    with np.errstate(invalid="ignore"):
        has_fractions = np.nan_to_num(numbers % 1).any()
    return bool(pd.Series(numbers).is_unique and not has_fractions)


def _question_of_precision(column: TableColumn, numbers: F64, values: F32) -> str:
    """Return the question about a number that float32 cannot hold; empty if there is none."""
    is_infinite = ~np.isfinite(values) & ~np.isnan(numbers)
    if is_infinite.any():
        row = int(is_infinite.argmax())
        return f"{column.locate(row, f'{numbers[row]:g}')}, not a finite float32"
    is_changed = _changed_integers(column.cells.to_numpy(), numbers, values)
    is_changed |= _merged_by_float32(numbers, values)
    if not is_changed.any() or column.name in column.params.rounded:
        return ""
    row = int(is_changed.argmax())
    return (
        f"{column.locate(row, f'{numbers[row]:.15g}')}, and {values[row]:.15g} as float32: "
        f"leave it out, or {Setting(rounded=column.name)}"
    )


def _changed_integers(raw: Array, numbers: F64, values: F32) -> Bools:
    """Mask integers that float32 changes; fractions are rounded without a question."""
    is_changed = mask_changed_by_float32(numbers)
    if raw.dtype.kind in "iu":  # compare integers that float64 cannot hold
        for row in np.flatnonzero(np.abs(numbers) > 2**53):
            is_changed[row] = int(values[row]) != int(raw[row])
    return is_changed


def _merged_by_float32(numbers: F64, values: F32) -> Bools:
    """Mask numbers that float32 moves by over a thousandth of their range, such as Unix times."""
    moved = np.abs(values.astype(np.float64) - numbers)
    filled = numbers[~np.isnan(numbers)]
    spread = np.ptp(filled) if filled.size else 0.0
    is_merged: Bools = (moved > spread / 1_000) & (spread > 0)
    return is_merged
