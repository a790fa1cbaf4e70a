"""Text files of TUDataset: ``NAME_A.txt``, ``NAME_graph_indicator.txt`` and optional others.

The result equals PyTorch Geometric's class with attributes: features are attributes, then a column
for each label; there are no duplicate edges and no self-loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from kmip_data.arrays import F64, I64, Array
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own.columns.numbers import as_floats, number_texts
from kmip_data.pipelines.own.files import read_tables
from kmip_data.pipelines.own.format import check_named_columns
from kmip_data.pipelines.own.graphs import graphs_of_tables
from kmip_data.pipelines.own.networks import GRAPH, NODE, SOURCE, TARGET
from kmip_data.pipelines.own.readings import ROWS_FROM_1
from kmip_data.pipelines.own.roles import Roles
from kmip_data.pipelines.own.table import Table, table_of_arrays

_EXPECTED = "a TUDataset folder (NAME_A.txt, NAME_graph_indicator.txt, …)"
_MANDATORY_SUFFIXES = ("_A.txt", "_graph_indicator.txt")
_MAX_LABELS = 10_000  #: each becomes a column


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if both mandatory files exist."""
    return all(any(name.endswith(end) for name in heads) for end in _MANDATORY_SUFFIXES)


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs in order; all files are in memory."""
    edge_file = next(name for name in files if name.endswith(_MANDATORY_SUFFIXES[0]))
    prefix = edge_file.removesuffix(_MANDATORY_SUFFIXES[0])
    dataset = _Files(folder, prefix, files, options, findings.notices)

    # 1. Read and check nodes, edges and targets.
    indicator, graph_numbers = dataset.numbers("graph_indicator")
    edge_table, ends = dataset.numbers("A")
    if not indicator.columns:
        raise DamagedInput(f"{prefix}{_MANDATORY_SUFFIXES[1]} is missing.", expected=_EXPECTED)
    graph = _graph_of_nodes(indicator, graph_numbers)
    last = int(graph[-1])
    targets, values = dataset.numbers("graph_attributes", last)
    are_classes = not targets.columns
    if are_classes:
        targets, values = dataset.numbers("graph_labels", last)
    if not targets.columns and last > len(graph):
        raise indicator.error_at(len(graph) - 1, f"graph {last:,}, of {len(graph):,} nodes")
    index = _node_index(edge_table, ends, graph, options, findings.notices)

    # 2. Make tables of nodes, edges and graphs.
    nodes = dataset.features("node", len(graph))
    nodes |= {GRAPH: graph, NODE: np.arange(len(graph))}
    edges = dataset.features("edge", index.shape[1])
    index, edges = _sort_and_merge_edges(index, edges, findings.notices)
    edges |= {SOURCE: index[0], TARGET: index[1], GRAPH: graph[index[0]]}
    graphs: dict[str, object] = {GRAPH: np.arange(1, last + 1)}
    if targets.columns:
        options.refuse_unread({"label": f"the labels are in {targets.name}"})
        columns = {f"label {i}": column for i, column in enumerate(values.T)}
        graphs |= columns
        if are_classes and len(columns) == 1 and options.params.task in {None, "classification"}:
            graphs["label 0"] = _classes(values[:, 0])
        options = options.with_params(label=tuple(columns))
    findings.notices.ignored |= dict.fromkeys(
        (name for name in files if name not in dataset.read_files), "no file of this format"
    )
    roles = Roles(
        edges=table_of_arrays(f"{prefix}, edges", edges, row_word="number"),
        ends=(SOURCE, TARGET),
        nodes=table_of_arrays(f"{prefix}, nodes", nodes, row_word="number"),
        node=NODE,
        graphs=table_of_arrays(f"{prefix}, graphs", graphs, row_word="number"),
        graph_columns={"graph": GRAPH, "node": GRAPH, "edge": GRAPH},
    )
    check_named_columns([*roles.tables.values()], options.with_params(node=""), findings)
    yield from graphs_of_tables(roles, options, findings)


@dataclass
class _Files:
    """Files of one dataset, read as tables."""

    folder: Path
    prefix: str  #: NAME of ``NAME_A.txt``
    files: Sequence[str]
    options: ReadOptions
    notices: Notices
    read_files: set[str] = field(default_factory=set)

    def numbers(self, kind: str, rows: int | None = None) -> tuple[Table, F64]:
        """Return the table in ``NAME_kind.txt`` and its numbers (R, C); no column if it does not exist."""
        name = f"{self.prefix}_{kind}.txt"
        if name not in self.files:
            return Table(name, {}), np.empty((rows or 0, 0))
        self.read_files.add(name)
        options = self.options.with_params(header="no")
        (table,) = read_tables(self.folder, [name], options, self.notices)
        if rows not in {None, table.rows}:
            raise DamagedInput(f"{name} has {table.rows:,} lines, not {rows:,}.")
        return table, np.stack([_finite_numbers(table, column) for column in table.columns], axis=1)

    def features(self, level: Level, rows: int) -> dict[str, Array]:
        """Return the attributes of nodes or edges, and a column of 0 and 1 for each label."""
        _, attributes = self.numbers(f"{level}_attributes", rows)
        features = {f"attribute {i}": column for i, column in enumerate(attributes.T)}
        labels, codes = self.numbers(f"{level}_labels", rows)
        for i, column in enumerate(codes.T):
            lowest = column.min()
            if np.ptp(column) >= _MAX_LABELS:
                raise labels.error_at(column.argmax(), f"more than {_MAX_LABELS:,} labels")
            count = int(np.ptp(column)) + 1
            self.options.check_memory(8 * rows * count, labels.name)
            for code in range(count):
                features[f"label {i} is {lowest + code:g}"] = (column == lowest + code).astype(
                    float
                )
        return features


def _finite_numbers(table: Table, name: str) -> F64:
    """Return a column (R,); refuse a cell that is no finite float32."""
    cells = table.columns[name]
    try:
        numbers = as_floats(cells)
    except pa.ArrowInvalid:
        numbers = pd.to_numeric(cells.to_pandas(), errors="coerce").to_numpy()
    is_bad = ~(np.abs(numbers) <= np.finfo(np.float32).max)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise table.error_at(row, f"{name!r} is {cells[row]}, not a finite number")
    return numbers


def _classes(labels: F64) -> object:
    """Return labels as texts whose classes are ascending; as they are if these are 0, 1, …."""
    classes = np.unique(labels)
    if np.array_equal(classes, np.arange(len(classes))):
        return labels
    return pd.Categorical(number_texts(labels.tolist()), number_texts(classes.tolist()))


def _sort_and_merge_edges(
    index: I64, features: Mapping[str, Array], notices: Notices
) -> tuple[I64, dict[str, Array]]:
    """Sort the edges (2, E), drop self-loops, and merge duplicates by adding their features."""
    order = np.lexsort(index[::-1])
    order = order[index[0, order] != index[1, order]]
    ends = index[:, order]
    first = np.flatnonzero(np.diff(ends, prepend=-1).any(axis=0))
    dropped = index.shape[1] - len(first)
    if dropped:
        notices.ignored[f"{dropped:,} self-loops and repeated edges"] = (
            "as in PyTorch Geometric's TUDataset"
        )
    merged = {name: np.add.reduceat(column[order], first) for name, column in features.items()}
    return ends[:, first], merged


def _graph_of_nodes(indicator: Table, numbers: F64) -> I64:
    """Return the graph of each node (N,); refuse numbers that do not increase from 1."""
    steps = np.diff(numbers[:, 0], prepend=1)
    is_bad = (steps < 0) | (steps % 1 > 0)
    if is_bad.any():
        raise indicator.error_at(is_bad.argmax(), "graphs are not numbered in order")
    return numbers[:, 0].astype(np.int64)


def _node_index(
    edges: Table, numbers: F64, graphs: I64, options: ReadOptions, notices: Notices
) -> I64:
    """Return the nodes at the ends of each edge, (2, E), numbered from 0 through all graphs.

    Refuses edges of missing nodes, and edges between graphs.
    """
    if numbers.shape[1] != 2 or (numbers % 1).any():
        raise edges.error_at(0, "not two numbers of nodes")
    ends = _numbered_through(edges, numbers.astype(np.int64), graphs, options, notices)
    is_outside = ((ends < 1) | (ends > len(graphs))).any(axis=1)
    if is_outside.any():
        row = int(is_outside.argmax())
        raise edges.error_at(row, f"{ends[row]} are not two of the {len(graphs):,} nodes")
    first, second = graphs[ends.T - 1]
    crosses_graphs = first != second
    if crosses_graphs.any():
        raise edges.error_at(crosses_graphs.argmax(), "the edge joins two graphs")
    return ends.T - 1


def _numbered_through(
    edges: Table, ends: I64, graphs: I64, options: ReadOptions, notices: Notices
) -> I64:
    """Return ends (E, 2) whose nodes are numbered through all graphs.

    If numbers begin anew in each graph, no end is larger than the largest graph; then the user is
    asked. In such a file, a graph ends before an edge that does not follow the previous edge by
    source, then target. Raises ``DamagedInput`` if this does not give as many graphs.
    """
    numbers = options.params.node
    if numbers not in {"", ROWS_FROM_1}:
        options.refuse_unread({"node": "nodes are numbered by row"})
    sizes = np.bincount(graphs)[1:]
    if len(ends) < 2 or len(sizes) < 2:
        return ends
    if numbers == "":
        if ends.min() > 0 and ends.max() <= sizes.max():
            notices.questions[
                f"The largest number of a node in {edges.name} is {ends.max():,}, but {len(sizes):,} graphs have "
                f"{len(graphs):,} nodes: numbers may begin anew in each graph."
            ] = Setting(node=ROWS_FROM_1)
            notices.raise_questions()
        return ends

    before, after = ends[:-1], ends[1:]
    follows = (after[:, 0] > before[:, 0]) | (
        (after[:, 0] == before[:, 0]) & (after[:, 1] > before[:, 1])
    )
    graph_of_edge = np.concatenate([[0], np.cumsum(~follows)])
    runs = int(graph_of_edge[-1]) + 1
    if runs != len(sizes) or (ends > sizes[graph_of_edge, None]).any():
        raise DamagedInput(
            f"{edges.name} does not show where a graph ends.",
            expected=f"{len(sizes):,} graphs with edges, each sorted by source and target",
            found=f"{runs:,} runs of sorted edges",
            steps="number the nodes through all graphs, as TUDataset does",
        )
    first_nodes = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    through: I64 = ends + first_nodes[graph_of_edge, None]
    return through


FORMAT = GraphFormat(
    name="TUDataset files",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=COMMON_PARAMETERS | {"feature", "ignore", "node", "undirected"},
)
