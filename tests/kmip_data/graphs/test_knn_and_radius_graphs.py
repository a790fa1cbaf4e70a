"""k-NN and radius graphs equal brute force, scikit-learn and, where it is installed, PyTorch Geometric."""

from __future__ import annotations

import bisect
import importlib.util
import inspect
import math
from itertools import product

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from sklearn.neighbors import NearestNeighbors
from support.raises import raises

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.graphs import knn_graph, radius_graph
from kmip_data.graphs.reference import squared_distances

needs_pyg_lib = pytest.mark.skipif(
    importlib.util.find_spec("pyg_lib") is None, reason="pyg-lib is not installed"
)


def cloud(kind: str, columns: int, n: int = 90) -> torch.Tensor:
    rng = np.random.default_rng(columns)
    points = {
        "random": rng.random((n, columns)),
        "ties": rng.integers(0, 3, (n, columns)),
        "coincident": np.repeat(rng.random((6, columns)), n // 6, 0)[rng.permutation(n)],
        "zeros": np.where(rng.random((n, columns)) < 0.5, 0.0, -0.0),
    }
    return torch.from_numpy(points[kind])


def squares(x: torch.Tensor, i: int) -> np.ndarray:
    """Squared distances from point i, in float32 for three columns of float32."""
    if x.dtype == torch.float32 and x.shape[1] <= 3:
        return squared_distances(np.pad(x.numpy(), ((0, 0), (0, 3 - x.shape[1]))), i)
    return np.square(x.double().numpy() - x.double().numpy()[i]).sum(-1)


def ordered(x, batch=None) -> list[tuple[list[int], list[float]]]:
    """Return for each point the other points of its graph, nearest first, with squared distances."""
    neighbors = []
    for i in range(len(x)):
        d = squares(x, i).tolist()
        same = [j for j in range(len(x)) if j != i and (batch is None or batch[j] == batch[i])]
        row = sorted(same, key=lambda j: (d[j], j))
        neighbors.append((row, [d[j] for j in row]))
    return neighbors


def brute(rows, kind=np.float64, k=None, r=None, most=None, loop=False) -> torch.Tensor:
    """Edges (2, E) from all points in order; a radius is squared in the type of the distances."""
    edges = []
    for i, (row, distances) in enumerate(rows):
        inside = len(row) if r is None else bisect.bisect_left(distances, float(kind(r * r)))
        edges += [(j, i) for j in ([i] * loop + row[:inside])[: k or most]]
    return torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T


DTYPES = (torch.float32, torch.float64, torch.int64, torch.bfloat16)
BATCH = torch.tensor([0] * 30 + [2] * 1 + [3] * 40 + [7] * 19)  # graphs 1 and 4 to 6 have no points


RADII = ((0.0, 32), (0.3, 4), (1.0, 32), (1.0, None), (9.0, None))  #: and most neighbours


@pytest.mark.parametrize(
    ("columns", "name", "dtype"),
    [
        pytest.param(
            *case, marks=[] if case[0] == 3 or case[2] == DTYPES[0] else pytest.mark.torture
        )
        for case in product((1, 2, 3, 4, 20), ("random", "ties", "coincident", "zeros"), DTYPES)
    ],
)
def test_neighbours_equal_brute_force_in_the_defined_order(columns, name, dtype):
    x = cloud(name, columns).to(dtype)
    exact = x.float() if dtype == torch.bfloat16 else x
    kind = squares(exact, 0).dtype.type
    for batch in (None, BATCH):
        rows = ordered(exact, None if batch is None else batch.tolist())
        for loop, k in product((False, True), (1, 6, 200)):
            assert torch.equal(knn_graph(x, k, batch, loop), brute(rows, k=k, loop=loop)), k
        for loop, (r, most) in product((False, True), RADII):
            edges = radius_graph(x, r, batch, loop and r > 0, most)
            wanted = brute(rows, kind, r=r, most=most, loop=loop and r > 0)
            assert torch.equal(edges, wanted), (r, most)


def test_equal_to_scikit_learn():
    for columns, dtype in (
        (3, torch.float32),
        (3, torch.float64),
        (8, torch.float32),
        (40, torch.float32),
    ):
        x = torch.rand(700, columns, generator=torch.Generator().manual_seed(1), dtype=dtype)
        theirs = NearestNeighbors(n_neighbors=9).fit(x.double().numpy())
        wanted = theirs.kneighbors(return_distance=False)
        assert np.array_equal(knn_graph(x, 9)[0].reshape(700, 9), wanted)
        near = theirs.radius_neighbors(radius=0.4, return_distance=False)
        edges = radius_graph(x, 0.4, max_num_neighbors=None)
        rows = [edges[0][edges[1] == i].sort().values.numpy() for i in range(700)]
        assert all(map(np.array_equal, rows, map(np.sort, near)))
        cosine = NearestNeighbors(n_neighbors=9, metric="cosine").fit(x.double().numpy())
        wanted = cosine.kneighbors(return_distance=False)
        assert np.array_equal(knn_graph(x, 9, cosine=True)[0].reshape(700, 9), wanted)


def test_many_coincident_points_take_no_quadratic_work():
    x = torch.rand(60_000, 3, dtype=torch.float64) + 1
    x[::2] = 0
    neighbors = knn_graph(x, 8)[0].reshape(-1, 8)
    assert neighbors[59_998].tolist() == list(range(0, 16, 2))
    assert neighbors[4].tolist() == [0, 2, 6, 8, 10, 12, 14, 16]


def test_arguments_match_pyg():
    for ours, theirs in ((knn_graph, pyg.knn_graph), (radius_graph, pyg.radius_graph)):
        wanted = {name: p.default for name, p in inspect.signature(theirs).parameters.items()}
        assert {name: p.default for name, p in inspect.signature(ours).parameters.items()} == wanted
    x, batch = torch.rand(12, 2, requires_grad=True), torch.arange(3).repeat_interleave(4)
    edges = knn_graph(x, 2, batch, num_workers=4, batch_size=3)
    assert torch.equal(knn_graph(x, 2, batch, flow="target_to_source"), edges.flip(0))
    assert torch.equal(knn_graph(x[:, 0], 2), knn_graph(x[:, :1], 2))
    assert knn_graph(x[:0], 2).shape == knn_graph(x[:1], 2).shape == (2, 0)
    assert radius_graph(torch.tensor([0.0, 1.0, 2.5]), 1.0).shape == (
        2,
        0,
    )  # the radius itself is outside
    assert radius_graph(torch.tensor([0.0, 1.0, 2.5]), 1.001).tolist() == [[1, 0], [0, 1]]
    for radius in (1e30, math.inf, 10**400):
        assert radius_graph(torch.tensor([0.0, 1.0, 2.5]), radius).shape == (2, 6)
    points = torch.zeros(3, 0, dtype=torch.float64)
    assert knn_graph(points, np.int64(1)).tolist() == [[1, 0, 0], [0, 1, 2]]
    assert radius_graph(points, 1.0, max_num_neighbors=np.uint8(1)).tolist() == [
        [1, 0, 0],
        [0, 1, 2],
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"k": 0}, 0),
        ({"k": 2.0}, 2.0),
        ({"flow": "both"}, "both"),
        ({"batch": torch.tensor([1, 0, 0, 0])}, "batch"),
        ({"batch": torch.tensor([1, 0, 0, 0], dtype=torch.uint8)}, "batch"),
        ({"batch": [1, 0, 0, 0]}, "batch"),
        ({"batch": torch.tensor([0, 0])}, "batch"),
        ({"batch": torch.tensor([0, 0, 1, 2]), "batch_size": 2}, 2),
        ({"x": torch.zeros(2, 2, 2)}, "(2, 2, 2)"),
        ({"x": np.zeros((4, 2))}, "ndarray"),
    ],
)
def test_wrong_arguments_are_named(options, named):
    with raises(UsageError, naming=named):
        knn_graph(**{"x": torch.zeros(4, 2), "k": 1, **options})
    for radius in ({"r": -1.0}, {"r": 1.0, "max_num_neighbors": 0}):
        with raises(UsageError, naming=list(radius)[-1]):
            radius_graph(torch.zeros(4, 2), **radius)
    for odd in (np.float32(np.nan), np.float32(-np.inf), np.float64(1e200)):
        with raises(DamagedInput, naming=1):
            knn_graph(torch.from_numpy(np.array([0, odd])), 1)


@needs_pyg_lib
def test_neighbours_without_ties_equal_pyg():
    x = torch.rand(90, 3)
    for loop in (False, True):
        assert torch.equal(knn_graph(x, 5, BATCH, loop), pyg.knn_graph(x, 5, BATCH, loop))
        mine, theirs = (f(x, 0.4, BATCH, loop, 90) for f in (radius_graph, pyg.radius_graph))
        assert set(map(tuple, mine.T.tolist())) == set(map(tuple, theirs.T.tolist()))
