"""Adjacency matrices as tables: a square of numbers, with or without names of the nodes.

A node is a row and the column at its position. Several matrices are a graph each, named after its file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np
import pandas as pd

from kmip_data.arrays import Array
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.roles.graph_labels import add_columns_of_graphs
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import ValuesOfTables
from kmip_data.pipelines.datasets.graphs.tables.roles.table_roles import assign_levels
from kmip_data.pipelines.datasets.graphs.tables.table import Table, tables_from_frames
from kmip_data.pipelines.formats.written_numbers import MISSING_WORDS
from kmip_data.text import list_names

#: Rows and columns from which numbers without names are a matrix; three may be edges with a weight.
_MIN_UNNAMED = 4
_EDGE_LIST = Setting(source="0", target="1")


def find_matrices(
    tables: Sequence[Table], params: GraphParams, notices: Notices
) -> dict[Table, pd.DataFrame]:
    """Return the tables that are adjacency matrices, with their cells.

    Small squares without names are matrices among other matrices, and asked about otherwise.
    """
    cells = {table: _cells_of_matrix(table, params, are_others=len(tables) > 1) for table in tables}
    matrices = {table: square for table, square in cells.items() if square is not None}
    if any(table.has_names or len(table.frame) >= _MIN_UNNAMED for table in matrices):
        if [table.has_names for table in matrices] == [False]:
            notices.warnings.append(
                f"{list_names(table.name for table in matrices)} is read as an adjacency matrix; a list of "
                f"edges needs {_EDGE_LIST}"
            )
        return matrices
    for table, square in matrices.items():
        if len(square) == _MIN_UNNAMED - 1 and _may_be_small_matrix(square):
            question = (
                f"{table.name} has 3 rows of 3 numbers, which may be edges with a weight: {_EDGE_LIST}, "
                "or an adjacency matrix: write the names of its nodes above it"
            )
            notices.questions[question] = _EDGE_LIST
    return {}


def _cells_of_matrix(table: Table, params: GraphParams, *, are_others: bool) -> pd.DataFrame | None:
    """Return the cells of an adjacency matrix; ``None`` for another table.

    Rows and columns have the same names, or none. If only columns have names, zeros for a node and
    itself tell an only matrix from a list of edges. Options for the ends of edges exclude one without names.
    """
    names = table.column_names
    frame = table.frame
    if not len(frame) or (are_others and known_columns.level_from_name(table.name) == "node"):
        return None
    if table.has_names and len(frame) == len(names) - 1:
        rows = frame.iloc[:, 0].map(lambda value: str(value).strip())
        return _without_missing_words(frame.iloc[:, 1:]) if tuple(rows) == names[1:] else None
    if len(frame) != len(names):
        return None
    frame = _without_missing_words(frame)
    if not all(frame[name].dtype.kind in "iufb" for name in frame):
        return None
    if not table.has_names:
        has_empty_column = frame.isna().all().any()
        return None if has_empty_column or params.source or params.target else frame
    if are_others or len(names) < 3 or known_columns.matching_end_pairs(names):
        return None
    return None if np.diagonal(frame.to_numpy(np.float64)).any() else frame


def _without_missing_words(frame: pd.DataFrame) -> pd.DataFrame:
    """Return cells whose columns of numbers and words such as nan are numbers."""
    columns = {}
    for name, cells in frame.items():
        filled = cells.where(~cells.isin(MISSING_WORDS))
        numbers = pd.to_numeric(filled, errors="coerce")
        columns[name] = numbers if numbers.notna().equals(filled.notna()) else cells
    return pd.DataFrame(columns)


def _may_be_small_matrix(cells: pd.DataFrame) -> bool:
    """True for no loops, the same numbers in both directions, or ends of edges that are no integers."""
    numbers = cells.to_numpy(np.float64)
    has_loops = np.diagonal(numbers).any()
    is_symmetric = np.array_equal(numbers, numbers.T)
    return not has_loops or is_symmetric or bool((numbers[:, :2] % 1).any())


def levels_of_matrices(
    matrices: Mapping[Table, pd.DataFrame],
    others: Sequence[Table],
    options: ReadOptions,
    notices: Notices,
    values: ValuesOfTables,
) -> dict[Level, Table]:
    """Return the tables of nodes and edges, and of graphs if there are several matrices.

    ``others`` are tables of the nodes of one matrix, or with a row for each of several files.
    """
    files = [table.name for table in matrices]
    names = _names_of_graphs(files) if len(files) > 1 else [""]
    nodes = []
    edges = []
    for name, (table, cells) in zip(names, matrices.items(), strict=True):
        ids, rows = _nodes_and_edges(table, cells)
        nodes.append(ids.assign(**{known_columns.GRAPH_KEY: name}))
        edges.append(rows.assign(**{known_columns.GRAPH_KEY: name}))
    frames: dict[Level, pd.DataFrame] = {
        "graph": pd.DataFrame({known_columns.GRAPH_KEY: names}),
        "node": pd.concat(nodes, ignore_index=True),
        "edge": pd.concat(edges, ignore_index=True),
    }
    if (frames["edge"]["weight"] == 1).all():
        del frames["edge"]["weight"]
    if len(files) > 1:
        levels = tables_from_frames(frames, list_names(files, 60), 1)
        levels["graph"] = add_columns_of_graphs(levels, files, others, options.params, notices)
        return levels

    del frames["graph"]
    for frame in frames.values():
        del frame[known_columns.GRAPH_KEY]
    levels = tables_from_frames(frames, files[0], 1)
    if not others:
        return levels
    assigned = assign_levels([levels["edge"], *others], options, notices, values)
    return levels | assigned


def _names_of_graphs(files: Sequence[str]) -> list[str]:
    """Return the names of files without ending, and with their folders if two are the same."""
    stems = [PurePosixPath(file).name.partition(".")[0] for file in files]
    if len({*stems}) == len(stems):
        return stems
    return [str(PurePosixPath(file).parent / stem) for file, stem in zip(files, stems, strict=True)]


def _nodes_and_edges(table: Table, cells: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the ids of the nodes, and an edge with its weight for each cell that is not 0 or empty."""
    for name in cells:
        if cells[name].dtype.kind not in "iufb" and cells[name].notna().any():
            raise DamagedInput(
                f"{table.name} is an adjacency matrix, but its column {name!r} has cells that are not numbers.",
                steps="put them into a table of edges with source and target",
            )
    weights = cells.fillna(0).to_numpy(np.float64)
    source, target = weights.nonzero()
    ids: Array = np.arange(len(cells))
    if table.has_names:
        ids = np.array(list(map(str, cells)), object)
    edges = pd.DataFrame(
        {
            known_columns.SOURCE_KEY: ids[source],
            known_columns.TARGET_KEY: ids[target],
            "weight": weights[source, target],
        }
    )
    return pd.DataFrame({known_columns.NODE_KEY: ids}), edges
