"""Features of a column by its role, and checks of its values against a description."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmip_data.arrays import F32, I64, Bools
from kmip_data.columns.column_roles import ColumnRole
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.own.columns.facts import BOOLEANS, MISSING
from kmip_data.pipelines.own.columns.numbers import match_notations, number_texts
from kmip_data.pipelines.own.columns.uses import Candidate
from kmip_data.text import list_names


def read_features(column: Candidate, role: ColumnRole) -> list[F32]:
    """Return the features (R,) of a column, as many as its role has; refuse values that do not fit.

    Missing numbers become 0; a second feature marks them.
    """
    is_missing = column.facts.is_missing
    if not role.nullable:
        _check(column, is_missing, "")
    if role.use == "category":
        codes = codes_of_values(column, role.categories, "one of the categories")
        return [(codes == code).astype(np.float32) for code in range(len(role.categories))]

    expected = "true or false" if role.use == "boolean" else "a number"
    if role.unit:
        expected += f" with the unit {role.unit}"
    numbers = column.facts.numbers
    if numbers is None:
        _check(column, ~_are_read(column, role), expected)
    if numbers is None or column.facts.unit != role.unit:
        _check(column, ~is_missing, expected)
        numbers = np.full(len(is_missing), np.nan)
    if role.use == "boolean":
        _check(column, ~np.isin(numbers, (0, 1)) & ~is_missing, expected)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = numbers.astype(np.float32)
    if not role.nullable:
        return [rounded]
    return [np.where(is_missing, np.float32(0), rounded), is_missing.astype(np.float32)]


def codes_of_values(column: Candidate, typed: Sequence[str], expected: str) -> I64:
    """Return the position of each value (R,) among typed ones, such as 57.0; -1 if it is missing."""
    facts = column.facts
    positions = {_canonical(column, text): position for position, text in enumerate(typed)}
    if len(positions) < len(typed):
        raise DamagedInput(
            f"The description of {column.name!r} has a value twice: {list_names(typed)}.",
            steps="keep one of them",
        )
    codes = [positions.get(_canonical(column, text), -1) for text in facts.texts]
    by_row = facts.by_row(codes, -1)
    _check(column, (by_row < 0) & ~facts.is_missing, f"{expected} {list_names(typed, 200)}")
    return by_row


def _canonical(column: Candidate, text: str) -> str:
    """Return a typed value as the column has it."""
    if column.facts.are_booleans:
        return text.lower()
    if column.facts.numbers is None or column.facts.unit:
        return text
    try:
        return number_texts([float(text)])[0]
    except ValueError:
        return text


def _are_read(column: Candidate, role: ColumnRole) -> Bools:
    """Mask (R,) of the texts that are what a column is described as, or missing."""
    facts = column.facts
    are_numbers = np.any(match_notations(facts.coded.dictionary), axis=0)
    are_read = [
        text in MISSING
        or (
            (text.lower() in BOOLEANS if role.use == "boolean" else is_number)
            and text not in facts.strays
        )
        for text, is_number in zip(facts.texts, are_numbers, strict=True)
    ]
    return facts.by_row(are_read, True).astype(bool)


def _check(column: Candidate, is_wrong: Bools, expected: str) -> None:
    """Refuse the first value (R,) that does not fit the description."""
    if not is_wrong.any():
        return
    row = int(is_wrong.argmax())
    if column.facts.is_missing[row]:
        problem = f"{column.name!r} is empty, and the description has no missing values of it"
        remedy = "fill it in, remove the line, or set nullable = true in the description"
    else:
        problem = f"{column.name!r} is {str(column.facts.cells[row])!r}, not {expected}"
        remedy = "correct the value, or remove the line: a model has no input or output for it"
    raise column.table.error_at(row, problem, remedy)
