"""Adjacency matrices: squares of numbers, with or without names of their nodes.

A node is a row and the column at its position, and a cell that is not 0 is an edge with this weight.
Several matrices are a graph each, named after its file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kmip_data.arrays import F64
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.columns.facts import TableFacts
from kmip_data.pipelines.own.networks import GRAPH, NODE
from kmip_data.pipelines.own.roles import Roles, find_roles, with_tables
from kmip_data.pipelines.own.table import STEM, Table, concatenated, names_of_file

#: Rows and columns from which numbers without names are a matrix; three may be edges with a weight.
_MIN_UNNAMED = 4
_ENDS = ("source", "target")

File = tuple[str, str]  #: path of a file, and the name of a table in it


class Matrix(NamedTuple):
    """Adjacency matrix."""

    ids: pa.Array  #: names of the nodes, or their positions, (N,)
    weights: F64  #: (N, N), from row to column; 0 without an edge
    has_names: bool


def find_matrices(
    tables: Mapping[File, Table], params: GraphParams, notices: Notices
) -> dict[File, Matrix]:
    """Return the tables that are adjacency matrices; ask about three rows that may be edges, too.

    Ends of edges that the user names are those of a list.
    """
    if params.source or params.target:
        return {}
    found = {
        file: matrix
        for file, table in tables.items()
        if (matrix := _matrix_of(table, params, is_alone=len(tables) == 1))
    }
    if any(matrix.has_names or len(matrix.ids) >= _MIN_UNNAMED for matrix in found.values()):
        unnamed = [tables[file].name for file, matrix in found.items() if not matrix.has_names]
        if unnamed:
            others = f", as are {len(unnamed) - 1:,} others" if unnamed[1:] else ""
            notices.warnings.append(f"{unnamed[0]} is read as an adjacency matrix{others}")
        return found
    for file, matrix in found.items():
        has_loops = np.diagonal(matrix.weights).any()
        is_symmetric = np.array_equal(matrix.weights, matrix.weights.T)
        if len(matrix.ids) == _MIN_UNNAMED - 1 and (is_symmetric or not has_loops):
            answer = Setting(source="0", target="1")
            notices.questions[
                f"{tables[file].name} has 3 rows of 3 numbers: edges with a weight: {answer}, or an "
                "adjacency matrix: write the names of its nodes above it"
            ] = answer
            notices.raise_questions()
    return {}


def _matrix_of(table: Table, params: GraphParams, *, is_alone: bool) -> Matrix | None:
    """Return a table as a matrix; ``None`` if it is none.

    Its rows and columns have the same names, or none. If its columns alone have names, it is the only
    table, and no node is its own neighbour, which a list of edges would be.
    """
    columns = table.column_names
    are_rows_named = table.has_names and table.rows == len(columns) - 1
    if are_rows_named:
        first, *columns = columns
        if table.texts(first) != columns:
            return None
    if not columns or table.rows != len(columns) or names.level_of(table.name) == "node":
        return None
    facts = TableFacts(table, params, {})
    cells = []
    for name in columns:
        numbers = facts.of(name).numbers
        if numbers is None and are_rows_named:
            raise DamagedInput(
                f"{table.name} is an adjacency matrix, but its column {name!r} has cells that are not numbers.",
                steps="put them into a table of edges with source and target",
            )
        if numbers is None or (not table.has_names and np.isnan(numbers).all()):
            return None
        cells.append(np.nan_to_num(numbers))
    weights = np.stack(cells, axis=1)
    if table.has_names and not are_rows_named:
        may_be_edges = len(columns) < _MIN_UNNAMED - 1 or names.end_pairs(columns)
        if not is_alone or may_be_edges or np.diagonal(weights).any():
            return None
    ids = pa.array(columns if table.has_names else np.arange(table.rows))
    return Matrix(ids, weights, table.has_names)


def roles_of_matrices(
    matrices: Mapping[File, Matrix],
    others: Sequence[Table],
    options: ReadOptions,
    findings: Findings,
) -> Roles:
    """Return the roles of the edges, nodes and graphs of matrices, and of the tables next to them."""
    parts: dict[Level, list[dict[str, pa.Array]]] = {"graph": [], "node": [], "edge": []}
    for (file, table), matrix in matrices.items():
        path = PurePosixPath(file)
        files = names_of_file(file, table.partition(f"{path.name}, ")[2])
        graph = str(path.parent / files[STEM])
        source, target = matrix.weights.nonzero()
        named = {GRAPH: graph, **files}
        parts["graph"].append({name: pa.array([text]) for name, text in named.items()})
        parts["node"].append({NODE: matrix.ids, GRAPH: pa.array([graph] * len(matrix.ids))})
        parts["edge"].append(
            {
                "source": matrix.ids.take(source),
                "target": matrix.ids.take(target),
                "weight": pa.array(matrix.weights[source, target]),
                GRAPH: pa.array([graph] * len(source), pa.string()),
            }
        )
    (_, name), *more = matrices
    if more:
        name += f" and {len(more):,} more"
    graphs, nodes, edges = (
        Table(
            f"{name}, {level}s",
            {column: concatenated([part[column] for part in group]) for column in group[0]},
            row_word="number",
        )
        for level, group in parts.items()
    )
    if set(edges.columns["weight"].to_pylist()) <= {1.0}:
        edges = replace(edges, columns={k: v for k, v in edges.columns.items() if k != "weight"})
    if others and not more:
        roles = find_roles([edges, *others], options, findings)
        return roles if roles.nodes else replace(roles, nodes=nodes, node=NODE)
    options.refuse_unread({"node": "the names or positions of rows are those of nodes"})
    roles = Roles(edges, _ENDS, nodes, NODE)
    if more:
        roles = replace(roles, graphs=graphs, graph_columns=dict.fromkeys(parts, GRAPH))
    return with_tables(roles, others, options, findings)
