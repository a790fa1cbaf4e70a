"""Compiled search on all cores of the CPU, in one of three ways by the size and data of each graph.

*exact*: small graphs and few queries, every key by the rule. *flat*: a float32 filter over all keys.
*tree*: the same over those that no cone excludes, where a sample of the queries shows that this is worth
it. Which one is in the debug log; the result is the same.
"""

from __future__ import annotations

import importlib.util
import logging
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.arrays import F32, I64
from kmip_data.models.search.problem import SearchProblem
from kmip_data.models.search.rule import largest, score_block
from kmip_data.runtime.threads import for_ranges

NAME = "cpu"
SUMMARY = "compiled, exact scan, float32 filter or tree of cones by size and data (numba)"
AUTO = "auto takes it on the CPU"
RANK = {"cpu": 10}

log = logging.getLogger(__name__)

# Where the ways meet, measured: ADR 0100 and 0220.
_FEW_QUERIES = 64  # below: exact
_FEW_KEYS, _FEW_KEYS_A_K = 3000, 40  # fewer keys than the one and k times the other: exact
_TREE_KEYS, _TREE_QUERIES = 30_000, 8_192  # from both on: a tree is tried
_TREE_DIM = 20.0  # directions that the keys take evenly, above which no cone excludes much
_CLIMB = 1500  # leaves of the flat scan that a tree's own work for a query is worth
_TIES = 0.1  # of a sample of queries: exact
_GIANTS, _GIANT = 16, 16.0  # up to this many keys, longer than all others by this factor, are searched apart
_ROWS = 4096  # queries whose results are merged at a time
_SAMPLE = 128  # most queries tried beforehand, of 64 one
_WARM = 3  # twigs searched first
_PAIRS_A_RANGE = 100_000  # fewer are not worth handing to a thread
_TILE = 16  # queries that the exact way takes together
_MOST_PRODUCTS = 400_000_000  # numbers multiplied before an interrupt takes effect, about 0.1 s


class _Arrays(NamedTuple):
    queries: F32  #: (H, N, d)
    keys: F32  #: (H, M, d)
    scores: F32  #: (H, N, k)
    indices: I64  #: (H, N, k)


def unusable(device_type: str) -> str | None:
    """Why it cannot run on this kind of device."""
    if device_type != "cpu":
        return f"runs on the CPU only, not on {device_type}"
    return None if importlib.util.find_spec("numba") else "numba is not installed"


def refuses(problem: SearchProblem) -> str | None:
    """Why it cannot take this problem."""
    if problem.dtype != torch.float32:
        return f"takes float32, not {problem.dtype}"
    return None if problem.keys.shape[1] < 2**31 else "counts to 2³¹ keys"


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Scores (H, N, k) and indices (H, N, k) by the rule."""
    scores, indices = problem.new_result()
    arrays = _Arrays(problem.queries.numpy(), problem.keys.numpy(), scores.numpy(), indices.numpy())
    hint = None if problem.hint is None else problem.hint.long().numpy()
    query_ptr, key_ptr = problem.query_rows, problem.key_rows
    rows, keys = query_ptr[:, 1] - query_ptr[:, 0], key_ptr[:, 1] - key_ptr[:, 0]
    large = (rows >= _FEW_QUERIES) & (keys >= _FEW_KEYS + _FEW_KEYS_A_K * problem.k)
    small = ~large & (rows > 0) & (keys > 0)
    if small.any():
        log.debug("exact scan of %d graphs, at most %d keys", small.sum(), keys[small].max())
        _search_exactly(arrays, query_ptr[small], key_ptr[small])
    for graph in large.nonzero()[0]:
        for head in range(problem.heads):
            _search_large(arrays, hint, head, query_ptr[graph], key_ptr[graph])
    return scores, indices


def _search_exactly(arrays: _Arrays, query_ptr: I64, key_ptr: I64) -> None:
    """All heads of some graphs, given as (G, 2) first and last rows of their queries and keys."""
    from kmip_data.models.search.cpu.exact_scan import search_rows

    queries, keys, scores, indices = arrays
    before = np.concatenate([[0], np.cumsum(query_ptr[:, 1] - query_ptr[:, 0])])
    most = max(1, int((key_ptr[:, 1] - key_ptr[:, 0]).max()))

    def rows(start: int, stop: int) -> None:
        search_rows(queries, keys, query_ptr, key_ptr, before, scores.shape[2], start, stop, scores, indices)

    total = queries.shape[0] * int(before[-1])
    for_ranges(
        rows,
        total,
        grain=max(1, _PAIRS_A_RANGE // most),
        most=max(_TILE, 4 * _MOST_PRODUCTS // (most * queries.shape[2]) // _TILE * _TILE),
    )


# Long: the order of the passes is what it is about; each is one call.
def _search_large(arrays: _Arrays, hint: I64 | None, head: int, query_rows: I64, key_rows: I64) -> None:
    """One head of one graph."""
    from kmip_data.models.search.cpu.filter_scan import search_flat, search_tree
    from kmip_data.models.search.cpu.tree import grow

    (first, last), (low, high) = query_rows.tolist(), key_rows.tolist()
    queries, keys = arrays.queries[head, first:last], arrays.keys[head, low:high]
    scores, indices = arrays.scores[head, first:last], arrays.indices[head, first:last]
    named = np.empty((len(queries), 0), np.int64) if hint is None else hint[head, first:last]
    k = scores.shape[1]
    # 1. Data that no filter can rank: equal keys, a few giant keys, queries of zeros.
    if bool((keys[0] == keys[-1]).all() and (keys[0] == keys).all()):
        _first_keys(arrays, head, query_rows, low)
        return
    giants = _giants(keys)
    if 0 < len(giants) < len(keys) - k:
        _search_beside(arrays, giants, head, query_rows, key_rows)
        return
    # A query of zeros has equal scores, so its result is the first keys.
    zero: NDArray[np.bool_] = (queries == 0).all(1)
    scores[zero], indices[zero] = 0, np.arange(low, low + k)
    # 2. Grow the tree; without cones it is the layout of the flat scan.
    try_tree = len(keys) >= _TREE_KEYS and len(queries) >= _TREE_QUERIES and _directions(keys) <= _TREE_DIM
    tree = grow(keys, cones=try_tree, places=try_tree and hint is not None)

    def climb(some: slice | I64, start: int, stop: int, *found: Any) -> int:
        return int(search_tree(tree, queries[some], keys, named[some], k, low, _WARM, start, stop, *found))

    def scan(some: slice | I64, start: int, stop: int, *found: Any) -> None:
        search_flat(tree, queries[some], keys, k, low, start, stop, *found)

    # 3. Try at most 128 queries, one in 64: the share of leaves that the cones leave, and how many queries
    #    fail for ties. A leaf costs the tree about twice what it costs the flat scan.
    tried = min(_SAMPLE, -(-len(queries) // 64))
    some = np.linspace(0, len(queries) - 1, tried).astype(np.int64)
    failed = np.zeros(tried, np.bool_)
    found = np.empty((tried, k), np.float32), np.empty((tried, k), np.int64), failed
    share = 1.0
    if try_tree:
        share = climb(some, 0, tried, *found) / (tried * len(keys) / 16)
    else:
        scan(some, 0, tried, *found)
    alike = float((failed & ~zero[some]).mean())
    pays = 2 * share + _CLIMB * 16 / len(keys) < 0.9
    way = "exact" if alike > _TIES else "tree" if pays and try_tree else "flat"
    log.debug(
        "%s scan of %d keys for %d queries%s; %.0f %% of a sample of queries full of ties",
        way, len(keys), len(queries), f": cones leave {share:.0%} of the keys" if try_tree else "",
        100 * alike,
    )  # fmt: skip
    if way == "exact":
        _exactly_for(arrays, head, query_rows, key_rows)
        return
    # 4. Search all queries that way, then those that failed exactly.
    search = climb if way == "tree" else scan
    visited = share * len(keys) if way == "tree" else len(keys)  # keys multiplied for a query
    failed = np.zeros(len(queries), np.bool_)
    for_ranges(
        lambda start, stop: search(slice(None), start, stop, scores, indices, failed),
        len(queries),
        grain=max(1, _PAIRS_A_RANGE // len(keys)),
        # Queries go through a tree by 64.
        most=max(
            64 if way == "tree" else 16, int(_MOST_PRODUCTS / ((visited + 1) * keys.shape[1])) // 64 * 64
        ),
    )
    rest = np.flatnonzero(failed & ~zero)
    if len(rest):
        few = _Arrays(queries[rest][None], keys[None], scores[rest][None], indices[rest][None])
        _exactly_for(few, 0, np.array([0, len(rest)]), np.array([0, len(keys)]))
        scores[rest], indices[rest] = few.scores[0], few.indices[0] + low


def _first_keys(arrays: _Arrays, head: int, query_rows: I64, low: int) -> None:
    """Every key of a graph is the same: the first k, all with the score of the first."""
    _exactly_for(arrays, head, query_rows, np.array([low, low + 1]))
    rows, k = slice(*query_rows.tolist()), arrays.scores.shape[2]
    arrays.scores[head, rows] = arrays.scores[head, rows, :1]
    arrays.indices[head, rows] = np.arange(low, low + k)


def _giants(keys: F32) -> I64:
    """Return the rows of a few keys far longer than all others, next to which no filter separates these."""
    squares = np.einsum("ij,ij->i", keys, keys)
    most = min(_GIANTS, len(keys) - 1)
    rest = np.partition(squares, -1 - most)[-1 - most]
    return np.flatnonzero(squares / np.float32(_GIANT**2) > rest) if rest > 0 else np.empty(0, np.int64)


def _search_beside(arrays: _Arrays, giants: I64, head: int, query_rows: I64, key_rows: I64) -> None:
    """Search the other keys, and merge with the scores of the giants."""
    (first, last), (low, high) = query_rows.tolist(), key_rows.tolist()
    keys, others = arrays.keys[head, low:high], np.delete(np.arange(high - low), giants)
    place = slice(head, head + 1), slice(first, last)
    queries, scores, indices = arrays.queries[place], arrays.scores[place], arrays.indices[place]
    beside = _Arrays(queries, keys[others][None], scores, indices)
    _search_large(beside, None, 0, np.array([0, last - first]), np.array([0, len(others)]))
    few = torch.from_numpy(keys[giants])[None]
    for row in range(0, last - first, _ROWS):
        part = slice(row, row + _ROWS)
        theirs = score_block(torch.from_numpy(queries[:, part]), few)
        found = torch.cat([torch.from_numpy(scores[:, part]), theirs], 2)
        rows = np.concatenate([others[indices[:, part]], np.broadcast_to(giants, theirs.shape)], 2)
        best = largest(found, scores.shape[2], torch.from_numpy(rows))
        scores[:, part], indices[:, part] = best[0].numpy(), best[1].numpy() + low


def _exactly_for(arrays: _Arrays, head: int, query_rows: I64, key_rows: I64) -> None:
    """One head of one graph."""
    part = slice(head, head + 1)
    one = _Arrays(arrays.queries[part], arrays.keys[part], arrays.scores[part], arrays.indices[part])
    _search_exactly(one, query_rows[None], key_rows[None])


def _directions(keys: F32) -> float:
    """Effective dimension of a sample of the keys: (tr C)² / tr C² of its covariance C; 1 to d."""
    # In torch: numpy's product has threads of its own.
    sample = torch.from_numpy(keys[:: max(1, len(keys) // 1024)]).double()
    sample = sample - sample.mean(0)
    covariance = sample.mT @ sample
    squares = float(covariance.square().sum())
    return float(covariance.trace()) ** 2 / squares if squares > 0 else 1.0
