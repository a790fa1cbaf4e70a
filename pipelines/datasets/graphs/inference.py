"""Columns, target and shards of a build, inferred from all graphs of the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.column_uses import Description
from kmip_data.columns.infer import InferredColumns
from kmip_data.columns.target_inference import Target, infer_target, targets_as_numbers
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import NODE_ID, PART_DOC, Column, Schema, bytes_per_graph_node_edge
from kmip_data.format.writer import MAX_SHARD_BYTES, GraphRecord
from kmip_data.pipelines.datasets.graphs.description_sources import is_given_as_arrays
from kmip_data.pipelines.datasets.graphs.edge_directions import EdgeCounts, with_reverse_edges
from kmip_data.pipelines.datasets.graphs.file_summary import stored_component_names
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import NODE_ID_DOC
from kmip_data.pipelines.datasets.graphs.readers import smiles_tables
from kmip_data.pipelines.user_files import KEY_LENGTH, escaped_key

#: Memory in bytes per node and per edge beyond the columns: row pointers, counts, codes of a split.
_BYTES_PER_NODE = 32
_BYTES_PER_EDGE = 64
_MAX_EXPANSION = 128  #: most bytes of arrays per byte of a regular file: a SMILES has about 100


@dataclass
class GraphTotals:
    """Columns and counts of all graphs, which are read one by one."""

    edge_counts: EdgeCounts
    columns: InferredColumns = field(default_factory=InferredColumns)
    are_molecules: bool = False  #: True if the graphs are made from SMILES


def read_all(
    graphs: Iterator[GraphRecord], findings: Findings, options: ReadOptions, size_of_files: int
) -> GraphTotals:
    """Read every graph once, and keep none."""
    totals = GraphTotals(EdgeCounts(options.params.undirected))
    for graph in graphs:
        _claim_memory(graph, totals.columns, options, size_of_files)
        if graph.edge_index is not None:
            totals.edge_counts.add(graph.edge_index, graph.num_nodes)
        both_ways = graph
        if options.params.undirected:
            both_ways, unequal = with_reverse_edges(graph)
            totals.edge_counts.unequal += unequal
        record, totals.are_molecules = smiles_tables.without_smiles(both_ways)
        record = replace(record, key=escaped_key(graph.key, KEY_LENGTH))
        totals.columns.add(record, findings.attributes.target_key, findings.attributes.forms)
    return totals


def check_totals(totals: GraphTotals, findings: Findings, files: Sequence[str]) -> None:
    """Refuse files without a graph, and labels that are neither the graph's nor its nodes'."""
    columns = totals.columns
    if not columns.graphs:
        raise DamagedInput("The files hold no graph.", found=", ".join(files)[:500])
    labels = findings.attributes.target_values
    if columns.graphs == 1 and labels > 1:
        raise DamagedInput(
            f"There are {labels:,} labels for a graph of {columns.max_nodes:,} nodes.",
            expected="a label for each node, or one for the graph",
            next="check the files; nodes without edges or features count by num_nodes of a Data",
        )


def count_missing_labels(target: Target, findings: Findings) -> None:
    """Add the missing labels to the findings, unless each column of a table is counted already."""
    names = findings.attributes.component_names["y"]
    missing = findings.notices.missing
    if target.missing and (len(names) == 1 or missing.keys().isdisjoint(names)):
        missing[", ".join(names)] = target.missing


def infer_labels(inference: InferredColumns, options: ReadOptions, findings: Findings) -> Target:
    """Return the column of the targets; refuse class names that do not fit it."""
    target = infer_target(
        inference.target,
        findings.attributes.component_names["y"],
        inference.targets,
        options.params.task,
        options.described.classes if options.described else (),
        is_table=bool(findings.tables.levels),
    )
    names = options.params.class_name or findings.attributes.class_names
    _check_class_names(names, target, inference.targets)
    return target


def graphs_per_shard(totals: GraphTotals, schema: Schema) -> int:
    """Return as many graphs as fill a shard on average, at least one."""
    columns = totals.columns
    counts = (columns.graphs, columns.nodes, columns.edges)
    size = int(np.dot(counts, bytes_per_graph_node_edge(schema)))
    if totals.are_molecules:
        size += columns.graphs * smiles_tables.BYTES_OF_MOLECULE
    return columns.graphs * MAX_SHARD_BYTES // max(size, MAX_SHARD_BYTES) or 1


def described_columns(
    inference: InferredColumns, options: ReadOptions, findings: Findings
) -> list[Column]:
    """Return all columns but the target, with the names of their components, or their meaning.

    Raises ``DamagedInput`` for an array that the description has and the files lack.
    """
    columns = []
    given = options.described or Description()
    arrays_left = {array.name: array for array in given.columns if array.use == "array"}
    for column in inference.columns():
        if column.key == NODE_ID:
            columns.append(replace(column, doc=NODE_ID_DOC))
            continue
        is_part = column.key in findings.attributes.part_keys
        fields = stored_component_names(column.attribute, findings.attributes)
        described = replace(column, doc=PART_DOC if is_part else "", fields=fields)
        array = arrays_left.pop(column.attribute, None)
        if array is not None:
            kinds = {np.dtype(name).kind for name in (array.dtype, column.presented)}
            if array.shape != column.shape or len(kinds) > 1:
                raise DamagedInput(
                    f"{column.attribute} is not as in the description.",
                    expected=f"{array.dtype} {list(array.shape)}",
                    found=f"{column.presented} {list(column.shape)}",
                    next="give it as many numbers and the same dtype",
                )
            described = replace(described, presented=array.dtype)
        elif is_given_as_arrays(given, column) and not is_part:
            findings.notices.ignored[column.attribute] = "not in the description"
            continue
        columns.append(described)
    if arrays_left:
        raise DamagedInput(
            f"The files have no {', '.join(arrays_left)}.",
            next="add what the description has",
        )
    return columns


def _check_class_names(names: Sequence[str], target: Target, labels: Sequence[Array]) -> None:
    """Refuse another number of class names than of classes, which would name the wrong ones."""
    classes = target.column.num_classes or 0
    if not names or len(names) == classes:
        return
    known = (targets_as_numbers(rows, target.class_names).reshape(-1) for rows in labels)
    values = np.unique(np.concatenate(list(known)))
    values = values[~np.isnan(values)]
    shown = target.class_names or [f"{value:g}" for value in values[:100]]
    step = f"--set class_name= once for each of {classes} classes, in order; or leave it out"
    if not target.class_names and len(values) and values[0] == 1 == classes - len(names):
        step = "subtract 1 from the labels: classes count from 0, and no label is 0"
    raise DamagedInput(
        f"class_name has {len(names)} names for {classes} classes.",
        expected=f"a name for each class, or none; {', '.join(target.column.fields) or target.column.doc}",
        found=f"labels {', '.join(shown)}",
        next=step,
    )


def _claim_memory(
    graph: GraphRecord, inference: InferredColumns, options: ReadOptions, size_of_files: int
) -> None:
    """Reserve the memory of a graph: its values, their checks, and the labels of all graphs."""
    values = sum(array.nbytes for array in graph.columns.values())
    labels = sum(array.nbytes for array in inference.targets[-1:]) * inference.graphs
    # A tensor may repeat one stored number: 180 kB can become 160 GB of shards.
    repeated = inference.bytes - _MAX_EXPANSION * size_of_files
    options.claim(repeated, "A copy of the values that the files repeat")
    per_edge = _BYTES_PER_EDGE * (1 + options.params.undirected)
    sizes = _BYTES_PER_NODE * graph.num_nodes + per_edge * graph.num_edges
    options.claim(
        3 * labels + 2 * values + sizes,
        f"The graph {escaped_key(graph.key, KEY_LENGTH)} of {graph.num_nodes:,} nodes",
    )
