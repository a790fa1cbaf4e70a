"""Sizes, degrees and class counts of graphs, collected by unit and summed exactly."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord

BLOCK = 2**24  #: ends that are counted at a time
MAX_BINS = 64  #: a histogram with more distinct values than this is binned

MEASURED = ("nodes", "edges", "in_degree", "out_degree")


class UnitStatistics:
    """Count nodes, edges, degrees and classes of the records of one unit.

    Everything is kept as exact integer counts, so the sum over units does not depend on how the
    records were assigned to them.
    """

    def __init__(self, schema: Schema) -> None:
        labels = schema.label_column
        num_classes = (labels and labels.num_classes) or 0
        self._labels = labels if num_classes else None
        self._counts = {name: Counter[int]() for name in MEASURED}
        self._classes = np.zeros(num_classes, dtype=np.int64)

    def add(self, record: GraphRecord) -> None:
        """Count one record."""
        counts = self._counts
        nodes = record.num_nodes
        counts["nodes"][nodes] += 1
        counts["edges"][record.num_edges] += 1
        # A neighbour table has k sources for each node by construction.
        if record.neighbor is not None:
            table = np.asarray(record.neighbor)
            _count_values(counts["in_degree"], np.full(nodes, table.shape[1]))
            _count_values(counts["out_degree"], _degrees(table.reshape(-1), nodes))
        elif record.edge_index is not None:
            source, target = np.asarray(record.edge_index)
            _count_values(counts["in_degree"], _degrees(target, nodes))
            _count_values(counts["out_degree"], _degrees(source, nodes))
        if self._labels is not None:
            self._classes += count_classes(record.columns[self._labels.key], self._labels)

    def to_json(self) -> dict[str, object]:
        """Exact counts as sorted [[value, count], …], the form that adds up without loss."""
        counts = {name: sorted(map(list, count.items())) for name, count in self._counts.items()}
        return {**counts, "classes": self._classes.tolist()}


def count_classes(values: Array, column: Column) -> I64:
    """Count how often each class occurs in rows of a label column.

    One label per row (``column.shape == ()``) counts every value; a row of several 0/1 targets
    counts the positive ones. Values that are not a class (missing labels) are left out. Returns
    int64 (num_classes,).
    """
    classes = column.num_classes or 0
    if column.shape:
        total: I64 = (np.asarray(values).reshape(-1, classes) > 0).sum(axis=0, dtype=np.int64)
        return total
    # Missing labels are negative or NaN: neither is a class.
    flat = np.asarray(values).reshape(-1)
    flat = flat[(flat >= 0) & (flat < classes)].astype(np.int64)
    return np.bincount(flat, minlength=classes)


def sum_statistics(units: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up :meth:`UnitStatistics.to_json` of all units for the card."""
    # Integers add up in any order to the same numbers: jobs change no card.
    totals = {name: Counter[int]() for name in MEASURED}
    classes = []
    for unit in units:
        for name, counter in totals.items():
            for value, count in unit[name]:
                counter[value] += count
        classes.append(unit["classes"])

    return {
        "graphs": totals["nodes"].total(),
        "nodes": _sum_of_values(totals["nodes"]),
        "edges": _sum_of_values(totals["edges"]),
        "nodes_per_graph": summarise_counts(totals["nodes"], "linear"),
        "edges_per_graph": summarise_counts(totals["edges"], "linear"),
        "in_degree": summarise_counts(totals["in_degree"], "log2"),
        "out_degree": summarise_counts(totals["out_degree"], "log2"),
        "classes": list(map(sum, zip(*classes, strict=True))),
    }


def _sum_of_values(counts: Mapping[int, int]) -> int:
    """Return the sum of all values that were counted."""
    return sum(value * count for value, count in counts.items())


def summarise_counts(
    counts: Mapping[int, int], scale: Literal["linear", "log2"]
) -> dict[str, object]:
    """Least, mean and largest value and a histogram; ``{}`` where nothing was counted."""
    total = sum(counts.values())
    if not total:
        return {}
    return {
        "min": min(counts),
        "mean": _sum_of_values(counts) / total,
        "max": max(counts),
        "histogram": histogram(counts, scale),
    }


def histogram(counts: Mapping[int, int], scale: Literal["linear", "log2"]) -> dict[str, list[int]]:
    """Bin counts of non-negative integers: ``low``, ``high`` (inclusive) and ``count`` of bins not empty.

    Up to :data:`MAX_BINS` distinct values keep a bin each. More are binned by equal widths
    (``linear``) or as 0, 1, 2–3, 4–7, … (``log2``, for the heavy tails of degrees).
    """
    # Few distinct values show themselves; more are binned.
    values = sorted(counts)
    if len(values) <= MAX_BINS:
        bins = [(value, value) for value in values]
    elif scale == "linear":
        width = -(-(values[-1] - values[0] + 1) // MAX_BINS)
        bins = [(low, low + width - 1) for low in range(values[0], values[-1] + 1, width)]
    else:
        # Degrees have heavy tails: bins that double reach them in a few rows.
        bins = [(0, 0)]
        for i in range(values[-1].bit_length()):
            bins.append((1 << i, (2 << i) - 1))

    binned: dict[str, list[int]] = {"low": [], "high": [], "count": []}
    start = 0
    for low, high in bins:
        stop = bisect_right(values, high)
        count = sum(map(counts.__getitem__, values[start:stop]))
        if count:
            binned["low"].append(low)
            binned["high"].append(high)
            binned["count"].append(count)
        start = stop
    return binned


def _degrees(ends: Array, nodes: int) -> I64:
    """Return how often each node is one of the ``ends``, (nodes,)."""
    degree = np.zeros(nodes, np.int64)
    # In blocks: numpy counts in a copy of eight bytes an end, too much memory for 10⁹ of them.
    for start in range(0, len(ends), BLOCK):
        degree += np.bincount(ends[start : start + BLOCK], minlength=nodes)
    return degree


def _count_values(counter: Counter[int], values: I64) -> None:
    """Count small values, such as the degrees of nodes."""
    for value, count in enumerate(np.bincount(values).tolist()):
        if count:
            counter[value] += count
