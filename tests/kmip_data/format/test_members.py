"""A shard above the size of a file: cut, mapped in a row, verified and sent file by file."""

from __future__ import annotations

import pickle
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from support.cases import flip_bit
from support.cli import kmip
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build, Home
from kmip_data.builds.verify import verify_build
from kmip_data.errors import DamagedInput
from kmip_data.format import writer
from kmip_data.format.reader import Shard
from kmip_data.pipelines.find_builds import ensure_columns
from kmip_data.sharing.pull import pull
from kmip_data.sharing.push import push_build

SIZE = 2**16  #: a multiple of every page size
FIRST = "shards/00000-00000.h5"


def saved(folder: Path, monkeypatch: pytest.MonkeyPatch, size: int = SIZE) -> Build:
    """One graph of many pages, its shard cut into files of this size."""
    monkeypatch.setattr(writer, "MEMBER_BYTES", size)
    monkeypatch.setattr(writer, "PIECE_BYTES", 30_000)
    rows = torch.Generator().manual_seed(0)
    ring = torch.stack([torch.arange(9000), torch.arange(9000).roll(1)])
    graph = Data(x=torch.rand(9000, 9, generator=rows), y=torch.arange(9000) % 3, edge_index=ring)
    graph.train_mask = torch.arange(9000) < 5000
    return kmip_data.save([graph], folder / "ring", title="Ring")


@pytest.fixture
def cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    return saved(tmp_path / "cut", monkeypatch)


def test_a_shard_saved_as_members_equals_the_single_file(tmp_path, monkeypatch):
    whole = saved(tmp_path / "whole", monkeypatch, 2**32)
    cut = saved(tmp_path / "cut", monkeypatch)
    [one], [entry] = whole.card.shards, cut.card.shards
    assert (one.members, list(one.files)) == ([], [one.file])
    assert "members" not in (whole.path / "card.json").read_text()
    assert (entry.sha256, entry.crc32, entry.bytes) == (one.sha256, one.crc32, one.bytes)
    assert len(entry.members) == -(-one.bytes // SIZE) > 3
    assert sorted(entry.files) == sorted(
        f"shards/{path.name}" for path in (cut.path / "shards").iterdir()
    )
    joined = b"".join((cut.path / file).read_bytes() for file in entry.files)
    assert joined == (whole.path / one.file).read_bytes()
    left, right = Shard(whole.path / one.file), Shard(cut.path / entry.file)
    pattern = str(cut.path / "shards/00000-%05d.h5")
    with h5py.File(pattern, driver="family", memb_size=SIZE) as file:
        for key, shard in product(left.expected_arrays, (right, pickle.loads(pickle.dumps(right)))):
            np.testing.assert_array_equal(shard.read(key, 0, 9001), left.read(key, 0, 9001))
            np.testing.assert_array_equal(shard.read(key, 0, 9001), file[key][()])
    ours, theirs = kmip_data.open(cut.path)[0], kmip_data.open(whole.path)[0]
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs.to_dict())
    assert 'driver="family", memb_size=' in (cut.path / "README.md").read_text()
    assert verify_build(cut.path).ok


def _other_byte(folder: Path) -> None:
    flip_bit(folder / "shards/00000-00002.h5", 0)


def _whole(folder: Path) -> None:
    files = sorted((folder / "shards").iterdir())
    (folder / "shards/00000.h5").write_bytes(b"".join(path.read_bytes() for path in files))


def _link(folder: Path) -> None:
    path = folder / "shards/00000-00002.h5"
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("change", "file", "what"),
    [
        (_other_byte, "00000-00002", "has different bytes"),
        (_link, "00000-00002", "is a symbolic link, or inside a linked folder"),
        (_whole, "00000", "has a different list of files"),
        (lambda folder: (folder / FIRST).unlink(), "00000-00000", "is missing"),
        (lambda folder: max((folder / "shards").iterdir()).unlink(), "", "is missing"),
    ],
)
def test_the_damaged_file_is_named(change, file, what, cut):
    change(cut.path)
    file = file or f"00000-{len(cut.card.files) - 1:05d}"
    report = verify_build(cut.path)
    assert [(problem.file, problem.message) for problem in report.problems] == [
        (f"shards/{file}.h5", what)
    ]
    assert report.broken_shards == ["shards/00000.h5"]
    if what == "is missing":
        with pytest.raises(DamagedInput):
            kmip_data.open(cut.path)[0]


def test_truncated_members_are_refused(cut):
    path = cut.path / FIRST
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(DamagedInput):
        Shard(cut.path / "shards/00000.h5")


def test_files_are_sent_one_by_one_and_removed_by_name(cut, tmp_path, monkeypatch):
    ensure_columns(cut, ["degree-profile-2.8"], quiet=True)
    share = push_build(cut, str(tmp_path / "there"), quiet=True)
    assert set(cut.card.files) < {entry.file for entry in share.files}
    home = Home(tmp_path / "home")
    pulled = pull(str(tmp_path / "there"), home, quiet=True)
    assert verify_build(pulled.path).ok
    assert not any((pulled.path / file).stat().st_mode & 0o222 for file in pulled.card.files)
    (pulled.path / "shards/00000-mine.h5").write_text("mine")
    assert kmip("remove", pulled.path.name, "--yes", "--home", home.path).code == 0
    assert [path.name for path in pulled.path.rglob("*") if path.is_file()] == ["00000-mine.h5"]
