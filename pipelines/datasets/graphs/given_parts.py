"""Splits given in the files, by masks or by a column of parts."""

from __future__ import annotations

import shlex
from typing import ClassVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import U8, Array, Bools
from kmip_data.columns.target_inference import NO_CLASS
from kmip_data.errors import UsageError
from kmip_data.format.schema import PART_DOC
from kmip_data.pipelines.base import RecordTable
from kmip_data.pipelines.own_pipeline import OwnSplitParams
from kmip_data.text import is_likely_typo, nearest_name


class GraphSplitParams(OwnSplitParams):
    """Parameters of a split."""

    random_rules: ClassVar[tuple[str, ...]] = ("random", "stratified")
    rule_of_part_sizes: ClassVar[str | None] = None

    split_rule: str = Field(
        default="given",
        description="given: the masks or column of parts, otherwise random; random: graphs, or nodes of a single "
        "graph, divided at random; stratified: drawn with equal class fractions; or the name of a column "
        "of parts",
    )
    fold: int = Field(
        default=0,
        ge=0,
        le=9_999,
        description="index of the split if masks have several columns, from 0",
    )


def find_given_parts(records: RecordTable, params: OwnSplitParams) -> tuple[str, str, U8 | None]:
    """Return the rule, and the level and codes of the parts it names; no codes if it is random."""
    # Only a single graph can be divided by parts of nodes.
    columns = {}
    for column in records.columns:
        if column.doc == PART_DOC and (len(records.keys) == 1 or column.level == "graph"):
            columns[column.attribute] = column
    names = [*records.given_parts, *columns]
    rule = params.split_rule
    if rule == "given":
        rule = next(iter(names), "random")
    if rule in records.given_parts:
        return rule, "node", records.given_parts[rule]
    if rule in columns:
        return rule, columns[rule].level, records.read_column(columns[rule].key)
    if rule != "random":
        rules = [*names, "random", "stratified"]
        close = nearest_name(rule, rules)
        step = "one of these rules, or the parts in a column split of the files"
        # Another rule is another experiment: suggest it only for a likely typo.
        if close and is_likely_typo(rule, close):
            step = f"--split-rule {shlex.quote(close)}"
        raise UsageError(
            f"There is no rule or column of parts {rule!r}.",
            expected=", ".join(rules),
            next=step,
        )
    return rule, "graph", None


def labelled_mask(records: RecordTable, *, divides_nodes: bool) -> Bools:
    """Return the mask of labelled nodes (N,) of a single graph, or of labelled graphs (G,)."""
    label = records.label_column
    if label is None or (label.level == "node" and not divides_nodes):
        return np.ones(records.node_counts[0] if divides_nodes else len(records.keys), bool)
    y: Array = records.read_column(label.key)
    y = y.reshape(len(y), -1)
    is_labelled: Bools = ~np.isnan(y)
    if label.low == NO_CLASS:
        is_labelled &= y != NO_CLASS
    return np.asarray(is_labelled.any(axis=1))
