"""Compiled search on all CPU cores, in one of three ways chosen by the size and data of each graph.

*exact*: every key by the rule, for small graphs and few queries. *bytes*: an 8-bit filter over all
keys that are long enough, on processors that multiply bytes. *flat*: a float32 filter, if bytes
separate too little. The choice is in the debug log; the result is the same.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kmip_data.arrays import F32, I64, Bools
from kmip_data.models.search.problem import SearchProblem, row_ranges
from kmip_data.runtime.parallel import run_in_ranges

if TYPE_CHECKING:
    from kmip_data.models.search.cpu.sorted_keys import ByLength

NAME = "cpu"
AUTO = "chosen by auto on the CPU"
RANK = {"cpu": 10}

log = logging.getLogger(__name__)

#: Search of the queries ``start`` to ``stop``: (queries, scores, indices, failed, start, stop) to the
#: cost in leaves of 16 keys of the flat scan.
Scan = Callable[..., float]

# Measured thresholds between the ways: ADR 0100 and 0220.
_FEW_QUERIES = 64  # below: exact
_FEW_KEYS = 3000  # fewer keys than this and 40 k: exact, unless bytes filter
_FEW_KEYS_PER_K = 40
_BYTE_KEYS = 800  # fewer keys than this, 8 k and 12,000 / (d + 4): exact
_BYTE_KEYS_PER_K = 8
_BYTE_NUMBERS = 12_000
_EQUAL_KEYS = 1000  # fewest keys to look for equal rows in many heads; three times as many for one
# fraction of distinct rows in the first quarter of the keys above which all are searched
_EQUAL_SHARE = 0.85
_BYTES = 0.25  # cost of a leaf of bytes, relative to a leaf of the flat scan
_SCORE = 5  # cost of scoring a key that passes the bytes, in the same unit
_SCORED = 8  # times k keys pass float32, too
_TIES = 0.3  # share of sampled queries that the filter fails to rank: search exactly
_SAMPLE = 128  # most queries sampled, one in 64
_MIN_PAIRS_PER_RANGE = 100_000  # fewest queries per thread
_TILE = 16  # queries per block of the exact way
_MAX_PRODUCTS = 400_000_000  # multiplications between checks for an interrupt, about 0.1 s


def why_unusable(device_type: str) -> str | None:
    """Return why it cannot run on this device type, or None."""
    if device_type != "cpu":
        return f"runs on the CPU only, not on {device_type}"
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed"
    return None


def why_refused(problem: SearchProblem) -> str | None:
    """Return why it cannot take this problem, or None."""
    if problem.dtype != torch.float32:
        return f"takes float32, not {problem.dtype}"
    return None if problem.keys.shape[1] < 2**31 else "takes fewer than 2³¹ keys"


class _Operands(NamedTuple):
    """Operands and results of a search, and the rows of some graphs."""

    queries: F32  #: (H, N, d)
    keys: F32  #: (H, M, d)
    scores: F32  #: (H, N, k), filled with −inf where a graph has fewer than k keys
    indices: I64  #: (H, N, k), filled with −1 there
    query_rows: I64  #: (G, 2) start and end (exclusive) of each graph's rows of queries
    key_rows: I64  #: (G, 2) first and last key of each graph

    def select_graphs(self, graphs: Bools) -> _Operands:
        """Return some of the graphs."""
        return self._replace(query_rows=self.query_rows[graphs], key_rows=self.key_rows[graphs])

    def rows_per_graph(self) -> tuple[I64, I64]:
        """Return the numbers of queries and of keys of each graph."""
        return np.diff(self.query_rows)[:, 0], np.diff(self.key_rows)[:, 0]


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Scores (H, N, k) and indices (H, N, k) by the rule."""
    result = problem.new_result()
    scores, indices = result
    graphs = _Operands(
        problem.queries.numpy(),
        problem.keys.numpy(),
        scores.numpy(),
        indices.numpy(),
        problem.query_rows,
        problem.key_rows,
    )
    repeated = _search_distinct(graphs)
    _search_graphs(graphs.select_graphs(~repeated))
    return result


def _search_distinct(graphs: _Operands) -> Bools:
    """Search graphs with many equal keys by distinct rows; return which graphs, (G,) bool."""
    queries, keys, scores, indices, *_ = graphs
    rows, sizes = graphs.rows_per_graph()
    enough = _EQUAL_KEYS * (1 + 2 / len(queries))
    repeated: Bools = (rows >= _FEW_QUERIES) & (sizes >= enough)
    if not repeated.any():
        return repeated
    from kmip_data.models.search.cpu.equal_rows import expand_to_all_queries, first_rows, group_rows

    # 1. A quarter of the keys of one head shows in which graphs rows repeat: nodes that are equal
    #    are so in all heads. Where none repeat this is all: 4 % of a search of 2,000 keys in one
    #    head, 1 % of 3,000.
    quarter = graphs.key_rows[repeated]
    quarter[:, 1] = quarter[:, 0] + sizes[repeated] // 4
    trial = group_rows(keys, _head_graph_rows(1, quarter))
    repeated[repeated] = trial.counts <= _EQUAL_SHARE * (sizes[repeated] // 4)
    if not repeated.any():
        return repeated

    # 2. Search the distinct rows of each head as a separate graph.
    heads = len(queries)
    query_groups = group_rows(queries, _head_graph_rows(heads, graphs.query_rows[repeated]))
    key_groups = group_rows(keys, _head_graph_rows(heads, graphs.key_rows[repeated]))
    distinct_queries = first_rows(queries, query_groups)
    distinct_keys = first_rows(keys, key_groups)
    shape = (*distinct_queries.shape[:2], scores.shape[2])
    distinct_scores = np.full(shape, -np.inf, np.float32)
    distinct_indices = np.full(shape, -1, np.int64)
    log.debug(
        "%d graphs have %d distinct queries and %d distinct keys in %d heads",
        repeated.sum(),
        distinct_queries.shape[1],
        distinct_keys.shape[1],
        heads,
    )
    _search_graphs(
        _Operands(
            distinct_queries,
            distinct_keys,
            distinct_scores,
            distinct_indices,
            row_ranges(query_groups.ptr),
            row_ranges(key_groups.ptr),
        )
    )

    # 3. Expand to all rows.
    expand_to_all_queries(
        distinct_scores, distinct_indices, query_groups, key_groups, scores, indices
    )
    return repeated


def _head_graph_rows(heads: int, ptr: I64) -> I64:
    """Return (heads · G, 3): head, first and last row of each graph (G, 2) in each head."""
    head = np.repeat(np.arange(heads), len(ptr))
    return np.column_stack([head, np.tile(ptr, (heads, 1))])


def _search_graphs(graphs: _Operands) -> None:
    """Search all heads of graphs."""
    queries, keys, scores, indices, *_ = graphs
    rows, sizes = graphs.rows_per_graph()
    many_keys = sizes >= _least_keys(keys.shape[2], scores.shape[2])
    large = (rows >= _FEW_QUERIES) & many_keys
    small = ~large & (rows > 0) & (sizes > 0)
    if small.any():
        log.debug("exact scan of %d graphs, at most %d keys", small.sum(), sizes[small].max())
        _search_exactly(graphs.select_graphs(small))

    for graph, head in itertools.product(large.nonzero()[0], range(len(queries))):
        block = (head, slice(*graphs.query_rows[graph]))
        low, high = graphs.key_rows[graph]
        _search_large(queries[block], keys[head, low:high], scores[block], indices[block])
        indices[block] += low


def _least_keys(dim: int, k: int) -> float:
    """Return the fewest keys for which a filter is tried."""
    from kmip_data.models.search.cpu.byte_scan import MAX_DIM
    from kmip_data.models.search.cpu.simd import multiplies_bytes

    least = float(_FEW_KEYS + _FEW_KEYS_PER_K * k)
    if multiplies_bytes() and dim <= MAX_DIM:
        return min(least, _BYTE_KEYS + _BYTE_KEYS_PER_K * k + _BYTE_NUMBERS / (dim + 4))
    return least


def _search_exactly(graphs: _Operands) -> None:
    """Search all heads of some graphs by the rule alone."""
    from kmip_data.models.search.cpu.exact_scan import search_rows

    queries = graphs.queries
    rows, sizes = graphs.rows_per_graph()
    before = np.concatenate([[0], np.cumsum(rows)])
    most = max(1, int(sizes.max()))
    at_once = 4 * _MAX_PRODUCTS // (most * queries.shape[2]) // _TILE * _TILE
    run_in_ranges(
        partial(search_rows, *graphs, before),
        len(queries) * int(before[-1]),
        grain=max(1, _MIN_PAIRS_PER_RANGE // most),
        most=max(_TILE, at_once),
    )


def _search_large(queries: F32, keys: F32, scores: F32, indices: I64) -> None:
    """Search one head of one graph: (R, d), (M, d), (R, k), (R, k)."""
    # 1. Choose a filter by a sample of the queries.
    scan, cost = _choose_scan(queries, keys, scores.shape[1])
    if scan is None:
        _scan_exactly(queries, keys, scores, indices)
        return

    # 2. Search all queries by it, and failed ones exactly: queries that no filter can rank, such as
    #    zero vectors, or that have too many equal keys.
    failed = np.zeros(len(queries), np.bool_)
    at_once = int(_MAX_PRODUCTS / ((16 * max(cost, 0) + 1) * keys.shape[1])) // 64 * 64
    run_in_ranges(
        partial(scan, queries, scores, indices, failed),
        len(queries),
        grain=max(1, _MIN_PAIRS_PER_RANGE // len(keys)),
        most=max(64, at_once),  # queries per block, which share the cache
    )
    rest = np.flatnonzero(failed)
    if len(rest):
        rest_scores = scores[rest]
        rest_indices = indices[rest]
        _scan_exactly(queries[rest], keys, rest_scores, rest_indices)
        scores[rest] = rest_scores
        indices[rest] = rest_indices


def _choose_scan(queries: F32, keys: F32, k: int) -> tuple[Scan | None, float]:
    """Return the filter that searches these keys, and its cost per query; ``None``: search exactly.

    Bytes are tried first, where they can be: they are taken if they cost less than a flat scan of all
    keys and can rank the sampled queries. Else few keys are searched exactly, and many by the flat
    filter, unless it cannot rank the sample either.
    """
    from kmip_data.models.search.cpu.byte_scan import MAX_DIM
    from kmip_data.models.search.cpu.simd import multiplies_bytes
    from kmip_data.models.search.cpu.sorted_keys import sort_by_length

    sorted_keys = sort_by_length(keys)
    if multiplies_bytes() and keys.shape[1] <= MAX_DIM:
        scan = _byte_scan(keys, sorted_keys, k)
        cost, tied = _cost_of_sample(scan, queries, k)
        if tied <= _TIES and cost < len(keys) / 16:
            _log_scan("bytes", queries, keys, cost, tied)
            return scan, cost
        # Bytes may pay where the flat filter does not: fewer keys are searched exactly.
        if len(keys) < _FEW_KEYS + _FEW_KEYS_PER_K * k:
            _log_scan("exact", queries, keys, cost, tied)
            return None, cost

    scan = _flat_scan(keys, sorted_keys)
    cost, tied = _cost_of_sample(scan, queries, k)
    _log_scan("flat" if tied <= _TIES else "exact", queries, keys, cost, tied)
    return (scan if tied <= _TIES else None), cost


def _byte_scan(keys: F32, sorted_keys: ByLength, k: int) -> Scan:
    """Return the search by an 8-bit filter; a leaf of bytes costs a quarter of a flat one."""
    from kmip_data.models.search.cpu.byte_scan import encode_as_bytes, search_bytes

    codes = encode_as_bytes(keys, sorted_keys)

    def scan(
        queries: F32, scores: F32, indices: I64, failed: Bools, start: int, stop: int
    ) -> float:
        leaves, scored = search_bytes(codes, queries, keys, scores, indices, failed, start, stop)
        extra = max(0, scored - _SCORED * k * (stop - start))
        return float(_BYTES * leaves + _SCORE * extra)

    return scan


def _flat_scan(keys: F32, sorted_keys: ByLength) -> Scan:
    """Return the search by a float32 filter."""
    from kmip_data.models.search.cpu.filter_scan import pack_keys, search_flat

    flat = pack_keys(keys, sorted_keys)

    def scan(queries: F32, *rest: Any) -> float:
        return float(search_flat(flat, queries, keys, *rest))

    return scan


def _cost_of_sample(scan: Scan, queries: F32, k: int) -> tuple[float, float]:
    """Try a filter on at most 128 queries, one in 64: cost per query, and share failed by ties."""
    tried = min(_SAMPLE, -(-len(queries) // 64))
    sample = np.linspace(0, len(queries) - 1, tried).astype(np.int64)
    failed = np.zeros(tried, np.bool_)
    scores = np.empty((tried, k), np.float32)
    indices = np.empty((tried, k), np.int64)
    cost = scan(queries[sample], scores, indices, failed, 0, tried) / tried
    return cost, float(failed.mean())


def _log_scan(name: str, queries: F32, keys: F32, cost: float, tied: float) -> None:
    """Log the chosen scan, and the cost and ties of the last one that was tried."""
    log.debug(
        "%s scan of %d keys for %d queries, at the cost of %.0f leaves of 16 each; %.0f %% of a"
        " sample full of ties",
        name,
        len(keys),
        len(queries),
        cost,
        100 * tied,
    )


def _scan_exactly(queries: F32, keys: F32, scores: F32, indices: I64) -> None:
    """Search one head of one graph by the rule alone; arguments as for :func:`_search_large`."""
    query_rows = np.array([[0, len(queries)]])
    key_rows = np.array([[0, len(keys)]])
    _search_exactly(
        _Operands(queries[None], keys[None], scores[None], indices[None], query_rows, key_rows)
    )
