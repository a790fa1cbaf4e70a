"""Exact statistics of graph sizes, degrees and classes, counted per unit and summed."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema

BLOCK = 2**24  #: edge ends counted at a time
MAX_BINS = 64  #: maximum number of histogram bins; up to this many distinct values keep a bin each

COUNTED_QUANTITIES = ("nodes", "edges", "in_degree", "out_degree")


class UnitStatistics:
    """Counts of nodes, edges, degrees and classes over the records of one unit.

    All counts are exact integers, so their sum does not depend on how records are divided into units.
    """

    def __init__(self, schema: Schema) -> None:
        labels = schema.y_column
        num_classes = (labels and labels.num_classes) or 0
        self._labels = labels if num_classes else None
        self._counts = {name: Counter[int]() for name in COUNTED_QUANTITIES}
        self._classes = np.zeros(num_classes, dtype=np.int64)

    def add(self, record: GraphRecord) -> None:
        """Count one record."""
        counts = self._counts
        nodes = record.num_nodes
        counts["nodes"][nodes] += 1
        counts["edges"][record.num_edges] += 1
        # In a neighbour table every node has k sources.
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
        """Return the exact counts as sorted [[value, count], …], which can be added without loss."""
        counts = {name: sorted(map(list, count.items())) for name, count in self._counts.items()}
        return {**counts, "classes": self._classes.tolist()}


def count_classes(values: Array, column: Column) -> I64:
    """Count how often each class occurs in the rows of a label column, int64 (num_classes,).

    With one label per row (``column.shape == ()``), count every label; with several 0/1 targets per
    row, count the positive ones. Missing labels are ignored.
    """
    classes = column.num_classes or 0
    if column.shape:
        positives: I64 = (np.asarray(values).reshape(-1, classes) > 0).sum(axis=0, dtype=np.int64)
        return positives
    # Missing labels are negative or NaN.
    labels = np.asarray(values).reshape(-1)
    labels = labels[(labels >= 0) & (labels < classes)].astype(np.int64)
    return np.bincount(labels, minlength=classes)


def sum_statistics(units: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum the :meth:`UnitStatistics.to_json` of all units for the card."""
    # Integer sums do not depend on the order of units, so neither does the card.
    totals = {name: Counter[int]() for name in COUNTED_QUANTITIES}
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
    """Return the sum of all counted values."""
    return sum(value * count for value, count in counts.items())


def summarise_counts(
    counts: Mapping[int, int], scale: Literal["linear", "log2"]
) -> dict[str, object]:
    """Return minimum, mean, maximum and a histogram; ``{}`` if nothing was counted."""
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
    """Return ``low``, ``high`` (inclusive) and ``count`` of the non-empty bins of non-negative integers.

    Up to :data:`MAX_BINS` distinct values keep a bin each. More values have bins of equal width
    (``linear``) or 0, 1, 2–3, 4–7, … (``log2``, for the heavy tails of degrees).
    """
    values = sorted(counts)
    if len(values) <= MAX_BINS:
        bins = [(value, value) for value in values]
    elif scale == "linear":
        width = -(-(values[-1] - values[0] + 1) // MAX_BINS)
        bins = [(low, low + width - 1) for low in range(values[0], values[-1] + 1, width)]
    else:
        bins = [(0, 0)]
        for i in range(values[-1].bit_length()):
            bins.append((1 << i, (2 << i) - 1))

    non_empty_bins: dict[str, list[int]] = {"low": [], "high": [], "count": []}
    start = 0
    for low, high in bins:
        stop = bisect_right(values, high)
        count = sum(map(counts.__getitem__, values[start:stop]))
        if count:
            non_empty_bins["low"].append(low)
            non_empty_bins["high"].append(high)
            non_empty_bins["count"].append(count)
        start = stop
    return non_empty_bins


def _degrees(ends: Array, nodes: int) -> I64:
    """Return how often each node occurs in ``ends``, (nodes,)."""
    degree = np.zeros(nodes, np.int64)
    # Count in blocks: numpy copies to eight bytes per end, too much memory for 10⁹ ends.
    for start in range(0, len(ends), BLOCK):
        degree += np.bincount(ends[start : start + BLOCK], minlength=nodes)
    return degree


def _count_values(counter: Counter[int], values: I64) -> None:
    """Add the counts of small non-negative values, such as node degrees, to ``counter``."""
    for value, count in enumerate(np.bincount(values).tolist()):
        if count:
            counter[value] += count
