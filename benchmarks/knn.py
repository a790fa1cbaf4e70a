"""k-NN in exact order, against scipy's tree with corrected order, on one thread."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import Row
from benchmarks.turns import compare

Clouds = list[NDArray[np.float32]]
SHAPE_POINTS = 2_616  #: average of ShapeNet-Part


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on sample rooms, which have many coincident points, and on uniform points."""
    import h5py

    from kmip_data.pipelines.datasets.s3dis.sample import write_sample
    from kmip_data.runtime.parallel import set_num_threads

    count, repeats = (2, 3) if quick else (8, 15)
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder), None, count, 0)
        with h5py.File(Path(folder) / "ply_data_all_0.h5") as file:
            rooms = [np.ascontiguousarray(block[:, :3]) for block in file["data"][...]]
    rng = np.random.default_rng(0)
    uniform = [rng.random((4_096, 3), dtype=np.float32) for _ in range(count)]
    shapes = [room[np.sort(rng.choice(len(room), SHAPE_POINTS, replace=False))] for room in rooms]
    try:
        set_num_threads(1)
        return [
            _row("4,096 points of a room, k = 32", rooms, 32, repeats, target=2.0),
            _row("4,096 uniform points, k = 32", uniform, 32, repeats),
            _row(f"{SHAPE_POINTS:,} points of a room, k = 8", shapes, 8, repeats),
            *_graph_rows(rng.random((20_000 if quick else 100_000, 3), dtype=np.float32), repeats),
        ]
    finally:
        set_num_threads(None)


def _row(what: str, clouds: Clouds, k: int, repeats: int, *, target: float | None = None) -> Row:
    from kmip_data.graphs.knn import knn_table

    for cloud in clouds:
        assert np.array_equal(knn_table(cloud, k), exact_scipy_knn(cloud, k))
    ours, theirs = (
        lambda of=of: [of(cloud, k) for cloud in clouds] for of in (knn_table, exact_scipy_knn)
    )
    times = compare(ours, theirs, repeats=repeats)
    what, against = (
        f"k-NN of {what}, in the exact order",
        "scipy cKDTree, one worker, order fixed up",
    )
    note = "k-NN: sample rooms, whose blocks hold 15 to 30 % coincident points; one thread on both sides"
    return Row.from_times(what, against, times, per=len(clouds), target=target, note=note)


def _graph_rows(cloud: NDArray[np.float32], repeats: int) -> list[Row]:
    """Measure ``knn_graph`` against pykdtree or SciPy's tree, with ordered and unordered ties."""
    import torch
    from threadpoolctl import threadpool_limits

    from kmip_data.graphs import knn_graph

    try:
        from pykdtree.kdtree import KDTree

        against = "pykdtree, one thread"
    except ImportError:
        from scipy.spatial import cKDTree as KDTree

        against = "scipy cKDTree, one worker (pykdtree is not installed)"

    def edges(table: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(
            np.stack([table.ravel().astype(np.int64), np.repeat(np.arange(len(cloud)), 16)])
        )

    points, what = torch.from_numpy(cloud), f"knn_graph of {len(cloud):,} uniform points, k = 16"
    sides = {
        f"{against}, order fixed up": lambda: edges(exact_knn(cloud, 16, KDTree)),
        f"{against}, ties in any order": lambda: edges(
            KDTree(cloud).query(cloud, k=17)[1][:, 1:].astype(int)
        ),
    }
    rows = []
    for name, theirs in sides.items():
        exact = "fixed" in name
        same = (knn_graph(points, 16) == theirs()).float().mean()
        assert same == 1 if exact else same > 0.999, "the two sides do not agree"
        with threadpool_limits(1):
            times = compare(lambda: knn_graph(points, 16), theirs, repeats=min(repeats, 7))
        rows.append(Row.from_times(what, name, times, target=2.0 if exact else None))
    return rows


def exact_scipy_knn(pos: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return the k-NN by (float32 squared distance, index) with scipy's tree."""
    from scipy.spatial import cKDTree

    return exact_knn(pos, k, cKDTree)


def exact_knn(pos: NDArray[np.float32], k: int, kind: type[Any]) -> NDArray[np.int64]:
    """Return the k-NN by (float32 squared distance, index) with a tree whose ties are unordered.

    Requests more than k neighbours. A row is finished if its k-th neighbour is certainly nearer
    than the farthest requested one; otherwise request twice as many.
    """
    n = len(pos)
    requested = k + 9
    tree = kind(pos)
    remaining = np.arange(n)
    table = np.empty((n, k), np.int64)
    while len(remaining):
        requested = min(requested, n)
        distance, index = tree.query(pos[remaining], k=requested)
        delta = pos[index] - pos[remaining][:, None]
        squares = delta * delta
        exact = (squares[..., 0] + squares[..., 1]) + squares[..., 2]
        keys = (exact.view(np.int32).astype(np.int64) << 32) | index
        keys[index == remaining[:, None]] = np.iinfo(np.int64).max
        keys.sort(axis=1)
        table[remaining] = keys[:, :k] & 0xFFFFFFFF
        kth = (keys[:, k - 1] >> 32).astype(np.int32).view(np.float32)
        is_finished = (kth < distance[:, -1] ** 2 * (1 - 1e-6)) | (requested == n)
        remaining = remaining[~is_finished]
        requested *= 2
    return table
