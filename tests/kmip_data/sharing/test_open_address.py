"""``kmip_data.open(address)``: says size and place, pulls what is missing, and reads no file twice."""

from __future__ import annotations

import pytest
from support.attacks.http_server import serving_folder
from support.builds.same import assert_same_data
from support.builds.shares import share_folder

import kmip_data
from kmip_data.builds.home import Build
from kmip_data.errors import UsageError

INDEX = {"/share.json", "/card.json"}


def test_an_address_is_pulled_once_and_named_with_its_size(small: Build, tmp_path, capfd) -> None:
    share_folder(small.path, tmp_path / "share")
    (shard,) = (f"/{entry.file}" for entry in small.card.shards)
    with serving_folder(tmp_path / "share") as server:
        opened = kmip_data.open(server.address, "train", home=tmp_path / "home")
        folder = tmp_path / "home/built/rings"
        assert f" kB from {server.address} to {folder}\n" in capfd.readouterr().err
        local = kmip_data.open(small.path, "train")
        for graph, other in zip(opened, local, strict=True):
            assert_same_data(graph, other)

        for lost in (None, shard):  # what is complete is neither fetched nor announced
            if lost is not None:
                (folder / lost[1:]).unlink()
            capfd.readouterr()
            server.requests.clear()
            again = kmip_data.open(server.address, columns=["x"], home=tmp_path / "home")
            assert {path for path, _ in server.requests} == INDEX | ({lost} - {None})
            assert bool(capfd.readouterr().err) == (lost is not None)
            assert again.build == Build(folder, small.card)


def test_another_build_is_refused_before_anything_is_pulled(small, tmp_path) -> None:
    share_folder(small.path, tmp_path / "share")
    home = tmp_path / "home"
    with serving_folder(tmp_path / "share") as server:
        with pytest.raises(UsageError, match=server.address):
            kmip_data.open(server.address, k=5, home=home)
        with pytest.raises(UsageError):
            kmip_data.open(f"{server.address}/splits", home=home)
    with pytest.raises(UsageError):
        kmip_data.open("nothing-like-it://there/build", home=home)
    assert not home.exists()
