"""Roles of tables: which one has the nodes, the edges and the graphs.

1. A description, or ``source`` and ``target``, decides.
2. The table of nodes has a column of different ids that two columns of the table of edges cover, and
   the table of graphs has one that columns of both cover: :mod:`.shared_ids`. No edge joins two graphs.
3. Where the values fit several tables, or none, the known names of columns and the words in the
   names of files decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.roles.end_columns import (
    are_similar,
    ends_setting,
    find_end_columns,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.id_columns import find_graph_column
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import ValuesOfTables
from kmip_data.pipelines.datasets.graphs.tables.roles.joined_files import (
    FILE_COLUMN,
    are_graph_files,
    join_columns,
    names_graph_files,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.shared_ids import (
    EndColumns,
    SharedIds,
    covered_columns,
    free_columns,
    graph_columns_by_name,
    graph_links,
    shared_ids,
)
from kmip_data.pipelines.datasets.graphs.tables.table import Table

#: Fraction of the best pair's share of ids from which another pair is asked about.
_SIMILAR_FRACTION = 0.5


@dataclass(frozen=True)
class ColumnsOfIds:
    """Columns with the ids of edges and graphs."""

    ends: EndColumns
    graphs: Mapping[Level, str]  #: column with the graph of each row; empty for none
    nodes: tuple[str, ...]  #: columns of the nodes with nearly all ids of the ends, likeliest first


def assign_levels(
    tables: Sequence[Table], options: ReadOptions, notices: Notices, values: ValuesOfTables
) -> dict[Level, Table]:
    """Return the tables of graphs, nodes and edges; note the others as left out.

    Raises ``DamagedInput`` if no table, or more than one, may have the edges.
    """
    if len(tables) == 1:
        return {"edge": tables[0]}
    params = options.params
    levels = _described_levels(tables, options)
    if "edge" not in levels:
        tables = _join_tables_of_nodes(tables, params, values, notices)
        shared = _best_pair(tables, params, values, notices)
        if shared is not None:
            levels = {"node": shared.nodes, "edge": shared.edges}
        else:
            levels = _levels_by_name(tables, params, values)
        others = [table for table in tables if table not in levels.values()]
        graphs = _table_of_graphs(others, levels, shared, params, values)
        if graphs is not None:
            levels["graph"] = graphs
    for table in tables:
        if all(table is not other for other in levels.values()):
            notices.ignored[table.name] = "no column of it has ids of the other tables"
    return {level: levels[level] for level in known_names.LEVEL_WORDS if level in levels}


def _described_levels(tables: Sequence[Table], options: ReadOptions) -> dict[Level, Table]:
    """Return the tables whose names a description has, by level."""
    described = {} if options.described is None else options.described.tables
    return {described[table.name]: table for table in tables if table.name in described}


def _join_tables_of_nodes(
    tables: Sequence[Table], params: GraphParams, values: ValuesOfTables, notices: Notices
) -> Sequence[Table]:
    """Return the tables; of two with the same ids, which the same ends have, the columns are joined."""
    pairs: dict[tuple[Table, EndColumns], SharedIds] = {}
    for other in _edge_and_node_pairs(tables, params, values):
        ends = other.likeliest_ends()
        pair = pairs.setdefault((other.edges, ends), other)
        ids = values.of(pair.nodes, pair.id_column)
        other_ids = values.of(other.nodes, other.id_column)
        if pair.nodes is other.nodes or ids is None or other_ids is None:
            continue
        rows = ids.positions_in(other_ids)
        if len(rows) == len(other.nodes.frame) and (rows >= 0).all():
            _refuse_two_kinds_of_nodes(tables, pair.edges, ends, values)
            names = f"{pair.nodes.name} and {other.nodes.name}"
            notices.warnings.append(
                f"{names} have the same ids, and are read as one table of nodes"
            )
            joined = join_columns(pair.nodes, other.nodes, rows, other.id_column)
            others = [table for table in tables if table not in (pair.nodes, other.nodes)]
            return [joined, *others]
    return tables


def _edge_and_node_pairs(
    tables: Sequence[Table], params: GraphParams, values: ValuesOfTables
) -> list[SharedIds]:
    """Return the readings of two tables as edges and nodes by their values."""
    pairs: list[SharedIds] = []
    for edges in tables:
        if not {params.source, params.target} - {""} <= {*edges.column_names}:
            continue
        for nodes in tables:
            if nodes is not edges and not names_graph_files(nodes, edges, params, values):
                others = [table for table in tables if table not in (edges, nodes)]
                links = graph_links(edges, nodes, others, params, values)
                pairs += shared_ids(edges, nodes, links, params, values)
    return pairs


def _best_pair(
    tables: Sequence[Table], params: GraphParams, values: ValuesOfTables, notices: Notices
) -> SharedIds | None:
    """Return the tables of edges and nodes by their values; ask if other tables fit as well."""
    pairs = _edge_and_node_pairs(tables, params, values)
    # Values decide after names: a table with ids that another one refers to has nodes.
    node_tables = {pair.nodes for pair in pairs}
    best = max(
        pairs,
        key=lambda pair: (_rank_of_names(pair), pair.edges not in node_tables, _rank(pair)),
        default=None,
    )
    for edges in tables:
        given_ends = (params.source, params.target)
        if best is None:
            _refuse_two_kinds_of_nodes(tables, edges, edges.column_names, values)
        elif edges is best.edges:
            _refuse_two_kinds_of_nodes(tables, edges, best.likeliest_ends(given_ends), values)
    if best is None:
        return None
    for rival in pairs:
        is_other = rival.edges is not best.edges or rival.nodes is not best.nodes
        is_similar = rival.fraction >= _SIMILAR_FRACTION * best.fraction
        if is_other and is_similar and _rank_of_names(rival) == _rank_of_names(best):
            readings = [
                f"{' and '.join(pair.likeliest_ends())} of {pair.edges.name} have ids of "
                f"{pair.nodes.name}"
                for pair in (best, rival)
            ]
            notices.questions[
                f"The ends of the edges may be two pairs: {', or '.join(readings)}"
            ] = ends_setting(best.likeliest_ends())
            break
    return best


def _refuse_two_kinds_of_nodes(
    tables: Sequence[Table], edges: Table, names: Sequence[str], values: ValuesOfTables
) -> None:
    """Refuse edges of which two columns have names and ids of two tables: user 1 is not film 1."""
    owners = {}
    for key in names:
        for nodes in tables:
            if nodes is edges or not values.unique_columns(
                nodes, [key][: key in nodes.column_names]
            ):
                continue
            if values.covers(nodes, [key], edges, [key]):
                owners[nodes] = key
    if len({*owners.values()}) < 2:
        return
    (first, source), (second, target) = [*owners.items()][:2]
    files = [first.name, second.name, edges.name]
    source, target = map(repr, (source, target))
    raise DamagedInput(
        f"{edges.name} joins two kinds of nodes: {source} of {first.name}, {target} of {second.name}.",
        steps="write them into one table with different ids, in Python: import pathlib, pandas; "
        f"a, b, e = map(pandas.read_csv, {files}); a['id'] = 'a' + a.pop({source}).astype(str); "
        f"b['id'] = 'b' + b.pop({target}).astype(str); "
        f"e.insert(0, 'source', 'a' + e.pop({source}).astype(str)); "
        f"e.insert(1, 'target', 'b' + e.pop({target}).astype(str)); "
        "pathlib.Path('joined').mkdir(); pandas.concat([a, b]).to_csv('joined/nodes.csv', index=False); "
        "e.to_csv('joined/edges.csv', index=False)",
    )


def _rank(pair: SharedIds) -> tuple[object, ...]:
    """Return the order of readings of tables: by known names, then by the share of ids."""
    is_known_id = bool(known_columns.matching_names([pair.id_column], known_names.NODE_ID_NAMES))
    has_all_ids = min(pair.rows) == len(pair.edges.frame)
    return (*_rank_of_names(pair), has_all_ids, pair.fraction, is_known_id)


def _rank_of_names(pair: SharedIds) -> tuple[object, ...]:
    has_known_ends = bool(known_columns.matching_end_pairs(pair.columns))
    words = (known_columns.level_from_name(pair.edges.name) == "edge") + (
        known_columns.level_from_name(pair.nodes.name) == "node"
    )
    ends = pair.likeliest_ends()
    has_named_ends = known_columns.names_give_direction(*ends) or are_similar(*ends)
    return has_known_ends, pair.graph_columns != ("", ""), words, has_named_ends


def _levels_by_name(
    tables: Sequence[Table], params: GraphParams, values: ValuesOfTables
) -> dict[Level, Table]:
    """Return the tables of edges and nodes by the names of their columns, then of their files."""
    given = {params.source, params.target} - {""}
    with_ends = [
        table
        for table in tables
        if (given and given <= {*table.column_names})
        or known_columns.matching_end_pairs(table.column_names)
        or known_columns.SOURCE_KEY in table.column_names
        or are_graph_files(table)
    ]
    by_word = [table for table in tables if known_columns.level_from_name(table.name) == "edge"]
    candidates = [table for table in by_word if table in with_ends] or with_ends or by_word
    if len(candidates) > 1:
        raise _two_tables_error("edge", candidates)
    if not candidates:
        found = [f"{table.name}: {table.column_list}" for table in tables]
        raise DamagedInput(
            "No table has two columns with the ids of another one, or with names of the ends of an edge.",
            found="; ".join(found)[:2_000],
            steps="name the columns with the ends of an edge as source and target",
        )
    edges = candidates[0]
    others = [table for table in tables if table is not edges]
    nodes = [table for table in others if known_columns.level_from_name(table.name) == "node"]
    if len(nodes) > 1:
        raise _two_tables_error("node", nodes)
    nodes = nodes or [
        table
        for table in others
        if known_columns.level_from_name(table.name) != "graph"
        and _has_a_row_for_each_id(table, edges, values)
    ]
    return {"node": nodes[0], "edge": edges} if len(nodes) == 1 else {"edge": edges}


def _has_a_row_for_each_id(table: Table, edges: Table, values: ValuesOfTables) -> bool:
    """True if the ends of edges are the numbers of all rows of a table, from 0 or from 1."""
    for pair in known_columns.matching_end_pairs(edges.column_names):
        columns = [values.of(edges, name) for name in pair]
        distinct = [ids.distinct for ids in columns if ids is not None and len(ids.distinct)]
        if len(distinct) == 2 and all(ids.dtype.kind == "i" for ids in distinct):
            ids = np.concatenate(distinct)
            rows = len(table.frame)
            return (ids.min(), ids.max()) in {(0, rows - 1), (1, rows)}
    return False


def _two_tables_error(level: Level, tables: Sequence[Table]) -> DamagedInput:
    return DamagedInput(
        f"Two files may be the table of {level}s: {', '.join(table.name for table in tables)}.",
        steps="copy the files of one graph into a folder, and use it as archive; several "
        f"types of {level}s are one table, with the type in a column and before each id: user:0",
    )


def _table_of_graphs(
    others: Sequence[Table],
    levels: Mapping[Level, Table],
    shared: SharedIds | None,
    params: GraphParams,
    values: ValuesOfTables,
) -> Table | None:
    """Return the table with a row for each graph; ``None`` if there is none."""
    by_value = [
        table
        for table in others
        if _graph_key(table, levels["edge"], shared, params, values) is not None
    ]
    by_word = [table for table in others if known_columns.level_from_name(table.name) == "graph"]
    by_name = [table for table in others if graph_columns_by_name(table, params)]
    candidates = by_value or by_word or (by_name if "edge" in levels else [])
    if len(candidates) > 1:
        raise _two_tables_error("graph", candidates)
    return candidates[0] if candidates else None


def _graph_key(
    table: Table,
    edges: Table,
    shared: SharedIds | None,
    params: GraphParams,
    values: ValuesOfTables,
) -> tuple[str, str, str] | None:
    """Return the column of different graphs, and the columns of edges and nodes that it covers.

    The column of the edges is empty if their ends give the graph. ``None`` if there is none, or if
    an edge joins two graphs. Without nodes, the table must have the names of files or the label.
    """
    if shared is None:
        has_label = not {*params.label}.isdisjoint(table.column_names) or bool(
            known_columns.matching_names(table.column_names, known_names.TABLE_LABELS)
        )
        for key in values.unique_columns(table, free_columns(table, params)):
            names = covered_columns(table, key, edges, params, values)
            # Numbers of files are often ids of nodes, too.
            if are_graph_files(edges) and FILE_COLUMN in names:
                return key, FILE_COLUMN, ""
            for name in names:
                if has_label or name == FILE_COLUMN:
                    return key, name, ""
        return None
    edge_column, node_column = shared.graph_columns
    keys = values.unique_columns(table, free_columns(table, params))
    if node_column:
        # Row numbers cover ids from 1 nearly, so the same name or the most ids decide.
        nodes = shared.nodes
        keys = [key for key in keys if values.covers(table, [key], nodes, [node_column])]
        count = {key: values.count_shared(nodes, node_column, table, key) for key in keys}
        best = max(keys, key=lambda key: (key == node_column, count[key]), default="")
        return (best, edge_column, node_column) if best else None
    for key in keys:
        for name in free_columns(shared.nodes, params):
            ids = values.of(shared.nodes, name)
            is_id = name == shared.id_column or ids is None or ids.is_unique
            if is_id or not values.covers(table, [key], shared.nodes, [name]):
                continue
            if not _joins_two_values(shared, name, values):
                return key, "", name
    return None


def _joins_two_values(shared: SharedIds, name: str, values: ValuesOfTables) -> bool:
    """True if an edge joins nodes with two values in the column ``name`` of the nodes."""
    ids = values.of(shared.nodes, shared.id_column)
    kinds = values.of(shared.nodes, name)
    columns = [values.of(shared.edges, end) for end in shared.likeliest_ends()]
    if ids is None or kinds is None or any(column is None for column in columns):
        return True
    row_of_id = np.full(len(ids.distinct) + 1, -1)
    row_of_id[ids.codes] = np.arange(len(ids.codes))
    first, second = (
        row_of_id[column.positions_in(ids)] for column in columns if column is not None
    )
    are_known = (first >= 0) & (second >= 0)
    return bool((kinds.codes[first] != kinds.codes[second])[are_known].any())


def find_columns(
    tables: Mapping[Level, Table],
    params: GraphParams,
    notices: Notices,
    values: ValuesOfTables | None,
    *,
    is_only_table: bool,
) -> ColumnsOfIds:
    """Return the columns with the ids of edges, graphs and nodes of tables with known levels."""
    values = values or ValuesOfTables()
    edges = tables["edge"]
    graphs = {level: find_graph_column(table, level, params) for level, table in tables.items()}
    pairs: list[SharedIds] = []
    nodes = tables.get("node")
    if nodes is not None and known_columns.NODE_KEY not in nodes.column_names:
        others = [tables["graph"]] if "graph" in tables else []
        links = graph_links(edges, nodes, others, params, values)
        pairs = sorted(shared_ids(edges, nodes, links, params, values), key=_rank, reverse=True)
    best = pairs[0] if pairs else None
    if "graph" in tables and not all(graphs.values()):
        keys = _graph_key(tables["graph"], edges, best, params, values)
        if keys is not None:
            graphs |= dict(zip(("graph", "edge", "node"), keys, strict=True))
    ends = find_end_columns(edges, best, params, notices, is_only_table=is_only_table)
    id_columns = [
        pair.id_column
        for pair in pairs
        if {*ends} <= {*pair.columns} and best and pair.graph_columns == best.graph_columns
    ]
    return ColumnsOfIds(ends, graphs, tuple(id_columns))
