"""Roles of tables: which one has the edges, the nodes and the graphs, and their columns of ids.

A reading (:mod:`.readings`) is taken if no other fits. Known names decide between readings whose
values fit equally; what they leave open is asked. The other tables are joined by their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product

import numpy as np

from kmip_data.columns.column_roles import Level
from kmip_data.columns.part_masks import are_parts
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.edges_alone import (
    EdgesAlone,
    ask_about_ends,
    may_be_of_two_kinds,
    two_kinds_error,
)
from kmip_data.pipelines.own.ids import (
    MIN_COVERAGE,
    MIN_NEAR,
    Ids,
    IdsOfTables,
    positions_in,
    refuse_fault,
    repeats,
    row_numbers,
    share_ids,
)
from kmip_data.pipelines.own.readings import (
    COMPARED_COLUMNS,
    ROWS_FROM_0,
    ROWS_FROM_1,
    Ends,
    Reading,
    Readings,
    agrees,
)
from kmip_data.pipelines.own.table import FILE_COLUMNS, STEM, Table, stacked, with_columns
from kmip_data.text import list_names

_SIMILAR = 0.5  #: fraction of the nodes of a reading from which another one is as likely


@dataclass(frozen=True)
class Roles:
    """Tables of each level, with their columns of ids."""

    edges: Table
    ends: Ends
    nodes: Table | None = None
    node: str = ""  #: column with the ids of the nodes, or how their rows are numbered
    graphs: Table | None = None
    #: column with the graph of each row; empty if there is none
    graph_columns: Mapping[Level, str] = field(default_factory=dict)
    ids: IdsOfTables = field(default_factory=IdsOfTables)

    @property
    def first_row(self) -> int | None:
        """Number of the first row of nodes without ids; ``None`` if a column has them."""
        return {ROWS_FROM_0: 0, ROWS_FROM_1: 1}.get(self.node)

    @property
    def have_one_graph(self) -> bool:
        """True if all rows of the first table are of one graph."""
        level, table = next(iter(self.tables.items()))
        name = self.graph_columns.get(level)
        return not name or len(self.ids.of(table, name).distinct) < 2

    @property
    def tables(self) -> dict[Level, Table]:
        """Tables by level; the first one gives the order of the graphs."""
        levels: dict[Level, Table | None] = {
            "graph": self.graphs,
            "node": self.nodes,
            "edge": self.edges,
        }
        return {level: table for level, table in levels.items() if table is not None}


def find_roles(tables: Sequence[Table], options: ReadOptions, findings: Findings) -> Roles:
    """Return the roles of the tables of one dataset, and add questions; note tables without a role.

    Raises ``DamagedInput`` if no reading fits.
    """
    described = _described_roles(tables, options)
    if described is not None:
        return described
    return _RolesFinder(tables, options, findings).find()


def with_tables(
    roles: Roles, tables: Sequence[Table], options: ReadOptions, findings: Findings
) -> Roles:
    """Return roles that a reader knows, with the columns of other tables that have keys of theirs."""
    return _RolesFinder([*roles.tables.values(), *tables], options, findings).with_tables(
        roles, tables
    )


class _RolesFinder:
    def __init__(self, tables: Sequence[Table], options: ReadOptions, findings: Findings) -> None:
        self.tables = tables
        self.params = options.params
        self.findings = findings
        self.questions = findings.notices.questions
        self.ids = IdsOfTables()
        self.readings = Readings(tables, options.params, self.ids)

    def find(self) -> Roles:
        readings = [*self.readings]
        if readings:
            roles, used = self._roles_of(self._best(readings), readings)
        else:
            for table in self.tables:
                self._refuse_two_kinds(table, table.column_names[:COMPARED_COLUMNS])
            roles = Roles(*EdgesAlone(self.readings, self.findings.notices).find())
            used = [roles.edges]
        others = [table for table in self.tables if all(table is not other for other in used)]
        return self._with_graphs_by_name(self.with_tables(roles, others))

    def with_tables(self, roles: Roles, tables: Sequence[Table]) -> Roles:
        for table in tables:
            roles = self._with_table(roles, table)
        return roles

    def _best(self, readings: Sequence[Reading]) -> Reading:
        """Return the likeliest reading; ask if another one is as likely.

        Ends have many different ids, of which none is unknown, and no edge is a node, as no node is a
        graph.
        """
        support = max(reading.support for reading in readings)
        likely = [reading for reading in readings if reading.support >= _SIMILAR * support]
        nodes = [reading.nodes for reading in likely]
        likely = [*filter(lambda reading: reading.edges not in nodes, likely)] or likely
        likely = [*filter(self._is_complete, likely)] or likely
        rank = max(reading.rank for reading in likely)
        likeliest = [reading for reading in likely if reading.rank == rank]
        best = max(likeliest, key=lambda reading: (reading.fraction, self._has_order(reading)))
        rivals = [
            other
            for other in likeliest
            if (other.nodes is not best.nodes or other.node != best.node)
            and other.fraction > _SIMILAR * best.fraction
            and not self._have_same_nodes(best, other)
        ]
        if rivals:
            starts = {ROWS_FROM_0: "its rows from 0", ROWS_FROM_1: "its rows from 1"}
            shown = [
                f"{starts.get(reading.node, repr(reading.node))} of {reading.nodes.name}"
                for reading in (best, *rivals)
            ]
            question = f"{best.edges.name}: its ends may be ids in {', or '.join(shown)}"
            self.questions[question] = Setting(node=best.node)
        ids = names.matching(self.readings.keys(best.nodes), known_names.NODE_ID_NAMES)
        ids = [name for name in ids if self.ids.of(best.nodes, name).are_numbers]
        if best.has_rows and ids and not (rivals or self.params.node):
            question = f"{best.edges.name}: its ends are no ids in {ids[0]!r} of {best.nodes.name}"
            self.questions[f"{question}, but may be its rows"] = Setting(node=best.node)
        return best

    def _is_complete(self, reading: Reading) -> bool:
        """True if all ends are ids of nodes."""
        if reading.has_rows or any(reading.graph_columns):
            return True
        key = self.ids.of(reading.nodes, reading.node)
        first, second = (self.ids.of(reading.edges, name).cells for name in reading.likely_ends)
        return bool(min(key.positions(first).min(), key.positions(second).min()) >= 0)

    def _has_order(self, reading: Reading) -> float:
        """Order of equal readings: ids in any order, numbers of rows, and a column that counts them."""
        if reading.has_rows:
            return 0.5
        ids = self.ids.of(reading.nodes, reading.node)
        first = ids.cells[0].as_py() if ids.are_numbers else None
        return first is None or not ids.cells.equals(row_numbers(len(ids.cells), first))

    def _have_same_nodes(self, first: Reading, second: Reading) -> bool:
        """True if two tables have the same ids: columns of the same nodes."""
        if first.has_rows or second.has_rows or first.nodes is second.nodes:
            return False
        one, other = (self.ids.of(reading.nodes, reading.node) for reading in (first, second))
        return bool((one.positions(other.cells) >= 0).all())

    def _refuse_two_kinds(self, edges: Table, columns: Sequence[str]) -> None:
        """Refuse edges whose ends are keys of two tables: user 1 is not film 1.

        A column belongs to the tables with a key of its name and values, or else of its values.
        """
        owners = {name: self._owners(edges, name) for name in columns}
        for first, second in combinations(owners, 2):
            kinds = owners[first] + owners[second]
            if owners[first] and owners[second] and len({*kinds}) == len(kinds):
                raise DamagedInput(
                    f"{edges.name} joins two kinds of nodes: {first!r} and {second!r} have ids of "
                    f"{list_names([table.name for table in kinds])}.",
                    steps="make the ids of the kinds different in all tables, in pandas table['user'] "
                    "= 'user' + table['user'].astype(str), and write the tables of nodes into one",
                )

    def _ask_about_kinds(self, edges: Table, ends: Ends, nodes: Sequence[str]) -> None:
        """Ask if numbers in two columns whose names are not alike count the same nodes.

        Refuse them if both are named as ids, as ``movieId`` next to ``userId``, or only one after the
        names of the ``nodes``.
        """
        are_told = {*ends} == {self.params.source, self.params.target} or names.end_pairs(ends)
        if are_told or not edges.has_names or not may_be_of_two_kinds(edges, ends, self.ids):
            return
        are_ids = all(map(names.is_id_name, ends))
        if are_ids or len({names.is_named_after(end, nodes) for end in ends}) == 2:
            raise two_kinds_error(edges, ends)
        ask_about_ends(edges, ends, self.questions)

    def _owners(self, edges: Table, name: str) -> list[Table]:
        """Return the other tables with a key that a column of the edges lies in."""
        ids = self.ids.of(edges, name)
        keys: dict[Table, list[str]] = {}
        for table in self.tables:
            for key in self.readings.node_keys(table):
                if table is not edges and self.ids.of(table, key).covers(ids):
                    keys.setdefault(table, []).append(key)
        return [table for table in keys if name in keys[table]] or [*keys]

    def _roles_of(self, best: Reading, readings: Sequence[Reading]) -> tuple[Roles, list[Table]]:
        """Return the roles of a reading, with all tables of edges between its nodes, and the tables used."""
        parts = [(best.edges, self._ends_of(best))]
        for other in readings:
            is_alike = other.nodes is best.nodes and other.node == best.node
            is_new = all(other.edges is not table for table, _ in parts)
            if is_alike and is_new and len(other.columns) == 2 and not any(best.graph_columns):
                parts.append((other.edges, self._ends_of(other)))
        for table, pair in parts:
            self._refuse_two_kinds(table, pair)
            self._ask_about_kinds(table, pair, (best.node, best.nodes.name))
        edges, ends = parts[0]
        used = [best.nodes, *(table for table, _ in parts)]
        if len(parts) > 1:
            edges, ends = stacked(parts), ("source", "target")
        graphs: dict[Level, str] = {}
        if any(best.graph_columns):
            graphs = {"edge": best.graph_columns[0], "node": best.graph_columns[1]}
        return Roles(edges, ends, best.nodes, best.node, None, graphs), used

    def _ends_of(self, reading: Reading) -> Ends:
        """Return the columns of sources and targets; ask if a third one may be an end."""
        given = (self.params.source, self.params.target)
        if all(given):
            return given
        pairs = [pair for pair in names.end_pairs(reading.columns) if agrees(pair, given)]
        if len(pairs) == 1:
            return pairs[0]
        order = reading.edges.column_names
        columns = sorted(reading.columns, key=order.index)
        others = [name for name in columns if name not in given]
        if any(given) and len(others) == 1:
            return given[0] or others[0], given[1] or others[0]
        if len(columns) == 2:
            return names.in_direction(columns[0], columns[1])
        told = [
            p for p in combinations(columns, 2) if names.tells_direction(*names.in_direction(*p))
        ]
        likely = names.in_direction(*(told or [reading.likely_ends])[0])
        if len(told) != 1:
            counts = [f"{name!r} has {reading.columns[name]:,} ids" for name in columns]
            question = f"{reading.edges.name} has several columns with ids of {reading.nodes.name}"
            self.questions[f"{question}: {', '.join(counts)}"] = Setting(
                source=likely[0], target=likely[1]
            )
        return likely

    def _with_table(self, roles: Roles, table: Table) -> Roles:
        """Return the roles with another table: of columns of the nodes, or of graphs.

        A row whose key is missing belongs to none.
        """
        stems = table.columns[STEM].unique().to_pylist() if STEM in table.columns else [table.name]
        if not table.has_names and are_parts([stem.partition(".")[0] for stem in stems]):
            raise DamagedInput(
                f"{table.name} may list the ids of a split, but its lines have several cells.",
                steps='write the lists as JSON: {"train": ["Main St 1"], "test": ["Main St 2"]}',
            )
        names_of_keys = [*self.readings.free(table), *{self.params.graph} & {*table.columns}]
        ids_of = {name: self.ids.of(table, name) for name in names_of_keys}
        keys = [name for name, ids in ids_of.items() if ids.differ and not ids.are_fractions]
        graphs = [found for key in keys if (found := self._graph_columns(roles, table, key))]
        has_graphs = False
        for found in graphs:
            level, name = [*found.items()][-1]
            other = self.ids.of(roles.tables[level], name)
            has_graphs |= found["graph"] in _names(roles) or len(other.distinct) == table.rows
        nodes = roles.nodes
        if nodes is not None and roles.first_row is None and not has_graphs:
            ids = self.ids.of(nodes, roles.node)
            for key in keys:
                if ids.is_key and ids.covers(self.ids.of(table, key)):
                    return replace(roles, nodes=self._with_columns(nodes, table, key, ids))
        if roles.graphs is not None:
            for key in keys:
                graph_ids = self._names_of_graphs(roles, self.ids.of(table, key))
                if graph_ids is not None:
                    joined = self._with_columns(roles.graphs, table, key, graph_ids)
                    return replace(roles, graphs=joined)
        elif graphs:
            columns = max(graphs, key=_names_alike)
            self._ask_about_graphs(roles, columns.get("edge", ""))
            return replace(roles, graphs=table, graph_columns=columns)
        self._refuse_ids_with_faults(roles, table)
        self._ignore(roles, table)
        return roles

    def _names_of_graphs(self, roles: Roles, key: Ids) -> Ids | None:
        """Return the names of the graphs, or of their files, that a key of another table covers."""
        table = roles.tables["graph"]
        names = [roles.graph_columns["graph"], *FILE_COLUMNS]
        names += [
            name for name in self.readings.keys(table) if not self.ids.of(table, name).are_numbers
        ]
        columns = (self.ids.of(table, name) for name in names if name in table.columns)
        return next((ids for ids in columns if key.covers(ids)), None)

    def _with_columns(self, table: Table, other: Table, key: str, ids: Ids) -> Table:
        """Return a table with the columns of another, whose ``key`` has its ``ids``; note other rows."""
        rows = self.ids.of(other, key).positions(ids.cells)
        ignored = self.findings.notices.ignored
        if without := other.rows - len(np.unique(rows[rows >= 0])):
            ignored[f"rows of {other.name}"] = f"{without:,} without a row in {table.name}"
        if missing := np.flatnonzero(rows < 0).tolist():
            first = table.location(missing[0])
            ignored[f"rows of {table.name}"] = (
                f"{len(missing):,} without a row in {other.name}, such as {first}"
            )
        return with_columns(table, other, rows, key)

    def _ignore(self, roles: Roles, table: Table) -> None:
        """Note a table without a role.

        Refuse it if it may have the nodes, by its name or as no other table has them, or if an option
        names a column that only it has.
        """
        reason = "no column with another id in each row has ids of the other tables"
        params = self.params
        given = [
            name
            for name in (*params.label, *params.feature, params.group)
            if [other for other in self.tables if name in other.columns] == [table]
        ]
        may_have_nodes = roles.nodes is None and params.graph != "none"
        is_needed = names.level_of(table.name) in {"node", "graph"}
        if given or is_needed or (may_have_nodes and len(table.column_names) > 1):
            start = f" has the column {given[0]!r}, but" if given else ":"
            raise DamagedInput(
                f"{table.name}{start} {reason}.",
                found=table.column_list,
                steps="write the id of its node, or the name of its graph or file, into each row, or move "
                "the file elsewhere",
            )
        self.findings.notices.ignored[table.name] = reason

    def _refuse_ids_with_faults(self, roles: Roles, table: Table) -> None:
        """Refuse a table of which half of the rows have ids of the nodes, as it has no other role."""
        columns = [(roles.edges, end) for end in roles.ends]
        if roles.nodes is not None and roles.first_row is None:
            columns = [(roles.nodes, roles.node)]
        for column, name in product(columns, self.readings.free(table)[:COMPARED_COLUMNS]):
            known, ids = self.ids.of(*column), self.ids.of(table, name)
            # Many rows with one id refer to nodes, and are none.
            are_rows = repeats(ids.cells).sum() > max(1, (1 - MIN_COVERAGE) * table.rows)
            is_near = ids.covers(known, MIN_NEAR) or known.covers(ids, MIN_NEAR)
            if ids.are_likely and is_near and not are_rows:
                refuse_fault(ids, known)

    def _graph_columns(self, roles: Roles, table: Table, key: str) -> dict[Level, str]:
        """Return the columns whose values a key of another table has: the graph of each row."""
        ids = self.ids.of(table, key)
        found: dict[Level, str] = {}
        given = self.params.graph
        for level, other in roles.tables.items():
            known = roles.graph_columns.get(level) or given
            used = {roles.node, *roles.ends}
            free = [name for name in self.readings.free(other) if name not in used]
            free += [name for name in FILE_COLUMNS if name in other.columns]
            counts = {}
            for name in free if known in {"", "file"} else {known} & {*other.columns}:
                cells = self.ids.of(other, name)
                if name == given or (
                    name == key and names.matching([key], known_names.GRAPH_ID_NAMES)
                ):
                    fits = ids.covers(cells, MIN_NEAR)
                else:
                    fits = not cells.is_key and ids.covers(cells)
                    fits = fits and not self._joins_graphs(roles, level, name)
                if fits:
                    counts[name] = (name == key, len(cells.distinct))
            if counts and max(counts.values())[1] > 1:
                found[level] = max(counts, key=lambda name: counts[name])
        is_complete = "node" in found or "node" not in roles.tables
        return {"graph": key, **found} if found and is_complete else {}

    def _ask_about_graphs(self, roles: Roles, name: str) -> None:
        """Ask if a column of edges may name their kinds, as its graphs have ids in common."""
        is_known = bool(names.matching([name], known_names.GRAPH_ID_NAMES))
        if roles.nodes is not None or is_known or name.startswith("\0") or self.params.graph:
            return
        ends = [self.ids.of(roles.edges, end).cells for end in roles.ends]
        if share_ids(self.ids.of(roles.edges, name), ends):
            question = f"{roles.edges.name}: does {name!r} name the graph of an edge, or its kind?"
            graph, kind = Setting(graph=name), Setting(graph="none")
            self.questions[f"{question} {graph} or {kind}"] = graph

    def _joins_graphs(self, roles: Roles, level: Level, name: str) -> bool:
        """True if an edge joins nodes with two values in a column of the nodes."""
        if level != "node" or any(roles.graph_columns.values()):
            return False
        nodes = roles.tables["node"]
        if roles.first_row is None:
            node_ids = self.ids.of(nodes, roles.node).cells
        else:
            node_ids = row_numbers(nodes.rows, roles.first_row)
        kinds = self.ids.of(nodes, name)
        codes = positions_in(kinds.distinct, kinds.cells)
        ends = (self.ids.of(roles.edges, end).cells for end in roles.ends)
        first, second = (positions_in(node_ids, cells) for cells in ends)
        return bool((codes[first] != codes[second])[(first >= 0) & (second >= 0)].any())

    def _with_graphs_by_name(self, roles: Roles) -> Roles:
        """Return the roles with the columns of graphs that an option or a known name gives."""
        columns: dict[Level, str] = {**roles.graph_columns}
        if not columns and self.params.graph != "none":
            for level, table in roles.tables.items():
                columns[level] = self._graph_column_by_name(roles, table)
        if STEM in roles.edges.columns and not any(
            (*columns.values(), roles.nodes, self.params.graph)
        ):
            question = (
                f"{roles.edges.name} have the same columns, and may be parts of one graph or a graph "
                f"each: graph='none' or {Setting(graph='file')}"
            )
            self.questions[question] = Setting(graph="none")
        columns = {level: columns.get(level, "") for level in roles.tables}
        return replace(roles, graph_columns=columns, ids=self.ids)

    def _graph_column_by_name(self, roles: Roles, table: Table) -> str:
        """Return the given column with the graph of each row, or the one with a known name."""
        given = STEM if self.params.graph == "file" else self.params.graph
        if given:
            return given if given in table.columns else ""
        used = {roles.node, *roles.ends}
        free = [name for name in table.column_names if name not in used]
        known = names.matching(free, known_names.GRAPH_ID_NAMES)
        if len(known) > 1:
            question = f"{table.name}: the graph of a row may be in {list_names(known)}"
            self.questions[question] = Setting(graph=known[0])
        return known[0] if known else ""


def _names_alike(columns: Mapping[Level, str]) -> int:
    """Number of columns with the name of the column of graphs."""
    return sum(name == columns["graph"] for name in columns.values())


def _names(roles: Roles) -> set[str]:
    """Return the names of all columns that are neither the ids nor the ends."""
    found = {name for table in roles.tables.values() for name in table.columns}
    return found - {roles.node, *roles.ends}


def _described_roles(tables: Sequence[Table], options: ReadOptions) -> Roles | None:
    """Return the roles that a description gives to the tables of these names; ``None`` without it."""
    described = options.described
    if described is None:
        return None
    by_level = {described.tables[t.name]: t for t in tables if t.name in described.tables}
    if "edge" not in by_level:
        return None
    columns = {(role.level, role.use): role.column for role in described.columns}
    for (level, use), name in columns.items():
        table = by_level.get(level)
        is_id = use in {"source", "target", "id", "graph"}
        if table is not None and is_id and name not in table.columns:
            raise DamagedInput(
                f"{table.name} has no column {name!r}, which the description names.",
                found=table.column_list,
                steps="add the column: a model needs it",
            )
    nodes = by_level.get("node")
    return Roles(
        by_level["edge"],
        (columns.get(("edge", "source"), ""), columns.get(("edge", "target"), "")),
        nodes,
        "" if nodes is None else columns.get(("node", "id")) or described.node or ROWS_FROM_0,
        by_level.get("graph"),
        {level: columns.get((level, "graph"), "") for level in by_level},
    )
