"""Launch plan of a GPU search, cached by problem size: program, launches and scratch memory."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.models.search.problem import SearchProblem

MOST_DIM, MOST_K = 256, 120  #: what the kernels take
Launch = tuple[str, int, int, int]  #: a kernel, its grid in blocks, and threads of a block

# Members of ``struct Search`` (kernels/common.cuh) in order; all take 8 bytes.
POINTERS = (
    "queries", "keys", "hint", "starts", "key_starts", "not_finite", "scores", "indices",  # of one search
    "graphs", "sample_tiles", "tiles",  # tables of its plan
    "centre", "longest", "first_prefix", "norm", "key_counts", "key_order", "packed", "packed_rows", "edge",
    "threshold", "need", "query_counts", "query_order", "list", "ticket",  # scratch memory
)  # fmt: skip
NUMBERS = (
    "narrow", "heads", "graph_count", "query_count", "key_count", "batches",
    "sample_tile_count", "tile_count", "hinted", "k", "sample", "ordered", "rows_a_block",
)  # fmt: skip
IN_SCRATCH = slice(POINTERS.index("centre"), len(POINTERS))
NARROW = len(POINTERS)

# As in the kernels.
_BATCH = 16
_CHUNK = 64
_WARPS = 4
_KEY_BUCKETS = 2048
_QUERY_BUCKETS = 1024
_ROWS_A_BLOCK = 4096
_ALIGNED = 256  # bytes

# Where more warps, larger tiles or an order begin to pay: from the prototype's measurements on one H200.
_ORDERED_KEYS = 8000
_MANY_ROWS = 90_000
_SOME_ROWS = 60_000
_BUCKETS_A_ROW = 4  # buckets of all graphs for each row that they may order


class Program(NamedTuple):
    """Macros that the kernels are compiled with, in lower case; ``kernels/common.cuh`` explains them."""

    dim: int
    list: int
    split: int
    tiles: int
    staged: int

    def macros(self) -> dict[str, int]:
        """Names and values as the compiler takes them."""
        return {name.upper(): value for name, value in self._asdict().items()}


@dataclass(eq=False)
class Plan:
    """A search of given sizes but for its addresses."""

    program: Program
    launches: tuple[Launch, ...]  #: the first one fills in the tables
    tables: Tensor  #: bytes on the device: graphs, sample_tiles and tiles
    #: (2, G) int64 on the device: where queries and keys of each graph begin; None where a search says it
    starts: Tensor | None
    members: NDArray[
        np.int64
    ]  #: of ``struct Search``; of scratch arrays their first byte in that memory
    scratch_bytes: int
    laid_out: bool = False  #: True once the tables hold for all searches to come


@functools.lru_cache(maxsize=64)
def plan_for(
    shape: tuple[int, int, int, int],
    k: int,
    hinted: int,
    ptrs: tuple[tuple[int, ...], tuple[int, ...]],
    device: torch.device,
    processors: int,
    _stream: int = 0,
    *,
    unread: bool = False,
) -> Plan:
    """Plan a search.

    ``shape`` is (H, N, M, d), ``hinted`` the columns of the hint (0: none); ``ptrs`` begin the graphs of
    queries and keys. Tables are made on the current stream, so that each stream has plans of its own.

    ``unread``: only the device knows where the graphs begin, and each search makes the tables anew, which are
    as long as any so many graphs may need; those of ``ptrs`` decide the rest. One graph more, without rows,
    has what is left over.
    """
    heads, queries, keys, dim = shape
    edges = np.array([(*ptrs[0], queries), (*ptrs[1], keys)])
    query_counts, key_counts = np.diff(edges)
    graphs = len(query_counts)
    most_keys = int(key_counts.max())
    rows = heads * queries
    buckets = graphs * (_KEY_BUCKETS + _QUERY_BUCKETS)
    ordered = most_keys >= _ORDERED_KEYS or (most_keys >= _ORDERED_KEYS / 2 and rows >= _MANY_ROWS)
    ordered = ordered and buckets <= _BUCKETS_A_ROW * max(queries, _ORDERED_KEYS)
    # Places for candidates: a quarter of them, less 8, hold the results.
    size = 128 if k <= 24 else 256 if k <= 56 else 512
    program = Program(
        dim, size, 1 if k <= 24 else 8, *_tiles(dim, rows, most_keys, ordered=ordered)
    )

    sample_size = 16 * (min(program.tiles, 2) if program.split > 1 else program.tiles)
    tile_size = 16 * program.tiles * (_WARPS if program.staged else 1)
    unit = _CHUNK if ordered else _BATCH  # keys that a graph is padded to

    def parts(counts: NDArray[np.int64], size: int) -> int:
        """Number of tiles or units: each graph may end in one that is not full."""
        return _up(int(counts.sum()), size) + graphs if unread else int((-(-counts // size)).sum())

    tiles, sample_tiles = (parts(query_counts, size) for size in (tile_size, sample_size))
    batches = parts(key_counts, unit) * (unit // _BATCH)
    groups = tiles if program.staged else _up(tiles, _WARPS)
    words = 2 * _up(dim, 8)
    blocks = min(groups * heads, processors * (2 if words > 8 else 4))
    numbers = {
        "heads": heads, "graph_count": graphs, "query_count": queries, "key_count": keys, "batches": batches,
        "sample_tile_count": sample_tiles, "tile_count": tiles, "hinted": hinted, "k": k,
        "sample": _sample(dim, k, most_keys, hinted, ordered=ordered) // _BATCH, "ordered": int(ordered),
        "rows_a_block": _ROWS_A_BLOCK if ordered else 512,
    }  # fmt: skip
    of_tables = {"graphs": 5 * graphs, "sample_tiles": 2 * sample_tiles, "tiles": 2 * tiles}
    tables, table_bytes = _placed(of_tables)
    there = torch.empty(table_bytes, dtype=torch.uint8, device=device)
    scratch, scratch_bytes = _placed(_scratch(program, numbers, blocks))
    places = {name: there.data_ptr() + place for name, place in tables.items()} | scratch | numbers
    members = np.array([places.get(name, 0) for name in (*POINTERS, *NUMBERS)])
    starts = None if unread else _on(device, edges)
    return Plan(program, _launches(program, numbers, blocks), there, starts, members, scratch_bytes)


def plan_of(problem: SearchProblem, processors: int) -> Plan:
    """Return the plan of a problem on a device."""
    hinted = (
        0 if problem.hint is None or problem.hint.shape[2] < problem.k else problem.hint.shape[2]
    )
    shape = (problem.heads, problem.queries.shape[1], problem.keys.shape[1], problem.dim)
    ptrs = (problem.query_ptr, problem.key_ptr)
    stream = (
        torch.cuda.current_stream(problem.device).cuda_stream
        if problem.device.type == "cuda"
        else 0
    )
    unread = problem.starts is not None
    return plan_for(
        shape, problem.k, hinted, ptrs, problem.device, processors, stream, unread=unread
    )


def _on(device: torch.device, numbers: NDArray[np.int64]) -> Tensor:
    if device.type != "cuda":
        return torch.from_numpy(numbers)
    if (
        torch.cuda.is_current_stream_capturing()
    ):  # it would be remembered, and nothing is copied yet
        raise RuntimeError("a search of these sizes has no plan yet")
    # Pinned: else the host would wait for the copy. The allocator keeps the pages until it has been made.
    return torch.from_numpy(numbers).pin_memory().to(device, non_blocking=True)


def _up(count: int, size: int) -> int:
    return -(-count // size)


def _tiles(dim: int, rows: int, most_keys: int, *, ordered: bool) -> tuple[int, int]:
    """Tiles of 16 queries that a warp takes, and whether warps share keys (``TILES`` and ``STAGED``)."""
    # One graph of 10^5: four times the warps beat shared memory, whose blocks would not fill the GPU.
    lone = most_keys >= 50_000 and rows < 200_000
    if ordered and rows >= _MANY_ROWS and not lone and dim <= 24:
        return 4, 1
    tiles = 1 if rows < _SOME_ROWS else 4 if rows >= _MANY_ROWS and not ordered else 2
    return min(tiles, max(1, 16 // _up(dim, 8))), 0  # what registers hold


def _sample(dim: int, k: int, most_keys: int, hinted: int, *, ordered: bool) -> int:
    """Keys that first thresholds come from."""
    if not ordered:
        few = max(4096, most_keys // 2)
    else:
        most = 32_768 if dim > 16 else 16_384
        steps = ((_ORDERED_KEYS, 1024), (50_000, 4096), (300_000, 8192), (math.inf, most))
        few = next(size for below, size in steps if most_keys < below)
        few = few if k <= 24 else max(4 * few, 32_768)
    return few // 4 if hinted else few


def _placed(sizes: dict[str, int]) -> tuple[dict[str, int], int]:
    """Where arrays of so many 4-byte numbers begin behind each other, and where the last ends; in bytes."""
    places = {}
    end = 0
    for name, count in sizes.items():
        places[name] = end
        end += _up(4 * count, _ALIGNED) * _ALIGNED
    return places, end


def _scratch(program: Program, numbers: dict[str, int], blocks: int) -> dict[str, int]:
    """Numbers of 4 bytes in each array of the scratch memory."""
    heads = numbers["heads"]
    segments = numbers["heads"] * numbers["graph_count"]
    queries, keys, batches = (
        heads * numbers[name] for name in ("query_count", "key_count", "batches")
    )
    sizes = {
        "centre": segments * program.dim, "longest": segments, "first_prefix": segments, "norm": keys,
        "packed": batches * 64 * _up(program.dim, 8), "packed_rows": batches * _BATCH, "threshold": queries,
        "list": blocks * _WARPS * 16 * program.tiles * program.list, "ticket": 1,
    }  # fmt: skip
    if numbers["ordered"]:
        sizes |= {
            "key_counts": segments * _KEY_BUCKETS, "key_order": keys, "edge": _up(batches * _BATCH, _CHUNK),
            "need": queries, "query_counts": segments * _QUERY_BUCKETS, "query_order": queries,
        }  # fmt: skip
    return sizes


def _launches(program: Program, numbers: dict[str, int], blocks: int) -> tuple[Launch, ...]:
    heads, graphs, queries, keys, ordered = (
        numbers[name] for name in ("heads", "graph_count", "query_count", "key_count", "ordered")
    )
    split = program.split
    tiles = numbers["sample_tile_count"]
    sample = (
        (tiles, split) if split > 1 else (_up(tiles, _WARPS), _WARPS)
    )  # blocks, and warps of each
    launches = (
        (True, "lay_out", _up(graphs, 8), 1, 256),
        (numbers["hinted"], "hints", _up(queries, 8), heads, 256),
        (True, "prepare", graphs, heads, 128),
        (True, "norms", _up(keys, numbers["rows_a_block"]), heads, 256),
        (ordered, "scan_keys", graphs, heads, 1024),
        (ordered, "place_keys", _up(keys, _ROWS_A_BLOCK), heads, 256),
        (True, "pack", _up(numbers["batches"], 8), heads, 256),
        (True, "thresholds", sample[0], heads, 32 * sample[1]),
        (ordered, "count_queries", _up(queries, _ROWS_A_BLOCK), heads, 256),
        (ordered, "scan_queries", graphs, heads, 1024),
        (ordered, "place_queries", _up(queries, _ROWS_A_BLOCK), heads, 256),
        (True, "collect", blocks, 1, _WARPS * 32),
    )
    return tuple((name, x, y, threads) for wanted, name, x, y, threads in launches if wanted)
