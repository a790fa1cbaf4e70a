"""Exact k nearest neighbours of 3D points, in a defined order.

The squared distance of two points is the float32 value ``(dx*dx + dy*dy) + dz*dz``; every operation
is rounded to float32 and none is fused (numba contracts nothing without ``fastmath``). Neighbours are
the k smallest pairs (distance, index). A point is not its own neighbour, but a coincident point is.
Ties are therefore resolved, and the result is the same on every machine.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from kmip_data.arrays import F32, I32, I64
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.runtime.parallel import run_in_ranges

KnnRule = Literal["exact", "torch-cluster"]

MAX_LEAF_POINTS = 32  #: maximum number of points in a leaf of the tree
MIN_LEAVES_PER_THREAD = 64  #: minimum work for which another thread pays off


def knn_table(pos: ArrayLike, k: int) -> I32:
    """Return the k nearest other points of every point, nearest first.

    ``pos`` is float32 (N, 3) and finite; 1 ≤ k ≤ N − 1. Row i of the result, an int32 array (N, k)
    even for tensors, holds the neighbours of point i by (float32 squared distance, index). Raises
    ``UsageError`` for a wrong shape, dtype or k; ``DamagedInput`` if a position is NaN or infinite.
    """
    points = _check_positions(pos)
    if not 1 <= k < max(len(points), 1):
        raise UsageError(
            f"k = {k} is not possible with {len(points)} points: "
            f"k must be at least 1 and needs at least {max(k, 1) + 1} points."
        )
    return _search_table(points, k)


def knn_edges(pos: ArrayLike, k: int, *, rule: KnnRule = "exact") -> I64:
    """Return k-NN edges, int64 (2, E), from neighbour to point, grouped by target, nearest first.

    ``pos`` is float32 (N, 3) and finite; k is at least 1. If N ≤ k, each point gets its N − 1
    others. With the rule ``exact``, edges are the rows of :func:`knn_table`. ``torch-cluster`` does
    what ``torch_cluster.knn_graph`` with ``loop=False`` does: find the k + 1 nearest points
    *including the point itself*, then remove the point itself. The rules differ if more than k
    points coincide: the point itself may not be among the first k + 1, and then its row keeps all
    k + 1 edges. Raises the errors of :func:`knn_table`.
    """
    points = _check_positions(pos)
    if k < 1:
        raise UsageError(f"k must be at least 1, not {k}.")
    n = len(points)
    columns = k if rule == "exact" else k + 1
    table = _search_table(points, min(columns, max(n - 1, 0)))
    targets = np.arange(n, dtype=np.int64)
    if rule == "exact" or table.shape[1] <= k:
        sources = table.astype(np.int64).ravel()
        return np.stack([sources, np.repeat(targets, table.shape[1])])

    # Point i sorts as (0, i), so it is not among the first k + 1 if and only if all k + 1 others
    # have distance 0 and lower indices. Checking the last of them suffices.
    last = table[:, k]
    with np.errstate(over="ignore", under="ignore"):
        squares = np.square(points - points[last])
        distance = (squares[:, 0] + squares[:, 1]) + squares[:, 2]  # summed as in the tree search
    keeps_all = (distance == 0) & (last < targets)
    keep = np.ones(table.shape, bool)
    keep[:, k] = keeps_all
    sources = table[keep].astype(np.int64)
    return np.stack([sources, np.repeat(targets, k + keeps_all)])


def _check_positions(pos: ArrayLike) -> F32:
    pos = np.asarray(pos)
    if pos.ndim != 2 or pos.shape[1] != 3 or pos.dtype != np.float32:
        raise UsageError(
            f"Positions must be float32 of shape (N, 3), not {pos.dtype} of shape {pos.shape}."
        )
    points = np.ascontiguousarray(pos)
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        raise DamagedInput(
            f"Positions must be finite: NaN or infinity at point {int(finite.argmin())}."
        )
    return points


def _search_table(points: F32, k: int) -> I32:
    from kmip_data.graphs.kernels.knn_search import Tree, build_tree, search_tree

    n = len(points)
    leaves = 1
    table = np.empty((n, k), np.int32)
    if table.size == 0:
        return table
    while leaves * MAX_LEAF_POINTS < n:
        leaves *= 2
    tree = Tree(
        points=points.T.copy(),
        order=np.arange(n, dtype=np.int32),
        low=np.empty((2 * leaves, 3), np.float32),
        high=np.empty((2 * leaves, 3), np.float32),
        min_index=np.empty(2 * leaves, np.int32),
    )
    build_tree(tree)
    run_in_ranges(lambda a, b: search_tree(tree, table, a, b), leaves, grain=MIN_LEAVES_PER_THREAD)
    return table
