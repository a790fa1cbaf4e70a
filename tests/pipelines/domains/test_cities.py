"""Steps of all cities: streets both ways, labels, sinusoids, splits.

They are compared with PyG and direct formulas.
"""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raises import raises
from torch_geometric.utils import remove_self_loops, to_undirected

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.format.split_files import NO_PART
from kmip_data.graphs.city_columns import (
    coordinate_encoding_names,
    coordinate_range,
    encode_coordinates,
)
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import RecordTable, Unit, load_pipeline
from kmip_data.pipelines.domains.cities import (
    FEATURE_NAMES,
    CityArrays,
    check_city,
    mean_over_incoming_edges,
    quantile_labels,
    store_city,
    street_weights,
    symmetrise_streets,
)
from kmip_data.pipelines.domains.city_splits import (
    CitySplitParams,
    city_split,
    drop_buffer,
    random_part_codes,
    spatial_part_codes,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.data())
def test_symmetrised_edges_equal_pytorch_geometric(n: int, data) -> None:
    node = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(node, node), max_size=30))
    index = np.array(edges, np.int64).reshape(-1, 2).T
    features = np.arange(1, 2 * len(edges) + 1, dtype=np.float32).reshape(-1, 2)  # sums are exact
    symmetric, mean = symmetrise_streets(index, features, n)
    expected, theirs = remove_self_loops(
        *to_undirected(
            torch.from_numpy(index), torch.from_numpy(features), num_nodes=n, reduce="mean"
        )
    )
    assert np.array_equal(symmetric, expected.numpy())
    np.testing.assert_allclose(mean, theirs.numpy(), rtol=2e-7)
    again, same = symmetrise_streets(symmetric, mean, n)
    assert np.array_equal(again, symmetric)
    assert np.array_equal(same, mean)
    slow = [
        mean[symmetric[1] == v].mean(0) if (symmetric[1] == v).any() else np.zeros(2)
        for v in range(n)
    ]
    means = [mean_over_incoming_edges(symmetric, column, n) for column in mean.T]
    np.testing.assert_allclose(np.stack(means, axis=1), slow, rtol=1e-6)


def test_eccentricity_is_cut_into_equal_classes() -> None:
    values = np.array([5, 1, 3, 3, 2, 9, 8, 7, 6, 4, 0], np.float32)
    assert quantile_labels(values, 3).tolist() == [1, 0, 0, 1, 0, 2, 2, 2, 1, 1, 0]
    with raises(DamagedInput, naming=15):
        quantile_labels(np.arange(15, dtype=np.float32), 10)
    assert np.bincount(quantile_labels(np.arange(19, dtype=np.float32), 10)).tolist() == [2] * 9 + [
        1
    ]


def test_coordinates_are_encoded_by_sinusoids_of_their_range() -> None:
    rng = np.random.default_rng(0)
    places = np.column_stack([rng.uniform(-0.5, 0.3, 40), rng.uniform(51.2, 51.7, 40)]).astype(
        np.float32
    )
    bounds = coordinate_range(places[:15])
    sinusoids = encode_coordinates(places, bounds, 3)
    assert sinusoids.dtype == np.float32
    names = coordinate_encoding_names(3)
    for column, name in enumerate(names):
        wave, rest = name.split(" ")
        factor, axis = rest.split("·")
        a = ["longitude", "latitude"].index(axis)
        low, high = float(bounds[a, 0]), float(bounds[a, 1])
        for i in range(40):
            v = ((float(places[i, a]) - low) / (high - low) - 0.5) * 2 * math.pi * 0.9
            assert sinusoids[i, column] == np.float32(getattr(math, wave)(int(factor) * v))
    assert np.isfinite(encode_coordinates(places[:1], coordinate_range(places[:1]))).all()


def test_split_codes_are_those_of_the_published_paris() -> None:
    codes = random_part_codes(114_127)
    head = {
        part: set(np.flatnonzero(codes[:20] == code)) for part, code in (("train", 0), ("val", 1))
    }
    assert head == {"train": {3, 6, 14, 17}, "val": {9, 12}}  # of the published Paris
    assert np.bincount(codes).tolist() == [11_412, 11_412, 91_303]
    assert np.bincount(random_part_codes(5)).tolist() == [1, 1, 3]


def test_too_large_blocks_are_refused() -> None:
    with raises(UsageError, naming=100):
        spatial_part_codes(np.zeros((50, 2), np.float32), 0, 100.0)
    town = np.random.default_rng(1).uniform(0, 0.01, (500, 2)).astype(np.float32)  # 1,100 m
    with raises(UsageError, naming=1000):
        spatial_part_codes(town, 0, 1_000.0)
    assert set(spatial_part_codes(town, 0, 250.0).tolist()) == {0, 1, 2}


@settings(max_examples=150, deadline=None)
@given(st.integers(3, 14), st.integers(0, 5), st.data())
def test_a_buffer_separates_the_parts(n: int, hops: int, data) -> None:
    """Against breadth-first search in NetworkX, node by node; and no node is dropped in vain."""
    node = st.integers(0, n - 1)
    streets = data.draw(st.lists(st.tuples(node, node), max_size=2 * n))
    blocks = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.uint8)
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(streets)
    pairs = [pair for a, b in graph.edges for pair in ((a, b), (b, a))]
    kept = drop_buffer(blocks, np.array(pairs, np.int64).reshape(-1, 2).T, hops)
    balls = [nx.single_source_shortest_path_length(graph, v, cutoff=hops) for v in range(n)]
    around = [{int(kept[u]) for u in ball} - {NO_PART} for ball in balls]
    for v in range(n):
        if kept[v] == NO_PART:
            assert blocks[v] != 0, "train is whole"
            assert min(around[v], default=9) < blocks[v], (
                "what is dropped is near to an earlier part"
            )
        else:
            assert kept[v] == blocks[v]
            assert around[v] == {kept[v]}


def grid(side: int, metres: float) -> RecordTable:
    """``side`` × ``side`` crossings near the equator, each joined to its four neighbours."""
    number = np.arange(side * side).reshape(side, side)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    there = np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in pairs], axis=1)
    columns = {
        "node/x": np.stack(np.divmod(number.ravel(), side), 1).astype(np.float32)
        * (metres / 111_195),
        "edge/index": np.concatenate([there, there[::-1]], axis=1),
    }
    sizes = np.array([side * side]), np.array([2 * there.shape[1]])
    return RecordTable(["town"], *sizes, np.zeros((1, 0), np.int64), None, columns.__getitem__)


@pytest.mark.parametrize(("metres", "side"), [(12, "150m"), (100, "1000m")])
def test_blocks_fit_the_city(metres: float, side: str) -> None:
    """Towns of 600 m and 6 km; train and val are near a tenth in each."""
    town = grid(61, metres)
    split = city_split(town, CitySplitParams(split_rule="spatial"))
    assert split.name == f"spatial-{side}-buffer1-seed0"
    train, val, test = np.bincount(split.part_codes, minlength=256)[:3] / 61**2
    assert 0.1 <= train <= 0.15
    assert 0.05 < val <= 0.15
    assert test > 0.5
    dropped = np.count_nonzero(split.part_codes == NO_PART)
    assert (
        f"; {dropped:,} of 3,721 intersections are in no part: within 1 hop of another part"
        in split.note
    )
    with raises(UsageError, naming=60):
        city_split(town, CitySplitParams(split_rule="spatial", buffer=60))
    touching = city_split(town, CitySplitParams(split_rule="spatial", buffer=0))
    assert touching.name == f"spatial-{side}-seed0"
    assert "in no part" not in touching.note
    assert not (touching.part_codes == NO_PART).any()
    assert CitySplitParams().identity() == {"split_rule": "random", "split_seed": 0}


def tensors(**changes) -> CityArrays:
    n = 30
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    index, street = symmetrise_streets(ring, np.tile(np.float32([50.0, 36.0]), (n, 1)), n)
    values = {
        "features": np.ones((n, len(FEATURE_NAMES)), np.float32),
        "edge_index": index,
        "edge_length": street[:, 0],
        "edge_speed": street[:, 1],
    }
    return CityArrays(**{**values, **changes})


def test_record_follows_the_schema(tmp_path) -> None:
    pipeline = load_pipeline(load_manifest("helsinki"))
    params = pipeline.Params(hops=3, classes=3, weight="travel_time", bands=2)
    schema = pipeline.schema(params)
    prepared = store_city(tensors(osm_ids=np.arange(30)), tmp_path)
    (record,) = pipeline.records(prepared, Unit(0, "ring", {}), params)
    assert set(record.columns) == {column.key for column in schema.columns}
    for column in schema.columns:
        assert record.columns[column.key].dtype == column.stored
        assert record.columns[column.key].shape[1:] == column.shape
        assert not column.fields or len(column.fields) == column.shape[0]
    assert schema.column("node/eccentricity").unit == "s"
    assert set(record.columns["node/eccentricity"].tolist()) == {15.0}  # 3 · 50 m at 10 m/s
    assert pipeline.folder_name_pieces(params) == ["hops3", "classes3", "travel-time", "bands2"]
    assert (
        pipeline.folder_name_pieces(pipeline.Params(hops=16, classes=10, weight="length", bands=8))
        == []
    )
    assert pipeline.Params().hops == 16
    with raises(DamagedInput, steps=Setting(weight="length")):
        street_weights(tensors(edge_speed=None), "travel_time")


FAULTS = [
    ({"features": np.ones((30, 36), np.float32)}, "(30, 36)"),
    ({"features": np.full((30, 37), np.nan, np.float32)}, np.nan),
    ({"features": np.full((30, 37), 91.0, np.float32)}, 91.0),
    ({"edge_length": np.full(60, -1.0, np.float32)}, -1.0),
    ({"edge_index": np.full((2, 60), 30)}, 30),
    ({"edge_index": np.zeros((2, 0), int), "edge_length": np.zeros(0, np.float32)}, ()),
]


def test_impossible_cities_are_refused() -> None:
    for changes, value in FAULTS:
        with raises(DamagedInput, naming=value):
            check_city(tensors(**changes), "x")
