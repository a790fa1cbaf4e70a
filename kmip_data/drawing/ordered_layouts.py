"""Layouts of graphs with an order: lattices, and layers of directed acyclic graphs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F64, I64, Array
from kmip_data.drawing.layouts import adjacency_matrix, small_components, spring_layout

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_LAYER = 60  #: nodes next to each other in a layer
MIN_LAYERS = 3
MAX_LAYERS = 100
MAX_SPAN = 2.5  #: mean number of layers that an edge leads down
MIN_SIDE = 4  #: rows and columns of a lattice; a complete graph of nine nodes has three of each
#: First words about computed positions.
LATTICE = "drawn row by row"
LAYERS = "in layers along the edges"
SPRINGS = "layout computed from the edges"
STUB_LENGTH = 0.45  #: of an edge that leaves a lattice at a border
SWEEPS = 8  #: passes over the layers that move nodes towards their neighbours


def arrange(edge_index: I64, nodes: int) -> tuple[F64, str]:
    """Return a position for each node, (N, 2), and how the positions were computed.

    A lattice has rows and columns, an acyclic graph has layers from sources (top) to targets, and
    any other graph is laid out by springs.
    """
    width = lattice_width(edge_index, nodes)
    if width:
        rows, columns = np.divmod(np.arange(nodes), width)
        positions = np.column_stack([columns, -rows]).astype(np.float64)
        origin = LATTICE
        if np.ptp(positions[edge_index.T], axis=1).max() > 1:
            origin += "; edges at a border go on at the opposite one"
        return positions, origin
    layers = layers_of_nodes(edge_index, nodes)
    if layers is not None:
        return _layered_positions(edge_index, layers)[:nodes], LAYERS
    origin = SPRINGS
    if small_components(adjacency_matrix(edge_index, nodes))[1].any():
        origin += ", small components below"
    return spring_layout(edge_index, nodes), origin


def routes_between_layers(edge_index: I64, nodes: int) -> dict[int, F64]:
    """Return the places (P, 2) at which edges pass the P layers that they skip, by position of the edge."""
    layers = layers_of_nodes(edge_index, nodes)
    assert layers is not None, "the layout has layers"
    places = _layered_positions(edge_index, layers)
    skipped = np.diff(layers[edge_index], axis=0)[0] - 1
    ends = nodes + np.cumsum(skipped)
    return {
        edge: places[ends[edge] - skipped[edge] : ends[edge]]
        for edge in np.flatnonzero(skipped).tolist()
    }


def stubs_beyond_borders(segments: F64) -> F64:
    """Return the edges of a lattice (E, 2, 2), those between opposite borders as stubs that leave it."""
    along = segments[:, 1] - segments[:, 0]
    is_far = np.abs(along) > 1
    outwards = np.where(is_far, -np.sign(along), along)
    lengths = np.where(is_far.any(axis=1, keepdims=True), STUB_LENGTH, 1)
    return np.stack([segments[:, 0], segments[:, 0] + lengths * outwards], axis=1)


def lattice_width(edge_index: I64, nodes: int) -> int:
    """Return the number of columns of a lattice that is numbered row by row; 0 for other graphs.

    ``edge_index`` is (2, E). In a lattice, each node has edges to the nodes on its right and below
    it, and all other edges join nodes at most one row and one column apart, where the last may be
    next to the first.
    """
    low, high = np.sort(edge_index, axis=0)
    below_first = np.unique(high[low == 0])
    width: int
    for width in below_first[below_first > 0].tolist():
        height = nodes // width
        if min(width, height) < MIN_SIDE or nodes % width:
            continue
        edges = np.unique(low * nodes + high)
        number = np.arange(nodes)
        right = number[number % width < width - 1]
        below = number[:-width]
        expected = np.concatenate([right * nodes + right + 1, below * nodes + below + width])
        if not np.isin(expected, edges).all():
            continue
        rows = np.abs(high // width - low // width)
        columns = np.abs(high % width - low % width)
        near = np.minimum(rows, height - rows) <= 1
        if (near & (np.minimum(columns, width - columns) <= 1)).all():
            return width
    return 0


def layers_of_nodes(edge_index: I64, nodes: int) -> I64 | None:
    """Return the length of the longest path to each node, (N,), if that makes readable layers.

    Graphs with cycles, which include undirected ones, with fewer than :data:`MIN_LAYERS` or more than
    :data:`MAX_LAYERS` layers have None; so have graphs with more than :data:`MAX_LAYER` nodes in a
    layer, and with edges that mostly skip layers: an undirected list with the smaller number first is
    acyclic, too.
    """
    if nodes > MAX_LAYER * MAX_LAYERS:
        return None
    sources, targets = edge_index
    depth = np.zeros(nodes, np.int64)
    for _ in range(MAX_LAYERS):
        deeper = depth.copy()
        np.maximum.at(deeper, targets, depth[sources] + 1)
        if np.array_equal(deeper, depth):
            break
        depth = deeper
    else:  # in a cycle, depths never end
        return None

    counts = np.bincount(depth, minlength=1)
    if len(counts) < MIN_LAYERS or counts.max() > MAX_LAYER:
        return None
    span = (depth[targets] - depth[sources]).mean()
    if span > MAX_SPAN:
        return None
    return depth


def _layered_positions(edge_index: I64, layers: I64) -> F64:
    """Return positions (N', 2) of nodes, then of places in the layers that edges skip.

    Layers lie from top to bottom. Nodes are between places near their neighbours and even ones, which
    fill the width: half-way in the largest layer, and nearer to their neighbours in smaller ones.
    """
    edges, all_layers = _edges_of_one_layer(edge_index, layers)
    adjacency = adjacency_matrix(edges, len(all_layers))
    adjacency = (adjacency + adjacency.T).tocsr()
    members = [np.flatnonzero(all_layers == layer) for layer in range(layers.max() + 1)]

    across = np.zeros(len(all_layers))
    for nodes_of_layer in members:
        across[nodes_of_layer] = _space_apart(np.arange(len(nodes_of_layer)))
    for sweep in range(SWEEPS):
        for nodes_of_layer in members[:: -1 if sweep % 2 else 1]:
            wanted = _mean_of_neighbors(adjacency, across)[nodes_of_layer]
            across[nodes_of_layer] = _space_apart(wanted)

    across -= across[: len(layers)].min()
    largest = np.bincount(layers).max()
    width = max(largest, across[: len(layers)].max())
    for places_of_layer in members:
        order = places_of_layer[np.argsort(across[places_of_layer])]
        is_node = order < len(layers)
        # Edges between two nodes are half as far from each other as from the nodes.
        steps = np.where(is_node[1:] | is_node[:-1], 1, 0.5)
        ranks = np.append(0, np.cumsum(steps))
        even = width * (np.arange(is_node.sum()) + 0.5) / is_node.sum()
        share = is_node.sum() / largest / 2
        at_nodes = (1 - share) * across[order[is_node]] + share * even
        shifts = np.interp(ranks, ranks[is_node], at_nodes - ranks[is_node])
        across[order] = ranks + shifts
    gap = max(1.0, width / (1.15 * len(members)))
    return np.column_stack([across, -gap * all_layers])


def _edges_of_one_layer(edge_index: I64, layers: I64) -> tuple[I64, I64]:
    """Return edges (2, E') and layers (N',) with more nodes, one in each layer that an edge skips."""
    edges: list[tuple[int, int]] = []
    all_layers = layers.tolist()
    for source, target in edge_index.T.tolist():
        skipped = range(layers[source] + 1, layers[target])
        first = len(all_layers)
        all_layers += skipped
        edges += pairwise([source, *range(first, len(all_layers)), target])
    return np.array(edges).T, np.array(all_layers)


def _mean_of_neighbors(adjacency: csr_array, values: Array) -> F64:
    """Return the mean value of the neighbours of each node, or its own without neighbours (N,)."""
    counts = adjacency.sum(axis=1)
    sums = adjacency @ values
    return np.where(counts > 0, sums / np.maximum(counts, 1), values)


def _space_apart(wanted: Array) -> F64:
    """Return places (n,) in the order of the wanted ones, at least one apart and about their mean."""
    order = np.argsort(wanted, kind="stable")
    places = np.empty(len(wanted))
    steps = np.arange(len(wanted))
    sorted_places = wanted[order]
    increasing = np.maximum.accumulate(sorted_places - steps) + steps
    places[order] = increasing - (increasing - sorted_places).mean()
    return places
