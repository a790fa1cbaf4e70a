"""Columns with the two ends of each edge.

An option names them, or the first of these rules that finds a pair: known names; columns that have
the ids of the table of nodes, those with the most ids; without a table of nodes, the first two
columns. A further column that may be an end as well is asked about. Words in the names of a pair, or
else the order of its columns, say which one is the source.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Direction, Notices
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import (
    MIN_COVERAGE,
    IdValues,
    id_values,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.joined_files import (
    FILE_COLUMN,
    are_graph_files,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.shared_ids import (
    MIN_RIVAL_IDS,
    EndColumns,
    SharedIds,
    are_years,
    free_columns,
)
from kmip_data.pipelines.datasets.graphs.tables.table import (
    Table,
    ids_as_strings,
    is_row_index,
    unknown_column_error,
)
from kmip_data.pipelines.formats.header_line import UNNAMED_PREFIX

_COMPARED_COLUMNS = 12  #: first columns whose values are compared
_MIN_COMMON = 0.1  #: fraction of the values of an end that are also at the other end
_SHORT_NAME = 2  #: length of names such as a and b, or n1 and n2
_SAMPLED_ROWS = 100  #: rows sampled to detect a column of SMILES
#: Double bond, branch or ring, as in ``C=O``, ``CC(C)O`` and ``c1cc``, but not in the id ``c1``.
#: Nearly every table of molecules has one.
_SMILES_BOND = r"[A-Za-z]\d?[=#(]|c\d\(?[A-Za-z]"
_SMILES_CHARACTERS = r"[A-Za-z0-9@+\-\[\]()=#$:/\\%.*]+"


def read_ends(
    edges: Table, columns: EndColumns, params: GraphParams, *, is_only_table: bool
) -> Array:
    """Return the ids in the columns of sources and targets, (2, E)."""
    if is_only_table:
        _refuse_empty_ends(edges, columns)
    ids = [edges.ids(name) for name in columns]
    if any(column.dtype == object for column in ids):
        ids = [ids_as_strings(column) for column in ids]
    ends = np.stack(ids)
    if not edges.has_names and params.header is None:
        _refuse_line_of_counts(edges, ends, is_only_table=is_only_table)
    return ends


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
        headers = ("yes", "no") if can_be_names else ("no",)
        raise edges.error_at(
            0,
            f"{first[0]} {first[1]} may be the numbers of nodes and edges, as {first[1]} lines follow "
            "(if each has the neighbours of a node, it is METIS, and no table of edges)",
            [
                "remove the line, or say by header what it is",
                *(Setting(header=value) for value in headers),
            ],
        )


def find_end_columns(
    edges: Table,
    shared: SharedIds | None,
    params: GraphParams,
    notices: Notices,
    *,
    is_only_table: bool,
) -> EndColumns:
    """Return the columns of sources and targets; ask if several may be, or refuse the table.

    ``shared`` has the columns with the ids of the table of nodes, if there is such a table.
    """
    given_ends = (params.source, params.target)
    for key, name in zip(("source", "target"), given_ends, strict=True):
        if name and name not in edges.column_names:
            pairs = known_columns.matching_end_pairs(edges.column_names)
            known = [pair[key == "target"] for pair in pairs]
            raise unknown_column_error([edges], key, name, [*known, *edges.column_names])
    if all(given_ends):
        return given_ends
    if known_columns.SOURCE_KEY in edges.column_names:
        return known_columns.SOURCE_KEY, known_columns.TARGET_KEY
    names = _columns_behind_index(edges)
    pairs = [
        pair for pair in known_columns.matching_end_pairs(names) if _agrees_with(pair, given_ends)
    ]
    if len(pairs) == 1 and (shared is None or {*pairs[0]} <= {*shared.columns}):
        return pairs[0]
    if shared is not None:
        return _ends_with_shared_ids(edges, shared, pairs, given_ends, notices)
    if not pairs and not any(given_ends):
        if is_only_table:
            _refuse_smiles(edges)
        _refuse_single_column(edges, names, params)
        if len(names) == 2 or not edges.has_names:
            _refuse_unnamed_columns(edges, names, params)
            ends = known_columns.in_direction(names[0], names[1])
            is_clear = not edges.has_names or known_columns.names_give_direction(*ends)
            if is_clear or not _may_mix_two_node_types(edges, ends):
                return ends
    likely = _likely_ends(edges, names, given_ends, params)
    if likely.is_certain and not pairs and not any(given_ends):
        return likely.ends
    if is_only_table and not pairs and not likely.common:
        _refuse_node_table(edges, names)
    raise _ambiguous_ends_error(edges, pairs, likely, given_ends)


def direction_of_edges(ends: EndColumns, params: GraphParams) -> Direction | None:
    """Return the columns of sources and targets for the summary; ``None`` if a reader made them."""
    if known_columns.SOURCE_KEY in ends:
        return None
    is_certain = (
        bool(params.source or params.target)
        or bool(known_columns.matching_end_pairs(ends))
        or known_columns.names_give_direction(*ends)
    )
    remedy = "" if is_certain else f"by position; to swap: {ends_setting((ends[1], ends[0]))}"
    return Direction(f"from {ends[0]!r} to {ends[1]!r}", remedy)


def _columns_behind_index(edges: Table) -> tuple[str, ...]:
    """Return the column names without those of files and of pandas' index, which are no ends."""
    names = edges.column_names
    if are_graph_files(edges):
        names = tuple(name for name in names if name != FILE_COLUMN)
    has_index = names[0].startswith(UNNAMED_PREFIX) and is_row_index(edges.frame[names[0]])
    return names[1:] if has_index else names


def _ends_with_shared_ids(
    edges: Table,
    shared: SharedIds,
    pairs: Sequence[EndColumns],
    given_ends: EndColumns,
    notices: Notices,
) -> EndColumns:
    """Return the likeliest pair of columns with ids of the nodes; ask about others."""
    ends = shared.likeliest_ends(given_ends)
    rivals = shared.rivals(ends)
    unknown = [name for pair in pairs for name in pair if name not in shared.columns]
    if not rivals and not unknown:
        return ends
    rows = len(edges.frame)
    counts = [
        f"{name!r} has {number:,} ids, in {known:,} of {rows:,} rows"
        for name, number, known in zip(shared.columns, shared.counts, shared.rows, strict=True)
    ]
    counts += [f"{name!r} has ids in few rows" for name in dict.fromkeys(unknown)]
    question = (
        f"{edges.name} has several columns with ids of {shared.nodes.name}: {', '.join(counts)}"
    )
    notices.questions[question] = ends_setting(ends)
    return ends


def _agrees_with(pair: EndColumns, given_ends: EndColumns) -> bool:
    """True if a pair of columns has the given ends."""
    return all(not name or name == end for name, end in zip(given_ends, pair, strict=True))


def values_after_header(
    table: Table, params: GraphParams, *, is_only_table: bool
) -> Mapping[str, object]:
    """Return the values that a table of edges needs next to ``header``; empty if it needs none.

    ``table`` has the column names that follow from one value of ``header``.
    """
    names = table.column_names
    if params.source or params.target:
        return {}
    if is_only_table and (smiles := _smiles_column(table)):
        return {"smiles": smiles}
    # Without names, the first two of at most three columns are the ends.
    max_columns = 2 if table.has_names else 3
    if len(names) <= max_columns or known_columns.matching_end_pairs(names):
        return {}
    likely = _likely_ends(table, names, ("", ""), params)
    return {} if likely.is_certain else ends_setting(likely.ends).values


def _refuse_smiles(table: Table) -> None:
    """Refuse a table with a column that looks like SMILES."""
    if name := _smiles_column(table):
        example = table.frame[name].dropna().map(str).iloc[0]
        raise DamagedInput(
            f"{table.name} has no edges: {name!r} may have SMILES, such as {example[:40]}.",
            expected="a table of edges: if it is one, name its source and target",
            found=table.column_list,
            steps=Setting(smiles=name),
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
            steps=Setting(smiles=remaining[0]),
        )


def _refuse_unnamed_columns(edges: Table, names: Sequence[str], params: GraphParams) -> None:
    """Refuse unnamed columns that may be an adjacency list, or ends around a relation."""
    if edges.has_names or params.feature or params.ignore:
        return
    if len(names) <= 3 and not _has_third_ids(edges, names):
        return
    likely = (names[0], names[2]) if len(names) == 3 else (names[0], names[1])
    raise DamagedInput(
        f"{edges.name} has {len(names)} columns and no names, and may be an adjacency list.",
        expected="two ids of nodes and at most a weight, or names in the first line",
        steps=[
            ends_setting(likely),
            Setting(feature=names[2]),
            "an adjacency list: networkx.write_graphml(networkx.read_adjlist(FILE), 'a.graphml')",
        ],
    )


def _has_third_ids(edges: Table, names: Sequence[str]) -> bool:
    """True if a third column has texts or many different numbers that are ids of the first column.

    No node of an adjacency list is its own neighbour, but a weight may be the number of a node.
    """
    if len(names) < 3 or edges.frame.nunique(axis=1).min() < 3:
        return False
    first, _, third = (id_values(edges.id_cells(name)) for name in names)
    if first is None or third is None:
        return False
    common = _count_common(third, first)
    if third.distinct.dtype == object:
        return common > 0
    return first.is_unique and common >= max(len(first.distinct) / 2, len(third.distinct))


def _refuse_node_table(edges: Table, names: Sequence[str]) -> None:
    """Refuse an only table with a column of ids, which is probably a table of nodes."""
    id_columns = known_columns.matching_names(names, known_names.NODE_ID_NAMES)
    if id_columns:
        raise DamagedInput(
            f"{edges.name} has ids in {id_columns[0]!r} and no ends of edges: it may be a table of nodes, "
            "and its table of edges is missing.",
            expected="a folder with nodes.csv and edges.csv, which has the columns source and target",
            found=edges.column_list,
            steps="use a folder with both; if it is a table of edges, name its source and target",
        )


def _ambiguous_ends_error(
    edges: Table, pairs: Sequence[EndColumns], likely: LikelyEnds, given_ends: EndColumns
) -> DamagedInput:
    """Return the error for a table with several ``pairs`` of end columns, or with none."""
    guess = pairs[0] if pairs else likely.ends
    problem = (
        f"{edges.name} has several pairs of columns named like the ends of an edge, such as source "
        "and target."
    )
    if not pairs:
        first, second = guess
        problem = (
            f"{edges.name} has no columns named like the ends of an edge, and {first!r} and "
            f"{second!r} have {likely.common:,} values in common."
        )
    if not pairs and not any(given_ends) and _may_mix_two_node_types(edges, guess):
        # Otherwise user 3 and item 3 would be one node.
        first = guess[0]
        problem += (
            f" If they count two kinds of nodes, write different ids first, in pandas table[{first!r}] = "
            f"{first[:1]!r} + table[{first!r}].astype(str)."
        )
    setting = ends_setting(guess)
    if graph := _likely_graph_column(edges, guess):
        setting = Setting({**setting.values, "graph": graph})
    return DamagedInput(problem, found=edges.column_list, steps=setting)


def _may_mix_two_node_types(edges: Table, ends: EndColumns) -> bool:
    """True for numbers in columns such as user_id and item_id: both may count from 1."""
    if are_similar(*ends):
        return False
    columns = [id_values(edges.id_cells(name)) for name in ends]
    are_numbers = all(ids is not None and ids.distinct.dtype.kind == "i" for ids in columns)
    return are_numbers and _count_common(columns[0], columns[1]) > 0


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


class LikelyEnds(NamedTuple):
    """The likeliest ends of a table without known names, and without a table of nodes."""

    ends: EndColumns
    common: int  #: number of values that both columns have
    is_certain: bool  #: True if no other column, and no second kind of nodes, is as likely


def _likely_ends(
    edges: Table, names: Sequence[str], given_ends: EndColumns, params: GraphParams
) -> LikelyEnds:
    """Return the given ends, or the pair with most values in common; of several, the first.

    The first two columns are certain if they have values in common that no other column has, and
    are not numbers that may count two kinds of nodes.
    """
    free = [name for name in names if name in free_columns(edges, params)]
    columns = {name: id_values(edges.id_cells(name)) for name in free[:_COMPARED_COLUMNS]}
    candidates = [name for name, ids in columns.items() if ids is not None and not are_years(ids)]
    if len(candidates) < 2 or any(given_ends):
        candidates = [*dict.fromkeys([*candidates, *names])]
        candidates = [name for name in candidates if name not in given_ends] or [*names]
        first = given_ends[0] or candidates[0]
        second = given_ends[1] or candidates[0 if given_ends[0] else 1]
        return LikelyEnds((first, second), 0, is_certain=False)
    pairs = list(combinations(candidates, 2))
    common = [_count_common(columns[first], columns[second]) for first, second in pairs]
    # Without common values, names alike are the likeliest.
    best = max(range(len(pairs)), key=lambda pair: (common[pair], _shared_length(*pairs[pair])))
    ends = pairs[best]
    fewest = min(len(ids.distinct) for name in ends if (ids := columns[name]) is not None)
    is_certain = (
        best == 0
        and common[0] >= max(_MIN_COMMON * fewest, 1)
        and not any(_is_in_both(columns[name], ends, columns) for name in candidates[2:])
        and not _may_mix_two_node_types(edges, ends)
    )
    return LikelyEnds(known_columns.in_direction(*ends), common[best], is_certain)


def _count_common(first: IdValues | None, second: IdValues | None) -> int:
    """Return the number of distinct values that two columns have in common."""
    if first is None or second is None:
        return 0
    return int((first.positions_of_distinct(second) >= 0).sum())


def _is_in_both(
    other: IdValues | None, ends: EndColumns, columns: Mapping[str, IdValues | None]
) -> bool:
    """True if nearly all rows of another column have values of the ends, and of enough nodes."""
    if other is None:
        return False
    is_known = np.zeros(len(other.codes), bool)
    ids = 0
    for name in ends:
        if (values := columns[name]) is not None:
            is_known |= other.positions_in(values) >= 0
            ids = max(ids, len(values.distinct))
    return is_known.mean() >= MIN_COVERAGE and len(other.distinct) >= MIN_RIVAL_IDS * ids


def are_similar(first: str, second: str) -> bool:
    """True for names such as roi_a and roi_b, stop_from and stop_to, or a and b."""
    if max(len(first), len(second)) <= _SHORT_NAME:
        return True
    shared = _shared_length(first, second)
    return shared >= 3 and max(len(first), len(second)) - shared <= 6


def _shared_length(first: str, second: str) -> int:
    """Return the length of the beginning that two names share."""
    return len(os.path.commonprefix([first, second]))  # noqa: RUF071 -- of texts


def ends_setting(ends: EndColumns) -> Setting:
    """Return the setting that names two columns as the ends."""
    return Setting(source=ends[0], target=ends[1])
