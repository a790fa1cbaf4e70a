"""The local degree profile: equal to PyG's transform, and to torch-scatter's deviation written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import LocalDegreeProfile as PyGProfile

from kmip_data import LocalDegreeProfile
from kmip_data.errors import UsageError
from kmip_data.graphs.encodings.degree_profile import local_degree_profile


def graphs():
    rng = np.random.default_rng(0)
    for nodes, edges in ((1, 0), (1, 1), (2, 1), (5, 0), (9, 20), (40, 60), (60, 900), (200, 500)):
        yield rng.integers(0, nodes, (2, edges)), nodes
    hub = np.stack([np.arange(1, 2_000), np.zeros(1_999, np.int64)])  # a popular function
    yield np.concatenate([hub, hub[::-1, :700]], axis=1), 2_000


def slow(edges, nodes, rule):
    degree = [int((edges[0] == i).sum()) for i in range(nodes)]
    out = np.zeros((nodes, 5))
    for i in range(nodes):
        around = np.array([degree[v] for u, v in edges.T.tolist() if u == i], float)
        out[i, 0] = degree[i]
        if len(around):
            spread = ((around - around.mean()) ** 2).sum()
            if rule == "2.0":
                deviation = np.sqrt(spread / (max(len(around) - 1, 1) + 1e-6))
            else:
                variance = spread / len(around)
                deviation = np.sqrt(variance) if variance > 1e-5 else 0
            out[i, 1:] = around.min(), around.max(), around.mean(), deviation
    return out


def test_degree_profile_equals_its_definition():
    for rule, (edges, nodes) in product(["2.0", "2.8"], graphs()):
        if edges.shape[1] < 1_000:
            profile = local_degree_profile(edges, nodes, rule)
            assert profile.dtype == np.float32
            assert np.allclose(profile, slow(edges, nodes, rule), rtol=1e-6, atol=1e-7)
    with pytest.raises(UsageError):
        local_degree_profile(np.zeros((2, 0), np.int64), 1, "2.5")


def test_the_degree_profile_equals_pyg():
    for edges, nodes in graphs():
        data = Data(edge_index=torch.from_numpy(np.ascontiguousarray(edges)), num_nodes=nodes)
        theirs = PyGProfile()(data.clone()).x
        ours = LocalDegreeProfile("2.8")(data).x
        assert torch.equal(ours[:, :4], theirs[:, :4])
        # Theirs loses digits in the mean square minus the squared mean.
        assert torch.allclose(ours[:, 4], theirs[:, 4], atol=1e-2, rtol=1e-4)


def test_appends_to_x_and_takes_narrow_edges():
    edges = np.array([[0, 0, 1], [1, 2, 2]], np.uint16)
    data = Data(x=torch.ones(3), edge_index=torch.from_numpy(edges.astype(np.int64)))
    x = LocalDegreeProfile()(data).x
    assert x.shape == (3, 6)
    assert torch.equal(x[:, 1:], torch.from_numpy(local_degree_profile(edges, 3)))
