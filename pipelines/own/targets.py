"""Targets of a table: which columns they are, and their values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.column_roles import Level
from kmip_data.errors import Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own.facts import ColumnFacts, TableFacts
from kmip_data.pipelines.own.names import normalized
from kmip_data.pipelines.own.uses import are_names

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
    candidates = [name for name in names if normalized(name) in known_names.TABLE_LABELS]
    reasons = {
        name: _reason_against(facts.of(name), level, graphs, options) for name in candidates
    }
    reasons = {name: reason for name, reason in reasons.items() if reason}
    candidates = [name for name in candidates if name not in reasons]
    by_name = {normalized(name): name for name in names if name not in reasons}
    table = facts.table.name
    question = ""
    answer = Setting(label="none")
    if len(candidates) > 1 and {"x", "y"} <= by_name.keys():
        candidates.remove(by_name["y"])  # a coordinate, next to another target
    if candidates == [by_name.get("y")] and "x" in by_name:
        if not any(facts.of(by_name[axis]).are_whole for axis in "xy"):
            question = f"'y' next to 'x' may be a coordinate or the target: {Setting(label='y')} or {answer}"
    if len(candidates) > 1:
        answer = Setting(label=candidates[0])
        question = f"the target may be one of {', '.join(candidates)}"
    if question:
        notices.questions[f"{table}: {question}"] = answer
        return [], reasons
    return candidates, reasons


def _reason_against(
    facts: ColumnFacts, level: Level, graphs: ColumnFacts | None, options: ReadOptions
) -> str:
    """Return why a column is not the target unless it is named as such; empty if it may be."""
    setting = Setting(label=facts.name)
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
