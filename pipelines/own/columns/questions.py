"""Questions about the values of a feature or target that have two readings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import F64, Bools
from kmip_data.columns.column_roles import Use
from kmip_data.columns.labels import NO_CLASS, mask_changed_by_float32
from kmip_data.errors import Setting
from kmip_data.pipelines.own.columns.numbers import all_match
from kmip_data.pipelines.own.columns.parts import codes_of_parts
from kmip_data.pipelines.own.columns.uses import Candidate, has_lists

_BLOCK_ROWS = 2**20
_MAX_STRAYS = 8  #: number of texts among numbers up to which they may be words for missing values


class Question(NamedTuple):
    """Question with its likeliest answer."""

    text: str
    answer: Setting


def question_about(column: Candidate, use: Use) -> Question | None:
    """Return the first open question about a column; a description has answered most."""
    asks = _QUESTIONS.get(use, ())
    if column.described or (use == "label" and column.options.described):
        asks = tuple(ask for ask in asks if ask in _NOT_DESCRIBED)
    return next((question for ask in asks if (question := ask(column))), None)


def _open_sign(column: Candidate) -> Question | None:
    number = column.facts.open_number
    if not number:
        return None
    # A mark in all numbers is behind their whole part; small ones have no thousands.
    mark = "," if "," in number else "."
    is_decimal = mark != column.table.separator and all_match(column.facts.cells, re.escape(mark))
    sign = mark if is_decimal else {",": ".", ".": ","}[mark]
    return Question(
        f"{column.locate(column.facts.row_of(number), repr(number))}. Is its sign a decimal point or a "
        f"decimal comma? {Setting(decimal='.')} for a point, {Setting(decimal=',')} for a comma",
        Setting(decimal=sign),
    )


def _strays(column: Candidate) -> Question | None:
    strays = column.facts.strays
    if not strays:
        return None
    question = f"{column.locate(column.facts.row_of(strays[0]), repr(strays[0]))} among numbers"
    if len(strays) > 1:
        question += (
            f", and {len(strays) - 1:,} other texts are ({', '.join(strays[1:_MAX_STRAYS])})"
        )
    none = column.missing("none")
    if len(strays) > _MAX_STRAYS or any(map(str.isdigit, "".join(strays))):
        # 7bis and <0.5 are values.
        return Question(f"{question}. Correct it if it is a number; {none} if it is text", none)
    return _missing_or(column, question, "text", strays)


def _sentinel(column: Candidate) -> Question | None:
    numbers = column.facts.ascending
    if not numbers.size or not re.fullmatch("-99+", f"{numbers[0]:.15g}"):
        return None
    others = numbers[numbers > numbers[0]]
    is_far = others.size and others[0] > numbers[0] / 10
    return _number_or_missing(column, numbers[0], "number") if is_far else None


def _minus_one(column: Candidate) -> Question | None:
    has_minus_one = column.facts.are_whole and NO_CLASS in column.facts.ascending[:1]
    if not has_minus_one or not column.has_classes:
        return None
    # Next to a single other value, it is more likely a class.
    return _number_or_missing(column, NO_CLASS, "class", is_value=column.facts.distinct < 3)


def _open_words(column: Candidate) -> Question | None:
    words = column.facts.open_words
    if not words:
        return None
    rows = int(np.isin(column.facts.as_texts(), words).sum())
    listed = " and ".join(map(repr, words))
    question = f"{column.table.name}: {column.name!r} has {listed} in {rows:,} rows"
    # The sign - is more likely a class next to +, and None one next to others.
    values = {"None", "none", *(["-"] if "+" in column.facts.texts else [])}
    is_value = column.use != "label" or not values.isdisjoint(words)
    return _missing_or(column, question, "text", words, is_value=is_value)


def _unknown_part(column: Candidate) -> Question | None:
    _, unknown, part = codes_of_parts(column.facts)
    if not part or column.is_mask or column.facts.are_words_given:
        return None
    where = column.locate(column.facts.row_of(unknown[0]), repr(unknown[0]))
    return _missing_or(column, f"{where} in a split", f"name of {part}", unknown, is_value=True)


def _lists(column: Candidate) -> Question | None:
    if not has_lists(column) or column.name in column.options.params.feature:
        return None
    return Question(
        f"{column.locate(0, str(column.facts.cells[0]))}, in a column of lists: leave it out, or write a "
        "column of 0 and 1 for each number, in pandas table['words'].str.get_dummies(',')",
        Setting(ignore=column.name),
    )


def _too_many_texts(column: Candidate) -> Question | None:
    texts = column.facts.texts
    if len(texts) <= column.options.params.categories:
        return None
    return Question(
        f"{column.table.name}: {column.name!r} has {len(texts):,} texts ({', '.join(texts[:3])}, …): "
        f"leave it out, or {Setting(categories=len(texts))}",
        Setting(ignore=column.name),
    )


def _precision(column: Candidate) -> Question | None:
    """Ask about a number that float32 cannot hold."""
    numbers = column.facts.numbers
    if numbers is None:
        return None
    # Unix times with fractions move by much of their range.
    spread = np.ptp(column.facts.ascending[[0, -1]]) if column.facts.filled else 0
    is_infinite, is_changed = np.zeros((2, len(numbers)), bool)
    for i in range(0, len(numbers), _BLOCK_ROWS):
        block = slice(i, i + _BLOCK_ROWS)
        is_infinite[block], is_changed[block] = _changed_by_float32(numbers[block], spread)
    remedy = f"leave it out, or {Setting(rounded=column.name)}"
    if is_infinite.any():
        is_changed = is_infinite
        remedy = "correct it, or leave the column out"
    elif column.name in column.options.params.rounded or not is_changed.any():
        return None
    row = int(is_changed.argmax())
    where = column.locate(row, f"{numbers[row]:.15g}")
    with np.errstate(over="ignore"):
        text = f"{where}, and {np.float32(numbers[row]):.15g} as float32: {remedy}"
    return Question(text, Setting(ignore=column.name))


def _changed_by_float32(numbers: F64, spread: float) -> tuple[Bools, Bools]:
    """Return masks (n,) of numbers that are infinite as float32, and of those that change too much."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = numbers.astype(np.float32)
        is_changed: Bools = mask_changed_by_float32(numbers) | ((rounded == 0) & (numbers != 0))
        is_changed |= np.abs(numbers) >= 2**53  # float64 does not hold these either
        is_changed |= (np.abs(rounded - numbers) > spread / 1_000) & (spread > 0)
    return np.isinf(rounded), is_changed


def _number_or_missing(
    column: Candidate, number: float, noun: str, *, is_value: bool = False
) -> Question | None:
    """Return the question whether a number is missing, unless the user says which values are."""
    if column.facts.are_words_given or column.facts.numbers is None:
        return None
    question = column.locate(int(np.argmax(column.facts.numbers == number)), f"{number:.0f}")
    return _missing_or(column, question, noun, [f"{number:.0f}"], is_value=is_value)


def _missing_or(
    column: Candidate, question: str, noun: str, words: Sequence[str], *, is_value: bool = False
) -> Question:
    """Return the question whether words of a column are values, which are a ``noun``, or missing."""
    none, missing = column.missing("none"), column.missing(*words)
    meaning = f"{missing} for a missing value"
    if "none" in words:
        meaning = "empty these cells for a missing value"
    return Question(
        f"{question}. Is this a {noun} or a missing value? {none} for a {noun}, {meaning}",
        none if is_value else missing,
    )


Ask = Callable[[Candidate], Question | None]
_QUESTIONS: dict[Use, tuple[Ask, ...]] = {
    "number": (_open_sign, _strays, _sentinel, _precision),
    "category": (_lists, _open_words, _too_many_texts),
    "part": (_unknown_part,),
    "label": (_open_sign, _strays, _sentinel, _open_words, _minus_one),
}
_NOT_DESCRIBED = {_open_sign, _precision}  #: questions that a description does not answer
