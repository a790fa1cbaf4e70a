"""Features that a column becomes: numbers, categories and marks of missing values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

import numpy as np
import pandas as pd

from kmip_data.arrays import F32, F64, Array, Bools
from kmip_data.columns.column_uses import DescribedColumn
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.cell_values import (
    MISSING_STRINGS,
    TableColumn,
    check_described_values,
    is_identifier_column,
    read_values,
)
from kmip_data.pipelines.datasets.graphs.tables.table import UNNAMED_PREFIX, is_row_index

NamedFeatures = list[tuple[str, F32]]  #: names and values (R,)

_MAX_UNSCALED = 120  #: largest absolute value of a feature that needs no scaling, such as an age
_DATE = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})(?:[T ]+[\d:.,+Zz -]*)?"
    # Wed Oct 10 20:19:24 +0000 2018; Wed, 10 Oct 2018 20:19:24 GMT; 10 October 2018
    r"|(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?(?:\d{1,2}[. ]+)?"
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? [\d:., +-]*\d{4}"
    r"(?: [\d:.+ -]*(?:gmt|utc)?)?",
    re.IGNORECASE,
)


def read_features(column: TableColumn, described: DescribedColumn | None = None) -> NamedFeatures:
    """Return the features of a column; as ``described`` if given.

    Numbers are one feature. If some are missing, they become 0, and a second feature marks them.
    Strings are one feature for each distinct string. Identifiers, dates and row numbers are
    ignored.
    """
    questions_before = len(column.notices.questions)
    values = read_values(column, is_target=False)
    # The next question about the column depends on the answer.
    if described is None and len(column.notices.questions) > questions_before:
        return []
    numbers = values.numbers
    is_nullable = described is not None and described.nullable
    if described is not None and described.use in {"number", "category"}:
        strings = values.as_strings()
        if not is_nullable:
            check_described_values(column, values.is_missing, strings, "")
        if described.use == "category":
            categories = described.categories or tuple(sorted({*strings} - {""}))
            is_wrong = ~np.isin(strings, [*categories, ""])
            expected = f"one of the categories {', '.join(categories)[:200]}"
            check_described_values(column, is_wrong, strings, expected)
            return _one_hot(column.name, strings, categories)
        if numbers is None:
            numbers = pd.to_numeric(pd.Series(strings), errors="coerce").to_numpy(np.float64)
            is_wrong = np.isnan(numbers) & ~values.is_missing
            check_described_values(column, is_wrong, strings, "a number")
        if values.unit != described.unit:
            expected = f"a number with the unit {described.unit}" if described.unit else "a number"
            check_described_values(column, strings != "", strings, expected)
    if numbers is not None:
        return _number_features(column, numbers, values.unit, is_nullable=is_nullable)
    return _category_features(column, values.strings)


def _one_hot(name: str, strings: Array, categories: Iterable[str]) -> NamedFeatures:
    return [(f"{name}={text}", (strings == text).astype(np.float32)) for text in categories]


def _category_features(column: TableColumn, strings: Array) -> NamedFeatures:
    """Return one feature for each distinct string (R,), unless they are ignored or ambiguous."""
    name = column.name
    params = column.params
    categories, counts = np.unique(strings[strings != ""].astype(str), return_counts=True)
    reason = ""
    if not len(categories):
        reason = "empty"
    elif name in params.feature:
        pass
    elif all(map(_DATE.fullmatch, categories)):
        reason = f"dates, such as {categories[0]}"
    elif is_identifier_column(column) or _are_prose_or_lists(categories):
        reason = f"names or free text, such as {categories[0][:40]!r}"
    if reason:
        column.ignore(reason)
        return []
    location = f"{column.table.name}: {name!r}"
    ambiguous = [str(text) for text in categories if text in MISSING_STRINGS]
    if ambiguous and not params.missing:
        count = int(counts[np.isin(categories, ambiguous)].sum())
        question = (
            f"{location} has {ambiguous[0]!r} in {count:,} rows, a text or a missing value: "
            f"--set missing=none or --set missing={ambiguous[0]}"
        )
        column.add_question(question, "--set missing=none")
        return []
    if len(categories) > params.categories:
        question = (
            f"{location} has {len(categories):,} texts ({', '.join(categories[:3])}, …): leave it out, or "
            f"--set categories={len(categories)}"
        )
        column.add_question(question, f"--set ignore={shlex.quote(name)}")
        return []
    missing = int((strings == "").sum())
    if missing:
        column.notices.missing[name] = missing
    return _one_hot(name, strings, categories)


def _are_prose_or_lists(strings: Array) -> bool:
    """True if strings are sentences, lists or objects rather than categories."""
    are_long = np.mean([len(text) for text in strings]) > 60 or any(
        "\n" in text for text in strings
    )
    return bool(are_long) or all(text[0] in "[{(" for text in strings)


def _number_features(
    column: TableColumn, numbers: F64, unit: str, *, is_nullable: bool
) -> NamedFeatures:
    """Return numbers (R,) as a feature, and a second feature if some are, or may be, missing."""
    name = column.name
    is_missing = np.isnan(numbers)
    if is_missing.all() and not is_nullable:
        column.ignore("empty")
        return []
    with np.errstate(over="ignore", invalid="ignore"):
        values = numbers.astype(np.float32)
    if name not in column.params.feature:
        if _has_row_numbers(column):
            is_unnamed = name.startswith(UNNAMED_PREFIX)
            shown = f"a column without a name in {column.table.name}" if is_unnamed else name
            column.notices.ignored[shown] = "the numbers of its rows"
            return []
        if _has_ids(name, numbers):
            column.ignore("ids or names of the rows")
            return []
    question = _question_of_precision(column, numbers, values)
    if question:
        column.add_question(question, f"--set ignore={shlex.quote(name)}")
        return []

    largest = float(np.nanmax(np.abs(values), initial=0))
    if largest > _MAX_UNSCALED:
        column.notices.large_features[name] = largest
    feature = f"{name} [{unit}]" if unit else name
    if not is_missing.any() and not is_nullable:
        return [(feature, values)]
    if is_missing.any():
        column.notices.missing[name] = int(is_missing.sum())
    return [
        (feature, np.where(is_missing, np.float32(0), values)),
        (f"{name} missing", is_missing.astype(np.float32)),
    ]


def _has_row_numbers(column: TableColumn) -> bool:
    """True for the index that pandas writes: row numbers in a column without a name, or ``index``."""
    is_unnamed = column.name.startswith(UNNAMED_PREFIX)
    is_index = is_unnamed or known_columns.normalized_name(column.name) == "index"
    return is_index and is_row_index(column.cells)


def _has_ids(name: str, numbers: F64) -> bool:
    """True for distinct integers in a column named like an id."""
    normalized_name = known_columns.normalized_name(name)
    is_known = normalized_name in {*known_columns.NODE_ID_NAMES, "label", "key"}
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
        f"leave it out, or --set rounded={shlex.quote(column.name)}"
    )


def _changed_integers(raw: Array, numbers: F64, values: F32) -> Bools:
    """Mask integers that float32 changes; fractions are rounded without a question."""
    is_changed: Bools = (numbers == np.rint(numbers)) & (values != numbers)
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
