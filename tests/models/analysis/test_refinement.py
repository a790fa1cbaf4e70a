"""Colour refinement against networkx's, known pairs of graphs, and the preorder of refinements."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from support.cases import check_each

from kmip_data.graphs.encoding import parse_encoding
from kmip_data.models.analysis.expressivity import all_tests, known_pairs, refine, seg_wl

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


def iteration(test) -> float:
    return np.inf if test.separated is None else test.separated


def test_iterations_of_the_known_pairs():
    def check(case):
        pair, figures = case
        assert [test.separated for test in TESTS[pair].values()] == figures

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


def test_known_pairs_are_not_isomorphic_and_of_one_size():
    for first, second in PAIRS.values():
        assert first.shape == second.shape
        assert not nx.is_isomorphic(nx.from_numpy_array(first), nx.from_numpy_array(second))


def test_rook_and_shrikhande_are_the_graphs_of_cai_fuerer_and_immerman():
    edges = [frozenset(edge) for edge in combinations(range(4), 2)]
    nodes = [
        (v, frozenset(some))
        for v in range(4)
        for n in (0, 2)
        for some in combinations([e for e in edges if v in e], n)
    ]
    found = []
    for twisted in (set(), {edges[0]}):
        graph = nx.Graph()
        for (v, of_v), (w, of_w) in combinations(nodes, 2):
            edge = frozenset((v, w))
            if v != w and ((edge in of_v) == (edge in of_w)) != (edge in twisted):
                graph.add_edge((v, of_v), (w, of_w))
        found.append(graph)
    known = [nx.from_numpy_array(matrix) for matrix in PAIRS["4x4 rook, Shrikhande"]]
    assert any(
        nx.is_isomorphic(found[0], one) and nx.is_isomorphic(found[1], other)
        for one, other in (known, known[::-1])
    )


@given(small_pairs)
def test_separates_as_networkx(pair):
    hashes = [
        nx.weisfeiler_lehman_graph_hash(nx.from_numpy_array(matrix), iterations=len(matrix) + 1)
        for matrix in pair
    ]
    assert (all_tests(pair)["1-WL"].separated is None) == (hashes[0] == hashes[1])


@given(small_pairs)
def test_a_finer_scheme_separates_what_a_coarser_does_and_no_later(pair):
    found = {name: iteration(test) for name, test in all_tests(pair).items()}
    assert found["S-SEG-WL"] <= found["1-WL"]
    for name in ("+ rwse20", "+ rwse3", "+ lappe10"):
        assert found[name] <= found["S-SEG-WL"], name
    assert found["+ rwse20"] <= found["+ rwse3"]


@example([np.zeros((2, 2), np.int64)] * 2, 8098)  # first colours that are not 0, 1, …
@given(small_pairs, st.integers(0, 2**32 - 1))
def test_any_refinement_of_a_scheme(pair, seed):
    """f = p(f') for random maps p of random f' that tell a node from the others."""
    rng = np.random.default_rng(seed)
    nodes = len(pair[0])
    fine_start = rng.integers(0, 3, 2 * nodes)
    fine = [1 + rng.integers(0, 4, matrix.shape) * (1 - np.eye(nodes, dtype=np.int64)) for matrix in pair]
    fine = [np.where(np.eye(nodes, dtype=bool), 0, relation) for relation in fine]
    p_start, p_relation = rng.integers(0, 2, 3), np.append(0, 1 + rng.integers(0, 2, 5))
    coarse = refine(p_start[fine_start], [p_relation[relation] for relation in fine])
    assert iteration(refine(fine_start, fine)) <= iteration(coarse)


@given(st.integers(1, 8).flatmap(graphs), st.randoms())
def test_a_graph_is_never_told_from_itself(matrix, random):
    order = random.sample(range(len(matrix)), len(matrix))
    for name, test in all_tests([matrix, matrix[order][:, order]]).items():
        assert test.separated is None, name


def test_sizes_that_differ_are_separated_at_once():
    triangle, square = (nx.to_numpy_array(nx.cycle_graph(n), dtype=np.int64) for n in (3, 4))
    assert seg_wl([triangle, square]).separated == 0
    assert seg_wl([triangle, square], parse_encoding("rwse3")).separated == 0


def test_the_classes_stay_after_the_last_iteration():
    colours = TESTS["two rings of 9, of 8"]["S-SEG-WL"].colours
    counts = [len(np.unique(np.concatenate(of))) for of in colours]
    assert counts == sorted(set(counts))
    assert counts[-1] == 5  # by the distance to the joined nodes, of which a ring of 8 has 0 to 4
