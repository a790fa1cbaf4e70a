"""Readings of two tables as edges and nodes, by the values of their columns.

A table of nodes has a column of different values, a key, that two columns of the table of edges lie
in. The numbers of its rows are a key, too. Where graphs restart their ids, values differ within each
graph, whose names both tables have. Without such a reading, one that fits half of the rows is taken, and
the other rows are errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from kmip_data.arrays import I64
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.headers import UNNAMED
from kmip_data.pipelines.own.ids import (
    MIN_COVERAGE,
    MIN_NEAR,
    Ids,
    IdsOfTables,
    positions_in,
)
from kmip_data.pipelines.own.table import FILE, FILE_COLUMNS, STEM, Table

Ends = tuple[str, str]
ROWS_FROM_0, ROWS_FROM_1 = "none", "rows-from-1"  #: values of ``node``: rows are numbered
COMPARED_COLUMNS = 24  #: first columns of a table that may be ends, or keys within graphs
_MIN_RIVAL = 0.1  #: fraction of the most ids in a column from which another one may be an end, too
_FEW_NODES = 10  #: nodes up to which a column of few different values may be an end


@dataclass(frozen=True)
class Reading:
    """Two tables as edges and nodes."""

    edges: Table
    nodes: Table
    node: str  #: column of ids, or how the rows of the nodes are numbered
    columns: Mapping[str, int]  #: column of the edges with ids -> number of different ones
    graph_columns: Ends = ("", "")  #: columns of edges and nodes with the graph of a row

    @property
    def has_rows(self) -> bool:
        """True if the ids are numbers of rows."""
        return self.node in (ROWS_FROM_0, ROWS_FROM_1)

    @property
    def has_ids(self) -> bool:
        """True if the name of the column is one of ids or empty, or its words are in that of an end.

        Without names, the first column has the ids.
        """
        if not self.nodes.has_names:
            return self.node == self.nodes.column_names[0]
        words = {*names.words(self.node)}
        is_in_end = any(words <= {*names.words(name)} for name in self.columns)
        return names.is_id_name(self.node) or self.node.startswith(UNNAMED) or is_in_end

    @property
    def likely_ends(self) -> Ends:
        """The two columns with most different ids, in the order of the table."""
        first, second, *_ = sorted(self.columns, key=self.columns.__getitem__, reverse=True)
        order = self.edges.column_names.index
        return (first, second) if order(first) < order(second) else (second, first)

    @property
    def support(self) -> int:
        """Number of different ids that each of the likely ends has at least."""
        return min(self.columns[name] for name in self.likely_ends)

    @property
    def fraction(self) -> float:
        """Fraction of the nodes that the two columns with most ids have at most."""
        return min(sum(sorted(self.columns.values())[-2:]) / max(self.nodes.rows, 1), 1)

    @property
    def rank(self) -> tuple[object, ...]:
        """Order of readings whose values fit equally, by names alone."""
        tells_ends = bool(names.end_pairs(self.columns)) or any(
            names.tells_direction(*pair) or names.tells_direction(*pair[::-1])
            for pair in combinations(self.columns, 2)
        )
        has_words = (names.level_of(self.edges.name) == "edge") + (
            names.level_of(self.nodes.name) == "node"
        )
        is_known = bool(names.matching([self.node], known_names.NODE_ID_NAMES))
        return tells_ends, has_words, self.has_ids, is_known, self.graph_columns != ("", "")


class Readings:
    """Readings of the tables of a dataset."""

    def __init__(self, tables: Sequence[Table], params: GraphParams, ids: IdsOfTables) -> None:
        self.tables = tables
        self.params = params
        self.ids = ids

    def __iter__(self) -> Iterator[Reading]:
        given = {self.params.source, self.params.target} - {""}
        are_numbered = self.params.node in (ROWS_FROM_0, ROWS_FROM_1)
        for nodes in self.tables:
            keys = self.node_keys(nodes)
            if not self.params.node and self._has_ends(nodes):
                continue
            for edges in self.tables:
                is_apart = edges is not nodes and not self._names_files(nodes, edges)
                if not is_apart or not given <= {*edges.columns}:
                    continue
                found = [*self._readings_of_keys(edges, nodes, keys)]
                rows = [*self._readings_of_rows(edges, nodes, found)]
                if are_numbered:
                    found = []
                if any(reading.has_ids for reading in found):
                    rows = []
                if not found:
                    within = [*self._readings_within_graphs(edges, nodes)]
                    linked = [r for r in within if r.graph_columns[0] == r.graph_columns[1]]
                    if not within and not are_numbered:
                        found = [*self._near_readings(edges, nodes)]
                    if any(reading.has_ids for reading in found):
                        rows = []
                    rows = linked or within or rows
                yield from [*found, *rows]

    def free(self, table: Table, labelled: Table | None = None) -> list[str]:
        """Return the columns to which no option gives another use; labels are those of ``labelled``."""
        params = self.params
        used = {*params.feature, *params.ignore, params.graph}
        if labelled is None:
            labelled = table
        if labelled is table or {*params.label, params.group}.isdisjoint(labelled.columns):
            used |= {*params.label, params.group}
        return [name for name in table.column_names if name not in used]

    def keys(self, table: Table) -> list[str]:
        """Return the free columns of a table whose ids all differ."""
        return [
            name
            for name in self.free(table)
            if not self.ids.of(table, name).are_fractions and self.ids.of(table, name).is_key
        ]

    def node_keys(self, nodes: Table) -> list[str]:
        """Return the columns that may have the ids of the nodes: the given one, or all keys but targets."""
        if self.params.node not in ("", ROWS_FROM_0, ROWS_FROM_1):
            return [self.params.node] if self.params.node in nodes.columns else []
        targets = names.matching(nodes.column_names, {*known_names.TABLE_LABELS} - {"label"})
        return [name for name in self.keys(nodes) if name not in targets]

    def _has_ends(self, table: Table) -> bool:
        """True for edges: two columns are named like ends, or a key has the ids of another column.

        A name of nodes, or of a key as ids, tells nodes.
        """
        keys = self.keys(table)
        pairs = names.end_pairs(table.column_names)
        has_ids = any(
            names.is_id_name(key) and all(key not in pair for pair in pairs) for key in keys
        )
        if has_ids or names.level_of(table.name) == "node":
            return False
        columns = self.free(table)[:COMPARED_COLUMNS]
        return bool(pairs) or any(
            (names.are_alike(key, other) or not self.ids.of(table, key).are_numbers)
            and self.ids.of(table, key).covers(self.ids.of(table, other))
            for key, other in product(keys[:COMPARED_COLUMNS], columns)
            if key != other
        )

    def _readings_of_keys(
        self, edges: Table, nodes: Table, keys: Sequence[str]
    ) -> Iterator[Reading]:
        for name in keys:
            columns = self._columns_in(self.ids.of(nodes, name), edges)
            # Next to two ends, a column of the key's own name has the graph of each edge.
            has_ends = any(name not in pair for pair in names.end_pairs(columns))
            names_graphs = has_ends and name in columns and not self.ids.of(edges, name).is_key
            if len(columns) > 1 and not names_graphs:
                yield Reading(edges, nodes, name, columns)

    def _near_readings(self, edges: Table, nodes: Table) -> Iterator[Reading]:
        """Yield the columns of ids of which some are missing, occur twice, or are ends alone."""
        has_ends = names.end_pairs(nodes.column_names)
        likely = [] if has_ends else self.free(nodes)[:COMPARED_COLUMNS]
        if self.params.node:
            likely = self.node_keys(nodes)
        for name in likely:
            ids = self.ids.of(nodes, name)
            are_few = 2 * len(ids.distinct) < nodes.rows and not names.is_id_name(name)
            if are_few or not ids.are_likely:
                continue
            columns = {
                end: len(self.ids.of(edges, end).distinct)
                for end in self.free(edges, nodes)[:COMPARED_COLUMNS]
                if ids.covers(self.ids.of(edges, end), MIN_NEAR)
            }
            if len(columns) > 1:
                yield Reading(edges, nodes, name, columns)

    def _columns_in(self, key: Ids, edges: Table) -> dict[str, int]:
        """Return the columns of the edges that lie in a key, with the number of its ids in each."""
        given = [name for name in (self.params.source, self.params.target) if name]
        told = names.end_pairs(edges.column_names)
        if not given and len(told) == 1:
            given = [*told[0]]
        free = [
            name
            for name in self.free(edges, key.table)
            if name not in given and not self._links(key, edges, name)
        ]
        columns = {}
        for name in [*given, *free[:COMPARED_COLUMNS]]:
            ids = self.ids.of(edges, name)
            is_year = name not in given and ids.are_years and not key.are_years
            if not is_year and key.covers(ids):
                columns[name] = int((key.positions(ids.distinct) >= 0).sum())
        # Beside the ends, a number of few different values is a weight or a kind.
        least = _MIN_RIVAL * max(columns.values(), default=0)
        if key.table.rows <= _FEW_NODES:
            least = 0
        return {name: count for name, count in columns.items() if name in given or count >= least}

    def _links(self, key: Ids, edges: Table, name: str) -> bool:
        """True for a column of both tables that links their rows, and is no key: it names graphs."""
        is_shared = key.table.has_names and name != key.name and name in key.table.columns
        return is_shared and self.ids.of(key.table, name).covers(self.ids.of(edges, name))

    def _readings_of_rows(
        self, edges: Table, nodes: Table, found: Sequence[Reading]
    ) -> Iterator[Reading]:
        """Yield the readings of two columns of numbers as numbers of rows, from 0 and from 1."""
        given = self.params.node
        if given not in ("", ROWS_FROM_0, ROWS_FROM_1) or (FILE in nodes.columns and not given):
            return  # rows of several files have no common number
        pairs = {tuple(reading.columns) for reading in found if len(reading.columns) == 2}
        pairs |= {*names.end_pairs(edges.column_names)}
        if self.params.source and self.params.target:
            pairs = {(self.params.source, self.params.target)}
        links = {*nodes.column_names} if nodes.has_names else set()
        if len(edges.column_names) == 2 and not found and links.isdisjoint(edges.columns):
            pairs = pairs or {tuple(edges.column_names)}
        for pair in pairs:
            ends = [self.ids.of(edges, name) for name in pair]
            if not all(end.are_numbers and len(end.distinct) for end in ends):
                continue
            if self._names_graphs(nodes, edges, pair):
                continue
            smallest = min(pc.min(end.distinct).as_py() for end in ends)
            largest = max(pc.max(end.distinct).as_py() for end in ends)
            counts = {name: len(end.distinct) for name, end in zip(pair, ends, strict=True)}
            for node, first in ((ROWS_FROM_1, 1), (ROWS_FROM_0, 0)):
                if given in ("", node) and first <= smallest and largest < nodes.rows + first:
                    yield Reading(edges, nodes, node, counts)

    def _readings_within_graphs(self, edges: Table, nodes: Table) -> Iterator[Reading]:
        """Yield the columns whose ids differ within each graph, which both tables name."""
        candidates = nodes.column_names[:COMPARED_COLUMNS]
        if FILE in nodes.columns and FILE in edges.columns:
            candidates = [STEM]
        for node_graph in candidates:
            graphs = self.ids.of(nodes, node_graph)
            if graphs.is_key or graphs.are_fractions or graphs.cells.null_count:
                continue
            for edge_graph in self._names_of_graphs_in(edges, node_graph, graphs):
                codes = positions_in(graphs.distinct, self.ids.of(edges, edge_graph).cells)
                if (codes >= 0).all():
                    link = (edge_graph, node_graph)
                    yield from self._readings_of_codes(edges, nodes, link, codes, graphs)

    def _names_of_graphs_in(self, edges: Table, node_graph: str, graphs: Ids) -> list[str]:
        """Return the columns of the edges that may name the graph that a column of nodes does."""
        if node_graph in edges.columns:
            return [node_graph]
        if node_graph == self.params.graph or self._are_rows_of_another_table(graphs):
            return [
                *filter(edges.columns.__contains__, [STEM]),
                *self.free(edges)[:COMPARED_COLUMNS],
            ]
        return []

    def _names_graphs(self, table: Table, edges: Table, ends: Sequence[str]) -> bool:
        """True if a key of a table names groups of edges, or their files: its rows are graphs."""
        groups = [name for name in edges.column_names[:COMPARED_COLUMNS] if name not in ends]
        groups += [STEM] if STEM in edges.columns else []
        for key in [*self.keys(table), *{self.params.graph} & {*table.columns}]:
            ids = self.ids.of(table, key)
            for name in groups:
                cells = self.ids.of(edges, name)
                may_name = not ids.are_numbers or (name in (key, STEM) and not cells.is_key)
                if may_name and ids.covers(cells):
                    return True
        return names.level_of(table.name) == "graph"

    def _names_files(self, table: Table, other: Table) -> bool:
        """True if a key of a table has the names of the files of another, and few other ids."""
        files = [self.ids.of(other, name) for name in FILE_COLUMNS if name in other.columns]
        keys = [self.ids.of(table, name) for name in self.keys(table)]
        return any(
            key.covers(names) and table.rows < 2 * len(names.distinct)
            for names in files
            for key in keys
        )

    def _are_rows_of_another_table(self, graphs: Ids) -> bool:
        """True if a third table has each graph once."""
        return any(
            self.ids.of(table, name).covers(graphs)
            for table in self.tables
            if table is not graphs.table
            for name in self.keys(table)
        )

    def _readings_of_codes(
        self, edges: Table, nodes: Table, link: Ends, edge_codes: I64, graphs: Ids
    ) -> Iterator[Reading]:
        """Yield the columns whose ids differ within the graphs that ``link`` names."""
        node_codes = positions_in(graphs.distinct, graphs.cells)
        for name in self.free(nodes)[:COMPARED_COLUMNS]:
            ids = self.ids.of(nodes, name)
            if name in link or ids.are_fractions or ids.cells.null_count:
                continue
            count = len(ids.distinct)
            keys = node_codes * count + positions_in(ids.distinct, ids.cells)
            if len(pd.unique(keys)) < len(keys):
                continue
            columns = {}
            for end in self.free(edges, nodes)[:COMPARED_COLUMNS]:
                if end in link:
                    continue
                codes = positions_in(ids.distinct, self.ids.of(edges, end).cells)
                is_node = (codes >= 0) & np.isin(edge_codes * count + codes, keys)
                if is_node.mean() >= MIN_COVERAGE:
                    columns[end] = len(pd.unique(codes))
            if len(columns) > 1:
                yield Reading(edges, nodes, name, columns, link)


def agrees(pair: Ends, given: Ends) -> bool:
    """True if a pair of ends has the given ones, which are empty if none is given."""
    return all(not name or name == end for name, end in zip(given, pair, strict=True))
