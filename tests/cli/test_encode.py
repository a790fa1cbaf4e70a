"""``kmip-data encode``: what it prints, and what training reads of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.cli import kmip

import kmip_data
from kmip_data.graphs.encodings.degree_profile import local_degree_profile
from kmip_data.graphs.encodings.lappe import laplacian_encoding
from kmip_data.graphs.encodings.rwse import random_walk_encoding


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    outcome = kmip("build", "malnet-tiny", "--sample", "--limit", 10, "--home", folder, "--jobs", 1, "-q")
    assert outcome.code == 0, outcome.err
    return folder


def test_columns_are_added_and_found_again(home: Path) -> None:
    arguments = ("encode", "malnet-tiny", "--sample", "--limit", 10, "--home", home, "--jobs", 1)
    outcome = kmip(*arguments, "rwse4", "lappe3", "degree-profile-2.8", "--json", "-q")
    assert outcome.code == 0, outcome.err
    names = [entry["name"] for entry in outcome.json["columns"]]
    assert names == ["rwse4", "lappe3", "degree-profile-2.8"]
    attributes = [name for entry in outcome.json["columns"] for name in entry["attributes"]]
    assert attributes == ["rwse", "lappe_values", "lappe_vectors", "degree_profile"]
    again = kmip(*arguments, "rwse4")
    assert again.code == 0
    assert 'columns=["rwse4"]' in again.out
    assert "added" not in again.err
    dataset = kmip_data.open(outcome.json["path"], columns=names)
    for data in dataset:
        edges, nodes = data.edge_index.numpy(), data.num_nodes
        np.testing.assert_array_equal(data.rwse, random_walk_encoding(edges, nodes, 4))
        np.testing.assert_array_equal(data.lappe_vectors, laplacian_encoding(edges, nodes, 3)[1])
        np.testing.assert_array_equal(data.degree_profile, local_degree_profile(edges, nodes, "2.8"))
    verified = kmip("verify", outcome.json["path"])
    assert "3 columns" in verified.out
    told = kmip("info", outcome.json["path"])
    for fact in ("Added columns", "rwse4", "lappe_values, lappe_vectors", "diagonals of P"):
        assert fact in told.out
    assert "lappe3" in kmip("info", outcome.json["path"]).out
    found = kmip("info", outcome.json["path"], "--json").json["added_columns"]
    assert sorted(found, key=lambda entry: names.index(entry["name"])) == outcome.json["columns"]


def test_a_damaged_column_does_not_hide_the_build(home: Path, tmp_path: Path) -> None:
    path = Path(kmip("info", "malnet-tiny", "--sample", "--limit", 10, "--home", home, "--json").json["path"])
    copy = shutil.copytree(path, tmp_path / path.name)
    assert kmip("encode", copy, "rwse2", "--jobs", 1, "-q").code == 0
    (copy / "columns" / "rwse2" / "card.json").write_text("{}")
    told = kmip("info", copy)
    assert told.code == 0
    assert "damaged: " in told.out
    assert "verify" in told.out
    assert any("damaged" in entry for entry in kmip("info", copy, "--json").json["added_columns"])


def test_what_cannot_be_added(home: Path) -> None:
    target = ("encode", "malnet-tiny", "--sample", "--limit", 10, "--home", home)
    for arguments, found in (
        ((), "ENCODING"),
        (("rwse0",), "no encoding called"),
        (("lappe2000",), "no encoding called"),
        (("rwse2", "--scheduler", "tcp://127.0.0.1:9"), "--dask ADDRESS"),
    ):
        outcome = kmip(*target, *arguments)
        assert outcome.code == 2, outcome.err
        assert found in outcome.err
    assert kmip("encode", "s3dis", "--home", home, "rwse2").code == 2
