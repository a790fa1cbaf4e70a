"""Numbers as people write them: decimal signs, groups of thousands and units."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

DecimalSign = Literal[".", ","]

#: Words among numbers that pandas reads as missing.
MISSING_WORDS = frozenset(
    [
        "#N/A",
        "#N/A N/A",
        "#NA",
        "<NA>",
        "N/A",
        "NA",
        "n/a",
        "NULL",
        "null",
        "None",
        "NaN",
        "nan",
        "-NaN",
        "-nan",
        "1.#IND",
        "-1.#IND",
        "1.#QNAN",
        "-1.#QNAN",
    ]
)
_THOUSANDS_SEPARATORS = ",. '\u2019\xa0\u202f"
_EXPONENT = r"(?:[eE][+-]?\d+)?"
#: Number with or without groups of three digits, and with a comma or a point.
_NUMBER = re.compile(
    rf"(?=[+-]?[.,]?\d)[+-]?(?:\d{{1,3}}(?:[{_THOUSANDS_SEPARATORS}]\d{{3}})+|\d*)(?:[.,]\d*)?{_EXPONENT}"
)
#: Whole number; programs write 57.0 if other numbers of a column are missing.
_PLAIN = re.compile(rf"[+-]?\d+(?:\.0)?{_EXPONENT}")
#: Number whose only point or comma may be either sign: three digits follow, and no 0 leads.
_AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")


def is_written_number(text: str) -> bool:
    """True for a number in any notation, such as 1.234,5 or 1 234."""
    return _NUMBER.fullmatch(text) is not None


def is_ambiguous(number: str) -> bool:
    """True if the point or comma of a number may separate thousands or fractions, as in 1,234."""
    return _AMBIGUOUS.fullmatch(number) is not None


def shown_decimal_signs(column: Iterable[str]) -> set[DecimalSign]:
    """Return the decimal signs that the numbers of a column prove, such as 1.234,5 and 0,5.

    Next to 2000, which is not grouped, 1,500 proves a decimal comma. Other texts are passed over.
    """
    signs: set[DecimalSign] = set()
    ambiguous: set[DecimalSign] = set()
    is_ungrouped = False
    for number in filter(is_written_number, column):
        points = number.count(".")
        commas = number.count(",")
        if _PLAIN.fullmatch(number):
            is_ungrouped |= re.match(r"[+-]?\d{4}", number) is not None
        elif points + commas == 0:
            continue
        elif is_ambiguous(number):
            ambiguous.add("." if points else ",")
        elif points and commas:
            signs.add("." if number.rfind(".") > number.rfind(",") else ",")
        elif points + commas > 1:
            signs.add("," if points else ".")
        else:
            signs.add("." if points else ",")
    return signs or (ambiguous if is_ungrouped else set())


def agreed_decimal_sign(signs_of_columns: Iterable[set[DecimalSign]]) -> DecimalSign | None:
    """Return the sign that the columns of a file prove; ``None`` if they prove none or both."""
    signs: set[DecimalSign] = set()
    signs.update(*signs_of_columns)
    return signs.pop() if len(signs) == 1 else None
