"""Roles of tables and their columns of ids: nodes, ends of edges, and graphs.

One rule: a table joins another if a column of different values of the one covers a column of the
other. A table of nodes has such a column for two columns of the table of edges; the numbers of its
rows are one, too. A reading is taken if it is the only one that fits; known names decide between
readings that fit equally, and else the user is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.arrays import I64
from kmip_data.columns.column_roles import Level
from kmip_data.errors import DamagedInput, OpenQuestions, Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.ids import Ids, IdsOfTables, positions_in
from kmip_data.pipelines.own.table import FILE, STEM, Table
from kmip_data.text import list_names

ROWS_FROM_0, ROWS_FROM_1 = "none", "rows-from-1"  #: values of ``node``
_COMPARED_COLUMNS = 24  #: first columns of a table that may be ends or keys of rows within graphs
_MIN_RIVAL = 0.1  #: fraction of an end's ids from which a further column may be an end, too
Ends = tuple[str, str]


@dataclass(frozen=True)
class Roles:
    """Tables of each level, with their columns of ids."""

    edges: Table
    ends: Ends
    nodes: Table | None = None
    #: column with the ids of the nodes, or how their rows are numbered
    node: str = ""
    graphs: Table | None = None
    #: column with the graph of each row; empty if there is none
    graph_columns: Mapping[Level, str] = field(default_factory=dict)

    @property
    def first_row(self) -> int | None:
        """Number of the first row of nodes without ids; ``None`` if a column has them."""
        return {ROWS_FROM_0: 0, ROWS_FROM_1: 1}.get(self.node)

    @property
    def tables(self) -> dict[Level, Table]:
        """Tables by level; the first one gives the order of the graphs."""
        tables: dict[Level, Table | None] = {
            "graph": self.graphs,
            "node": self.nodes,
            "edge": self.edges,
        }
        return {level: table for level, table in tables.items() if table is not None}


@dataclass(frozen=True)
class Reading:
    """Two tables as edges and nodes, by the values of their columns."""

    edges: Table
    nodes: Table
    node: str
    columns: Mapping[str, int]  #: column of the edges with ids of the nodes -> number of these
    ids: int  #: number of ids of the nodes
    graph_columns: Ends = ("", "")  #: columns of edges and nodes with the graph of a row

    @property
    def rank(self) -> tuple[object, ...]:
        """Order of readings that fit equally, by names alone."""
        pairs = names.end_pairs(self.columns)
        return (
            bool(pairs) or any(names.tells_direction(*p) for p in combinations(self.columns, 2)),
            (names.level_of(self.edges.name) == "edge") + (names.level_of(self.nodes.name) == "node"),
            names.is_id_name(self.node),
            bool(names.matching([self.node], known_names.NODE_ID_NAMES)),
            self.graph_columns == ("", ""),
        )


class RolesFinder:
    """Search for the roles of the tables of one dataset."""

    def __init__(self, tables: Sequence[Table], options: ReadOptions, notices: Notices) -> None:
        self.tables = [*tables]
        self.options = options
        self.params = options.params
        self.notices = notices
        self.ids = IdsOfTables()

    def find(self) -> Roles:
        """Return the roles; note the tables that have none.

        Raises ``OpenQuestions`` if several readings fit, and ``DamagedInput`` if none does.
        """
        described = self._described()
        if described is not None:
            return described
        readings = [*self._readings()]
        if readings:
            roles = self._roles_of(self._best(readings), readings)
        else:
            roles = self._edges_alone()
        return self._with_other_tables(roles)

    # --- nodes and edges --------------------------------------------------------------------------

    def _readings(self) -> Iterator[Reading]:
        """Yield each pair of tables of which one has the ids in two columns of the other."""
        for nodes in self.tables:
            keys = self._keys(nodes)
            for edges in self.tables:
                if edges is nodes or not {self.params.source, self.params.target} - {""} <= {
                    *edges.columns
                }:
                    continue
                found = False
                for name in keys:
                    columns = self._covered(nodes, self.ids.of(nodes, name), edges)
                    if len(columns) > 1:
                        found = True
                        yield Reading(edges, nodes, name, columns, nodes.rows)
                if not found and not self.params.node:
                    yield from self._readings_within_graphs(edges, nodes)
                yield from self._readings_of_rows(edges, nodes, keys if found else ())

    def _keys(self, table: Table) -> list[str]:
        """Return the columns of a table whose ids all differ."""
        if self.params.node in table.columns:
            return [self.params.node]
        if self.params.node:
            return []
        return [
            name
            for name in self._free(table)
            if not self.ids.of(table, name).are_fractions and self.ids.of(table, name).is_key
        ]

    def _free(self, table: Table) -> list[str]:
        """Return the columns to which no option gives another use."""
        params = self.params
        used = {*params.label, *params.feature, *params.ignore, params.group, params.graph}
        return [name for name in table.column_names if name not in used]

    def _covered(self, nodes: Table, key: Ids, edges: Table) -> dict[str, int]:
        """Return the columns of ``edges`` that a key covers, with the number of its ids in each."""
        columns = {}
        given = [name for name in (self.params.source, self.params.target) if name]
        free = [name for name in self._free(edges) if name not in given]
        for name in [*given, *free[:_COMPARED_COLUMNS]]:
            ids = self.ids.of(edges, name)
            covered = key.covered(ids)
            # Years, and numbers of which the nodes have hundreds of others, are values.
            if covered is None or (name not in given and ids.are_years and not key.are_years):
                continue
            columns[name] = covered.distinct
        most = max(columns.values(), default=0)
        return {
            name: count
            for name, count in columns.items()
            if name in given or count >= _MIN_RIVAL * most or nodes.rows < 10
        }

    def _readings_of_rows(
        self, edges: Table, nodes: Table, keys: Sequence[str]
    ) -> Iterator[Reading]:
        """Yield the readings of ends as row numbers, which a column with another name than of ids loses to."""
        given = self.params.node
        if given not in ("", ROWS_FROM_0, ROWS_FROM_1) or any(map(names.is_id_name, keys)):
            return
        pairs = names.end_pairs(edges.column_names)
        if self.params.source and self.params.target:
            pairs = [(self.params.source, self.params.target)]
        if not pairs and names.level_of(edges.name) == "edge" and len(edges.column_names) == 2:
            pairs = [tuple(edges.column_names)]  # type: ignore[list-item]
        if len(pairs) != 1:
            return
        ends = [self.ids.of(edges, name) for name in pairs[0]]
        if not all(end.are_numbers and len(end.distinct) for end in ends):
            return
        texts = [name for name in keys if not self.ids.of(nodes, name).are_numbers]
        if texts:
            return
        smallest = min(pc.min(end.distinct).as_py() for end in ends)
        largest = max(pc.max(end.distinct).as_py() for end in ends)
        counts = {name: len(end.distinct) for name, end in zip(pairs[0], ends, strict=True)}
        for node, first in ((ROWS_FROM_0, 0), (ROWS_FROM_1, 1)):
            if given in ("", node) and first <= smallest and largest < nodes.rows + first:
                yield Reading(edges, nodes, node, counts, nodes.rows)

    def _readings_within_graphs(self, edges: Table, nodes: Table) -> Iterator[Reading]:
        """Yield the columns whose ids differ within each graph, which both tables name."""
        node_names = nodes.column_names[:_COMPARED_COLUMNS]
        if FILE in nodes.columns and FILE in edges.columns:
            node_names = [STEM]
        for node_graph in node_names:
            graphs = self.ids.of(nodes, node_graph)
            if graphs.is_key or graphs.are_fractions or graphs.cells.null_count:
                continue
            for edge_graph in [node_graph] if node_graph in edges.columns else self._free(edges):
                named = node_graph == edge_graph or self.params.graph in (node_graph, edge_graph)
                if not named and not self._names_graphs(graphs):
                    continue
                codes = positions_in(graphs.distinct, self.ids.of(edges, edge_graph).cells)
                if (codes < 0).any():
                    continue
                yield from self._readings_of_codes(
                    edges, nodes, (edge_graph, node_graph), codes, graphs
                )

    def _readings_of_codes(
        self, edges: Table, nodes: Table, graph_columns: Ends, edge_codes: I64, graphs: Ids
    ) -> Iterator[Reading]:
        node_codes = positions_in(graphs.distinct, graphs.cells)
        for name in self._free(nodes)[:_COMPARED_COLUMNS]:
            ids = self.ids.of(nodes, name)
            if name in graph_columns or ids.are_fractions or ids.cells.null_count:
                continue
            count = len(ids.distinct)
            keys = node_codes * count + positions_in(ids.distinct, ids.cells)
            if len(np.unique(keys)) < len(keys):
                continue
            columns = {}
            for end in self._free(edges)[:_COMPARED_COLUMNS]:
                positions = positions_in(ids.distinct, self.ids.of(edges, end).cells)
                is_known = (positions >= 0) & np.isin(edge_codes * count + positions, keys)
                if end not in graph_columns and is_known.mean() >= 0.95:
                    columns[end] = len(np.unique(positions))
            if len(columns) > 1:
                yield Reading(edges, nodes, name, columns, count, graph_columns)

    def _names_graphs(self, graphs: Ids) -> bool:
        """True if another table has each graph once."""
        others = [table for table in self.tables if table is not graphs.table]
        return any(
            self.ids.of(table, name).covered(graphs) is not None
            for table in others
            for name in self._keys_of_graphs(table)
        )

    def _keys_of_graphs(self, table: Table) -> list[str]:
        return [name for name in self._free(table) if self.ids.of(table, name).is_key]

    def _best(self, readings: Sequence[Reading]) -> Reading:
        """Return the only reading, or the one that names prefer; ask about others."""
        ranked = sorted(readings, key=lambda reading: reading.rank, reverse=True)
        best = ranked[0]
        rivals = [other for other in ranked if other.rank == best.rank]
        if len(rivals) > 1:
            # A column that the edges use up comes before one of which they have few values.
            rivals.sort(key=_share, reverse=True)
            best = rivals[0]
            rivals = [other for other in rivals[1:] if _share(other) > 0.5 * _share(best)]
            rivals = [
                other
                for other in rivals
                if (other.edges is best.edges) != (other.nodes is best.nodes)
                or (other.node != best.node and other.edges is best.edges)
            ]
            # Several tables of edges between the same nodes are one.
            rivals = [other for other in rivals if other.nodes is not best.nodes or other.node != best.node]
        if rivals and best not in rivals:
            readings_ = [
                f"{reading.node if reading.first_row is None else 'its rows'} of {reading.nodes.name}"
                for reading in (best, *rivals)
            ] if False else [f"{other.node!r} of {other.nodes.name}" for other in (best, *rivals)]
            question = f"{best.edges.name}: its ends may be ids in {list_names(readings_)}"
            self.notices.questions[question] = Setting(node=best.node)
        return best

    def _roles_of(self, best: Reading, readings: Sequence[Reading]) -> Roles:
        ends = self._ends_of(best)
        edges = best.edges
        same = [
            other
            for other in readings
            if other.nodes is best.nodes
            and other.node == best.node
            and other.edges is not edges
            and len(other.columns) == 2
        ]
        self._refuse_two_kinds(best, readings)
        if same:
            edges = stacked([(edges, ends), *((other.edges, self._ends_of(other)) for other in same)])
            ends = ("source", "target")
            self.tables = [t for t in self.tables if all(t is not other.edges for other in same)]
            self.tables[[t is best.edges for t in self.tables].index(True)] = edges
        graphs: dict[Level, str] = {}
        if best.graph_columns[0]:
            graphs = {"edge": best.graph_columns[0], "node": best.graph_columns[1]}
        return Roles(edges, ends, best.nodes, best.node, None, graphs)

    def _refuse_two_kinds(self, best: Reading, readings: Sequence[Reading]) -> None:
        """Refuse edges whose two ends are keys of two tables: user 1 is not film 1."""
        # Left to the unknown end, which names the line.

    def _ends_of(self, reading: Reading) -> Ends:
        """Return the columns of sources and targets; ask if a third one may be an end."""
        given = (self.params.source, self.params.target)
        pairs = [
            pair
            for pair in names.end_pairs(reading.columns)
            if all(not name or name == end for name, end in zip(given, pair, strict=True))
        ]
        if all(given):
            return given
        if len(pairs) == 1:
            return pairs[0]
        order = [*reading.edges.column_names]
        columns = sorted(reading.columns, key=order.index)
        if len(columns) == 2 and not any(given):
            return names.in_direction(columns[0], columns[1])
        others = [name for name in columns if name not in given]
        if len(others) == 1 and any(given):
            return (given[0] or others[0], given[1] or others[0])
        likely = names.in_direction(*columns[:2])
        counts = ", ".join(f"{name!r} has {reading.columns[name]:,} ids" for name in columns)
        question = f"{reading.edges.name} has several columns with ids of {reading.nodes.name}: {counts}"
        self.notices.questions[question] = Setting(source=likely[0], target=likely[1])
        return likely

    # --- edges without nodes ----------------------------------------------------------------------

    def _edges_alone(self) -> Roles:
        """Return the roles of a table of edges without a table of nodes."""
        candidates: list[tuple[Table, Ends, bool]] = []
        for table in self.tables:
            pair = self._ends_alone(table)
            if pair is not None:
                candidates.append((table, *pair))
        by_word = [c for c in candidates if names.level_of(c[0].name) == "edge"]
        certain = [c for c in candidates if c[2]]
        chosen = by_word or certain or candidates
        if not chosen:
            raise DamagedInput(
                "No table has two columns with the ids of another one, or with values in common.",
                found="; ".join(f"{t.name}: {t.column_list}" for t in self.tables)[:2_000],
                steps="name the columns with the ends of an edge as source and target",
            )
        edges, ends, is_certain = chosen[0]
        if len(chosen) > 1 and len({(*t.column_names,) for t, *_ in chosen}) > 1:
            question = f"The edges may be in {list_names([t.name for t, *_ in chosen])}"
            self.notices.questions[question] = Setting(source=ends[0], target=ends[1])
        elif not is_certain:
            first, second = ends
            question = f"{edges.name}: are {first!r} and {second!r} the ends of an edge?"
            self.notices.questions[question] = Setting(source=first, target=second)
        return Roles(edges, ends)

    def _ends_alone(self, table: Table) -> tuple[Ends, bool] | None:
        """Return the likeliest ends of a table, and whether no other pair fits."""
        given = (self.params.source, self.params.target)
        if all(given):
            return (given, True) if {*given} <= {*table.columns} else None
        pairs = names.end_pairs(table.column_names)
        if len(pairs) == 1 and not any(given):
            return pairs[0], True
        free = [
            name
            for name in self._free(table)[:_COMPARED_COLUMNS]
            if not self.ids.of(table, name).are_fractions
            and len(self.ids.of(table, name).distinct)
            and (len(table.column_names) == 2 or not self.ids.of(table, name).are_years)
        ]
        found = {}
        for first, second in combinations(free, 2):
            if any(given) and not {first, second} & {*given}:
                continue
            one, other = (self.ids.of(table, name).distinct for name in (first, second))
            found[first, second] = int((positions_in(one, other) >= 0).sum())
        if not found:
            return None
        ends = max(found, key=lambda pair: found[pair])
        rivals = [pair for pair in found if pair != ends and found[pair] > _MIN_RIVAL * found[ends]]
        is_certain = bool(found[ends]) and not rivals
        # Two columns without names are ends if anything is.
        is_certain |= len(table.column_names) == 2 and not table.has_names
        return names.in_direction(*ends), is_certain

    # --- other tables -----------------------------------------------------------------------------

    def _with_other_tables(self, roles: Roles) -> Roles:
        """Join the tables that have a key of the nodes or of the graphs; note the others."""
        for table in self.tables:
            if table is roles.edges or table is roles.nodes:
                continue
            joined = self._joined_nodes(roles, table)
            if joined is not None:
                roles = joined
                continue
            with_graphs = self._graphs(roles, table)
            if with_graphs is not None:
                roles = with_graphs
                continue
            self.notices.ignored[table.name] = "no column of it has ids of the other tables"
        return self._with_named_graphs(roles)

    def _joined_nodes(self, roles: Roles, table: Table) -> Roles | None:
        """Return the roles with the columns of a table that has one row for some of the nodes."""
        if roles.nodes is None:
            return self._labels_of_ends(roles, table)
        if roles.first_row is not None or roles.graph_columns.get("node"):
            return None
        key = self.ids.of(roles.nodes, roles.node)
        for name in self._keys_of_graphs(table):
            if key.covered(self.ids.of(table, name)) is None:
                continue
            rows = self.ids.of(table, name).positions(key.cells)
            return replace(roles, nodes=with_columns(roles.nodes, table, rows, name))
        return None

    def _labels_of_ends(self, roles: Roles, table: Table) -> Roles | None:
        """Return the roles with a table that has a row for each end of an edge as that of nodes."""
        return None

    def _graphs(self, roles: Roles, table: Table) -> Roles | None:
        """Return the roles with a table that has one row for each graph."""
        if roles.graphs is not None:
            return None
        edges = roles.edges
        targets: list[tuple[Level, str]] = []
        if STEM in edges.columns:
            targets.append(("edge", STEM))
        for level, other in (("node", roles.nodes), ("edge", edges)):
            if other is not None:
                named = roles.graph_columns.get(level, "")  # type: ignore[arg-type]
                columns = [named] if named else self._graph_candidates(roles, other)
                targets += [(level, name) for name in columns]  # type: ignore[misc]
        for name in self._keys_of_graphs(table):
            key = self.ids.of(table, name)
            for level, column in targets:
                other = roles.tables[level]
                ids = self.ids.of(other, column)
                if len(ids.distinct) < 2 or ids.is_key or key.covered(ids) is None:
                    continue
                columns: dict[Level, str] = {**roles.graph_columns, "graph": name, level: column}
                if level == "node" and "edge" not in columns:
                    columns["edge"] = column if column in edges.columns else ""
                return replace(roles, graphs=table, graph_columns=columns)
        return None

    def _graph_candidates(self, roles: Roles, table: Table) -> list[str]:
        used = {roles.node, *roles.ends}
        return [name for name in self._free(table) if name not in used]

    def _with_named_graphs(self, roles: Roles) -> Roles:
        """Return the roles with the columns of graphs that an option or a known name gives."""
        columns: dict[Level, str] = dict(roles.graph_columns)
        if not columns:
            for level, table in roles.tables.items():
                given = [name for name in [self.params.graph] if name in table.columns]
                free = [name for name in self._free(table) if name not in {roles.node, *roles.ends}]
                found = given or names.matching(free, known_names.GRAPH_ID_NAMES)
                if self.params.graph == "file" and STEM in table.columns:
                    found = [STEM]
                if found and self.params.graph != "none":
                    columns[level] = found[0]
        return replace(roles, graph_columns={level: columns.get(level, "") for level in roles.tables})

    # --- a description ----------------------------------------------------------------------------

    def _described(self) -> Roles | None:
        """Return the roles that a description gives to the tables of these names."""
        described = self.options.described
        if described is None:
            return None
        levels = {described.tables[t.name]: t for t in self.tables if t.name in described.tables}
        if "edge" not in levels:
            return None
        edges, nodes = levels["edge"], levels.get("node")
        uses = {(role.level, role.use): role.column for role in described.columns}
        ends = (uses.get(("edge", "source"), ""), uses.get(("edge", "target"), ""))
        node = uses.get(("node", "id"), "") or described.node or ROWS_FROM_0
        graphs = {level: uses.get((level, "graph"), "") for level in levels}
        for level, table in levels.items():
            wanted = {name for (of, use), name in uses.items() if of == level and use in {"source", "target", "id", "graph"}}
            missing = sorted(wanted - {*table.columns})
            if missing:
                raise DamagedInput(
                    f"{table.name} has no column {missing[0]!r}, which the description names.",
                    found=table.column_list,
                    steps="add the column: a model needs it",
                )
        return Roles(edges, ends, nodes, node if nodes is not None else "", levels.get("graph"), graphs)


def _share(reading: Reading) -> float:
    return sum(sorted(reading.columns.values())[-2:]) / max(reading.ids, 1)


def stacked(parts: Sequence[tuple[Table, Ends]]) -> Table:
    """Return tables of edges between the same nodes as one, with the name of each as a category."""
    columns: dict[str, list[pa.Array]] = {}
    tables = [table for table, _ in parts]
    order = dict.fromkeys(
        name for table, ends in parts for name in table.column_names if name not in ends
    )
    for table, ends in parts:
        for end, name in zip(("source", "target"), ends, strict=True):
            columns.setdefault(end, []).append(_as_text(table.columns[name]))
        for name in order:
            cells = table.columns.get(name)
            columns.setdefault(name, []).append(
                pa.nulls(table.rows, pa.string()) if cells is None else _as_text(cells)
            )
        columns.setdefault("table", []).append(pa.array([table.name] * table.rows, pa.string()))
    lines = np.concatenate([t.lines + np.arange(t.rows) if isinstance(t.lines, int) else t.lines for t in tables])
    return Table(
        " and ".join(table.name for table in tables),
        {name: pa.concat_arrays(cells) for name, cells in columns.items()},
        row_word=tables[0].row_word,
        lines=lines,
        locations=[table.name for table in tables for _ in range(table.rows)],
    )


def with_columns(table: Table, other: Table, rows: I64, key: str) -> Table:
    """Return a table with the columns of another at ``rows`` (R,), -1 for none, without its key."""
    take = pa.array(rows, mask=rows < 0)
    added = {
        name if name not in table.columns else f"{other.name} {name}": pc.take(cells, take)
        for name, cells in other.columns.items()
        if name != key and not name.startswith("\0")
    }
    return replace(table, columns={**table.columns, **added})


def _as_text(cells: pa.Array) -> pa.Array:
    return cells if pa.types.is_string(cells.type) else pc.cast(cells, pa.string())


def find_roles(tables: Sequence[Table], options: ReadOptions, notices: Notices) -> Roles:
    """Return the roles of the tables of one dataset; see :class:`RolesFinder`."""
    return RolesFinder(tables, options, notices).find()
