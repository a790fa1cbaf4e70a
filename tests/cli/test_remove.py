"""``remove``: what goes is what kmip-data wrote, after a question; and the sizes in ``list``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli import done, refused
from support.training_data import learnable_build, tiny_config

from kmip_data.builds.home import Build, Home
from kmip_data.files.changes import build_lock
from kmip_data.models.training.run.train import train
from kmip_data.pipelines.raw.copies import local_source, store

MEMBERS = {"a.txt": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}  # of "a"


@pytest.fixture
def raw(home: Path, tmp_path: Path) -> Path:
    """``raw/s3dis`` with a copy of one member, a part of a download, and the pin of a first one."""
    folder, stage = home / "raw/s3dis", tmp_path / "stage"
    folder.mkdir(parents=True)
    stage.mkdir()
    (stage / "a.txt").write_text("a")
    store(folder, stage, MEMBERS, [local_source("rooms", "here", MEMBERS, 1)], dataset="s3dis")
    (folder / "rooms.zip.partial").write_bytes(b"PK")
    (folder / "rooms.zip.partial.json").write_text("{}")
    (folder / "pinned.json").write_text("{}")
    return folder


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_sizes_by_folder(make_build: Callable[..., Build], raw: Path, home: Path) -> None:
    build = make_build()
    for name in ("one", "two"):
        (home / "runs/s3dis/gcn" / name).mkdir(parents=True)
        (home / "runs/s3dis/gcn" / name / "config.toml").write_bytes(b"x" * 1000)
    (home / "sweeps/plan").mkdir(parents=True)
    (home / "sweeps/plan/a.log").write_bytes(b"x" * 10)
    (home / "licenses.json").write_bytes(b"x" * 7)
    (home / "built/elsewhere").symlink_to(home.parent)
    found = done("list", "--json").json
    folders = {entry["folder"]: (entry["what"], entry["bytes"]) for entry in found["folders"]}
    assert folders["built/s3dis-k4"] == ("build", size_of(build.path))
    assert folders["raw/s3dis"] == ("raw files", size_of(raw))
    assert folders["runs/s3dis/gcn"] == ("2 runs", 2000)
    assert folders["sweeps"] == ("logs of sweeps", 10)
    assert folders["others"][1] >= 7
    assert found["bytes"] == sum(size for _, size in folders.values())
    sizes = [entry["bytes"] for entry in found["folders"]]
    assert sizes == sorted(sizes, reverse=True)
    text = done("list").out
    assert f"{home}: " in text
    assert "runs/s3dis/gcn  2 runs" in text.replace("   ", "  ")


def test_a_build_is_removed_and_other_files_stay(make_build: Callable[..., Build]) -> None:
    build, other = make_build(), make_build("s3dis-k8")
    mine = build.path / "shards/notes.txt"
    (build.path / "preview.html").write_text("a picture")
    mine.write_text("mine")
    size = size_of(build.path)
    (entry,) = done("remove", "s3dis-k4", "--yes", "--json").json["removed"]
    assert (entry["name"], entry["kind"]) == ("built/s3dis-k4", "build")
    assert (entry["bytes"], entry["bytes_left"]) == (size, 4)
    assert [path for path in build.path.rglob("*") if path.is_file()] == [mine]
    assert other.path.is_dir()
    assert "Removed " in done("remove", other.path, "-y").out
    assert [path.name for path in build.path.parent.iterdir()] == [build.path.name]


def test_raw_files_are_removed_by_their_receipts_and_the_pin_stays(raw: Path) -> None:
    refused("remove", "s3dis", "--yes")  # raw files are never what a short name means
    text = done("remove", "raw/s3dis", "--yes").out
    assert [path.name for path in raw.iterdir()] == ["pinned.json"]
    assert f"left in {raw}, not of kmip-data or pinned: pinned.json" in text


def test_all_files_of_a_run_are_removed(home: Path, tmp_path: Path) -> None:
    build = learnable_build(tmp_path / "data")
    config = tiny_config(build, training={"epochs": 1})
    first = train(config, home=Home(home), name="one", quiet=True).runs[0]
    second = shutil.copytree(first, first.with_name("two"))
    shutil.copy(first / "model.safetensors", first / "initial.safetensors")
    (second / "mine").mkdir()
    done("remove", "clouds/gps-kmip/one", "two", "--yes")
    assert not first.exists()
    assert [path.name for path in second.iterdir()] == ["mine"]
    assert build.path.is_dir()


def test_an_unfinished_build_is_removed_by_its_journal(home: Path) -> None:
    folder = home / "built/s3dis-k32-0123456789ab"
    for name in ("shards", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "work/journal.jsonl").write_text('{"journal":1,"key":"0123456789ab"}\n{"units":2}\n')
    (folder / "shards/00001.h5").write_bytes(b"x")
    (folder / "shards/00007.h5").write_bytes(b"mine")
    done("remove", folder.name, "--yes")
    assert [path.name for path in folder.rglob("*")] == ["shards", "00007.h5"]


def test_nothing_is_removed_if_one_folder_is_in_use(make_build: Callable[..., Build]) -> None:
    build, other = make_build(), make_build("s3dis-k8")
    with build_lock(other.path):
        assert f"{other.path} is in use" in refused("remove", "s3dis-k4", "s3dis-k8", "--yes")
    assert build.path.is_dir()


def test_links_are_followed_at_the_top_of_the_home_alone(home: Path, tmp_path: Path) -> None:
    away = tmp_path / "away/gcn/one"
    away.mkdir(parents=True)
    (away / "config.toml").write_bytes(b"x" * 1000)
    (home / "runs").mkdir(parents=True)
    (home / "runs/s3dis").symlink_to(tmp_path / "away")
    refused("remove", "s3dis/gcn/one", "--yes")
    assert (away / "config.toml").is_file()
    assert not any(entry["folder"].startswith("runs") for entry in done("list", "--json").json["folders"])
    shutil.rmtree(home)
    home.mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "away").rename(tmp_path / "disk/s3dis")
    (home / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "disk/s3dis/gcn/one/result.json").write_text('{"build_key": "", "config": {}, "metrics": {}}')
    (home / "licenses.json").write_bytes(b"x" * 7)
    folders = {entry["folder"]: entry["bytes"] for entry in done("list", "--json").json["folders"]}
    assert (folders["runs/s3dis/gcn"], folders["others"]) == (1046, 7)
    done("remove", "one", "--yes")
    assert not any((tmp_path / "disk").iterdir())


def test_removal_is_confirmed_first(
    make_build: Callable[..., Build], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = make_build()
    assert "--yes" in refused("remove", "s3dis-k4")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in ((False, 1), (True, 0)):
        monkeypatch.setattr("click.confirm", lambda *_, answer=answer, **__: answer)
        assert build.path.is_dir()
        refused("remove", "s3dis-k4", code=code)
    assert not build.path.exists()


def test_unknown_and_ambiguous_names(make_build: Callable[..., Build], raw: Path, home: Path) -> None:
    cases = {"s3di": "next: kmip-data list lists", "raw/s3di": "next: kmip-data remove raw/s3dis\n"}
    for target, word in cases.items():  # raw files are no slip for a build
        assert word in refused("remove", target, "--yes")
    make_build()
    assert "next: kmip-data remove built/s3dis-k4\n" in refused("remove", "s3dis", "--yes")
    assert raw.is_dir()
    assert "built/s3dis-k4" in refused("remove", "s3dis-k5", "--yes")
    for model in ("gcn", "gps-kmip"):
        (home / "runs/s3dis" / model / "one").mkdir(parents=True)
    message = refused("remove", "one", "--yes")
    assert "2 folders are called 'one'" in message
    assert "runs/s3dis/gcn/one" in message
