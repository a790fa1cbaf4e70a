"""Blocks of graphs in a form that can be compared: edges sorted, columns of both sides alike."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from kmip_data.arrays import I64, Array, DType
from kmip_data.reading.gather import EDGE, LEVELS, NODE
from kmip_data.runtime.memory import require_memory

EDGES = "edge_index"
_BYTES_PER_BLOCK = 2**26  #: most bytes of a block, unless a single graph has more
_BYTES_PER_EDGE = 160  #: peak memory of an edge that is sorted and matched, without its columns


class ComparedColumn(NamedTuple):
    """Column of one side; the parts of a split are a column of texts."""

    level: str
    shape: str  #: shape of the attribute of an item, such as ``[N, 3]``
    dtype: DType
    width: int  #: values in a row
    is_text: bool  #: True for the UTF-8 bytes of a text, which zeros pad


class ComparedSide(Protocol):
    """Graphs of one side."""

    columns: Mapping[str, ComparedColumn]  #: by attribute, with ``edge_index`` if there are edges
    row_count: I64  #: (3, G) rows of each graph on the graph, node and edge level

    def read(self, records: I64) -> Mapping[str, Array]:
        """Return the rows of graphs (n,), one after another, whose nodes are numbered over all."""


def shared_columns(a: ComparedSide, b: ComparedSide) -> dict[str, ComparedColumn]:
    """Return the columns that have the same level, and the same width or texts, on both sides.

    Their dtype and width hold the values of both.
    """
    shared = {}
    for name, in_a in a.columns.items():
        in_b = b.columns.get(name)
        if name == EDGES or in_b is None or in_a.level != in_b.level:
            continue
        are_texts = in_a.is_text and in_b.is_text
        if in_a.width == in_b.width or are_texts:
            dtype = np.result_type(in_a.dtype, in_b.dtype)
            width = max(in_a.width, in_b.width)
            shared[name] = in_a._replace(dtype=dtype, width=width, is_text=are_texts)
    return shared


@dataclass(frozen=True)
class Block:
    """Graphs of one side, with sorted edges and with columns of the shared dtypes."""

    records: I64  #: (n,)
    columns: Mapping[str, Array]  #: rows by column, (rows, width)
    first: I64  #: (3, n + 1) rows before each graph on each level
    keys: I64  #: (E,) ascending: source × nodes of the block + target
    order: I64  #: (E,) position of each edge in its graph, before they were sorted

    @property
    def nodes(self) -> int:
        """Number of nodes, at least one."""
        return max(int(self.first[NODE, -1]), 1)

    def graph_of(self, level: int, rows: I64) -> I64:
        """Return the position of the graph of each row (m,)."""
        return np.searchsorted(self.first[level], rows, side="right") - 1

    def ends(self, edge: int) -> str:
        """Return an edge as text, with nodes numbered in its graph."""
        source, target = divmod(int(self.keys[edge]), self.nodes)
        first = int(self.first[NODE, self.graph_of(NODE, np.array(source))])
        return f"{source - first} → {target - first}"


class BlockReader:
    """Reader of blocks of one side."""

    def __init__(
        self, side: ComparedSide, shared: Mapping[str, ComparedColumn], *, has_edges: bool
    ) -> None:
        self._side = side
        self._shared = shared
        self._has_edges = has_edges and EDGES in side.columns
        #: (3,) bytes of a row on each level; a graph has a few itself
        self.row_bytes: I64 = np.array([64, 8, 0])
        for column in shared.values():
            self.row_bytes[LEVELS[column.level]] += column.width * column.dtype.itemsize
        if self._has_edges:
            self.row_bytes[EDGE] += _BYTES_PER_EDGE

    def block(self, records: I64) -> Block:
        """Read graphs (n,) as a block."""
        counts = self._side.row_count[:, records]
        if len(records) == 1:
            require_memory(
                3 * int((self.row_bytes @ counts)[0]),
                f"Comparing a graph of {counts[NODE, 0]:,} nodes and {counts[EDGE, 0]:,} edges",
                "a machine with more memory",
            )
        first = np.zeros((3, len(records) + 1), np.int64)
        np.cumsum(counts, axis=1, out=first[:, 1:])
        rows = self._side.read(records)
        columns = {name: _converted(rows[name], column) for name, column in self._shared.items()}
        keys = order = np.empty(0, np.int64)
        if self._has_edges:
            source, target = rows[EDGES]
            keys = source * max(int(first[NODE, -1]), 1) + target
            edge_columns = [name for name, column in self._shared.items() if column.level == "edge"]
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            if (keys[1:] == keys[:-1]).any():  # edges between the same nodes: by their columns
                values = [row for name in edge_columns for row in columns[name].T]
                order = np.lexsort([*values, target, source])
            for name in edge_columns:
                columns[name] = columns[name][order]
            order -= np.repeat(first[EDGE, :-1], counts[EDGE])
        return Block(records, columns, first, keys, order)

    def digests(self, records: I64) -> Array:
        """Return digests of graphs, uint64 (C + 3, n): nodes, columns, edges, order of the edges."""
        digests = np.zeros((len(self._shared) + 3, len(records)), np.uint64)
        row_count = self._side.row_count[:, records]
        digests[0] = row_count[NODE]
        for chosen in block_slices(self.row_bytes @ row_count):
            block = self.block(records[chosen])
            for number, (name, column) in enumerate(self._shared.items(), start=1):
                first = block.first[LEVELS[column.level]]
                digests[number, chosen] = _digest_slices(block.columns[name], first, number)
            if self._has_edges:
                first = block.first[EDGE]
                digests[-2, chosen] = _digest_slices(_edge_keys_by_graph(block), first, 0)
                digests[-1, chosen] = _digest_slices(block.order, first, 0)
        return digests

    def allowed_differences(self) -> list[list[int]]:
        """Return the rows of :meth:`digests` that a pair may differ in, one list for each try."""
        tries = [[number] for number in range(1, len(self._shared) + 1)]
        if self._has_edges:
            levels = enumerate(self._shared.values(), start=1)
            edge_columns = [number for number, column in levels if column.level == "edge"]
            tries.append([*edge_columns, len(self._shared) + 1])
        return tries


def _converted(rows: Array, column: ComparedColumn) -> Array:
    """Return rows (n, …) as (n, width) of the shared dtype, without -0 and with a single NaN."""
    values = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    if column.is_text:
        values = np.pad(values, [(0, 0), (0, column.width - values.shape[1])])
    values = values.astype(column.dtype, copy=False)
    if column.dtype.kind != "f":
        return values
    values = values + column.dtype.type(0)
    values[np.isnan(values)] = np.nan
    return values


def _edge_keys_by_graph(block: Block) -> I64:
    """Return the key of each edge (E,) in its own graph, of any block."""
    nodes = np.diff(block.first[NODE]).repeat(np.diff(block.first[EDGE]))
    first = block.first[NODE, :-1].repeat(np.diff(block.first[EDGE]))
    source, target = np.divmod(block.keys, block.nodes)
    keys: I64 = (source - first) * nodes + target - first
    return keys


def _digest_slices(rows: Array, first: I64, salt: int) -> Array:
    """Return the digest of the rows of each graph, uint64 (n,); ``first`` (n + 1,) are their starts."""
    data = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    ends = first * (len(data) // max(len(rows), 1))
    key = salt.to_bytes(8, "little")
    slices = (data[start:stop] for start, stop in pairwise(ends.tolist()))
    digests = (hashlib.blake2b(part, digest_size=8, salt=key).digest() for part in slices)
    return np.frombuffer(b"".join(digests), np.uint64)


def block_slices(sizes: I64) -> Iterator[slice]:
    """Yield consecutive graphs, of these sizes in bytes (n,), that make a block."""
    block = np.cumsum(sizes) // _BYTES_PER_BLOCK
    cuts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(sizes)]
    yield from (slice(start, stop) for start, stop in pairwise(cuts) if start < stop)
