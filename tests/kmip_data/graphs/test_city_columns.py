"""The input columns of a city against the formula."""

from __future__ import annotations

import numpy as np
import pytest
from support.builds import write_build

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import COORDINATES, Column, Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.graphs.city_columns import city_inputs, is_city, vocabulary


@pytest.fixture
def card(tmp_path):
    columns = (
        Column(key="node/x", attribute="x", stored="float32", presented="float32", shape=(37,)),
        Column(key=COORDINATES, attribute="e", stored="float32", presented="float32", shape=(32,)),
    )
    record = GraphRecord(
        key="c",
        num_nodes=1,
        columns={"node/x": np.zeros((1, 37), np.float32), COORDINATES: np.zeros((1, 32), np.float32)},
    )
    return write_build(tmp_path / "b", [record], Schema(columns=columns, edges="none"), dataset="c").card


@pytest.mark.parametrize(("coordinates", "width"), [("replace", 67), ("append", 69), ("none", 35)])
def test_columns(card, coordinates, width):
    rng = np.random.default_rng(0)
    features = rng.normal(3, 2, (50, 37)).astype(np.float32)
    features[:, 5] = 7
    encoding = rng.uniform(-1, 1, (50, 32)).astype(np.float32)
    train = features[:20].astype(np.float64)
    statistics = {
        "mean": train.mean(0).tolist(),
        "std": train.std(0, ddof=1).tolist(),
        "coordinate_range": [[0, 1], [0, 1]],
    }
    card = card.model_copy(update={"statistics": {"city": {"features": statistics}}})
    assert is_city(card)
    assert vocabulary(card) is None
    found = city_inputs(features, encoding, card, coordinates)
    assert (found.dtype, found.shape) == (np.float32, (50, width))
    with np.errstate(invalid="ignore"):
        scaled = (features - train.mean(0)) / train.std(0, ddof=1)
    scaled[:, 5] = 0
    expected = {
        "replace": [encoding, scaled[:, 2:]],
        "append": [encoding, scaled],
        "none": [scaled[:, 2:]],
    }[coordinates]
    np.testing.assert_allclose(found, np.concatenate(expected, 1), rtol=1e-5, atol=1e-6)


def test_a_card_without_statistics(card):
    with pytest.raises(DamagedInput, match="has no scaling of its features"):
        city_inputs(np.zeros((1, 37), np.float32), np.zeros((1, 32), np.float32), card)
