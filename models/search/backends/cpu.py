"""Compiled search on all CPU cores, by one of three scans chosen for the size and data of each graph.

*exact* scores every key by the rule, for small graphs and few queries. *byte* filters keys in 8
bits, on processors that multiply bytes. *float* filters in float32, if bytes separate too few keys.
The choice is in the debug log; the results are equal.
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
    from kmip_data.models.search.cpu.sorted_keys import KeysByLength

NAME = "cpu"
AUTO_NOTE = "chosen by auto on the CPU"
AUTO_PRIORITY = {"cpu": 10}

log = logging.getLogger(__name__)

#: Searches the queries ``start:stop``, called with (queries, scores, indices, failed, start, stop).
#: Returns the cost, in leaves of 16 keys of the float scan.
Scan = Callable[..., float]

# Thresholds between the scans, measured in ADR 0100 and 0220.
_MIN_FILTER_QUERIES = 64
_MIN_FLOAT_KEYS = 3000  # plus 40 per k
_MIN_FLOAT_KEYS_PER_K = 40
_MIN_BYTE_KEYS = 800  # plus 8 per k and 12,000 / (d + 4)
_MIN_BYTE_KEYS_PER_K = 8
_MIN_BYTE_VALUES = 12_000
_MIN_GROUPED_KEYS = 1000  # keys from which equal rows are grouped, for many heads; 3000 for one
_MAX_DISTINCT_FRACTION = 0.85  # of distinct rows in the first quarter of the keys, for grouping
_BYTE_LEAF_COST = 0.25  # cost of a leaf of bytes, relative to a leaf of the float scan
_SCORE_COST = 5  # cost of scoring a key that passes the byte filter, in the same unit
_FLOAT_CANDIDATES_PER_K = 8  # keys that pass the float filter, too
_MAX_TIED_FRACTION = 0.3  # of sampled queries that the filter fails to rank; above, search exactly
_MAX_SAMPLED_QUERIES = 128  # one query in 64 is sampled
_MIN_PAIRS_PER_RANGE = 100_000  # fewest pairs per thread
_TILE = 16  # queries per block of the exact scan
_MAX_PRODUCTS = 400_000_000  # multiplications between checks for an interrupt, about 0.1 s


def why_unusable(device_type: str) -> str | None:
    """Return the reason why it cannot run on this device type, or None."""
    if device_type != "cpu":
        return f"runs on the CPU only, not on {device_type}"
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed"
    return None


def why_refused(problem: SearchProblem) -> str | None:
    """Return the reason why it does not support this problem, or None."""
    if problem.dtype != torch.float32:
        return f"takes float32, not {problem.dtype}"
    return None if problem.keys.shape[1] < 2**31 else "takes fewer than 2³¹ keys"


class _Operands(NamedTuple):
    """Operands and results of a search, and the rows of the graphs to search."""

    queries: F32  #: (H, N, d)
    keys: F32  #: (H, M, d)
    scores: F32  #: (H, N, k), filled with −inf if a graph has fewer than k keys
    indices: I64  #: (H, N, k), filled with −1 if a graph has fewer than k keys
    query_rows: I64  #: (G, 2) start and stop of each graph's query rows
    key_rows: I64  #: (G, 2) start and stop of each graph's key rows

    def select_graphs(self, graphs: Bools) -> _Operands:
        """Return the operands with only the graphs that a mask (G,) selects."""
        return self._replace(query_rows=self.query_rows[graphs], key_rows=self.key_rows[graphs])

    def rows_per_graph(self) -> tuple[I64, I64]:
        """Return the numbers of queries and keys of each graph, (G,) each."""
        return np.diff(self.query_rows)[:, 0], np.diff(self.key_rows)[:, 0]


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Return scores and indices (H, N, k) by the rule."""
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
    has_equal_rows = _search_distinct_rows(graphs)
    _search_graphs(graphs.select_graphs(~has_equal_rows))
    return result


def _search_distinct_rows(graphs: _Operands) -> Bools:
    """Search the distinct rows of graphs with many equal keys; return a mask (G,) of these graphs."""
    queries, keys, scores, indices, *_ = graphs
    rows, sizes = graphs.rows_per_graph()
    min_keys = _MIN_GROUPED_KEYS * (1 + 2 / len(queries))
    has_equal_rows: Bools = (rows >= _MIN_FILTER_QUERIES) & (sizes >= min_keys)
    if not has_equal_rows.any():
        return has_equal_rows
    from kmip_data.models.search.cpu.equal_rows import expand_to_all_queries, first_rows, group_rows

    # 1. Count the distinct rows in a quarter of the keys of one head, as equal nodes are equal in all
    #    heads. This costs 4 % of a search of 2,000 keys in one head, 1 % of 3,000.
    quarter = graphs.key_rows[has_equal_rows]
    quarter[:, 1] = quarter[:, 0] + sizes[has_equal_rows] // 4
    sample = group_rows(keys, _head_graph_rows(1, quarter))
    max_distinct = _MAX_DISTINCT_FRACTION * (sizes[has_equal_rows] // 4)
    has_equal_rows[has_equal_rows] = sample.group_counts <= max_distinct
    if not has_equal_rows.any():
        return has_equal_rows

    # 2. Search the distinct rows of each head as a separate graph.
    heads = len(queries)
    query_groups = group_rows(queries, _head_graph_rows(heads, graphs.query_rows[has_equal_rows]))
    key_groups = group_rows(keys, _head_graph_rows(heads, graphs.key_rows[has_equal_rows]))
    distinct_queries = first_rows(queries, query_groups)
    distinct_keys = first_rows(keys, key_groups)
    shape = (*distinct_queries.shape[:2], scores.shape[2])
    distinct_scores = np.full(shape, -np.inf, np.float32)
    distinct_indices = np.full(shape, -1, np.int64)
    log.debug(
        "%d graphs have %d distinct queries and %d distinct keys in %d heads",
        has_equal_rows.sum(),
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

    # 3. Expand the results to all rows.
    expand_to_all_queries(
        distinct_scores, distinct_indices, query_groups, key_groups, scores, indices
    )
    return has_equal_rows


def _head_graph_rows(heads: int, rows: I64) -> I64:
    """Return (heads · G, 3): the head, start and stop of each graph's ``rows`` (G, 2) in each head."""
    head = np.repeat(np.arange(heads), len(rows))
    return np.column_stack([head, np.tile(rows, (heads, 1))])


def _search_graphs(graphs: _Operands) -> None:
    """Search all heads of the graphs."""
    queries, keys, scores, indices, *_ = graphs
    rows, sizes = graphs.rows_per_graph()
    has_many_keys = sizes >= _min_filter_keys(keys.shape[2], scores.shape[2])
    is_large = (rows >= _MIN_FILTER_QUERIES) & has_many_keys
    is_small = ~is_large & (rows > 0) & (sizes > 0)
    if is_small.any():
        log.debug("exact scan of %d graphs, at most %d keys", is_small.sum(), sizes[is_small].max())
        _search_exactly(graphs.select_graphs(is_small))

    for graph, head in itertools.product(is_large.nonzero()[0], range(len(queries))):
        block = (head, slice(*graphs.query_rows[graph]))
        low, high = graphs.key_rows[graph]
        _search_large_graph(queries[block], keys[head, low:high], scores[block], indices[block])
        indices[block] += low


def _min_filter_keys(dim: int, k: int) -> float:
    """Return the fewest keys for which a filter is tried."""
    from kmip_data.models.search.cpu.byte_scan import MAX_DIM
    from kmip_data.models.search.cpu.simd import multiplies_bytes

    float_keys = float(_MIN_FLOAT_KEYS + _MIN_FLOAT_KEYS_PER_K * k)
    if not multiplies_bytes() or dim > MAX_DIM:
        return float_keys
    byte_keys = _MIN_BYTE_KEYS + _MIN_BYTE_KEYS_PER_K * k + _MIN_BYTE_VALUES / (dim + 4)
    return min(float_keys, byte_keys)


def _search_exactly(graphs: _Operands) -> None:
    """Score all pairs in all heads of the graphs by the rule."""
    from kmip_data.models.search.cpu.exact_scan import search_rows

    queries = graphs.queries
    rows, sizes = graphs.rows_per_graph()
    query_ptr = np.concatenate([[0], np.cumsum(rows)])
    max_keys = max(1, int(sizes.max()))
    max_queries = 4 * _MAX_PRODUCTS // (max_keys * queries.shape[2]) // _TILE * _TILE
    run_in_ranges(
        partial(search_rows, *graphs, query_ptr),
        len(queries) * int(query_ptr[-1]),
        grain=max(1, _MIN_PAIRS_PER_RANGE // max_keys),
        max_rows=max(_TILE, max_queries),
    )


def _search_large_graph(queries: F32, keys: F32, scores: F32, indices: I64) -> None:
    """Search one head of one graph: (R, d), (M, d), (R, k), (R, k)."""
    # 1. Choose a filter by a sample of the queries.
    scan, cost = _choose_scan(queries, keys, scores.shape[1])
    if scan is None:
        _scan_exactly(queries, keys, scores, indices)
        return

    # 2. Filter all queries.
    failed = np.zeros(len(queries), np.bool_)
    max_queries = int(_MAX_PRODUCTS / ((16 * max(cost, 0) + 1) * keys.shape[1])) // 64 * 64
    run_in_ranges(
        partial(scan, queries, scores, indices, failed),
        len(queries),
        grain=max(1, _MIN_PAIRS_PER_RANGE // len(keys)),
        max_rows=max(64, max_queries),  # at least one block of queries, which share the cache
    )

    # 3. Search queries exactly that no filter can rank, such as zero vectors, or that have many ties.
    failed_rows = np.flatnonzero(failed)
    if len(failed_rows):
        failed_scores = scores[failed_rows]
        failed_indices = indices[failed_rows]
        _scan_exactly(queries[failed_rows], keys, failed_scores, failed_indices)
        scores[failed_rows] = failed_scores
        indices[failed_rows] = failed_indices


def _choose_scan(queries: F32, keys: F32, k: int) -> tuple[Scan | None, float]:
    """Return the filter for these keys and its cost per query; ``None``: search exactly.

    Bytes, if supported, are chosen if they cost less than a float scan of all keys and can rank the
    sampled queries. Otherwise few keys are searched exactly, and many by the float filter, unless it
    cannot rank the sample either.
    """
    from kmip_data.models.search.cpu.byte_scan import MAX_DIM
    from kmip_data.models.search.cpu.simd import multiplies_bytes
    from kmip_data.models.search.cpu.sorted_keys import sort_by_length

    sorted_keys = sort_by_length(keys)
    if multiplies_bytes() and keys.shape[1] <= MAX_DIM:
        scan = _make_byte_scan(keys, sorted_keys, k)
        cost, tied = _try_on_sample(scan, queries, k)
        if tied <= _MAX_TIED_FRACTION and cost < len(keys) / 16:
            _log_scan("byte", queries, keys, cost, tied)
            return scan, cost
        # Too few keys for the float filter.
        if len(keys) < _MIN_FLOAT_KEYS + _MIN_FLOAT_KEYS_PER_K * k:
            _log_scan("exact", queries, keys, cost, tied)
            return None, cost

    scan = _make_float_scan(keys, sorted_keys)
    cost, tied = _try_on_sample(scan, queries, k)
    can_rank = tied <= _MAX_TIED_FRACTION
    _log_scan("float" if can_rank else "exact", queries, keys, cost, tied)
    return (scan if can_rank else None), cost


def _make_byte_scan(keys: F32, sorted_keys: KeysByLength, k: int) -> Scan:
    """Return the scan with an 8-bit filter."""
    from kmip_data.models.search.cpu.byte_scan import encode_as_bytes, search_bytes

    codes = encode_as_bytes(keys, sorted_keys)

    def scan(
        queries: F32, scores: F32, indices: I64, failed: Bools, start: int, stop: int
    ) -> float:
        leaves, scored = search_bytes(codes, queries, keys, scores, indices, failed, start, stop)
        extra = max(0, scored - _FLOAT_CANDIDATES_PER_K * k * (stop - start))
        return float(_BYTE_LEAF_COST * leaves + _SCORE_COST * extra)

    return scan


def _make_float_scan(keys: F32, sorted_keys: KeysByLength) -> Scan:
    """Return the scan with a float32 filter."""
    from kmip_data.models.search.cpu.float_scan import pack_keys, search_floats

    packed_keys = pack_keys(keys, sorted_keys)

    def scan(queries: F32, *arguments: Any) -> float:
        return float(search_floats(packed_keys, queries, keys, *arguments))

    return scan


def _try_on_sample(scan: Scan, queries: F32, k: int) -> tuple[float, float]:
    """Return the cost per query, and the fraction of queries failed by ties, in a sample of one in 64."""
    count = min(_MAX_SAMPLED_QUERIES, -(-len(queries) // 64))
    sample = np.linspace(0, len(queries) - 1, count).astype(np.int64)
    failed = np.zeros(count, np.bool_)
    scores = np.empty((count, k), np.float32)
    indices = np.empty((count, k), np.int64)
    cost = scan(queries[sample], scores, indices, failed, 0, count) / count
    return cost, float(failed.mean())


def _log_scan(name: str, queries: F32, keys: F32, cost: float, tied: float) -> None:
    """Log the chosen scan, and the cost and ties of the last one on the sample."""
    log.debug(
        "%s scan of %d keys for %d queries, at the cost of %.0f leaves of 16 each; %.0f %% of a"
        " sample failed by ties",
        name,
        len(keys),
        len(queries),
        cost,
        100 * tied,
    )


def _scan_exactly(queries: F32, keys: F32, scores: F32, indices: I64) -> None:
    """Score all pairs of one head of one graph: (R, d), (M, d), (R, k), (R, k)."""
    query_rows = np.array([[0, len(queries)]])
    key_rows = np.array([[0, len(keys)]])
    _search_exactly(
        _Operands(queries[None], keys[None], scores[None], indices[None], query_rows, key_rows)
    )
