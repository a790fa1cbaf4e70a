"""The input columns of a city against the formula."""

from __future__ import annotations

import numpy as np
import pytest
from support.builds.written import write_build

from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import COORDINATE_ENCODING, Column, Schema
from kmip_data.graphs.city_columns import city_inputs


@pytest.fixture
def card(tmp_path):
    columns = (
        Column(key="node/x", attribute="x", stored="float32", presented="float32", shape=(37,)),
        Column(
            key=COORDINATE_ENCODING,
            attribute="e",
            stored="float32",
            presented="float32",
            shape=(32,),
        ),
    )
    record = GraphRecord(
        key="c",
        num_nodes=1,
        columns={
            "node/x": np.zeros((1, 37), np.float32),
            COORDINATE_ENCODING: np.zeros((1, 32), np.float32),
        },
    )
    return write_build(
        tmp_path / "b", [record], Schema(columns=columns, edges="none"), dataset="c"
    ).card


def test_inputs_of_a_city_are_standardised_with_coordinates_as_chosen(card):
    rng = np.random.default_rng(0)
    features, encoding = (
        rng.normal(3, 2, (50, 37)).astype("f4"),
        rng.uniform(-1, 1, (50, 32)).astype("f4"),
    )
    with pytest.raises(DamagedInput):
        city_inputs(features, encoding, card)
    features[:, 5] = 7
    mean, std = features[:20].astype(float).mean(0), features[:20].astype(float).std(0, ddof=1)
    statistics = {"mean": mean.tolist(), "std": std.tolist(), "coordinate_range": [[0, 1], [0, 1]]}
    card = card.model_copy(update={"statistics": {"city": {"features": statistics}}})
    scaled = (features - mean) / np.where(std == 0, 1, std)
    for coordinates, columns in (
        ("replace", [encoding, scaled[:, 2:]]),
        ("append", [encoding, scaled]),
        ("none", [scaled[:, 2:]]),
    ):
        inputs = city_inputs(features, encoding, card, coordinates)
        assert inputs.dtype == np.float32
        np.testing.assert_allclose(inputs, np.concatenate(columns, 1), rtol=1e-5, atol=1e-6)
