"""Expanders: permutations whose second eigenvalue agrees with dense linear algebra, repeatable by record."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.builds.written import write_build

import kmip_data
from kmip_data.builds.home import Build
from kmip_data.errors import UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.graphs.encoding import ConcatenatedGraphs, parse_encoding
from kmip_data.graphs.encodings import expander as expanders
from kmip_data.graphs.encodings.expander import Expander, expander_targets, second_eigenvalue
from kmip_data.pipelines.engine.encode import encode_build


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def slow_eigenvalue(targets: np.ndarray) -> float:
    """Second eigenvalue of upstream's Laplacian, whose diagonal is the row sum with loops."""
    nodes = len(targets)
    adjacency = np.zeros((nodes, nodes))
    for i, row in enumerate(targets):
        for j in row:
            adjacency[i, j] += 1
            adjacency[j, i] += 1
    laplacian = -adjacency
    np.fill_diagonal(laplacian, adjacency.sum(0))
    return float(np.linalg.eigvalsh(laplacian)[1])


def test_columns_are_permutations_of_a_good_expander() -> None:
    for nodes, degree in [(11, 3), (64, 3), (500, 3), (80, 5), (479, 11), (300, 1)]:
        targets = expander_targets(nodes, degree, generator())
        assert (targets.dtype, targets.shape) == (np.int32, (nodes, degree))
        assert (np.sort(targets, axis=0) == np.arange(nodes)[:, None]).all()
        eigenvalue = slow_eigenvalue(targets)
        assert second_eigenvalue(targets) == pytest.approx(eigenvalue, abs=0.01)
        assert eigenvalue >= 2 * degree - 2 * math.sqrt(2 * degree - 1) - 0.11


def test_small_graphs_are_complete_and_have_fewer_permutations_than_nodes() -> None:
    for nodes in (0, 1, 2, 10):
        targets = expander_targets(nodes, 3, generator())
        assert targets.shape == (nodes, 3)
        assert (targets == -1).all()
    targets = expander_targets(11, 13, generator())
    assert (targets[:, 10:] == -1).all()
    assert (np.sort(targets[:, :10], axis=0) == np.arange(11)[:, None]).all()


def test_the_best_of_a_hundred_is_kept_where_none_is_good_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [0.5, 0.9, 0.7, *[0.9] * 97, 5.0]
    drawn = []

    def bad(targets: np.ndarray) -> float:
        drawn.append(targets.copy())
        return values[len(drawn) - 1]

    monkeypatch.setattr(expanders, "second_eigenvalue", bad)
    best = expander_targets(20, 3, generator())
    assert len(drawn) == 100
    np.testing.assert_array_equal(best, drawn[1])


def test_expanders_are_parsed_by_degree_and_seed() -> None:
    with pytest.raises(UsageError):
        expander_targets(20, 0, generator())
    assert parse_encoding("expander3") == parse_encoding("expander3-seed0") == Expander(3)
    assert parse_encoding("expander3-seed7") == Expander(3, 7) != Expander(3)
    assert Expander(3, 7).name == "expander3-seed7"
    for name in (
        "expander",
        *(f"expander{end}" for end in ("0", "3-seed", "3-seed01", "3-seed-1", "3seed1")),
    ):
        with pytest.raises(UsageError):
            parse_encoding(name)


SIZES = (30, 4, 12, 30, 11)


def some_graphs(folder: Path, per_shard: int = 7) -> Build:
    """Graphs of few nodes; two of them have equal sizes."""
    no_edges = np.zeros((2, 0), np.uint16)
    columns = [{"node/x": np.zeros((n, 1), np.float32)} for n in SIZES]
    records = [
        GraphRecord(key=f"graph {g}", num_nodes=n, columns=columns[g], edge_index=no_edges)
        for g, n in enumerate(SIZES)
    ]
    x = Column(key="node/x", attribute="x", stored="float32", presented="float32", shape=(1,))
    return write_build(folder, records, Schema(columns=(x,), edges="index"), per_shard=per_shard)


def test_expanders_depend_on_the_record_and_not_its_position(tmp_path: Path) -> None:
    by_layout = {}
    for per_shard, jobs, seed in ((7, 1, 1), (2, 2, 1), (7, 1, 5)):
        build = some_graphs(tmp_path / f"{per_shard} {seed}", per_shard)
        encode_build(build, [Expander(3, seed)], jobs=jobs, quiet=True)
        dataset = kmip_data.open(build.path, columns=[f"expander3-seed{seed}"])
        by_layout[per_shard, seed] = [graph.expander.numpy() for graph in dataset]
    for one, other in zip(by_layout[7, 1], by_layout[2, 1], strict=True):
        np.testing.assert_array_equal(one, other)
    first, *_, same_size, _ = by_layout[7, 1]
    assert (first != same_size).any()
    assert (first != by_layout[7, 5][0]).any()
    pointers = np.cumsum([0, *reversed(SIZES)])
    keys = [f"graph {g}" for g in reversed(range(len(SIZES)))]
    turned = ConcatenatedGraphs(pointers, np.zeros_like(pointers), np.zeros((2, 0), np.int64), keys)
    again = Expander(3, 1).compute(turned, lambda: None)["node/expander"]
    np.testing.assert_array_equal(again, np.concatenate(by_layout[7, 1][::-1]))
