"""Text files of TUDataset: ``NAME_A.txt``, ``NAME_graph_indicator.txt`` and optional others.

The result equals PyTorch Geometric's class with attributes: features are attributes, then a column
for each label; there are no duplicate edges and no self-loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.graph_format import COMMON_PARAMETERS, GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.graphs_from_tables import graphs_from_tables
from kmip_data.pipelines.datasets.graphs.tables.read_table import read_table
from kmip_data.pipelines.datasets.graphs.tables.table import Table, tables_from_frames

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
    indicator = dataset.table("graph_indicator")
    edge_ends = dataset.table("A")
    if not indicator.column_names:
        raise DamagedInput(f"{prefix}{_MANDATORY_SUFFIXES[1]} is missing.", expected=_EXPECTED)
    graph = indicator.frame["0"]
    last = _last_graph(indicator)
    targets = dataset.table("graph_attributes", last)
    are_classes = not targets.column_names
    if are_classes:
        targets = dataset.table("graph_labels", last)
    if not targets.column_names and last > len(graph):
        raise indicator.error_at(len(graph) - 1, f"graph {last:,}, of {len(graph):,} nodes")
    edge_ends = _numbered_through(edge_ends, graph.to_numpy(), options, findings.notices)
    options = options.with_params(node="")
    _check_ends(edge_ends, graph.to_numpy())

    # 2. Make tables of nodes, edges and graphs.
    nodes = dataset.features("node", len(graph))
    nodes[known_columns.GRAPH_KEY] = graph
    nodes[known_columns.NODE_KEY] = graph.index + 1
    edges = dataset.features("edge", len(edge_ends.frame))
    edges[[known_columns.SOURCE_KEY, known_columns.TARGET_KEY]] = edge_ends.frame[["0", "1"]]
    edges = _sort_and_merge_edges(edges, findings.notices)
    edges[known_columns.GRAPH_KEY] = graph.to_numpy()[edges[known_columns.SOURCE_KEY] - 1]
    graphs = pd.DataFrame({known_columns.GRAPH_KEY: range(1, last + 1)})
    if targets.column_names:
        options.refuse_unread({"label": f"the labels are in {targets.name}"})
        values = targets.frame
        if are_classes:
            findings.attributes.class_names = _class_names(values, options)
        names = [f"label {name}" for name in values]
        graphs[names] = values
        options = options.with_params(label=tuple(names))
    findings.notices.ignored |= dict.fromkeys(
        (name for name in files if name not in dataset.read_files), "no file of this format"
    )
    frames: dict[Level, pd.DataFrame] = {"graph": graphs, "node": nodes, "edge": edges}
    tables = tables_from_frames(frames, prefix, 1)
    yield from graphs_from_tables(tables, options, findings)


@dataclass
class _Files:
    """Files of one dataset, read as tables."""

    folder: Path
    prefix: str  #: NAME of ``NAME_A.txt``
    files: Sequence[str]
    options: ReadOptions
    notices: Notices
    read_files: set[str] = field(default_factory=set)

    def table(self, kind: str, rows: int | None = None) -> Table:
        """Return the numbers in ``NAME_kind.txt``; a table without columns if it does not exist."""
        name = f"{self.prefix}_{kind}.txt"
        if name not in self.files:
            return Table(name, pd.DataFrame(index=range(rows or 0)))
        self.read_files.add(name)
        table = read_table(self.folder / name, "", self.options, self.notices, may_have_names=False)
        if rows not in {None, len(table.frame)}:
            raise DamagedInput(f"{name} has {len(table.frame):,} lines, not {rows:,}.")
        table.check_numbers()
        return table

    def features(self, level: Level, rows: int) -> pd.DataFrame:
        """Return the attributes of nodes or edges, and a column of 0 and 1 for each label."""
        attributes = self.table(f"{level}_attributes", rows).frame.add_prefix("attribute ")
        columns = {}
        labels = self.table(f"{level}_labels", rows)
        for name in labels.column_names:
            codes = labels.frame[name].astype(float)
            lowest = codes.min()
            codes -= lowest
            if codes.max() >= _MAX_LABELS:
                raise labels.error_at(codes.argmax(), f"more than {_MAX_LABELS:,} labels")
            count = int(codes.max()) + 1
            self.options.check_memory(8 * rows * count, f"{self.prefix}_{level}_labels.txt")
            for code in range(count):
                columns[f"label {name} is {lowest + code:g}"] = (codes == code).astype(float)
        return attributes.join(pd.DataFrame(columns, index=attributes.index))


def _class_names(labels: pd.DataFrame, options: ReadOptions) -> tuple[str, ...]:
    """Return the labels of a single column as names of classes, ascending; none if they are 0, 1, …."""
    numbers = sorted(set(labels.iloc[:, 0]))
    are_numbered_from_0 = numbers == list(range(len(numbers)))
    are_classes = len(labels.columns) == 1 and options.params.task in {None, "classification"}
    # A description has the names of the classes already.
    if not are_classes or are_numbered_from_0 or options.described is not None:
        return ()
    return tuple(f"{number:g}" for number in numbers)


def _sort_and_merge_edges(edges: pd.DataFrame, notices: Notices) -> pd.DataFrame:
    """Sort the edges, drop self-loops, and merge duplicates by adding their features."""
    ends = [known_columns.SOURCE_KEY, known_columns.TARGET_KEY]
    merged = edges[edges[ends[0]] != edges[ends[1]]].groupby(ends, as_index=False).sum()
    dropped = len(edges) - len(merged)
    if dropped:
        notices.ignored[f"{dropped:,} self-loops and repeated edges"] = (
            "as in PyTorch Geometric's TUDataset"
        )
    return merged


def _last_graph(indicator: Table) -> int:
    """Return the number of the last graph; refuse numbers that do not increase from 1."""
    graph = indicator.frame["0"]
    if graph.dtype.kind != "i" or (graph.diff() < 0).any() or graph.min() < 1:
        raise indicator.error_at((graph.diff() < 0).argmax(), "graphs are not numbered in order")
    return int(graph.max())


def _numbered_through(edges: Table, graphs: I64, options: ReadOptions, notices: Notices) -> Table:
    """Return edges whose nodes are numbered through all graphs.

    If numbers begin anew in each graph, no end is larger than the largest graph; then the user is
    asked. In such a file, a graph ends before an edge that does not follow the previous edge by
    source, then target. Raises ``DamagedInput`` if this does not give as many graphs.
    """
    numbers = options.params.node
    if numbers not in {"", known_columns.ROWS_FROM_1}:
        options.refuse_unread({"node": "nodes are numbered by row"})
    ends = edges.frame.to_numpy()
    sizes = np.bincount(graphs)[1:]
    if ends.shape[1:] != (2,) or ends.dtype.kind != "i" or len(ends) < 2 or len(sizes) < 2:
        return edges
    if numbers == "":
        if ends.min() > 0 and ends.max() <= sizes.max():
            notices.questions[
                f"The largest number of a node in {edges.name} is {ends.max():,}, but {len(sizes):,} graphs have "
                f"{len(graphs):,} nodes: numbers may begin anew in each graph."
            ] = Setting(node=known_columns.ROWS_FROM_1)
            notices.raise_questions()
        return edges

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
    frame = pd.DataFrame(ends + first_nodes[graph_of_edge, None], columns=edges.frame.columns)
    return replace(edges, frame=frame)


def _check_ends(edges: Table, graphs: Array) -> None:
    """Refuse edges of missing nodes, and edges between graphs."""
    ends = edges.frame.to_numpy()
    if len(edges.column_names) != 2 or ends.dtype.kind != "i":
        raise edges.error_at(0, "not two numbers of nodes")
    is_outside = ((ends < 1) | (ends > len(graphs))).any(axis=1)
    if is_outside.any():
        row = int(is_outside.argmax())
        raise edges.error_at(row, f"{ends[row]} are not two of the {len(graphs):,} nodes")
    first, second = graphs[ends.T - 1]
    crosses_graphs = first != second
    if crosses_graphs.any():
        raise edges.error_at(crosses_graphs.argmax(), "the edge joins two graphs")


FORMAT = GraphFormat(
    name="TUDataset files",
    expected=_EXPECTED,
    recognises=recognises,
    read=read,
    parameters=COMMON_PARAMETERS | {"feature", "ignore", "node", "undirected"},
)
