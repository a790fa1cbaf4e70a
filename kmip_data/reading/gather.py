"""Compiled kernels that copy the rows of many graphs from mapped shards into one batch.

The graphs of a batch lie in several mapped files, so a source is given by its address. The caller
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

GRAPH, NODE, EDGE = 0, 1, 2  #: rows of a table of counts
LEVELS = {"graph": GRAPH, "node": NODE, "edge": EDGE}

Numba: TypeAlias = Any  #: an object of numba or llvmlite, which are not typed


def _pointer_code(typing_context: Numba, address: Numba) -> Numba:
    """Turn an address into a pointer for :func:`numba.carray`."""

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
    """C's ``memcpy`` between addresses."""

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
    """Copy the rows of the graphs of a batch for F fields.

    ``source`` (≥ F, B) has the address of the first row of each graph, ``destination`` (F,) the address of the
    output; ``pointers`` (3, B + 1) the rows before each graph on the graph, node and edge level.
    ``layout`` (5, ≥ F): level; bytes of a stored row; first byte and number of bytes to copy from
    it; bytes of each number that is written: 8 for ``uint8`` to ``int64``, 4 for ``uint8`` to
    ``float32``, 0 for an unchanged copy.
    """
    # Graph by graph, then field by field: a view finds the rows of its column in the cache. The
    # other order costs 10 % more.
    for b in range(source.shape[1]):
        for f in range(destination.size):
            level, stride, offset, width, widened = layout[:, f]
            first = pointers[level, b]
            rows = pointers[level, b + 1] - first
            size = rows * width
            start_of_rows = source[f, b]
            if widened == 8:
                _widen(
                    destination[f] + first * width * 8,
                    start_of_rows,
                    size,
                    np.int64,
                )
            elif widened == 4:
                _widen(
                    destination[f] + first * width * 4,
                    start_of_rows,
                    size,
                    np.float32,
                )
            elif width == stride:
                _copy(destination[f] + first * width, start_of_rows, size)
            else:
                to = destination[f] + first * width
                _copy_parts(to, start_of_rows + offset, rows, stride, width)


@njit_nogil()
def copy_chosen_rows(source: I64, rows: I64, order: I64, layout: I64, destination: I64) -> None:
    """Copy some rows of one graph for F fields: ``rows[i]`` to row i of the output.

    They are read in the order ``rows[order]``. ``source`` (F,) has the address of the first row of
    the graph; for ``layout`` and ``destination`` see :func:`copy_rows`.
    """
    for f in range(destination.size):
        _, stride, offset, width, widened = layout[:, f]
        for i in order:
            row = source[f] + rows[i] * stride
            if widened == 8:
                _widen(destination[f] + i * width * 8, row, width, np.int64)
            elif widened == 4:
                _widen(destination[f] + i * width * 4, row, width, np.float32)
            else:
                _copy(destination[f] + i * width, row + offset, width)


@njit_nogil(inline="always")
def _widen(to: int, start: int, count: int, dtype: Numba) -> None:
    """Write ``uint8`` numbers as ``dtype``."""
    if count > 0:
        out = carray(_pointer(to), (count,), dtype)
        stored = carray(_pointer(start), (count,), np.uint8)
        for i in range(count):
            out[i] = stored[i]


@njit_nogil(inline="always")
def _copy_parts(to: int, start: int, rows: int, stride: int, width: int) -> None:
    """Copy ``width`` bytes of every ``stride``, 16 bytes at a time."""
    # 32,768 rows of three of nine columns: word by word 98 µs, in overlapping 16-byte copies 14 µs.
    if width >= 16:
        for i in range(rows):
            destination = to + i * width
            source = start + i * stride
            for j in range(0, width - 15, 16):
                _copy(destination + j, source + j, 16)
            _copy(destination + width - 16, source + width - 16, 16)  # overlaps the previous copy
        return
    # A narrow part is copied together with the bytes behind it, which the next row overwrites. The
    # last rows, with fewer than 16 bytes of source or destination left, are copied exactly.
    wide = 0
    destination_bytes = rows * width
    source_bytes = (rows - 1) * stride + width
    if destination_bytes >= 16 and source_bytes >= 16:
        wide = min((destination_bytes - 16) // width, (source_bytes - 16) // stride) + 1
    for i in range(wide):
        _copy(to + i * width, start + i * stride, 16)
    for i in range(wide, rows):
        _copy(to + i * width, start + i * stride, width)


@njit_nogil()
def write_edges(
    source: I64,
    pointers: I64,
    width: int,
    like: Array,
    out: I64,
) -> None:
    """Write the edge index of the graphs of a batch, with nodes numbered over the batch.

    ``source`` holds addresses of indices of ``like.dtype`` within each graph: (1, B) of neighbour
    tables (N, width), or (2, B) of sources and of targets with ``width`` 0. For ``pointers`` see
    :func:`copy_rows`. ``out`` receives (2, ΣE) sources and targets; edges of a table are grouped by
    target.
    """
    for b in range(source.shape[1]):
        node = pointers[NODE, b]
        nodes = pointers[NODE, b + 1] - node
        first = pointers[EDGE, b]
        edges = pointers[EDGE, b + 1] - first
        if edges > 0:
            for row in range(source.shape[0]):
                stored = carray(_pointer(source[row, b]), (edges,), like.dtype)
                joined = out[row, first : first + edges]
                for e in range(edges):
                    joined[e] = np.int64(stored[e]) + node
        targets = out[1, first : first + edges]
        if width > 0:
            for i in range(nodes):
                for j in range(width):
                    targets[i * width + j] = node + i


@njit_nogil()
def copy_batch(  # noqa: PLR0913, PLR0917 -- compiled code is handed every array
    source: I64,
    pointers: I64,
    layout: I64,
    destination: I64,
    edges: I64,
    width: int,
    like: Array,
    out: I64,
    numbers: I64,
) -> None:
    """Copy the rows and the edges of the graphs of a batch, and number their nodes by graph.

    ``edges`` has the addresses of the edges, and ``width`` the number of edges per node of a
    neighbour table, 0 for pairs, negative without edges. ``numbers`` (ΣN,), if not empty, receives
    the position of its graph for each node. For the others see :func:`copy_rows` and
    :func:`write_edges`.
    """
    # A single call takes Python's lock once, which saves 3 of 26 µs for a batch of small graphs.
    copy_rows(source, pointers, layout, destination)
    if numbers.size > 0:
        for b in range(source.shape[1]):
            numbers[pointers[NODE, b] : pointers[NODE, b + 1]] = b
    if width >= 0:
        write_edges(edges, pointers, width, like, out)


@njit_nogil()
def copy_graph(
    table: I64,
    counts: I64,
    graph: int,
    layout: I64,
    destination: I64,
    width: int,
    like: Array,
    out: I64,
) -> None:
    """Copy the rows and the edges of one graph, as :func:`copy_batch` does for a batch of one.

    ``table`` (≥ F, G) has the address of the first row of every graph, its edges after the F
    fields; ``counts`` (3, G) the numbers of rows per graph, node and edge.
    """
    address = np.empty((table.shape[0], 1), np.int64)
    for f in range(table.shape[0]):
        address[f, 0] = table[f, graph]
    pointers = np.zeros((3, 2), np.int64)
    for level in range(3):
        pointers[level, 1] = counts[level, graph]
    copy_rows(address, pointers, layout, destination)
    if width >= 0:
        write_edges(address[destination.size :], pointers, width, like, out)


@njit_nogil()
def first_graph_with_outside_edge(source: I64, counts: I64, width: int, like: Array) -> int:
    """Return the first graph of a batch with an edge out of the graph; −1 if there is none.

    ``source`` (P, B) has the addresses of the edges of each graph: of a neighbour table with
    ``width`` edges per node, or of sources and of targets (``width`` 0); ``counts`` (3, B) the rows
    on each level.
    """
    for b in range(source.shape[1]):
        nodes = counts[NODE, b]
        edges = nodes * width if width > 0 else counts[EDGE, b]
        if edges == 0:
            continue
        for plane in range(source.shape[0]):
            table = carray(_pointer(source[plane, b]), (edges,), like.dtype)
            # Compare the largest index with the number of nodes: indices are unsigned.
            largest = table[0]
            for e in range(edges):
                largest = max(largest, table[e])
            if np.int64(largest) >= nodes:
                return b
    return -1


@njit_nogil()
def edge_lengths(pos: F32, sources: Integers, targets: Integers, out: F32) -> None:
    """Write Euclidean lengths (E,) of edges between positions (N, 2 or 3): the root of (dx² + dy²) + dz².

    The edges must have been checked by :func:`first_graph_with_outside_edge`.
    """
    for e in range(sources.size):
        # unsigned: no test for negative indices
        i = np.uint64(sources[e])
        j = np.uint64(targets[e])
        difference = pos[i, 0] - pos[j, 0]
        total = difference * difference
        if pos.shape[1] == 3:  # without a loop, 1.5 times as fast
            y = pos[i, 1] - pos[j, 1]
            z = pos[i, 2] - pos[j, 2]
            total = (total + y * y) + z * z
        else:
            for axis in range(1, pos.shape[1]):
                difference = pos[i, axis] - pos[j, axis]
                total += difference * difference
        out[e, 0] = np.sqrt(total)
