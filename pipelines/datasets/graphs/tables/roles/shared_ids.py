"""Ids that tables share: which column names the nodes of a table, and which columns are their ends.

The table of nodes has a column of different values that two columns of the table of edges cover.
Where graphs restart their ids, values are different within each graph, whose names both tables have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.roles.id_values import (
    MIN_COVERAGE,
    IdValues,
    ValuesOfTables,
)
from kmip_data.pipelines.datasets.graphs.tables.table import Table

#: Names of two columns: source and target of an edge; empty for an end that is not given.
EndColumns = tuple[str, str]
_YEARS = (1_800, 2_100)
#: Fraction of the ids that a column beside the ends must have to be asked about.
MIN_RIVAL_IDS = 0.01


@dataclass(frozen=True)
class SharedIds:
    """A table of edges with columns that have the ids of a table of nodes."""

    edges: Table
    nodes: Table
    id_column: str
    columns: tuple[str, ...]  #: columns of the edges with ids in nearly all rows
    counts: tuple[int, ...]  #: number of distinct ids in each of them
    rows: tuple[int, ...]  #: number of rows with an id in each of them
    years: tuple[bool, ...]  #: True for a column of years
    ids: int  #: number of distinct ids of the nodes
    graph_columns: EndColumns = ("", "")  #: columns of edges and nodes with the graph of a row

    def likeliest_ends(self, given_ends: EndColumns = ("", "")) -> EndColumns:
        """Return the given ends; for others the first known names, or the columns with most ids.

        A column whose rows all have ids comes before one with an unknown id, which would be an error.
        """
        for pair in known_columns.matching_end_pairs(self.columns):
            if all(not name or name == end for name, end in zip(given_ends, pair, strict=True)):
                return pair
        order = range(len(self.columns))
        by_count = sorted(order, key=lambda i: (self.years[i], -self.rows[i], -self.counts[i]))
        given = [self.columns.index(name) for name in given_ends if name in self.columns]
        others = [column for column in by_count if column not in given]
        first, second = sorted([*given, *others][:2])
        source, target = known_columns.in_direction(self.columns[first], self.columns[second])
        if given_ends[0] == target or given_ends[1] == source:
            return target, source
        return source, target

    def rivals(self, ends: EndColumns) -> list[str]:
        """Return other columns that may be an end: no years, and with at least 1 % of the ids."""
        if known_columns.matching_end_pairs(ends):
            return []
        return [
            name
            for name, count, is_year in zip(self.columns, self.counts, self.years, strict=True)
            if name not in ends and count >= MIN_RIVAL_IDS * self.ids and not is_year
        ]

    @property
    def fraction(self) -> float:
        """Fraction of the ids that one of the likeliest ends has."""
        counts = dict(zip(self.columns, self.counts, strict=True))
        return max(counts[name] for name in self.likeliest_ends()) / max(self.ids, 1)


def are_years(ids: IdValues | None) -> bool:
    """True if all values are integers of about four digits, as years are."""
    if ids is None or ids.distinct.dtype.kind != "i" or not len(ids.distinct):
        return False
    return bool(ids.distinct.min() >= _YEARS[0] and ids.distinct.max() <= _YEARS[1])


def free_columns(table: Table, params: GraphParams) -> list[str]:
    """Return the columns to which no option gives another use."""
    used = {*params.label, *params.feature, *params.ignore, params.group, params.graph}
    return [name for name in table.column_names if name not in used]


def shared_ids(
    edges: Table,
    nodes: Table,
    links: Iterable[EndColumns],
    params: GraphParams,
    values: ValuesOfTables,
) -> Iterator[SharedIds]:
    """Yield the columns of ``nodes`` that two columns of ``edges`` cover.

    ``links`` are columns of edges and nodes with the graph of a row; empty for ids that no graph
    repeats.
    """
    targets = {*known_names.TABLE_LABELS} - {"label"}
    for link in links:
        edge_graph = [name for name in link[:1] if name]
        node_graph = [name for name in link[1:] if name]
        names = [name for name in free_columns(nodes, params) if name not in node_graph]
        names = [name for name in names if known_columns.normalized_name(name) not in targets]
        if params.node in names:
            names = [params.node]
        if node_graph:
            id_columns = [name for name in names if values.are_keys(nodes, [*node_graph, name])]
        else:
            id_columns = values.unique_columns(nodes, names)
            id_columns += _columns_below_units(nodes, names, values)
        end_params = params
        if not edges.has_names and {*params.label} <= {*nodes.column_names}:
            # The number of the label counts the columns of the nodes.
            end_params = params.model_copy(update={"label": ()})
        ends = [name for name in free_columns(edges, end_params) if name not in edge_graph]
        for id_column in id_columns:
            keys = [*node_graph, id_column]
            known = {
                name: values.known_rows(edges, [*edge_graph, name], nodes, keys) for name in ends
            }
            rows = {
                name: int(mask.sum())
                for name, mask in known.items()
                if mask is not None and len(mask) and mask.mean() >= MIN_COVERAGE
            }
            if len(rows) < 2:
                continue
            ids = values.of(nodes, id_column)
            yield SharedIds(
                edges,
                nodes,
                id_column,
                tuple(rows),
                tuple(values.count_shared(edges, name, nodes, id_column) for name in rows),
                tuple(rows.values()),
                tuple(are_years(values.of(edges, name)) for name in rows),
                0 if ids is None else len(ids.distinct),
                link,
            )


def _columns_below_units(nodes: Table, names: Iterable[str], values: ValuesOfTables) -> list[str]:
    """Return columns of different ids below one empty cell, as in a line of units, which an error names."""
    columns = []
    for name in names:
        cells = nodes.frame[name]
        may_be_ids = cells.dtype.kind == "O" or known_columns.may_be_id_name(name)
        if may_be_ids and cells[:1].isna().any():
            ids = values.of(nodes, name)
            if ids is not None and len(ids.distinct) == len(ids.codes) - 1:
                columns.append(name)
    return columns


def graph_links(
    edges: Table, nodes: Table, others: Sequence[Table], params: GraphParams, values: ValuesOfTables
) -> list[EndColumns]:
    """Return the columns of edges and nodes that may have the graph of a row; empty for none.

    They have known names, or a column of different values in a third table covers both. Of several,
    they are those with most of its values, because row numbers cover small ids, too.
    """
    by_name = [graph_columns_by_name(table, params) for table in (edges, nodes)]
    if all(by_name):
        return [(by_name[0][0], by_name[1][0])]
    links: dict[EndColumns, int] = {}
    for table in others:
        for key in values.unique_columns(table, free_columns(table, params)):
            in_edges = covered_columns(table, key, edges, params, values)
            in_nodes = covered_columns(table, key, nodes, params, values)
            for node in in_nodes:
                count = values.count_shared(nodes, node, table, key)
                links |= {(edge, node): count for edge in in_edges}
    most = MIN_COVERAGE * max(links.values(), default=0)
    return [("", ""), *(link for link, count in links.items() if count >= most)]


def graph_columns_by_name(table: Table, params: GraphParams) -> list[str]:
    """Return the columns that an option, a reader or their names make those of the graph of a row."""
    for name in (params.graph, known_columns.GRAPH_KEY):
        if name and name in table.column_names:
            return [name]
    if params.graph:
        return []
    return known_columns.matching_names(free_columns(table, params), known_names.GRAPH_ID_NAMES)


def covered_columns(
    other: Table, key: str, table: Table, params: GraphParams, values: ValuesOfTables
) -> list[str]:
    """Return the columns, with repeated values, that the values of ``key`` in ``other`` cover."""
    names = []
    for name in free_columns(table, params):
        if name in {params.source, params.target}:
            continue
        ids = values.of(table, name)
        if ids is not None and not ids.is_unique and values.covers(other, [key], table, [name]):
            names.append(name)
    return names
