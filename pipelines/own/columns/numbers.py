"""Numbers as people write them: decimal signs, groups of thousands and percent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import F64, Bools

DecimalSign = Literal[".", ","]
Readings = dict[DecimalSign | None, F64]  #: decimal sign -> numbers (R,); ``None`` if any does
SIGNS: tuple[DecimalSign, ...] = (".", ",")
_SAMPLED_ROWS = 1_000  #: first rows, which show most columns that have no numbers
_MARKS = " '\u2019\xa0\u202f"  #: between groups of thousands, with either decimal sign
_MINUS = "\u2212"
#: Number and the unit behind it; a single letter is one behind a blank, as 5a is a name.
_WITH_UNIT = re.compile(
    rf"[+{_MINUS}-]?[0-9][0-9{_MARKS}.,]*(?:(?<=[{_MARKS}])|(?![^\W\d_]$))([^0-9{_MARKS}.,:;/_()+-].*)"
)
_EXPONENT = "(?:[eE][+-]?[0-9]+)?"


def _patterns(sign: DecimalSign) -> tuple[str, str]:
    """Return the patterns of numbers without and with groups of thousands.

    None begins with 0 and another digit, as codes do. Programs write 58.0 for 58 next to missing
    numbers, whatever their sign is.
    """
    point = re.escape(sign)
    marks = _MARKS + "".join(other for other in SIGNS if other != sign)
    groups = "|".join(f"(?:{re.escape(mark)}[0-9]{{3}})+" for mark in marks)
    whole = "(?:0|[1-9][0-9]*)"
    plain = rf"(?:(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+){_EXPONENT}|{whole}\.0)"
    grouped = f"(?:0|[1-9][0-9]{{0,2}}(?:{groups})?)(?:{point}[0-9]*)?"
    return rf"^[+{_MINUS}-]?{plain}$", rf"^[+{_MINUS}-]?{grouped}$"


_PATTERNS = {sign: _patterns(sign) for sign in SIGNS}
CODE = f"^[+{_MINUS}-]?0[0-9]"  #: beginning of a code such as 01067, which is no number


def read_numbers(texts: pa.Array) -> Readings:
    """Return each reading of texts (R,) as numbers by its decimal sign, with NaN for null.

    There is none unless all texts are numbers. The sign is ``None`` if they do not depend on it,
    and there are two readings if it is open, as in 1,234.
    """
    if texts.null_count == len(texts):
        return {None: np.full(len(texts), np.nan)}
    numbers = _cast(texts)
    if numbers is not None and _begin_with_code(texts):
        return {}
    if numbers is not None and not pc.any(pc.match_substring(texts, ".")).as_py():
        return {None: numbers}
    readings: Readings = {} if numbers is None else {".": numbers}
    for sign in SIGNS:
        if sign not in readings and any(all_match(texts, like) for like in _PATTERNS[sign]):
            readings[sign] = _parse(texts, sign)
    if len(readings) == 2 and np.array_equal(readings["."], readings[","], equal_nan=True):
        return {None: readings["."]}
    return readings


def shown_sign(texts: pa.Array) -> DecimalSign | None:
    """Return the decimal sign that texts (n,) prove, as 0,5 does; ``None`` if they prove none."""
    texts = with_unit_behind(texts)
    if unit := common_unit(texts):
        texts = without_unit(texts, unit)
    for part in (texts[:_SAMPLED_ROWS], texts):
        signs = [sign for sign in SIGNS if sign in read_numbers(part)]
        if len(signs) == 1:
            return signs[0]
    return None


def common_unit(texts: pa.Array) -> str:
    """Return the text behind most of the first of texts (n,), such as %; empty if there is none."""
    matches = map(_WITH_UNIT.fullmatch, texts[:_SAMPLED_ROWS].drop_null().to_pylist())
    units = Counter(match[1] for match in matches if match)
    return max(units, key=units.__getitem__, default="")


def with_unit_behind(texts: pa.Array) -> pa.Array:
    """Return texts (n,) with the sign of a currency behind the number that it is in front of."""
    return pc.replace_substring_regex(texts, rf"^([+{_MINUS}-]?)([€$£¥₹])\s*(.*)$", r"\1\3 \2")


def without_unit(texts: pa.Array, unit: str) -> pa.Array:
    """Return numbers (n,) without the unit that they have behind them."""
    return pc.replace_substring_regex(texts, rf"\s*{re.escape(unit)}$", "")


def match_notations(texts: pa.Array) -> Bools:
    """Mask (notations, n) of texts that are numbers in each of the notations, with the common unit or without."""
    texts = with_unit_behind(texts)
    unit = common_unit(texts)
    has_unit = pc.ends_with(texts, unit)
    bare = without_unit(texts, unit)
    masks = []
    for patterns in _PATTERNS.values():
        for pattern in patterns:
            matches = pc.match_substring_regex(bare, pattern)
            masks += [pc.and_(matches, has_unit), pc.match_substring_regex(texts, pattern)]
    return np.stack(masks).astype(bool)


def all_match(texts: pa.Array, pattern: str) -> bool:
    """True if all texts (n,) match a pattern; the first are tried before the others."""
    parts = (texts[:_SAMPLED_ROWS], texts)
    return all(
        pc.all(pc.match_substring_regex(part, pattern), min_count=0).as_py() for part in parts
    )


def number_texts(numbers: Sequence[float]) -> list[str]:
    """Return the shortest text of each number, without a fraction of zero."""
    return [
        f"{number:.0f}" if abs(number) < 2**53 and number.is_integer() else repr(number)
        for number in numbers
    ]


def as_floats(cells: pa.Array) -> F64:
    """Return numbers (R,) of any type as float64, with NaN for null."""
    floats: F64 = pc.cast(cells, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return floats


def _parse(texts: pa.Array, sign: DecimalSign) -> F64:
    marks = _MARKS + "".join(other for other in SIGNS if other != sign)
    digits = pc.replace_substring_regex(
        texts, rf"\.0$|[+{marks}]" if sign == "," else f"[+{marks}]", ""
    )
    for mark, plain in ((",", "."), (_MINUS, "-")):
        digits = pc.replace_substring(digits, mark, plain)
    return as_floats(digits)


def _cast(texts: pa.Array) -> F64 | None:
    """Return texts as numbers with a decimal point; ``None`` if one is none, or is NaN."""
    try:
        as_floats(texts[:_SAMPLED_ROWS])  # an error about all rows takes long
        numbers = as_floats(texts)
    except pa.ArrowInvalid:
        return None
    return numbers if np.isnan(numbers).sum() == texts.null_count else None


def _begin_with_code(texts: pa.Array) -> bool:
    """True if a text begins with 0 and another digit."""
    zeros = texts.filter(pc.starts_with(texts, "0"))
    return pc.any(pc.match_substring_regex(zeros, CODE), min_count=0).as_py() is True
