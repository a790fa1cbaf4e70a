"""Lists of edges, alone or with tables of nodes and graphs next to them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.tables import (
    UNNAMED,
    ColumnFacts,
    GraphParams,
    Table,
    read_table,
    texts_of,
)

WANTS = "edges.csv with source and target; optionally nodes.csv and graphs.csv"
Rows = dict[str, I64]  #: rows of each graph, by its name
GRAPH_NAMES = {"graph_id", "graph_idx", "graph_index", "graphid"}
#: File without its suffix -> level of its rows; graphs are in the order of the first of these.
LEVELS = {"graphs": "graph", "nodes": "node", "edges": "edge"}


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True for a single text file, or tables of these names."""
    if len(heads) == 1:
        return all(b"\0" not in head and not head.startswith(b"<") for head in heads.values())
    return "edges" in map(_stem, heads)


def _stem(name: str) -> str:
    return name.partition(".")[0].lower()


def read(folder: Path, files: Sequence[str], facts: ColumnFacts) -> Iterator[GraphRecord]:
    """Yield the graphs of tables, which are in memory."""
    stems = {_stem(name): name for name in files} if len(files) > 1 else {"edges": files[0]}
    if len(stems) < len(files):
        raise DamagedInput("Two tables have the same name.", found=", ".join(files))
    tables = {}
    for stem, level in LEVELS.items():
        if stem in stems:
            tables[level] = read_table(folder / stems.pop(stem), facts)
    facts.ignored |= dict.fromkeys(stems.values(), "no table of edges, nodes or graphs by its name")
    yield from assemble(tables, facts)


def assemble(tables: Mapping[str, Table], facts: ColumnFacts) -> Iterator[GraphRecord]:
    """Yield the graphs of tables by level; rows of a graph may be in any order."""
    # 1. Kinds of columns, and rows of each graph.
    params = facts.params
    edges = tables["edge"]
    facts.require([*tables.values()])
    names = (params.source, params.target)
    if "0" in edges.names:
        _check_unnamed(edges, params)
        names = ("0", "1")
    columns_of_ends = [edges.ids(name) for name in names]
    if any(column.dtype == object for column in columns_of_ends):
        columns_of_ends = [texts_of(column) for column in columns_of_ends]
    ends = np.stack(columns_of_ends)
    if "0" in edges.names:
        _check_first_line(edges, ends)
    _check_graphs(tables, params)
    if "node" in tables:
        _check_ids(tables["node"], ends, facts)
    known = {params.graph, params.node, *names}
    columns = {level: table.columns(level, known, facts) for level, table in tables.items()}
    groups = _by_graph(tables, params.graph)

    # 2. Graph by graph.
    for name in groups[next(iter(tables))]:
        rows_of = {level: group.get(name, np.empty(0, int)) for level, group in groups.items()}
        index, count = _positions(tables, ends, rows_of, params.node)
        values = {}
        for level, by_key in columns.items():
            rows = rows_of[level]
            for key, array in by_key.items():
                values[key] = array[rows]
                if key.startswith("graph/"):
                    # Labels and parts of edges belong to their graph.
                    if not len(rows):
                        raise DamagedInput(
                            f"The graph {name!r} has no edge that gives its {key[6:]}."
                        )
                    other = (array[rows] != array[rows[0]]) & (array[rows] == array[rows])
                    if other.any():
                        fault = f"{key[6:]} differs from that of the first edge of its graph"
                        raise edges.fault(rows[other.argmax()], fault, "put it into graphs.csv")
                    values[key] = array[rows[:1]]
        yield GraphRecord(key=name, num_nodes=count, columns=values, edge_index=index)


def _check_first_line(edges: Table, ends: Array) -> None:
    """Refuse a first line that counts the nodes and edges behind it, as some programs write it."""
    first, others = ends[:, 0], ends[:, 1:]
    if ends.dtype == object or others.shape[1] == 0 or first[1] != others.shape[1]:
        return
    if first[0] > others.max() - others.min():
        raise edges.fault(
            0,
            f"{first[0]} {first[1]} may be the numbers of nodes and edges, as {first[1]} lines follow",
            "remove the line; if it is an edge, put a line 'source target' above it",
        )


def _check_unnamed(edges: Table, params: GraphParams) -> None:
    """Refuse more than three columns without names: an adjacency list or a matrix looks the same."""
    if len(edges.names) > 3 and not params.feature:
        raise DamagedInput(
            f"{edges.name} has {len(edges.names)} columns and no names.",
            expected="two ids of nodes and at most a weight, or names in the first line",
            next="--set feature=2 for each column that is a feature of edges, or --set feature=none; a matrix: "
            "scipy.io.mmwrite('a.mtx', scipy.sparse.coo_array(matrix))",
        )


def _check_graphs(tables: Mapping[str, Table], params: GraphParams) -> None:
    """Refuse tables of one graph with a column that seems to name the graph of each row."""
    if any(params.graph in table.names for table in tables.values()):
        return
    for table in tables.values():
        for name in table.names:
            if name.lower() in GRAPH_NAMES and name not in params.feature:
                raise DamagedInput(
                    f"{table.name} has no column {params.graph!r}, and {name!r} seems to be it.",
                    next=f"--set graph={shlex.quote(name)}; a feature is named: --set feature=COLUMN",
                )


def _check_ids(nodes: Table, ends: Array, facts: ColumnFacts) -> None:
    """Refuse nodes without a column of ids where another column holds those of the edges."""
    if facts.params.node in {"none", *nodes.names}:
        return
    ids = pd.unique(ends.reshape(-1))
    for name in nodes.names:
        values = nodes.frame[name]
        if name in facts.params.feature or values.dtype.kind == "f" or not values.is_unique:
            continue
        if name.startswith(UNNAMED) and (values == np.arange(len(values))).all():
            continue
        known = nodes.column(name)
        wanted = ids
        if known.dtype != ids.dtype:
            known = texts_of(known)
            wanted = texts_of(ids)
        if 0 < len(ids) <= len(known) and pd.Index(wanted).isin(known).all():
            raise DamagedInput(
                f"{nodes.name} has no column {facts.params.node!r}, and the ids of the edges are in "
                f"{name!r}.",
                found=", ".join(nodes.names)[:500],
                next=f"--set node={shlex.quote(name)}; or --set node=none, where nodes are numbered by row, "
                "from 0",
            )


def _by_graph(tables: Mapping[str, Table], column: str) -> dict[str, Rows]:
    """Return the rows of each graph by level; the first level has all graphs."""
    several = "graph" in tables or any(column in table.names for table in tables.values())
    groups: dict[str, Rows] = {}
    for level, table in tables.items():
        names = np.arange(len(table.frame)) * (level == "graph")
        if column in table.names or (several and level != "graph"):
            names = table.ids(column)
        rows_by_name = cast(Rows, pd.Series(names).groupby(names, sort=False).indices)
        groups[level] = {str(name): rows for name, rows in rows_by_name.items()}
        first = next(iter(tables))
        for name, rows in groups[level].items():
            if name not in groups[first]:
                raise table.fault(rows[0], f"the graph {name!r} is not in {tables[first].name}")
    return groups


def _positions(
    tables: Mapping[str, Table], all_ends: Array, rows_of: Mapping[str, I64], column: str
) -> tuple[I64, int]:
    """Return edges by the positions of their nodes, (2, E), and the number of nodes."""
    ends = all_ends[:, rows_of["edge"]]
    if "node" not in tables:
        ids, positions = np.unique(ends, return_inverse=True)
        return positions.reshape(ends.shape), len(ids)
    nodes = tables["node"]
    rows = rows_of["node"]
    ids = nodes.ids(column)[rows] if column in nodes.names else np.arange(len(rows))
    if ids.dtype != ends.dtype:
        ids = texts_of(ids)
        ends = texts_of(ends)
    index = pd.Index(ids)
    if not index.is_unique:
        row = rows[index.duplicated().argmax()]
        raise nodes.fault(row, "the node occurs twice")
    positions = index.get_indexer(pd.Index(ends.reshape(-1))).reshape(ends.shape)
    unknown = np.argwhere(positions.T < 0)
    if len(unknown):
        row, end = unknown[0]
        fault = (
            f"the node {str(ends[end, row])[:80]} is not one of the {len(ids)} nodes of its graph"
        )
        raise tables["edge"].fault(rows_of["edge"][row], fault)
    return positions, len(ids)
