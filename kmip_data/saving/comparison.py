"""Comparison of two sequences of graphs: pair the graphs, then compare columns, edges and order.

Graphs are read in blocks, and eight bytes a graph and column stay in memory. The first pass computes
a digest of each column of each graph, by which graphs are paired; the second pass reads only the
pairs that differ.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.reading.gather import EDGE, GRAPH, NODE
from kmip_data.saving.compared_blocks import (
    EDGES,
    BlockReader,
    ComparedSide,
    block_slices,
    shared_columns,
)
from kmip_data.saving.tallies import MAX_EXAMPLES, Difference, EdgeTally, ValueTally, match


def compare(a: ComparedSide, b: ComparedSide, equal: I64) -> Iterator[Difference]:
    """Yield the differences of two sides; graphs at the positions ``equal`` (n,) are not read.

    Graphs are paired if they are equal in every column; then if they are in all columns but one,
    where the edges with all their columns count as one, too; then by position, if most of the rest
    has as many nodes there. Of equal graphs, the k-th of A is paired with the k-th of B. Values are
    equal as numbers, NaN equals NaN, and rows of edge columns follow their edges.
    """
    # 1. Counts and columns.
    totals = {
        noun: [int(side.row_count[level].sum()) for side in (a, b)]
        for noun, level in (("graphs", GRAPH), ("nodes", NODE), ("edges", EDGE))
    }
    unequal = {noun: pair for noun, pair in totals.items() if pair[0] != pair[1]}
    if unequal:
        yield Difference("counts", "", unequal)
    yield from _column_differences(a, b)

    # 2. Pairs of graphs.
    shared = shared_columns(a, b)
    reader_a = BlockReader(a, shared, has_edges=EDGES in b.columns)
    reader_b = BlockReader(b, shared, has_edges=EDGES in a.columns)
    rest_a = np.setdiff1d(np.arange(a.row_count.shape[1]), equal)
    rest_b = np.setdiff1d(np.arange(b.row_count.shape[1]), equal)
    digests_a = reader_a.digests(rest_a)
    digests_b = reader_b.digests(rest_b)
    at_a, at_b = _pair_graphs(digests_a, digests_b, rest_a, rest_b, reader_a.allowed_differences())
    yield from _unpaired(np.delete(rest_a, at_a), np.delete(rest_b, at_b))
    yield from _order_difference(
        np.concatenate([equal, rest_a[at_a]]), np.concatenate([equal, rest_b[at_b]])
    )

    # 3. Values and edges of the pairs that differ.
    differs = (digests_a[:, at_a] != digests_b[:, at_b]).any(axis=0)
    pairs_a = rest_a[at_a[differs]]
    pairs_b = rest_b[at_b[differs]]
    del digests_a, digests_b
    edges = EdgeTally()
    tallies = {name: ValueTally(column) for name, column in shared.items()}
    row_bytes = np.maximum(reader_a.row_bytes, reader_b.row_bytes)
    row_count = np.maximum(a.row_count[:, pairs_a], b.row_count[:, pairs_b])
    for chosen in block_slices(row_bytes @ row_count):
        block_a = reader_a.block(pairs_a[chosen])
        block_b = reader_b.block(pairs_b[chosen])
        aligned = edges.add(block_a, block_b)
        for name, tally in tallies.items():
            tally.add(block_a, block_b, name, aligned)
    yield from edges.differences()
    for name, tally in tallies.items():
        yield from tally.differences(name)


def _column_differences(a: ComparedSide, b: ComparedSide) -> Iterator[Difference]:
    """Yield the columns of one side only, and those of different shape or dtype."""
    for name in dict.fromkeys([*a.columns, *b.columns]):
        in_a = a.columns.get(name)
        in_b = b.columns.get(name)
        if in_a is None or in_b is None:
            having, lacking = ("A", "B") if in_b is None else ("B", "A")
            numbers = {"only in": having}
            if name == EDGES:
                numbers[lacking] = "points without edges"
            yield Difference("column", name, numbers)
            continue
        if in_a.shape != in_b.shape:
            yield Difference("shape", name, {"shape": [in_a.shape, in_b.shape]})
        if in_a.dtype != in_b.dtype:
            yield Difference("dtype", name, {"dtype": [in_a.dtype.name, in_b.dtype.name]})


def _pair_graphs(
    digests_a: Array, digests_b: Array, records_a: I64, records_b: I64, tries: list[list[int]]
) -> tuple[I64, I64]:
    """Return the positions of paired graphs, ascending in A, by the rule of :func:`compare`."""
    left_a = np.arange(len(records_a))
    left_b = np.arange(len(records_b))
    pairs = []
    for left_out in [[], *tries]:
        compared = np.setdiff1d(np.arange(len(digests_a) - 1), left_out)
        at_a, at_b = match(
            digests_a[compared][:, left_a].sum(axis=0), digests_b[compared][:, left_b].sum(axis=0)
        )
        pairs.append((left_a[at_a], left_b[at_b]))
        left_a = np.delete(left_a, at_a)
        left_b = np.delete(left_b, at_b)

    # By position, if most of the rest has as many nodes there.
    at_a, at_b = match(records_a[left_a], records_b[left_b])
    at_a, at_b = left_a[at_a], left_b[at_b]
    is_pair = digests_a[0, at_a] == digests_b[0, at_b]
    if 2 * is_pair.sum() > max(len(left_a), len(left_b)):
        pairs.append((at_a[is_pair], at_b[is_pair]))
    paired_a, paired_b = map(np.concatenate, zip(*pairs, strict=True))
    ascending = np.argsort(paired_a)
    return paired_a[ascending], paired_b[ascending]


def _unpaired(only_in_a: I64, only_in_b: I64) -> Iterator[Difference]:
    """Yield a difference if there are graphs (n,) without a pair."""
    only = {"A": only_in_a, "B": only_in_b}
    numbers = {f"only in {side}": len(graphs) for side, graphs in only.items() if len(graphs)}
    examples = [
        {f"graph of {side}": graph}
        for side, graphs in only.items()
        for graph in graphs[:MAX_EXAMPLES].tolist()
    ]
    if numbers:
        yield Difference("graphs", "", numbers, examples)


def _order_difference(paired_a: I64, paired_b: I64) -> Iterator[Difference]:
    """Yield a difference if the pairs (n,) follow each other in another order."""
    order = np.argsort(paired_a)
    ordered_a = paired_a[order]
    ordered_b = paired_b[order]
    moved = np.flatnonzero(np.argsort(np.argsort(ordered_b)) != np.arange(len(ordered_b)))
    if len(moved):
        examples = [
            {"graph of A": int(ordered_a[pair]), "graph of B": int(ordered_b[pair])}
            for pair in moved[:MAX_EXAMPLES]
        ]
        yield Difference("order", "", {"graphs in another order": len(moved)}, examples)
