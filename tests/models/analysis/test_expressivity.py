"""Theorem 1: no weights separate what S-SEG-WL does not; 2: deeper transformers come nearer."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.cases import check_each

from kmip_data.models.analysis.expressivity import (
    EQUAL,
    NODES,
    Check,
    all_tests,
    check_networks,
    copied,
    fit,
    known_pairs,
)
from kmip_data.models.config import ATTENTION

ORDERED = {"bigbird", "exphormer"}  #: blocks of nodes; an expander that is drawn


@pytest.fixture(scope="module")
def checks() -> dict[tuple[str, str], Check]:
    results = check_networks(known_pairs(), draws=2)
    return {(check.attention, check.positional): check for check in results}


def test_no_attention_sees_more_than_the_test_and_encodings_tell_more_apart(checks):
    def check(kind):
        assert not checks[kind, "none"].by_encoding
        for positional in ("none", "rwse"):
            check = checks[kind, positional]
            assert check.verdict == ("order of nodes" if kind in ORDERED else "bounded")
            assert (check.relabelled > EQUAL) is (kind in ORDERED)
            assert kind in ORDERED or check.gap <= EQUAL
        for positional in ("rwse", "lappe"):
            apart = checks[kind, positional].by_encoding
            assert {"2 C3, C6", "decalin, bicyclopentyl", "CSL(41, 2), CSL(41, 3)"} <= apart.keys()
            assert min(apart.values()) > 1e-6
        assert checks[kind, "lappe"].verdict == "order of nodes", "eigenvectors depend on it"

    check_each(check, ATTENTION)
    assert Check("k-mip", "none", 1e-3, 1e-12, {}).verdict == "not bounded"


def test_copied_weights_come_nearer_with_k_and_with_all_nodes_are_full_attention():
    errors = [copied(k)[0] for k in (1, 2, 4, NODES)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.1  # of a sharp target no single key is enough
    assert max(copied(NODES) + copied(NODES + 5)) < 1e-5


def test_deeper_is_nearer_and_the_same_seed_gives_the_same():
    state = torch.get_rng_state()
    errors = list(fit(2, (1, 3), steps=60))
    assert 1 > errors[0] > errors[1]
    assert list(fit(1, (1, 2), steps=3)) == list(fit(1, (1, 2), steps=3))
    assert torch.equal(torch.get_rng_state(), state)


PAIRS = known_pairs()
TESTS = {name: all_tests(pair) for name, pair in PAIRS.items()}


@st.composite
def graphs(draw, nodes: int):
    """A random graph as an adjacency matrix."""
    matrix = np.zeros((nodes, nodes), np.int64)
    for a, b in combinations(range(nodes), 2):
        matrix[a, b] = matrix[b, a] = draw(st.booleans())
    return matrix


small_pairs = st.integers(1, 7).flatmap(lambda nodes: st.tuples(graphs(nodes), graphs(nodes)))


def test_iterations_of_the_known_pairs():
    def check(case):
        pair, figures = case
        assert list(TESTS[pair].values()) == figures

    check_each(
        check,
        [  # 1-WL, S-SEG-WL, with RWSE of 20 steps and of 3, with the spectrum
            ("P4, K1,3", [1, 1, 0, 0, 0]),
            ("2 C3, C6", [None, None, 0, 0, 0]),
            ("decalin, bicyclopentyl", [None, None, 0, None, 0]),
            ("CSL(41, 2), CSL(41, 3)", [None, None, 0, 0, 0]),
            ("4x4 rook, Shrikhande", [None] * 5),
            ("these, a leaf at a node", [None] * 5),
        ],
    )


def test_known_pairs_are_not_isomorphic_and_rook_and_shrikhande_are_strongly_regular():
    for first, second in PAIRS.values():
        assert first.shape == second.shape
        assert not nx.is_isomorphic(nx.from_numpy_array(first), nx.from_numpy_array(second))
    for matrix in PAIRS["4x4 rook, Shrikhande"]:  # (16, 6, 2, 2), of which there are two
        eye = np.eye(16, dtype=np.int64)
        np.testing.assert_array_equal(
            matrix @ matrix, 6 * eye + 2 * matrix + 2 * (1 - eye - matrix)
        )


@given(small_pairs)
def test_separates_as_networkx(pair):
    hashes = [
        nx.weisfeiler_lehman_graph_hash(nx.from_numpy_array(matrix), iterations=len(matrix) + 1)
        for matrix in pair
    ]
    assert (all_tests(pair)["1-WL"] is None) == (hashes[0] == hashes[1])


@given(small_pairs)
def test_a_finer_scheme_separates_what_a_coarser_does_and_no_later(pair):
    iterations = {
        name: np.inf if iteration is None else iteration
        for name, iteration in all_tests(pair).items()
    }
    assert iterations["S-SEG-WL"] <= iterations["1-WL"]
    for name in ("+ rwse20", "+ rwse3", "+ lappe10"):
        assert iterations[name] <= iterations["S-SEG-WL"], name
    assert iterations["+ rwse20"] <= iterations["+ rwse3"]


@given(st.integers(1, 8).flatmap(graphs), st.randoms())
def test_a_graph_is_never_told_from_itself(matrix, random):
    order = random.sample(range(len(matrix)), len(matrix))
    for name, iteration in all_tests((matrix, matrix[order][:, order])).items():
        assert iteration is None, name
