"""Compiled kernels that copy the rows of many graphs from mapped shards into one batch.

The graphs of a batch lie in several mapped files, so sources are passed as addresses. The caller
keeps the maps alive and guarantees that every address has the declared number of rows: the shard
reader checks datasets and row pointers against the file when it opens a shard.
"""

# ruff: noqa: ARG001 -- numba calls intrinsics and their code generators with fixed arguments

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import carray, types  # type: ignore[attr-defined] # exported, not declared
from numba.core import cgutils
from numba.extending import intrinsic

from kmip_data.arrays import F32, I64, Array, Integers
from kmip_data.runtime.parallel import njit_nogil

GRAPH, NODE, EDGE = 0, 1, 2  #: row of each level in a table of counts
LEVELS = {"graph": GRAPH, "node": NODE, "edge": EDGE}

Numba: TypeAlias = Any  #: object of numba or llvmlite, which have no type hints


def _pointer_code(typing_context: Numba, address: Numba) -> Numba:
    """Generate code that turns an address into a pointer for :func:`numba.carray`."""

    def generate(
        context: Numba,
        builder: Numba,
        signature: Numba,
        arguments: Numba,
    ) -> Numba:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


def _copy_code(
    typing_context: Numba,
    destination: Numba,
    source: Numba,
    count: Numba,
) -> Numba:
    """Generate a call of C's ``memcpy`` between two addresses."""

    def generate(
        context: Numba,
        builder: Numba,
        signature: Numba,
        arguments: Numba,
    ) -> Numba:
        destination, source, count = arguments
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder,
            builder.inttoptr(destination, cgutils.voidptr_t),
            builder.inttoptr(source, cgutils.voidptr_t),
            count,
            itemsize=1,
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


_pointer: Numba = intrinsic(_pointer_code)
_copy: Numba = intrinsic(_copy_code)


@njit_nogil()
def copy_rows(
    source: I64,
    pointers: I64,
    layout: I64,
    destination: I64,
) -> None:
    """Copy the rows of a batch's graphs for F fields.

    ``source`` (≥ F, B) has the address of the first row of each graph, ``destination`` (F,) the
    address of each output. ``pointers`` (3, B + 1) has the number of rows before each graph on the
    graph, node and edge level.

    The rows of ``layout`` (5, ≥ F) are the level, the bytes of a stored row, the offset and number
    of the bytes to copy from it, and the bytes per value to widen ``uint8`` to: 8 for ``int64``, 4
    for ``float32``, 0 to copy bytes unchanged.
    """
    # Graphs outside, fields inside: a view finds the rows of its column in the cache. The other
    # order costs 10 % more.
    for b in range(source.shape[1]):
        for f in range(destination.size):
            level, stride, offset, width, widened_bytes = layout[:, f]
            first = pointers[level, b]
            rows = pointers[level, b + 1] - first
            size = rows * width
            graph_rows = source[f, b]
            if widened_bytes == 8:
                _widen(destination[f] + first * width * 8, graph_rows, size, np.int64)
            elif widened_bytes == 4:
                _widen(destination[f] + first * width * 4, graph_rows, size, np.float32)
            elif width == stride:
                _copy(destination[f] + first * width, graph_rows, size)
            else:
                output = destination[f] + first * width
                _copy_row_slices(output, graph_rows + offset, rows, stride, width)


@njit_nogil()
def copy_selected_rows(source: I64, rows: I64, order: I64, layout: I64, destination: I64) -> None:
    """Copy selected rows of one graph for F fields: ``rows[i]`` to row i of the output.

    Rows are read in the order ``rows[order]``. ``source`` (F,) has the address of the graph's first
    row; for ``layout`` and ``destination`` see :func:`copy_rows`.
    """
    for f in range(destination.size):
        _, stride, offset, width, widened_bytes = layout[:, f]
        for i in order:
            row = source[f] + rows[i] * stride
            if widened_bytes == 8:
                _widen(destination[f] + i * width * 8, row, width, np.int64)
            elif widened_bytes == 4:
                _widen(destination[f] + i * width * 4, row, width, np.float32)
            else:
                _copy(destination[f] + i * width, row + offset, width)


@njit_nogil(inline="always")
def _widen(destination: int, source: int, count: int, dtype: Numba) -> None:
    """Copy ``uint8`` values to an array of ``dtype``."""
    if count > 0:
        out = carray(_pointer(destination), (count,), dtype)
        stored = carray(_pointer(source), (count,), np.uint8)
        for i in range(count):
            out[i] = stored[i]


@njit_nogil(inline="always")
def _copy_row_slices(destination: int, source: int, rows: int, stride: int, width: int) -> None:
    """Copy ``width`` bytes of every ``stride``, 16 bytes at a time."""
    # 32,768 rows of three of nine columns: word by word 98 µs, in overlapping 16-byte copies 14 µs.
    if width >= 16:
        for i in range(rows):
            output_row = destination + i * width
            source_row = source + i * stride
            for j in range(0, width - 15, 16):
                _copy(output_row + j, source_row + j, 16)
            # The last copy overlaps the previous one.
            _copy(output_row + width - 16, source_row + width - 16, 16)
        return
    # Copy 16 bytes of a narrow slice too: the next row overwrites the excess. The last rows, with
    # fewer than 16 bytes of source or destination left, are copied exactly.
    wide_rows = 0
    destination_bytes = rows * width
    source_bytes = (rows - 1) * stride + width
    if destination_bytes >= 16 and source_bytes >= 16:
        wide_rows = min((destination_bytes - 16) // width, (source_bytes - 16) // stride) + 1
    for i in range(wide_rows):
        _copy(destination + i * width, source + i * stride, 16)
    for i in range(wide_rows, rows):
        _copy(destination + i * width, source + i * stride, width)


@njit_nogil()
def write_edges(
    source: I64,
    pointers: I64,
    k: int,
    index_like: Array,
    out: I64,
) -> None:
    """Write the edge index of a batch to ``out`` (2, ΣE), with nodes numbered over the batch.

    ``source`` has the addresses of indices of ``index_like.dtype``, numbered within each graph:
    (1, B) of neighbour tables (N, k), or, if ``k`` is 0, (2, B) of sources and of targets. Edges of
    a table are grouped by target. For ``pointers`` see :func:`copy_rows`.
    """
    for b in range(source.shape[1]):
        node = pointers[NODE, b]
        nodes = pointers[NODE, b + 1] - node
        first = pointers[EDGE, b]
        edges = pointers[EDGE, b + 1] - first
        if edges > 0:
            for row in range(source.shape[0]):
                stored = carray(_pointer(source[row, b]), (edges,), index_like.dtype)
                batch_index = out[row, first : first + edges]
                for e in range(edges):
                    batch_index[e] = np.int64(stored[e]) + node
        targets = out[1, first : first + edges]
        if k > 0:
            for i in range(nodes):
                for j in range(k):
                    targets[i * k + j] = node + i


@njit_nogil()
def copy_batch(  # noqa: PLR0913, PLR0917 -- compiled code is handed every array
    source: I64,
    pointers: I64,
    layout: I64,
    destination: I64,
    edges: I64,
    k: int,
    index_like: Array,
    out: I64,
    graph_of_node: I64,
) -> None:
    """Copy the rows and edges of a batch's graphs, and write the graph number of each node.

    ``edges`` has the addresses of the edges; ``k`` is negative to skip them. The position of each
    node's graph is written to ``graph_of_node`` (ΣN,) unless it is empty. For the other arguments
    see :func:`copy_rows` and :func:`write_edges`.
    """
    # One call takes Python's lock once, which saves 3 of 26 µs for a batch of small graphs.
    copy_rows(source, pointers, layout, destination)
    if graph_of_node.size > 0:
        for b in range(source.shape[1]):
            graph_of_node[pointers[NODE, b] : pointers[NODE, b + 1]] = b
    if k >= 0:
        write_edges(edges, pointers, k, index_like, out)


@njit_nogil()
def copy_graph(
    table: I64,
    counts: I64,
    graph: int,
    layout: I64,
    destination: I64,
    k: int,
    index_like: Array,
    out: I64,
) -> None:
    """Copy the rows and edges of one graph, like :func:`copy_batch` for a batch of one.

    ``table`` (≥ F, G) has the address of the first row of every graph, with the edges after the F
    fields; ``counts`` (3, G) has the number of rows of every graph on each level.
    """
    address = np.empty((table.shape[0], 1), np.int64)
    for f in range(table.shape[0]):
        address[f, 0] = table[f, graph]
    pointers = np.zeros((3, 2), np.int64)
    for level in range(3):
        pointers[level, 1] = counts[level, graph]
    copy_rows(address, pointers, layout, destination)
    if k >= 0:
        write_edges(address[destination.size :], pointers, k, index_like, out)


@njit_nogil()
def first_graph_with_outside_edge(source: I64, counts: I64, k: int, index_like: Array) -> int:
    """Return the position of the first graph with an edge to a node outside it; −1 if there is none.

    ``counts`` (3, B) has the number of rows of each graph on each level; for the other arguments
    see :func:`write_edges`.
    """
    for b in range(source.shape[1]):
        nodes = counts[NODE, b]
        edges = nodes * k if k > 0 else counts[EDGE, b]
        if edges == 0:
            continue
        for plane in range(source.shape[0]):
            indices = carray(_pointer(source[plane, b]), (edges,), index_like.dtype)
            # Indices are unsigned, so comparing the largest with the number of nodes suffices.
            largest = indices[0]
            for e in range(edges):
                largest = max(largest, indices[e])
            if np.int64(largest) >= nodes:
                return b
    return -1


@njit_nogil()
def edge_lengths(pos: F32, sources: Integers, targets: Integers, out: F32) -> None:
    """Write the Euclidean length √((dx² + dy²) + dz²) of each edge between positions (N, 2 or 3).

    The edges must have been checked by :func:`first_graph_with_outside_edge`.
    """
    for e in range(sources.size):
        # Unsigned indices skip numba's test for negative ones.
        i = np.uint64(sources[e])
        j = np.uint64(targets[e])
        difference = pos[i, 0] - pos[j, 0]
        squares = difference * difference
        if pos.shape[1] == 3:  # without a loop, 1.5 times as fast
            y = pos[i, 1] - pos[j, 1]
            z = pos[i, 2] - pos[j, 2]
            squares = (squares + y * y) + z * z
        else:
            for axis in range(1, pos.shape[1]):
                difference = pos[i, axis] - pos[j, axis]
                squares += difference * difference
        out[e, 0] = np.sqrt(squares)
