"""k-NN and radius graphs of tensors, with PyTorch Geometric's signatures but no compiled extensions.

Up to three float32 columns are searched by the tree of :mod:`kmip_data.graphs.knn`. Other points are
searched in float64 by SciPy's tree or a matrix product, and their neighbours sorted in a defined
order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kmip_data.arrays import F64, Array
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.graphs.knn import knn_table
from kmip_data.runtime.parallel import num_threads

FLOWS = ("source_to_target", "target_to_source")
MAX_COORDINATE = 1e150  #: largest coordinate, so that squares are finite
#: Values in a block of differences: 32 MB, the fastest of 1 to 128 MB (2.4 s; 3.1, 3.9).
BLOCK_VALUES = 2**22
MAX_TREE_COLUMNS = 16  #: with more columns, a tree search prunes nothing
#: Relative tolerance: far above the rounding of a sum of squares, too small to cause second queries.
TOLERANCE = 1e-9


class Neighbors(NamedTuple):
    """The k nearest other points of each point, by (squared distance, index)."""

    table: Array  #: (n, k)
    squared_distances: Array  #: (n, k) squared distances, in the arithmetic that decided


def knn_graph(
    x: Tensor,
    k: int,
    batch: Tensor | None = None,
    loop: bool = False,
    flow: str = "source_to_target",
    cosine: bool = False,
    num_workers: int = 1,  # noqa: ARG001 -- PyTorch Geometric's
    batch_size: int | None = None,
) -> Tensor:
    """Return edges to each point from its k nearest neighbours, like ``torch_geometric.nn.knn_graph``.

    Neighbours are the k smallest pairs (squared distance, index) among the *other* points of the
    graph, or all of them if there are fewer. PyG searches k + 1 points, drops the point itself and
    does not define ties. So results differ only for ties, and if more than k points coincide.

    Parameters
    ----------
    x
        (N, F) or (N,) points of any dtype and device, finite and at most 1e150; the search runs on
        the CPU. Distances are float32 for up to three columns of float32 or half precision, else
        float64.
    k
        Neighbours per point, at least 1.
    batch
        (N,) graph of each point, ascending; None for one graph.
    loop
        Include the point itself as the first of its k neighbours.
    flow
        ``source_to_target``: edges lead from the neighbour to the point; ``target_to_source``: the
        reverse.
    cosine
        Compare rows scaled to length 1 (in float64), which sorts by cosine distance; rows of zeros
        are not scaled.
    num_workers, batch_size
        Accepted for compatibility, without effect: threads are set by
        :func:`~kmip_data.runtime.parallel.set_num_threads`, and empty graphs need no count.

    Returns
    -------
    Tensor
        (2, E) int64 on the device of ``x``, grouped by point, nearest first.

    Raises
    ------
    UsageError
        An argument is invalid.
    DamagedInput
        A coordinate is NaN or too large.
    """
    if not isinstance(k, (int, np.integer)) or k < 1:
        raise UsageError(f"k must be an integer of at least 1, not {k!r}.")
    k = int(k)
    points, ptr = _check_points(x, batch, flow, batch_size)
    if cosine:
        points = points.astype(np.float64)
        length = np.sqrt(np.square(points).sum(1, keepdims=True))
        points = points / np.where(length > 0, length, 1)
    edges = []
    for start, stop in pairwise(ptr):
        neighbors = min(k - loop, stop - start - 1)
        table = _nearest_neighbors(points[start:stop], neighbors, squares=False).table + start
        nodes = np.arange(start, stop)
        if loop:
            table = np.concatenate([nodes[:, None], table], 1)
        targets = np.repeat(nodes, table.shape[1])
        edges.append(np.stack([table.ravel(), targets]))
    return _edge_tensor(edges, flow, x.device)


def radius_graph(
    x: Tensor,
    r: float,
    batch: Tensor | None = None,
    loop: bool = False,
    max_num_neighbors: int | None = 32,
    flow: str = "source_to_target",
    num_workers: int = 1,  # noqa: ARG001 -- PyTorch Geometric's
    batch_size: int | None = None,
) -> Tensor:
    """Return edges to each point from all points nearer than ``r``, like ``torch_geometric.nn.radius_graph``.

    A point is a neighbour if its squared distance is less than r², as in pyg-lib and torch-cluster.
    If there are more than ``max_num_neighbors``, keep the nearest by (squared distance, index); PyG
    keeps those that its tree visits first.

    Parameters
    ----------
    r
        Radius, at least 0, in the unit of ``x``.
    max_num_neighbors
        Maximum number of neighbours per point, at least 1, including the point itself with
        ``loop``; None for no limit.
    x, batch, loop, flow, num_workers, batch_size
        As for :func:`knn_graph`.

    Returns
    -------
    Tensor
        (2, E) int64 on the device of ``x``, grouped by point, nearest first.

    Raises
    ------
    UsageError, DamagedInput
        As for :func:`knn_graph`.
    """
    if not (isinstance(r, int | float) and r >= 0):
        raise UsageError(f"r must be a number of at least 0, not {r!r}.")
    if max_num_neighbors is not None:
        is_integer = isinstance(max_num_neighbors, (int, np.integer))
        if not is_integer or max_num_neighbors < 1:
            raise UsageError(
                f"max_num_neighbors must be at least 1 or None, not {max_num_neighbors!r}."
            )
    points, ptr = _check_points(x, batch, flow, batch_size)

    edges = []
    for start, stop in pairwise(ptr):
        max_k = stop - start - 1
        if max_num_neighbors is not None:
            max_k = min(int(max_num_neighbors) - loop, max_k)

        # Search 32 neighbours, and double their number while the last one of any row is inside.
        k = min(32, max_k)
        neighbors = _nearest_neighbors(points[start:stop], k)
        largest = float(np.finfo(neighbors.squared_distances.dtype).max)
        limit = neighbors.squared_distances.dtype.type(min(r * r, largest))
        while k < max_k and bool((neighbors.squared_distances[:, -1] < limit).any()):
            k = min(2 * k, max_k)
            neighbors = _nearest_neighbors(points[start:stop], k)

        is_inside = neighbors.squared_distances < limit
        table = neighbors.table + start
        nodes = np.arange(start, stop)
        if loop and r > 0:
            table = np.concatenate([nodes[:, None], table], 1)
            is_inside = np.pad(is_inside, ((0, 0), (1, 0)), constant_values=True)
        targets = np.repeat(nodes, is_inside.sum(1))
        edges.append(np.stack([table[is_inside], targets]))
    return _edge_tensor(edges, flow, x.device)


def _check_points(
    x: Tensor,
    batch: Tensor | None,
    flow: str,
    batch_size: int | None,
) -> tuple[Array, list[int]]:
    """Return points (N, F), float32 or float64, and the first row of each graph, followed by N."""
    requirement = "x must be a tensor of shape (N, F), not"
    if not isinstance(x, Tensor):
        raise UsageError(f"{requirement} {type(x).__name__}.")
    if x.ndim not in {1, 2} or x.is_complex() or x.layout != torch.strided:
        raise UsageError(f"{requirement} {x.dtype} of shape {tuple(x.shape)}.")
    if flow not in FLOWS:
        raise UsageError(f"flow must be {FLOWS[0]} or {FLOWS[1]}, not {flow!r}.")

    x = x.detach().cpu()
    if x.ndim == 1:
        x = x[:, None]
    is_narrow = x.is_floating_point() and x.dtype != torch.float64
    points = x.to(torch.float32 if is_narrow else torch.float64).numpy()

    limit = min(MAX_COORDINATE, float(np.finfo(points.dtype).max))
    is_valid = (np.abs(points) <= limit).all(axis=1)  # False for NaN
    if not is_valid.all():
        raise DamagedInput(
            f"x must be finite and at most {MAX_COORDINATE:g}: point {int(is_valid.argmin())} is not."
        )

    if batch is None:
        return points, [0, len(points)]
    ptr = pointers_from_numbers(torch.as_tensor(batch), len(points)).tolist()
    if batch_size is not None and len(ptr) - 1 > batch_size:
        raise UsageError(f"batch names graph {len(ptr) - 2}, and batch_size is {batch_size}.")
    return points, ptr


def pointers_from_numbers(numbers: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the first node of each graph (G + 1,) from the sorted graph numbers of the nodes (rows,)."""
    has_integers = isinstance(numbers, torch.Tensor) and numbers.dtype in {torch.int32, torch.int64}
    is_valid = has_integers and numbers.shape == (rows,)
    if is_valid:
        steps = numbers.diff(prepend=numbers.new_zeros(1))
        is_valid = not bool((steps < 0).any())
    if not is_valid:
        raise UsageError(
            f"batch must be {rows} non-decreasing integers from 0, the graph of each node.",
            steps="order the nodes by graph, as Batch.from_data_list does",
        )
    return torch.nn.functional.pad(numbers.bincount().cumsum(0), (1, 0))


def _nearest_neighbors(points: Array, k: int, *, squares: bool = True) -> Neighbors:
    """Return the k nearest other points of each point, for k < n; squared distances are optional."""
    n, width = points.shape
    if k < 1:
        return Neighbors(np.empty((n, 0), np.int64), np.empty((n, 0), points.dtype))
    if width and (points.dtype != np.float32 or width > 3):
        return _neighbors_with_ordered_ties(points.astype(np.float64), k)

    points = points.astype(np.float32, copy=False)
    points = np.pad(points, ((0, 0), (0, 3 - width)))  # columns of zeros change no distance
    table = knn_table(points, k).astype(np.int64)
    if not squares:
        return Neighbors(table, points[:0])
    # Sum in the order of the tree, (x + y) + z: another order would round and break ties differently.
    with np.errstate(over="ignore", under="ignore"):
        x, y, z = (np.square(points[table, axis] - points[:, None, axis]) for axis in range(3))
        return Neighbors(table, (x + y) + z)


def _neighbors_with_ordered_ties(points: F64, k: int) -> Neighbors:
    """Sort the results of a search with undefined ties by (squared distance, index).

    The search returns a few more than k points. A row is done once its k-th neighbour is certainly
    nearer than all points that were not returned; the other rows search twice as many points.
    """
    n, width = points.shape
    count = k + 9
    pending = np.arange(n)
    neighbors = Neighbors(np.empty((n, k), np.int64), np.empty((n, k)))
    # Only the first k + 1 of several coincident points can be neighbours. Without this, the search
    # would have to return all of them (100,000 points, half of them coincident: hours).
    order = np.lexsort(points.T)
    starts_group = np.concatenate([[True], (np.diff(points[order], axis=0) != 0).any(1)])
    positions = np.arange(n)
    rank = positions - np.maximum.accumulate(np.where(starts_group, positions, 0))
    candidates = np.sort(order[rank <= k])
    prepare = _tree_query if width <= MAX_TREE_COLUMNS else _matrix_product_query
    query = prepare(points[candidates])

    while len(pending):
        count = min(count, len(candidates))
        undecided = []
        rows = max(1, BLOCK_VALUES // max(count * width, len(candidates)))
        for first in range(0, len(pending), rows):
            block = pending[first : first + rows]
            index, bound = query(points[block], count)
            index = candidates[index]

            # Recompute squared distances from differences: the search may round them differently.
            delta = points[index]
            delta -= points[block, None]
            square = np.square(delta, out=delta).sum(-1)
            square[index == block[:, None]] = np.inf  # a point is not its own neighbour

            # Resolve ties by (squared distance, index).
            nearest = np.lexsort((index, square))[:, :k]
            neighbors.table[block] = np.take_along_axis(index, nearest, 1)
            neighbors.squared_distances[block] = np.take_along_axis(square, nearest, 1)

            # Repeat rows for which a point that was not returned may be as near as the k-th.
            if count < len(candidates):
                undecided.append(block[neighbors.squared_distances[block, -1] >= bound])
        pending = np.concatenate([pending[:0], *undecided])
        count = count * 2
    return neighbors


#: Function that returns the indices (rows, count) of the points nearest to each row, and a lower
#: bound (rows,) of the squared distances of all other points.
Query = Callable[[F64, int], tuple[Array, F64]]


def _tree_query(points: F64) -> Query:
    from scipy.spatial import cKDTree

    tree = cKDTree(points)

    def query(rows: F64, count: int) -> tuple[Array, F64]:
        distance, index = tree.query(rows, k=range(1, count + 1), workers=num_threads())
        return index, distance[:, -1] ** 2 * (1 - TOLERANCE)

    return query


def _matrix_product_query(points: F64) -> Query:
    """Search by a matrix product: 2,708 points of 1,433 columns take 2.4 s, with a tree 30 s."""
    center = points.mean(0)
    shifted = points - center
    norms = np.square(shifted).sum(1)
    doubled = 2 * shifted.T
    error = 8 * (points.shape[1] + 4) * np.finfo(np.float64).eps * norms.max(initial=0)

    def query(rows: F64, count: int) -> tuple[Array, F64]:
        shifted_rows = rows - center
        square = np.square(shifted_rows).sum(1)[:, None] + norms - shifted_rows @ doubled
        index = np.argpartition(square, count - 1, axis=1)[:, :count]
        return index, np.take_along_axis(square, index, 1).max(1) - error

    return query


def _edge_tensor(edges_of_graphs: list[Array], flow: str, device: torch.device) -> Tensor:
    edges = np.concatenate([np.empty((2, 0), np.int64), *edges_of_graphs], 1)
    if flow != FLOWS[0]:
        edges = edges[::-1].copy()
    return torch.from_numpy(edges).to(device)
