"""Positional encodings against their formulas."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch, Data

from kmip_data.errors import UsageError
from kmip_data.models import ModelConfig, build_model
from kmip_data.models.config import POSITIONAL
from kmip_data.models.encoders import POSITIONAL_ENCODERS
from kmip_data.models.layers.batch import read_batch

K, STEPS = 10, 20
LAPPE_VECTORS, LAPPE_VALUES, RWSE = "lappe_vectors", "lappe_values", "rwse"


def batch() -> Data:
    generator = torch.Generator().manual_seed(0)
    vectors, values = torch.randn(7, K, generator=generator), torch.rand(7, K, generator=generator)
    vectors[3:, 6:] = values[3:, 6:] = torch.nan  # nodes of a graph with six frequencies
    edges = torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]])
    columns = {LAPPE_VECTORS: vectors, LAPPE_VALUES: values, RWSE: torch.rand(7, STEPS, generator=generator)}
    return Data(x=torch.randn(7, 4, generator=generator), edge_index=edges, **columns)


def test_eigenvalues_may_come_once_a_graph() -> None:
    encoder, data = POSITIONAL_ENCODERS["lappe"](8).eval(), batch()
    data.ptr, data.batch = torch.tensor([0, 3, 7]), torch.tensor([0] * 3 + [1] * 4)
    values = torch.rand(2, K)
    data[LAPPE_VALUES] = values
    found = encoder(read_batch(data, POSITIONAL["lappe"].reads))
    data[LAPPE_VALUES] = values[data.batch]
    torch.testing.assert_close(found, encoder(read_batch(data, POSITIONAL["lappe"].reads)))


@pytest.mark.parametrize(("name", "width"), [("lappe", 16), ("rwse", 28)])
def test_they_take_their_channels_from_the_node_encoder(name, width) -> None:
    config = ModelConfig(
        layers=1, hidden_dim=36, attention={"heads": 4, "k": 2, "key_dim": 3}, positional=name
    )
    model = build_model(config, in_channels=4, num_classes=3)
    assert model.node_encoder.features.linear.out_features == 36 - width
    data = Batch.from_data_list([batch(), batch()])
    assert model(data).shape == (14, 3)
    plain = Data(x=torch.ones(2, 4), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(UsageError, match="kmip-data encode"):
        model(plain)
    with pytest.raises(ValueError, match="leaves no room"):
        ModelConfig(hidden_dim=16, positional=name)


EQUIVSTABLE = ModelConfig(
    layers=2,
    hidden_dim=8,
    attention={"heads": 2, "k": 2, "key_dim": 3},
    dropout=0.0,
    positional="equivstable",
)


def changed(data: Data, change) -> Data:
    other = data.clone()
    other[LAPPE_VECTORS] = change(data[LAPPE_VECTORS])
    return other


def test_stable_positions_know_no_direction() -> None:
    torch.manual_seed(0)
    model = build_model(EQUIVSTABLE, in_channels=4, num_classes=3).eval()
    data = changed(batch(), lambda vectors: vectors[:, :8])
    # Two edges to a node: the gate of a single one cancels out.
    data.edge_index = torch.tensor([[0, 1, 0, 3, 4, 3], [1, 2, 2, 4, 5, 5]])
    found = model(data)
    assert not torch.allclose(found, model(changed(data, lambda v: v.flip(1))))
    for change in (torch.neg, lambda vectors: vectors + 3):  # all signs at once; another origin
        torch.testing.assert_close(found, model(changed(data, change)), rtol=1e-4, atol=1e-5)
    with torch.no_grad():  # by an orthogonal map, any rotation
        turns = [torch.linalg.qr(torch.randn(8, 8))[0] for _ in range(2)]
        model.position.linear.weight.copy_(turns[0])
    data[LAPPE_VECTORS] = data[LAPPE_VECTORS].nan_to_num()
    torch.testing.assert_close(
        model(data), model(changed(data, lambda v: v @ turns[1])), rtol=1e-4, atol=1e-5
    )
