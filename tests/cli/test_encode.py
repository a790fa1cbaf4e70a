"""``kmip-data encode``: what it prints, and what training reads of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.cli import expect_success

import kmip_data
from kmip_data.graphs.encodings.degree_profile import local_degree_profile
from kmip_data.graphs.encodings.lappe import laplacian_encoding
from kmip_data.graphs.encodings.rwse import random_walk_encoding


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    words = ("malnet-tiny", "--sample", "--limit", 10, "--home", tmp_path_factory.mktemp("home"))
    text = expect_success("build", *words, "--jobs", 1, "-q").out
    assert "degree-profile" not in text, "the preset has it"
    return words


def test_encoded_columns_are_stored_and_reused(target, tmp_path: Path) -> None:
    names = ["rwse4", "lappe3", "degree-profile-2.8"]
    result = expect_success("encode", *target, "--jobs", 1, *names, "--json", "-q").json
    assert [entry["name"] for entry in result["columns"]] == names
    attributes = [name for entry in result["columns"] for name in entry["attributes"]]
    assert attributes == ["rwse", "lappe_values", "lappe_vectors", "degree_profile"]
    again = expect_success("encode", *target, "--jobs", 1, "rwse4")
    assert 'columns=["rwse4"]' in again.out
    assert "added" not in again.err
    for data in kmip_data.open(result["path"], columns=names):
        edges, nodes = data.edge_index.numpy(), data.num_nodes
        np.testing.assert_array_equal(data.rwse, random_walk_encoding(edges, nodes, 4))
        np.testing.assert_array_equal(data.lappe_vectors, laplacian_encoding(edges, nodes, 3)[1])
        np.testing.assert_array_equal(
            data.degree_profile, local_degree_profile(edges, nodes, "2.8")
        )
    assert "3 columns" in expect_success("verify", result["path"]).out
    text = expect_success("info", result["path"]).out
    for fact in ("Added columns", "rwse4", "lappe_values, lappe_vectors", "diagonals of P"):
        assert fact in text
    # A damaged column does not hide the build.
    copy = shutil.copytree(result["path"], tmp_path / "copy")
    (copy / "columns" / "rwse4" / "card.json").write_text("{}")
    assert f"kmip-data verify {copy} --repair" in expect_success("info", copy).out
    assert any(
        "damaged" in entry for entry in expect_success("info", copy, "--json").json["added_columns"]
    )
