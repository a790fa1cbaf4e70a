"""Nearest neighbours the slow, obvious way, by numpy in float32."""

from __future__ import annotations

import numpy as np


def squared_distances(pos: np.ndarray, i: int) -> np.ndarray:
    """Float32 squared distances (N,) of all points from point i, summed in the order x, y, z."""
    with np.errstate(over="ignore", under="ignore"):
        delta = pos - pos[i]
        squares = delta * delta
        return (squares[:, 0] + squares[:, 1]) + squares[:, 2]


def order_of(pos: np.ndarray, i: int) -> np.ndarray:
    """All points, point i too, by (distance from i, index)."""
    return np.argsort(squared_distances(pos, i), kind="stable")


def exact_table(pos: np.ndarray, k: int, *, every: int = 1) -> np.ndarray:
    """The k nearest other points of each point, or of every so-many-th."""
    rows = []
    for i in range(0, len(pos), every):
        order = order_of(pos, i)
        rows.append(order[order != i][:k])
    return np.array(rows).reshape(-1, k)


def torch_cluster_edges(pos: np.ndarray, k: int, *, every: int = 1) -> np.ndarray:
    """Upstream's rule: of the k + 1 nearest points, the point itself too, all but the point itself."""
    edges = [(j, i) for i in range(0, len(pos), every) for j in order_of(pos, i)[: k + 1] if j != i]
    return np.array(edges, np.int64).reshape(-1, 2).T
