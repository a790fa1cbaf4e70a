"""Launch plan of a GPU search, cached by problem size: program, launches and scratch memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kmip_data.arrays import I64
from kmip_data.models.search.problem import SearchProblem

MAX_DIM = 256  #: largest supported dimension
MAX_K = 120  #: largest supported k
Launch = tuple[str, int, int, int]  #: kernel, its grid in blocks (x, y), and threads per block

# Members of ``struct Search`` (kernels/common.cuh) in order, 8 bytes each.
STRUCT_POINTERS = (
    "queries", "keys", "starts", "key_starts", "not_finite", "scores", "indices",  # buffers of one search
    "graphs", "sample_tiles", "tiles",  # tables of the plan
    "centre", "longest", "first_prefix", "norm", "key_counts", "key_order", "packed", "packed_rows", "edge",
    "threshold", "need", "query_counts", "query_order", "list", "ticket",  # scratch memory
)  # fmt: skip
STRUCT_NUMBERS = (
    "narrow", "heads", "graph_count", "query_count", "key_count", "batches",
    "sample_tile_count", "tile_count", "k", "sample", "ordered", "rows_per_block",
)  # fmt: skip
SCRATCH_MEMBERS = slice(STRUCT_POINTERS.index("centre"), len(STRUCT_POINTERS))
NARROW_INDEX = len(STRUCT_POINTERS)

# Constants shared with the kernels.
_BATCH = 16
_CHUNK = 64
_WARPS = 4
_KEY_BUCKETS = 2048
_QUERY_BUCKETS = 1024
_ROWS_PER_BLOCK = 4096
_ALIGNMENT_BYTES = 256

# Sizes from which more warps, larger tiles or ordered rows are faster, measured on one H200.
_MIN_ORDERED_KEYS = 8000
_MANY_ROWS = 90_000
_SOME_ROWS = 60_000
_MAX_BUCKETS_PER_ROW = 4  # for ordering, over all graphs


class Program(NamedTuple):
    """Macros that the kernels are compiled with, in lower case; ``kernels/common.cuh`` explains them."""

    dim: int
    list: int
    split: int
    tiles: int
    staged: int

    def macros(self) -> dict[str, int]:
        """Return the macros' names and values."""
        return {name.upper(): value for name, value in self._asdict().items()}


@dataclass(eq=False)
class SearchPlan:
    """Plan of searches with the same sizes, without the addresses of their tensors."""

    program: Program
    launches: tuple[Launch, ...]  #: kernels to launch; the first one fills in the tables
    tables: Tensor  #: buffer of graphs, sample_tiles and tiles, on the device
    starts: Tensor  #: (2, G + 1) int64 first query and key of each graph, on the device
    members: I64  #: members of ``struct Search``; offsets of arrays in scratch memory
    scratch_bytes: int
    has_tables: bool = False  #: True once the tables are complete


@functools.lru_cache(maxsize=64)
def make_search_plan(
    shape: tuple[int, int, int, int],
    k: int,
    ptrs: tuple[tuple[int, ...], tuple[int, ...]],
    device: torch.device,
    processors: int,
    _stream: int = 0,
) -> SearchPlan:
    """Plan the program, launches and scratch memory of a search.

    ``shape`` is (H, N, M, d); ``ptrs`` are the pointers of queries and keys. Tables are computed on
    the current stream, so each stream has its own plans.
    """
    # 1. Decide whether ordering keys and queries is faster.
    heads, queries, keys, dim = shape
    starts = np.array([(*ptrs[0], queries), (*ptrs[1], keys)])
    query_counts, key_counts = np.diff(starts)
    graphs = len(query_counts)
    most_keys = int(key_counts.max())
    rows = heads * queries
    buckets = graphs * (_KEY_BUCKETS + _QUERY_BUCKETS)
    few_buckets = buckets <= _MAX_BUCKETS_PER_ROW * max(queries, _MIN_ORDERED_KEYS)
    min_keys = _MIN_ORDERED_KEYS // 2 if rows >= _MANY_ROWS else _MIN_ORDERED_KEYS
    ordered = few_buckets and most_keys >= min_keys

    # 2. Choose the program; a quarter of the candidate slots, less 8, hold results.
    if k <= 24:
        slots = 128
    elif k <= 56:
        slots = 256
    else:
        slots = 512
    split = 1 if k <= 24 else 8
    tiles_per_warp, staged = _choose_tiles(dim, rows, most_keys, ordered=ordered)
    program = Program(dim, slots, split, tiles_per_warp, staged)

    # 3. Count tiles, batches, and the blocks that stay on the device's processors.
    sample_tiles_per_warp = min(program.tiles, 2) if program.split > 1 else program.tiles
    sample_size = 16 * sample_tiles_per_warp
    tile_size = 16 * program.tiles * (_WARPS if program.staged else 1)
    padding_unit = _CHUNK if ordered else _BATCH  # a graph's keys are padded to a multiple

    def count_pieces(counts: I64, size: int) -> int:
        """Count pieces of ``size`` rows; the last one of each graph may be partial."""
        return int((-(-counts // size)).sum())

    tiles = count_pieces(query_counts, tile_size)
    sample_tiles = count_pieces(query_counts, sample_size)
    batches = count_pieces(key_counts, padding_unit) * (padding_unit // _BATCH)
    groups = tiles if program.staged else _divide_rounding_up(tiles, _WARPS)
    words = 2 * _divide_rounding_up(dim, 8)
    blocks_per_processor = 2 if words > 8 else 4
    blocks = min(groups * heads, processors * blocks_per_processor)
    numbers = {
        "heads": heads,
        "graph_count": graphs,
        "query_count": queries,
        "key_count": keys,
        "batches": batches,
        "sample_tile_count": sample_tiles,
        "tile_count": tiles,
        "k": k,
        "sample": _sample_size(dim, k, most_keys, ordered=ordered) // _BATCH,
        "ordered": int(ordered),
        "rows_per_block": _ROWS_PER_BLOCK if ordered else 512,
    }

    # 4. Allocate the plan's tables, and place arrays in the scratch memory of each search.
    sizes = {"graphs": 5 * graphs, "sample_tiles": 2 * sample_tiles, "tiles": 2 * tiles}
    offsets, table_bytes = _place_arrays(sizes)
    tables = torch.empty(table_bytes, dtype=torch.uint8, device=device)
    scratch, scratch_bytes = _place_arrays(_scratch_sizes(program, numbers, blocks))
    values = scratch | numbers
    for name, offset in offsets.items():
        values[name] = tables.data_ptr() + offset
    members = np.array([values.get(name, 0) for name in (*STRUCT_POINTERS, *STRUCT_NUMBERS)])
    return SearchPlan(
        program,
        _list_launches(program, numbers, blocks),
        tables,
        starts=_copy_to_device(device, starts),
        members=members,
        scratch_bytes=scratch_bytes,
    )


def get_search_plan(problem: SearchProblem, processors: int) -> SearchPlan:
    """Return the plan of a problem on its device."""
    stream = 0
    if problem.device.type == "cuda":
        stream = torch.cuda.current_stream(problem.device).cuda_stream
    return make_search_plan(
        (problem.heads, problem.queries.shape[1], problem.keys.shape[1], problem.dim),
        problem.k,
        (problem.query_ptr, problem.key_ptr),
        problem.device,
        processors,
        stream,
    )


def _copy_to_device(device: torch.device, numbers: I64) -> Tensor:
    if device.type != "cuda":
        return torch.from_numpy(numbers)
    # A captured copy runs only later, but the plan would be cached now.
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("a search of these sizes has no plan yet")
    # The host need not wait for a copy from pinned memory, which the allocator keeps until then.
    return torch.from_numpy(numbers).pin_memory().to(device, non_blocking=True)


def _divide_rounding_up(count: int, size: int) -> int:
    return -(-count // size)


def _choose_tiles(
    dim: int,
    rows: int,
    most_keys: int,
    *,
    ordered: bool,
) -> tuple[int, int]:
    """Return ``TILES``, the tiles of 16 queries per warp, and ``STAGED``, 1 if warps share keys."""
    # For one graph of 10^5 nodes, four times the warps beat shared memory, whose blocks would not
    # fill the GPU.
    is_one_large_graph = most_keys >= 50_000 and rows < 200_000
    if ordered and rows >= _MANY_ROWS and not is_one_large_graph and dim <= 24:
        return 4, 1
    if rows < _SOME_ROWS:
        tiles = 1
    elif rows >= _MANY_ROWS and not ordered:
        tiles = 4
    else:
        tiles = 2
    max_tiles = max(1, 16 // _divide_rounding_up(dim, 8))  # limited by registers
    return min(tiles, max_tiles), 0


def _sample_size(
    dim: int,
    k: int,
    most_keys: int,
    *,
    ordered: bool,
) -> int:
    """Return the number of keys sampled for the initial thresholds."""
    if not ordered:
        count = max(4096, most_keys // 2)
    else:
        if most_keys < _MIN_ORDERED_KEYS:
            count = 1024
        elif most_keys < 50_000:
            count = 4096
        elif most_keys < 300_000:
            count = 8192
        else:
            count = 32_768 if dim > 16 else 16_384
        if k > 24:
            count = max(4 * count, 32_768)
    return count


def _place_arrays(sizes: dict[str, int]) -> tuple[dict[str, int], int]:
    """Return the byte offsets of arrays of 4-byte numbers in one buffer, and the buffer's size."""
    offsets = {}
    end = 0
    for name, count in sizes.items():
        offsets[name] = end
        end += _divide_rounding_up(4 * count, _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return offsets, end


def _scratch_sizes(program: Program, numbers: dict[str, int], blocks: int) -> dict[str, int]:
    """Return the sizes of the scratch arrays, in 4-byte numbers."""
    heads = numbers["heads"]
    segments = heads * numbers["graph_count"]
    queries = heads * numbers["query_count"]
    keys = heads * numbers["key_count"]
    batches = heads * numbers["batches"]
    sizes = {
        "centre": segments * program.dim,
        "longest": segments,
        "first_prefix": segments,
        "norm": keys,
        "packed": batches * 64 * _divide_rounding_up(program.dim, 8),
        "packed_rows": batches * _BATCH,
        "threshold": queries,
        "list": blocks * _WARPS * 16 * program.tiles * program.list,
        "ticket": 1,
    }
    if numbers["ordered"]:
        sizes |= {
            "key_counts": segments * _KEY_BUCKETS,
            "key_order": keys,
            "edge": _divide_rounding_up(batches * _BATCH, _CHUNK),
            "need": queries,
            "query_counts": segments * _QUERY_BUCKETS,
            "query_order": queries,
        }
    return sizes


def _list_launches(program: Program, numbers: dict[str, int], blocks: int) -> tuple[Launch, ...]:
    heads = numbers["heads"]
    graphs = numbers["graph_count"]
    queries = numbers["query_count"]
    keys = numbers["key_count"]
    ordered = numbers["ordered"]
    sample_blocks = _divide_rounding_up(numbers["sample_tile_count"], _WARPS)
    sample_warps = _WARPS
    if program.split > 1:  # one block per tile, whose warps divide the sample
        sample_blocks = numbers["sample_tile_count"]
        sample_warps = program.split
    launches = (
        (True, "lay_out", _divide_rounding_up(graphs, 8), 1, 256),
        (True, "prepare", graphs, heads, 128),
        (True, "norms", _divide_rounding_up(keys, numbers["rows_per_block"]), heads, 256),
        (ordered, "scan_keys", graphs, heads, 1024),
        (ordered, "place_keys", _divide_rounding_up(keys, _ROWS_PER_BLOCK), heads, 256),
        (True, "pack", _divide_rounding_up(numbers["batches"], 8), heads, 256),
        (True, "thresholds", sample_blocks, heads, 32 * sample_warps),
        (ordered, "count_queries", _divide_rounding_up(queries, _ROWS_PER_BLOCK), heads, 256),
        (ordered, "scan_queries", graphs, heads, 1024),
        (ordered, "place_queries", _divide_rounding_up(queries, _ROWS_PER_BLOCK), heads, 256),
        (True, "collect", blocks, 1, _WARPS * 32),
    )
    return tuple((name, x, y, threads) for is_used, name, x, y, threads in launches if is_used)
