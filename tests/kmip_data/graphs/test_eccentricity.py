"""Eccentricity (kernel: eccentricity_search) is networkx's, ball by ball, and the authors' on a real city."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.shared import shared_data

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.graphs import reference
from kmip_data.graphs.eccentricity import local_eccentricity
from kmip_data.runtime.parallel import set_num_threads


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 24))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=60))
    if draw(st.booleans()) and n > 3:  # a hub
        edges += [(0, v) for v in range(1, n)]
    length = st.one_of(st.just(0.0), st.floats(0, 1e6, width=32), st.sampled_from([1.0, 0.1, 1e-7]))
    lengths = draw(st.lists(length, min_size=len(edges), max_size=len(edges)))
    return n, np.array(edges, np.int64).reshape(-1, 2).T, np.array(lengths, np.float64)


@settings(max_examples=150, deadline=None)
@given(graphs(), st.integers(0, 6), st.booleans())
def test_equal_to_networkx(graph, hops: int, directed: bool) -> None:
    n, edges, lengths = graph
    eccentricities = local_eccentricity(edges, lengths, n, hops, directed=directed, quiet=True)
    assert np.array_equal(
        eccentricities, reference.local_eccentricity(edges, lengths, n, hops, directed=directed)
    )


def road_like(side: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """A grid with a third of its edges taken away, both directions, sorted."""
    rng = np.random.default_rng(seed)
    number = rng.permutation(side * side).reshape(side, side)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in pairs], axis=1)
    edges = edges[:, rng.random(edges.shape[1]) < 0.67]
    lengths = rng.gamma(2, 40, edges.shape[1]).astype(np.float32)
    both, lengths = np.concatenate([edges, edges[::-1]], axis=1), np.concatenate([lengths, lengths])
    order = np.lexsort((both[1], both[0]))
    return both[:, order], lengths[order], side * side


def test_eccentricity_of_many_groups_equals_a_slow_search() -> None:
    for hops in [0, 1, 5, 300]:
        edges, lengths, n = road_like(14, hops)
        eccentricities = local_eccentricity(edges, lengths, n, hops, quiet=True)
        assert np.array_equal(
            eccentricities, reference.local_eccentricity(edges, lengths, n, hops)
        ), hops


def test_eccentricity_of_a_long_path_is_exact() -> None:
    n = 3_000
    edges = np.stack([np.arange(n - 1), np.arange(1, n)])
    eccentricities = local_eccentricity(edges, np.ones(n - 1), n, 16, quiet=True)
    assert eccentricities[0] == eccentricities[1500] == eccentricities[-1] == 16
    assert local_eccentricity(edges, np.ones(n - 1), n, 5_000, quiet=True)[1000] == 1999


def test_order_direction_and_threads_do_not_matter() -> None:
    edges, lengths, n = road_like(40, 1)
    expected = local_eccentricity(edges, lengths, n, quiet=True)
    once = edges[0] < edges[1]
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(int(once.sum()))
    again = local_eccentricity(
        edges[::-1][:, once][:, shuffled], lengths[once][shuffled], n, quiet=True
    )
    assert np.array_equal(again, expected)
    renamed = rng.permutation(n)
    assert np.array_equal(
        local_eccentricity(renamed[edges], lengths, n, quiet=True)[renamed], expected
    )
    try:
        for count in (1, 3):
            set_num_threads(count)
            assert np.array_equal(local_eccentricity(edges, lengths, n, quiet=True), expected)
    finally:
        set_num_threads(None)


def test_eccentricity_equals_the_authors_to_the_last_bit() -> None:
    """Huangpu, made when the graphs were directed: all 5,268 to the last bit."""
    folder = shared_data("city_networks_huangpu")
    load = lambda name: torch.load(folder / f"{name}.pt", weights_only=True)
    edges, lengths = load("edge_indices").numpy(), load("edge_features")[:, 0].numpy()
    eccentricities = local_eccentricity(edges, lengths, 5_268, directed=True, quiet=True)
    assert np.array_equal(eccentricities, load("16-hop_eccentricities").numpy())


def test_wrong_edges_lengths_and_hops_are_refused() -> None:
    for edges, lengths, n, hops in (
        ([[0], [1]], [1.0, 2.0], 2, 1),
        ([[0.5], [1]], [1.0], 2, 1),
        ([0, 1], [1.0], 2, 1),
        ([[0], [1]], [1.0], 2, -1),
        ([[0], [1]], [1.0], -2, 1),
    ):
        with pytest.raises(UsageError):
            local_eccentricity(edges, lengths, n, hops)
    for edges, length in (
        ([[0], [2]], 1.0),
        ([[-1], [1]], 1.0),
        ([[0], [1]], -1.0),
        ([[0], [1]], np.nan),
    ):
        with pytest.raises(DamagedInput):
            local_eccentricity(edges, [length], 2)
    assert local_eccentricity(np.empty((2, 0), int), [], 0).shape == (0,)
    assert local_eccentricity(np.empty((2, 0), int), [], 2).tolist() == [0, 0]
    assert local_eccentricity([[0, 1, 1], [1, 0, 1]], [1.0, 2.0, 9.0], 2).tolist() == [2, 2]
