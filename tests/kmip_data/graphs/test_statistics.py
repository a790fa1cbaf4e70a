"""Statistics add up exactly however records are dealt, and agree with plain counting."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builds.records import column_of

from kmip_data.arrays import Integers
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.graphs.statistics import (
    MAX_BINS,
    UnitStatistics,
    count_classes,
    histogram,
    sum_statistics,
)

LABEL = column_of("node/y", "uint8", "int64", num_classes=4)


def _records(seed: int, count: int, *, k: int | None) -> list[GraphRecord]:
    rng = np.random.Generator(np.random.PCG64(seed))
    records = []
    for i in range(count):
        n = int(rng.integers(0, 9))
        shape = (n, k) if k else (2, int(rng.integers(0, 20)) if n else 0)
        ends = rng.integers(0, max(n, 1), shape).astype(np.uint16)
        labels = rng.integers(0, 4, n).astype(np.uint8)
        edges: dict[str, Integers] = {"neighbor" if k else "edge_index": ends}
        records.append(GraphRecord(key=str(i), num_nodes=n, columns={"node/y": labels}, **edges))
    return records


def _collect(records: list[GraphRecord], schema: Schema) -> dict[str, Any]:
    statistics = UnitStatistics(schema)
    for record in records:
        statistics.add(record)
    return json.loads(json.dumps(statistics.to_json()))


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    k=st.sampled_from([None, 1, 3]),
)
def test_statistics_do_not_depend_on_the_partition(
    seed: int, cuts: list[int], k: int | None
) -> None:
    schema = Schema(columns=(LABEL,), edges="index" if k is None else "neighbor", k=k)
    records = _records(seed, 12, k=k)
    edges = [0, *sorted(cuts), 12]
    units = [_collect(records[a:b], schema) for a, b in pairwise(edges)]
    summary = sum_statistics(units)
    degrees: dict[str, Counter[int]] = {"in_degree": Counter(), "out_degree": Counter()}
    classes: Counter[int] = Counter()
    for record in records:
        if record.neighbor is not None:
            pairs = [(int(s), t) for t, row in enumerate(record.neighbor) for s in row]
        else:
            pairs = record.edge_index.T.tolist()
        for node in range(record.num_nodes):
            degrees["out_degree"][sum(s == node for s, _ in pairs)] += 1
            degrees["in_degree"][sum(t == node for _, t in pairs)] += 1
        classes.update(record.columns["node/y"].tolist())
    assert summary["graphs"] == 12
    assert summary["nodes"] == sum(record.num_nodes for record in records)
    assert summary["edges"] == sum(record.num_edges for record in records)
    assert summary["classes"] == [classes[label] for label in range(4)]
    for name, expected in degrees.items():
        if expected:
            bins = summary[name]["histogram"]
            assert dict(zip(bins["low"], bins["count"], strict=True)) == dict(expected)
            assert bins["low"] == bins["high"]
            assert (summary[name]["min"], summary[name]["max"]) == (min(expected), max(expected))
            mean = sum(v * c for v, c in expected.items()) / expected.total()
            assert summary[name]["mean"] == pytest.approx(mean)


def test_labels_of_graphs_and_of_several_targets() -> None:
    several = np.array([[1, 0, np.nan], [1, 1, 0]], np.float32)
    for stored, shape, values, wanted in (
        ("uint8", (), np.uint8(2), [0, 0, 1]),
        ("float32", (3,), several, [2, 1, 0]),
        ("int8", (), np.array([-1, 0, 2, 2, 7], np.int8), [1, 0, 2]),
        ("uint8", (), np.array([0, 2, 200], np.uint8), [1, 0, 1]),
    ):
        column = column_of("graph/y", stored, shape=shape, num_classes=3)
        assert count_classes(values, column).tolist() == wanted


def test_a_schema_without_labels_or_edges() -> None:
    schema = Schema(columns=(), edges="none")
    summary = sum_statistics([_collect([GraphRecord(key="a", num_nodes=3)], schema)])
    assert summary["classes"] == []
    assert summary["in_degree"] == {}
    assert summary["nodes_per_graph"]["max"] == 3
    assert sum_statistics([])["graphs"] == 0


@settings(max_examples=100, deadline=None)
@given(
    counts=st.dictionaries(st.integers(0, 5000), st.integers(1, 50), min_size=1, max_size=200),
    scale=st.sampled_from(["linear", "log2"]),
)
def test_bins_are_in_order_and_hold_every_count_once(counts: dict[int, int], scale: str) -> None:
    bins = histogram(counts, scale)
    assert sum(bins["count"]) == sum(counts.values())
    assert len(bins["low"]) <= MAX_BINS
    last = -1
    for low, high, count in zip(bins["low"], bins["high"], bins["count"], strict=True):
        assert last < low <= high
        assert count == sum(c for v, c in counts.items() if low <= v <= high) > 0
        last = high
