"""Graphs from tables whose roles are known: node indices, rows of each graph, and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import I64, Array, Bools
from kmip_data.columns.column_roles import Level, Use
from kmip_data.errors import DamagedInput, Setting, Step
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import NODE_ID
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Direction, Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.columns.values import read_columns
from kmip_data.pipelines.own.ids import positions_in, repeats, row_numbers
from kmip_data.pipelines.own.roles import Roles
from kmip_data.pipelines.own.table import Table
from kmip_data.pipelines.own_pipeline import KEY_LENGTH, escaped_key

UNDIRECTED = "\0undirected"  #: column that a reader adds: True for an undirected edge
_SINGLE = "0"  #: name of the only graph


class Graphs(NamedTuple):
    """Names of the graphs in order, and the graph of each row by level."""

    names: list[str]
    codes: dict[Level, I64]

    def rows(self, level: Level) -> list[Any]:
        """Return the rows of each graph at one level, ascending."""
        codes = self.codes[level]
        if len(self.names) == 1 and not codes.any():  # without a copy
            return [slice(None)]
        order = np.argsort(codes, kind="stable")
        order = order[np.searchsorted(codes[order], 0) :]  # without rows of no graph
        counts = np.bincount(codes[order], minlength=len(self.names))
        return np.split(order, np.cumsum(counts)[:-1])


def graphs_of_tables(
    roles: Roles, options: ReadOptions, findings: Findings
) -> Iterator[GraphRecord]:
    """Yield the graphs in the order of the first table; rows may be in any order."""
    notices = findings.notices
    tables = roles.tables
    edges, nodes = roles.edges, roles.nodes
    findings.tables.direction = _direction(roles, options)
    has_ids = roles.first_row is None
    if not has_ids:
        findings.tables.numbering = "rows-from-1" if roles.first_row else "none"

    # 1. The columns that are no ids; all open questions are asked in one error.
    uses = _uses_of_ids(roles)
    narrowed = _without_features_of_graphs(options, tables)
    undirected = _undirected_rows(edges, uses["edge"])
    columns = {
        level: read_columns(
            table,
            level,
            uses[level],
            options if level == "graph" else narrowed,
            findings,
            masks_are_flags=not roles.have_one_graph,
            edges_have_targets=any(roles.graph_columns.values()) and "graph" not in tables,
        )
        for level, table in tables.items()
    }
    _ask_for_level_of_target(tables, options, findings)
    notices.raise_questions()

    # 2. The graph of each row, and the nodes at the ends of each edge.
    ends = [_ids(roles, edges, roles.ends[0]), _ids(roles, edges, roles.ends[1])]
    ids = _node_ids(roles)
    graphs = _graphs_of_rows(roles, ids, ends[0], options, findings)
    if roles.first_row is not None and len(graphs.names) > 1:
        ids = _rows_within_graphs(graphs, roles.first_row, ends) or ids
    if ids is None:
        graphs, ids, index = _nodes_of_ends(graphs, ends)
    else:
        index = _index_of_ends(roles, graphs, ids, ends, options, findings)

    if not len(ids):
        raise DamagedInput(f"{edges.name} has no row.", steps="write a row for each edge")

    # 3. Graph by graph.
    del ends, roles, tables, nodes
    edges = replace(edges, columns={})
    rows_by_level = {level: graphs.rows(level) for level in graphs.codes}
    place = np.empty(len(ids), np.int64)  # of each node within its graph
    stores_ids = has_ids and len(graphs.names) == 1
    if has_ids and len(graphs.names) > 1:
        notices.ignored["ids of nodes"] = (
            "stored only for a single graph; to use ids, copy them into another column"
        )
    for number, name in enumerate(graphs.names):
        rows = {level: rows[number] for level, rows in rows_by_level.items()}
        count = len(place[rows["node"]])
        place[rows["node"]] = np.arange(count)
        values = {}
        for level, by_key in columns.items():
            for key, array in by_key.items():
                values[key] = array[rows[level]]
                if key.startswith("graph/") and level == "edge":
                    values[key] = _value_of_all(edges, rows[level], values[key], name, key)
        edge_index = index[:, rows["edge"]]
        if count < len(place):
            edge_index = place[edge_index]
        if stores_ids:
            values[NODE_ID] = _stored_ids(ids, options)
        if undirected is not None:
            edge_index, values = _with_reverses(edge_index, values, undirected[rows["edge"]])
        yield GraphRecord(key=name, num_nodes=count, columns=values, edge_index=edge_index)


def _without_features_of_graphs(options: ReadOptions, tables: Mapping[Level, Table]) -> ReadOptions:
    """Return options whose ``feature`` has columns of nodes and edges alone, and restricts only these."""
    if "graph" not in tables:
        return options
    existing = {name for level, t in tables.items() if level != "graph" for name in t.column_names}
    kept = [name for name in options.params.feature if name in {*existing, "none"}]
    return options.with_params(feature=tuple(kept))


def _ask_for_level_of_target(
    tables: Mapping[Level, Table], options: ReadOptions, findings: Findings
) -> None:
    """Ask for the target if nodes have one, and graphs a column of classes that is no feature."""
    labels = findings.attributes.component_names.get("y", ())
    is_given = bool(options.params.label) or options.described is not None
    if (
        is_given
        or not labels
        or findings.attributes.target_level != "node"
        or "graph" not in tables
    ):
        return
    candidates = [
        role.column
        for role in findings.roles
        if role.level == "graph"
        and role.use == "ignored"
        and 1 < role.distinct <= tables["graph"].rows / 2
    ]
    if candidates:
        offered = [Setting(label=name) for name in [*candidates, *labels]]
        question = (
            f"the target may be {', '.join(candidates)} of the graphs, or {', '.join(labels)} of "
            f"their nodes: {' or '.join(map(str, offered))}"
        )
        findings.notices.questions[question] = offered[0]


def _uses_of_ids(roles: Roles) -> dict[Level, dict[str, Use]]:
    """Return the columns of ids of each table, and what each identifies."""
    uses: dict[Level, dict[str, Use]] = {
        level: {column: "graph" for column in [roles.graph_columns.get(level, "")] if column}
        for level in roles.tables
    }
    uses["edge"] |= {roles.ends[0]: "source", roles.ends[1]: "target"}
    if roles.nodes is not None and roles.first_row is None:
        uses["node"][roles.node] = "id"
    return uses


def _direction(roles: Roles, options: ReadOptions) -> Direction | None:
    """Return the columns of sources and targets for the summary; ``None`` if a reader made them."""
    source, target = roles.ends
    if source.startswith("\0"):
        return None
    params = options.params
    is_certain = bool(params.source or params.target) or names.tells_direction(source, target)
    is_certain |= bool(names.end_pairs(roles.ends))
    swap = Setting(source=target, target=source)
    return Direction(
        f"from {source!r} to {target!r}", "" if is_certain else f"by position; to swap: {swap}"
    )


def _ids(roles: Roles, table: Table, name: str) -> pa.Array:
    """Return the ids in a column; refuse missing ones."""
    cells = roles.ids.of(table, name).cells
    if cells.null_count:
        row = int(cells.is_null().to_numpy(zero_copy_only=False).argmax())
        text = table.columns[name][row].as_py()
        problem = f"{name!r} is {'empty' if text is None else repr(text)}"
        raise table.error_at(row, problem, "fill in the id, or remove the line")
    return cells


def _node_ids(roles: Roles) -> pa.Array | None:
    """Return the ids of the nodes (N,); ``None`` without a table of nodes."""
    if roles.nodes is None:
        return None
    if roles.first_row is None:
        return _ids(roles, roles.nodes, roles.node)
    return row_numbers(roles.nodes.rows, roles.first_row)


def _rows_within_graphs(graphs: Graphs, first: int, ends: list[pa.Array]) -> pa.Array | None:
    """Return the number of each node's row within its graph; ``None`` if an end is beyond its graph."""
    rows = graphs.rows("node")
    sizes = np.bincount(graphs.codes["node"], minlength=len(rows))
    for end in ends:
        if (end.to_numpy(zero_copy_only=False) >= sizes[graphs.codes["edge"]] + first).any():
            return None
    numbers = np.empty(len(graphs.codes["node"]), np.int64)
    for of_graph, size in zip(rows, sizes, strict=True):
        numbers[of_graph] = np.arange(first, first + size)
    return pa.array(numbers)


def _graphs_of_rows(
    roles: Roles, ids: pa.Array | None, sources: pa.Array, options: ReadOptions, findings: Findings
) -> Graphs:
    """Return the graph of each row of the tables."""
    tables = roles.tables
    columns = roles.graph_columns
    if not any(columns.values()):
        return Graphs([_SINGLE], {level: np.zeros(t.rows, np.int64) for level, t in tables.items()})
    first = next(iter(tables))
    cells = {level: _ids(roles, tables[level], name) for level, name in columns.items() if name}
    distinct = pc.unique(cells[first])
    if first == "graph" and len(distinct) < tables[first].rows:
        row = int(np.flatnonzero(repeats(cells[first]))[0])
        raise tables[first].error_at(
            row, f"the graph {cells[first][row].as_py()!r} occurs twice", "remove one of the lines"
        )
    codes = {level: positions_in(distinct, values) for level, values in cells.items()}
    if "edge" not in codes and ids is not None:  # the graph of the source
        at = positions_in(ids, sources)
        codes["edge"] = np.where(at >= 0, codes["node"][at], 0)
    found = [*map(str, distinct.to_pylist())]
    for level, table in tables.items():
        if level not in codes:
            raise DamagedInput(
                f"{table.name} has no column with the graph of each row.",
                found=table.column_list,
                steps="name it as graph, with the same name in all tables",
            )
        unknown = codes[level] < 0
        if unknown.any():
            row = int(unknown.argmax())
            name = cells[level][row].as_py()
            problem = f"the graph {name!r} is not in {tables[first].name}"
            _refuse_or_skip(table, row, problem, int(unknown.sum()), options, findings)
    with_nodes = codes["node" if "node" in codes else "edge"]
    empty = np.setdiff1d(np.arange(len(found)), with_nodes)
    if len(empty) and first == "graph":
        problem = f"the graph {found[empty[0]]!r} has no row in the other tables"
        _refuse_or_skip(tables[first], int(empty[0]), problem, len(empty), options, findings)
        keep = np.setdiff1d(np.arange(len(found)), empty)
        renumbered = np.full(len(found) + 1, -1)
        renumbered[keep] = np.arange(len(keep))
        codes = {level: renumbered[values] for level, values in codes.items()}
        found = [found[graph] for graph in keep]
    return Graphs(found, codes)


def _refuse_or_skip(
    table: Table, row: int, problem: str, count: int, options: ReadOptions, findings: Findings
) -> None:
    """Note rows that are left out if ``on_error`` is skip, the first of them in ``row``; refuse otherwise."""
    if count > 1:
        problem += f", as are {count - 1:,} others"
    if options.params.on_error != "skip":
        steps: list[Step] = ["correct the line, or leave such rows out", Setting(on_error="skip")]
        raise table.error_at(row, problem, steps)
    findings.notices.ignored[f"rows of {table.name}"] = f"{count:,}: {problem}"


def _nodes_of_ends(graphs: Graphs, ends: list[pa.Array]) -> tuple[Graphs, pa.Array, I64]:
    """Return the nodes of a table of edges alone: the distinct ids of each graph, sorted."""
    if ends[0].type != ends[1].type:
        ends = [pc.cast(end, pa.string()) for end in ends]
    distinct = pc.unique(pa.chunked_array(ends))
    distinct = distinct.take(pc.sort_indices(distinct))
    occurring = np.arange(len(distinct))
    index = np.empty((2, len(ends[0])), np.int64)
    for end, cells in enumerate(ends):
        index[end] = positions_in(distinct, cells)
    if len(graphs.names) > 1:
        keys = graphs.codes["edge"] * len(distinct) + index
        occurring, inverse = np.unique(keys, return_inverse=True)
        index = inverse.reshape(2, -1)
    codes_by_level = {**graphs.codes, "node": occurring // max(len(distinct), 1)}
    ids = distinct.take(pa.array(occurring % max(len(distinct), 1)))
    return Graphs(graphs.names, codes_by_level), ids, index


def _index_of_ends(
    roles: Roles,
    graphs: Graphs,
    ids: pa.Array,
    ends: list[pa.Array],
    options: ReadOptions,
    findings: Findings,
) -> I64:
    """Return the rows of the nodes at the ends, (2, E); refuse or skip edges of unknown nodes."""
    nodes, edges = roles.tables["node"], roles.edges
    distinct = pc.unique(ids)
    keys = graphs.codes["node"] * len(distinct) + positions_in(distinct, ids)
    repeated = repeats(pa.array(keys))
    if repeated.any():
        row = int(repeated.argmax())
        raise nodes.error_at(
            row,
            f"the node {ids[row].as_py()} occurs twice",
            "remove one of the lines; if they are nodes of several types, write the type before each "
            "id in all tables, as in user:0",
        )
    by_key = pa.array(keys)
    index = np.empty((2, edges.rows), np.int64)
    for end, cells in enumerate(ends):
        positions = positions_in(distinct, cells)
        wanted = graphs.codes["edge"] * len(distinct) + positions
        index[end] = np.where(positions < 0, -1, positions_in(by_key, pa.array(wanted)))
    unknown = index < 0
    is_bad = unknown.any(axis=0) & (graphs.codes["edge"] >= 0)
    if is_bad.any():
        row = int(is_bad.argmax())
        name = str(ends[int(unknown[1, row] and not unknown[0, row])][row].as_py())[:80]
        problem = f"the node {name} is not one of the {nodes.rows:,} of {nodes.name}"
        _refuse_or_skip(edges, row, problem, int(is_bad.sum()), options, findings)
        graphs.codes["edge"][is_bad] = -1
    if roles.node in nodes.column_names and not (index == nodes.rows - 1).any():
        _refuse_note(nodes, roles.node)
    return index


def _refuse_note(nodes: Table, node: str) -> None:
    """Refuse a last row with nothing but an id, unlike all rows above it: a note below the nodes."""
    others = [nodes.columns[name] for name in nodes.column_names if name != node]
    others = [cells for cells in others if cells.null_count < nodes.rows]
    if others and all(cells.null_count == 1 and not cells[-1].is_valid for cells in others):
        raise nodes.error_at(
            nodes.rows - 1,
            f"{node!r} is {nodes.columns[node][-1].as_py()!r}, and no other cell is filled",
            "remove the line if it is a note, or write NA into the cells of a node",
        )


def _stored_ids(ids: pa.Array, options: ReadOptions) -> Array:
    """Return ids as stored: int64 (N,), or UTF-8 padded with zeros, uint8 (N, bytes)."""
    if pa.types.is_integer(ids.type):
        integers: I64 = ids.to_numpy()
        return integers
    texts = [*map(str.encode, ids.to_pylist())]
    if max(map(len, texts)) > KEY_LENGTH:
        texts = [
            escaped_key(text.decode(), KEY_LENGTH).encode() if len(text) > KEY_LENGTH else text
            for text in texts
        ]
    width = max(map(len, texts))
    options.check_memory(2 * width * len(texts), "A copy of the ids of the nodes")
    return np.array(texts, f"S{width}").view(np.uint8).reshape(len(texts), width)


def _undirected_rows(edges: Table, uses: dict[str, Use]) -> Bools | None:
    """Return a mask of undirected edges if a reader or Gephi's column ``Type`` gives directions."""
    if UNDIRECTED in edges.columns:
        uses[UNDIRECTED] = "direction"
        return _mask(edges.columns[UNDIRECTED])
    for name in names.matching(edges.column_names, [known_names.DIRECTION_NAME]):
        if name in uses or not pa.types.is_string(edges.columns[name].type):
            continue
        kinds = pc.utf8_lower(edges.columns[name])
        if {*pc.unique(kinds).to_pylist()} <= {"directed", "undirected"}:
            uses[name] = "direction"
            return _mask(pc.equal(kinds, "undirected"))
    return None


def _mask(cells: pa.Array) -> Bools:
    mask: Bools = cells.to_numpy(zero_copy_only=False).astype(bool)
    return mask


def _with_reverses(
    index: I64, values: Mapping[str, Array], undirected: Bools
) -> tuple[I64, dict[str, Array]]:
    """Insert the reverse of each undirected edge right after it; a self-loop has none."""
    order = np.repeat(np.arange(index.shape[1]), 1 + (undirected & (index[0] != index[1])))
    is_reverse = np.zeros(len(order), bool)
    is_reverse[1:] = order[1:] == order[:-1]
    both = np.where(is_reverse, index[::-1, order], index[:, order])
    return both, {
        key: array[order] if key.startswith("edge/") else array for key, array in values.items()
    }


def _value_of_all(edges: Table, rows: I64 | slice, values: Array, graph: str, key: str) -> Array:
    """Return the label or part of a graph, which all its edges repeat."""
    differs = (values != values[:1]) & (values == values)  # noqa: PLR0124 -- not NaN
    differs = differs.reshape(len(values), -1).any(axis=1)
    if differs.any():
        row = differs.argmax()
        raise edges.error_at(
            row if isinstance(rows, slice) else rows[row],
            f"{key.removeprefix('graph/')} differs from the first edge of the graph {graph!r}",
            "put it into graphs.csv; edges have no labels, so a column of edges is a feature",
        )
    return values[:1]
