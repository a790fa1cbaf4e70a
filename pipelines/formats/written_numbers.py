"""Numbers as people write them: decimal signs, groups of thousands and units."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

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
    rf"[+-]?(?:\d{{1,3}}(?:[{_THOUSANDS_SEPARATORS}]\d{{3}})+|\d*)(?:[.,]\d*)?{_EXPONENT}"
)
#: Integer part of such a number; no group begins with 0.
_INTEGER_PART = re.compile(rf"[+-]?(?:[1-9]\d{{0,2}}(?:[{_THOUSANDS_SEPARATORS}]\d{{3}})+|\d*)")
#: Whole number; programs write 57.0 if other numbers of a column are missing.
_PLAIN = re.compile(rf"[+-]?\d+(?:\.0)?{_EXPONENT}")
_FRACTION = re.compile(rf"(\d*)({_EXPONENT})")
#: Number whose only point or comma may be either sign: three digits follow, and no 0 leads.
_AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")

_CURRENCIES = ("€", "$", "£", "¥", "₹", "EUR", "USD", "GBP", "CHF")
_UNITS = frozenset(
    (
        *_CURRENCIES,
        *("%", "‰", "ppm", "ppb", "°", "°C", "°F", "K", "dB", "px", "dpi"),
        *("Å", "nm", "µm", "μm", "um", "mm", "cm", "dm", "m", "km", "in", "ft", "yd", "mi"),
        *("m²", "m2", "km²", "km2", "cm²", "ha", "m³", "m3", "ml", "mL", "cl", "l", "L"),
        *("ng", "µg", "μg", "mg", "g", "kg", "t", "lb", "lbs", "oz", "Da", "kDa", "mol", "mmol"),
        *("ns", "µs", "μs", "us", "ms", "s", "sec", "min", "h", "hr", "hrs", "d", "yr", "yrs"),
        *("day", "days", "week", "weeks", "month", "months", "year", "years"),
        *("kmh", "kph", "mph", "kn", "W", "kW", "MW", "GW", "Wh", "kWh", "MWh", "GWh"),
        *("J", "kJ", "MJ", "cal", "kcal", "eV", "keV", "MeV", "V", "mV", "kV", "A", "mA"),
        *("Hz", "kHz", "MHz", "GHz", "Pa", "hPa", "kPa", "MPa", "bar", "mbar", "psi"),
        *("bit", "B", "kB", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "Mbps", "Gbps", "bp", "kb"),
    )
)  # fmt: skip
_SINGULARS = {unit: unit[:-1] for unit in ("lbs", "hrs", "yrs", "days", "weeks", "months", "years")}
_WITH_UNIT = re.compile(
    rf"(?P<sign>[+-]?)(?P<prefix>{'|'.join(map(re.escape, _CURRENCIES))})?\s*"
    r"(?P<number>[\d.,](?:.*\d[.,]?)?)(?P<blank>\s*)(?P<suffix>[^\d\s.,'+-]\S*)?"
)


class Quantity(NamedTuple):
    """Number as it is written, and its unit; both empty for a text without a known unit."""

    number: str = ""
    unit: str = ""


def is_written_number(text: str) -> bool:
    """True for a number in any notation, such as 1.234,5 or 1 234."""
    return _NUMBER.fullmatch(text) is not None and any(map(str.isdigit, text))


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


def normalize_number(number: str, decimal: str) -> str | None:
    """Drop separators of thousands and use a decimal point; ``None`` if the sign does not fit."""
    if _PLAIN.fullmatch(number):
        return number
    integer_part, _, rest = number.partition(decimal)
    fraction = _FRACTION.fullmatch(rest)
    if not _INTEGER_PART.fullmatch(integer_part) or fraction is None:
        return None
    digits = re.sub(f"[{_THOUSANDS_SEPARATORS}]", "", integer_part)
    return f"{digits}.{rest}" if rest else digits


def split_unit(text: str) -> Quantity:
    """Split a text such as ``12 %``, ``1.5 km/h`` and ``€ 1,000`` into number and unit.

    A single letter is a unit only behind a blank: ``5 m`` is a length, and ``5m`` may be a name.
    """
    match = _WITH_UNIT.fullmatch(text)
    if match is None or not is_written_number(match["number"]):
        return Quantity()
    prefix = match["prefix"] or ""
    suffix = match["suffix"] or ""
    if bool(prefix) == bool(suffix):
        return Quantity()
    parts = suffix.split("/") if suffix else [prefix]
    if len(parts) > 2 or not all(part in _UNITS for part in parts):
        return Quantity()
    if len(suffix) == 1 and suffix.isalpha() and not match["blank"]:
        return Quantity()
    unit = "/".join(_SINGULARS.get(part, part) for part in parts)
    return Quantity(match["sign"] + match["number"], unit)
