"""Graphs of networkx as tables of graphs, nodes and edges, whose columns of ids are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from kmip_data.columns.column_roles import Level
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own.graphs import UNDIRECTED
from kmip_data.pipelines.own.roles import Roles
from kmip_data.pipelines.own.table import (
    FILE_COLUMNS,
    Table,
    names_of_file,
    table_of_arrays,
    table_of_rows,
)

#: Columns that no attribute is called: the graph of a row, the id of a node, and the ends of an edge.
GRAPH, NODE, SOURCE, TARGET = "\0graph", "\0node", "\0source", "\0target"


class AttributeRows:
    """Rows of one level: their ids, attributes and locations.

    Parameters
    ----------
    row_word
        Word for a row in messages.
    ids
        Columns with the ids of each row.
    """

    def __init__(self, row_word: str, *ids: str) -> None:
        self._row_word = row_word
        self._ids: dict[str, list[object]] = {column: [] for column in ids}
        self._attributes: list[Mapping[Any, object]] = []
        self._locations: list[str] = []
        self._rows: list[object] = []

    def add(
        self, location: str, row: object, attributes: Mapping[Any, object], *ids: object
    ) -> None:
        """Add a row; ``location`` and ``row`` are the file and the row in it, for messages."""
        for column, value in zip(self._ids.values(), ids, strict=True):
            column.append(value)
        self._attributes.append(attributes)
        self._locations.append(location)
        self._rows.append(row)

    def table(self, name: str, options: ReadOptions, ignored: dict[str, str]) -> Table:
        """Return the table of the rows; attributes that are lists or objects are ``ignored``."""
        table = table_of_rows(
            name,
            self._attributes,
            options,
            ignored,
            row_word=self._row_word,
            lines=np.array(self._rows, object),
            locations=self._locations,
        )
        ids = table_of_arrays(name, self._ids)
        return replace(table, columns={**table.columns, **ids.columns})


class Networks:
    """Graphs of networkx, and the tables of their attributes."""

    def __init__(self) -> None:
        self._rows: dict[Level, AttributeRows] = {
            "graph": AttributeRows("graph", GRAPH, *FILE_COLUMNS),
            "node": AttributeRows("node", GRAPH, NODE),
            "edge": AttributeRows("edge", GRAPH, SOURCE, TARGET, UNDIRECTED),
        }

    def add(
        self, graph: Any, file: str, number: int = 0, names: Mapping[Any, str] | None = None
    ) -> None:
        """Add a graph with the defaults of its file, and its ``number`` in this file.

        ``names`` replace the ids of its nodes.
        """
        key = str(PurePosixPath(file.removesuffix(".gz")).with_suffix(""))
        location = file
        if number:
            key += f"/{number}"
            location += f", graph {number} (from 0)"
        names = names or {node: str(node) for node in graph}
        data = dict(graph.graph)
        node_defaults = data.pop("node_default", {})
        edge_defaults = data.pop("edge_default", {})
        if data.get("mode") == "static":  # an attribute of GEXF
            del data["mode"]

        self._rows["graph"].add(location, key, data, key, *names_of_file(file).values())
        for node, attributes in graph.nodes(data=True):
            self._rows["node"].add(location, node, node_defaults | attributes, key, names[node])
        is_undirected = not graph.is_directed()
        for source, target, attributes in _edges(graph):
            ends = (names[source], names[target])
            row = f"from {source} to {target}"
            self._rows["edge"].add(
                location, row, edge_defaults | attributes, key, *ends, is_undirected
            )

    def roles(self, name: str, options: ReadOptions, ignored: dict[str, str]) -> Roles:
        """Return the tables in their roles; ``name`` is that of the graphs, for messages."""
        tables = {
            level: rows.table(f"{name}, {level}s", options, ignored)
            for level, rows in self._rows.items()
        }
        return Roles(
            tables["edge"],
            (SOURCE, TARGET),
            tables["node"],
            NODE,
            tables["graph"],
            dict.fromkeys(tables, GRAPH),
        )


def _edges(graph: Any) -> Iterator[tuple[Any, Any, dict[Any, object]]]:
    """Yield the ends and attributes of each edge, with its key unless networkx numbers the edges."""
    if not graph.is_multigraph():
        yield from graph.edges(data=True)
        return
    for source, target, key, data in graph.edges(keys=True, data=True):
        yield source, target, data if isinstance(key, int) else {"key": key, **data}
