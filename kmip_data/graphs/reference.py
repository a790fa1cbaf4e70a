"""Neighbours and eccentricities by their definitions, which the compiled searches equal bit for bit.

:mod:`kmip_data.graphs.kernels.knn_search` and :mod:`kmip_data.graphs.kernels.eccentricity_search` are
tested against these functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kmip_data.arrays import F32, I64, Array


def squared_distances(pos: F32, i: int) -> F32:
    """Return the float32 squared distances (N,) of all points (N, 3) from point i, summed as x, y, z."""
    with np.errstate(over="ignore", under="ignore"):
        delta = pos - pos[i]
        squares = delta * delta
        distances: F32 = (squares[:, 0] + squares[:, 1]) + squares[:, 2]
    return distances


def points_by_distance(pos: F32, i: int) -> I64:
    """Return all points, point i too, by (distance from i, index): (N,)."""
    return np.argsort(squared_distances(pos, i), kind="stable")


def knn_table(pos: F32, k: int, *, every: int = 1) -> I64:
    """Return the k nearest other points (N, k) of each point, as :func:`kmip_data.graphs.knn.knn_table`.

    With ``every``, of every so-many-th point alone.
    """
    rows = []
    for i in range(0, len(pos), every):
        order = points_by_distance(pos, i)
        rows.append(order[order != i][:k])
    return np.array(rows, np.int64).reshape(-1, k)


def local_eccentricity(
    edge_index: Array, edge_length: Array, num_nodes: int, hops: int, *, directed: bool = False
) -> F32:
    """Return :func:`kmip_data.graphs.eccentricity.local_eccentricity` (N,) of edges (2, E), by networkx.

    Ball by ball: breadth-first search, the subgraph, Dijkstra's algorithm in it.
    """
    import networkx as nx

    reach: Any = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph = nx.Graph()
    for network in (reach, graph):
        network.add_nodes_from(range(num_nodes))
    for (u, v), length in zip(np.asarray(edge_index).T.tolist(), edge_length, strict=True):
        reach.add_edge(v, u)
        if u != v:
            graph.add_edge(u, v, weight=float(length))

    eccentricities = []
    for node in range(num_nodes):
        ball = graph.subgraph(nx.single_source_shortest_path_length(reach, node, cutoff=hops))
        eccentricities.append(nx.eccentricity(ball, node, weight="weight"))
    return np.array(eccentricities, np.float32)
