"""Sort edges by target in bounded memory: partition them into runs on disk, then sort bucket by bucket.

Sources and targets arrive in batches. A *bucket* is a range of targets. Each batch is sorted by bucket
and appended to the files of runs, so a bucket is one slice of every batch. A bucket is sorted by a
stable counting sort of its mapped slices, which needs 8 bytes of memory per edge and 32 per node of
the bucket.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kmip_data.arrays import I64, U32, Array
from kmip_data.runtime.parallel import njit_nogil

EDGES_PER_BATCH = 2**21  #: edges partitioned at a time: 128 KiB per bucket at 128 buckets
BUCKET_EDGES = 2**22  #: mean number of edges sorted at a time
MAX_BUCKETS = 512
_RUNS = ("run_source", "run_target")
_BOUNDS = "bounds.npy"
_EDGES = "edge"


def write_runs(
    batches: Iterable[tuple[Array, Array]],
    nodes: int,
    edges: int,
    folder: Path,
    *,
    both_ways: bool,
) -> None:
    """Partition batches of sources (n,) and targets (n,), all below ``nodes``, into runs in ``folder``.

    ``edges`` is the number of edges in all batches. ``both_ways`` adds the reverse of each edge.
    """
    total = 2 * edges if both_ways else edges
    shift = _bits_within_bucket(nodes, min(max(1, total // BUCKET_EDGES), MAX_BUCKETS))
    buckets = ((nodes - 1) >> shift) + 1
    bounds = []
    start = 0
    with (folder / _RUNS[0]).open("wb") as sources, (folder / _RUNS[1]).open("wb") as targets:
        for source, target in batches:
            pairs = [(source, target)]
            if both_ways:
                pairs.append((target, source))
            for ends in pairs:
                by_bucket = _sort_by_bucket(ends[0], ends[1], shift, buckets)
                sources.write(by_bucket[0].data)
                targets.write(by_bucket[1].data)
                bounds.append(start + by_bucket[2])
                start = int(bounds[-1][-1])
    np.save(folder / _BOUNDS, np.array(bounds, np.int64).reshape(-1, buckets + 1))


def sort_runs(
    runs: Path,
    nodes: int,
    folder: Path,
    *,
    distinct: bool,
) -> tuple[int, int]:
    """Sort the runs of :func:`write_runs` by target, keeping the order of equal targets.

    ``distinct`` sorts by target and source, and keeps each pair once. Writes ``folder/edge``, with
    sources in its first half and targets in its second. Returns the number of edges and the
    capacity of each half (:func:`map_sorted_edges`).
    """
    bounds = np.load(runs / _BOUNDS, allow_pickle=False)
    source, target = (_map_edges(runs / name) for name in _RUNS)
    capacity = len(source)
    buckets = bounds.shape[1] - 1
    shift = _bits_within_bucket(nodes, buckets)
    count = 0
    path = folder / _EDGES
    with path.open("wb") as sources, path.open("r+b") as targets:
        targets.seek(4 * capacity)
        for bucket in range(buckets):
            first = bucket << shift
            size = min(1 << shift, nodes - first)
            runs_of_bucket = bounds[:, bucket : bucket + 2].copy()
            ordered, degree = _sorted_bucket(source, target, runs_of_bucket, first, size, distinct)
            sources.write(ordered.data)
            ends = np.repeat(np.arange(first, first + size, dtype=np.uint32), degree)
            targets.write(ends.data)
            count += len(ordered)
        sources.truncate(8 * capacity)
    return count, capacity


def map_sorted_edges(folder: Path, count: int, capacity: int) -> U32:
    """Map the edges that :func:`sort_runs` wrote, (2, count)."""
    return _map_edges(folder / _EDGES).reshape(2, capacity)[:, :count]


def _bits_within_bucket(nodes: int, buckets: int) -> int:
    """Return the number of low bits that number a target within its bucket."""
    return ((nodes - 1) // buckets).bit_length()


def _map_edges(path: Path) -> U32:
    if not path.stat().st_size:
        return np.empty(0, np.uint32)
    return np.asarray(np.memmap(path, np.uint32, "r"))


@njit_nogil()
def _sort_by_bucket(source: I64, target: I64, shift: int, buckets: int) -> tuple[U32, U32, I64]:
    """Return a batch's sources and targets, stably sorted by bucket, and the bucket starts, (B + 1,)."""
    starts = np.zeros(buckets + 1, np.int64)
    for end in target:
        starts[(end >> shift) + 1] += 1
    starts = np.cumsum(starts)
    position = starts[:-1].copy()
    sources = np.empty(len(source), np.uint32)
    targets = np.empty(len(source), np.uint32)
    for edge in range(len(source)):
        bucket = target[edge] >> shift
        sources[position[bucket]] = source[edge]
        targets[position[bucket]] = target[edge]
        position[bucket] += 1
    return sources, targets, starts


@njit_nogil()
def _sorted_bucket(
    source: U32,
    target: U32,
    runs: I64,
    first: int,
    size: int,
    distinct: bool,
) -> tuple[U32, I64]:
    """Return a bucket's sources, sorted by target, and the degrees of its nodes, (size,).

    The bucket has ``size`` nodes from number ``first``.
    """
    # 1. Count the edges of each target; cumulative counts are the start positions.
    starts = np.zeros(size + 1, np.int64)
    for start, stop in runs:
        for edge in range(start, stop):
            starts[target[edge] - first + 1] += 1
    degree = starts[1:].copy()
    starts = np.cumsum(starts)

    # 2. Put each source at the next free position of its target, which keeps the order.
    position = starts[:-1].copy()
    ordered = np.empty(starts[-1], np.uint32)
    for start, stop in runs:
        for edge in range(start, stop):
            node = target[edge] - first
            ordered[position[node]] = source[edge]
            position[node] += 1
    if not distinct:
        return ordered, degree

    # 3. Sort the sources of each target, and keep each distinct source once.
    count = 0
    for node in range(size):
        node_sources = ordered[starts[node] : starts[node + 1]]
        node_sources.sort()
        count_before = count
        for i in range(len(node_sources)):
            if i == 0 or node_sources[i] != ordered[count - 1]:
                ordered[count] = node_sources[i]
                count += 1
        degree[node] = count - count_before
    return ordered[:count], degree
