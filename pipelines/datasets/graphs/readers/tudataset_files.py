"""Text files of TUDataset: ``NAME_A.txt``, ``NAME_graph_indicator.txt`` and optional others.

Features and edges follow PyTorch Geometric's class with attributes: attributes, then a column
for each label; each pair of nodes once, no loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from kmip_data.arrays import Array
from kmip_data.columns.column_uses import Level
from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Attributes, Findings, Notices
from kmip_data.pipelines.datasets.graphs.graph_format import GraphFormat
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.datasets.graphs.tables.graphs_of_tables import graphs_of_tables
from kmip_data.pipelines.datasets.graphs.tables.table import Table, tables_of_levels
from kmip_data.pipelines.datasets.graphs.tables.text_tables import read_table

_EXPECTED = "a TUDataset folder (NAME_A.txt, NAME_graph_indicator.txt, …)"
_ENDS = ("_A.txt", "_graph_indicator.txt")
_MAX_LABELS = 10_000  #: each a column


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if the two mandatory files exist."""
    return all(any(name.endswith(end) for name in heads) for end in _ENDS)


def read(
    folder: Path, files: Sequence[str], options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs in order; all files are in memory."""
    prefix = next(name for name in files if name.endswith(_ENDS[0])).removesuffix(_ENDS[0])

    used = set()

    def table(kind: str, rows: int | None = None) -> Table:
        name = f"{prefix}_{kind}.txt"
        if name not in files:
            return Table(name, pd.DataFrame(index=range(rows or 0)))
        used.add(name)
        table = read_table(folder / name, "", options, findings.notices)
        if rows not in {None, len(table.frame)}:
            raise DamagedInput(f"{name} has {len(table.frame):,} lines, not {rows:,}.")
        table.check_numbers()
        return table

    def features(level: str, rows: int) -> pd.DataFrame:
        attributes = table(f"{level}_attributes", rows).frame.add_prefix("attribute ")
        columns = {}
        labels = table(f"{level}_labels", rows)
        for name in labels.names:
            kinds = labels.frame[name].astype(float)
            kinds -= kinds.min()
            if kinds.max() >= _MAX_LABELS:
                raise labels.error_at(kinds.argmax(), f"more than {_MAX_LABELS:,} labels")
            options.claim(8 * rows * (int(kinds.max()) + 1), f"{prefix}_{level}_labels.txt")
            for kind in range(int(kinds.max()) + 1):
                columns[f"label {name} is {kind}"] = (kinds == kind).astype(float)
        return attributes.join(pd.DataFrame(columns, index=attributes.index))

    indicator = table("graph_indicator")
    listed = table("A")
    if not indicator.names:
        raise DamagedInput(f"{prefix}{_ENDS[1]} is missing.", expected=_EXPECTED)
    graph = indicator.frame["0"]
    last = _last_graph(indicator)
    targets = table("graph_attributes", last)
    if not targets.names:
        targets = table("graph_labels", last)
    if not targets.names and last > len(graph):
        raise indicator.error_at(len(graph) - 1, f"graph {last:,}, of {len(graph):,} nodes")
    _check_ends(listed, graph.to_numpy())

    # Tables of nodes, edges and graphs; sorting joins edges of the same two nodes.
    nodes = features("node", len(graph))
    nodes[roles.GRAPH] = graph
    nodes[roles.NODE] = graph.index + 1
    edges = features("edge", len(listed.frame))
    edges[[roles.SOURCE, roles.TARGET]] = listed.frame[["0", "1"]]
    edges = _undirected_edges(edges, findings.notices)
    edges[roles.GRAPH] = graph.to_numpy()[edges[roles.SOURCE] - 1]
    graphs = pd.DataFrame({roles.GRAPH: range(1, last + 1)})
    if targets.names:
        values = targets.frame
        if f"{prefix}_graph_attributes.txt" not in files:
            values = _label_classes(values, options, findings.attributes)
        names = [f"label {name}" for name in values]
        graphs[names] = values
        options = options.with_params(label=tuple(names))
    findings.notices.ignored |= dict.fromkeys(
        (name for name in files if name not in used), "no file of this format"
    )
    frames: dict[Level, pd.DataFrame] = {"graph": graphs, "node": nodes, "edge": edges}
    tables = tables_of_levels(frames, prefix, 1)
    yield from graphs_of_tables(tables, options, findings)


def _label_classes(
    labels: pd.DataFrame, options: ReadOptions, attributes: Attributes
) -> pd.DataFrame:
    """Return labels as classes in the order of their numbers; the numbers of a regression stay.

    The numbers of the classes of one column are their names, unless they are 0, 1, ….
    """
    task = options.params.task
    if task == "regression":
        return labels
    numbers = sorted(set(labels.iloc[:, 0]))
    named = len(labels.columns) == 1 and numbers != list(range(len(numbers)))
    # An earlier build has the names already, and labels of 0 and 1 have none.
    if named and options.described is None and task != "multilabel":
        attributes.class_names = tuple(f"{number:g}" for number in numbers)
    return labels.rank(method="dense").astype(int) - 1


def _undirected_edges(edges: pd.DataFrame, notices: Notices) -> pd.DataFrame:
    """Return the sorted edges without self-loops and duplicates."""
    ends = [roles.SOURCE, roles.TARGET]
    joined = edges[edges[ends[0]] != edges[ends[1]]].groupby(ends, as_index=False).sum()
    dropped = len(edges) - len(joined)
    if dropped:
        notices.ignored[f"{dropped:,} self-loops and repeated edges"] = (
            "as PyTorch Geometric's TUDataset"
        )
    return joined


def _last_graph(indicator: Table) -> int:
    """Return the number of the last graph; numbers must increase from 1."""
    graph = indicator.frame["0"]
    if graph.dtype.kind != "i" or (graph.diff() < 0).any() or graph.min() < 1:
        raise indicator.error_at((graph.diff() < 0).argmax(), "graphs are not numbered in order")
    return int(graph.max())


def _check_ends(listed: Table, graphs: Array) -> None:
    """Refuse edges of missing nodes, and edges between graphs."""
    ends = listed.frame.to_numpy()
    if len(listed.names) != 2 or ends.dtype.kind != "i":
        raise listed.error_at(0, "not two numbers of nodes")
    outside = ((ends < 1) | (ends > len(graphs))).any(axis=1)
    if outside.any():
        row = int(outside.argmax())
        raise listed.error_at(row, f"{ends[row]} are not two of the {len(graphs):,} nodes")
    first, second = graphs[ends.T - 1]
    apart = first != second
    if apart.any():
        raise listed.error_at(apart.argmax(), "the edge joins two graphs")


FORMAT = GraphFormat(_EXPECTED, recognises, read)
