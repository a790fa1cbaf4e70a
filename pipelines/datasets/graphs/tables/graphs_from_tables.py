"""Graphs from tables: a table of edges, alone or with tables of nodes and graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.columns.column_roles import Level, Numbering, Use
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import NODE_ID
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.columns import read_columns
from kmip_data.pipelines.datasets.graphs.tables.node_indices import (
    NodeIndices,
    are_row_numbers,
    encode_ids,
    index_ends,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.end_columns import (
    direction_of_edges,
    read_ends,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.id_columns import (
    find_node_id_column,
    first_row,
)
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import ValuesOfTables
from kmip_data.pipelines.datasets.graphs.tables.roles.table_roles import find_columns
from kmip_data.pipelines.datasets.graphs.tables.rows_by_graph import (
    match_graphs,
    rows_by_graph,
    take_rows,
)
from kmip_data.pipelines.datasets.graphs.tables.table import (
    Table,
    check_column_options,
    ids_as_strings,
)
from kmip_data.pipelines.formats.typed_rows import paged_copy
from kmip_data.text import count_with_noun

_REASON_OF_IDS = "stored only for a single graph; to use ids, copy them into another column"
_MAX_FOOTNOTE_ROWS = 20  #: rows at the end of a table of nodes that are checked for notes


def graphs_from_tables(
    tables: Mapping[Level, Table],
    options: ReadOptions,
    findings: Findings,
    *,
    values: ValuesOfTables | None = None,
    is_only_table: bool = False,
) -> Iterator[GraphRecord]:
    """Yield the graphs of tables, in the order of the first table; rows may be in any order.

    ``values`` are those that the roles of the tables were found by.
    ``is_only_table`` is True if the table of edges is the only file.
    """
    # 1. Columns of ids.
    params = options.params
    notices = findings.notices
    edges = tables["edge"]
    check_column_options([*tables.values()], options, left_out=notices.ignored)
    id_columns = find_columns(tables, params, notices, values, is_only_table=is_only_table)
    findings.tables.direction = direction_of_edges(id_columns.ends, params)
    graph_columns = id_columns.graphs
    ends = read_ends(edges, id_columns.ends, params, is_only_table=is_only_table)
    ends = paged_copy(ends, options.workdir)
    has_many_graphs = "graph" in tables or any(graph_columns.values())
    node_column = ""
    if "node" in tables:
        node_column = find_node_id_column(
            tables["node"], ends, id_columns.nodes, params, notices, has_many_graphs=has_many_graphs
        )
        findings.tables.numbering = _numbering(tables["node"], node_column, params)

    # 2. The other columns; all open questions are asked in one error.
    id_uses = _uses_of_ids(graph_columns, id_columns.ends, node_column)
    undirected = _undirected_rows(edges, id_uses["edge"])
    first_level = next(iter(tables))
    masks_are_flags = has_many_graphs and not _is_single_graph(tables, graph_columns)
    columns = {}
    for level, table in tables.items():
        columns[level] = read_columns(
            table,
            level,
            id_uses[level],
            options if level == "graph" else _without_features_of_graphs(options, tables),
            findings,
            masks_are_flags=masks_are_flags,
            # Without a table of graphs, rows of edges repeat the target of their graph.
            edges_have_targets=has_many_graphs and "graph" not in tables,
        )
    _ask_for_level_of_target(tables, options, findings)
    notices.raise_questions()

    # 3. Rows of each graph.
    groups = rows_by_graph(
        tables, graph_columns, node_column, ends, has_many_graphs=has_many_graphs
    )
    match_graphs(groups, tables, params, notices)
    nodes = None
    if "node" in tables:
        nodes = NodeIndices(
            tables["node"], edges, ends, node_column, groups["node"], first_row=first_row(params)
        )
        _warn_of_nodes(nodes, node_column, ends, notices)

    # 4. Graph by graph.
    targets = findings.attributes.component_names.get("y", ())
    dropped_edges = 0
    for name in groups[first_level]:
        rows = {level: group.get(name, np.empty(0, int)) for level, group in groups.items()}
        if nodes is None:
            index, ids = index_ends(take_rows(ends, rows["edge"], axis=1))
        else:
            if params.on_error == "skip":
                joining = nodes.edge_rows_between(rows["node"], rows["edge"])
                dropped_edges += len(rows["edge"]) - len(joining)
                rows["edge"] = joining
            index = nodes.edges_of_graph(rows["node"], rows["edge"])
            ids = take_rows(nodes.ids, rows["node"])
        arrays = _graph_values(name, rows, columns, edges, targets)
        if not are_row_numbers(ids):
            if len(groups[first_level]) == 1:
                arrays[NODE_ID] = encode_ids(ids, options)
            else:
                notices.ignored["ids of nodes"] = _REASON_OF_IDS
        if undirected is not None:
            index, arrays = _add_reverses_of_undirected(index, arrays, undirected[rows["edge"]])
        yield GraphRecord(key=name, num_nodes=len(ids), columns=arrays, edge_index=index)
    if dropped_edges:
        count = count_with_noun(dropped_edges, "edge")
        notices.ignored[f"rows of {edges.name}"] = f"{count} with an end that is not a node"


def _without_features_of_graphs(options: ReadOptions, tables: Mapping[Level, Table]) -> ReadOptions:
    """Return options whose ``feature`` has columns of nodes and edges alone, and restricts only these."""
    if "graph" not in tables:
        return options
    names = {name for level in tables if level != "graph" for name in tables[level].column_names}
    features = [name for name in options.params.feature if name in {*names, "none"}]
    return options.with_params(feature=tuple(features))


def _numbering(nodes: Table, node_column: str, params: GraphParams) -> Numbering | None:
    """Return the numbering of the rows; ``None`` if a column has ids, in all its cells."""
    if not node_column:
        return "rows-from-1" if first_row(params) else "none"
    if nodes.frame[node_column].isna().any():
        nodes.ids(node_column)  # An empty id is an error, before other cells are questions.
    return None


def _uses_of_ids(
    graph_columns: Mapping[Level, str], end_columns: Sequence[str], node_column: str
) -> dict[Level, dict[str, Use]]:
    """Return the columns of ids of each table, and what each identifies."""
    source, target = end_columns
    uses: dict[Level, dict[str, Use]] = {
        level: {column: "graph"} for level, column in graph_columns.items()
    }
    uses["edge"] |= {source: "source", target: "target"}
    if "node" in uses:
        uses["node"][node_column] = "id"
    return uses


def _is_single_graph(tables: Mapping[Level, Table], graph_columns: Mapping[Level, str]) -> bool:
    """True if all rows of the first table name the same graph."""
    level, table = next(iter(tables.items()))
    column = graph_columns[level]
    return bool(column) and table.frame[column].nunique(dropna=False) <= 1


def _ask_for_level_of_target(
    tables: Mapping[Level, Table], options: ReadOptions, findings: Findings
) -> None:
    """Add a question if nodes have a target, and graphs a column of classes that is no feature."""
    labels = findings.attributes.component_names.get("y", ())
    is_given = bool(options.params.label) or options.described is not None
    if is_given or not labels or findings.attributes.target_level != "node":
        return
    graphs = len(tables["graph"].frame) if "graph" in tables else 0
    candidates = [
        role.column
        for role in findings.roles
        if role.level == "graph" and role.use == "ignored" and 1 < role.distinct <= graphs / 2
    ]
    if candidates:
        offered = [Setting(label=name) for name in [*candidates, *labels]]
        question = (
            f"The target may be {', '.join(candidates)} of the graphs, or {', '.join(labels)} of "
            f"their nodes: {' or '.join(map(str, offered))}"
        )
        findings.notices.questions[question] = offered[0]


def _graph_values(
    name: str,
    rows_by_level: Mapping[Level, I64],
    columns: Mapping[Level, Mapping[str, Array]],
    edges: Table,
    targets: Sequence[str],
) -> dict[str, Array]:
    """Return the values of one graph by key, (rows, …) each."""
    values = {}
    for level, by_key in columns.items():
        rows = rows_by_level[level]
        for key, array in by_key.items():
            values[key] = take_rows(array, rows)
            if key.startswith("graph/") and level != "graph":
                column = ", ".join(targets) if key == "graph/y" else key.removeprefix("graph/")
                values[key] = _value_repeated_by_edges(edges, rows, array, name, column)
    return values


def _undirected_rows(edges: Table, uses: dict[str, Use]) -> Array | None:
    """Return a mask of undirected edges if a reader or Gephi's column ``Type`` gives directions.

    Adds the column of directions to ``uses``.
    """
    if known_columns.UNDIRECTED_KEY in edges.column_names:
        uses[known_columns.UNDIRECTED_KEY] = "direction"
        return edges.frame[known_columns.UNDIRECTED_KEY].to_numpy(bool)
    for name in known_columns.matching_names(edges.column_names, [known_names.DIRECTION_NAME]):
        words = edges.frame[name].map(lambda value: str(value).strip().casefold())
        if name not in uses and set(words) <= {"directed", "undirected"}:
            uses[name] = "direction"
            return (words == "undirected").to_numpy()
    return None


def _add_reverses_of_undirected(
    index: I64, values: dict[str, Array], undirected: Array
) -> tuple[I64, dict[str, Array]]:
    """Insert the reverse of each ``undirected`` edge right after it, unless it is a self-loop."""
    is_doubled = undirected & (index[0] != index[1])
    order = np.repeat(np.arange(index.shape[1]), 1 + is_doubled)
    is_reverse = np.zeros(len(order), bool)
    is_reverse[1:] = order[1:] == order[:-1]
    doubled = np.where(is_reverse, index[::-1, order], index[:, order])
    values = {
        key: array[order] if key.startswith("edge/") else array for key, array in values.items()
    }
    return doubled, values


def _value_repeated_by_edges(edges: Table, rows: I64, array: Array, graph: str, name: str) -> Array:
    """Return the label or part of a graph, which all its edges must repeat."""
    if not len(rows):
        raise DamagedInput(
            f"The graph {graph!r} has no edge that gives its {name}.",
            steps="put it into graphs.csv, a row a graph",
        )
    differs = (array[rows] != array[rows[0]]) & (array[rows] == array[rows])
    if differs.any():
        problem = f"{name} differs from the first edge of its graph"
        remedy = "put it into graphs.csv; edges have no labels, so a column of edges is a feature"
        raise edges.error_at(rows[differs.argmax()], problem, remedy)
    return array[rows[:1]]


def _warn_of_nodes(indices: NodeIndices, id_column: str, ends: Array, notices: Notices) -> None:
    """Warn of lost zeros, and of trailing rows with an id that no edge has, and nothing else: notes."""
    notices.warnings += indices.warnings
    nodes = indices.table
    first = max(len(nodes.frame) - _MAX_FOOTNOTE_ROWS, 0)
    others = nodes.frame[first:].drop(columns=id_column, errors="ignore")
    if not nodes.text or not id_column or others.empty or not others.iloc[-1].isna().all():
        return
    ids = ids_as_strings(nodes.ids(id_column))
    ids_of_ends = set(ids_as_strings(ends.reshape(-1)).tolist())
    for row in range(len(ids) - 1, first, -1):
        if not others.iloc[row - first].isna().all():
            break
        if ids[row] not in ids_of_ends:
            notices.warnings.append(
                f"{nodes.location(row)}: {str(ids[row])[:80]!r} has no other value and no edge; "
                "if it is a note and not a node, remove the line"
            )
