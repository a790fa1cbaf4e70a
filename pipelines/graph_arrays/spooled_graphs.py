"""Graphs spooled to disk as typed arrays while files are read, and read back by position.

Attributes of your own graphs are known only after the last graph, and a shard starts anywhere, but
files are parsed once. A spool is a sequence of segments: folders with arrays of consecutive graphs
whose columns have equal names, dtypes and row shapes. Strings are stored as codes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.columns.graph_block import GraphBlock
from kmip_data.files.path_errors import require_disk_space
from kmip_data.format.graph_record import GraphRecord
from kmip_data.pipelines.graph_arrays.mapped_graphs import MappedGraphs, write_graph_arrays

_INDEX_FILE = "segments.json"
_TEXTS_FILE = "texts.json"
#: Most graphs, and bytes of arrays, that are joined before they are written.
_GRAPHS_PER_BATCH = 4_096
_BYTES_PER_BATCH = 2**23
#: Most nodes and edges of a block, unless a single graph has more; a graph counts as some rows.
_ROWS_PER_BLOCK = 2**20
_ROWS_PER_GRAPH = 64
_KEY = "key"
_NODES = "nodes"
_ENDS = ("source", "target")


class _SpooledColumn(NamedTuple):
    """Column of a segment; its array is called by its position."""

    name: str
    dtype: str  #: empty for strings
    row_shape: tuple[int, ...]
    is_scalar: bool  #: True for one number a graph, without an axis

    @classmethod
    def of(cls, name: str, array: Array) -> _SpooledColumn:
        dtype = "" if array.dtype.kind in "OU" else array.dtype.str
        return cls(name, dtype, array.shape[1:], not array.ndim)


class _Layout(NamedTuple):
    """Layout of the graphs of a segment."""

    columns: tuple[_SpooledColumn, ...]
    index_dtype: str  #: dtype of the edges; empty without edges

    @classmethod
    def of(cls, graph: GraphRecord) -> _Layout:
        columns = tuple(_SpooledColumn.of(*item) for item in graph.columns.items())
        edges = graph.edge_index
        return cls(columns, "" if edges is None else edges.dtype.str)


def spool_graphs(folder: Path, graphs: Iterable[GraphRecord]) -> None:
    """Write graphs with columns of any names, dtypes and shapes; keys are ASCII.

    Arrays are read before the next graph but :data:`_GRAPHS_PER_BATCH` is requested.
    """
    folder.mkdir(parents=True)
    segments: list[dict[str, Any]] = []
    codes: dict[str, int] = {}
    for layout, group in groupby(graphs, _Layout.of):
        batches = (
            _join_graphs(batch, layout, codes) for batch in _batches_of_bounded_size(group, folder)
        )
        count = write_graph_arrays(folder / str(len(segments)), batches)
        segments.append({"graphs": count, "layout": layout})
    (folder / _INDEX_FILE).write_text(json.dumps(segments), "ascii")
    (folder / _TEXTS_FILE).write_text(json.dumps([*codes]), "ascii")


def _batches_of_bounded_size(
    graphs: Iterable[GraphRecord], folder: Path
) -> Iterator[list[GraphRecord]]:
    """Yield lists of graphs; ``OutOfResources`` if the disk of ``folder`` cannot hold the next."""
    batch: list[GraphRecord] = []
    size = 0
    for graph in graphs:
        batch.append(graph)
        size += bytes_of_graph(graph)
        if size > _BYTES_PER_BATCH or len(batch) == _GRAPHS_PER_BATCH:
            require_disk_space(folder, size, "A copy of the graphs")
            yield batch
            batch = []
            size = 0
    if batch:
        require_disk_space(folder, size, "A copy of the graphs")
        yield batch


def bytes_of_graph(graph: GraphRecord) -> int:
    """Return the size of a graph's columns and edges."""
    size = sum(array.nbytes for array in graph.columns.values())
    return size if graph.edge_index is None else size + graph.edge_index.nbytes


def _join_graphs(
    graphs: Sequence[GraphRecord], layout: _Layout, codes: dict[str, int]
) -> tuple[dict[str, Array], I64]:
    """Return the joined arrays of graphs, and the number of rows of each graph in each array."""
    keys = [graph.key.encode("ascii") for graph in graphs]
    arrays: dict[str, Array] = {
        _KEY: np.frombuffer(b"".join(keys), np.uint8),
        _NODES: np.array([graph.num_nodes for graph in graphs], np.int64),
    }
    counts = [[len(key) for key in keys], [1] * len(graphs)]
    if layout.index_dtype:
        edges = [np.asarray(graph.edge_index) for graph in graphs]
        for end, name in enumerate(_ENDS):
            arrays[name] = _concatenate([index[end] for index in edges])
            counts.append([index.shape[1] for index in edges])
    for number, column in enumerate(layout.columns):
        parts = [graph.columns[column.name] for graph in graphs]
        if column.is_scalar:
            parts = [part[None] for part in parts]
        counts.append([len(part) for part in parts])
        joined = _concatenate(parts)
        if not column.dtype:
            words = joined.reshape(-1).tolist()
            encoded = [codes.setdefault(str(word), len(codes)) for word in words]
            joined = np.array(encoded, np.int32).reshape(joined.shape)
        arrays[str(number)] = joined
    return arrays, np.array(counts, np.int64).T


def _concatenate(parts: Sequence[Array]) -> Array:
    """Concatenate arrays without a copy of a single one, which may be large."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class SpooledGraphs:
    """Graphs written by :func:`spool_graphs`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        segments = json.loads((folder / _INDEX_FILE).read_text("ascii"))
        self._counts = [segment["graphs"] for segment in segments]
        self._columns = [
            [_SpooledColumn(*column) for column in segment["layout"][0]] for segment in segments
        ]
        texts = json.loads((folder / _TEXTS_FILE).read_text("ascii"))
        self._texts = np.array(texts, object)

    def __len__(self) -> int:
        return sum(self._counts)

    def blocks(self, rows: Sequence[int] | None = None) -> Iterator[GraphBlock]:
        """Yield the graphs at ascending positions ``rows``, by default all, as blocks.

        A block has about a million nodes and edges at most, unless a single graph has more.
        """
        wanted = np.arange(len(self)) if rows is None else np.asarray(rows, np.int64)
        first = 0
        for number, count in enumerate(self._counts):
            positions = wanted[(wanted >= first) & (wanted < first + count)] - first
            if len(positions):
                yield from self._blocks_of_segment(number, positions)
            first += count

    def _blocks_of_segment(self, number: int, positions: I64) -> Iterator[GraphBlock]:
        graphs = MappedGraphs(self._folder / str(number))
        columns = self._columns[number]
        for run in np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1):
            # Cut where the total size passes a multiple of the limit.
            start, stop = int(run[0]), int(run[-1]) + 1
            joined, counts = graphs.join(start, stop)
            sizes = joined[_NODES] + counts.get(_ENDS[0], 0) + _ROWS_PER_GRAPH
            block_of_graph = np.cumsum(sizes) // _ROWS_PER_BLOCK
            cuts = np.flatnonzero(np.diff(block_of_graph)) + 1
            for part in np.split(np.arange(start, stop), cuts):
                yield self._block(graphs, columns, int(part[0]), int(part[-1]) + 1)

    def _block(
        self, graphs: MappedGraphs, columns: Sequence[_SpooledColumn], start: int, stop: int
    ) -> GraphBlock:
        joined, counts = graphs.join(start, stop)
        key_ends = np.cumsum(counts[_KEY]).tolist()
        text = joined[_KEY].tobytes().decode("ascii")
        keys = [text[begin:end] for begin, end in zip([0, *key_ends], key_ends, strict=False)]
        edges = None
        if _ENDS[0] in joined:
            edges = np.stack([joined[end] for end in _ENDS])
        arrays = {}
        for position, column in enumerate(columns):
            rows = joined[str(position)]
            arrays[column.name] = rows if column.dtype else self._texts[rows]
        return GraphBlock(
            keys=keys,
            node_counts=joined[_NODES],
            edge_counts=counts.get(_ENDS[0], np.zeros(len(keys), np.int64)),
            columns=arrays,
            row_counts={column.name: counts[str(i)] for i, column in enumerate(columns)},
            scalars=frozenset(column.name for column in columns if column.is_scalar),
            edge_index=edges,
        )
