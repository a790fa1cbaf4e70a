"""Table with a row for each graph file, next to the files: its other columns are those of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import (
    MIN_COVERAGE,
    IdValues,
    ValuesOfTables,
    id_values,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.joined_files import (
    forms_of_names,
    names_in_column,
)
from kmip_data.pipelines.datasets.graphs.tables.table import Table
from kmip_data.text import count_with_noun

_MAX_SHOWN = 5  #: graphs that an error names


def add_columns_of_graphs(
    levels: Mapping[Level, Table],
    names: Sequence[str],
    tables: Sequence[Table],
    params: GraphParams,
    notices: Notices,
) -> Table:
    """Return the table of graphs with the columns of tables that have a row for each graph.

    ``names`` are the names of the files, a row each. A column of different values must have them in
    one form (``forms_of_names``), or the values of an attribute of all graphs. Raises
    ``DamagedInput`` if a few graphs have no row, or two; tables without such a column are noted, and
    refused if an option names a column that only they have.
    """
    graphs = levels["graph"]
    read_columns = {name for table in levels.values() for name in table.column_names}
    named = {*params.label, *params.feature, *params.ignore, params.group} - read_columns
    shown = [name for name in graphs.column_names if not name.startswith("\0")]
    attributes = [graphs.frame[name] for name in shown]
    texts = [[*column] for column in attributes if all(isinstance(cell, str) for cell in column)]
    forms = [*forms_of_names(names), *(column for column in texts if len({*column}) == len(column))]
    for table in tables:
        for key in table.column_names:
            ids = id_values(table.id_cells(key))
            keys = names_in_column(forms, table.id_cells(key))
            if ids is None or keys is None:
                continue
            if len(ids.distinct) >= MIN_COVERAGE * len(ids.codes):
                _refuse_repeated_key(table, key, ids)
                graphs = _with_columns(graphs, table, key, keys, notices)
                break
        else:
            unread = [name for name in table.column_names if name in named]
            if unread:
                raise _unnamed_files_error(table, unread[0], names)
            notices.ignored[table.name] = "no column has the names of the graph files"
    return graphs


def _unnamed_files_error(table: Table, column: str, files: Sequence[str]) -> DamagedInput:
    """Return the error for a table whose ``column`` is wanted, and that names no graph file."""
    keys = ValuesOfTables().unique_columns(table, table.column_names) or table.column_names
    example = table.id_cells(keys[0]).iloc[:1].tolist()
    stem = files[0].rpartition("/")[2].rpartition(".")[0]
    return DamagedInput(
        f"{table.name} has the column {column!r}, but none of its columns names the graph files.",
        found=f"{', '.join(map(repr, example))} in {keys[0]!r}, and the file {files[0]}",
        steps=f"write the name of each row's file into it, such as {stem!r}",
    )


def _refuse_repeated_key(table: Table, key: str, ids: IdValues) -> None:
    """Refuse two rows of one graph."""
    is_repeated = pd.Series(ids.codes).duplicated() & (ids.codes >= 0)
    if not is_repeated.any():
        return
    second = int(is_repeated.argmax())
    first = int((ids.codes == ids.codes[second]).argmax())
    raise table.error_at(
        second,
        f"{table.frame[key].iloc[second]!r} is also in the {key!r} of {table.location(first)}",
        f"leave one of the two rows out of {table.name}",
    )


def _with_columns(
    graphs: Table, table: Table, key: str, keys: Sequence[str], notices: Notices
) -> Table:
    """Return the table of graphs with the row of ``table`` that has the key of each graph."""
    ids = id_values(table.id_cells(key))
    wanted = id_values(pd.Series([*keys], dtype=object))
    if ids is None or wanted is None:
        return graphs
    row_of_id = np.empty(len(ids.distinct), np.int64)
    with_key = np.flatnonzero(ids.codes >= 0)
    row_of_id[ids.codes[with_key]] = with_key
    positions = wanted.positions_in(ids)
    is_missing = positions < 0
    if is_missing.any():
        missing = [name for name, absent in zip(keys, is_missing, strict=True) if absent]
        listed = f"{count_with_noun(len(missing), 'graph')} of {len(keys):,}: {', '.join(missing[:_MAX_SHOWN])}"
        notices.ignored[f"no row in {table.name}"] = f"{listed}; without a label"
    rows = row_of_id[positions[~is_missing]]
    without_file = len(table.frame) - len(rows)
    if without_file:
        count = count_with_noun(without_file, "row")
        notices.ignored[f"rows of {table.name}"] = f"{count} without a file"
    columns = table.frame.drop(columns=key).iloc[rows].set_axis(np.flatnonzero(~is_missing))
    columns = columns.reindex(range(len(keys)))
    repeated = [name for name in columns if name in graphs.frame]
    for name in repeated:
        notices.ignored[f"{name} of the graph files"] = f"{table.name} has a column of this name"
    return replace(graphs, frame=graphs.frame.drop(columns=repeated).join(columns))
