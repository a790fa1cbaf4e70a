"""Encoders of features and positions: shapes, formulas, one vector for all edges, and clear refusals."""

from __future__ import annotations

import pytest
import torch
from support.raises import raises
from torch_geometric.data import Batch, Data

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.manifest import load_manifest
from kmip_data.models import ModelConfig, build_model
from kmip_data.models.encoders import check_integers
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.positional_encodings import POSITIONAL_ENCODINGS, LapPEOptions, RWSEOptions
from kmip_data.models.registries import (
    ATOM,
    BOND,
    EDGE_ENCODERS,
    NODE_ENCODERS,
    edge_encoders,
    node_encoders,
)

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def test_missing_edge_features_are_refused() -> None:
    with raises(UsageError, naming="edge_attr"):
        EDGE_ENCODERS["linear"].build(None, 6)
    encoder = EDGE_ENCODERS["linear"].build(2, 6)
    for attr, value in ((None, "edge_attr"), (torch.ones(3, 1), (1, 2))):
        with raises(UsageError, naming=value):
            encoder(read_batch(Data(x=torch.ones(3, 1), edge_index=EDGES, edge_attr=attr)))


def test_atom_and_bond_encoders_equal_ogb() -> None:
    from ogb.graphproppred.mol_encoder import AtomEncoder, BondEncoder

    generator = torch.Generator().manual_seed(0)
    atoms, bonds = AtomEncoder(6), BondEncoder(6)
    ours = NODE_ENCODERS["atom"].build(9, 6), EDGE_ENCODERS["bond"].build(3, 6)
    x = torch.stack([torch.randint(size, (3,), generator=generator) for size in ATOM.sizes], 1)
    attr = torch.stack([torch.randint(size, (3,), generator=generator) for size in BOND.sizes], 1)
    batch = read_batch(Data(x=x, edge_index=EDGES, edge_attr=attr))
    for mine, theirs, features, lists in (
        (ours[0], atoms, x, atoms.atom_embedding_list),
        (ours[1], bonds, attr, bonds.bond_embedding_list),
    ):
        for embedding, other in zip(mine.features.embeddings, lists, strict=True):
            assert embedding.weight.shape == other.weight.shape
            bound = (6 / (embedding.weight.shape[0] + 6)) ** 0.5  # Xavier's
            assert 0.5 * bound < embedding.weight.abs().max() <= bound
            other.weight.data.copy_(embedding.weight.data)
        torch.testing.assert_close(mine(batch), theirs(features))


@pytest.mark.parametrize(
    ("registry", "name", "constants"),
    [
        (NODE_ENCODERS, "voc", load_manifest("pascalvoc-sp").standardisation["node/x"]),
        (NODE_ENCODERS, "coco", load_manifest("coco-sp").standardisation["node/x"]),
        (EDGE_ENCODERS, "voc", load_manifest("pascalvoc-sp").standardisation["edge/attr"]),
        (EDGE_ENCODERS, "coco", load_manifest("coco-sp").standardisation["edge/attr"]),
    ],
)
def test_superpixels_are_standardised_first(registry, name, constants) -> None:
    columns = len(constants.mean)
    encoder = registry[name].build(columns, 6)
    rows = torch.rand(3, columns, generator=torch.Generator().manual_seed(1)) * 100
    x, attr = (rows, None) if registry is NODE_ENCODERS else (torch.ones(3, 1), rows)
    scaled = (rows - torch.tensor(constants.mean)) / torch.tensor(constants.std)
    expected = scaled @ encoder.linear.weight.T + encoder.linear.bias
    torch.testing.assert_close(
        encoder(read_batch(Data(x=x, edge_index=EDGES, edge_attr=attr))), expected
    )
    assert set(encoder.state_dict()) == {"linear.weight", "linear.bias"}, "constants are no weights"


def test_a_single_edge_feature_may_lack_its_axis() -> None:
    encoder = EDGE_ENCODERS["linear"].build(1, 6)
    attr = torch.rand(3)
    batch = read_batch(Data(x=torch.ones(3, 1), edge_index=EDGES, edge_attr=attr))
    torch.testing.assert_close(
        encoder(batch), attr[:, None] @ encoder.linear.weight.T + encoder.linear.bias
    )


@pytest.mark.parametrize("value", [-1, 119])
def test_integers_beyond_those_of_atoms_are_refused(value: int) -> None:
    x = torch.zeros(3, len(ATOM.sizes), dtype=torch.int64)
    x[1, 0] = value
    with raises(DamagedInput, naming=value):
        NODE_ENCODERS["atom"].build(x.shape[1], 6)(read_batch(Data(x=x, edge_index=EDGES)))


def test_types_behind_the_last_one_name_the_encoder_that_has_them() -> None:
    integers = node_encoders()["types3"].integers
    for types, encoder in (([0, 7], "types8"), ([0, 10**7], "linear"), ([-1, 2], "linear")):
        with raises(DamagedInput, steps=Setting({"model.node_encoder": encoder})):
            check_integers(integers, [torch.tensor(types)])
    check_integers(node_encoders()["types8"].integers, [torch.tensor([0, 7])])


K, STEPS = 10, 20
LAPPE_VECTORS, LAPPE_VALUES, RWSE = "lappe_vectors", "lappe_values", "rwse"


def encoded_batch() -> Data:
    generator = torch.Generator().manual_seed(0)
    vectors, values = torch.randn(7, K, generator=generator), torch.rand(7, K, generator=generator)
    vectors[3:, 6:] = values[3:, 6:] = torch.nan  # nodes of a graph with six frequencies
    edges = torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]])
    columns = {
        LAPPE_VECTORS: vectors,
        LAPPE_VALUES: values,
        RWSE: torch.rand(7, STEPS, generator=generator),
    }
    return Data(x=torch.randn(7, 4, generator=generator), edge_index=edges, **columns)


def test_eigenvalues_may_be_stored_once_per_graph() -> None:
    lappe = POSITIONAL_ENCODINGS["lappe"]
    encoder, data = lappe.build(lappe, 8).eval(), encoded_batch()
    data.ptr, data.batch = torch.tensor([0, 3, 7]), torch.tensor([0] * 3 + [1] * 4)
    values = torch.rand(2, K)
    data[LAPPE_VALUES] = values
    encoded = encoder(read_batch(data, POSITIONAL_ENCODINGS["lappe"].added_attributes))
    data[LAPPE_VALUES] = values[data.batch]
    torch.testing.assert_close(
        encoded, encoder(read_batch(data, POSITIONAL_ENCODINGS["lappe"].added_attributes))
    )


@pytest.mark.parametrize(("name", "width"), [("lappe", 16), ("rwse", 28)])
def test_positional_encoders_share_channels_with_node_encoder(name, width) -> None:
    config = ModelConfig(
        layers=1, hidden_dim=36, attention={"heads": 4, "k": 2, "key_dim": 3}, positional=name
    )
    model = build_model(config, in_channels=4, out_channels=3)
    assert model.node_encoder.features.linear.out_features == 36 - width
    data = Batch.from_data_list([encoded_batch(), encoded_batch()])
    assert model(data).shape == (14, 3)
    plain = Data(x=torch.ones(2, 4), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(UsageError) as caught:
        model(plain)
    assert caught.value.steps[-1] == Setting({"model.positional": "none"})
    with pytest.raises(ValueError):
        ModelConfig(hidden_dim=16, positional=name)


def test_types_share_one_embedding() -> None:
    nodes, edges = node_encoders()["types28"].build(1, 6), edge_encoders()["types4"].build(1, 6)
    x, attr = torch.tensor([[3], [27], [0]]), torch.tensor([1, 3, 0])
    batch = read_batch(Data(x=x, edge_index=EDGES, edge_attr=attr))
    assert torch.equal(nodes(batch), nodes.features["embeddings"][0].weight[x[:, 0]])
    assert torch.equal(edges(batch), edges.features["embeddings"][0].weight[attr])
    batch = read_batch(Data(x=x + 1, edge_index=EDGES, edge_attr=attr))
    with raises(DamagedInput, naming=28):
        nodes(batch)
    for name in ("types0", "types3x1"):
        with pytest.raises(ValueError):
            ModelConfig(node_encoder=name)


def test_types_of_two_columns_are_summed() -> None:
    encoder = node_encoders()["types5x2"].build(2, 6)
    x = torch.tensor([[3, 0], [4, 4], [0, 1]])
    keys, values = (table.weight for table in encoder.features["embeddings"])
    assert torch.equal(
        encoder(read_batch(Data(x=x, edge_index=EDGES))), keys[x[:, 0]] + values[x[:, 1]]
    )
    with raises(DamagedInput, steps=Setting({"model.node_encoder": "types6x2"})):
        encoder(read_batch(Data(x=x + 1, edge_index=EDGES)))


def test_a_transformer_reads_the_eigenpairs_of_a_node() -> None:
    lappe = POSITIONAL_ENCODINGS["lappe"]
    options = LapPEOptions(width=8, reader="transformer", heads=2, layers=1, post_layers=2)
    positional = lappe.with_options(options)
    encoder, data = positional.build(positional, 99).eval(), encoded_batch()
    encoded = encoder(read_batch(data, positional.added_attributes))
    for node, row in enumerate(encoded):
        pairs = torch.stack([data[LAPPE_VECTORS][node], data[LAPPE_VALUES][node]], 1)
        pairs = pairs[~pairs.isnan().any(1)]
        tokens = encoder.transformer(encoder.pair_encoder(pairs)[None])
        torch.testing.assert_close(row, encoder.post_perceptron(tokens[0].sum(0)))
    wide, narrow = (layer.weight for layer in encoder.post_perceptron if hasattr(layer, "weight"))
    assert (wide.shape, narrow.shape) == ((16, 8), (8, 16))


def test_a_perceptron_reads_return_probabilities_without_a_norm() -> None:
    positional = POSITIONAL_ENCODINGS["rwse"].with_options(
        RWSEOptions(reader="mlp", layers=2, norm=False, width=3)
    )
    encoder, data = positional.build(positional, 99), encoded_batch()
    first, _, last, _ = encoder.linear
    hidden = torch.relu(data[RWSE] @ first.weight.T + first.bias)
    expected = torch.relu(hidden @ last.weight.T + last.bias)
    torch.testing.assert_close(encoder(read_batch(data, positional.added_attributes)), expected)
    assert (first.out_features, encoder.norm) == (6, None)


@pytest.mark.parametrize("name", ["lappe+lappe", "lappe+equivstable", "rwse+rwse32", "rwse+"])
def test_wrong_sums_of_positional_encodings_are_refused(name) -> None:
    with pytest.raises(ValueError):
        ModelConfig(hidden_dim=96, positional=name)
