"""Scales of features and targets against scikit-learn's, and the hooks that apply them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch_geometric.data import Data

from kmip_data.models.scaling import (
    FeatureScale,
    Moments,
    add_scaling,
    missing_flags,
    scaling_of,
    target_scale,
)

COLUMNS = {
    "usual": lambda rng, n: rng.normal(size=n),
    "large offset": lambda rng, n: 1e6 + rng.normal(size=n),
    "tiny": lambda rng, n: 1e-30 * rng.normal(size=n),
    "huge": lambda rng, n: 1e30 * rng.normal(size=n),
    "constant": lambda rng, n: np.full(n, 0.1),
    "with missing": lambda rng, n: np.where(rng.random(n) < 0.3, np.nan, rng.normal(3, 2, n)),
    "integers": lambda rng, n: rng.integers(-5, 9, n),
    "all missing but one": lambda rng, n: np.where(np.arange(n) == 4, 7.0, np.nan),
}


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    return np.stack([draw(rng, 500) for draw in COLUMNS.values()], axis=1).astype(np.float32)


@pytest.mark.parametrize("block", [1, 7, 500])
def test_scaled_columns_equal_those_of_scikit_learn(rows, block) -> None:
    moments = Moments(rows.shape[1])
    for start in range(0, len(rows), block):
        moments.add(torch.from_numpy(rows[start : start + block]))
    scale = FeatureScale(rows.shape[1])
    scale.set_statistics(*moments.statistics())
    scaled = scale(torch.from_numpy(rows)).numpy()

    expected = StandardScaler().fit_transform(rows.astype(np.float64))
    expected = np.nan_to_num(expected, nan=0.0)  # the mean
    for number, name in enumerate(COLUMNS):
        # float32 resolves a 16th at the offset of 1e6.
        tolerance = 0.1 if name == "large offset" else 1e-5
        np.testing.assert_allclose(
            scaled[:, number], expected[:, number], rtol=2e-5, atol=tolerance, err_msg=name
        )
    assert list(moments.is_constant) == [
        "constant" in name or "but one" in name for name in COLUMNS
    ]
    assert not moments.is_binary.any()


def test_statistics_of_no_rows_change_nothing() -> None:
    mean, deviation = Moments(2).statistics()
    assert torch.equal(mean, torch.zeros(2))
    assert torch.equal(deviation, torch.ones(2))


def test_columns_of_zeros_and_ones_are_recognised() -> None:
    moments = Moments(4)
    moments.add(torch.tensor([[0.0, 1.0, torch.nan, 1.0], [1.0, 1.0, 0.0, 2.0]]))
    moments.add(torch.tensor([[0.5, 0.0, 1.0, 0.0]]))
    assert moments.is_binary.tolist() == [False, True, True, False]


def test_a_marked_number_becomes_the_mean() -> None:
    fields = ("load [MW]", "height (m)", "load missing", "height (m) missing", "missing")
    flags = missing_flags(fields)
    assert flags.tolist() == [2, 3, -1, -1, -1]
    scale = FeatureScale(5)
    scale.missing_flag.copy_(flags)
    scale.set_statistics(torch.tensor([10.0, 1, 0, 0, 0]), torch.tensor([2.0, 4, 1, 1, 1]))
    x = torch.tensor([[0.0, 5, 1, 0, 3], [14, 0, 0, 1, 4]])
    assert scale(x).tolist() == [[0, 1, 1, 0, 3], [2, 0, 0, 1, 4]]


class _FirstColumn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, batch: Data) -> torch.Tensor:
        self.seen = batch
        return batch.x[:, :1] * self.weight


@pytest.fixture
def network():
    network = _FirstColumn()
    add_scaling(network, {"x": 2, "edge_attr": 1}, 1)
    scaling = scaling_of(network)
    scaling.features["x"].set_statistics(torch.tensor([10.0, 0]), torch.tensor([2.0, 1]))
    scaling.features["edge_attr"].set_statistics(torch.tensor([1.0]), torch.tensor([4.0]))
    target_scale(network).set_statistics(torch.tensor([100.0]), torch.tensor([50.0]))
    return network


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
@pytest.mark.parametrize("edges", [(2,), (2, 1)])
def test_a_copy_of_the_batch_is_scaled_and_the_output_restored(network, dtype, edges) -> None:
    x = torch.tensor([[14, 1], [8, 0]], dtype=dtype)
    batch = Data(x=x, edge_attr=torch.tensor([1.0, 9.0]).view(edges))
    before = copy.deepcopy(batch)
    assert network(batch).tolist() == [[200.0], [50.0]]
    assert network.seen.edge_attr.shape == edges
    assert network.seen.edge_attr.flatten().tolist() == [0.0, 2.0]
    assert torch.equal(batch.x, before.x)
    assert torch.equal(batch.edge_attr, before.edge_attr)
    # Copies have their own statistics.
    other = copy.deepcopy(network)
    target_scale(other).set_statistics(torch.zeros(1), torch.ones(1))
    assert other(batch).tolist() == [[2.0], [-1.0]]
    assert network(batch).tolist() == [[200.0], [50.0]]


def test_a_large_unit_does_not_overflow_half_precision(network) -> None:
    target_scale(network).set_statistics(torch.tensor([1e6]), torch.tensor([1e5]))
    batch = Data(x=torch.tensor([[14.0, 1.0]]), edge_attr=torch.zeros(1))
    with torch.autocast("cpu", torch.bfloat16):
        assert network(batch).tolist() == [[1.2e6]]


def test_a_compiled_network_scales(network) -> None:
    batch = Data(x=torch.tensor([[14.0, 1.0], [8, 0]]), edge_attr=torch.zeros(1))
    compiled = torch.compile(network, backend="eager")
    assert compiled(batch).tolist() == [[200.0], [50.0]]
