"""Positional encodings against their formulas."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from kmip_data.errors import UsageError
from kmip_data.models import ModelConfig, build_model
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.positional import LAPPE_VALUES, LAPPE_VECTORS, POSITIONAL, READS, RWSE

K, STEPS = 10, 20


def batch() -> Data:
    generator = torch.Generator().manual_seed(0)
    vectors, values = torch.randn(7, K, generator=generator), torch.rand(7, K, generator=generator)
    vectors[3:, 6:] = values[3:, 6:] = torch.nan  # nodes of a graph with six frequencies
    edges = torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]])
    columns = {LAPPE_VECTORS: vectors, LAPPE_VALUES: values, RWSE: torch.rand(7, STEPS, generator=generator)}
    return Data(x=torch.randn(7, 4, generator=generator), edge_index=edges, **columns)


def test_lappe_is_a_sum_over_the_frequencies_there_are() -> None:
    encoder = POSITIONAL["lappe"]().eval()
    data = batch()
    found = encoder(read_batch(data, READS["lappe"]))
    for node in range(7):
        total = torch.zeros(16)
        for k in range(10 if node < 3 else 6):
            total += encoder.each(torch.stack([data[LAPPE_VECTORS][node, k], data[LAPPE_VALUES][node, k]]))
        torch.testing.assert_close(found[node], total, rtol=1e-4, atol=1e-5)


def test_eigenvalues_may_come_once_a_graph() -> None:
    encoder, data = POSITIONAL["lappe"]().eval(), batch()
    data.ptr, data.batch = torch.tensor([0, 3, 7]), torch.tensor([0] * 3 + [1] * 4)
    values = torch.rand(2, K)
    data[LAPPE_VALUES] = values
    found = encoder(read_batch(data, READS["lappe"]))
    data[LAPPE_VALUES] = values[data.batch]
    torch.testing.assert_close(found, encoder(read_batch(data, READS["lappe"])))


def test_signs_are_drawn_in_training_one_a_frequency() -> None:
    encoder, data = POSITIONAL["lappe"](), batch()
    graphs = read_batch(data, READS["lappe"])
    torch.manual_seed(3)
    signs = torch.randint(0, 2, (1, K)) * 2 - 1
    torch.manual_seed(3)
    found = encoder(graphs)
    data[LAPPE_VECTORS] = data[LAPPE_VECTORS] * signs
    torch.testing.assert_close(found, encoder.eval()(read_batch(data, READS["lappe"])))
    assert not torch.equal(found, encoder(graphs))


def test_rwse_is_normalised_and_mapped() -> None:
    encoder, data = POSITIONAL["rwse"](), batch()
    rows = data[RWSE]
    scaled = (rows - rows.mean(0)) / (rows.var(0, unbiased=False) + 1e-5).sqrt()
    expected = scaled @ encoder.linear.weight.T + encoder.linear.bias
    torch.testing.assert_close(encoder(read_batch(data, READS["rwse"])), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "width"), [("lappe", 16), ("rwse", 28)])
def test_they_take_their_channels_from_the_node_encoder(name, width) -> None:
    config = ModelConfig(layers=1, hidden_dim=36, heads=4, k=2, key_dim=3, positional=name)
    model = build_model(config, in_channels=4, num_classes=3)
    assert model.node_encoder.features.linear.out_features == 36 - width
    data = Batch.from_data_list([batch(), batch()])
    assert model(data).shape == (14, 3)
    plain = Data(x=torch.ones(2, 4), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(UsageError, match="kmip-data encode"):
        model(plain)
    with pytest.raises(ValueError, match="leaves no room"):
        ModelConfig(hidden_dim=16, positional=name)
