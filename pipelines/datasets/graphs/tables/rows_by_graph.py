"""Rows of each graph in the tables of graphs, nodes and edges, matched by graph name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables.node_indices import RowsByGraph
from kmip_data.pipelines.datasets.graphs.tables.table import Table, comparable_ids
from kmip_data.text import count_with_noun

_SHOWN_GRAPHS = 5  #: graphs that an error names


def rows_by_graph(
    tables: Mapping[Level, Table],
    graph_columns: Mapping[Level, str],
    node_column: str,
    ends: Array,
    *,
    has_many_graphs: bool,
) -> dict[Level, RowsByGraph]:
    """Return the rows of each graph by level; a single graph is called 0.

    Edges without a column of graphs belong to the graph of their source in ``ends`` (2, E).
    """
    groups: dict[Level, RowsByGraph] = {}
    for level, table in tables.items():
        column = graph_columns[level]
        if level == "edge" and not column and node_column and graph_columns["node"]:
            names = _graphs_of_sources(tables, graph_columns["node"], node_column, ends)
            rows_by_name = cast(RowsByGraph, pd.Series(names).groupby(names, sort=False).indices)
            groups[level] = {str(name): rows for name, rows in rows_by_name.items()}
            continue
        if has_many_graphs and level != "graph" and not column:
            raise DamagedInput(
                f"{table.name} has no column with the graph of each row.",
                found=table.column_list,
                steps="name it as graph, with the same name in all tables",
            )
        if not column and level != "graph":
            groups[level] = {"0": np.arange(len(table.frame))} if len(table.frame) else {}
            continue
        names = table.ids(column) if column else np.arange(len(table.frame))
        rows_by_name = cast(RowsByGraph, pd.Series(names).groupby(names, sort=False).indices)
        groups[level] = {str(name): rows for name, rows in rows_by_name.items()}
        if level == "graph" and len(groups[level]) < len(table.frame):
            row = int(pd.Series(names).duplicated().argmax())
            raise table.error_at(
                row, f"the graph {names[row]!r} occurs twice", "remove one of the lines"
            )
    return groups


def _graphs_of_sources(
    tables: Mapping[Level, Table], graph_column: str, node_column: str, ends: Array
) -> Array:
    """Return the graph of each edge's source, (E,), by the table of nodes, whose ids differ."""
    nodes = tables["node"]
    ids = nodes.ids(node_column)
    sources = ends[0]
    ids, sources = comparable_ids(ids, sources)
    is_twice = pd.Index(ids).duplicated()
    if is_twice.any():
        problem = f"the node {ids[is_twice.argmax()]} occurs twice"
        remedy = (
            f"add a column {graph_column!r} with the graph of each edge to {tables['edge'].name!r}"
        )
        raise nodes.error_at(is_twice.argmax(), problem, remedy)
    positions = pd.Index(ids).get_indexer(pd.Index(sources))
    if (positions < 0).any():
        row = (positions < 0).argmax()
        count = count_with_noun(int((positions < 0).sum()), "edge")
        raise tables["edge"].error_at(
            row,
            f"the node {sources[row]} is not in {nodes.name}, so {count} have no graph",
            f"add a line for the node to {nodes.name}",
        )
    return nodes.ids(graph_column)[positions]


def take_rows(array: Array, rows: I64, axis: int = 0) -> Array:
    """Return the ``rows`` (n,) of a graph, ascending and distinct; the array itself if these are all."""
    return array if len(rows) == array.shape[axis] else array.take(rows, axis)


def match_graphs(
    groups: dict[Level, RowsByGraph],
    tables: Mapping[Level, Table],
    params: GraphParams,
    notices: Notices,
) -> None:
    """Refuse or skip graphs that are missing in the first table, and graphs without nodes.

    Only text tables are checked for graphs without nodes: a networkx graph may be empty.
    """
    first = next(iter(tables))
    for level in tables:
        unknown = groups[level].keys() - groups[first].keys()
        if unknown:
            problem = f"not in {tables[first].name}"
            _refuse_or_skip(unknown, level, problem, groups, tables, params, notices)
    level_with_nodes: Level = "node" if "node" in tables else "edge"
    if first == "graph" and tables[first].text:
        empty = groups[first].keys() - groups[level_with_nodes].keys()
        if empty:
            problem = f"without any row in {tables[level_with_nodes].name}"
            _refuse_or_skip(empty, first, problem, groups, tables, params, notices)


def _refuse_or_skip(
    names: Collection[str],
    level: Level,
    problem: str,
    groups: dict[Level, RowsByGraph],
    tables: Mapping[Level, Table],
    params: GraphParams,
    notices: Notices,
) -> None:
    """Remove graphs from all levels if ``on_error`` is skip; refuse them otherwise."""
    ordered = [name for name in groups[level] if name in names]
    shown = ", ".join(ordered[:_SHOWN_GRAPHS]) + ", …" * (len(ordered) > _SHOWN_GRAPHS)
    if params.on_error == "skip":
        notices.ignored[f"graphs of {tables[level].name}"] = f"{len(ordered):,} {problem}: {shown}"
        for rows in groups.values():
            for name in ordered:
                rows.pop(name, None)
        return
    row = groups[level][ordered[0]][0]
    raise tables[level].error_at(
        row,
        f"the graph {ordered[0]!r} is {problem}"
        + (f", as are {len(ordered) - 1:,} others: {shown}" if len(ordered) > 1 else ""),
        [
            "add or remove the rows of such graphs, or leave these graphs out",
            Setting(on_error="skip"),
        ],
    )
