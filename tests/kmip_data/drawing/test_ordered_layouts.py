"""Lattices and acyclic graphs have ordered layouts; nothing else has."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmip_data.drawing.ordered_layouts import (
    MAX_LAYER,
    MAX_SPAN,
    arrange,
    lattice_width,
    layers_of_nodes,
    routes_between_layers,
    stubs_beyond_borders,
)


def lattice(width, height, *, diagonal, periodic):
    """Return the edges, both ways, of a lattice that is numbered row by row."""
    steps = [(0, 1), (1, 0), *([(1, 1), (1, -1)] if diagonal else [])]
    edges = []
    for row, column in np.ndindex(height, width):
        for down, right in steps:
            other = [row + down, column + right]
            if periodic:
                other = [other[0] % height, other[1] % width]
            if 0 <= other[0] < height and 0 <= other[1] < width:
                edges.append((row * width + column, other[0] * width + other[1]))
    one_way = np.array(edges).T
    return np.concatenate([one_way, one_way[::-1]], axis=1)


@settings(max_examples=30, deadline=None)
@given(st.integers(4, 9), st.integers(4, 9), st.booleans(), st.booleans(), st.randoms())
def test_a_lattice_is_found_unless_an_edge_is_missing(width, height, diagonal, periodic, random):
    edges = lattice(width, height, diagonal=diagonal, periodic=periodic)
    nodes = width * height
    assert lattice_width(edges, nodes) in {width, nodes // width}
    pos, origin = arrange(edges, nodes)
    assert ("; edges at a border" in origin) == periodic, origin
    drawn = stubs_beyond_borders(pos[edges.T])
    assert np.abs(np.diff(drawn, axis=1)).max() <= 1, "no line runs below others"
    assert len(np.unique(pos, axis=0)) == nodes
    without = (edges != 0).any(axis=0) & ~((edges == 0).any(axis=0) & (edges == 1).any(axis=0))
    assert lattice_width(edges[:, without], nodes) != width, "no edge from 0 to 1"
    order = np.array(random.sample(range(nodes), nodes))
    if lattice_width(order[edges], nodes):  # another numbering of the same lattice
        assert set(map(tuple, order[edges].T)) == set(map(tuple, edges.T))


@pytest.mark.parametrize("graph", [nx.complete_graph(9), nx.path_graph(16), nx.cycle_graph(20)])
def test_other_regular_graphs_are_no_lattices(graph):
    edges = np.array(graph.edges).T
    assert lattice_width(edges, len(graph)) == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 30), st.floats(0.02, 0.4), st.integers(0, 1_000))
def test_edges_of_an_acyclic_graph_go_down(nodes, density, seed):
    rng = np.random.default_rng(seed)
    order = rng.permutation(nodes)
    edges = order[np.argwhere(np.triu(rng.random((nodes, nodes)) < density, 1)).T]
    graph = nx.DiGraph(edges.T.tolist())
    layers = layers_of_nodes(edges, nodes)
    graph.add_nodes_from(range(nodes))
    expected = np.zeros(nodes, np.int64)
    for node in nx.topological_sort(graph):
        expected[node] = max((expected[other] + 1 for other in graph.predecessors(node)), default=0)
    spans = expected[edges[1]] - expected[edges[0]]
    if expected.max() < 2 or spans.mean() > MAX_SPAN:
        assert layers is None, "too few layers, or edges that skip layers"
        return
    assert layers.tolist() == expected.tolist()
    pos, _ = arrange(edges, nodes)
    assert (pos[edges[0], 1] > pos[edges[1], 1]).all()
    for layer in range(layers.max() + 1):
        assert (np.diff(np.sort(pos[layers == layer, 0])) > 0.999).all(), "no two at one place"
    routes = routes_between_layers(edges, nodes)
    assert {edge: len(places) + 1 for edge, places in routes.items()} == {
        edge: span for edge, span in enumerate(spans) if span > 1
    }
    for edge, places in routes.items():
        heights = [*pos[edges[0, edge : edge + 1], 1], *places[:, 1], pos[edges[1, edge], 1]]
        np.testing.assert_allclose(np.diff(heights), heights[1] - heights[0])
        for place in places:
            layer = pos[np.isclose(pos[:, 1], place[1]), 0]
            assert abs(layer - place[0]).min() > 0.4, "clear of nodes"


def test_cycles_and_wide_layers_have_no_layers():
    path = np.array([[0, 1, 2], [1, 2, 3]])
    assert layers_of_nodes(path, 4).tolist() == [0, 1, 2, 3]
    assert layers_of_nodes(np.append(path, [[3], [0]], axis=1), 4) is None
    assert layers_of_nodes(np.append(path, [[2], [2]], axis=1), 4) is None
    late = np.append(path, [[4], [3]], axis=1)
    assert layers_of_nodes(late, 5).tolist() == [0, 1, 2, 3, 0], "sources are on top"
    wide = np.append(path, [[2] * MAX_LAYER, range(4, 4 + MAX_LAYER)], axis=1)
    assert layers_of_nodes(wide, 4 + MAX_LAYER) is None, "too wide"
    skipping = np.array([(i, j) for j in range(9) for i in range(j)]).T
    assert layers_of_nodes(skipping, 9) is None, "edges skip layers"
    long = np.stack([np.arange(150), np.arange(1, 151)])
    assert layers_of_nodes(long, 151) is None, "too many layers"


def test_few_nodes_of_a_layer_are_near_their_neighbours_and_long_edges_cross_little():
    """A root has twenty leaves and one child, which has two; an edge skips the layer of the child."""
    leaves = [(0, leaf) for leaf in range(4, 24)]
    edges = np.array([(0, 1), (1, 2), (1, 3), (0, 3), *leaves]).T
    pos, _ = arrange(edges, 24)
    width = np.ptp(pos[:, 0])
    assert 1 <= abs(pos[2, 0] - pos[3, 0]) < 0.2 * width
    assert abs(pos[2:4, 0].mean() - pos[1, 0]) < 0.2 * width
    side = np.sign(pos[3, 0] - pos[2, 0])
    assert side * (pos[0, 0] - pos[1, 0]) > 0, "the long edge ends on its own side"


def test_communities_lie_apart_although_edges_join_them():
    """Three of four neighbours of a node are in its own half of 200 nodes."""
    rng = np.random.default_rng(0)
    community = np.arange(200) % 2
    is_alike = rng.random(800) < 0.75
    sources = rng.integers(0, 200, 800)
    targets = 2 * rng.integers(0, 100, 800) + np.where(is_alike, 0, 1) ^ community[sources]
    pos, _ = arrange(np.array([sources, targets]), 200)
    middles = np.array([np.median(pos[community == side], axis=0) for side in (0, 1)])
    nearest = np.linalg.norm(pos[:, None] - middles, axis=2).argmin(axis=1)
    assert (nearest == community).mean() > 0.8


def test_small_components_stand_in_rows_below_the_others():
    sizes = [60, 12, 2, 2, 2, *[1] * 30]  # the first two are no twentieth of the nodes
    graph = nx.disjoint_union_all([nx.path_graph(size) for size in sizes])
    pos, _ = arrange(np.array(graph.to_directed().edges).T, len(graph))
    large = pos[:72]
    small = [pos[list(part)] for part in nx.connected_components(graph) if len(part) < 12]
    boxes = [(*part.min(axis=0), *part.max(axis=0)) for part in small]
    assert max(top for *_, top in boxes) < large[:, 1].min()
    assert min(left for left, *_ in boxes) == pytest.approx(large[:, 0].min())
    assert max(right for _, _, right, _ in boxes) <= large[:, 0].max() + 1e-9
    for (left, low, right, high), (other, below, end, top) in itertools.combinations(boxes, 2):
        apart = max(other - right, left - end, below - high, low - top)
        assert apart >= 1 - 1e-9, "boxes are one apart"
