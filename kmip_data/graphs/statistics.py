"""Sizes, degrees and class counts of graphs, collected by unit and summed exactly."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord

MAX_BINS = 64  #: a histogram with more distinct values than this is binned

COUNTED = ("nodes", "edges", "in_degree", "out_degree")


class UnitStatistics:
    """Count nodes, edges, degrees and classes of the records of one unit.

    Everything is kept as exact integer counts, so the sum over units does not depend on how the
    records were dealt to them.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._labels = schema.labels if schema.labels and schema.labels.num_classes else None
        self._counts = {name: Counter[int]() for name in COUNTED}
        self._classes = np.zeros(
            self._labels.num_classes or 0 if self._labels else 0, dtype=np.int64
        )

    def add(self, record: GraphRecord) -> None:
        """Count one record."""
        counts = self._counts
        counts["nodes"][record.num_nodes] += 1
        counts["edges"][record.num_edges] += 1
        if record.neighbor is not None:
            n, k = record.neighbor.shape
            counts["in_degree"].update({k: n} if n else {})
            counts["out_degree"].update(_degrees(record.neighbor.reshape(-1), n))
        elif record.edge_index is not None:
            for row, name in zip(record.edge_index, ("out_degree", "in_degree"), strict=True):
                counts[name].update(_degrees(row, record.num_nodes))
        if self._labels is not None:
            self._classes += count_classes(record.columns[self._labels.key], self._labels)

    def to_json(self) -> dict[str, Any]:
        """Exact counts as sorted [[value, count], …], for the journal: the form that adds up without loss."""
        counts = {name: sorted(map(list, counts.items())) for name, counts in self._counts.items()}
        return {**counts, "classes": self._classes.tolist()}


def count_classes(values: Array, column: Column) -> I64:
    """Count how often each class occurs in rows of a label column.

    One label per row (``column.shape == ()``) counts every value; a row of several 0/1 targets counts the
    positive ones. Values that are not a class (missing labels) are left out. Returns int64 (num_classes,).
    """
    classes = column.num_classes or 0
    if column.shape:
        total: I64 = (np.asarray(values).reshape(-1, classes) > 0).sum(axis=0, dtype=np.int64)
        return total
    flat = np.asarray(values).reshape(-1)
    if flat.dtype.kind != "u":
        flat = flat[(flat >= 0) & (flat < classes)].astype(np.int64)
    return np.bincount(flat, minlength=classes)[:classes].astype(np.int64)


def summarise(units: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up :meth:`UnitStatistics.to_json` of all units for the card."""
    totals = {name: Counter[int]() for name in COUNTED}
    classes: list[int] = []
    for unit in units:
        for name, counter in totals.items():
            for value, count in unit[name]:
                counter[value] += count
        row = unit["classes"]
        classes = [a + b for a, b in zip(classes, row, strict=True)] if classes else list(row)
    return {
        "graphs": totals["nodes"].total(),
        **{
            name: sum(value * count for value, count in totals[name].items())
            for name in ("nodes", "edges")
        },
        **{f"{name}_per_graph": describe(totals[name], "linear") for name in ("nodes", "edges")},
        **{name: describe(totals[name], "log2") for name in ("in_degree", "out_degree")},
        "classes": classes,
    }


def describe(counts: Mapping[int, int], scale: Literal["linear", "log2"]) -> dict[str, Any]:
    """Least, mean and largest value and a histogram; ``{}`` where nothing was counted."""
    total = sum(counts.values())
    if not total:
        return {}
    mean = sum(value * count for value, count in counts.items()) / total
    return {
        "min": min(counts),
        "mean": mean,
        "max": max(counts),
        "histogram": histogram(counts, scale),
    }


def histogram(counts: Mapping[int, int], scale: Literal["linear", "log2"]) -> dict[str, list[int]]:
    """Bin counts of non-negative integers: ``low``, ``high`` (inclusive) and ``count`` of bins not empty.

    Up to :data:`MAX_BINS` distinct values keep a bin each. More are binned by equal widths
    (``linear``) or as 0, 1, 2–3, 4–7, … (``log2``, for the heavy tails of degrees).
    """
    values = sorted(counts)
    if len(values) <= MAX_BINS:
        bins = [(value, value) for value in values]
    elif scale == "linear":
        width = -(-(values[-1] - values[0] + 1) // MAX_BINS)
        bins = [(low, low + width - 1) for low in range(values[0], values[-1] + 1, width)]
    else:
        bins = [(0, 0), *((1 << i, (2 << i) - 1) for i in range(values[-1].bit_length()))]
    ends = [0, *(bisect_right(values, high) for _, high in bins)]
    found = [sum(counts[value] for value in values[start:stop]) for start, stop in pairwise(ends)]
    kept = [(*bounds, count) for bounds, count in zip(bins, found, strict=True) if count]
    return {name: [row[i] for row in kept] for i, name in enumerate(("low", "high", "count"))}


def _degrees(ends: Array, nodes: int) -> dict[int, int]:
    """Return the number of nodes by degree, the number of times a node occurs in ``ends``."""
    counts = np.bincount(np.bincount(ends, minlength=nodes))
    return {int(degree): int(counts[degree]) for degree in np.flatnonzero(counts)}
