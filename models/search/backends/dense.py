"""Search by matrix products, in tiles within a memory limit, on any device with float64.

Large graphs are filtered by a float32 product, and the few best keys are ranked by the rule. Queries
without a proof are filtered by a float64 product, and scored against all keys if that fails too, as
with many ties. (Most GPUs multiply float64 at 1/32 to 1/64 of float32's rate.) Small graphs are
padded to a common size, many at a time, and always scored completely.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kmip_data.models.search.problem import SearchProblem
from kmip_data.models.search.rule import (
    Filter,
    float64_sum_error,
    largest_scores,
    score_block,
    search_by_graph,
)

NAME = "dense"
AUTO_NOTE = "chosen by auto if no other backend fits"
AUTO_PRIORITY = {"cpu": 1, "cuda": 1}

SCRATCH_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}  #: bytes of scratch memory per tile
# Scratch memory of a scored pair: float64 sum, float32 score, two int64 keys, topk's scratch.
_BYTES_PER_PAIR = 40
_precision_lock = threading.Lock()  # guards PyTorch's process-wide precision
# Queries and keys of a small graph, for which padding costs less than launches.
_MAX_SMALL_ROWS = 512


def why_unusable(device_type: str) -> str | None:
    """Return the reason why it cannot run on this device type, or None."""
    return None if device_type in SCRATCH_BYTES else f"needs float64, untested on {device_type}"


def why_refused(_problem: SearchProblem) -> str | None:
    """Return None: every problem is supported."""
    return None


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Return scores and indices (H, N, k) by the rule, a limited number of pairs at a time."""
    result = problem.new_result()
    limit = max(1, SCRATCH_BYTES[problem.device.type] // _BYTES_PER_PAIR)
    small = []
    large = []
    counts = np.diff(problem.key_rows)[:, 0].tolist()
    rows = np.diff(problem.query_rows)[:, 0].tolist()
    for graph, (num_keys, num_queries) in enumerate(zip(counts, rows, strict=True)):
        if max(num_keys, num_queries) > _MAX_SMALL_ROWS:
            large.append(graph)
        elif num_keys and num_queries:
            small.append((num_keys, num_queries, graph))

    search_by_graph(
        problem,
        Filter(_best_by_float32),
        large,
        result,
        fallback=Filter(_best_by_float64, float64_sum_error),
        max_filtered_pairs=limit,
        max_scored_pairs=limit,
    )
    for graphs in _group_small_graphs(small, limit // problem.heads):
        _search_small_graphs(problem, graphs, *result)
    return result


def _best_by_float32(queries: Tensor, keys: Tensor, count: int) -> Tensor:
    # The error bound does not hold for TF32 and bfloat16.
    with _precision_lock:
        previous = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            products = queries @ keys.mT
        finally:
            torch.set_float32_matmul_precision(previous)
    return products.topk(count, dim=-1, sorted=False).indices


def _best_by_float64(queries: Tensor, keys: Tensor, count: int) -> Tensor:
    products = queries.double() @ keys.double().mT
    rounded = products.float()
    return rounded.topk(count, dim=-1, sorted=False).indices


def _group_small_graphs(sizes: list[tuple[int, int, int]], limit: int) -> Iterator[tuple[int, ...]]:
    """Group small graphs (keys, queries, graph) so that a padded group has at most ``limit`` pairs."""
    group: list[int] = []
    max_keys = 0
    max_queries = 0
    for keys, queries, graph in sorted(sizes):  # similar sizes need little padding
        max_keys = max(max_keys, keys)
        max_queries = max(max_queries, queries)
        if group and (len(group) + 1) * max_keys * max_queries > limit:
            yield tuple(group)
            group = []
            max_keys = keys
            max_queries = queries
        group.append(graph)
    if group:
        yield tuple(group)


def _search_small_graphs(
    problem: SearchProblem,
    graphs: tuple[int, ...],
    scores: Tensor,
    indices: Tensor,
) -> None:
    """Score all pairs of small graphs, padded to a common size; write to scores and indices (H, N, k)."""
    query_rows, is_query = _padded_rows(problem.query_ptr, graphs, problem.device)
    key_rows, is_key = _padded_rows(problem.key_ptr, graphs, problem.device)
    max_keys = key_rows.shape[1]
    queries = problem.queries[:, query_rows].flatten(0, 1)
    keys = problem.keys[:, key_rows].flatten(0, 1)
    block = score_block(queries, keys).view(problem.heads, *query_rows.shape, max_keys)

    # Padding comes last, so even a real score of −inf ranks above it.
    block.masked_fill_(~is_key[:, None, :], -torch.inf)
    k = min(problem.k, max_keys)
    best, positions = largest_scores(block, k)
    counts = is_key.sum(1)[:, None, None]
    first_keys = key_rows[:, :1, None]
    chosen = torch.where(positions < counts, positions + first_keys, -1)

    rows = query_rows[is_query]
    scores[:, rows, :k] = best[:, is_query]
    indices[:, rows, :k] = chosen[:, is_query]


def _padded_rows(
    ptr: tuple[int, ...], graphs: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the rows of the graphs, padded to the largest (graphs, W), and a mask of real rows."""
    starts = torch.tensor([ptr[graph] for graph in graphs])
    counts = torch.tensor([ptr[graph + 1] - ptr[graph] for graph in graphs])
    steps = torch.arange(int(counts.max()))
    is_real = steps < counts[:, None]
    rows = torch.where(is_real, starts[:, None] + steps, starts[:, None])
    return rows.to(device), is_real.to(device)
