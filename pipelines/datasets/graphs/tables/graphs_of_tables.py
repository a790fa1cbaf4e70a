"""Graphs of tables: a table of edges, alone or with tables of nodes and graphs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import cast

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array
from kmip_data.columns.column_uses import Level, Use
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.schema import NODE_ID
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.datasets.graphs.tables.columns import columns_of
from kmip_data.pipelines.datasets.graphs.tables.index_lists import IndexLists
from kmip_data.pipelines.datasets.graphs.tables.node_indices import (
    NodeIndices,
    are_row_numbers,
    indices_of_ends,
    stored_ids,
)
from kmip_data.pipelines.datasets.graphs.tables.rows_by_graph import match_graphs, rows_by_graph
from kmip_data.pipelines.datasets.graphs.tables.table import (
    NO_IDS,
    UNNAMED,
    Table,
    check_columns,
    counts_from_zero,
    ids_as_texts,
    unknown_column,
)
from kmip_data.text import count_with_noun

_LAST_ROWS = 20  #: last rows of a table, which may be notes
_LOOKED_AT = 100  #: first rows, which tell whether a column has SMILES
#: Double bond, branch or ring, as in ``C=O``, ``CC(C)O`` and ``c1cc``, but not in the id ``c1``.
#: Nearly every table of molecules has one.
_SMILES_BOND = r"[A-Za-z]\d?[=#(]|c\d\(?[A-Za-z]"
_SMILES_LETTERS = r"[A-Za-z0-9@+\-\[\]()=#$:/\\%.*]+"


def graphs_of_tables(
    tables: Mapping[Level, Table],
    options: ReadOptions,
    findings: Findings,
    lists: Sequence[IndexLists] = (),
    *,
    alone: bool = False,
) -> Iterator[GraphRecord]:
    """Yield the graphs of tables by level; rows of a graph may be in any order.

    ``alone`` is True if the files are one table.
    """
    # 1. Columns of ids.
    params = options.params
    edges = tables["edge"]
    check_columns([*tables.values()], options)
    ends_names, ends = _read_ends(edges, params, alone=alone)
    graph_names = {level: _graph_column(table, level, params) for level, table in tables.items()}
    several = "graph" in tables or any(graph_names.values())
    # One graph has masks, also where a column names it.
    first = next(iter(tables))
    named = graph_names[first]
    masks_are_flags = several and (not named or len(tables[first].frame[named].unique()) > 1)
    node_name = ""
    if "node" in tables:
        node_name = _id_column(tables["node"], ends, params, findings.notices, several=several)

    # 2. Kinds of the other columns; what they leave open is asked at once.
    used: dict[Level, dict[str, Use]] = {level: {graph_names[level]: "graph"} for level in tables}
    used["edge"] |= {ends_names[0]: "source", ends_names[1]: "target"}
    if "node" in used:
        used["node"][node_name] = "id"
    if several and lists:
        raise DamagedInput(
            f"{lists[0].name} has features of the nodes of one graph, and there are several.",
            next="leave the file out, or put its values into the table of nodes",
        )
    undirected = _undirected_rows(edges, used["edge"])
    # Without a table of graphs, edges tell the targets of several graphs.
    edges_have_targets = several and "graph" not in tables
    columns = {}
    for level, table in tables.items():
        columns[level] = columns_of(
            table,
            level,
            used[level],
            options,
            findings,
            several=masks_are_flags,
            edges_have_targets=edges_have_targets,
        )
    findings.notices.ask()
    groups = rows_by_graph(tables, graph_names, several=several)
    match_graphs(groups, tables, params, findings.notices)
    nodes = None
    if "node" in tables:
        nodes = NodeIndices(tables["node"], edges, ends, node_name, groups["node"])
        _warn_of_notes(tables["node"], node_name, ends, findings.notices)

    # 3. Graph by graph.
    names = groups[first]
    targets = findings.attributes.component_names.get("y", ())
    dangling = 0
    for name in names:
        rows_of = {level: group.get(name, np.empty(0, int)) for level, group in groups.items()}
        if nodes is None:
            index, ids = indices_of_ends(ends[:, rows_of["edge"]])
        else:
            if params.on_error == "skip":
                joining = nodes.joining_edges(rows_of["node"], rows_of["edge"])
                dangling += len(rows_of["edge"]) - len(joining)
                rows_of["edge"] = joining
            index = nodes.of_ends(rows_of["node"], rows_of["edge"])
            ids = nodes.ids[rows_of["node"]]
        values = _values_of_graph(name, rows_of, columns, edges, targets)
        for index_lists in lists:
            values = index_lists.join(values, ids, options, findings)
        if not are_row_numbers(ids):
            if len(names) == 1:
                values[NODE_ID] = stored_ids(ids, options)
            else:
                reason = "stored only for a single graph; to use ids, copy them into another column"
                findings.notices.ignored["ids of nodes"] = reason
        if undirected is not None:
            index, values = _with_undirected_reverses(index, values, undirected[rows_of["edge"]])
        yield GraphRecord(key=name, num_nodes=len(ids), columns=values, edge_index=index)
    if dangling:
        left_out = f"{count_with_noun(dangling, 'edge')} with an end that is no node"
        findings.notices.ignored[f"rows of {edges.name}"] = left_out


def _values_of_graph(
    name: str,
    rows_of: Mapping[Level, I64],
    columns: Mapping[Level, Mapping[str, Array]],
    edges: Table,
    targets: Sequence[str],
) -> dict[str, Array]:
    """Return the values of one graph by key, (rows, …) each."""
    values = {}
    for level, by_key in columns.items():
        rows = rows_of[level]
        for key, array in by_key.items():
            values[key] = array[rows]
            if key.startswith("graph/") and level != "graph":
                column = ", ".join(targets) if key == "graph/y" else key[6:]
                values[key] = _value_of_graph(edges, rows, array, name, column)
    return values


def _read_ends(edges: Table, params: GraphParams, *, alone: bool) -> tuple[tuple[str, str], Array]:
    """Return the names of the columns of sources and targets, and their ids, (2, E)."""
    ends_names = _columns_of_ends(edges, params, alone=alone)
    if alone:
        _check_ends_filled(edges, ends_names)
    columns_of_ends = [edges.ids(name) for name in ends_names]
    if any(column.dtype == object for column in columns_of_ends):
        columns_of_ends = [ids_as_texts(column) for column in columns_of_ends]
    ends = np.stack(columns_of_ends)
    if not edges.has_names and params.header is None:
        _check_first_line(edges, ends)
    return ends_names, ends


def _check_ends_filled(edges: Table, ends: tuple[str, str]) -> None:
    """Refuse rows without both ends in the only table, as programs write nodes among edges."""
    are_empty = edges.frame[[*ends]].isna().all(axis=1)
    if are_empty.any():
        raise edges.error_at(
            are_empty.argmax(),
            f"{ends[0]!r} and {ends[1]!r} are empty",
            "rows without ends may be nodes: write them into nodes.csv and the others into edges.csv, "
            "in one folder",
        )


def _columns_of_ends(edges: Table, params: GraphParams, *, alone: bool) -> tuple[str, str]:
    """Return the columns of the two ends of an edge; ask if none or several pairs have usual names."""
    given = (params.source, params.target)
    names = edges.names
    for key, name in zip(("source", "target"), given, strict=True):
        if name and name not in names:
            raise _unknown_end(edges, key, name, given)
    if all(given):
        return given
    if roles.SOURCE in names:
        return roles.SOURCE, roles.TARGET
    # The index of pandas is no end.
    first = edges.names[0]
    if first.startswith(UNNAMED) and counts_from_zero(edges.frame[first]):
        names = names[1:]
    pairs = [pair for pair in roles.pairs_of_ends(names) if _fits_given_ends(pair, given)]
    if len(pairs) == 1:
        return pairs[0]
    if alone and not pairs and not any(given):
        _check_no_molecules(edges)
    left = [name for name in names if name not in params.label]
    if not pairs and not any(given) and len(left) == 1 and len(names) == 2:
        raise DamagedInput(
            f"{edges.name} has no edges: beside the label, {left[0]!r} is its only column.",
            next=f"if it has SMILES: --set smiles={shlex.quote(left[0])}",
        )
    if not pairs and not any(given) and (len(names) == 2 or not edges.has_names):
        _check_unnamed_columns(edges, params)
        return names[0], names[1]

    ids = roles.matching_names(names, roles.NODE_IDS)
    if alone and not pairs and not any(given) and ids:
        raise DamagedInput(
            f"{edges.name} has ids in {ids[0]!r} and no ends of edges: it may be a table of nodes, and its "
            "table of edges is missing.",
            expected="a folder with nodes.csv and edges.csv, which has the columns source and target",
            found=edges.column_list,
            next="--archive FOLDER with both; if it is a table of edges, --set source=COLUMN --set target=COLUMN",
        )
    guess = pairs[0] if pairs else _likely_ends(edges, names, given)
    quantity = "several pairs of" if pairs else "no"
    remedy = f"if these are the ends: {_options_of_ends(guess)}"
    graph = _likely_graph_column(edges, guess)
    if graph:
        remedy += f", and --set graph={shlex.quote(graph)} if it names the graph of a row"
    if not pairs and _are_of_two_kinds(edges, guess):
        # Node 3 of the one kind would be node 3 of the other.
        first = guess[0]
        remedy = (
            f"{guess[0]} and {guess[1]} may count two kinds of nodes: write different ids, in pandas "
            f"table[{first!r}] = {first[:1]!r} + table[{first!r}].astype(str); then, or if they are of one "
            f"kind, {_options_of_ends(guess)}"
        )
    raise DamagedInput(
        f"{edges.name} has {quantity} columns called as the ends of an edge, such as source and target.",
        found=edges.column_list,
        next=remedy,
    )


def _are_of_two_kinds(edges: Table, ends: tuple[str, str]) -> bool:
    """True for columns such as user_id and item_id, which have values in common."""
    names = [roles.normalized_name(end) for end in ends]
    if not all(name.endswith("id") for name in names):
        return False
    return bool(edges.frame[ends[0]].isin(edges.frame[ends[1]]).any())


def _check_no_molecules(table: Table) -> None:
    """Refuse a table of which a column looks like SMILES: letters of atoms, bonds and rings."""
    for name in table.names:
        first = table.frame[name].dropna().map(str)[:_LOOKED_AT]
        are_letters = len(first) and first.str.fullmatch(_SMILES_LETTERS).all()
        if are_letters and first.str.contains(_SMILES_BOND).any():
            raise DamagedInput(
                f"{table.name} has no edges: {name!r} may have SMILES, such as {first.iloc[0][:40]}.",
                expected="a table of edges: if it is one, add --set source=COLUMN --set target=COLUMN",
                found=table.column_list,
                next=f"--set smiles={shlex.quote(name)}",
            )


def _likely_graph_column(edges: Table, ends: tuple[str, str]) -> str:
    """Return a column of ids that repeat, without which edges occur again; empty if there is none."""
    frame = edges.frame
    if not frame.duplicated([*ends]).any():
        return ""
    for name in edges.names:
        is_id = name not in ends and roles.normalized_name(name).endswith("id")
        if is_id and not frame[name].is_unique and not frame.duplicated([*ends, name]).any():
            return name
    return ""


def _likely_ends(edges: Table, names: Sequence[str], given: tuple[str, str]) -> tuple[str, str]:
    """Return the given ends, or else columns that may be ends: columns of fractions hold no ids."""
    likely = [name for name in names if edges.frame[name].dtype.kind != "f"]
    alike = [pair for pair in pairwise(likely) if _are_alike(*pair)]
    if alike and not any(given):
        return alike[0]
    likely = [name for name in (likely if len(likely) > 1 else names) if name not in given]
    return given[0] or likely[0], given[1] or likely[-1 if given[0] else 1]


def _are_alike(first: str, second: str) -> bool:
    """True for names such as roi_a and roi_b, or stop_from and stop_to."""
    pairs = zip(first, second, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return shared >= 3 and max(len(first), len(second)) - shared <= 6


def _options_of_ends(ends: tuple[str, str]) -> str:
    return f"--set source={shlex.quote(ends[0])} --set target={shlex.quote(ends[1])}"


def _unknown_end(edges: Table, key: str, name: str, given: tuple[str, str]) -> UsageError:
    """Return the error for a given end that is no column; it advises two columns that exist."""
    existing = cast(tuple[str, str], tuple(end if end in edges.names else "" for end in given))
    pairs = [pair for pair in roles.pairs_of_ends(edges.names) if _fits_given_ends(pair, existing)]
    error = unknown_column([edges], key, name, edges.names)
    if error.correction is None and len(edges.names) > 1:
        ends = pairs[0] if pairs else _likely_ends(edges, edges.names, existing)
        error.next = f"if these are the ends: {_options_of_ends(ends)}"
    return error


def _fits_given_ends(pair: tuple[str, str], given: tuple[str, str]) -> bool:
    return all(not name or name == end for name, end in zip(given, pair, strict=True))


def _check_first_line(edges: Table, ends: Array) -> None:
    """Refuse a first line that counts the nodes and edges behind it, as some programs write it."""
    first, others = ends[:, 0], ends[:, 1:]
    if ends.dtype == object or others.shape[1] == 0 or first[1] != others.shape[1]:
        return
    if first[0] > others.max() - others.min():
        raise edges.error_at(
            0,
            f"{first[0]} {first[1]} may be the numbers of nodes and edges, as {first[1]} lines follow",
            "--set header=yes leaves the line out; --set header=no, if it is an edge",
        )


def _check_unnamed_columns(edges: Table, params: GraphParams) -> None:
    """Refuse more than three columns without names: an adjacency list or a matrix looks the same."""
    if len(edges.names) <= 3 or edges.has_names or params.feature or params.ignore:
        return
    raise DamagedInput(
        f"{edges.name} has {len(edges.names)} columns and no names.",
        expected="two ids of nodes and at most a weight, or names in the first line",
        next=f"{_options_of_ends((edges.names[0], edges.names[1]))}, if these are ids; a matrix: "
        "scipy.io.mmwrite('a.mtx', scipy.sparse.coo_array(matrix))",
    )


def _graph_column(table: Table, level: Level, params: GraphParams) -> str:
    """Return the column with the graph of each row; empty if there is none."""
    names = [name for name in table.names if name not in {*params.feature, *params.ignore}]
    for name in (params.graph, roles.GRAPH):
        if name and name in table.names:
            return name
    if params.graph:
        return ""
    usual = roles.matching_names(names, roles.GRAPH_IDS)
    if not usual and level == "graph":
        usual = roles.matching_names(names, roles.NODE_IDS)
    if len(usual) > 1:
        raise DamagedInput(
            f"{table.name} has several columns that may name the graph of a row: {', '.join(usual)}.",
            next=f"--set graph={shlex.quote(usual[0])}, if it is this one",
        )
    return usual[0] if usual else ""


def _id_column(
    nodes: Table, ends: Array, params: GraphParams, notices: Notices, *, several: bool
) -> str:
    """Return the column with the ids of the nodes; empty if nodes are numbered by row.

    It is the one that is called id, node or name, or whose values are not 0 … n − 1, and that has
    the ids of all edges.
    """
    if params.node == "none":
        return ""
    if params.node or roles.NODE in nodes.names:
        name = params.node or roles.NODE
        if name not in nodes.names:
            usual = roles.matching_names(nodes.names, roles.NODE_IDS)
            raise unknown_column([nodes], "node", name, [*usual, *nodes.names])
        return name
    free = [name for name in nodes.names if name not in {*params.feature, *params.ignore}]
    usual = roles.matching_names(free, roles.NODE_IDS)
    if several:
        if len(usual) > 1:
            _ask_for_ids(nodes, usual, notices)
        return usual[0] if usual else ""

    # The ids of the edges decide in a single graph.
    ids = pd.unique(ends.reshape(-1))
    holding = [name for name in free if len(ids) and _has_all_ids(nodes, name, ids)]
    sure = [name for name in holding if name in usual]
    if not sure:
        count = len(nodes.frame)
        sure = [name for name in holding if not _is_permutation(nodes.frame[name], count)]
    if len(sure) > 1:
        _ask_for_ids(nodes, sure, notices)
    if sure:
        return sure[0]
    in_order = nodes.frame.index
    doubtful = [name for name in holding if not (nodes.frame[name] == in_order).all()]
    is_numbered = ends.dtype != object and bool(
        ends.size == 0 or (ends.min() >= 0 and ends.max() < len(nodes.frame))
    )
    if is_numbered and not doubtful and not usual:
        return ""
    if doubtful:
        _ask_for_ids(nodes, doubtful, notices)
        return doubtful[0]
    if usual and not is_numbered:
        return usual[0]  # the error names the line of an end that is not in this column
    if usual:
        _check_ids(nodes, usual[0], ids)
    if not usual:
        # The column with most of these ids: an end that it lacks is named with its line.
        known = {
            name: len({*ids_as_texts(ids)} & {*ids_as_texts(nodes.frame[name].to_numpy())})
            for name in free
        }
        likely = max(known, key=known.__getitem__, default="")
        return likely if likely and known[likely] and not is_numbered else ""
    raise DamagedInput(
        f"{nodes.name} has ids in {usual[0]!r}, which are not those of the edges.",
        found=f"edges of {_show_ids(ids)}; {usual[0]} of {_show_ids(nodes.frame[usual[0]].to_numpy())}",
        next="--set node=none, if the edges number the rows of the nodes from 0",
    )


def _check_ids(nodes: Table, name: str, ids: Array) -> None:
    """Refuse an empty cell or a repeated value in a column that has the ids of all ends."""
    values = nodes.frame[name].dropna()
    if values.dtype.kind == "f" and (values % 1 == 0).all():  # integers next to an empty cell
        values = values.astype(np.int64)
    if not {*ids_as_texts(ids)} <= {*ids_as_texts(values.to_numpy())}:
        return
    nodes.ids(name)
    repeated = nodes.frame[name].duplicated()
    if repeated.any():
        row = int(repeated.argmax())
        problem = f"the node {nodes.frame[name][row]} occurs twice"
        hint = "remove one of the lines; --set node=none, if the edges number the rows from 0"
        raise nodes.error_at(row, problem, hint)


def _show_ids(values: Array) -> str:
    return ", ".join(map(str, values[:3])) + (", …" if len(values) > 3 else "")


def _ask_for_ids(nodes: Table, names: Sequence[str], notices: Notices) -> None:
    """Ask which column has the ids of the nodes."""
    option = f"--set node={shlex.quote(names[0])}"
    notices.questions[
        f"{nodes.name}: the ids of the edges may be those in {', '.join(names)}, or the numbers of the rows "
        f"from 0: {option} or --set node=none"
    ] = option


def _has_all_ids(nodes: Table, name: str, ids: Array) -> bool:
    """True if a column has all ids, each in one row."""
    values = nodes.frame[name]
    if values.dtype.kind == "f" or values.isna().any() or not values.is_unique:
        return False
    if len(ids) > len(values) or values.isin(NO_IDS).any():
        return False
    known = nodes.ids(name)
    if known.dtype != ids.dtype:
        known = ids_as_texts(known)
        ids = ids_as_texts(ids)
    return bool(pd.Index(ids).isin(known).all())


def _is_permutation(values: pd.Series, count: int) -> bool:
    if values.dtype.kind not in "iu":
        return False
    return bool((np.sort(values.to_numpy()) == np.arange(count)).all())


def _undirected_rows(edges: Table, used: dict[str, Use]) -> Array | None:
    """Return True for edges that a reader or Gephi's column ``Type`` calls undirected; else None."""
    if roles.UNDIRECTED in edges.names:
        used[roles.UNDIRECTED] = "direction"
        return edges.frame[roles.UNDIRECTED].to_numpy(bool)
    for name in roles.matching_names(edges.names, [roles.DIRECTION]):
        words = edges.frame[name].map(lambda value: str(value).strip().casefold())
        if name not in used and set(words) <= {"directed", "undirected"}:
            used[name] = "direction"
            return (words == "undirected").to_numpy()
    return None


def _with_undirected_reverses(
    index: I64, values: dict[str, Array], undirected: Array
) -> tuple[I64, dict[str, Array]]:
    """Return a graph with the reverse of each undirected edge behind it, unless it is a loop."""
    is_doubled = undirected & (index[0] != index[1])
    order = np.repeat(np.arange(index.shape[1]), 1 + is_doubled)
    is_reverse = np.zeros(len(order), bool)
    is_reverse[1:] = order[1:] == order[:-1]
    doubled = np.where(is_reverse, index[::-1, order], index[:, order])
    values = {
        key: array[order] if key.startswith("edge/") else array for key, array in values.items()
    }
    return doubled, values


def _value_of_graph(edges: Table, rows: I64, array: Array, graph: str, name: str) -> Array:
    """Return the label or part of a graph, which is in each row of its edges."""
    if not len(rows):
        raise DamagedInput(
            f"The graph {graph!r} has no edge that gives its {name}.",
            next=f"put {name} into graphs.csv, a row a graph",
        )
    differs = (array[rows] != array[rows[0]]) & (array[rows] == array[rows])
    if differs.any():
        problem = f"{name} differs from that of the first edge of its graph"
        hint = "put it into graphs.csv; edges have no labels, so a column of edges is a feature"
        raise edges.error_at(rows[differs.argmax()], problem, hint)
    return array[rows[:1]]


def _warn_of_notes(nodes: Table, name: str, ends: Array, notices: Notices) -> None:
    """Warn of last rows of a file that have an id alone, which no edge has, such as a source of the data."""
    first = max(len(nodes.frame) - _LAST_ROWS, 0)
    others = nodes.frame[first:].drop(columns=name, errors="ignore")
    if not nodes.text or not name or others.empty or not others.iloc[-1].isna().all():
        return
    ids = ids_as_texts(nodes.ids(name))
    joined = set(ids_as_texts(ends.reshape(-1)).tolist())
    for row in range(len(ids) - 1, first, -1):
        if not others.iloc[row - first].isna().all():
            break
        if ids[row] not in joined:
            notices.warnings.append(
                f"{nodes.location(row)}: {str(ids[row])[:80]!r} has no other value and no edge; "
                "if it is a note and no node, remove the line"
            )
