"""k-NN and radius graphs of tensors, called as PyTorch Geometric's and without its compiled extensions.

Up to three columns of float32 go through the tree of :mod:`kmip_data.graphs.knn`; other points, in
float64, through SciPy's tree or a matrix product, and their neighbours are put into a defined
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
MAX_COORDINATE = 1e150  #: largest coordinate, whose square is finite
#: Numbers of a block of differences: 32 MB, of 1 to 128 MB the fastest (2.4 s; 3.1, 3.9).
BLOCK_NUMBERS = 2**22
WIDE = 16  #: most columns in which a tree leaves anything out
SLACK = 1e-9  #: relative; far above the rounding of a sum of squares, far below what costs a second query


class Neighbors(NamedTuple):
    """The k nearest other points of each point, by (squared distance, index)."""

    table: Array  #: (n, k)
    square: Array  #: (n, k) squared distances, in the arithmetic that decided


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
    """Return edges from the k nearest points of its graph to each point, as ``torch_geometric.nn.knn_graph``.

    Neighbours are the k smallest (squared distance, index) among the *other* points of the graph,
    all of them where there are fewer, so ties are decided. PyG asks for k + 1 points, drops the
    point itself and leaves ties open: the two differ in ties alone, and where more than k points
    coincide.

    Parameters
    ----------
    x
        (N, F) or (N,) points of any dtype and device, finite and at most 1e150; the search runs on
        the CPU. Distances are float32 for up to three columns of float32 or half precision, else
        float64.
    k
        Neighbours of a point, at least 1.
    batch
        (N,) graph of each point, ascending; None: one graph.
    loop
        Begin each row with the point itself, which counts as one of the k.
    flow
        ``source_to_target``: edges lead from the neighbour to the point; ``target_to_source``: the
        reverse.
    cosine
        Compare rows scaled to length 1 (in float64), the order of the cosine distance; rows of
        zeros stay.
    num_workers, batch_size
        Taken as PyG takes them, without effect: threads are set by
        :func:`~kmip_data.runtime.parallel.set_num_threads`, and graphs without points need no count.

    Returns
    -------
    Tensor
        (2, E) int64 on the device of ``x``, grouped by point, nearest first.

    Raises
    ------
    UsageError
        An argument is not of its kind.
    DamagedInput
        A coordinate is NaN, or larger.
    """
    if not isinstance(k, (int, np.integer)) or k < 1:
        raise UsageError(f"k must be an integer of at least 1, not {k!r}.")
    k = int(k)
    points, ptr = _check_points(x, batch, flow, batch_size)
    if cosine:
        points = points.astype(np.float64)
        length = np.sqrt(np.square(points).sum(1, keepdims=True))
        points = points / np.where(length > 0, length, 1)
    parts = []
    for start, stop in pairwise(ptr):
        others = min(k - loop, stop - start - 1)
        table = _nearest_neighbors(points[start:stop], others, squares=False).table + start
        nodes = np.arange(start, stop)
        if loop:
            table = np.concatenate([nodes[:, None], table], 1)
        targets = np.repeat(nodes, table.shape[1])
        parts.append(np.stack([table.ravel(), targets]))
    return _edge_tensor(parts, flow, x.device)


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
    """Return edges from all points nearer than ``r`` to each point, as ``torch_geometric.nn.radius_graph``.

    A point is a neighbour where its squared distance is less than r², as in pyg-lib and
    torch-cluster. Of more than ``max_num_neighbors`` the nearest stay, by (squared distance,
    index); PyG keeps those that its tree meets first.

    Parameters
    ----------
    r
        Radius, at least 0, in the unit of ``x``.
    max_num_neighbors
        Most neighbours of a point, at least 1, with ``loop`` the point itself among them; None: no
        limit.
    x, batch, loop, flow, num_workers, batch_size
        As for :func:`knn_graph`.

    Returns
    -------
    Tensor
        (2, E) int64 on the device of ``x``, grouped by point, nearest first.

    Raises
    ------
    UsageError, DamagedInput
        As :func:`knn_graph`.
    """
    if not (isinstance(r, int | float) and r >= 0):
        raise UsageError(f"r must be a number of at least 0, not {r!r}.")
    if max_num_neighbors is not None:
        whole = isinstance(max_num_neighbors, (int, np.integer))
        if not whole or max_num_neighbors < 1:
            raise UsageError(
                f"max_num_neighbors must be at least 1 or None, not {max_num_neighbors!r}."
            )
    points, ptr = _check_points(x, batch, flow, batch_size)

    parts = []
    for start, stop in pairwise(ptr):
        most = stop - start - 1
        if max_num_neighbors is not None:
            most = min(int(max_num_neighbors) - loop, most)

        # Search 32 neighbours, then twice as many while a row may go on past its last neighbour.
        k = min(32, most)
        neighbors = _nearest_neighbors(points[start:stop], k)
        largest = float(np.finfo(neighbors.square.dtype).max)
        limit = neighbors.square.dtype.type(min(r * r, largest))
        while k < most and bool((neighbors.square[:, -1] < limit).any()):
            k = min(2 * k, most)
            neighbors = _nearest_neighbors(points[start:stop], k)

        inside = neighbors.square < limit
        table = neighbors.table + start
        nodes = np.arange(start, stop)
        if loop and r > 0:
            table = np.concatenate([nodes[:, None], table], 1)
            inside = np.pad(inside, ((0, 0), (1, 0)), constant_values=True)
        targets = np.repeat(nodes, inside.sum(1))
        parts.append(np.stack([table[inside], targets]))
    return _edge_tensor(parts, flow, x.device)


def _check_points(
    x: Tensor,
    batch: Tensor | None,
    flow: str,
    batch_size: int | None,
) -> tuple[Array, list[int]]:
    """Return points (N, F), float32 or float64, and the first row of each graph with N behind them."""
    shape_expected = "x must be a tensor of shape (N, F), not"
    if not isinstance(x, Tensor):
        raise UsageError(f"{shape_expected} {type(x).__name__}.")
    if x.ndim not in {1, 2} or x.is_complex() or x.layout != torch.strided:
        raise UsageError(f"{shape_expected} {x.dtype} of shape {tuple(x.shape)}.")
    if flow not in FLOWS:
        raise UsageError(f"flow must be {FLOWS[0]} or {FLOWS[1]}, not {flow!r}.")

    x = x.detach().cpu()
    if x.ndim == 1:
        x = x[:, None]
    narrow = x.is_floating_point() and x.dtype != torch.float64
    points = x.to(torch.float32 if narrow else torch.float64).numpy()

    most = min(MAX_COORDINATE, float(np.finfo(points.dtype).max))
    fits = (np.abs(points) <= most).all(axis=1)  # False for NaN
    if not fits.all():
        raise DamagedInput(
            f"x must be finite and at most {MAX_COORDINATE:g}: point {int(fits.argmin())} is not."
        )

    if batch is None:
        return points, [0, len(points)]
    ptr = pointers_from_numbers(torch.as_tensor(batch), len(points)).tolist()
    if batch_size is not None and len(ptr) - 1 > batch_size:
        raise UsageError(f"batch names graph {len(ptr) - 2}, and batch_size is {batch_size}.")
    return points, ptr


def pointers_from_numbers(graph: torch.Tensor, rows: int) -> torch.Tensor:
    """Return (G + 1) first nodes of the graphs, from the sorted graph numbers (``rows``,) of the nodes."""
    whole = isinstance(graph, torch.Tensor) and graph.dtype in {torch.int32, torch.int64}
    valid = whole and graph.shape == (rows,)
    if valid:
        steps = graph.diff(prepend=graph.new_zeros(1))
        valid = not bool((steps < 0).any())
    if not valid:
        raise UsageError(
            f"batch must be {rows} non-decreasing integers from 0, the graph of each node.",
            next="order the nodes by graph, as Batch.from_data_list does",
        )
    return torch.nn.functional.pad(graph.bincount().cumsum(0), (1, 0))


def _nearest_neighbors(points: Array, k: int, *, squares: bool = True) -> Neighbors:
    """Return the k nearest others of each point, for k < n, with their squares or without."""
    n, width = points.shape
    if k < 1:
        return Neighbors(np.empty((n, 0), np.int64), np.empty((n, 0), points.dtype))
    if width and (points.dtype != np.float32 or width > 3):
        return _neighbors_with_ordered_ties(points.astype(np.float64), k)

    points = points.astype(np.float32, copy=False)
    points = np.pad(points, ((0, 0), (0, 3 - width)))  # a column of zeros adds 0 to each sum
    table = knn_table(points, k).astype(np.int64)
    if not squares:
        return Neighbors(table, points[:0])
    # Added in the order of the tree, (x + y) + z: another order rounds differently and breaks ties.
    with np.errstate(over="ignore", under="ignore"):
        x, y, z = (np.square(points[table, axis] - points[:, None, axis]) for axis in range(3))
        return Neighbors(table, (x + y) + z)


def _neighbors_with_ordered_ties(points: F64, k: int) -> Neighbors:
    """Return the k nearest others by a search whose ties come in any order, put into ours.

    The search is asked for a few more than k. A row is done when its k-th surely lies nearer than
    all points that were not given; for the others the search is asked for twice as many.
    """
    n, width = points.shape
    count = k + 9
    todo = np.arange(n)
    neighbors = Neighbors(np.empty((n, k), np.int64), np.empty((n, k)))
    # Of points that coincide, only the first k + 1 can be anyone's neighbours; a search among all
    # of them would be asked for all of them (100,000 points, half of them in one place: hours).
    order = np.lexsort(points.T)
    begins = np.concatenate([[True], (np.diff(points[order], axis=0) != 0).any(1)])
    positions = np.arange(n)
    rank = positions - np.maximum.accumulate(np.where(begins, positions, 0))
    candidates = np.sort(order[rank <= k])
    prepare = _tree_query if width <= WIDE else _matrix_product_query
    query = prepare(points[candidates])

    while len(todo):
        count = min(count, len(candidates))
        undecided = []
        rows = max(1, BLOCK_NUMBERS // max(count * width, len(candidates)))
        for first in range(0, len(todo), rows):
            block = todo[first : first + rows]
            index, bound = query(points[block], count)
            index = candidates[index]

            # Squared distances by differences: the search's may round differently.
            delta = points[index]
            delta -= points[block, None]
            square = np.square(delta, out=delta).sum(-1)
            square[index == block[:, None]] = np.inf  # a point is not its own neighbour

            # The order (squared distance, index) decides ties.
            best = np.lexsort((index, square))[:, :k]
            neighbors.table[block] = np.take_along_axis(index, best, 1)
            neighbors.square[block] = np.take_along_axis(square, best, 1)

            # A point that was not given may be as near as the k-th: search these rows again.
            if count < len(candidates):
                undecided.append(block[neighbors.square[block, -1] >= bound])
        todo = np.concatenate([todo[:0], *undecided])
        count = count * 2
    return neighbors


#: Gives indices (rows, count) of the points nearest to each row, and a bound (rows,) that no
#: squared distance of another point is below.
Query = Callable[[F64, int], tuple[Array, F64]]


def _tree_query(points: F64) -> Query:
    from scipy.spatial import cKDTree

    tree = cKDTree(points)

    def query(rows: F64, count: int) -> tuple[Array, F64]:
        distance, index = tree.query(rows, k=range(1, count + 1), workers=num_threads())
        return index, distance[:, -1] ** 2 * (1 - SLACK)

    return query


def _matrix_product_query(points: F64) -> Query:
    """Distances from a matrix product: 2,708 points of 1,433 columns cost a tree 30 s, and this 2.4."""
    center = points.mean(0)
    shifted = points - center
    norms = np.square(shifted).sum(1)
    doubled = 2 * shifted.T
    error = 8 * (points.shape[1] + 4) * np.finfo(np.float64).eps * norms.max(initial=0)

    def query(rows: F64, count: int) -> tuple[Array, F64]:
        moved = rows - center
        square = np.square(moved).sum(1)[:, None] + norms - moved @ doubled
        index = np.argpartition(square, count - 1, axis=1)[:, :count]
        return index, np.take_along_axis(square, index, 1).max(1) - error

    return query


def _edge_tensor(parts: list[Array], flow: str, device: torch.device) -> Tensor:
    edges = np.concatenate([np.empty((2, 0), np.int64), *parts], 1)
    if flow != FLOWS[0]:
        edges = edges[::-1].copy()
    return torch.from_numpy(edges).to(device)
