"""Facts of a column: its values as numbers or texts, once missing words are taken out of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import F64, I64, Array, Bools
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own.columns.numbers import (
    CODE,
    DecimalSign,
    Readings,
    as_floats,
    common_unit,
    match_notations,
    number_texts,
    read_numbers,
    shown_sign,
    with_unit_behind,
    without_unit,
)
from kmip_data.pipelines.own.table import Table

#: Words for a missing value.
MISSING = frozenset(
    ["", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "none", "?", "-", "#N/A", "<NA>"]
)
#: Those of them that may be values of a column of texts; a target has no class NA.
MAY_BE_VALUES = {"NA", "None", "none", "?", "-"}
BOOLEANS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
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
    sign: DecimalSign | None = None  #: decimal sign that the numbers show
    unit: str = ""
    are_booleans: bool = False
    are_dates: bool = False
    are_nested: bool = False  #: True for lists and objects
    open_number: str = ""  #: number whose sign is open, such as 1,234
    are_words_given: bool = False  #: True if the user says which values are missing

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
        codes: I64 = pc.fill_null(self.coded.indices, -1).to_numpy().astype(np.int64)
        return codes

    @cached_property
    def texts(self) -> list[str]:
        """Distinct values as texts."""
        texts: list[str] = self.coded.dictionary.to_pylist()
        return texts

    def first_texts(self, rows: int) -> list[str]:
        """Return the distinct values of the first rows as texts."""
        numbers = None if self.numbers is None else self.numbers[:rows]
        return replace(self, cells=self.cells[:rows], numbers=numbers).texts

    @property
    def counts(self) -> I64:
        """Number of rows with each distinct value."""
        return np.bincount(self.codes + 1, minlength=len(self.texts) + 1)[1:]

    def rows_with(self, pattern: str) -> int:
        """Return the number of rows whose text matches a pattern."""
        matches = pc.match_substring_regex(self.coded.dictionary, pattern)
        return int(self.counts[matches.to_numpy(zero_copy_only=False)].sum())

    def by_row(self, values: Sequence[object] | Array, missing: object) -> Array:
        """Return what belongs to the distinct values, for each row (R,)."""
        dtype = object if isinstance(missing, str) else None
        return np.array([*values, missing], dtype)[self.codes]

    def as_texts(self) -> Array:
        """Return the values (R,) as texts; empty if missing."""
        return self.by_row(self.texts, "")

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
    def ascending(self) -> F64:
        """Numbers without missing ones, sorted; empty for texts."""
        if self.numbers is None:
            return np.empty(0)
        numbers = self.numbers[~self.is_missing]
        numbers.sort()
        return numbers

    @cached_property
    def distinct(self) -> int:
        """Number of distinct values."""
        if self.numbers is None:
            return len(self.coded.dictionary)
        return int((self.ascending[1:] > self.ascending[:-1]).sum()) + bool(self.filled)

    @property
    def is_unique(self) -> bool:
        """True if no value is missing or occurs twice."""
        return self.distinct == len(self.cells)

    @cached_property
    def are_whole(self) -> bool:
        """True for numbers without fractions."""
        with np.errstate(invalid="ignore"):
            return self.numbers is not None and not (self.ascending % 1).any()

    @cached_property
    def open_words(self) -> tuple[str, ...]:
        """Texts that may be words for a missing value."""
        if self.numbers is not None or self.are_words_given:
            return ()
        return tuple(text for text in self.texts if text in MISSING)

    def of_target(self) -> ColumnFacts:
        """Return the facts of a target: NA is no class."""
        is_open = "NA" in self.open_words
        return replace(self, cells=without(self.cells, ["NA"])) if is_open else self

    @cached_property
    def strays(self) -> tuple[str, ...]:
        """Texts without the most common notation of numbers, if most rows have numbers."""
        distinct = self.coded.dictionary
        if self.numbers is not None or self.are_words_given or not len(distinct):
            return ()
        if pc.any(pc.match_substring_regex(distinct, CODE)).as_py():
            return ()
        rows = np.where(np.isin(self.texts, self.open_words), 0, self.counts)
        has_notation = match_notations(distinct)
        if 2 * rows[has_notation.any(axis=0)].sum() <= rows.sum():
            return ()
        best = has_notation[(has_notation * rows).sum(axis=1).argmax()]
        return tuple(self.texts[i] for i in np.flatnonzero(~best & (rows > 0)))

    def distinct_within(self, groups: ColumnFacts) -> int:
        """Return the number of distinct pairs of a group and a value."""
        pairs = groups.codes * (len(self.texts) + 1) + self.codes
        return len(np.unique(pairs[~self.is_missing]))

    def row_of(self, text: str) -> int:
        """Return the first row with a text."""
        return int(pc.index(self.cells, text).as_py())


class TableFacts:
    """Facts of the columns of a table, each found once.

    Parameters
    ----------
    table, params
        Table, and the decimal sign and missing words that the user gives.
    values
        Column -> texts that a description has as values, even if they are words for missing ones.
    """

    def __init__(
        self, table: Table, params: GraphParams, values: Mapping[str, Collection[str]]
    ) -> None:
        self.table = table
        self.params = params
        self._values = values
        self._facts: dict[str, ColumnFacts] = {}

    def of(self, name: str) -> ColumnFacts:
        """Return the facts of a column."""
        if name not in self._facts:
            self._facts[name] = self._find(name)
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
                signs.add(shown_sign(without(cells, MISSING)))
        signs.discard(None)
        return signs.pop() if len(signs) == 1 else None

    def _find(self, name: str) -> ColumnFacts:
        cells = self.table.columns[name]
        if pa.types.is_dictionary(cells.type):
            cells = cells.dictionary_decode()
        kind = cells.type
        words, are_given = self.params.missing_words(name)
        facts = ColumnFacts(name, cells, are_words_given=are_given)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._of_numbers(facts, {None: as_floats(cells)}, words)
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            return replace(facts, cells=pa.nulls(len(cells), pa.string()), are_nested=True)
        if pa.types.is_boolean(kind):  # as programs write them into texts
            cells = pc.if_else(cells, "True", "False")
        return self._of_texts(replace(facts, cells=pc.cast(cells, pa.string())), words)

    def _of_texts(self, facts: ColumnFacts, words: set[str]) -> ColumnFacts:
        # 1. Numbers are most common, and few columns have words among them.
        cells = facts.cells
        categories = self.table.categories.get(facts.name, ())
        values = {*categories, *self._values.get(facts.name, ())}
        if not categories and (readings := read_numbers(cells)):
            return self._of_numbers(facts, readings, words)
        if values:
            facts = replace(facts, are_words_given=True)
        filled = replace(facts, cells=without(cells, (MISSING | words) - values))
        if categories:
            return filled
        if readings := read_numbers(filled.cells):
            return self._of_numbers(filled, readings, words)

        # 2. Distinct texts decide the rest.
        distinct = with_unit_behind(filled.coded.dictionary)
        if 2 * filled.rows_with(_DATE) > filled.filled:
            return replace(filled, are_dates=True)
        unit = common_unit(distinct)
        if unit and pc.all(pc.ends_with(distinct, unit)).as_py():
            numbers_of_texts = read_numbers(without_unit(distinct, unit))
            if readings := {s: filled.by_row(n, np.nan) for s, n in numbers_of_texts.items()}:
                return replace(self._of_numbers(filled, readings, words), unit=unit)
        if all(text.lower() in BOOLEANS for text in filled.texts):
            lower = [text.lower() for text in filled.texts]
            if {*lower} <= {"true", "false"} or {*lower} <= {"yes", "no"}:
                numbers = filled.by_row([BOOLEANS[text] for text in lower], np.nan)
                if len(lower) > 2:  # several spellings
                    filled = replace(filled, cells=pc.utf8_lower(filled.cells))
                return replace(filled, numbers=numbers, are_booleans=True)

        # 3. Among texts, some words may be values; the user or a description says which.
        if values or filled.cells.null_count == cells.null_count:
            return filled
        return replace(facts, cells=without(cells, words | (MISSING - MAY_BE_VALUES)))

    def _of_numbers(
        self, facts: ColumnFacts, readings: Readings, missing: Collection[str]
    ) -> ColumnFacts:
        """Return the facts of a column of numbers, with the sign of the table if it is open."""
        sign = next(iter(readings))
        open_number = ""
        if len(readings) > 1:
            decided = self.params.decimal or self.decimal_sign
            sign = decided or "."
            number = facts.cells.filter(pc.match_substring_regex(facts.cells, "[.,]"))[0].as_py()
            if decided is None and ("," in number or self.table.separator == ";"):
                open_number = number
        numbers = readings[sign]
        for word in missing:  # such as -9
            for number in read_numbers(pa.array([word])).values():
                numbers = np.where(numbers == number, np.nan, numbers)
        return replace(facts, numbers=numbers, sign=sign, open_number=open_number)


def without(texts: pa.Array, words: Collection[str]) -> pa.Array:
    """Return texts (R,) with null for some words."""
    is_word = pc.is_in(texts, pa.array([*words], pa.string()))
    return pc.if_else(is_word, pa.scalar(None, pa.string()), texts)
