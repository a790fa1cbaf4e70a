"""k-NN and radius graphs of tensors, called as PyTorch Geometric's and without its compiled extensions.

Up to three columns of float32 go through the tree of :mod:`kmip_data.graphs.knn`; other points, in float64,
through SciPy's tree or a matrix product, and their neighbours are put into a defined order.
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
from kmip_data.runtime.threads import num_threads

FLOWS = ("source_to_target", "target_to_source")
MOST = 1e150  #: largest coordinate, whose square is finite
ROOM = (
    2**22
)  #: numbers of a block of differences: 32 MB, of 1 to 128 MB the fastest (2.4 s; 3.1, 3.9)
WIDE = 16  #: most columns in which a tree leaves anything out
SLACK = 1e-9  #: relative; far above the rounding of a sum of squares, far below what costs a second query


class Near(NamedTuple):
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

    Neighbours are the k smallest (squared distance, index) among the *other* points of the graph, all of them
    where there are fewer, so ties are decided. PyG asks for k + 1 points, drops the point itself and leaves
    ties open: the two differ in ties alone, and where more than k points coincide.

    Parameters
    ----------
    x
        (N, F) or (N,) points of any dtype and device, finite and at most 1e150; the search runs on the
        CPU. Distances are float32 for up to three columns of float32 or half precision, else float64.
    k
        Neighbours of a point, at least 1.
    batch
        (N,) graph of each point, ascending; None: one graph.
    loop
        Begin each row with the point itself, which counts as one of the k.
    flow
        ``source_to_target``: edges lead from the neighbour to the point; ``target_to_source``: the reverse.
    cosine
        Compare rows scaled to length 1 (in float64), the order of the cosine distance; rows of zeros stay.
    num_workers, batch_size
        Taken as PyG takes them, without effect: threads are those of
        :func:`~kmip_data.runtime.threads.set_num_threads`, and graphs without points need no count.

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
        raise UsageError(f"k must be a whole number of at least 1, not {k!r}.")
    k = int(k)
    points, ptr = _checked(x, batch, flow, batch_size)
    if cosine:
        points = points.astype(np.float64)
        length = np.sqrt(np.square(points).sum(1, keepdims=True))
        points = points / np.where(length > 0, length, 1)
    parts = []
    for start, stop in pairwise(ptr):
        near = (
            _nearest(points[start:stop], min(k - loop, stop - start - 1), squares=False).table
            + start
        )
        own = np.arange(start, stop)
        table = np.concatenate([own[:, None], near], 1) if loop else near
        parts.append(np.stack([table.ravel(), np.repeat(own, table.shape[1])]))
    return _edges(parts, flow, x.device)


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

    A point is a neighbour where its squared distance is less than r², as in pyg-lib and torch-cluster. Of
    more than ``max_num_neighbors`` the nearest stay, by (squared distance, index); PyG keeps those that its
    tree meets first.

    Parameters
    ----------
    r
        Radius, at least 0, in the unit of ``x``.
    max_num_neighbors
        Most neighbours of a point, at least 1, with ``loop`` the point itself among them; None: no limit.
    x, batch, loop, flow, num_workers, batch_size
        As those of :func:`knn_graph`.

    Returns
    -------
    Tensor
        (2, E) int64 on the device of ``x``, grouped by point, nearest first.

    Raises
    ------
    UsageError, DamagedInput
        As :func:`knn_graph`.
    """
    limits = max_num_neighbors is not None
    if not (isinstance(r, int | float) and r >= 0):
        raise UsageError(f"r must be a number of at least 0, not {r!r}.")
    if limits and not (isinstance(max_num_neighbors, (int, np.integer)) and max_num_neighbors >= 1):
        raise UsageError(
            f"max_num_neighbors must be at least 1 or None, not {max_num_neighbors!r}."
        )
    points, ptr = _checked(x, batch, flow, batch_size)
    parts = []
    for start, stop in pairwise(ptr):
        others = stop - start - 1
        most = others if max_num_neighbors is None else min(int(max_num_neighbors) - loop, others)
        k = min(32, most)
        near = _nearest(points[start:stop], k)
        square = near.square.dtype.type(min(r * r, float(np.finfo(near.square.dtype).max)))
        while k < most and bool(
            (near.square[:, -1] < square).any()
        ):  # more may follow the last one
            k = min(2 * k, most)
            near = _nearest(points[start:stop], k)
        inside = near.square < square
        table = near.table + start
        own = np.arange(start, stop)
        if loop and r > 0:
            table = np.concatenate([own[:, None], table], 1)
            inside = np.pad(inside, ((0, 0), (1, 0)), constant_values=True)
        parts.append(np.stack([table[inside], np.repeat(own, inside.sum(1))]))
    return _edges(parts, flow, x.device)


def _checked(
    x: Tensor, batch: Tensor | None, flow: str, batch_size: int | None
) -> tuple[Array, list[int]]:
    """Return points (N, F), float32 or float64, and the first row of each graph with N behind them."""
    if (
        not isinstance(x, Tensor)
        or x.ndim not in {1, 2}
        or x.is_complex()
        or x.layout != torch.strided
    ):
        found = (
            f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        )
        raise UsageError(f"x must be a tensor of shape (N, F), not {found}.")
    if flow not in FLOWS:
        raise UsageError(f"flow must be {FLOWS[0]} or {FLOWS[1]}, not {flow!r}.")
    x = x.detach().cpu()
    x = x[:, None] if x.ndim == 1 else x
    narrow = x.is_floating_point() and x.dtype != torch.float64
    points = x.to(torch.float32 if narrow else torch.float64).numpy()
    most = min(MOST, float(np.finfo(points.dtype).max))
    fits = (np.abs(points) <= most).all(axis=1)  # False for NaN
    if not fits.all():
        raise DamagedInput(
            f"x must be finite and at most {MOST:g}: point {int(fits.argmin())} is not."
        )
    if batch is None:
        return points, [0, len(points)]
    graph = batch.detach().cpu().numpy() if isinstance(batch, Tensor) else np.array(batch)
    whole = graph.shape == (len(points),) and graph.dtype.kind in "iu"
    graph = (
        graph.astype(np.int64) if whole else graph
    )  # differences of unsigned numbers are never negative
    if not whole or (len(graph) and graph[0] < 0) or (np.diff(graph) < 0).any():
        raise UsageError(
            f"batch must be {len(points)} whole numbers from 0, ascending, one for each point."
        )
    if batch_size is not None and len(graph) and graph[-1] >= batch_size:
        raise UsageError(f"batch names graph {graph[-1]}, and batch_size is {batch_size}.")
    return points, [0, *(np.flatnonzero(np.diff(graph)) + 1).tolist(), len(points)]


def _nearest(points: Array, k: int, *, squares: bool = True) -> Near:
    """Return the k nearest others of each point, for k < n, with their squares or without."""
    n, width = points.shape
    if k < 1:
        return Near(np.empty((n, 0), np.int64), np.empty((n, 0), points.dtype))
    if not width or (points.dtype == np.float32 and width <= 3):
        points = points.astype(np.float32, copy=False)
        points = np.pad(points, ((0, 0), (0, 3 - width)))  # a column of zeros adds 0 to each sum
        table = knn_table(points, k).astype(np.int64)
        if not squares:
            return Near(table, points[:0])
        with np.errstate(over="ignore", under="ignore"):
            x, y, z = (np.square(points[table, axis] - points[:, None, axis]) for axis in range(3))
            return Near(table, (x + y) + z)
    return _in_order(points.astype(np.float64), k)


def _in_order(points: F64, k: int) -> Near:
    """Return the k nearest others by a search whose ties come in any order, put into ours.

    The search is asked for a few more than k. A row is done when its k-th surely lies nearer than all points
    that were not given; for the others the search is asked for twice as many.
    """
    n, width = points.shape
    asked = k + 9
    todo = np.arange(n)
    near = Near(np.empty((n, k), np.int64), np.empty((n, k)))
    # Of points that coincide, only the first k + 1 can be anyone's neighbours; a search among all of them
    # would be asked for all of them (100,000 points, half of them in one place: hours).
    order = np.lexsort(points.T)
    begins = np.concatenate([[True], (np.diff(points[order], axis=0) != 0).any(1)])
    rank = np.arange(n) - np.maximum.accumulate(np.where(begins, np.arange(n), 0))
    kept = np.sort(order[rank <= k])
    query = _by_tree(points[kept]) if width <= WIDE else _by_products(points[kept])
    while len(todo):
        asked = min(asked, len(kept))
        left = []
        rows = max(1, ROOM // max(asked * width, len(kept)))
        for part in (todo[i : i + rows] for i in range(0, len(todo), rows)):
            index, bound = query(points[part], asked)
            index = kept[index]
            delta = points[index]
            delta -= points[part, None]
            square = np.square(delta, out=delta).sum(-1)
            square[index == part[:, None]] = np.inf  # a point is not its own neighbour
            best = np.lexsort((index, square))[:, :k]
            near.table[part] = np.take_along_axis(index, best, 1)
            near.square[part] = np.take_along_axis(square, best, 1)
            left.append(part[(near.square[part, -1] >= bound) & (asked < len(kept))])
        todo = np.concatenate(left)
        asked = asked * 2
    return near


#: Gives indices (rows, asked) of the points nearest to each row, and a bound (rows,) that no squared distance
#: of another point is below.
Query = Callable[[F64, int], tuple[Array, F64]]


def _by_tree(points: F64) -> Query:
    from scipy.spatial import cKDTree

    tree = cKDTree(points)

    def query(rows: F64, asked: int) -> tuple[Array, F64]:
        distance, index = tree.query(rows, k=range(1, asked + 1), workers=num_threads())
        return index, distance[:, -1] ** 2 * (1 - SLACK)

    return query


def _by_products(points: F64) -> Query:
    """Distances from a matrix product: 2,708 points of 1,433 columns cost a tree 30 s, and this 2.4."""
    center = points.mean(0)
    shifted = points - center
    norms = np.square(shifted).sum(1)
    doubled = 2 * shifted.T
    error = 8 * (points.shape[1] + 4) * np.finfo(np.float64).eps * norms.max(initial=0)

    def query(rows: F64, asked: int) -> tuple[Array, F64]:
        square = np.square(rows - center).sum(1)[:, None] + norms - (rows - center) @ doubled
        index = np.argpartition(square, asked - 1, axis=1)[:, :asked]
        return index, np.take_along_axis(square, index, 1).max(1) - error

    return query


def _edges(parts: list[Array], flow: str, device: torch.device) -> Tensor:
    edges = np.concatenate([np.empty((2, 0), np.int64), *parts], 1)
    return torch.from_numpy(edges if flow == FLOWS[0] else edges[::-1].copy()).to(device)
