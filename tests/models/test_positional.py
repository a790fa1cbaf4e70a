"""Positional encodings against their formulas."""

from __future__ import annotations

import pytest
import torch
from support.layer_kernels import batch_of
from torch_geometric.data import Batch, Data

from kmip_data.errors import UsageError
from kmip_data.models import ModelConfig, build_model
from kmip_data.models.encoders import build_positional
from kmip_data.models.kinds import POSITIONAL
from kmip_data.models.layers.batch import EdgeList, read_batch
from kmip_data.models.layers.gated_gcn import GatedGCN

K, STEPS = 10, 20
LAPPE_VECTORS, LAPPE_VALUES, RWSE = "lappe_vectors", "lappe_values", "rwse"


def batch() -> Data:
    generator = torch.Generator().manual_seed(0)
    vectors, values = torch.randn(7, K, generator=generator), torch.rand(7, K, generator=generator)
    vectors[3:, 6:] = values[3:, 6:] = torch.nan  # nodes of a graph with six frequencies
    edges = torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]])
    columns = {LAPPE_VECTORS: vectors, LAPPE_VALUES: values, RWSE: torch.rand(7, STEPS, generator=generator)}
    return Data(x=torch.randn(7, 4, generator=generator), edge_index=edges, **columns)


def test_lappe_is_a_sum_over_the_frequencies_there_are() -> None:
    encoder = build_positional(POSITIONAL["lappe"], 8).eval()
    data = batch()
    found = encoder(read_batch(data, POSITIONAL["lappe"].reads))
    for node in range(7):
        total = torch.zeros(16)
        for k in range(10 if node < 3 else 6):
            total += encoder.each(torch.stack([data[LAPPE_VECTORS][node, k], data[LAPPE_VALUES][node, k]]))
        torch.testing.assert_close(found[node], total, rtol=1e-4, atol=1e-5)


def test_eigenvalues_may_come_once_a_graph() -> None:
    encoder, data = build_positional(POSITIONAL["lappe"], 8).eval(), batch()
    data.ptr, data.batch = torch.tensor([0, 3, 7]), torch.tensor([0] * 3 + [1] * 4)
    values = torch.rand(2, K)
    data[LAPPE_VALUES] = values
    found = encoder(read_batch(data, POSITIONAL["lappe"].reads))
    data[LAPPE_VALUES] = values[data.batch]
    torch.testing.assert_close(found, encoder(read_batch(data, POSITIONAL["lappe"].reads)))


def test_signs_are_drawn_in_training_one_a_frequency() -> None:
    encoder, data = build_positional(POSITIONAL["lappe"], 8), batch()
    graphs = read_batch(data, POSITIONAL["lappe"].reads)
    torch.manual_seed(3)
    signs = torch.randint(0, 2, (1, K)) * 2 - 1
    torch.manual_seed(3)
    found = encoder(graphs)
    data[LAPPE_VECTORS] = data[LAPPE_VECTORS] * signs
    torch.testing.assert_close(found, encoder.eval()(read_batch(data, POSITIONAL["lappe"].reads)))
    assert not torch.equal(found, encoder(graphs))


def test_rwse_is_normalised_and_mapped() -> None:
    encoder, data = build_positional(POSITIONAL["rwse"], 8), batch()
    rows = data[RWSE]
    scaled = (rows - rows.mean(0)) / (rows.var(0, unbiased=False) + 1e-5).sqrt()
    expected = scaled @ encoder.linear.weight.T + encoder.linear.bias
    torch.testing.assert_close(
        encoder(read_batch(data, POSITIONAL["rwse"].reads)), expected, rtol=1e-4, atol=1e-5
    )


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


def equivstable(**options) -> ModelConfig:
    return ModelConfig(
        layers=2,
        hidden_dim=8,
        attention={"heads": 2, "k": 2, "key_dim": 3},
        dropout=0.0,
        positional="equivstable",
        **options,
    )


def changed(data: Data, change) -> Data:
    other = data.clone()
    other[LAPPE_VECTORS] = change(data[LAPPE_VECTORS])
    return other


def eight(data: Data) -> Data:
    return changed(data, lambda vectors: vectors[:, :8])


def test_stable_positions_are_distances_of_mapped_eigenvectors() -> None:
    data, encoder = eight(batch()), build_positional(POSITIONAL["equivstable"], 5)
    found = encoder(read_batch(data, POSITIONAL["equivstable"].reads)).edges.distance
    for edge, (source, target) in enumerate(data.edge_index.t().tolist()):
        ends = [encoder.linear(data[LAPPE_VECTORS][node].nan_to_num()) for node in (source, target)]
        torch.testing.assert_close(found[edge], (ends[0] - ends[1]).square().sum()[None])
    data.neighbor = torch.tensor([[1], [2], [0], [4], [5], [6], [3]])
    table = encoder(read_batch(data, POSITIONAL["equivstable"].reads)).edges.distance
    data.neighbor, data.edge_index = None, torch.stack([data.neighbor[:, 0], torch.arange(7)])
    assert table.shape == (7, 1, 1)
    torch.testing.assert_close(
        table[:, 0], encoder(read_batch(data, POSITIONAL["equivstable"].reads)).edges.distance
    )


def test_stable_positions_know_no_direction() -> None:
    torch.manual_seed(0)
    model = build_model(equivstable(), in_channels=4, num_classes=3).eval()
    data = eight(batch())
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


def test_gates_are_scaled_by_closeness() -> None:
    layer = GatedGCN(3, dropout=0.0, residual=False, by_distance=True).eval()
    x, e = torch.randn(2, 3), torch.randn(1, 3)
    distance = torch.tensor([[2.5]])
    edges = EdgeList(torch.tensor([0]), torch.tensor([1]), 2, distance)
    z = layer.D(x[1]) + layer.E(x[0]) + layer.C(e[0])
    gate = torch.sigmoid(z) * layer.closeness(distance[0])
    expected = layer.A(x[1]) + gate * layer.B(x[0]) / (gate + 1e-6)
    found, new = layer(x, e, batch_of(edges))
    torch.testing.assert_close(found[1], layer.norm_x(expected[None])[0].relu())
    torch.testing.assert_close(new, e + layer.norm_e(z[None]).relu())  # edges themselves are not scaled


def test_stable_positions_need_their_column() -> None:
    plain = Data(x=torch.ones(2, 4), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(UsageError, match="lappe8"):
        build_model(equivstable(), in_channels=4, num_classes=3)(plain)
