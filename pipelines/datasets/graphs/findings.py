"""Findings of a reader over all graphs: attributes, notices to the user, and uses of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import U8, Array
from kmip_data.columns.attribute_levels import AttributeRules, row_form_and_shape
from kmip_data.columns.column_roles import ColumnRole, Level, Numbering
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.columns.labels import TaskName
from kmip_data.columns.part_masks import PART_ARRAYS, masks_by_part, part_codes
from kmip_data.errors import OpenQuestions, Setting
from kmip_data.format.schema import ItemForm
from kmip_data.format.split_files import NO_PART
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.known_names import NO_LABEL
from kmip_data.pipelines.own.columns.numbers import DecimalSign

#: Level of a table -> key of its features.
FEATURE_KEYS: dict[Level, str] = {
    "node": "node/x",
    "edge": "edge/edge_attr",
    "graph": "graph/graph_attr",
}


@dataclass
class Attributes:
    """Attributes of all graphs: component names, targets, parts and forms."""

    component_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    target_level: str = "graph"
    graph_target_size: int = 0  #: number of values in a graph's target array
    class_names: tuple[str, ...] = ()  #: class names, if the files have them
    part_keys: list[str] = field(default_factory=list)  #: keys of the columns of parts
    group_key: str = ""  #: key of the column of groups
    masks: U8 | None = None  #: part of each node of a single graph, (N,) or (N, folds)
    #: Key of a graph column -> its form, unless it is a row with a leading axis of one.
    forms: dict[str, ItemForm] = field(default_factory=dict)
    are_tensors: bool = False  #: True if items must have the shapes and dtypes of a ``Data``

    @property
    def target_key(self) -> str:
        """Key of the target column; empty if there is none."""
        return f"{self.target_level}/y" if "y" in self.component_names else ""

    def add_targets(
        self,
        name: str,
        y: Array,
        level: str,
        task: TaskName | None,
        *,
        keep_target_shape: bool = False,
    ) -> dict[str, Array]:
        """Register targets (n, …), a row for each graph or node; return them by key.

        ``keep_target_shape`` keeps a second axis of length one.
        """
        y = y.copy()  # the array may be a view of a file that closes
        if task == "multilabel" or y.shape[1:] not in {(), () if keep_target_shape else (1,)}:
            y = y.reshape(len(y), -1)
            width = y.shape[1]
        else:
            y = y.reshape(-1)
            width = 1
        names: tuple[str, ...] = (name,)
        if width != 1:
            names = tuple(f"{name} {column}" for column in range(width))
        self.component_names["y"] = names
        self.target_level = level
        self.graph_target_size = y.size if level == "graph" else 0
        return {f"{level}/y": y}


@dataclass
class Notices:
    """Notices to the user: ignored inputs, missing values and open questions."""

    #: Ignored array, column or file -> reason, in order.
    ignored: dict[str, str] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)  #: column -> number of missing values
    warnings: list[str] = field(default_factory=list)  #: likely faults of the files
    #: Decimal signs with which numbers were read.
    decimal_signs: set[DecimalSign] = field(default_factory=set)
    questions: dict[str, Setting] = field(default_factory=dict)  #: question -> likeliest answer

    def raise_questions(self) -> None:
        """Raise one error with all questions, if there are any."""
        if self.questions:
            raise OpenQuestions(self.questions)


class Direction(NamedTuple):
    """Columns of sources and targets, for the summary."""

    columns: str
    remedy: str  #: how to swap the columns if only their order decided; empty otherwise


@dataclass
class Tables:
    """Levels of the tables, the column of their graph keys, and the numbering of their nodes."""

    levels: dict[str, Level] = field(default_factory=dict)  #: table -> level of its rows
    key_column: str = ""  #: column with the graph keys; empty if graphs are numbered by row
    numbering: Numbering | None = None  #: numbering of nodes whose table has no ids
    direction: Direction | None = (
        None  #: ends of the edges; ``None`` if the files have no columns of ends
    )


@dataclass(frozen=True)
class Findings:
    """Findings of one reader, complete after its last graph."""

    attributes: Attributes = field(default_factory=Attributes)
    notices: Notices = field(default_factory=Notices)
    tables: Tables = field(default_factory=Tables)
    #: Roles of columns of tables, then of arrays, each added where it is decided.
    roles: list[ColumnRole] = field(default_factory=list)


def register_part_masks(
    arrays: Mapping[str, Array],
    nodes: int,
    where: str,
    options: ReadOptions,
    findings: Findings,
    *,
    masks_are_flags: bool,
) -> dict[str, Array]:
    """Register the split of a single graph that masks of any shape give.

    If ``masks_are_flags``, as in many graphs, return them as node columns instead.
    """
    if not arrays:
        return {}
    options.check_memory(8 * nodes, where)
    by_part = masks_by_part(arrays, nodes, where)
    codes = part_codes(by_part, nodes, where)
    if masks_are_flags:
        return {f"node/{part}_mask": mask.astype(bool) for part, mask in by_part.items()}
    if (codes == NO_PART).all():
        findings.notices.ignored |= dict.fromkeys(arrays, "no node is in it")
    else:
        findings.attributes.masks = codes
    return {}


def key_columns_by_level(
    block: GraphBlock, rules: AttributeRules, options: ReadOptions, findings: Findings
) -> GraphBlock:
    """Rename the attributes of graphs to keys of columns, by the level of each attribute.

    Strings and Python numbers must have their form in ``findings`` already. Targets keep their axes;
    those of a graph with several rows are a column like any other.
    """
    attributes = findings.attributes
    columns: dict[str, Array] = {}
    masks = []
    for attribute, rows in block.columns.items():
        if "/" in attribute:  # a column whose level the reader knows
            columns[attribute] = rows
            continue
        attributes.are_tensors = True
        if attribute in PART_ARRAYS and rules.mask_use != "attributes":
            masks.append(attribute)
            continue
        level = rules.levels[attribute]
        key = f"{level}/{attribute}"
        shape = block.item_shape(attribute)
        may_be_target = attribute == "y" and options.params.label != (NO_LABEL,)
        if may_be_target and _are_targets(shape, level):
            columns |= _target_columns(rows, shape, level, options, attributes)
            continue
        if may_be_target:
            attributes.graph_target_size = rows.size if level == "graph" else 0
        if level == "graph" and key not in attributes.forms:
            attributes.forms[key], _ = row_form_and_shape(level, shape)
        if level == "graph" and attributes.forms[key] == "text":
            columns[key] = block.padded_text(attribute)
        elif level == "graph" and attributes.forms[key] != "axis":
            columns[key] = rows.reshape(len(block), *shape)
        else:
            columns[key] = rows
    columns |= _mask_columns(block, masks, rules, options, findings)
    return replace(block, columns=columns)


def _mask_columns(
    block: GraphBlock,
    masks: Sequence[str],
    rules: AttributeRules,
    options: ReadOptions,
    findings: Findings,
) -> dict[str, Array]:
    """Register the split that masks give, or return them as flags of the nodes of many graphs."""
    arrays_by_graph = zip(*(block.arrays(mask) for mask in masks), strict=True)
    flags: dict[str, list[Array]] = {}
    for number, arrays in enumerate(arrays_by_graph):
        graph_flags = register_part_masks(
            dict(zip(masks, arrays, strict=True)),
            int(block.node_counts[number]),
            f"Graph {block.keys[number]}",
            options,
            findings,
            masks_are_flags=rules.mask_use == "flags",
        )
        for key, rows in graph_flags.items():
            flags.setdefault(key, []).append(rows)
    return {key: np.concatenate(rows) for key, rows in flags.items()}


def _are_targets(shape: tuple[int, ...], level: str) -> bool:
    """True for a number or a row of numbers, for each node or for the graph."""
    if level == "graph":
        return len(shape) < 2 or (len(shape) == 2 and shape[0] == 1)
    return level == "node" and len(shape) <= 2


def _target_columns(
    rows: Array,
    shape: tuple[int, ...],
    level: str,
    options: ReadOptions,
    attributes: Attributes,
) -> dict[str, Array]:
    """Return the targets of nodes (N,) or (N, C), or those of a graph: (), (C,) or (1, C)."""
    name = (*options.params.label, "y")[0]
    if level == "graph" and len(shape) < 2 and shape != (1,):
        attributes.forms.setdefault("graph/y", "row")
        rows = rows.reshape(-1, *shape)
    return attributes.add_targets(name, rows, level, options.params.task, keep_target_shape=True)
