"""Inference of columns, target and shard size from all graphs of the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.attribute_levels import AttributeLevels, AttributeRules, MaskUse
from kmip_data.columns.column_inference import InferredColumns
from kmip_data.columns.column_roles import ColumnRole, ColumnRoles, Level
from kmip_data.columns.labels import InferredTarget, TaskName, infer_target, targets_as_numbers
from kmip_data.errors import DamagedInput, Setting, Step, UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import (
    GROUP_DOC,
    NODE_ID,
    PART_DOC,
    Column,
    ItemForm,
    bytes_per_graph_node_edge,
)
from kmip_data.format.writer import MAX_SHARD_BYTES
from kmip_data.pipelines.datasets.graphs import molecules
from kmip_data.pipelines.datasets.graphs.description_sources import describes_arrays
from kmip_data.pipelines.datasets.graphs.file_summary import stored_component_names
from kmip_data.pipelines.datasets.graphs.findings import FEATURE_KEYS, Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import NODE_ID_DOC, InferredGraphs
from kmip_data.pipelines.graph_arrays.spooled_graphs import SpooledGraphs, bytes_of_graph
from kmip_data.pipelines.own_pipeline import KEY_LENGTH, escaped_key
from kmip_data.text import list_names

#: Memory besides the columns: row pointers, counts and codes of a split.
_BYTES_PER_NODE = 32
_BYTES_PER_EDGE = 16
_BYTES_PER_UNDIRECTED_EDGE = 128  #: with the search for its reverse
_MAX_EXPANSION = 128  #: maximum array bytes per file byte of a regular file: SMILES need about 100


def checked_graphs(
    graphs: Iterable[GraphRecord], findings: Findings, options: ReadOptions, file_bytes: int
) -> Iterator[GraphRecord]:
    """Yield graphs under the keys of their records, unless they need more memory than allowed.

    ``file_bytes`` is the size of the raw files, 0 if the graphs are in memory.
    """
    total_bytes = 0
    for number, graph in enumerate(graphs):
        values = bytes_of_graph(graph)
        total_bytes += values
        key = escaped_key(graph.key, KEY_LENGTH)
        # A tensor may repeat one stored number: 180 kB can become 160 GB of shards.
        options.check_memory(
            total_bytes - _MAX_EXPANSION * file_bytes, "A copy of the values that the files repeat"
        )
        # The values, their checks, and the labels of all graphs so far.
        targets = graph.columns.get(findings.attributes.target_key or "y")
        labels = 0 if targets is None else targets.nbytes * number
        is_undirected = options.params.undirected
        per_edge = _BYTES_PER_UNDIRECTED_EDGE if is_undirected else _BYTES_PER_EDGE
        sizes = _BYTES_PER_NODE * graph.num_nodes + per_edge * graph.num_edges
        options.check_memory(
            3 * labels + 2 * values + sizes, f"The graph {key} of {graph.num_nodes:,} nodes"
        )
        yield replace(graph, key=key)


def attribute_rules(graphs: SpooledGraphs, findings: Findings, mask_use: MaskUse) -> AttributeRules:
    """Return the rules by which attributes, whose names have no level, become columns."""
    levels = AttributeLevels()
    for block in graphs.blocks():
        levels.add(block, findings.attributes.forms)
    return AttributeRules(
        levels=levels.levels_by_attribute(), mask_use=mask_use, forms=findings.attributes.forms
    )


def check_totals(columns: InferredColumns, findings: Findings, files: Sequence[str]) -> None:
    """Refuse files without a graph, and labels that match neither the graph nor its nodes."""
    if not columns.graphs:
        raise DamagedInput("The files have no graph.", found=list_names(files, 500))
    labels = findings.attributes.graph_target_size
    if columns.graphs == 1 and labels > 1:
        raise DamagedInput(
            f"There are {labels:,} labels for a graph of {columns.max_nodes:,} nodes.",
            expected="a label for each node, or one for the graph",
            steps="check the files; nodes without edges or features count by num_nodes of a Data",
        )


def count_missing_labels(target: InferredTarget, findings: Findings) -> None:
    """Add the number of missing labels to ``findings``, unless a table has counted it by column."""
    names = findings.attributes.component_names["y"]
    missing = findings.notices.missing
    if target.missing and (len(names) == 1 or missing.keys().isdisjoint(names)):
        missing[", ".join(names)] = target.missing


def infer_target_column(
    columns: InferredColumns, options: ReadOptions, findings: Findings
) -> InferredTarget:
    """Return the target column; refuse class names that do not match its classes."""
    is_table = bool(findings.tables.levels)
    # Tables have the labels themselves, arrays the numbers of their classes.
    classes = findings.attributes.class_names if is_table else ()
    if options.described is not None:
        classes = options.described.classes
    task = options.params.task
    if task is None and findings.attributes.are_tensors:
        task = _task_of_floats(columns.targets, findings)
    names = findings.attributes.component_names["y"]
    target = infer_target(
        columns.target,
        names,
        columns.targets,
        task,
        classes,
        is_table=is_table,
        minus_one_is_class=all(options.params.missing_words(name)[1] for name in names),
    )
    class_names = options.params.class_name or findings.attributes.class_names
    _check_class_names(class_names, target, columns.targets)
    if findings.attributes.are_tensors:
        form = findings.attributes.forms.get(columns.target, "axis")
        return _present_as_tensors(target, columns.targets, form, options)
    return target


def _task_of_floats(labels: Sequence[Array], findings: Findings) -> TaskName | None:
    """Return the regression of tensors with one float a row; ``None`` for others.

    As in PyTorch Geometric, classes are integers. Floats without fractions are noted.
    """
    is_float = np.result_type(*{y.dtype for y in labels}).kind == "f"
    if not is_float or any(y.ndim > 1 for y in labels):
        return None
    if not any((np.nan_to_num(y) % 1).any() for y in labels):
        findings.notices.warnings.append(
            "y has floats without fractions, which are numbers of a regression; for classes, add "
            "task='classification'"
        )
    return "regression"


def _present_as_tensors(
    target: InferredTarget, labels: Sequence[Array], form: ItemForm, options: ReadOptions
) -> InferredTarget:
    """Return a target whose items have the form and dtype of the tensors ``labels``.

    Raises ``DamagedInput`` for integers that are no classes unless the task is given.
    """
    column = replace(target.column, form=form)
    dtype = np.result_type(*{y.dtype for y in labels})
    is_float = dtype.kind == "f"
    if column.num_classes is None and is_float:
        column = replace(column, stored=dtype.name, presented=dtype.name)
    elif column.num_classes is None and options.params.task is None:
        width = max(column.shape, default=1)
        tasks = ["regression", *(["classification"] if width == 1 else [])]
        raise DamagedInput(
            f"y has rows of {width} integers: classes or regression targets.",
            steps=[Setting(task=task) for task in tasks],
        )
    keeps_dtype = dtype.kind in "biu"  # classes are integers; one of several labels may be missing
    if column.shape:
        keeps_dtype = is_float or not target.missing
    if column.num_classes and keeps_dtype:
        column = replace(column, presented=dtype.name)
    return replace(target, column=column)


def graphs_per_shard(inferred: InferredGraphs) -> int:
    """Return the number of graphs that fill a shard on average, at least one."""
    graphs = inferred.counts[0]
    size = int(np.dot(inferred.counts, bytes_per_graph_node_edge(inferred.record_schema)))
    if inferred.are_molecules:
        size += graphs * molecules.BYTES_PER_MOLECULE
    return graphs * MAX_SHARD_BYTES // max(size, MAX_SHARD_BYTES) or 1


def refuse_options_of_targets(options: ReadOptions) -> None:
    """Raise ``UsageError`` for options that describe a target: the files have none."""
    if options.described is not None:  # its files may come without labels
        return
    for key in ("task", "class_name"):
        value = getattr(options.params, key)
        if not value:
            continue
        raise UsageError(
            f"{Setting({key: value})} has no effect: the graphs have no target.",
            steps=["name the target as label, or leave this out", Setting({key: None})],
        )


def non_target_columns(
    inferred: InferredColumns, options: ReadOptions, findings: Findings
) -> list[Column]:
    """Return all columns except the target, documented and matched with the description.

    Raises ``DamagedInput`` if an array of the description is missing or differs in form.
    """
    columns = []
    description = options.described or ColumnRoles()
    missing_arrays = {role.column: role for role in description.columns if role.use == "array"}
    for column in inferred.columns():
        if column.key == NODE_ID:
            columns.append(replace(column, doc=NODE_ID_DOC))
            continue
        is_part = column.key in findings.attributes.part_keys
        is_group = column.key == findings.attributes.group_key or _is_array_of_groups(
            column, options.params.group
        )
        fields = stored_component_names(column.attribute, findings.attributes)
        doc = GROUP_DOC if is_group else PART_DOC if is_part else ""
        documented = replace(column, doc=doc, fields=fields)
        array = missing_arrays.pop(column.attribute, None)
        if array is not None:
            kinds = {np.dtype(name).kind for name in (array.dtype, column.presented)}
            if array.shape != column.shape or len(kinds) > 1:
                raise DamagedInput(
                    f"{column.attribute} differs from the description.",
                    expected=f"{array.dtype} {list(array.shape)}",
                    found=f"{column.presented} {list(column.shape)}",
                    steps="give it the shape and dtype of the description",
                )
            documented = replace(documented, presented=array.dtype)
        elif describes_arrays(description, column) and not is_part and not is_group:
            findings.notices.ignored[column.attribute] = "not in the description"
            continue
        columns.append(documented)
    if missing_arrays:
        raise DamagedInput(
            f"The files have no {', '.join(missing_arrays)}, which the description has.",
            steps="add them to the files",
        )
    has_groups = any(column.doc == GROUP_DOC for column in columns)
    group = options.params.group
    if group and not has_groups and group != description.parameters().get("group"):
        raise _group_error(group, columns, findings)
    return columns


def _is_array_of_groups(column: Column, group: str) -> bool:
    """True for the array of whole numbers or texts that ``group`` names."""
    if column.attribute != group or column.level == "edge":
        return False
    return column.form == "text" or (not column.shape and np.dtype(column.stored).kind in "iub")


def _group_error(group: str, columns: Sequence[Column], findings: Findings) -> UsageError:
    """Return the error for groups that are not a column of nodes or graphs, or have another use."""
    uses = [f"{role.use} of {role.level}s" for role in findings.roles if role.column == group]
    uses += [column.presented for column in columns if column.attribute == group]
    return UsageError(
        f"{Setting(group=group)} names no column of groups.",
        expected="a text or a whole number of each node, or of each graph",
        found=", ".join(uses),
        steps="name another column as group",
    )


def add_array_roles(
    columns: Sequence[Column],
    target: InferredTarget | None,
    options: ReadOptions,
    findings: Findings,
) -> None:
    """Add the role of each stored array; columns of tables have theirs since they were read.

    An array is the target, the groups, or an array of numbers. Files without labels keep the labels
    of the description, which a model predicts.
    """
    roles = findings.roles
    read_keys = {FEATURE_KEYS[role.level] for role in roles}
    arrays = [column for column in columns if column.doc not in {NODE_ID_DOC, PART_DOC}]
    if any(role.use == "group" for role in roles):
        arrays = [column for column in arrays if column.doc != GROUP_DOC]
    if target is not None and all(role.use != "label" for role in roles):
        arrays.append(target.column)
    for column in arrays:
        if column.key in read_keys:
            continue
        is_target = target is not None and column is target.column
        name = (*options.params.label, "y")[0] if is_target else column.attribute
        roles.append(
            ColumnRole(
                column=name,
                level=cast(Level, column.level),
                use="label" if is_target else "group" if column.doc == GROUP_DOC else "array",
                dtype=column.presented,
                shape=column.shape,
                missing=findings.notices.missing.get(name, 0),
            )
        )

    if target is None and options.described is not None:
        labels = {role.column: role for role in options.described.columns if role.use == "label"}
        no_values = {"why": "not in the files", "values": (), "distinct": 0, "missing": 0}
        roles[:] = [role for role in roles if role.column not in labels]
        roles.extend(role.model_copy(update=no_values) for role in labels.values())


def _check_class_names(
    names: Sequence[str], target: InferredTarget, labels: Sequence[Array]
) -> None:
    """Refuse class names if their number differs from the number of classes."""
    classes = target.column.num_classes or 0
    if not names or len(names) == classes:
        return
    numbers = [targets_as_numbers(rows, target.class_names).reshape(-1) for rows in labels]
    values = np.unique(np.concatenate(numbers))
    values = values[~np.isnan(values)]
    shown = target.class_names or [f"{value:g}" for value in values[:100]]
    steps: list[Step] = [
        f"give class_name {classes} times, in the order of the classes, or leave it out",
        Setting(class_name=None),
    ]
    if not target.class_names and len(values) and values[0] == 1 == classes - len(names):
        steps = ["subtract 1 from the labels: classes count from 0, and no label is 0"]
    raise DamagedInput(
        f"class_name has {len(names)} names for {classes} classes.",
        expected=f"a name for each class, or none; {', '.join(target.column.fields) or target.column.doc}",
        found=f"labels {', '.join(shown)}",
        steps=steps,
    )
