"""Positional encodings against dense linear algebra and PyTorch Geometric's transforms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.raises import raises
from torch_geometric.utils import get_laplacian, to_scipy_sparse_matrix, to_undirected

from kmip_data.arrays import F64, I64
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.graphs.encoding import ConcatenatedGraphs, known_encodings, parse_encoding
from kmip_data.graphs.encodings import lappe
from kmip_data.graphs.encodings.degree_profile import DegreeProfile, local_degree_profile
from kmip_data.graphs.encodings.edge_rwse import edge_walk_encoding
from kmip_data.graphs.encodings.expander import expander_targets
from kmip_data.graphs.encodings.lappe import Laplacian, laplacian_encoding
from kmip_data.graphs.encodings.rwse import RandomWalk, random_walk_encoding
from kmip_data.graphs.knn import knn_edges, knn_table
from kmip_data.runtime import parallel


def powers(edges: I64, nodes: int, steps: int) -> Iterator[F64]:
    """Powers 1 to ``steps`` of the dense matrix of a random walk."""
    adjacency = np.zeros((nodes, nodes))
    np.add.at(adjacency, (edges[0], edges[1]), 1)
    degree = adjacency.sum(1, keepdims=True)
    walk = np.divide(adjacency, degree, where=degree > 0, out=np.zeros_like(adjacency))
    power = np.eye(nodes)
    for _ in range(steps):
        power = power @ walk
        yield power


def slow_walk(edges: I64, nodes: int, steps: int) -> F64:
    """Diagonals of those powers."""
    return np.stack([np.diag(power) for power in powers(edges, nodes, steps)], 1)


def slow_edge_walk(edges: I64, nodes: int, steps: int) -> F64:
    """Entries of those powers at the edges."""
    return np.stack([power[edges[0], edges[1]] for power in powers(edges, nodes, steps)], 1)


def both_ways(edges: I64) -> I64:
    return np.concatenate([edges, edges[::-1]], axis=1)


def random_edges(nodes: int, edges: int, seed: int) -> I64:
    return np.random.default_rng(seed).integers(0, nodes, (2, edges))


def of_networkx(graph: nx.Graph) -> tuple[I64, int]:
    graph = nx.convert_node_labels_to_integers(graph)
    return both_ways(
        np.array(graph.edges, dtype=np.int64).reshape(-1, 2).T
    ), graph.number_of_nodes()


@settings(max_examples=40, deadline=None)
@given(
    nodes=st.integers(1, 14), count=st.integers(0, 40), seed=st.integers(0, 999), steps=st.integers(1, 9),
    undirected=st.booleans(),
)  # fmt: skip
def test_walks_are_diagonals_of_powers(
    nodes: int, count: int, seed: int, steps: int, undirected: bool
) -> None:
    edges = random_edges(nodes, count, seed)  # with loops and repeated edges
    edges = both_ways(edges) if undirected else edges
    walks = random_walk_encoding(edges, nodes, steps)
    assert walks.dtype == np.float32
    np.testing.assert_allclose(walks, slow_walk(edges, nodes, steps), atol=1e-6)
    along = edge_walk_encoding(edges, nodes, steps)
    assert along.dtype == np.float32
    np.testing.assert_allclose(along, slow_edge_walk(edges, nodes, steps), atol=1e-6)


def test_a_walk_depends_on_its_graph_alone_and_not_on_threads_or_the_order_of_edges() -> None:
    graphs = [
        (both_ways(random_edges(40, 60, 0)), 40),
        (random_edges(30, 70, 1), 30),
        (random_edges(1, 0, 2), 1),
    ]
    alone = np.concatenate([random_walk_encoding(edges, nodes, 7) for edges, nodes in graphs])
    joined = _joined(graphs)
    rng = np.random.default_rng(0)
    for count in (1, 2):
        parallel.set_num_threads(count)
        try:
            together = random_walk_encoding(
                joined.edges_over_all_graphs(), 71, 7, node_ptr=joined.node_ptr
            )
        finally:
            parallel.set_num_threads(None)
        np.testing.assert_array_equal(together, alone)
    turned = joined.edges_over_all_graphs()[:, rng.permutation(int(joined.edge_ptr[-1]))]
    np.testing.assert_array_equal(
        random_walk_encoding(turned, 71, 7, node_ptr=joined.node_ptr), alone
    )


def _joined(graphs: list[tuple[I64, int]]) -> ConcatenatedGraphs:
    return ConcatenatedGraphs(
        np.cumsum([0, *(nodes for _, nodes in graphs)]),
        np.cumsum([0, *(edges.shape[1] for edges, _ in graphs)]),
        np.concatenate([edges for edges, _ in graphs], axis=1),
    )


def slow_laplacian(edges: I64, nodes: int) -> F64:
    """Unnormalised Laplacian of the undirected graph without loops, as upstream builds it."""
    index = to_undirected(torch.from_numpy(edges), num_nodes=nodes)
    matrix: F64 = to_scipy_sparse_matrix(*get_laplacian(index, num_nodes=nodes), nodes).toarray()
    return matrix


def star_of_stars(stars: int, leaves: int) -> nx.Graph:
    """Tree of equal stars around a node."""
    star = nx.star_graph(leaves)
    together = nx.disjoint_union_all([nx.empty_graph(1), *[star] * stars])
    together.add_edges_from((0, 1 + number * (leaves + 1)) for number in range(stars))
    return together


GRAPHS: dict[str, Callable[[], nx.Graph]] = {
    "molecule-like tree": lambda: nx.random_labeled_tree(40, seed=1),
    "grid": lambda: nx.grid_2d_graph(7, 9),
    "star: one eigenvalue many times": lambda: nx.star_graph(30),
    "components": lambda: nx.disjoint_union_all([nx.path_graph(6), nx.cycle_graph(5), nx.empty_graph(2)]),
    "twice the same": lambda: nx.disjoint_union(nx.path_graph(9), nx.path_graph(9)),
    "two nodes": lambda: nx.path_graph(2),
    "no edges": lambda: nx.empty_graph(4),
    "one node": lambda: nx.empty_graph(1),
    "pairs of equal eigenvalues": lambda: nx.grid_2d_graph(15, 15),
    "149 equal eigenvalues": lambda: nx.star_graph(150),
    "nearly all eigenvalues close to 0": lambda: nx.path_graph(200),
    "branches alike": lambda: nx.full_rary_tree(5, 600),  # Lanczos misses some at first
    "barbell": lambda: nx.barbell_graph(15, 150),
    "300 equal eigenvalues": lambda: nx.complete_graph(301),
    "copies that Lanczos misses": lambda: star_of_stars(60, 9),
}  # fmt: skip


@pytest.mark.parametrize("dense_nodes", [1_000, 0])
@pytest.mark.parametrize("name", GRAPHS)
def test_eigenpairs_are_the_smallest_and_orthonormal(name: str, dense_nodes: int) -> None:
    edges, nodes = of_networkx(GRAPHS[name]())
    laplacian = slow_laplacian(edges, nodes)
    values, vectors = laplacian_encoding(edges, nodes, 16, max_dense_nodes=dense_nodes)
    there = min(nodes, 16)
    assert values.dtype == vectors.dtype == np.float32
    wanted = np.linalg.eigvalsh(laplacian)[:there]
    np.testing.assert_allclose(values[:there], wanted, rtol=1e-5, atol=1e-9)
    assert values[0] == 0
    assert np.isnan(values[there:]).all()
    assert np.isnan(vectors[:, there:]).all()
    modes = vectors[:, :there].astype(float)
    np.testing.assert_allclose(modes.T @ modes, np.eye(there), atol=1e-5)
    np.testing.assert_allclose(laplacian @ modes, modes * values[:there], atol=2e-5)
    size = np.abs(modes)
    first = np.argmax(size >= size.max(0) * (1 - 1e-6), axis=0)
    assert (modes[first, np.arange(there)] > 0).all()


def test_many_copies_without_memory_for_the_dense_solver_name_the_graph(monkeypatch) -> None:
    both = [of_networkx(nx.path_graph(3)), of_networkx(star_of_stars(60, 9))]
    graphs = replace(_joined(both), keys=["path", "stars"])
    monkeypatch.setattr(lappe, "DENSE_BYTES", 2**40)
    # Which pairs Lanczos misses depends on the order in which threads add.
    monkeypatch.setattr(lappe, "_eigenpairs_by_lanczos", lambda *_: None)
    with raises(OutOfResources, naming=["stars", 601]):
        Laplacian(10).compute(graphs, lambda: None)


def test_directions_loops_and_repeated_edges_do_not_count() -> None:
    edges, nodes = of_networkx(nx.random_labeled_tree(20, seed=3))
    one_way = edges[:, : edges.shape[1] // 2]
    more = np.concatenate([one_way, one_way[:, :5], [[3, 4], [3, 4]]], axis=1)
    for column, wanted in zip(
        laplacian_encoding(more, nodes), laplacian_encoding(edges, nodes), strict=True
    ):
        np.testing.assert_array_equal(column, wanted)


def test_an_eigenvector_lives_on_one_component() -> None:
    edges, nodes = of_networkx(
        nx.disjoint_union_all([nx.path_graph(5), nx.path_graph(4), nx.empty_graph(1)])
    )
    values, vectors = laplacian_encoding(edges, nodes, 6)
    np.testing.assert_array_equal(values[:3], 0)
    np.testing.assert_allclose(vectors[:5, 0], 5**-0.5)
    np.testing.assert_allclose(vectors[5:9, 1], 0.5)
    assert vectors[9, 2] == 1
    parts = [slice(0, 5), slice(5, 9), slice(9, 10)]
    for column in vectors.T:
        assert sum(bool(column[part].any()) for part in parts) == 1


@pytest.mark.parametrize("name", ["rwse5", "edge-rwse3", "lappe4", "degree-profile-2.8"])
def test_encodings_of_several_graphs_equal_the_encoding_of_each(name: str) -> None:
    graphs = [of_networkx(nx.random_labeled_tree(n, seed=n)) for n in (3, 12, 1, 25)]
    encoding = parse_encoding(name)
    stops: list[int] = []
    together = encoding.compute(_joined(graphs), lambda: stops.append(1))
    alone = [encoding.compute(_joined([graph]), lambda: None) for graph in graphs]
    assert stops
    assert encoding.name == name
    assert set(together) == {column.key for column in encoding.columns()}
    for key, rows in together.items():
        np.testing.assert_array_equal(rows, np.concatenate([arrays[key] for arrays in alone]))


def test_edges_to_missing_nodes_are_refused() -> None:
    functions = (local_degree_profile, laplacian_encoding, random_walk_encoding)
    for function, node, row in itertools.product(functions, (-1, 3, 2**40), (0, 1)):
        edges = np.array([[0, 1, 2], [1, 2, 0]])
        edges[row, 1] = node
        with pytest.raises(DamagedInput):
            function(edges, 3)


def test_every_encoding_reads_its_own_name_and_no_other() -> None:
    for kind, parameter in ((RandomWalk, 20), (Laplacian, 10), (DegreeProfile, "2.8")):
        encoding = kind(parameter)
        assert parse_encoding(encoding.name) == encoding
        assert [other for other in known_encodings() if other.parse(encoding.name)] == [kind]
    assert RandomWalk(7) != Laplacian(7)

    class Degree(RandomWalk):
        prefix, parameter_letter = "degree", ""

    assert Degree.parse("degree") == Degree()
    assert Degree().name == "degree"
    assert [Degree.parse(name) for name in ("degree7", "degrees", "deg", "rwse20")] == [None] * 4
    for name in ("rwse", "rwse0", "lappe-1", "lappe9999", "degree-profile", "rwse20 ", "../rwse20"):
        with pytest.raises(UsageError):
            parse_encoding(name)


def test_functions_read_tensors_and_return_arrays() -> None:
    points = torch.rand(20, 3, generator=torch.Generator().manual_seed(0))
    edges = knn_edges(points, 3)
    assert np.array_equal(edges, knn_edges(points.numpy(), 3))
    assert np.array_equal(knn_table(points, 3), knn_table(points.numpy(), 3))

    profile = local_degree_profile(torch.from_numpy(edges), 20)
    assert np.array_equal(profile, local_degree_profile(edges, 20))
    drawn = expander_targets(20, 3, 0)
    assert np.array_equal(drawn, expander_targets(20, 3, np.random.default_rng(0)))
