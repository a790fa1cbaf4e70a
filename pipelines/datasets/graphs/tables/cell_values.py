"""Cell values of a column: numbers in any notation, booleans, strings and missing values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, SupportsInt

import numpy as np
import pandas as pd

from kmip_data.arrays import F64, Array, Bools
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables.node_indices import count_distinct
from kmip_data.pipelines.datasets.graphs.tables.table import Table
from kmip_data.pipelines.formats.written_numbers import (
    MISSING_WORDS,
    DecimalSign,
    agreed_decimal_sign,
    is_written_number,
    normalize_number,
    shown_decimal_signs,
    split_unit,
)
from kmip_data.text import count_with_noun

_BOOLEANS = {"true": 1.0, "false": 0.0}
_PLAIN_INTEGER = re.compile(r"[+-]?\d+")
_IDENTIFIER_FRACTION = 0.9  #: fraction of distinct values above which strings are identifiers
_IDENTIFIER_FRACTION_OF_GRAPHS = 0.99  #: the same for values distinct within each graph
_MIN_OF_CLASS = 0.05  #: fraction of labels from which None may be a class
_LISTED_STRINGS = 100  #: strings among numbers that a question lists
_SHOWN_VALUES = 3
_SAMPLED_ROWS = 100  #: first rows in which the shown values are looked for
_MAX_SHOWN_CHARACTERS = 40
_MAX_EXACT_INTEGER = 2**53
_BOOLEAN_TEXTS = ("false", "true")


@dataclass(frozen=True)
class TableColumn:
    """Column of a table, with the parameters and notices of its reader."""

    table: Table
    name: str
    params: GraphParams
    notices: Notices
    graph_column: str = ""  #: graph of each row of nodes or edges, if there are many

    @property
    def cells(self) -> pd.Series:
        """Cells with the dtype that pandas infers."""
        return self.table.frame[self.name]

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories of the dtype, in order; empty if it has none."""
        without = {"", *self.params.missing}
        return tuple(
            text for text in self.table.categories.get(self.name, ()) if text not in without
        )

    def add_question(self, question: str, answer: Setting) -> None:
        """Add a question about the column, with its likeliest answer."""
        self.notices.questions[question] = answer

    def locate(self, row: SupportsInt, value: str) -> str:
        """Return the location and ``value`` of a cell, for messages."""
        return f"{self.table.location(row)}: {self.name!r} is {value}"


NOTHING_MISSING = Setting(missing="none")


class CellValues(NamedTuple):
    """Values of a column as numbers, with NaN for missing values, or else as strings."""

    numbers: F64 | None
    strings: Array = np.empty(0, object)  #: (R,), empty for missing values
    unit: str = ""  #: unit of the numbers, or nothing

    @property
    def is_missing(self) -> Bools:
        """Mask (R,) of missing values."""
        return self.strings == "" if self.numbers is None else np.isnan(self.numbers)

    def as_strings(self) -> Array:
        """Return the values (R,) as strings; empty if missing."""
        if self.numbers is None or self.unit:
            return self.strings
        strings = np.array([f"{value:.17g}" for value in self.numbers.tolist()], object)
        strings[self.is_missing] = ""
        return strings


def read_values(column: TableColumn, *, is_target: bool) -> CellValues:
    """Return the values of a column.

    Strings such as NA are missing among numbers and in targets. In other columns of strings, the
    parameter ``missing`` decides.
    """
    params = column.params
    cells = column.cells
    # 1067 and 01067 are different codes, and categories have a dtype: neither are numbers.
    codes = column.table.zero_padded_codes(column.name)
    if column.categories:
        codes = cells.map(str).str.strip().where(cells.notna(), "").to_numpy(object)
        codes[~np.isin(codes, column.categories)] = ""
    if codes is not None:
        return CellValues(None, codes)
    if cells.dtype.kind in "iufb":
        if not _needs_decimal_sign(column):
            values = cells.to_numpy(np.float64)
            if column.table.text and (np.nan_to_num(values) % 1).any():
                column.notices.decimal_signs.add(".")
            values = _replace_missing(values, cells.dtype.kind, params)
            _ask_about_sentinel(column, values)
            return CellValues(values)
        cells = column.table.as_written(column.name).replace("", None)
    is_empty = cells.isna().to_numpy()
    strings = cells.map(str).str.strip().to_numpy(object)
    strings[is_empty] = ""
    distinct = set(pd.unique(strings)) - {""}
    user_missing = set(params.missing)
    # Among numbers, NA is never a value; among strings, the user decides what is missing.
    missing_among_numbers = MISSING_WORDS | user_missing
    missing_among_strings = user_missing or MISSING_WORDS
    filled = np.where(np.isin(strings, list(missing_among_numbers)), "", strings)

    distinct_filled = distinct - missing_among_numbers
    numbers: F64 | None = None
    unit = ""
    if not distinct_filled:
        numbers = np.full(len(strings), np.nan) if distinct and is_target else None
    elif _are_booleans(distinct_filled):
        numbers = np.array([_BOOLEANS.get(string.lower(), np.nan) for string in filled])
    else:
        written, unit = _split_units(filled)
        numbers = _parse_numbers(column, written)
    if numbers is not None:
        numbers = _replace_missing(numbers, "f", params)
        _ask_about_sentinel(column, numbers)
        return CellValues(numbers, np.where(np.isnan(numbers), "", filled), unit)
    if is_target and not user_missing:
        _ask_about_none(column, strings)
    if is_target or user_missing:
        strings[np.isin(strings, list(missing_among_strings))] = ""
    return CellValues(None, strings)


def _ask_about_none(column: TableColumn, strings: Array) -> None:
    """Ask whether None is a class, as in High, Low and None, if nothing else marks missing labels."""
    count = int((strings == "None").sum())
    others = [*MISSING_WORDS - {"None"}, ""]
    if count < _MIN_OF_CLASS * len(strings) or not count or np.isin(strings, others).any():
        return
    column.add_question(
        f"{column.table.name}: {column.name!r} has 'None' in {count:,} rows. Is this a class or a missing label? "
        f"{NOTHING_MISSING} for a class, missing='None' for a missing label",
        NOTHING_MISSING,
    )


def is_boolean_column(column: TableColumn) -> bool:
    """True if all cells are true or false, in any case, or missing."""
    cells = column.cells
    if cells.dtype.kind in "iuf":
        return False
    distinct = {str(value).strip() for value in cells.dropna().unique()}
    distinct -= MISSING_WORDS | {"", *column.params.missing}
    return bool(distinct) and _are_booleans(distinct)


def _are_booleans(strings: Iterable[str]) -> bool:
    return {string.lower() for string in strings} <= _BOOLEANS.keys()


def filled_cells(column: TableColumn) -> pd.Series:
    """Return the cells that are neither empty nor a string that means a missing value."""
    cells = column.cells.dropna()
    if cells.dtype.kind in "iufb":
        return cells
    strings = cells.map(str).str.strip()
    return cells[~strings.isin({"", *(column.params.missing or MISSING_WORDS)})]


def is_identifier_column(column: TableColumn, *, may_be_integers: bool = False) -> bool:
    """True if a column has strings that are nearly all distinct, and so are not classes.

    With ``may_be_integers``, integers count as identifiers, too. Strings may be repeated from graph
    to graph, such as names of functions.
    """
    kind = column.cells.dtype.kind
    if kind == "b" or (kind in "iuf" and not may_be_integers):
        return False
    filled = filled_cells(column)
    if kind not in "iu":
        # Numbers with missing values are read as floats or strings.
        numbers = pd.to_numeric(filled.map(str).str.strip(), errors="coerce")
        are_identifiers = may_be_integers and (numbers % 1 == 0).all()
        if numbers.notna().all() and not are_identifiers and not column.categories:
            return False
    repeated = filled.to_frame("value")
    fraction = _IDENTIFIER_FRACTION
    if column.graph_column:
        fraction = _IDENTIFIER_FRACTION_OF_GRAPHS
        repeated["graph"] = column.table.frame[column.graph_column]
    distinct = len(filled) - repeated.duplicated().sum()
    return len(column.cells) > 1 and bool(distinct > fraction * len(filled))


def _replace_missing(numbers: F64, kind: str, params: GraphParams) -> F64:
    """Replace numbers that ``missing`` names, such as -9, by NaN; ``kind`` is the kind of their dtype."""
    missing = pd.to_numeric(pd.Series(list(params.missing), dtype=object), errors="coerce").dropna()
    if missing.empty or kind == "b":
        return numbers
    return np.where(np.isin(numbers, missing.to_numpy(np.float64)), np.nan, numbers)


def _ask_about_sentinel(column: TableColumn, numbers: F64) -> None:
    """Ask whether a smallest number such as -999, far from all others, means a missing value."""
    filled = numbers[~np.isnan(numbers)]
    smallest = filled.min(initial=0)
    if not re.fullmatch("-99+", f"{smallest:.15g}") or "none" in column.params.missing:
        return
    others = filled[filled != smallest]
    if others.size and others.min() > smallest / 10:
        question = column.locate((numbers == smallest).argmax(), f"{smallest:.0f}")
        answer = Setting(missing=f"{smallest:.0f}")
        column.add_question(
            f"{question}. Is this a number or a missing value? {NOTHING_MISSING} for a number, {answer} "
            "for a missing value",
            answer,
        )


def _needs_decimal_sign(column: TableColumn) -> bool:
    """True if numbers that pandas has parsed with a point may have a decimal comma.

    A point then separates thousands. It may also do so in a table with semicolons, which are
    common where the decimal sign is a comma.
    """
    table = column.table
    if column.cells.dtype.kind != "f" or not table.text or column.params.decimal == ".":
        return False
    if column.params.decimal == ",":
        return bool(table.as_written(column.name).astype(str).str.contains(".", regex=False).any())
    return _point_may_separate_thousands(table) and not table.shown_decimal_signs(column.name)


def _point_may_separate_thousands(table: Table) -> bool:
    """True if decimal commas are shown by another column, or common next to its separator."""
    return table.separator == ";" or table.has_decimal_commas


def _split_units(strings: Array) -> tuple[Array, str]:
    """Return strings (R,) without the unit that all of them have, and the unit; text if they differ."""
    split = {string: split_unit(string) for string in {*strings} - {""}}
    units = {unit for _, unit in split.values()}
    if len(units) != 1:
        return strings, ""
    return np.array([split[string][0] if string else "" for string in strings], object), units.pop()


def _parse_numbers(column: TableColumn, strings: Array) -> F64 | None:
    """Convert strings (R,) to numbers, with NaN for empty ones.

    Return ``None`` if some are not numbers, and ask if they should be.
    """
    params = column.params
    is_filled = strings != ""
    written = {string for string in set(strings[is_filled]) if is_written_number(string)}
    is_written = np.array([string in written for string in strings], bool)
    are_mostly_numbers = bool(is_written.sum() > is_filled.sum() / 2)

    # 1. Use a decimal point; ask if a number does not fit the sign or may be read in two ways.
    normalized: dict[str, str | None] = {}
    if not all(map(_PLAIN_INTEGER.fullmatch, written)):
        sign = _decimal_sign(column, written)
        is_misfit = np.zeros(len(strings), bool)
        if sign:
            normalized = {string: normalize_number(string, sign) for string in written}
            is_misfit[:] = [normalized.get(string, "") is None for string in strings]
        elif _point_may_separate_thousands(column.table):
            # 58.0, as pandas writes whole numbers, is 58 with both signs.
            ambiguous = {
                string
                for string in written
                if "." in string and normalize_number(string, ".") != normalize_number(string, ",")
            }
            is_misfit[:] = [string in ambiguous for string in strings]
            is_misfit &= not shown_decimal_signs(written)
        if is_misfit.any() and are_mostly_numbers:
            row = int(is_misfit.argmax())
            other = "." if sign == "," else ","
            _add_decimal_sign_question(column, row, strings[row], other)
            return None
        if is_misfit.any():
            normalized = {}
        elif sign:
            column.notices.decimal_signs.add(sign)
    canonical = np.array([normalized.get(string, string) for string in strings], object)

    # 2. Convert; ask about the strings that remain.
    numbers: F64 = pd.to_numeric(pd.Series(canonical), errors="coerce").to_numpy(np.float64)
    is_string: Bools = np.isnan(numbers) & is_filled
    if not is_string.any():
        return numbers
    is_unparsed_number = is_string & is_written
    row = int(is_unparsed_number.argmax())
    fitting = [
        sign for sign in ".," if normalize_number(strings[row], sign) and sign != params.decimal
    ]
    if is_unparsed_number.any() and are_mostly_numbers and fitting:
        _add_decimal_sign_question(column, row, strings[row], fitting[0])
    elif is_string.sum() < is_filled.sum() / 2 and "none" not in params.missing:
        _add_missing_strings_question(column, int(is_string.argmax()), strings[is_string])
    return None


def _decimal_sign(column: TableColumn, numbers: Iterable[str]) -> DecimalSign | None:
    """Return the decimal sign of ``numbers``: given, or shown by them, or by other columns."""
    if column.params.decimal:
        return column.params.decimal
    return agreed_decimal_sign([shown_decimal_signs(numbers) or column.table.decimal_signs])


def _add_decimal_sign_question(column: TableColumn, row: int, number: str, sign: str) -> None:
    """Ask for the decimal sign of a ``number``; suggest ``sign``."""
    question = column.locate(row, repr(number))
    answer = Setting(decimal=sign)
    if column.params.decimal:
        question += f", not a number with the decimal sign {column.params.decimal!r}: {answer}"
    else:
        question += (
            ". Is its sign a decimal point or a decimal comma? decimal='.' for a point, "
            "decimal=',' for a comma"
        )
    column.add_question(question, answer)


def _add_missing_strings_question(column: TableColumn, row: int, strings: Array) -> None:
    """Ask whether strings among numbers, the first in ``row``, are missing values."""
    distinct = list(dict.fromkeys(strings))
    listed = distinct[:_LISTED_STRINGS]
    answer = Setting(missing=listed)
    readings = (
        f"Is this text or a missing value? {NOTHING_MISSING} for text, {answer} for a missing value"
    )
    if any(map(str.isdigit, "".join(distinct))):  # 7bis and <0.5 are values
        answer = NOTHING_MISSING
        readings = f"Correct it if it is a number; {answer} if it is text"
    question = f"{column.locate(row, repr(distinct[0]))} among numbers"
    if len(distinct) > 1:
        others = count_with_noun(len(distinct) - 1, "other text")
        question += f", and {others} in other rows ({', '.join(map(repr, listed))})"
    column.add_question(f"{question}. {readings}", answer)


def check_described_values(
    column: TableColumn, is_wrong: Bools, values: CellValues, expected: str
) -> None:
    """Refuse the first value (R,) that is wrong according to the description of the columns."""
    if not is_wrong.any():
        return
    row = int(is_wrong.argmax())
    text = value_texts(column, values)[row]
    if text:
        problem = f"{column.locate(row, repr(text))}, not {expected}."
        remedy = "correct the value, or remove the line: a model has no input or output for it"
    else:
        problem = f"{column.locate(row, 'empty')}, and the description has no missing values of it."
        remedy = "fill it in, remove the line, or set nullable = true in the description"
    raise DamagedInput(problem, steps=remedy)


class ValueSummary(NamedTuple):
    """Summary of the values of a column, for its role."""

    values: tuple[str, ...]  #: the first distinct values; longer ones end in an ellipsis
    distinct: int
    missing: int


def value_texts(column: TableColumn, values: CellValues) -> Array:
    """Return the values (R,) of a column as text; empty if missing."""
    if values.numbers is None or values.unit:
        return values.strings
    codes, numbers = pd.factorize(values.numbers)  # NaN has the code -1
    texts = np.array([*_number_texts(column, numbers), ""], object)
    return texts[codes]


def typed_values(column: TableColumn, values: CellValues, typed: Sequence[str]) -> dict[str, str]:
    """Return typed values by the text of the same value in the column: ``57.0`` by ``57``.

    Raises ``DamagedInput`` if two of them are the same value.
    """
    is_boolean = is_boolean_column(column)
    by_text: dict[str, str] = {}
    for text in typed:
        canonical = text.strip()
        if values.numbers is not None and not values.unit:
            canonical = canonical.lower() if is_boolean else _canonical_number(canonical)
        if canonical in by_text:
            raise DamagedInput(
                f"The description of {column.name!r} has the same value twice: {by_text[canonical]!r} "
                f"and {text!r}.",
                steps="keep one of them",
            )
        by_text[canonical] = text
    return by_text


def _canonical_number(text: str) -> str:
    """Return a typed number as a description writes it, and other text unchanged."""
    try:
        return _number_text(float(text))
    except ValueError:
        return text


def summarise_values(column: TableColumn, values: CellValues) -> ValueSummary:
    """Return the first distinct values of a column, and the numbers of distinct and missing ones."""
    missing = int(values.is_missing.sum())
    if values.numbers is None or values.unit:
        texts = [text for text in pd.unique(values.strings) if text != ""]
        return ValueSummary(shown_texts(texts), len(texts), missing)
    numbers = pd.unique(values.numbers[~values.is_missing])
    texts = _number_texts(column, numbers[:_SHOWN_VALUES])
    return ValueSummary(shown_texts(texts), len(numbers), missing)


def summarise_cells(column: TableColumn) -> ValueSummary:
    """Return the summary of a column whose cells are ids or parts, as they are written."""
    cells = column.table.id_cells(column.name)
    filled = cells.dropna()
    missing = len(cells) - len(filled)
    if filled.dtype.kind in "iub":
        shown = filled[:_SAMPLED_ROWS].drop_duplicates()
        distinct = count_distinct(filled)
    else:
        shown = filled.drop_duplicates().map(str).drop_duplicates()
        distinct = len(shown)
    texts = shown[:_SHOWN_VALUES].map(str).tolist()
    return ValueSummary(shown_texts(texts), distinct, missing)


def shown_texts(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the texts that a description shows, shortened if they are long."""
    shown = []
    for text in texts[:_SHOWN_VALUES]:
        is_long = len(text) > _MAX_SHOWN_CHARACTERS
        shown.append(f"{text[:_MAX_SHOWN_CHARACTERS]}…" if is_long else text)
    return tuple(shown)


def _number_texts(column: TableColumn, numbers: Array) -> list[str]:
    if is_boolean_column(column):
        return [_BOOLEAN_TEXTS[int(number)] for number in numbers]
    return [_number_text(number) for number in numbers.tolist()]


def _number_text(number: float) -> str:
    """Return the shortest text of a number, without a fraction of zero."""
    if abs(number) < _MAX_EXACT_INTEGER and number.is_integer():
        return f"{number:.0f}"
    return repr(number)
