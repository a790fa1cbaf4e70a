"""A folder that lost its card, or part of itself: the same commands bring it back, and nothing else changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.cases import read_contents
from support.cli import expect_refusal, expect_success
from support.shared import shared_data

from kmip_data.format.card import CARD_NAME

S3DIS = ("s3dis", "--sample", "--limit", "3", "--k", "4", "--quiet")


@pytest.fixture
def edges(tmp_path: Path) -> Path:
    path = tmp_path / "friends.npz"
    edges = np.random.default_rng(0).integers(0, 40, (90, 2))
    np.savez(path, edges=edges, node_features=np.eye(40), node_labels=np.arange(40) % 3)
    return path


def _own(edges: Path, *words: str) -> Path:
    user_files = ("graphs", "--name", "friends", "--archive", edges, "--set", "undirected=true")
    return Path(expect_success("build", *user_files, *words, "--quiet", "--json").json["path"])


def test_the_same_build_command_writes_the_card_again(home, edges):
    for build in (
        lambda: _own(edges),
        lambda: Path(expect_success("build", *S3DIS, "--json").json["path"]),
    ):
        path = build()
        (path / "notes.txt").write_text("mine")
        before = read_contents(path)
        (path / CARD_NAME).unlink()
        message = expect_refusal("verify", path, "--repair")
        assert f"{path} is not a finished build" in message
        assert "remedy: build it again with the same command" in message
        assert build() == path
        assert read_contents(path) == before


def test_the_card_of_a_column_of_an_older_version_is_repaired(home, edges):
    path = _own(edges)
    expect_success("encode", path, "rwse4", "--quiet")
    before = read_contents(path)
    card = path / "columns/rwse4" / CARD_NAME
    old = json.loads(card.read_bytes()) | {"version": 1}
    card.write_text(json.dumps(old))
    assert "--repair" in expect_refusal("verify", path, code=1)
    expect_success("verify", path, "--repair", "--quiet")
    assert read_contents(path) == before


def test_repair_without_raw_files_says_where_they_come_from(home, edges, tmp_path):
    path = _own(edges)
    shard = path / "shards/00000.h5"
    before = read_contents(path)
    shutil.move(home / "raw/friends", tmp_path / "raw")
    shard.unlink()
    message = expect_refusal("verify", path, "--repair", code=3)
    assert "kmip-data build graphs --name friends --archive PATH --set undirected=true" in message
    _own(edges, "--output", tmp_path / "other")  # the command that is named brings the files back
    expect_success("verify", path, "--repair", "--quiet")
    assert read_contents(path) == before

    shared = shared_data("indoor3d_sem_seg_hdf5_data_small.zip")
    words = ("--archive", shared, "--unpinned", "--quiet", "--json")
    path = Path(expect_success("build", "s3dis", *words).json["path"])
    shutil.rmtree(home / "raw/s3dis")
    (path / "shards/00000.h5").unlink()
    message = expect_refusal("verify", path, "--repair", "--offline", code=3)
    assert "kmip-data fetch s3dis" in message
    assert f"kmip-data verify {path} --repair --offline --archive PATH" in message
