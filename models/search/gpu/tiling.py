"""How a problem is cut for the Triton kernels: sizes of tiles, and the tables that list them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kmip_data.models.search.problem import SearchProblem

MOST_K = 1024
MOST_DIM = 256
ORDERED_FROM = 2048  #: keys of a graph from which ordering pays


@dataclass(frozen=True, kw_only=True)
class TileSizes:
    """Compile-time sizes of the search kernel, under the kernel's own names.

    BM queries and BN keys per tile, BT key tiles per group, rows padded to D and multiplied CHUNK
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


def log_up(number: int) -> int:
    """Exponent of the smallest power of two ≥ number."""
    return max(0, number - 1).bit_length()


def shape_for(dim: int, k: int, most_queries: int, most_keys: int, value_width: int = 0) -> TileSizes:
    """Sizes for rows of length ``dim``, ``k`` results and the largest graph."""
    width = max(16, 1 << log_up(dim))
    log_queries = min(6, max(4, log_up(most_queries)))
    log_keys = min(6, max(4, log_up(most_keys)))
    log_best = max(4, log_up(k))
    log_notes = max(log_keys, log_best)
    return TileSizes(
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


class Tables(NamedTuple):
    """Tiles of all graphs, one row each, int32."""

    query_tiles: NDArray[np.int32]  #: first row, number of rows, graph
    key_tiles: NDArray[np.int32]  #: the same
    work: NDArray[np.int32]  #: tile of queries, its graph's first tile of keys, their number; longest first


def tables_for(problem: SearchProblem, shape: TileSizes) -> Tables:
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
