"""Facts of a column: its values as numbers or texts, once missing words are taken out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import F64, I64, Array, Bools
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own.numbers import (
    CODE,
    NOTATIONS,
    PERCENT,
    DecimalSign,
    all_match,
    as_floats,
    number_texts,
    read_numbers,
    shown_sign,
)
from kmip_data.pipelines.own.table import Table

#: Words for a missing value: always among numbers, booleans and dates, and if the user says so elsewhere.
MISSING = frozenset(
    ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "none", "?", "-", "#N/A", "<NA>"]
)
_BOOLEANS = ({"true": 1.0, "false": 0.0}, {"yes": 1.0, "no": 0.0})
_MONTHS = "(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAYS = "(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?"
_DATE = (
    r"(?i)^(?:(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{2,4})"
    rf"(?:[T ]+[0-9:.,+Zz -]*)?|{_CLOCK}"
    # Wed Oct 10 20:19:24 +0000 2018; Wed, 10 Oct 2018 20:19:24 GMT; 10 October 2018
    rf"|(?:{_DAYS},? )?(?:[0-9]{{1,2}}[. ]+)?{_MONTHS}\.? [0-9:., +-]*[0-9]{{4}}(?: [0-9:.+ -]*(?:gmt|utc)?)?)$"
)


@dataclass(frozen=True, eq=False)
class ColumnFacts:
    """Facts of a column; missing values are NaN among numbers, and null among texts."""

    name: str
    #: Values (R,) as they are written, or with the type of the file.
    cells: pa.Array
    numbers: F64 | None = None  #: (R,); ``None`` for texts
    sign: str = ""  #: decimal sign of the numbers; empty if they show none
    unit: str = ""
    are_booleans: bool = False
    are_dates: bool = False
    are_nested: bool = False  #: True for lists and objects
    has_open_sign: bool = False  #: True for numbers with two readings
    open_words: tuple[str, ...] = ()  #: texts that may be words for a missing value
    strays: tuple[str, ...] = ()  #: texts among more numbers

    @cached_property
    def coded(self) -> pa.DictionaryArray:
        """Values (R,) as texts, by their code in the order in which they first occur."""
        if self.numbers is None or self.unit or self.are_booleans:
            return self.cells.dictionary_encode()
        coded = pa.array(self.numbers, from_pandas=True).dictionary_encode()
        texts = pa.array(number_texts(coded.dictionary.to_pylist()), pa.string())
        return pa.DictionaryArray.from_arrays(coded.indices, texts)

    @property
    def codes(self) -> I64:
        """Code of each value (R,); -1 if it is missing."""
        codes = pc.fill_null(self.coded.indices, -1)
        return codes.to_numpy(zero_copy_only=False).astype(np.int64)

    @cached_property
    def texts(self) -> list[str]:
        """Distinct values as texts."""
        texts: list[str] = self.coded.dictionary.to_pylist()
        return texts

    def first_texts(self, rows: int) -> list[str]:
        """Return the values in the first rows as texts, without missing ones."""
        if self.numbers is None or self.unit or self.are_booleans:
            texts: list[str] = pc.drop_null(self.cells[:rows]).to_pylist()
            return texts
        head = self.numbers[:rows]
        return number_texts(head[~np.isnan(head)].tolist())

    def as_texts(self) -> Array:
        """Return the values (R,) as texts; empty if missing."""
        return np.array([*self.texts, ""], object)[self.codes]

    @cached_property
    def is_missing(self) -> Bools:
        """Mask (R,) of missing values."""
        if self.numbers is not None:
            return np.isnan(self.numbers)
        mask: Bools = pc.is_null(self.cells).to_numpy(zero_copy_only=False)
        return mask

    @property
    def filled(self) -> int:
        """Number of values that are not missing."""
        return len(self.cells) - int(self.is_missing.sum())

    @cached_property
    def _ascending(self) -> F64:
        if self.numbers is None:
            return np.empty(0)
        return np.sort(self.numbers[~self.is_missing])

    @cached_property
    def distinct(self) -> int:
        """Number of distinct values."""
        if self.numbers is None:
            return len(self.coded.dictionary)
        return int((np.diff(self._ascending) > 0).sum()) + bool(self.filled)

    @property
    def is_unique(self) -> bool:
        """True if no value is missing or occurs twice."""
        return self.distinct == len(self.cells)

    @property
    def smallest(self) -> float:
        """Smallest number, or 0 without any."""
        return float(self._ascending[0]) if len(self._ascending) else 0.0

    @cached_property
    def are_whole(self) -> bool:
        """True for numbers without fractions."""
        with np.errstate(invalid="ignore"):
            return self.numbers is not None and not (self._ascending % 1).any()

    def distinct_within(self, groups: ColumnFacts) -> int:
        """Return the number of distinct pairs of a group and a value."""
        pairs = groups.codes * (len(self.texts) + 1) + self.codes
        return len(np.unique(pairs[~self.is_missing]))

    def row_of(self, text: str) -> int:
        """Return the first row with a text."""
        return int(pc.index(self.cells, text).as_py())


class TableFacts:
    """Facts of the columns of a table, each found once."""

    def __init__(self, table: Table, params: GraphParams) -> None:
        self.table = table
        self.params = params
        self._facts: dict[str, ColumnFacts] = {}

    def of(self, name: str, values: Collection[str] = ()) -> ColumnFacts:
        """Return the facts of a column; ``values`` are texts that a description has as values."""
        if name not in self._facts:
            self._facts[name] = self._find(name, {*values, *self.table.categories.get(name, ())})
        return self._facts[name]

    def forget(self, name: str) -> None:
        """Free the memory of a column."""
        self._facts.pop(name, None)

    @cached_property
    def decimal_sign(self) -> DecimalSign | None:
        """Decimal sign that columns of the table prove; ``None`` if they prove none or both."""
        signs = set()
        for name in self.table.column_names:
            cells = self.table.columns[name]
            if pa.types.is_string(cells.type) and name not in self.params.ignore:
                signs.add(shown_sign(_without(cells, MISSING)))
        signs.discard(None)
        return signs.pop() if len(signs) == 1 else None

    def _find(self, name: str, values: set[str]) -> ColumnFacts:
        cells = self.table.columns[name]
        kind = cells.type
        if pa.types.is_dictionary(kind):
            cells, kind = cells.dictionary_decode(), kind.value_type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return ColumnFacts(name, cells, self._without_given(name, as_floats(cells)))
        if pa.types.is_boolean(kind):
            # As programs write them into texts.
            texts = pc.if_else(cells, "True", "False")
            return ColumnFacts(name, texts, as_floats(pc.cast(cells, pa.uint8())), are_booleans=True)
        if pa.types.is_temporal(kind):
            return ColumnFacts(name, pc.cast(cells, pa.string()), are_dates=True)
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            return ColumnFacts(name, pa.nulls(len(cells), pa.string()), are_nested=True)
        return self._find_of_texts(name, pc.cast(cells, pa.string()), values)

    def _find_of_texts(self, name: str, cells: pa.Array, values: set[str]) -> ColumnFacts:
        # 1. Numbers are most common, and few columns have words among them.
        readings = {} if values else read_numbers(cells)
        if readings:
            return self._of_numbers(ColumnFacts(name, cells), readings)
        given, are_given = missing_words(self.params, name)
        filled = _without(cells, (MISSING | given) - values)
        if values:
            return ColumnFacts(name, filled)
        facts = ColumnFacts(name, filled)
        if readings := read_numbers(filled):
            return self._of_numbers(facts, readings)

        # 2. Distinct texts decide the rest.
        distinct = facts.coded.dictionary
        if all_match(distinct, PERCENT):
            readings = read_numbers(pc.replace_substring_regex(distinct, PERCENT, ""))
            by_row = {sign: np.append(n, np.nan)[facts.codes] for sign, n in readings.items()}
            if by_row:
                return self._of_numbers(facts, by_row, unit="%")
        lower = pc.utf8_lower(distinct).to_pylist() if len(distinct) <= 6 else []
        for booleans in _BOOLEANS:
            if lower and booleans.keys() >= {*lower}:
                truths = np.array([*map(booleans.__getitem__, lower), np.nan])
                return ColumnFacts(name, filled, truths[facts.codes], are_booleans=True)
        if all_match(distinct, _DATE):
            return ColumnFacts(name, filled, are_dates=True)

        # 3. Among texts, the user says what is missing.
        strays = () if are_given else _strays(facts)
        texts = _without(cells, given)
        open_words: list[str] = []
        if not are_given:
            open_words = [word for word in pc.unique(texts).to_pylist() if word in MISSING]
        return ColumnFacts(name, texts, strays=strays, open_words=tuple(open_words))

    def _of_numbers(
        self, facts: ColumnFacts, readings: Mapping[str, F64], unit: str = ""
    ) -> ColumnFacts:
        """Return the facts of a column of numbers, with the sign of the table if it is open."""
        sign = next(iter(readings))
        is_open = False
        if len(readings) > 1:
            decided = self.params.decimal or self.decimal_sign
            has_commas = pc.any(pc.match_substring(facts.cells, ",")).as_py()
            is_open = decided is None and (has_commas or self.table.separator == ";")
            sign = decided or "."
        return ColumnFacts(
            facts.name,
            facts.cells,
            self._without_given(facts.name, readings[sign]),
            sign=sign,
            unit=unit,
            has_open_sign=is_open,
        )

    def _without_given(self, name: str, numbers: F64) -> F64:
        """Return numbers with NaN for those that the user calls missing, such as -9."""
        given = []
        for word in missing_words(self.params, name)[0]:
            given += [*read_numbers(pa.array([word])).values()]
        return np.where(np.isin(numbers, np.concatenate(given)), np.nan, numbers) if given else numbers


def missing_words(params: GraphParams, name: str) -> tuple[set[str], bool]:
    """Return the words that the user calls missing in a column, and True if no others are.

    ``missing=NA`` holds for all columns, ``missing=land:NA`` for ``land`` alone; with ``none`` in
    place of ``NA``, no text is missing.
    """
    beginning = f"{name}:"
    words = {word.removeprefix(beginning) for word in params.missing if word.startswith(beginning)}
    are_all = bool(words) or "none" in params.missing
    if "none" not in words:
        words |= {*params.missing}
    return words - {"none"}, are_all


def _without(texts: pa.Array, words: Collection[str]) -> pa.Array:
    """Return texts (R,) with null for some words."""
    is_word = pc.is_in(texts, pa.array([*words], pa.string()))
    return pc.if_else(is_word, pa.scalar(None, pa.string()), texts)


def _strays(facts: ColumnFacts) -> tuple[str, ...]:
    """Return the texts without the most common notation of numbers, if most rows have numbers."""
    distinct = facts.coded.dictionary
    if pc.any(pc.match_substring_regex(distinct, CODE)).as_py():
        return ()
    rows = np.bincount(facts.codes + 1, minlength=len(distinct) + 1)[1:]
    has_notation = np.stack([pc.match_substring_regex(distinct, like) for like in NOTATIONS])
    if 2 * rows[has_notation.any(axis=0)].sum() <= rows.sum():
        return ()
    is_stray = ~has_notation[(has_notation * rows).sum(axis=1).argmax()]
    strays: list[str] = distinct.filter(pa.array(is_stray)).to_pylist()
    return tuple(strays)
