"""Targets of a table: which columns they are, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.column_roles import Level
from kmip_data.columns.labels import NO_CLASS
from kmip_data.errors import Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Attributes, Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own.columns.facts import MISSING, ColumnFacts, TableFacts, without
from kmip_data.pipelines.own.columns.features import codes_of_values
from kmip_data.pipelines.own.columns.uses import Candidate, are_names
from kmip_data.pipelines.own.names import matching, normalized

#: Fraction of labelled nodes up to which distinct whole numbers are names, not classes.
_FEW = 0.1


def find_targets(
    facts: TableFacts,
    names: Sequence[str],
    level: Level,
    graphs: ColumnFacts | None,
    options: ReadOptions,
    notices: Notices,
) -> tuple[list[str], dict[str, str]]:
    """Return the target columns among ``names``, and why others that are named like one are none."""
    if options.params.label:
        labels = [name for name in options.params.label if name in names]
        if options.described and not any(facts.of(name).filled for name in labels):
            return [], dict.fromkeys(labels, "empty")
        return labels, {}
    reasons = {
        name: _reason_against(facts.of(name).of_target(), level, graphs, options)
        for name in matching(names, known_names.TABLE_LABELS)
    }
    candidates = [name for name, reason in reasons.items() if not reason]
    question = ""
    answer = Setting(label="none")
    if matching(names, ["x"]):
        for y in matching(candidates, ["y"]):
            candidates.remove(y)
            question = (
                f"{y!r} next to x may be a coordinate or the target: {Setting(label=y)} or {answer}"
            )
    if not facts.table.has_names and level == "node" and names and not candidates:
        last = names[-1]
        has_fractions = facts.of(last).numbers is not None and not facts.of(last).are_whole
        if not has_fractions and not _reason_against(facts.of(last), level, graphs, options):
            answer = Setting(label=last)
            question = (
                f"the columns have no names, and {last!r} may be the target: {answer} or label=none"
            )
    if len(candidates) > 1:
        answer = Setting(label=candidates[0])
        question = f"the target may be one of {', '.join(candidates)}"
    elif candidates:
        question = ""
    if question:
        notices.questions[f"{facts.table.name}: {question}"] = answer
        candidates = []
    return candidates, reasons


def _reason_against(
    facts: ColumnFacts, level: Level, graphs: ColumnFacts | None, options: ReadOptions
) -> str:
    """Return why a column is not the target unless it is named as such; empty if it may be.

    A word for a missing value names nothing, even if the user says that it is a text.
    """
    setting = Setting(label=facts.name)
    if facts.numbers is None:
        facts = replace(facts, cells=without(facts.cells, MISSING))
    few = facts.filled <= _FEW * len(facts.cells)
    may_be_whole = options.params.task is None and (few or normalized(facts.name) == "label")
    if not facts.filled:
        return "empty"
    if facts.distinct == 1:
        return f"one value in all rows; a target by {setting}"
    if level == "node" and are_names(facts, graphs, may_be_whole=may_be_whole):
        return f"names, a different one for nearly every node that has one; a target by {setting}"
    if level == "graph" and facts.filled > 2 and are_names(facts, None):
        return f"names of the graphs; a target by {setting}"
    return ""


def read_target(column: Candidate, attributes: Attributes) -> Array:
    """Return a target (R,): numbers, NaN if missing; or texts, empty if missing.

    The classes are those of the description, of the format's own files, or of a dtype.
    """
    facts = column.facts
    classes: Sequence[str] = ()
    if column.has_classes:
        attributes.class_names = attributes.class_names or column.table.categories.get(
            facts.name, ()
        )
        classes = attributes.class_names
        if column.options.described is not None:
            classes = column.options.described.classes
    if classes:
        codes = codes_of_values(column, classes, "one of the classes")
        if [*classes] != [str(number) for number in range(len(classes))]:
            return np.array([*classes, ""], object)[codes]
    # As a number, -1 is a missing label and no class.
    has_minus_one = facts.are_whole and NO_CLASS in facts.ascending[:1]
    if facts.numbers is None or (column.has_classes and (facts.are_booleans or has_minus_one)):
        return facts.as_texts()
    return facts.numbers
