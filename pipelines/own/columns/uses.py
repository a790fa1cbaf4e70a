"""Uses of columns: a table of rules, of which the first that accepts a column decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow.compute as pc

from kmip_data.columns.column_roles import ColumnRole, Level, Use
from kmip_data.columns.part_masks import PART_ARRAYS, are_parts, is_index_array
from kmip_data.errors import Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.columns.facts import ColumnFacts
from kmip_data.pipelines.own.columns.numbers import all_match
from kmip_data.pipelines.own.table import Table

_SAMPLED_ROWS = 100  #: first rows in which values of parts are looked for
_NAMED_FRACTION = 0.9  #: fraction of distinct values above which texts are names
_NAMED_FRACTION_OF_GRAPHS = 0.99  #: the same for values that are distinct within each graph
_LONG_TEXT = 60
_LIST = r"^\[?[0-9]+(?:[,; ] ?[0-9]+)*\]?$"
_SEVERAL = "[0-9][,; ]"


@dataclass(frozen=True, eq=False)
class Candidate:
    """Column of a table, its facts and what the user says about it."""

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
    def is_mask(self) -> bool:
        """True for a column of nodes that is named like the mask of a part."""
        return self.level == "node" and self.name in PART_ARRAYS and not is_index_array(self.name)

    @property
    def has_categories(self) -> bool:
        """True if the type of the column lists its values."""
        return bool(self.table.categories.get(self.name))

    def locate(self, row: int, value: str) -> str:
        """Return the location and ``value`` of a cell, for messages."""
        return f"{self.table.location(row)}: {self.name!r} is {value}"

    def missing(self, *words: str) -> Setting:
        """Return the answer that some words of the column are missing values."""
        answers = [f"{self.name}:{word}" for word in words]
        return Setting(missing=answers if len(answers) > 1 else answers[0])


class Vote(NamedTuple):
    """Use of a column, and the reason why it is ignored."""

    use: Use = "ignored"
    why: str = ""


Rule = Callable[[Candidate], Vote | None]


def decide(column: Candidate) -> Vote:
    """Return the vote of the first rule that accepts a column."""
    is_chosen = column.name in column.options.params.feature
    rules = (rule for rule in RULES if not (is_chosen and rule in _UNLESS_CHOSEN))
    return next(vote for rule in rules if (vote := rule(column)))


def _given(column: Candidate) -> Vote | None:
    return Vote(column.use) if column.use else None


def _left_out(column: Candidate) -> Vote | None:
    return Vote(why="by ignore") if column.name in column.options.params.ignore else None


def _described(column: Candidate) -> Vote | None:
    if column.described is None:
        return None
    use = column.described.use
    reason = column.described.why or "by the description"
    return Vote(use, reason if use == "ignored" else "")


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


def _not_described(column: Candidate) -> Vote | None:
    return Vote(why="not in the description") if column.options.described else None


def _not_a_feature(column: Candidate) -> Vote | None:
    return Vote(why="not among the features") if column.options.params.feature else None


def _of_graphs(column: Candidate) -> Vote | None:
    if column.level != "graph":
        return None
    feature, label = Setting(feature=column.name), Setting(label=column.name)
    return Vote(
        why=f"a column of graphs; {feature} makes it a feature of graphs, {label} the target"
    )


def _empty(column: Candidate) -> Vote | None:
    return None if column.facts.filled else Vote(why="empty")


def _boolean(column: Candidate) -> Vote | None:
    return Vote("boolean") if column.facts.are_booleans else None


def _ids_of_rows(column: Candidate) -> Vote | None:
    words = names.words(column.name)
    is_known = names.normalized(column.name) in {
        *known_names.NODE_ID_NAMES,
        "label",
        "key",
        "index",
    }
    id_words = {*known_names.ID_WORDS, "unnamed"}
    is_id = is_known or not id_words.isdisjoint(words[:1] + words[-1:])
    are_ids = is_id and column.facts.are_whole and column.facts.is_unique
    return Vote(why="ids or names of the rows") if are_ids else None


def _number(column: Candidate) -> Vote | None:
    is_number = column.facts.numbers is not None or column.facts.strays
    return Vote("number") if is_number else None


def _dates(column: Candidate) -> Vote | None:
    is_date = column.facts.are_dates
    return Vote(why=f"dates or times, such as {column.facts.texts[0]}") if is_date else None


def _lists(column: Candidate) -> Vote | None:
    return Vote("category") if has_lists(column) else None


def has_lists(column: Candidate) -> bool:
    """True for lists of whole numbers, such as ``8,37,255``, that differ in nearly every row."""
    are_named = are_names(column.facts, column.graphs)
    texts = column.facts.coded.dictionary
    has_several = are_named and pc.any(pc.match_substring_regex(texts, _SEVERAL)).as_py()
    return bool(has_several) and all_match(texts, _LIST)


def _names(column: Candidate) -> Vote | None:
    are_named = are_names(column.facts, column.graphs)
    return Vote(why=_such_as(column)) if are_named else None


def _prose(column: Candidate) -> Vote | None:
    are_prose = all(text[0] in "[{(" or len(text) > _LONG_TEXT for text in column.facts.texts)
    return Vote(why=_such_as(column)) if are_prose and not column.has_categories else None


def _such_as(column: Candidate) -> str:
    return f"names or free text, such as {column.facts.texts[0][:40]!r}"


def _category(_: Candidate) -> Vote | None:
    return Vote("category")


RULES: tuple[Rule, ...] = (
    _given,
    _left_out,
    _described,
    _no_target,
    _nested,
    _part,
    _not_described,
    _not_a_feature,
    _of_graphs,
    _empty,
    _boolean,
    _ids_of_rows,
    _number,
    _dates,
    _lists,
    _names,
    _prose,
    _category,
)
#: Rules that do not hold for a column that the user names as a feature.
_UNLESS_CHOSEN = {
    _not_a_feature,
    _of_graphs,
    _ids_of_rows,
    _dates,
    _lists,
    _names,
    _prose,
}


def are_names(
    facts: ColumnFacts, graphs: ColumnFacts | None, *, may_be_whole: bool = False
) -> bool:
    """True for texts that are nearly all distinct, or within each graph, and so are no classes."""
    is_number = facts.numbers is not None and not (may_be_whole and facts.are_whole)
    if is_number or facts.are_booleans or len(facts.cells) < 2:
        return False
    if graphs is None:
        return facts.distinct > _NAMED_FRACTION * facts.filled
    return facts.distinct_within(graphs) > _NAMED_FRACTION_OF_GRAPHS * facts.filled
