"""k-NN (kernel: knn_search) equals brute force on what ties, coincides, overflows or underflows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracles.knn_oracle import torch_cluster_edges

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.graphs.knn import knn_edges, knn_table
from kmip_data.graphs.reference import knn_table as exact_table
from kmip_data.graphs.reference import points_by_distance
from kmip_data.runtime.parallel import set_num_threads

N = 400


def _clouds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    uniform = rng.random((N, 3))
    lattice = np.stack(np.meshgrid(*[np.arange(7)] * 3), -1).reshape(-1, 3)
    line = np.arange(N)[:, None] * [1, 0, 0]
    distinct = rng.random((N * 3 // 4, 3))
    swapped = rng.random((60, 3))
    return {
        "uniform": uniform,
        "room": np.where(rng.random((N, 3)) < 0.5, np.round(uniform), uniform),
        "like s3dis blocks": np.concatenate(
            [distinct, distinct[rng.integers(len(distinct), size=N // 4)]]
        ),
        "lattice": lattice,
        "line": line,
        "diagonal": np.arange(N)[:, None] * [0.1, 0.1, 0.1],
        "all equal": np.full((N, 3), 0.3),
        "signed zeros": np.where(rng.random((N, 3)) < 0.5, 0.0, -0.0),
        "half equal": np.concatenate([np.full((N // 2, 3), 0.5), uniform[: N // 2]]),
        "40 copies each": rng.permutation(np.repeat(rng.random((10, 3)), 40, axis=0)),
        "overflow to infinity": (uniform - 0.5) * 6e38,
        "squares underflow": uniform * 1e-23,
        "mixed scales": rng.normal(size=(N, 3)) * 10.0 ** rng.integers(-30, 30, (N, 1)),
        "far clusters": rng.integers(0, 4, (N, 1)) * 1000 + rng.normal(size=(N, 3)) * 1e-3,
        # Equal distances from the origin, whichever axis comes first, unless a product and a sum
        # are fused.
        "swapped axes": np.concatenate([np.zeros((1, 3)), swapped, swapped[:, [1, 0, 2]]]),
    }


CLOUDS = {name: cloud.astype(np.float32) for name, cloud in _clouds().items()}


@pytest.mark.parametrize("k", [1, 8, 32])
@pytest.mark.parametrize("cloud", CLOUDS.values(), ids=CLOUDS)
def test_both_rules_equal_brute_force(k, cloud):
    table = knn_table(cloud, k)
    edges = knn_edges(cloud, k)
    wanted = exact_table(cloud, k)
    assert (table.dtype, edges.dtype) == (np.int32, np.int64)
    assert np.array_equal(table, wanted)
    assert np.array_equal(edges, [wanted.ravel(), np.repeat(np.arange(len(cloud)), k)])
    other = knn_edges(cloud, k, rule="torch-cluster")
    assert np.array_equal(other, torch_cluster_edges(cloud, k))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_neighbours_of_any_small_cloud_equal_a_full_comparison(data):
    n = data.draw(st.integers(2, 90))
    values = st.sampled_from([0.0, -0.0, 0.1, 0.2, 1.0, 1e-20, 1e-38, 3e38, -3e38, 7.5])
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
    source = data.draw(st.sampled_from([values, numbers]))
    cloud = np.array(
        data.draw(st.lists(source, min_size=3 * n, max_size=3 * n)), np.float32
    ).reshape(n, 3)
    k = data.draw(st.integers(1, n - 1))
    assert np.array_equal(knn_table(cloud, k), exact_table(cloud, k))
    assert np.array_equal(knn_edges(cloud, k, rule="torch-cluster"), torch_cluster_edges(cloud, k))


def test_large_clouds_with_many_coincident_points():
    """Half of the points in one place: quadratic work would take minutes."""
    rng = np.random.default_rng(4)
    cloud = rng.random((100_000, 3), dtype=np.float32) + 1
    cloud[::2] = 0
    table = knn_table(cloud, 8)
    coincident = np.arange(0, 18, 2)
    assert np.array_equal(table[99_998], coincident[:8])
    assert np.array_equal(table[4], coincident[coincident != 4])
    for i in rng.integers(50_000, size=20) * 2 + 1:
        order = points_by_distance(cloud, int(i))
        assert np.array_equal(table[i], order[order != i][:8])


def test_a_block_of_s3dis_size_on_any_number_of_threads():
    rng = np.random.default_rng(3)
    distinct = np.round(rng.random((3000, 3)) * [1, 1, 3], 3)
    cloud = np.concatenate([distinct, distinct[rng.integers(3000, size=1096)]]).astype(np.float32)
    wanted = exact_table(cloud, 32)
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            assert np.array_equal(knn_table(cloud, 32), wanted)
    finally:
        set_num_threads(None)


def test_neighbours_do_not_depend_on_memory_order():
    cloud = CLOUDS["room"]
    features = np.concatenate([cloud, cloud], axis=1)
    expected = knn_table(cloud, 8)
    before = features.copy()
    assert np.array_equal(knn_table(features[:, 3:], 8), expected)
    assert np.array_equal(knn_table(np.asfortranarray(cloud), 8), expected)
    assert np.array_equal(features, before)


def test_graphs_with_few_nodes_have_all_neighbours():
    for n in [0, 1, 2, 5, 32, 33, 34]:
        cloud = np.random.default_rng(n).random((n, 3), dtype=np.float32)
        edges = knn_edges(cloud, 32)
        assert edges.shape == (2, n * min(32, max(n - 1, 0)))
        assert np.array_equal(
            knn_edges(cloud, 32, rule="torch-cluster"), torch_cluster_edges(cloud, 32)
        )


def test_invalid_neighbour_requests_are_refused():
    zeros, nowhere = np.zeros((5, 3), np.float32), np.zeros((9, 3), np.float32)
    nowhere[7, 1] = np.nan
    for cloud, k in (
        *((cloud, 2) for cloud in (zeros.astype(float), zeros[:, :2], zeros.ravel())),
        *((zeros, 0), (zeros, 5), (zeros[:1], 1)),
    ):
        with pytest.raises(UsageError):
            knn_table(cloud, k)
    for function in (knn_table, knn_edges):
        with pytest.raises(DamagedInput):
            function(nowhere, 2)
    with pytest.raises(UsageError):
        knn_edges(zeros, 0)
