"""Assignment of records to units and parts, shared by pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64, U8
from kmip_data.format.split_files import NO_PART, PARTS
from kmip_data.graphs.split_rules import meta_labels, stratified_parts
from kmip_data.pipelines.base import (
    AnyPipeline,
    BaseSplitParams,
    BuildParams,
    Pipeline,
    Prepared,
    Records,
    Split,
    Unit,
)

P = TypeVar("P", bound=BuildParams)
S = TypeVar("S", bound=BaseSplitParams)


class OneGraphParams(BuildParams):
    """Parameters that change the record; a single graph has no limit except as a sample."""

    limit: int | None = Field(
        default=None,
        ge=1,
        description="with --sample: nodes of the generated graph",
    )


class OneGraphPipeline(Pipeline[P, S]):
    """A dataset of one graph: one unit, one record, which is called as the dataset."""

    one_unit = True

    def units(self, prepared: Prepared, params: P) -> list[Unit]:
        """Return one unit: one graph, one shard."""
        return [Unit(0, self.manifest.name, {})]


def units_of_rows(rows: Sequence[int], per_unit: int, noun: str = "rows") -> list[Unit]:
    """Assign rows to units of ``per_unit``; the items of a unit are its ``rows``."""
    units: list[Unit] = []
    for first in range(0, len(rows), per_unit):
        run = list(rows[first : first + per_unit])
        units.append(Unit(len(units), f"{noun} {run[0]} to {run[-1]}", {"rows": run}))
    return units


def units_by_size(
    sizes: Mapping[str, int],
    most: int,
    noun: str,
) -> list[Unit]:
    """Divide names into units whose ``sizes`` add up to ``most`` or less.

    The items of a unit are called ``noun``.

    A name that is larger by itself is a unit of its own.
    """
    runs: list[list[str]] = []
    used = 0
    for name, size in sizes.items():
        # Full: the next name begins a unit, also where it alone is larger than the bound.
        if not runs or used + size > most:
            runs.append([])
            used = 0
        runs[-1].append(name)
        used += size
    units = []
    for number, run in enumerate(runs):
        units.append(Unit(number, f"{noun} {run[0]} to {run[-1]}", {noun: run}))
    return units


def rows_inside(
    sizes: Sequence[tuple[str, int]], params: BuildParams
) -> Iterator[tuple[str, int, list[int]]]:
    """Yield the name of each file or part, how many records come before it, and the rows chosen in it.

    ``sizes`` has name and number of records of each, in source order.
    """
    chosen = params.positions_to_build(sum(size for _, size in sizes))
    # A limit is spread over all files: choose among all rows, then group by file.
    first = 0
    for name, size in sizes:
        rows = [row - first for row in chosen if first <= row < first + size]
        yield name, first, rows
        first += size


def units_of_parts(sizes: Mapping[str, int], params: BuildParams, per_unit: int) -> list[Unit]:
    """Assign the chosen records of each part, in the order of ``sizes``.

    The items of a unit are its ``part`` and ``rows`` inside it.
    """
    units: list[Unit] = []
    for part, _, rows in rows_inside(list(sizes.items()), params):
        for unit in units_of_rows(rows, per_unit, part):
            items = {"part": part, **unit.items}
            units.append(Unit(len(units), unit.name, items))
    return units


K = TypeVar("K", str, int)


def split_by_lists(
    lists: Mapping[str, Iterable[K]],
    names: Sequence[K],
    noun: str,
    rule: str = "upstream",
) -> Split:
    """Return the published split: positions of the records of each part, in the order of its list.

    Names of a list that are none of ``names``, the build's records, are left out. ``noun``
    is the word for the lists in the note.
    """
    # A build with a limit has few of the listed records: ignore the others.
    position = {name: i for i, name in enumerate(names)}
    parts = {}
    for part, listed in lists.items():
        parts[part] = [position[name] for name in listed if name in position]
    return Split(rule, rule, {}, parts, f"the {noun} of the raw data, in their order")


def apply_split(
    pipeline: AnyPipeline,
    records: Records,
    params: BaseSplitParams,
    raw: Path | None,
) -> Split:
    """Apply the rule that ``params`` names: the dataset's own, or the stratified one, which all have.

    The stratified rule redraws the records that the default rule assigns to
    ``pipeline.stratified_parts``.

    Graphs are grouped by their label, by their set of labels where several may hold, or by the most
    frequent class of their nodes; the nodes of a single graph by their own. The rule is LRGB's
    (:func:`~kmip_data.graphs.split_rules.stratified_draw`).
    """
    if params.split_rule != "stratified":
        return pipeline.split(records, params, raw)
    rule = params.rule_of_part_sizes or type(params).model_fields["split_rule"].default
    default = pipeline.split(records, params.model_copy(update={"split_rule": rule}), raw)
    rest = default.name.removeprefix(default.rule)
    name = f"stratified-{rest}" if rest == default.name else f"stratified{rest}"
    seed = f"-seed{params.split_seed}"
    if seed not in name:
        name += seed

    if default.node_code is not None:
        codes = _deal_nodes(default.node_code, records, params.split_seed)
        note = "nodes dealt at random"
        if records.node_labels:
            note += ", with equal shares of the classes"
        return Split(
            name,
            "stratified",
            default.parameters,
            note=note,
            node_code=codes,
        )

    # The default rule determines the records to divide, and the sizes of parts.
    labels, grouping = stratification_labels(records, pipeline.background_class)
    chosen = [part for part in PARTS if part in pipeline.stratified_parts]
    default_parts = [default.parts[part] for part in chosen]
    pool = np.asarray(pipeline.order_for_stratified(default_parts, labels), np.int64)
    sizes = {part: len(default.parts[part]) for part in chosen}
    dealt = stratified_parts(labels[pool], sizes, seed=params.split_seed)
    parts = dict(default.parts)
    for part, rows in dealt.items():
        parts[part] = pool[rows].tolist()
    note = f"{', '.join(chosen)} dealt anew by {grouping}"
    return Split(name, "stratified", default.parameters, parts, note)


def stratification_labels(records: Records, background: int | None) -> tuple[I64, str]:
    """Return the stratification label of each graph, (G,), and its description."""
    column = records.label_column
    classes = records.class_counts
    if column is None or not classes.shape[1]:
        return np.zeros(len(records.keys), np.int64), "chance alone: there are no classes"
    if column.level == "node":
        return meta_labels(classes, background), "the most frequent class of their nodes"
    if not column.shape:
        return classes.argmax(axis=1), "their class"
    # With several labels, each distinct set is a class.
    _, label = np.unique(classes, axis=0, return_inverse=True)
    return label.reshape(-1).astype(np.int64), "the set of their labels"


def _deal_nodes(codes: U8, records: Records, seed: int) -> U8:
    """Divide the nodes of one graph, except those in no part."""
    nodes = np.flatnonzero(codes != NO_PART)
    labels = np.zeros(len(codes), np.int64)
    if records.node_labels is not None:
        labels = records.node_labels[0]
    sizes = {part: int((codes == code).sum()) for code, part in enumerate(PARTS)}
    dealt = codes.copy()
    for code, rows in enumerate(stratified_parts(labels[nodes], sizes, seed=seed).values()):
        dealt[nodes[rows]] = code
    return dealt
