"""Values of the cells of a column: numbers in any notation, truth values, texts, and missing ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from kmip_data.arrays import F64, Array, Bools
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables.table import Table
from kmip_data.text import count_with_noun

#: Texts that pandas reads as missing.
MISSING = frozenset(
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
_TRUTH = {"true": 1.0, "false": 0.0}
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?|[+-]?\d+")
#: Numbers as people write them: groups of three digits, or none, and a comma or a point.
_GROUPED = re.compile(r"[+-]?(?:\d{1,3}(?:[,. '\u2019\xa0]\d{3})+|\d*)(?:[.,]\d+)?")
#: Whole part of such a number; no group begins with 0.
_WHOLE = re.compile(r"[+-]?(?:[1-9]\d{0,2}(?:[,. '\u2019\xa0]\d{3})+|\d*)")
#: Numbers whose point may separate thousands, and integers next to them.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})?|0")
_MOST_WORDS = 100  #: most texts among numbers that a question lists


class Values(NamedTuple):
    """Values of a column: numbers, NaN if missing; else texts, empty if missing."""

    numbers: F64 | None
    texts: Array


def values_of_column(
    table: Table, name: str, params: GraphParams, notices: Notices, *, missing: bool
) -> Values:
    """Return the values of a column; words such as NA are missing in numbers, and in texts if ``missing``."""
    column = table.frame[name]
    nothing = np.empty(0, object)
    # 1067 and 01067 are two codes, and no numbers.
    codes = table.zero_padded_texts(name)
    if codes is not None:
        return Values(None, codes)
    if column.dtype.kind in "iufb" and not _may_have_thousands(table, name, params):
        values = column.to_numpy(np.float64)
        return Values(_without_missing(values, column.dtype.kind, params), nothing)
    if column.dtype.kind in "iufb":
        column = table.as_written(name).replace("", None)
    is_empty = column.isna().to_numpy()
    texts = column.map(str).str.strip().to_numpy(object)
    texts[is_empty] = ""
    words = set(pd.unique(texts)) - {""}
    chosen = set(params.missing)
    # Among numbers such a word is never a value; among texts a user may say which are.
    missing_in_numbers = MISSING | chosen
    missing_in_texts = chosen or MISSING
    without = np.where(np.isin(texts, list(missing_in_numbers)), "", texts)

    # Missing values alone; else truth values, or numbers among them.
    rest = words - missing_in_numbers
    numbers: F64 | None = None
    if not rest:
        numbers = np.full(len(texts), np.nan) if words and missing else None
    elif {word.lower() for word in rest} <= _TRUTH.keys():
        numbers = np.array([_TRUTH.get(text.lower(), np.nan) for text in without])
    else:
        numbers = _numbers_of_texts(table, name, without, params, notices)
    if numbers is not None:
        return Values(_without_missing(numbers, "f", params), nothing)
    if missing or chosen:
        texts[np.isin(texts, list(missing_in_texts))] = ""
    return Values(None, texts)


def are_truth_values(column: pd.Series, params: GraphParams) -> bool:
    """True if the cells of a column are true or false, in any case, or missing."""
    if column.dtype.kind in "iuf":
        return False
    words = {str(value).strip() for value in column.dropna().unique()}
    words -= MISSING | {"", *params.missing}
    return bool(words) and {word.lower() for word in words} <= _TRUTH.keys()


def distinct_values(column: pd.Series, use: object, params: GraphParams) -> pd.Series:
    """Return the distinct values of a column that are not missing in a ``use``; texts for mixed values."""
    known = column.dropna()
    if known.dtype.kind in "iufb":
        known = known.drop_duplicates()
        numbers = _without_missing(known.to_numpy(np.float64), known.dtype.kind, params)
        return known[~np.isnan(numbers)]
    texts = known.map(str).drop_duplicates()
    words = {*params.missing}
    if use == "number" or (use == "label" and not words):
        words |= MISSING
    return texts[~texts.str.strip().isin(words)]


def _without_missing(numbers: F64, kind: str, params: GraphParams) -> F64:
    """Return numbers (n,) with NaN for those that ``missing`` names, such as -9 or 0.0."""
    named = pd.to_numeric(pd.Series(list(params.missing), dtype=object), errors="coerce").dropna()
    if named.empty or kind == "b":
        return numbers
    return np.where(np.isin(numbers, named.to_numpy(np.float64)), np.nan, numbers)


def _may_have_thousands(table: Table, name: str, params: GraphParams) -> bool:
    """True if all numbers of a column may be integers with points, such as 155.565.

    A point separates thousands if ``decimal`` says that the comma is the decimal sign, and may do so
    in a table with semicolons, as they are written where that is the decimal sign.
    """
    if params.decimal != "," and not _is_doubtful(table, params):
        return False
    column = table.frame[name]
    if column.dtype.kind != "f" or not table.text:
        return False
    # Their values alone exclude most columns, before the texts are read again.
    known = np.abs(column.dropna().to_numpy())
    thousandths = known * 1_000
    if (known >= 1_000).any() or not np.allclose(thousandths, np.rint(thousandths), 0, 1e-6):
        return False
    return _may_be_thousands(set(table.as_written(name).map(str)) - {""})


def _may_be_thousands(words: Iterable[str]) -> bool:
    """True if each of the numbers may be an integer whose point separates thousands."""
    return all(map(_THOUSANDS.fullmatch, words)) and any("." in word for word in words)


def _is_doubtful(table: Table, params: GraphParams) -> bool:
    """True if a point of the table's numbers may be a decimal sign or a separator of thousands."""
    return params.decimal is None and table.options.get("sep") == ";"


def _numbers_of_texts(
    table: Table, name: str, texts: Array, params: GraphParams, notices: Notices
) -> F64 | None:
    """Return the numbers that texts (n,) are, NaN for empty ones; ``None`` for texts and open questions."""
    is_filled = texts != ""
    words = set(texts[is_filled])
    grouped = {word for word in words if _GROUPED.fullmatch(word)}
    is_grouped = np.array([text in grouped for text in texts], bool)
    are_numbers = is_grouped.sum() > is_filled.sum() / 2

    # 1. The decimal sign: given, or shown. A column that it does not fit is left as it is.
    sign = params.decimal or _decimal_sign(grouped)
    plain: dict[str, str | None] = {}
    if sign:
        plain = {word: _plain_number(word, sign) for word in grouped}
        if None in plain.values():
            plain = {}
    elif table.options.get("sep") != ",":
        with_commas = {word for word in words if _DECIMAL_COMMA.fullmatch(word)}
        if grouped <= with_commas:
            plain = {word: word.replace(",", ".") for word in with_commas}
        elif _is_doubtful(table, params) and are_numbers and _may_be_thousands(grouped):
            row = next(int(row) for row in np.flatnonzero(is_grouped) if "." in texts[row])
            _ask_for_sign(table, name, row, texts[row], ",", params, notices)
            return None
    without = np.array([plain.get(text, text) for text in texts], object)

    # 2. Numbers; what is left over is asked.
    converted: F64 = pd.to_numeric(pd.Series(without), errors="coerce").to_numpy(np.float64)
    is_text: Bools = np.isnan(converted) & is_filled
    if not is_text.any():
        return converted
    unread = is_text & is_grouped
    row = int(unread.argmax())
    signs = [sign for sign in ".," if _plain_number(texts[row], sign) and sign != params.decimal]
    if unread.any() and are_numbers and signs:
        _ask_for_sign(table, name, row, texts[row], signs[0], params, notices)
    elif is_text.sum() < is_filled.sum() / 2 and "none" not in params.missing:
        _ask_if_texts_are_missing(table, name, is_text, texts, notices)
    return None


def _ask_for_sign(
    table: Table,
    name: str,
    row: int,
    text: str,
    sign: str,
    params: GraphParams,
    notices: Notices,
) -> None:
    """Ask for the decimal sign of a number in a ``text``; the answer is ``sign``."""
    question = f"{table.location(row)}: {name!r} is {text!r}"
    answer = f"--set decimal={sign!r}" if sign == "," else f"--set decimal={sign}"
    if params.decimal:
        question += f", no number with the decimal sign {params.decimal!r}: {answer}"
    else:
        question += (
            ", a number that may be read in two ways: --set decimal=. for a decimal point, "
            "--set decimal=',' for a decimal comma"
        )
    notices.questions[question] = answer


def _ask_if_texts_are_missing(
    table: Table, name: str, is_text: Bools, texts: Array, notices: Notices
) -> None:
    """Ask whether texts (n,) among numbers are missing values; the answer names all of them."""
    row = int(is_text.argmax())
    words = list(dict.fromkeys(texts[is_text]))
    answer = " ".join(f"--set missing={shlex.quote(word)}" for word in words[:_MOST_WORDS])
    shown = ", ".join(map(repr, words[:_MOST_WORDS]))
    question = f"{table.location(row)}: {name!r} is {texts[row]!r} among numbers"
    if len(words) > 1:
        question += f", and {count_with_noun(len(words) - 1, 'other text')} in other rows ({shown})"
    notices.questions[f"{question}: {answer} for a missing value, --set missing=none for texts"] = (
        answer
    )


def _decimal_sign(words: Iterable[str]) -> str:
    """Return the decimal sign that numbers show, such as the comma in 1.234,5; empty if none does, or both."""
    signs = set()
    for word in words:
        points = word.count(".")
        commas = word.count(",")
        if points and commas:
            signs.add(max(".,", key=word.rfind))
        elif points > 1 or commas > 1:
            signs.add("," if points else ".")
    return signs.pop() if len(signs) == 1 else ""


def _plain_number(text: str, decimal: str) -> str | None:
    """Return a number without separators of thousands and with a decimal point; ``None`` if it is none."""
    whole, _, fraction = text.partition(decimal)
    if not _WHOLE.fullmatch(whole) or not re.fullmatch(r"\d*", fraction):
        return None
    digits = re.sub(r"[,. '\u2019\xa0]", "", whole)
    return f"{digits}.{fraction}" if fraction else digits
