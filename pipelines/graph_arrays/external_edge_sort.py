"""Edges sorted by target in bounded memory: partitioned into runs on disk, then sorted bucket by bucket.

Sources and targets come as blocks. A *bucket* is a range of targets; each block is sorted by bucket
and appended to one file of runs, so that a bucket is one slice of every block. Sorting a bucket is a
counting sort by target, stable, of the mapped slices: in memory are its edges, 8 bytes each, and 32
bytes a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kmip_data.arrays import I64, U32, Array
from kmip_data.runtime.parallel import njit_nogil

BLOCK_EDGES = 2**21  #: partitioned at a time: 128 KiB a bucket at 128 buckets
BUCKET_EDGES = 2**22  #: sorted at a time, in the mean
MAX_BUCKETS = 512
_RUNS = ("run_source", "run_target")
_BOUNDS = "bounds.npy"
_EDGES = "edge"


def write_runs(
    blocks: Iterable[tuple[Array, Array]],
    nodes: int,
    edges: int,
    folder: Path,
    *,
    both_ways: bool,
) -> None:
    """Partition blocks of sources (n,) and targets (n,), all below ``nodes``, into runs in ``folder``.

    ``edges`` is their number in all blocks. ``both_ways`` adds the reverse of each edge.
    """
    total = 2 * edges if both_ways else edges
    shift = _bits_within_bucket(nodes, min(max(1, total // BUCKET_EDGES), MAX_BUCKETS))
    buckets = ((nodes - 1) >> shift) + 1
    bounds = []
    start = 0
    with (folder / _RUNS[0]).open("wb") as sources, (folder / _RUNS[1]).open("wb") as targets:
        for source, target in blocks:
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
    """Sort the runs of :func:`write_runs` by target, with equal targets in their order.

    ``distinct`` sorts by target and source, and keeps each pair once. Writes ``folder/edge``: sources
    from its beginning, targets from its middle on. Returns how many edges there are, and how many
    have room in each half (:func:`sorted_edges`).
    """
    bounds = np.load(runs / _BOUNDS, allow_pickle=False)
    source, target = (_map_edges(runs / name) for name in _RUNS)
    room = len(source)
    buckets = bounds.shape[1] - 1
    shift = _bits_within_bucket(nodes, buckets)
    count = 0
    path = folder / _EDGES
    with path.open("wb") as sources, path.open("r+b") as targets:
        targets.seek(4 * room)
        for bucket in range(buckets):
            first = bucket << shift
            size = min(1 << shift, nodes - first)
            runs_of_bucket = bounds[:, bucket : bucket + 2].copy()
            ordered, degree = _sorted_bucket(source, target, runs_of_bucket, first, size, distinct)
            sources.write(ordered.data)
            ends = np.repeat(np.arange(first, first + size, dtype=np.uint32), degree)
            targets.write(ends.data)
            count += len(ordered)
        sources.truncate(8 * room)
    return count, room


def sorted_edges(folder: Path, count: int, room: int) -> U32:
    """Return the edges of :func:`sort_runs`, (2, count), mapped."""
    return _map_edges(folder / _EDGES).reshape(2, room)[:, :count]


def _bits_within_bucket(nodes: int, buckets: int) -> int:
    """Return how many low bits number a target within its bucket: the fewest for at most ``buckets``."""
    return ((nodes - 1) // buckets).bit_length()


def _map_edges(path: Path) -> U32:
    if not path.stat().st_size:
        return np.empty(0, np.uint32)
    return np.asarray(np.memmap(path, np.uint32, "r"))


@njit_nogil()
def _sort_by_bucket(source: I64, target: I64, shift: int, buckets: int) -> tuple[U32, U32, I64]:
    """Return sources and targets of a block stably sorted by bucket, and where each begins, (B + 1,)."""
    begin = np.zeros(buckets + 1, np.int64)
    for end in target:
        begin[(end >> shift) + 1] += 1
    begin = np.cumsum(begin)
    position = begin[:-1].copy()
    sources = np.empty(len(source), np.uint32)
    targets = np.empty(len(source), np.uint32)
    for edge in range(len(source)):
        bucket = target[edge] >> shift
        sources[position[bucket]] = source[edge]
        targets[position[bucket]] = target[edge]
        position[bucket] += 1
    return sources, targets, begin


@njit_nogil()
def _sorted_bucket(
    source: U32,
    target: U32,
    runs: I64,
    first: int,
    size: int,
    distinct: bool,
) -> tuple[U32, I64]:
    """Return the sources of one bucket by target, and the degree of its ``size`` nodes from ``first``."""
    # 1. Count the edges of each target; running sums are where its edges begin.
    begin = np.zeros(size + 1, np.int64)
    for start, stop in runs:
        for edge in range(start, stop):
            begin[target[edge] - first + 1] += 1
    degree = begin[1:].copy()
    begin = np.cumsum(begin)

    # 2. Put each source at the next free position of its target: equal targets keep their order.
    position = begin[:-1].copy()
    ordered = np.empty(begin[-1], np.uint32)
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
        of_node = ordered[begin[node] : begin[node + 1]]
        of_node.sort()
        before = count
        for i in range(len(of_node)):
            if i == 0 or of_node[i] != ordered[count - 1]:
                ordered[count] = of_node[i]
                count += 1
        degree[node] = count - before
    return ordered[:count], degree
