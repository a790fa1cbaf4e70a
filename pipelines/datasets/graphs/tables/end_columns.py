"""Columns with the two ends of each edge: given by options, or recognised by their names."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import cast

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.table import (
    UNNAMED_PREFIX,
    Table,
    ids_as_strings,
    is_row_index,
    unknown_column_error,
)

#: Names of two columns: source and target of an edge; empty for an end that is not given.
EndColumns = tuple[str, str]

_SAMPLED_ROWS = 100  #: rows sampled to detect a column of SMILES
#: Double bond, branch or ring, as in ``C=O``, ``CC(C)O`` and ``c1cc``, but not in the id ``c1``.
#: Nearly every table of molecules has one.
_SMILES_BOND = r"[A-Za-z]\d?[=#(]|c\d\(?[A-Za-z]"
_SMILES_CHARACTERS = r"[A-Za-z0-9@+\-\[\]()=#$:/\\%.*]+"


def read_ends(
    edges: Table, params: GraphParams, *, is_only_table: bool
) -> tuple[EndColumns, Array]:
    """Return the columns of sources and targets, and the ids in them, (2, E)."""
    columns = _find_end_columns(edges, params, is_only_table=is_only_table)
    if is_only_table:
        _refuse_empty_ends(edges, columns)
    ids = [edges.ids(name) for name in columns]
    if any(column.dtype == object for column in ids):
        ids = [ids_as_strings(column) for column in ids]
    ends = np.stack(ids)
    if not edges.has_names and params.header is None:
        _refuse_line_of_counts(edges, ends, is_only_table=is_only_table)
    return columns, ends


def _refuse_empty_ends(edges: Table, columns: EndColumns) -> None:
    """Refuse rows without ends in the only table: some programs write nodes among the edges."""
    is_empty = edges.frame[[*columns]].isna().all(axis=1)
    if is_empty.any():
        raise edges.error_at(
            is_empty.argmax(),
            f"{columns[0]!r} and {columns[1]!r} are empty",
            "rows without ends may be nodes: write them into nodes.csv and the others into edges.csv, "
            "in one folder",
        )


def _refuse_line_of_counts(edges: Table, ends: Array, *, is_only_table: bool) -> None:
    """Refuse a first line that some programs write: the numbers of nodes and edges."""
    first = ends[:, 0]
    others = ends[:, 1:]
    if ends.dtype == object or others.shape[1] == 0 or first[1] != others.shape[1]:
        return
    if first[0] > others.max() - others.min():
        # As names of columns, the counts must differ, and name two columns only.
        can_be_names = is_only_table and len(edges.column_names) == 2 and first[0] != first[1]
        removal = "--set header=yes leaves the line out" if can_be_names else "remove the line"
        raise edges.error_at(
            0,
            f"{first[0]} {first[1]} may be the numbers of nodes and edges, as {first[1]} lines follow",
            f"{removal}; --set header=no, if it is an edge",
        )


def _find_end_columns(edges: Table, params: GraphParams, *, is_only_table: bool) -> EndColumns:
    """Return the columns of sources and targets; refuse a table in which they are ambiguous."""
    given_ends = (params.source, params.target)
    names = edges.column_names
    for key, name in zip(("source", "target"), given_ends, strict=True):
        if name and name not in names:
            raise _unknown_end_error(edges, key, name, given_ends)
    if all(given_ends):
        return given_ends
    if known_columns.SOURCE_KEY in names:
        return known_columns.SOURCE_KEY, known_columns.TARGET_KEY
    # The index that pandas writes is not an end.
    if names[0].startswith(UNNAMED_PREFIX) and is_row_index(edges.frame[names[0]]):
        names = names[1:]
    pairs = [
        pair for pair in known_columns.matching_end_pairs(names) if _agrees_with(pair, given_ends)
    ]
    if len(pairs) == 1:
        return pairs[0]
    if not pairs and not any(given_ends):
        if is_only_table:
            _refuse_smiles(edges)
        _refuse_single_column(edges, names, params)
        if len(names) == 2 or not edges.has_names:
            _refuse_unnamed_columns(edges, params)
            return names[0], names[1]
        if is_only_table:
            _refuse_node_table(edges, names)
    raise _ambiguous_ends_error(edges, pairs, names, given_ends)


def _agrees_with(pair: EndColumns, given_ends: EndColumns) -> bool:
    """True if a pair of columns has the given ends."""
    return all(not name or name == end for name, end in zip(given_ends, pair, strict=True))


def options_after_header(table: Table, params: GraphParams, *, is_only_table: bool) -> str:
    """Return the options that a table of edges needs next to ``header``; empty if it needs none.

    ``table`` has the column names that follow from one value of ``header``.
    """
    names = table.column_names
    if params.source or params.target:
        return ""
    if is_only_table and (smiles := _smiles_column(table)):
        return f" --set smiles={shlex.quote(smiles)}"
    # Without names, the first two of at most three columns are the ends.
    max_columns = 2 if table.has_names else 3
    if len(names) <= max_columns or known_columns.matching_end_pairs(names):
        return ""
    return f" {_end_options(_likely_ends(table, names, ('', '')))}"


def _refuse_smiles(table: Table) -> None:
    """Refuse a table with a column that looks like SMILES."""
    if name := _smiles_column(table):
        example = table.frame[name].dropna().map(str).iloc[0]
        raise DamagedInput(
            f"{table.name} has no edges: {name!r} may have SMILES, such as {example[:40]}.",
            expected="a table of edges: if it is one, add --set source=COLUMN --set target=COLUMN",
            found=table.column_list,
            next=f"--set smiles={shlex.quote(name)}",
        )


def _smiles_column(table: Table) -> str:
    """Return the first column that looks like SMILES: atoms, and bonds or rings; empty if none."""
    for name in table.column_names:
        cells = table.frame[name].dropna().map(str)[:_SAMPLED_ROWS]
        may_be_smiles = len(cells) and cells.str.fullmatch(_SMILES_CHARACTERS).all()
        if may_be_smiles and cells.str.contains(_SMILES_BOND).any():
            return name
    return ""


def _refuse_single_column(edges: Table, names: Sequence[str], params: GraphParams) -> None:
    """Refuse a table of two columns of which one is the label."""
    remaining = [name for name in names if name not in params.label]
    if len(names) == 2 and len(remaining) == 1:
        raise DamagedInput(
            f"{edges.name} has no edges: {remaining[0]!r} is its only column besides the label.",
            next=f"if it has SMILES: --set smiles={shlex.quote(remaining[0])}",
        )


def _refuse_unnamed_columns(edges: Table, params: GraphParams) -> None:
    """Refuse more than three unnamed columns: they may be an adjacency list or a matrix."""
    if len(edges.column_names) <= 3 or edges.has_names or params.feature or params.ignore:
        return
    raise DamagedInput(
        f"{edges.name} has {len(edges.column_names)} columns and no names.",
        expected="two ids of nodes and at most a weight, or names in the first line",
        next=f"{_end_options((edges.column_names[0], edges.column_names[1]))}, if these are ids; a matrix: "
        "scipy.io.mmwrite('a.mtx', scipy.sparse.coo_array(matrix))",
    )


def _refuse_node_table(edges: Table, names: Sequence[str]) -> None:
    """Refuse an only table with a column of ids, which is probably a table of nodes."""
    id_columns = known_columns.matching_names(names, known_columns.NODE_ID_NAMES)
    if id_columns:
        raise DamagedInput(
            f"{edges.name} has ids in {id_columns[0]!r} and no ends of edges: it may be a table of nodes, "
            "and its table of edges is missing.",
            expected="a folder with nodes.csv and edges.csv, which has the columns source and target",
            found=edges.column_list,
            next="--archive FOLDER with both; if it is a table of edges, --set source=COLUMN --set target=COLUMN",
        )


def _ambiguous_ends_error(
    edges: Table, pairs: Sequence[EndColumns], names: Sequence[str], given_ends: EndColumns
) -> DamagedInput:
    """Return the error for a table with several ``pairs`` of end columns, or with none."""
    guess = pairs[0] if pairs else _likely_ends(edges, names, given_ends)
    quantity = "several pairs of" if pairs else "no"
    remedy = f"if these are the ends: {_end_options(guess)}"
    graph = _likely_graph_column(edges, guess)
    if graph:
        remedy += f", and --set graph={shlex.quote(graph)} if it names the graph of a row"
    if not pairs and _may_mix_two_node_types(edges, guess):
        # Otherwise user 3 and item 3 would be one node.
        first = guess[0]
        remedy = (
            f"{guess[0]} and {guess[1]} may count two kinds of nodes: write different ids, in pandas "
            f"table[{first!r}] = {first[:1]!r} + table[{first!r}].astype(str); then, or if they are of one "
            f"kind, {_end_options(guess)}"
        )
    return DamagedInput(
        f"{edges.name} has {quantity} columns named like the ends of an edge, such as source and target.",
        found=edges.column_list,
        next=remedy,
    )


def _may_mix_two_node_types(edges: Table, ends: EndColumns) -> bool:
    """True for columns such as user_id and item_id that have values in common."""
    names = [known_columns.normalized_name(end) for end in ends]
    if not all(name.endswith("id") for name in names):
        return False
    return bool(edges.frame[ends[0]].isin(edges.frame[ends[1]]).any())


def _likely_graph_column(edges: Table, ends: EndColumns) -> str:
    """Return a column of repeated ids that makes all edges distinct; empty if there is none."""
    frame = edges.frame
    if not frame.duplicated([*ends]).any():
        return ""
    for name in edges.column_names:
        is_id = name not in ends and known_columns.normalized_name(name).endswith("id")
        if is_id and not frame[name].is_unique and not frame.duplicated([*ends, name]).any():
            return name
    return ""


def _likely_ends(edges: Table, names: Sequence[str], given_ends: EndColumns) -> EndColumns:
    """Return the given ends; guess missing ones among the columns without fractions."""
    likely = [name for name in names if edges.frame[name].dtype.kind != "f"]
    similar = [pair for pair in pairwise(likely) if _are_similar(*pair)]
    if similar and not any(given_ends):
        return similar[0]
    candidates = likely if len(likely) > 1 else names
    candidates = [name for name in candidates if name not in given_ends]
    return given_ends[0] or candidates[0], given_ends[1] or candidates[-1 if given_ends[0] else 1]


def _are_similar(first: str, second: str) -> bool:
    """True for names such as roi_a and roi_b, or stop_from and stop_to."""
    pairs = zip(first, second, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return shared >= 3 and max(len(first), len(second)) - shared <= 6


def _end_options(ends: EndColumns) -> str:
    """Return the options that name two columns as the ends."""
    return f"--set source={shlex.quote(ends[0])} --set target={shlex.quote(ends[1])}"


def _unknown_end_error(edges: Table, key: str, name: str, given_ends: EndColumns) -> UsageError:
    """Return the error for a given end that is not a column; suggest two existing columns."""
    existing_ends = cast(
        EndColumns, tuple(end if end in edges.column_names else "" for end in given_ends)
    )
    pairs = [
        pair
        for pair in known_columns.matching_end_pairs(edges.column_names)
        if _agrees_with(pair, existing_ends)
    ]
    error = unknown_column_error([edges], key, name, edges.column_names)
    if error.correction is None and len(edges.column_names) > 1:
        ends = pairs[0] if pairs else _likely_ends(edges, edges.column_names, existing_ends)
        error.next = f"if these are the ends: {_end_options(ends)}"
    return error
