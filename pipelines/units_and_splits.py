"""Assign records to units and to parts of splits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64, U8
from kmip_data.format.split_files import NO_PART, PARTS
from kmip_data.graphs.split_rules import (
    Parts,
    majority_classes,
    stratified_groups,
    stratified_parts,
)
from kmip_data.pipelines.base import AnyPipeline, Pipeline, Prepared, RecordTable, Split, Unit
from kmip_data.pipelines.parameters import BaseSplitParams, BuildParams

P = TypeVar("P", bound=BuildParams)
S = TypeVar("S", bound=BaseSplitParams)


class OneGraphParams(BuildParams):
    """Build parameters of a single graph; a limit only sets the size of a sample."""

    limit: int | None = Field(
        default=None,
        ge=1,
        description="with --sample: nodes of the generated graph",
    )


class OneGraphPipeline(Pipeline[P, S]):
    """Pipeline of a single graph: one unit with one record, named like the dataset."""

    one_unit = True
    max_bytes_in_process = 4 * 2**20

    def units(self, prepared: Prepared, params: P) -> list[Unit]:
        """Return the only unit."""
        return [Unit(0, self.manifest.name, {})]


def units_of_rows(rows: Sequence[int], rows_per_unit: int, noun: str = "rows") -> list[Unit]:
    """Divide rows into units, whose selections are their ``rows``; ``noun`` is used in unit names."""
    units: list[Unit] = []
    for first in range(0, len(rows), rows_per_unit):
        unit_rows = list(rows[first : first + rows_per_unit])
        name = f"{noun} {unit_rows[0]} to {unit_rows[-1]}"
        units.append(Unit(len(units), name, {"rows": unit_rows}))
    return units


def units_by_size(
    sizes: Mapping[str, int],
    max_size: int,
    noun: str,
) -> list[Unit]:
    """Group names into units whose ``sizes`` sum to ``max_size`` at most.

    A single name above that size is a unit by itself. A unit's selection has the key ``noun``.
    """
    groups: list[list[str]] = []
    group_size = 0
    for name, size in sizes.items():
        if not groups or group_size + size > max_size:
            groups.append([])
            group_size = 0
        groups[-1].append(name)
        group_size += size
    units = []
    for number, group in enumerate(groups):
        units.append(Unit(number, f"{noun} {group[0]} to {group[-1]}", {noun: group}))
    return units


def chosen_rows_by_file(
    sizes: Sequence[tuple[str, int]], params: BuildParams
) -> Iterator[tuple[str, int, list[int]]]:
    """Yield each file's name, the number of records before it, and the rows of it to build.

    ``sizes`` has the name and number of records of each file, in source order.
    """
    # A limit is spread over all files: choose among all records, then group by file.
    positions = params.positions_to_build(sum(size for _, size in sizes))
    first = 0
    for name, size in sizes:
        rows = [position - first for position in positions if first <= position < first + size]
        yield name, first, rows
        first += size


def units_of_parts(sizes: Mapping[str, int], params: BuildParams, rows_per_unit: int) -> list[Unit]:
    """Divide the records to build of each part into units, in the order of ``sizes``.

    A unit's selection has its ``part`` and the ``rows`` in that part.
    """
    units: list[Unit] = []
    for part, _, rows in chosen_rows_by_file(list(sizes.items()), params):
        for unit in units_of_rows(rows, rows_per_unit, part):
            selection = {"part": part, **unit.selection}
            units.append(Unit(len(units), unit.name, selection))
    return units


K = TypeVar("K", str, int)


def split_from_lists(
    lists: Mapping[str, Iterable[K]],
    names: Sequence[K],
    noun: str,
    rule: str = "upstream",
) -> Split:
    """Return a published split from its lists of record names, in the order of the lists.

    ``names`` are the build's records; listed names that a limited build lacks are ignored. ``noun``
    describes the lists in the split's note.
    """
    position_of_name = {name: position for position, name in enumerate(names)}
    parts = {}
    for part, listed in lists.items():
        parts[part] = [position_of_name[name] for name in listed if name in position_of_name]
    return Split(rule, rule, {}, parts, f"the {noun} of the raw data, in their order")


def apply_split(
    pipeline: AnyPipeline,
    records: RecordTable,
    params: BaseSplitParams,
    raw_folder: Path | None,
) -> Split:
    """Apply the rule that ``params`` names: one of the dataset's rules, or ``stratified``.

    The stratified rule redraws the records that the default rule assigns to
    ``pipeline.redrawn_parts``, by entire groups if that split has groups. It stratifies graphs by
    their label, by their set of labels if there may be several, or by the most frequent class of
    their nodes. Nodes of a single graph are stratified by their label. The rule is LRGB's
    (:func:`~kmip_data.graphs.split_rules.stratified_draw`), that of entire groups is
    :func:`~kmip_data.graphs.split_rules.stratified_groups`.
    """
    if params.split_rule != "stratified":
        return pipeline.split(records, params, raw_folder)
    rule = params.rule_of_part_sizes or type(params).model_fields["split_rule"].default
    default = pipeline.split(records, params.model_copy(update={"split_rule": rule}), raw_folder)
    rest = default.name.removeprefix(default.rule)
    name = f"stratified-{rest}" if rest == default.name else f"stratified{rest}"
    seed = f"-seed{params.split_seed}"
    if seed not in name:
        name += seed

    if default.part_codes is not None:
        codes = _redraw_nodes(default.part_codes, records, default.groups, params.split_seed)
        note = "nodes drawn at random"
        if records.node_labels:
            note += ", with equal class fractions"
        if default.groups is not None:
            note += f"; {default.note}"
        return Split(
            name,
            "stratified",
            default.parameters,
            note=note,
            part_codes=codes,
        )

    # The default rule determines which records to redraw, and the sizes of the parts.
    labels, grouping = stratification_labels(records, pipeline.background_class)
    redrawn_parts = [part for part in PARTS if part in pipeline.redrawn_parts]
    default_parts = [default.parts[part] for part in redrawn_parts]
    pool = np.asarray(pipeline.order_for_stratified(default_parts, labels), np.int64)
    sizes = {part: len(default.parts[part]) for part in redrawn_parts}
    parts = dict(default.parts)
    pool_groups = None if default.groups is None else default.groups[pool]
    drawn = _redraw(labels[pool], pool_groups, sizes, params.split_seed)
    for part, rows in drawn.items():
        parts[part] = pool[rows].tolist()
    note = f"{', '.join(redrawn_parts)} redrawn by {grouping}"
    if default.groups is not None:
        note += f"; {default.note}"
    return Split(name, "stratified", default.parameters, parts, note)


def stratification_labels(records: RecordTable, background: int | None) -> tuple[I64, str]:
    """Return the stratification label of each graph, (G,), and its description."""
    column = records.label_column
    class_counts = records.class_counts
    if column is None or not class_counts.shape[1]:
        return np.zeros(len(records.keys), np.int64), "chance: there are no classes"
    if column.level == "node":
        return majority_classes(class_counts, background), "the most frequent class of their nodes"
    if not column.shape:
        return class_counts.argmax(axis=1), "their class"
    # Each distinct set of labels is a class.
    _, labels = np.unique(class_counts, axis=0, return_inverse=True)
    return labels.reshape(-1).astype(np.int64), "the set of their labels"


def _redraw(labels: I64, groups: I64 | None, sizes: Mapping[str, int], seed: int) -> Parts:
    """Divide items (n,) into parts of equal fractions of each label, by entire groups if given."""
    if groups is None:
        return stratified_parts(labels, sizes, seed=seed)
    return stratified_groups(labels, groups, sizes, seed=seed)


def _redraw_nodes(codes: U8, records: RecordTable, groups: I64 | None, seed: int) -> U8:
    """Redraw the nodes of a single graph that are in a part."""
    nodes = np.flatnonzero(codes != NO_PART)
    labels = np.zeros(len(codes), np.int64)
    if records.node_labels is not None:
        labels = records.node_labels[0]
    sizes = {part: int((codes == code).sum()) for code, part in enumerate(PARTS)}
    redrawn = codes.copy()
    node_groups = None if groups is None else groups[nodes]
    for code, rows in enumerate(_redraw(labels[nodes], node_groups, sizes, seed).values()):
        redrawn[nodes[rows]] = code
    return redrawn
