"""Roles of tables: which one has the edges, the nodes and the graphs, and their columns of ids.

A reading (:mod:`.readings`) is taken if no other fits. Known names decide between readings whose
values fit equally; what they leave open is asked. The other tables are joined by their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from operator import itemgetter

import numpy as np
import pyarrow.compute as pc

from kmip_data.columns.column_roles import Level
from kmip_data.columns.part_masks import are_parts
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.formats.graph_texts.line_formats import REMEDIES
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.ids import MIN_COVERAGE, Ids, IdsOfTables, positions_in, repeats
from kmip_data.pipelines.own.joined import stacked, with_columns
from kmip_data.pipelines.own.readings import (
    COMPARED_COLUMNS,
    ROWS_FROM_0,
    ROWS_FROM_1,
    Ends,
    Reading,
    Readings,
)
from kmip_data.pipelines.own.table import FILE_COLUMNS, STEM, Table
from kmip_data.text import list_names

#: Fraction of the most values that two columns have in common from which another pair may be the ends.
_MIN_COMMON = 0.1
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
        for table in self.tables:
            if not table.rows:
                raise DamagedInput(
                    f"{table.name} has no row.", steps="write its rows, or leave it out"
                )
        readings = [*self.readings]
        if readings:
            roles, used = self._roles_of(self._best(readings), readings)
        else:
            for table in self.tables:
                self._refuse_two_kinds(table, table.column_names[:COMPARED_COLUMNS])
            roles = self._edges_alone()
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
        best = max(likeliest, key=lambda reading: reading.fraction)
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
        elif best.has_rows and not self.params.node:
            for name in names.matching(best.nodes.column_names, known_names.NODE_ID_NAMES):
                if self.ids.of(best.nodes, name).are_numbers:
                    question = (
                        f"{best.edges.name}: its ends may be numbers of rows of {best.nodes.name}, and are not "
                        f"all in {name!r}, or it has some twice"
                    )
                    self.questions[question] = Setting(node=best.node)
        return best

    def _is_complete(self, reading: Reading) -> bool:
        """True if all ends are ids of nodes."""
        if reading.has_rows or any(reading.graph_columns):
            return True
        key = self.ids.of(reading.nodes, reading.node)
        first, second = (self.ids.of(reading.edges, name).cells for name in reading.likely_ends)
        return bool(min(key.positions(first).min(), key.positions(second).min()) >= 0)

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

    def _owners(self, edges: Table, name: str) -> list[Table]:
        """Return the other tables with a key that a column of the edges lies in."""
        ids = self.ids.of(edges, name)
        keys: dict[Table, list[str]] = {}
        for table in self.tables:
            for key in self.readings.node_keys(table):
                if table is not edges and self.ids.of(table, key).covered(ids) is not None:
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
        pairs = [pair for pair in names.end_pairs(reading.columns) if _agrees(pair, given)]
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

    def _edges_alone(self) -> Roles:
        """Return the roles of a table of edges without a table of nodes; ask if its ends are uncertain."""
        found: list[tuple[bool, bool, Table, Ends]] = []
        for table in self.tables:
            pair = self._ends_alone(table)
            if pair is not None:
                found.append((names.level_of(table.name) == "edge", pair[1], table, pair[0]))
        found.sort(key=itemgetter(0, 1), reverse=True)
        likeliest = [item for item in found if item[:2] == found[0][:2]]
        if not likeliest:
            self.findings.notices.raise_questions()
            raise DamagedInput(
                "No table has two columns with ids of another one, or with values in common.",
                found="; ".join(f"{table.name}: {table.column_list}" for table in self.tables)[
                    :2_000
                ],
                steps="name the columns with the ends of an edge as source and target",
            )
        _, is_certain, edges, ends = likeliest[0]
        if len(likeliest) > 1:
            raise DamagedInput(
                f"Several files may be the table of edges: {list_names([item[2].name for item in likeliest])}.",
                steps="copy the files of one graph into a folder, and use it as archive",
            )
        first, second = ends
        if not edges.has_names:
            self._refuse_counts(edges, ends)
        if not is_certain and not edges.has_names:
            raise DamagedInput(
                f"{edges.name} has no names of columns, and may be an adjacency list.",
                steps=[
                    REMEDIES["an adjacency list"].format(file=edges.name),
                    Setting(source=first, target=second),
                ],
            )
        if not is_certain:
            question = (
                f"{edges.name}: are {first!r} and {second!r} the ends of an edge, with ids of the same nodes? "
                f"If they count two kinds of nodes, write different ids first, in pandas table[{first!r}] = "
                f"{first!r} + table[{first!r}].astype(str)"
            )
            self.questions[question] = Setting(source=first, target=second)
        return Roles(edges, ends)

    def _refuse_counts(self, edges: Table, ends: Ends) -> None:
        """Refuse a first line that has the numbers of nodes and edges, as some programs write it."""
        ids = [self.ids.of(edges, name) for name in ends]
        if self.params.header or edges.rows < 2 or not all(end.are_numbers for end in ids):
            return
        nodes, count = (end.cells[0].as_py() for end in ids)
        below = [end.cells[1:] for end in ids]
        spread = max(pc.max(cells).as_py() for cells in below) - min(
            pc.min(cells).as_py() for cells in below
        )
        if count == edges.rows - 1 and nodes > spread:
            raise edges.error_at(
                0,
                f"{nodes} {count} may be the numbers of nodes and edges, as {count} lines follow (if each "
                "has the neighbours of a node, it is METIS, and no table of edges)",
                [
                    "leave it out, or keep it as an edge",
                    Setting(header="yes"),
                    Setting(header="no"),
                ],
            )

    def _ends_alone(self, table: Table) -> tuple[Ends, bool] | None:
        """Return the likeliest ends of a table, and whether no other reading is as likely.

        Numbers in columns whose names are not alike, such as users and films, may count two kinds of nodes.
        """
        given = (self.params.source, self.params.target)
        if all(given):
            return (given, True) if {*given} <= {*table.columns} else None
        pairs = [pair for pair in names.end_pairs(table.column_names) if _agrees(pair, given)]
        if len(pairs) == 1:
            return pairs[0], True
        if len(table.column_names) == 2 and not table.has_names:
            return (table.column_names[0], table.column_names[1]), True
        common: dict[Ends, int] = {}
        free = self.readings.free(table)[:COMPARED_COLUMNS]
        candidates = [
            name
            for name in dict.fromkeys([*filter(None, given), *free])
            if not (ids := self.ids.of(table, name)).are_fractions and not ids.are_years
        ]
        for pair in combinations(candidates, 2):
            if {*filter(None, given)} <= {*pair}:
                first, second = (self.ids.of(table, name).distinct for name in pair)
                common[pair] = int((positions_in(first, second) >= 0).sum())
        if not any(common.values()):
            return None
        ends = max(common, key=lambda pair: common[pair])
        least = _MIN_COMMON * common[ends]
        is_only = sum(count >= least for count in common.values()) == 1
        if not table.has_names and ends == (*table.column_names[:2],):
            is_only |= not self._may_be_neighbours(table)
        may_count_two_kinds = all(self.ids.of(table, name).are_numbers for name in ends)
        is_certain = is_only and (names.are_alike(*ends) or not may_count_two_kinds)
        return names.in_direction(*ends), is_certain

    def _may_be_neighbours(self, table: Table) -> bool:
        """True if each row may have a node and its neighbours, of which none is the node itself."""
        first, *others = (
            self.ids.of(table, name) for name in table.column_names[:COMPARED_COLUMNS]
        )
        rows = np.stack([first.positions(ids.cells) for ids in others])
        is_own = (rows == np.arange(table.rows)).any()
        return bool(first.is_key and (rows >= 0).mean() >= MIN_COVERAGE and not is_own)

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
        ids_of = {name: self.ids.of(table, name) for name in self.readings.free(table)}
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
                if ids.is_key and ids.covered(self.ids.of(table, key)) is not None:
                    return replace(roles, nodes=self._with_columns(nodes, table, key, ids))
        if roles.graphs is not None:
            for key in keys:
                if file_ids := self._names_of_graphs(roles, self.ids.of(table, key)):
                    joined = self._with_columns(roles.graphs, table, key, file_ids)
                    return replace(roles, graphs=joined)
        elif graphs:
            return replace(roles, graphs=table, graph_columns=graphs[0])
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
        return next((ids for ids in columns if key.covered(ids) is not None), None)

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
        """Note a table without a role; refuse it if an option names a column that only it has."""
        reason = "no column with another id in each row has ids of the other tables"
        params = self.params
        for name in (*params.label, *params.feature, params.group):
            if [other for other in self.tables if name in other.columns] == [table]:
                raise DamagedInput(
                    f"{table.name} has the column {name!r}, but {reason}.",
                    found=table.column_list,
                    steps="write the id of its node, or the name of its graph or file, into each row",
                )
        if level := names.level_of(table.name):
            if level == "node":
                self._refuse_ids(roles, table)
            raise DamagedInput(
                f"{table.name} is named like a table of {level}s, but {reason}.",
                found=table.column_list,
                steps="correct its ids, or leave it out; if they are nodes of several types, "
                "write the type before each id in all tables, as in user:0",
            )
        self.findings.notices.ignored[table.name] = reason

    def _refuse_ids(self, roles: Roles, nodes: Table) -> None:
        """Refuse the first fault in a column of a table of nodes that is named like one of ids."""
        for name in names.matching(nodes.column_names, known_names.NODE_ID_NAMES):
            ids = self.ids.of(nodes, name)
            for fault, mask in (
                ("is no id", ids.cells.is_null().to_numpy(zero_copy_only=False)),
                ("occurs twice", repeats(ids.cells)),
            ):
                if mask.any():
                    row = int(mask.argmax())
                    problem = f"{name!r} is {nodes.columns[name][row]}, which {fault}"
                    raise nodes.error_at(row, problem, "correct it, or remove the line")
            for end in roles.ends:
                cells = self.ids.of(roles.edges, end).cells
                unknown = ids.positions(cells) < 0
                if unknown.any():
                    row = int(unknown.argmax())
                    problem = f"the node {cells[row]} is not in {name!r} of {nodes.name}"
                    raise roles.edges.error_at(row, problem, "correct it, or remove the line")

    def _graph_columns(self, roles: Roles, table: Table, key: str) -> dict[Level, str]:
        """Return the columns whose values a key of another table has: the graph of each row."""
        ids = self.ids.of(table, key)
        found: dict[Level, str] = {}
        for level, other in roles.tables.items():
            known = roles.graph_columns.get(level)
            used = {roles.node, *roles.ends}
            free = [name for name in self.readings.free(other) if name not in used]
            free += [name for name in FILE_COLUMNS if name in other.columns]
            counts = {}
            for name in [known] if known else free:
                cells = self.ids.of(other, name)
                if (
                    (cells.is_key and name != key)
                    or ids.covered(cells) is None
                    or self._joins_graphs(roles, level, name)
                ):
                    continue
                counts[name] = (name == key, len(cells.distinct))
            if counts and max(counts.values())[1] > 1:
                found[level] = max(counts, key=lambda name: counts[name])
        return {"graph": key, **found} if found else {}

    def _joins_graphs(self, roles: Roles, level: Level, name: str) -> bool:
        """True if an edge joins nodes with two values in a column of the nodes."""
        if level != "node" or roles.first_row is not None or any(roles.graph_columns.values()):
            return False
        node_ids = self.ids.of(roles.tables["node"], roles.node)
        kinds = self.ids.of(roles.tables["node"], name)
        codes = positions_in(kinds.distinct, kinds.cells)
        first, second = (
            node_ids.positions(self.ids.of(roles.edges, end).cells) for end in roles.ends
        )
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
        """Return the given column with the graph of each row, or the first with a known name."""
        given = STEM if self.params.graph == "file" else self.params.graph
        if given:
            return given if given in table.columns else ""
        used = {roles.node, *roles.ends}
        free = [name for name in table.column_names if name not in used]
        return next(iter(names.matching(free, known_names.GRAPH_ID_NAMES)), "")


def _names(roles: Roles) -> set[str]:
    """Return the names of all columns that are neither the ids nor the ends."""
    found = {name for table in roles.tables.values() for name in table.columns}
    return found - {roles.node, *roles.ends}


def _agrees(pair: Ends, given: Ends) -> bool:
    return all(not name or name == end for name, end in zip(given, pair, strict=True))


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
