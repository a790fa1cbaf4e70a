"""Reference implementations of k-NN and eccentricity, straight from their definitions.

:mod:`kmip_data.graphs.kernels.knn_search` and :mod:`kmip_data.graphs.kernels.eccentricity_search` are
tested to equal these functions bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kmip_data.arrays import F32, I64, Array


def squared_distances(pos: F32, i: int) -> F32:
    """Return the float32 squared distances (N,) from point i to all points (N, 3), summed as x, y, z."""
    with np.errstate(over="ignore", under="ignore"):
        delta = pos - pos[i]
        squares = delta * delta
        distances: F32 = (squares[:, 0] + squares[:, 1]) + squares[:, 2]
    return distances


def points_by_distance(pos: F32, i: int) -> I64:
    """Return all points including point i, sorted by (distance from i, index): (N,)."""
    return np.argsort(squared_distances(pos, i), kind="stable")


def knn_table(pos: F32, k: int, *, step: int = 1) -> I64:
    """Return the table (N, k) of :func:`kmip_data.graphs.knn.knn_table`, or every ``step``-th row."""
    rows = []
    for i in range(0, len(pos), step):
        order = points_by_distance(pos, i)
        rows.append(order[order != i][:k])
    return np.array(rows, np.int64).reshape(-1, k)


def local_eccentricity(
    edge_index: Array, edge_length: Array, num_nodes: int, hops: int, *, directed: bool = False
) -> F32:
    """Compute :func:`kmip_data.graphs.eccentricity.local_eccentricity` (N,) with networkx.

    For each node: breadth-first search to find the ball, then Dijkstra's algorithm in its subgraph.
    """
    import networkx as nx

    reversed_edges: Any = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph = nx.Graph()
    for network in (reversed_edges, graph):
        network.add_nodes_from(range(num_nodes))
    for (u, v), length in zip(np.asarray(edge_index).T.tolist(), edge_length, strict=True):
        reversed_edges.add_edge(v, u)
        if u != v:
            graph.add_edge(u, v, weight=float(length))

    eccentricities = []
    for node in range(num_nodes):
        nodes = nx.single_source_shortest_path_length(reversed_edges, node, cutoff=hops)
        ball = graph.subgraph(nodes)
        eccentricities.append(nx.eccentricity(ball, node, weight="weight"))
    return np.array(eccentricities, np.float32)
