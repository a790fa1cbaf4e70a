"""Node indices within each graph, looked up by the ids in the tables of nodes and edges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from kmip_data.arrays import I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.tables.table import Table, comparable_ids
from kmip_data.pipelines.own_pipeline import KEY_LENGTH, escaped_key
from kmip_data.text import count_with_noun

RowsByGraph = dict[str, I64]  #: rows of each graph, by its name
#: Length of the range, per value, up to which a table over the range is faster than a hash table.
_MAX_RANGE_PER_VALUE = 8

REMEDY_OF_EQUAL_IDS = (
    "remove one of the lines; if they are nodes of several types, write the type before each id in all "
    "tables, as in user:0"
)


class IntegerCodes(NamedTuple):
    """Integers as offsets from the smallest one."""

    codes: I64  #: shape of the integers
    smallest: int
    length: int  #: number of integers from the smallest to the largest

    def occurring(self) -> I64:
        """Return the codes that occur, sorted."""
        occurs = np.zeros(self.length, bool)
        occurs[self.codes] = True
        return np.flatnonzero(occurs)


def encode_integers(values: Array) -> IntegerCodes | None:
    """Return integers (…) as offsets; ``None`` for other values, and for integers far apart.

    Offsets need no hash table: ids are mostly numbered in a range.
    """
    if values.dtype.kind != "i" or not values.size:
        return None
    smallest = int(values.min())
    length = int(values.max()) - smallest + 1
    if length > _MAX_RANGE_PER_VALUE * values.size:
        return None
    codes = values.astype(np.int64) - smallest if smallest else values.astype(np.int64, copy=False)
    return IntegerCodes(codes, smallest, length)


def count_distinct(values: pd.Series) -> int:
    """Return the number of distinct values of a column without missing ones."""
    integers = encode_integers(values.to_numpy())
    return values.nunique() if integers is None else len(integers.occurring())


def index_ends(ends: Array) -> tuple[Array, Array]:
    """Replace the ids of ends (2, E) by indices into the sorted distinct ids; return both."""
    integers = encode_integers(ends)
    if integers is None:
        # A hash table takes a third of the time that sorting all ends does.
        indices, ids = pd.factorize(ends.reshape(-1), sort=True)
        return indices.reshape(ends.shape), ids
    occurring = integers.occurring()
    index_by_code = np.empty(integers.length, np.int32 if len(occurring) < 2**31 else np.int64)
    index_by_code[occurring] = np.arange(len(occurring))
    return index_by_code[integers.codes], occurring + integers.smallest


def _encode(ids: Array) -> tuple[I64, int]:
    """Return a code for each id, (n,), and the number of codes."""
    integers = encode_integers(ids)
    if integers is not None:
        return integers.codes, integers.length
    codes, distinct = pd.factorize(ids)
    return codes, len(distinct)


class NodeIndices:
    """Node indices of one graph at a time, looked up by id."""

    def __init__(
        self,
        nodes: Table,
        edges: Table,
        ends: Array,
        id_column: str,
        groups: RowsByGraph,
        *,
        first_row: int = 0,
    ) -> None:
        """Encode the distinct ids of all graphs.

        Without ``id_column``, the ids are the numbers of the rows of each graph from ``first_row``.
        """
        self.table = nodes
        self._edges = edges
        if id_column:
            ids = nodes.ids(id_column)
        else:
            ids = np.empty(len(nodes.frame), np.int64)
            for rows in groups.values():
                ids[rows] = np.arange(first_row, first_row + len(rows))
        node_values, end_values = comparable_ids(ids, ends)
        codes, num_codes = _encode(np.concatenate([node_values, end_values.reshape(-1)]))
        # A table has lost zeros such as those of 007.
        lacks_zeros = node_values.dtype.kind == "i" and ids.dtype != ends.dtype
        self.warnings = [_zeros_warning(nodes, edges)] if lacks_zeros else []
        self.ids = ids if lacks_zeros else node_values
        self._ends = ends
        self._node_codes = codes[: len(ids)]
        self._end_codes = codes[len(ids) :].reshape(ends.shape)
        self._index_by_code = np.full(num_codes, -1)  #: -1 outside the current graph

    def edge_rows_between(self, node_rows: I64, edge_rows: I64) -> I64:
        """Return the rows of ``edge_rows`` (E,) whose two ends are in ``node_rows`` (N,)."""
        are_nodes = np.isin(self._end_codes[:, edge_rows], self._node_codes[node_rows])
        return edge_rows[are_nodes.all(axis=0)]

    def edges_of_graph(self, node_rows: I64, edge_rows: I64) -> I64:
        """Return the edges of one graph, (2, E), as node indices."""
        codes = self._node_codes[node_rows]
        indices = np.arange(len(codes))
        # The last of several equal ids keeps its index.
        self._index_by_code[codes] = indices
        is_last = self._index_by_code[codes] == indices
        if not is_last.all():
            row = node_rows[pd.Index(codes).duplicated().argmax()]
            problem = f"the node {self.ids[row]} occurs twice"
            raise self.table.error_at(row, problem, REMEDY_OF_EQUAL_IDS)
        edges = self._index_by_code[self._end_codes[:, edge_rows]]
        self._index_by_code[codes] = -1
        unknown = np.argwhere(edges.T < 0)
        if len(unknown):
            row, end = unknown[0]
            others = len({*self._ends[:, edge_rows][edges < 0].tolist()}) - 1
            raise self._unknown_end_error(edge_rows[row], end, node_rows, others)
        return edges

    def _unknown_end_error(self, row: int, end: int, node_rows: I64, others: int) -> DamagedInput:
        """Return the error for an end (0 or 1) of an edge that is not among the graph's nodes."""
        ids = {str(node) for node in self.ids[node_rows].tolist()}
        name = str(self._ends[end, row])[:80]
        problem = f"the node {name} is not one of the {len(node_rows)} nodes of its graph"
        if others:
            problem += f", nor are {count_with_noun(others, 'other end')} of edges"
        remedy = (
            f"add a line for the node to {self.table.name!r}; if its ids are in another column, "
            "name it as node"
        )
        # Rows with their own locations come from a format without columns to choose.
        if self.table.locations:
            remedy = "add the node to its graph, or correct the edge"
        bare_name = name.lstrip("0").casefold()
        similar = [node for node in ids if node.lstrip("0").casefold() == bare_name]
        if similar:
            remedy = (
                f"write ids alike in both files: {name!r} here is {similar[0]!r} in "
                f"{self.table.name!r}"
            )
        return self._edges.error_at(row, problem, remedy)


def _zeros_warning(nodes: Table, edges: Table) -> str:
    return f"ids of {nodes.name} and {edges.name} are compared as numbers: they differ by zeros before them"


def are_row_numbers(ids: Array) -> bool:
    """True if ids (N,) are 0 to N - 1 in order, as integers or strings."""
    if ids.dtype.kind in "iu":
        return np.array_equal(ids, np.arange(len(ids)))
    return all(str(node) == str(row) for row, node in enumerate(ids))


def encode_ids(ids: Array, options: ReadOptions) -> Array:
    """Return node ids (N,) as stored: int64 (N,), or UTF-8 padded with zeros, uint8 (N, bytes)."""
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64)
    strings = list(map(str, ids.tolist()))
    encoded = [string.encode() for string in strings]
    for row, string in enumerate(strings):
        if len(encoded[row]) > KEY_LENGTH:
            encoded[row] = escaped_key(string, KEY_LENGTH).encode()
    width = max(map(len, encoded))
    options.check_memory(2 * width * len(encoded), "A copy of the ids of the nodes")
    return np.array(encoded, f"S{width}").view(np.uint8).reshape(len(encoded), width)
