"""Inputs of networks, by family of the dataset."""

from __future__ import annotations

import numpy as np
from support.builds.records import column_of
from support.builds.written import write_build
from support.raises import raises

from kmip_data.datasets.inputs import DEGREE_PROFILE, check_same_categories, network_inputs
from kmip_data.errors import UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import COORDINATE_ENCODING, Schema
from kmip_data.graphs.city_columns import dataset_family
from kmip_data.graphs.encodings.degree_profile import FIELDS


def card_of(folder, dataset, **columns):
    """Card of a build of one node whose columns have the names given."""
    described = [column_of(key, shape=(len(f),), fields=f) for key, f in columns.items()]
    schema = Schema(columns=tuple(described), edges="none")
    values = {key: np.zeros((1, len(fields)), np.float32) for key, fields in columns.items()}
    return write_build(
        folder, [GraphRecord(key="g", num_nodes=1, columns=values)], schema, dataset=dataset
    ).card


def test_inputs_include_stored_columns_views_and_a_degree_profile(tmp_path):
    card = card_of(tmp_path / "b", "s3dis", **{"node/x": tuple("abcdefghi")})
    inputs = network_inputs(card, "all", "replace")
    assert (inputs.attributes, inputs.names) == (("x",), tuple("abcdefghi"))
    assert (inputs.transform, inputs.views, inputs.vocabulary_digest) == (None, (), "")
    inputs = network_inputs(card, "position-color", "replace")
    assert inputs.names == tuple("abcdef")
    assert [(view.start, view.stop) for view in inputs.views] == [(0, 6)]
    inputs = network_inputs(card, DEGREE_PROFILE, "replace")
    assert (inputs.attributes, inputs.names) == ((), FIELDS)
    assert inputs.transform is not None
    with raises(UsageError, naming="colour"):
        network_inputs(card, "colour", "replace")


def test_a_city_has_sinusoids_and_a_vocabulary(tmp_path):
    card = card_of(
        tmp_path / "b",
        "town",
        **{"node/x": ("lon", "lat", "lanes"), COORDINATE_ENCODING: ("s0", "s1")},
    )
    inputs = network_inputs(card, "all", "replace")
    assert inputs.attributes == ("x", "coordinate_encoding")
    assert inputs.names == ("s0", "s1", "lanes")
    assert len(inputs.vocabulary_digest) == 12
    assert [dataset_family("town", card), *map(dataset_family, ("london", "s3dis"))] == [
        "city",
        "city",
        "s3dis",
    ]
    check_same_categories(card, inputs, inputs.vocabulary_digest, "town")
    with raises(UsageError, naming="town"):
        check_same_categories(card, inputs, "another", "elsewhere")
