"""Encoders: shapes, one vector for all edges without a copy of it, and clear refusals."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from kmip_data.errors import UsageError
from kmip_data.models.encoders import EDGE_ENCODERS, NODE_ENCODERS
from kmip_data.models.layers.batch import read_batch

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


def test_linear_nodes() -> None:
    encoder = NODE_ENCODERS["linear"](4, 6)
    x = torch.randn(3, 4)
    expected = x @ encoder.linear.weight.T + encoder.linear.bias
    torch.testing.assert_close(encoder(read_batch(Data(x=x, edge_index=EDGES))), expected)


def test_dummy_edges_share_one_learned_vector() -> None:
    encoder = EDGE_ENCODERS["dummy"](None, 6)
    vector = encoder(read_batch(Data(x=torch.ones(3, 1), edge_index=EDGES)))
    assert vector.shape == (1, 6)
    assert vector is encoder.embedding.weight


def test_linear_edges() -> None:
    encoder = EDGE_ENCODERS["linear"](2, 6)
    attr = torch.randn(3, 2)
    found = encoder(read_batch(Data(x=torch.ones(3, 1), edge_index=EDGES, edge_attr=attr)))
    torch.testing.assert_close(found, attr @ encoder.linear.weight.T + encoder.linear.bias)


def test_missing_edge_features() -> None:
    with pytest.raises(UsageError, match="edge features"):
        EDGE_ENCODERS["linear"](None, 6)
    encoder = EDGE_ENCODERS["linear"](2, 6)
    for attr in (None, torch.ones(3, 1)):
        with pytest.raises(UsageError, match="edge features"):
            encoder(read_batch(Data(x=torch.ones(3, 1), edge_index=EDGES, edge_attr=attr)))
