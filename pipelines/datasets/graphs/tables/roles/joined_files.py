"""Files with one header, or with edges and no header, as one table; their names as ids of graphs.

Each file is a graph if a column of another table has the names of the files, or if the user answers
so. Otherwise the files of edges are parts of one graph if they share a table of nodes; if there is
none, the user is asked.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pandas as pd

from kmip_data.arrays import I64
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import (
    MIN_COVERAGE,
    IdValues,
    ValuesOfTables,
    id_values,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.shared_ids import (
    free_columns,
    graph_columns_by_name,
)
from kmip_data.pipelines.datasets.graphs.tables.table import Table
from kmip_data.text import list_names

FILE_COLUMN = "file"  #: column with the name of each row's file, if each file is a graph


_MIN_UNNAMED_FILES = 3  #: files of edges without names, from which they are parts of one table


class _Locations(Sequence[str]):
    """Locations of the rows of joined tables, each made when it is read."""

    def __init__(self, tables: Sequence[Table], *, are_graphs: bool) -> None:
        self._tables = tables
        self.are_graphs = are_graphs
        self._starts = [0, *accumulate(len(table.frame) for table in tables)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, row: int) -> str:  # type: ignore[override]
        number = bisect_right(self._starts, row) - 1
        return self._tables[number].location(row - self._starts[number])


def join_files(tables: Sequence[Table], params: GraphParams) -> list[Table]:
    """Join the tables that have the same column names, in the order of the files.

    Edges without names of columns are joined if another table has the names of their files, if an
    option says what a graph is, or if there are many files, which is asked about.
    """
    by_header: dict[tuple[str, ...], list[Table]] = {}
    for number, table in enumerate(tables):
        has_header = table.has_names or are_unnamed_edges(table)
        header = table.column_names if has_header else (f"\0{number}",)
        by_header.setdefault(header, []).append(table)
    groups = list(by_header.values())
    others = [group[0] for group in groups if len(group) == 1]
    joined = []
    for group in groups:
        names = None
        if len(group) > 1 and FILE_COLUMN not in group[0].column_names:
            names = _names_of_graphs(group, others, params)
        is_told = names is not None or bool(params.graph) or group[0].has_names
        if len(group) > 1 and (is_told or len(group) >= _MIN_UNNAMED_FILES):
            joined.append(_join(group, names))
        else:
            joined += group
    return joined


def are_unnamed_edges(table: Table) -> bool:
    """True for two columns of integers, and at most a weight, without names."""
    columns = [table.frame[name] for name in table.column_names]
    is_other = known_columns.level_from_name(table.name) in {"node", "graph"}
    are_integers = all(column.dtype.kind == "i" for column in columns[:2])
    return not is_other and 2 <= len(columns) <= 3 and are_integers and not table.has_names


def are_graph_files(edges: Table) -> bool:
    """True for joined files of edges, each of which is a graph."""
    return isinstance(edges.locations, _Locations) and edges.locations.are_graphs


def names_graph_files(
    table: Table, edges: Table, params: GraphParams, values: ValuesOfTables
) -> bool:
    """True if a column has the names of the files of edges, each of which is a graph."""
    return are_graph_files(edges) and any(
        values.covers(table, [key], edges, [FILE_COLUMN])
        for key in values.unique_columns(table, free_columns(table, params))
    )


def _join(tables: Sequence[Table], names: Sequence[str] | None) -> Table:
    """Return the rows of several tables, with the name of each row's file if ``names`` are given."""
    for first, second in pairwise(tables if names is None else ()):
        if len(first.frame) > 1 and first.frame.equals(second.frame):
            raise DamagedInput(
                f"{first.name} and {second.name} have the same rows.",
                steps="move one of them out of the folder",
            )
    # Cells are parsed as written from one text, which has no column of files.
    is_one_text = names is None and len({table.separator for table in tables}) == 1
    frames = [table.frame if is_one_text else _with_codes(table, tables) for table in tables]
    frame = pd.concat(frames, ignore_index=True)
    if names is not None:
        frame[FILE_COLUMN] = np.repeat(np.array(names, object), [len(t.frame) for t in tables])
    first = tables[0]
    text = b"".join(bytes(table.text) for table in tables) if is_one_text else b""
    return replace(
        first,
        name=list_names([table.name for table in tables], 100),
        frame=frame,
        text=text,
        may_have_codes=any(table.may_have_codes for table in tables),
        locations=_Locations(tables, are_graphs=names is not None),
    )


def join_columns(first: Table, second: Table, rows: I64, key: str) -> Table:
    """Return a table with the columns of another one except ``key``, of whose ``rows`` (R,) they are."""
    frame = _with_codes(first, [first])
    others = _with_codes(second, [second]).drop(columns=key).iloc[rows].reset_index(drop=True)
    others.columns = [f"{name} of {second.name}" if name in frame else name for name in others]
    return replace(
        first,
        name=f"{first.name}, {second.name}",
        frame=frame.join(others),
        text=b"",
        has_names=first.has_names or second.has_names,
        categories={**second.categories, **first.categories},
    )


def _with_codes(table: Table, tables: Sequence[Table]) -> pd.DataFrame:
    """Return the rows of a table, with texts in the columns in which any table has codes like 001."""
    if not table.text:
        return table.frame
    columns = {
        name: table.as_written(name).astype(str).replace("", None)
        for name in table.column_names
        if any(other.zero_padded_codes(name) is not None for other in tables)
    }
    return table.frame.assign(**columns)


def _names_of_graphs(
    group: Sequence[Table], others: Sequence[Table], params: GraphParams
) -> Sequence[str] | None:
    """Return the name of each file if the files are graphs; ``None`` if not."""
    forms = forms_of_names([table.name for table in group])
    if params.graph == FILE_COLUMN:
        return forms[0]
    values = ValuesOfTables()
    for table in others:
        for column in values.unique_columns(table, free_columns(table, params)):
            if (names := names_in_column(forms, table.id_cells(column))) is not None:
                return names
    return None


def forms_of_names(files: Sequence[str]) -> list[Sequence[str]]:
    """Return ways to name files: without level and ending, without ending, with it, with folders.

    The last is what stands before ``_``, as in ``sub-01_task-rest.csv`` of neuroimaging.

    >>> forms_of_names(["net/a_edges.csv", "net/b_edges.csv"])[:2]
    [['a', 'b'], ['a_edges', 'b_edges']]
    """
    names = [file.rpartition("/")[2] for file in files]
    stems = [name.partition(".")[0] for name in names]
    words = "|".join(word for level in known_names.LEVEL_WORDS.values() for word in level)
    bare = [re.sub(rf"[\W_]*\b(?:{words})\b[\W_]*", "", stem.replace("_", " ")) for stem in stems]
    with_folders = [file.rpartition(".")[0] for file in files]
    subjects = [stem.partition("_")[0] for stem in stems]
    forms = [bare, stems, names, with_folders, files, subjects]
    return [form for form in forms if len({*form}) == len(files) and "" not in form]


def names_in_column(forms: Sequence[Sequence[str]], cells: pd.Series) -> Sequence[str] | None:
    """Return the cell that names each file in one of these forms; ``None`` if many have none.

    Numbers name files only in a column without many others. If no form fits, letters may differ in
    case.
    """
    column = id_values(cells)
    if column is None:
        return None
    names = _match_forms(forms, column)
    if names is not None or column.distinct.dtype != object:
        return names
    by_folded = {text.casefold(): text for text in column.distinct}
    if len(by_folded) < len(column.distinct):
        return None
    folded = column._replace(distinct=np.array([*by_folded], object))
    folded_forms = [[name.casefold() for name in form] for form in forms]
    names = _match_forms([form for form in folded_forms if len({*form}) == len(form)], folded)
    return None if names is None else [by_folded.get(name, name) for name in names]


def _match_forms(forms: Sequence[Sequence[str]], column: IdValues) -> Sequence[str] | None:
    """Return the value of a column that is each file's name in the first form that fits."""
    for form in forms:
        names = id_values(pd.Series(form, dtype=object))
        if names is None:
            continue
        are_numbers = "i" in {names.distinct.dtype.kind, column.distinct.dtype.kind}
        if are_numbers and len(form) < MIN_COVERAGE * len(column.distinct):
            continue
        positions = names.positions_in(column)
        if np.mean(positions >= 0) >= MIN_COVERAGE:
            pairs = zip(positions.tolist(), form, strict=True)
            return [str(column.distinct[row]) if row >= 0 else name for row, name in pairs]
    return None


def ask_about_files(levels: Mapping[Level, Table], params: GraphParams, notices: Notices) -> None:
    """Ask whether files of edges are parts of one graph, if nothing in the files tells."""
    edges = levels["edge"]
    if not isinstance(edges.locations, _Locations) or "node" in levels:
        return
    if params.graph or FILE_COLUMN in edges.column_names or graph_columns_by_name(edges, params):
        return
    question = (
        f"{edges.name} have the same columns, and may be parts of one graph or a graph each: "
        f"graph='none' or {Setting(graph=FILE_COLUMN)}"
    )
    notices.questions[question] = Setting(graph="none")
