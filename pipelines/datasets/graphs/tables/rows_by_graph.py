"""Rows of each graph in tables of graphs, nodes and edges, and graphs that a table lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import numpy as np
import pandas as pd

from kmip_data.columns.column_uses import Level
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables.node_indices import Rows
from kmip_data.pipelines.datasets.graphs.tables.table import Table

_SHOWN_GRAPHS = 5  #: graphs that an error names


def rows_by_graph(
    tables: Mapping[Level, Table], graph_names: Mapping[Level, str], *, several: bool
) -> dict[Level, Rows]:
    """Return the rows of each graph by level, of one graph unless there are ``several``."""
    groups: dict[Level, Rows] = {}
    for level, table in tables.items():
        names = np.arange(len(table.frame)) * (level == "graph")
        column = graph_names[level]
        if several and level != "graph" and not column:
            raise DamagedInput(
                f"{table.name} has no column with the graph of each row.",
                found=table.column_list,
                next="--set graph= and its name, the same in all tables",
            )
        if column:
            names = table.ids(column)
        rows_by_name = cast(Rows, pd.Series(names).groupby(names, sort=False).indices)
        groups[level] = {str(name): rows for name, rows in rows_by_name.items()}
        if level == "graph" and len(groups[level]) < len(table.frame):
            row = int(pd.Series(names).duplicated().argmax())
            raise table.error_at(
                row, f"the graph {names[row]!r} occurs twice", "remove one of the lines"
            )
    return groups


def match_graphs(
    groups: dict[Level, Rows],
    tables: Mapping[Level, Table],
    params: GraphParams,
    notices: Notices,
) -> None:
    """Refuse graphs that lack a row or all nodes, or remove their rows (R,) from all levels.

    Graphs of a file of networkx may have no node: they are in the file, and no row is missing.
    """
    first = next(iter(tables))
    for level in tables:
        unknown = groups[level].keys() - groups[first].keys()
        if unknown:
            _leave_out(
                unknown, level, f"not in {tables[first].name}", groups, tables, params, notices
            )
    with_nodes: Level = "node" if "node" in tables else "edge"
    if first == "graph" and tables[first].text:
        empty = groups[first].keys() - groups[with_nodes].keys()
        if empty:
            lacking = f"without any row in {tables[with_nodes].name}"
            _leave_out(empty, first, lacking, groups, tables, params, notices)


def _leave_out(
    names: Collection[str],
    level: Level,
    problem: str,
    groups: dict[Level, Rows],
    tables: Mapping[Level, Table],
    params: GraphParams,
    notices: Notices,
) -> None:
    """Remove graphs from all levels if ``on_error`` says so; else refuse them."""
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
        "add or remove the rows of such graphs, or leave these graphs out: --set on_error=skip",
    )
