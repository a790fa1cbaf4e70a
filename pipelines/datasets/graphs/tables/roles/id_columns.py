"""Columns with the graph of each row, and with the ids of the nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kmip_data.arrays import Array
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.node_indices import REMEDY_OF_EQUAL_IDS
from kmip_data.pipelines.datasets.graphs.tables.roles.shared_ids import graph_columns_by_name
from kmip_data.pipelines.datasets.graphs.tables.table import (
    Table,
    counts_rows,
    ids_as_strings,
    unknown_column_error,
)


def find_graph_column(table: Table, level: Level, params: GraphParams) -> str:
    """Return the column with the graph of each row by its name; empty if there is none."""
    candidates = graph_columns_by_name(table, params)
    if not candidates and level == "graph" and not params.graph:
        names = _unassigned_columns(table, params)
        candidates = known_columns.matching_names(names, known_names.NODE_ID_NAMES)
    if len(candidates) > 1:
        raise DamagedInput(
            f"{table.name} has several columns that may name the graph of a row: {', '.join(candidates)}.",
            steps=Setting(graph=candidates[0]),
        )
    return candidates[0] if candidates else ""


def _unassigned_columns(table: Table, params: GraphParams) -> list[str]:
    """Return the columns that no option makes a feature or ignores."""
    return [name for name in table.column_names if name not in {*params.feature, *params.ignore}]


def find_node_id_column(
    nodes: Table,
    ends: Array,
    complete: Sequence[str],
    params: GraphParams,
    notices: Notices,
    *,
    has_many_graphs: bool,
) -> str:
    """Return the column with the ids of the nodes; empty if nodes are numbered by row.

    ``complete`` columns have the ids of nearly all ``ends`` (2, E), the likeliest first. In a single
    graph, one of them is chosen if it is named like an id, or differs from the row numbers.
    Ask if several columns qualify, and whether rows are numbered from 0 or 1 if no edge has 0.
    """
    if params.node or known_columns.NODE_KEY in nodes.column_names:
        return _given_id_column(nodes, params)
    columns = _unassigned_columns(nodes, params)
    named_like_ids = known_columns.matching_names(columns, known_names.NODE_ID_NAMES)
    numberings = _possible_numberings(nodes, ends)
    if has_many_graphs:
        if complete:
            return complete[0]
        if len(named_like_ids) > 1:
            _add_id_question(nodes, named_like_ids, ["none"], notices)
        elif not named_like_ids and known_columns.ROWS_FROM_1 in numberings:
            _add_id_question(nodes, [], numberings, notices)
        return named_like_ids[0] if named_like_ids else ""

    # 1. Columns with nearly all ids: those named like ids, else texts, else numbers that cannot be the
    # numbers of rows. A target is never taken for ids.
    ids = pd.unique(ends.reshape(-1))
    columns = [name for name in columns if name not in params.label and not _is_target_name(name)]
    complete = [name for name in columns if name in complete]
    matches = [name for name in complete if name in named_like_ids]
    if not matches:
        matches = [
            name
            for name in complete
            if not _is_permutation(nodes.id_cells(name))
            and (_can_only_be_ids(nodes, name) or not numberings)
        ]
    if len(matches) > 1:
        _add_id_question(nodes, matches, ["none"], notices)
    if matches:
        return matches[0]

    # 2. The numbers of the rows in order are ids. Others may be values that happen to have all ids, such
    # as ages: ask.
    if in_order := _column_in_order(nodes, complete, ids):
        return in_order
    ambiguous = [name for name in complete if not (nodes.id_cells(name) == nodes.frame.index).all()]
    if ambiguous:
        _add_id_question(nodes, ambiguous, numberings, notices)
        return ambiguous[0]
    if not named_like_ids:
        if known_columns.ROWS_FROM_1 in numberings:
            _add_id_question(nodes, [], numberings, notices)
        return "" if numberings else _column_with_most_ids(nodes, columns, ids)
    if not numberings:
        return named_like_ids[0]  # the error for an unknown end then names its line
    _check_ids(nodes, named_like_ids[0], ids)
    column = named_like_ids[0]
    raise DamagedInput(
        f"{nodes.name} has ids in {column!r}, and the edges have other ids.",
        found=f"edges of {_shorten(ids)}; {column} of {_shorten(nodes.id_cells(column).to_numpy())}",
        steps=[Setting(node=value) for value in numberings],
    )


def _given_id_column(nodes: Table, params: GraphParams) -> str:
    """Return the column of ids that the format has or ``node`` names; empty for numbered rows."""
    if known_columns.NODE_KEY in nodes.column_names:
        return known_columns.NODE_KEY
    if params.node in {"none", known_columns.ROWS_FROM_1}:
        return ""
    if params.node not in nodes.column_names:
        names = [name for name in nodes.column_names if name not in params.label]
        likely = known_columns.matching_names(names, known_names.NODE_ID_NAMES)
        raise unknown_column_error([nodes], "node", params.node, [*likely, *names])
    return params.node


def first_row(params: GraphParams) -> int:
    """Return the number of the first row of nodes without ids."""
    return int(params.node == known_columns.ROWS_FROM_1)


def _possible_numberings(nodes: Table, ends: Array) -> list[str]:
    """Return the values of ``node`` for which the ends (2, E) may be the numbers of rows.

    Without an end 0, rows are counted from 1, or the first node has no edge.
    """
    if ends.dtype == object or ends.size == 0:
        return ["none"] if ends.size == 0 else []
    first = ends.min()
    last = ends.max()
    rows = len(nodes.frame)
    numberings = []
    if first == 1 and last <= rows:
        numberings.append(known_columns.ROWS_FROM_1)
    if first >= 0 and last < rows:
        numberings.append("none")
    return numberings


def _is_target_name(name: str) -> bool:
    return known_columns.normalized_name(name) in {*known_names.TABLE_LABELS} - {"label"}


def _can_only_be_ids(nodes: Table, name: str) -> bool:
    """True for a column of texts, and for numbers in a column named like ids."""
    return nodes.ids(name).dtype == object or known_columns.may_be_id_name(name)


def _column_in_order(nodes: Table, complete: Sequence[str], ids: Array) -> str:
    """Return the column with all ids that counts the rows, or the first one of columns without names.

    Empty if there is none, or if one counts from 0 and another one from 1.
    """
    if complete and not nodes.has_names:
        return complete[0]
    by_first = {}
    for name in complete:
        cells = nodes.id_cells(name)
        if counts_rows(cells) and np.isin(ids, cells).all():
            by_first[cells[0]] = name
    return by_first.popitem()[1] if len(by_first) == 1 else ""


def _column_with_most_ids(nodes: Table, columns: Sequence[str], ids: Array) -> str:
    """Return the column with most of these ids; empty if none has any.

    The error for an end that it lacks then names the line.
    """
    strings = {*ids_as_strings(ids)}
    matches = {}
    for name in columns:
        cells = nodes.id_cells(name)
        if cells.dtype.kind == "O" or known_columns.may_be_id_name(name):
            matches[name] = len(strings & {*ids_as_strings(cells.to_numpy())})
    best = max(matches, key=matches.__getitem__, default="")
    return best if best and matches[best] else ""


def _check_ids(nodes: Table, name: str, ids: Array) -> None:
    """Refuse an empty cell or a duplicate in a column that has the ids of all ends."""
    cells = nodes.id_cells(name)
    values = cells.dropna()
    if values.dtype.kind == "f" and (values % 1 == 0).all():  # whole numbers, or an empty cell
        values = values.astype(np.int64)
    if not {*ids_as_strings(ids)} <= {*ids_as_strings(values.to_numpy())}:
        return
    nodes.ids(name)
    is_duplicate = cells.duplicated()
    if is_duplicate.any():
        row = int(is_duplicate.argmax())
        problem = f"the node {cells[row]} occurs twice"
        raise nodes.error_at(row, problem, [REMEDY_OF_EQUAL_IDS, Setting(node="none")])


def _shorten(values: Array) -> str:
    return ", ".join(map(str, values[:3])) + (", …" if len(values) > 3 else "")


def _add_id_question(
    nodes: Table, names: Sequence[str], numberings: Sequence[str], notices: Notices
) -> None:
    """Ask which of these columns has the ids of the nodes, or how the rows are numbered."""
    answers = [Setting(node=name) for name in [*names[:1], *numberings]]
    readings = [f"those in {', '.join(names)}"] if names else []
    if numberings:
        starts = ["1" if value == known_columns.ROWS_FROM_1 else "0" for value in numberings]
        readings.append(f"the numbers of the rows from {' or '.join(starts)}")
    question = f"{nodes.name}: the ids of the edges may be {', or '.join(readings)}"
    notices.questions[f"{question}: {' or '.join(map(str, answers))}"] = answers[0]


def _is_permutation(values: pd.Series) -> bool:
    """True if a column has the row numbers in any order."""
    if values.dtype.kind not in "iu":
        return False
    return bool((np.sort(values.to_numpy()) == np.arange(len(values))).all())
