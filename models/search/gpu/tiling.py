"""How a problem is cut for the Triton kernels: sizes of tiles, and the tables that list them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kmip_data.models.search.problem import SearchProblem

MOST_K = 1024
MOST_DIM = 256
ORDERED_FROM = 2048  #: keys of a graph from which ordering pays


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Compile-time sizes of the search kernel, under the kernel's own names.

    BM queries and BN keys a tile, BT key tiles a group, rows padded to D and multiplied CHUNK
    columns at a time; 2^LOG_K2 slots for the best and 2^LOG_C for notes of a query, 2^LOG_RG queries
    merged at a time, VCHUNK columns of values at a time.
    """

    BM: int
    BN: int
    BT: int
    D: int
    CHUNK: int
    LOG_K2: int
    LOG_C: int
    LOG_RG: int
    VCHUNK: int
    warps: int

    def scratch_bytes(self) -> int:
        """Bytes that one running program keeps outside the chip's registers."""
        return self.BM * ((8 << self.LOG_K2) + (4 << self.LOG_C) + 4)


def log_up(number: int) -> int:
    """Exponent of the smallest power of two ≥ number."""
    return max(0, number - 1).bit_length()


def shape_for(dim: int, k: int, most_queries: int, most_keys: int, value_width: int = 0) -> Shape:
    """Sizes for rows of length ``dim``, ``k`` results and the largest graph."""
    width = max(16, 1 << log_up(dim))
    log_queries = min(6, max(4, log_up(most_queries)))
    log_keys = min(6, max(4, log_up(most_keys)))
    log_best = max(4, log_up(k))
    log_notes = max(log_keys, log_best)
    return Shape(
        BM=1 << log_queries,
        BN=1 << log_keys,
        BT=64 if most_keys > 16 << log_keys else 16,
        D=width,
        CHUNK=min(width, 32),
        LOG_K2=log_best,
        LOG_C=log_notes,
        LOG_RG=max(0, min(log_queries, 10 - log_notes)),
        VCHUNK=min(64, max(16, 1 << log_up(value_width))),
        warps=4,
    )


def bytes_needed(problem: SearchProblem) -> int:
    """Bytes of device memory that a search takes beside its operands, results included (an estimate).

    A row is packed as D float32 and its number; ordering holds three int64 and two float32 columns
    of a row at a time, and the key's float64 differences from the centre.
    """
    width = max(16, 1 << log_up(problem.dim))
    queries, keys = problem.heads * problem.queries.shape[1], problem.heads * problem.keys.shape[1]
    ordering = max(queries, keys) * 64
    return queries * (12 * problem.k + 4 * width + 28) + keys * (4 * width + 8) + ordering


@dataclass(frozen=True, eq=False)
class Tables:
    """Tiles of all graphs, one row each, int32.

    Attributes
    ----------
    query_tiles, key_tiles
        First row, number of rows, graph.
    work
        Tile of queries, its graph's first tile of keys, their number; the longest first.
    """

    query_tiles: NDArray[np.int32]
    key_tiles: NDArray[np.int32]
    work: NDArray[np.int32]


def tables_for(problem: SearchProblem, shape: Shape) -> Tables:
    """Cut the rows of each graph into tiles; queries of graphs without keys are work too."""
    query_ptr = np.array(problem.query_ptr, np.int64)
    key_ptr = np.array(problem.key_ptr, np.int64)
    query_tiles, _ = _tiles(query_ptr, shape.BM)
    key_tiles, first = _tiles(key_ptr, shape.BN)
    graph = query_tiles[:, 2]
    count = np.diff(first)[graph]
    order = np.argsort(-count, kind="stable")
    work = np.stack([np.arange(len(graph)), first[:-1][graph], count], 1)[order]
    return Tables(query_tiles, key_tiles, work.astype(np.int32))


def _tiles(ptr: NDArray[np.int64], size: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Rows (first row, rows, graph) of the tiles, and each graph's first tile (G + 1)."""
    counts = np.diff(ptr)
    tiles = -(-counts // size)
    first = np.concatenate([[0], np.cumsum(tiles)])
    graph = np.repeat(np.arange(len(counts)), tiles)
    place = (np.arange(len(graph)) - first[:-1][graph]) * size
    rows = np.minimum(counts[graph] - place, size)
    return np.stack([ptr[:-1][graph] + place, rows, graph], 1).astype(np.int32), first
