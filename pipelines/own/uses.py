"""Uses of columns: a table of rules, of which the first that has an opinion decides.

A rule looks at the facts of a column and gives a use with its reason, a question, or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from kmip_data.arrays import F32, Bools
from kmip_data.columns.column_roles import ColumnRole, Level, Use
from kmip_data.columns.labels import NO_CLASS, mask_changed_by_float32
from kmip_data.columns.part_masks import PART_ARRAYS, are_parts, is_index_array
from kmip_data.errors import Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.facts import ColumnFacts, missing_words
from kmip_data.pipelines.own.table import Table

_SAMPLED_ROWS = 100  #: first rows in which values of parts are looked for
NAMED_FRACTION = 0.9  #: fraction of distinct values above which texts are names
_NAMED_FRACTION_OF_GRAPHS = 0.99  #: the same for values that are distinct within each graph
_MAX_STRAYS = 8  #: number of texts among numbers up to which they may be words for missing values
_LONG_TEXT = 60


class Vote(NamedTuple):
    """Use of a column with its reason, or a question with its likeliest answer."""

    use: Use = "ignored"
    why: str = ""  #: reason why it is ignored, or the question
    answer: Setting | None = None


@dataclass(frozen=True, eq=False)
class Candidate:
    """Column whose use is decided, and what is known beside its values."""

    table: Table
    facts: ColumnFacts
    level: Level
    options: ReadOptions
    use: Use | None = None  #: use as an id, target or group
    reason: str = ""  #: reason why a column with the name of a target is none
    described: ColumnRole | None = None
    graphs: ColumnFacts | None = None  #: graph of each row of nodes or edges, if there are many
    has_classes: bool = False  #: True for a target that is no number

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.facts.name

    @property
    def is_chosen(self) -> bool:
        """True if the user names the column as a feature."""
        return self.name in self.options.params.feature

    @property
    def is_mask(self) -> bool:
        """True for a column of nodes that is named like the mask of a part."""
        return self.level == "node" and self.name in PART_ARRAYS and not is_index_array(self.name)

    @property
    def has_categories(self) -> bool:
        """True if the type of the column lists its values."""
        return bool(self.table.categories.get(self.name))

    @property
    def is_decided(self) -> bool:
        """True if the user says which of the values are missing."""
        return missing_words(self.options.params, self.name)[1]

    def locate(self, row: int, value: str) -> str:
        """Return the location and ``value`` of a cell, for messages."""
        return f"{self.table.location(row)}: {self.name!r} is {value}"

    def missing(self, *words: str) -> Setting:
        """Return the answer that some words of the column are missing values."""
        answers = [f"{self.name}:{word}" for word in words]
        return Setting(missing=answers if len(answers) > 1 else answers[0])


Rule = Callable[[Candidate], Vote | None]


def decide(column: Candidate) -> Vote:
    """Return the vote of the first rule that has one."""
    rules = RULES
    if column.use == "label":
        rules = (_open_sign, _given) if column.described else (*QUESTIONS, _minus_one, _given)
    return next(vote for rule in rules if (vote := rule(column)) is not None)


def _given(column: Candidate) -> Vote | None:
    return Vote(column.use) if column.use else None


def _left_out(column: Candidate) -> Vote | None:
    return Vote(why="by ignore") if column.name in column.options.params.ignore else None


def _described_as_ignored(column: Candidate) -> Vote | None:
    if column.described and column.described.use == "ignored":
        return Vote(why=column.described.why or "by the description")
    return None


def _no_target(column: Candidate) -> Vote | None:
    return Vote(why=column.reason) if column.reason else None


def _nested(column: Candidate) -> Vote | None:
    return Vote(why="lists or objects") if column.facts.are_nested else None


def _part(column: Candidate) -> Vote | None:
    if column.is_mask or column.name == known_names.PART_NAME:
        return Vote("part")
    if column.facts.numbers is not None:
        return None
    sample = pc.unique(column.facts.cells[:_SAMPLED_ROWS]).drop_null().to_pylist()
    return Vote("part") if are_parts(sample) else None


def _described(column: Candidate) -> Vote | None:
    return Vote(column.described.use) if column.described else None


def _not_described(column: Candidate) -> Vote | None:
    return Vote(why="not in the description") if column.options.described else None


def _not_a_feature(column: Candidate) -> Vote | None:
    features = column.options.params.feature
    return Vote(why="not among the features") if features and not column.is_chosen else None


def _of_graphs(column: Candidate) -> Vote | None:
    if column.level != "graph" or column.is_chosen:
        return None
    feature, label = Setting(feature=column.name), Setting(label=column.name)
    return Vote(
        why=f"a column of graphs; {feature} makes it a feature of graphs, {label} the target"
    )


def _empty(column: Candidate) -> Vote | None:
    return None if column.facts.filled else Vote(why="empty")


def _boolean(column: Candidate) -> Vote | None:
    return Vote("boolean") if column.facts.are_booleans else None


def _index_of_rows(column: Candidate) -> Vote | None:
    is_index = re.fullmatch(r"index|unnamed:?[0-9]+", names.normalized(column.name))
    if is_index and not column.is_chosen and _are_ids(column):
        return Vote(why="the index of its rows")
    return None


def _ids_of_rows(column: Candidate) -> Vote | None:
    is_known = names.normalized(column.name) in {*known_names.NODE_ID_NAMES, "label", "key"}
    words = names.words(column.name)
    is_id = is_known or not known_names.ID_WORDS.isdisjoint(words[:1] + words[-1:])
    if is_id and not column.is_chosen and _are_ids(column):
        return Vote(why="ids or names of the rows")
    return None


def _are_ids(column: Candidate) -> bool:
    return column.facts.are_whole and column.facts.is_unique


def _open_sign(column: Candidate) -> Vote | None:
    if not column.facts.has_open_sign:
        return None
    mark = pc.match_substring_regex(column.facts.cells, "[.,]")
    row = pc.index(mark, True).as_py()
    has_comma = "," in column.facts.cells[row].as_py()
    question = column.locate(row, repr(column.facts.cells[row].as_py()))
    return Vote(
        why=f"{question}. Is its sign a decimal point or a decimal comma? {Setting(decimal='.')} for a "
        f"point, {Setting(decimal=',')} for a comma",
        answer=Setting(decimal="." if has_comma else ","),
    )


def _sentinel(column: Candidate) -> Vote | None:
    numbers = column.facts.numbers
    smallest = column.facts.smallest
    word = f"{smallest:.15g}"
    if numbers is None or column.is_decided or not re.fullmatch("-99+", word):
        return None
    if not (numbers > smallest).any() or numbers[numbers > smallest].min() <= smallest / 10:
        return None
    question = column.locate(int(np.argmax(numbers == smallest)), word)
    answer = column.missing(word)
    return Vote(
        why=f"{question}. Is this a number or a missing value? {column.missing('none')} for a number, "
        f"{answer} for a missing value",
        answer=answer,
    )


def _strays(column: Candidate) -> Vote | None:
    strays = column.facts.strays
    if not strays:
        return None
    question = f"{column.locate(column.facts.row_of(strays[0]), repr(strays[0]))} among numbers"
    if len(strays) > 1:
        question += f", and {len(strays) - 1:,} other texts are ({', '.join(strays[1:_MAX_STRAYS])})"
    none = column.missing("none")
    if len(strays) > _MAX_STRAYS or any(map(str.isdigit, "".join(strays))):
        # 7bis and <0.5 are values.
        return Vote(why=f"{question}. Correct it if it is a number; {none} if it is text", answer=none)
    answer = column.missing(*strays)
    return Vote(
        why=f"{question}. Is this text or a missing value? {none} for text, {answer} for a missing value",
        answer=answer,
    )


def _open_words(column: Candidate) -> Vote | None:
    words = column.facts.open_words
    if not words:
        return None
    rows = int(np.isin(column.facts.as_texts(), words).sum())
    none = column.missing("none")
    answer = column.missing(*words)
    meaning = f"{answer} for a missing value"
    if "none" in words:
        meaning = "empty these cells for a missing value"
    likeliest = answer if column.use == "label" and not {"None", "none"} & {*words} else none
    return Vote(
        why=f"{column.table.name}: {column.name!r} has {' and '.join(map(repr, words))} in {rows:,} rows. "
        f"Is this text or a missing value? {none} for text, {meaning}",
        answer=likeliest,
    )


def _minus_one(column: Candidate) -> Vote | None:
    numbers = column.facts.numbers
    if numbers is None or not column.has_classes or column.is_decided or not column.facts.are_whole:
        return None
    others = np.unique(numbers[numbers > NO_CLASS])
    if column.facts.smallest != NO_CLASS or not (numbers == NO_CLASS).any():
        return None
    is_class, is_missing = column.missing("none"), column.missing("-1")
    question = column.locate(int(np.argmax(numbers == NO_CLASS)), "-1")
    return Vote(
        why=f"{question}. Is this a class or a missing label? {is_missing} for a missing label, {is_class} "
        f"for a class, {Setting(task='regression')} for a number",
        # Next to a single other value, it is more likely a class.
        answer=is_class if len(others) < 2 else is_missing,
    )


def _number(column: Candidate) -> Vote | None:
    return None if column.facts.numbers is None else Vote("number")


def _dates(column: Candidate) -> Vote | None:
    if column.facts.are_dates and not column.is_chosen:
        return Vote(why=f"dates or times, such as {column.facts.texts[0]}")
    return None


def _names_or_prose(column: Candidate) -> Vote | None:
    facts = column.facts
    if column.is_chosen:
        return None
    is_prose = (
        sum(map(len, facts.texts)) > _LONG_TEXT * len(facts.texts)
        or any("\n" in text for text in facts.texts)
        or all(text[0] in "[{(" for text in facts.texts)
    )
    if are_names(facts, column.graphs) or (is_prose and not column.has_categories):
        return Vote(why=f"names or free text, such as {facts.texts[0][:40]!r}")
    return None


def _too_many_texts(column: Candidate) -> Vote | None:
    texts = column.facts.texts
    if len(texts) <= column.options.params.categories:
        return None
    answer = Setting(ignore=column.name)
    return Vote(
        why=f"{column.table.name}: {column.name!r} has {len(texts):,} texts ({', '.join(texts[:3])}, …): "
        f"leave it out, or {Setting(categories=len(texts))}",
        answer=answer,
    )


def _category(_: Candidate) -> Vote | None:
    return Vote("category")


#: Questions about the values of a feature or target.
QUESTIONS: tuple[Rule, ...] = (_open_sign, _sentinel, _strays, _open_words)
RULES: tuple[Rule, ...] = (
    _given,
    _left_out,
    _described_as_ignored,
    _no_target,
    _nested,
    _part,
    _open_sign,
    _described,
    _not_described,
    _not_a_feature,
    _of_graphs,
    _empty,
    _boolean,
    _index_of_rows,
    _ids_of_rows,
    _sentinel,
    _number,
    _dates,
    _strays,
    _names_or_prose,
    _open_words,
    _too_many_texts,
    _category,
)


def are_names(facts: ColumnFacts, graphs: ColumnFacts | None, *, may_be_whole: bool = False) -> bool:
    """True for texts that are nearly all distinct, or within each graph, and so are no classes."""
    if facts.are_booleans or (facts.numbers is not None and not (may_be_whole and facts.are_whole)):
        return False
    if len(facts.cells) < 2:
        return False
    if graphs is None:
        return facts.distinct > NAMED_FRACTION * facts.filled
    return facts.distinct_within(graphs) > _NAMED_FRACTION_OF_GRAPHS * facts.filled


def question_of_precision(column: Candidate, rounded: F32) -> Vote | None:
    """Return the question about a number that float32 cannot hold."""
    numbers = column.facts.numbers
    assert numbers is not None
    is_infinite = np.isinf(rounded)
    ignore = Setting(ignore=column.name)
    if is_infinite.any():
        row = int(is_infinite.argmax())
        question = f"{column.locate(row, f'{numbers[row]:g}')}, not a finite float32: {ignore}"
        return Vote(why=question, answer=ignore)
    if column.name in column.options.params.rounded:
        return None
    is_changed: Bools = mask_changed_by_float32(numbers) | ((rounded == 0) & (numbers != 0))
    # Unix times with fractions move by much of their range.
    spread = np.nanmax(numbers, initial=-np.inf) - np.nanmin(numbers, initial=np.inf)
    is_changed |= (np.abs(rounded - numbers) > spread / 1_000) & (spread > 0)
    # Integers that float64 does not hold either.
    for row in np.flatnonzero(np.abs(numbers) > 2**53):
        digits = str(column.facts.cells[int(row)])
        if digits.lstrip("+-").isdecimal() and int(digits) != int(rounded[row]):
            is_changed[row] = True
            break
    if not is_changed.any():
        return None
    row = int(is_changed.argmax())
    question = column.locate(row, f"{numbers[row]:.15g}")
    return Vote(
        why=f"{question}, and {rounded[row]:.15g} as float32: leave it out, or "
        f"{Setting(rounded=column.name)}",
        answer=ignore,
    )
