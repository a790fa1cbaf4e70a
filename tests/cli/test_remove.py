"""``remove``: what goes is what kmip-data wrote, after a question; and the sizes in ``list``."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support.cli import expect_refusal, expect_success

from kmip_data.files.atomic_writes import folder_lock, write_marker
from kmip_data.pipelines.base import RawCopy
from kmip_data.pipelines.raw.copies import store_copy
from kmip_data.text import human_bytes

MEMBERS = {"a.txt": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}  # of "a"


@pytest.fixture
def raw(home: Path, tmp_path: Path) -> Path:
    """``raw/s3dis`` with a copy of one member, a part of a download, and the pin of a first one."""
    folder, stage = home / "raw/s3dis", tmp_path / "stage"
    folder.mkdir(parents=True)
    stage.mkdir()
    (stage / "a.txt").write_text("a")
    store_copy(folder, RawCopy(stage, MEMBERS, ()))
    (folder / "rooms.zip.partial").write_bytes(b"PK")
    (folder / "rooms.zip.partial.json").write_text('{"url": "https://host/rooms.zip"}')
    (folder / "pinned.json").write_text("{}")
    return folder


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_remove_lists_the_size_of_each_folder(make_build, raw, home) -> None:
    build = make_build()
    for name in ("one", "two"):
        (home / "runs/s3dis/gcn" / name).mkdir(parents=True)
        (home / "runs/s3dis/gcn" / name / "config.toml").write_bytes(b"x" * 1000)
    (home / "sweeps/plan").mkdir(parents=True)
    (home / "sweeps/plan/a.log").write_bytes(b"x" * 10)
    (home / "licenses.json").write_bytes(b"x" * 7)
    (home / "built/elsewhere").symlink_to(home.parent)
    result = expect_success("list", "--json").json
    folders = {entry["folder"]: (entry["what"], entry["bytes"]) for entry in result["folders"]}
    assert folders["built/s3dis-k4"] == ("build", size_of(build.path))
    assert folders["raw/s3dis"] == ("raw files", size_of(raw))
    assert folders["runs/s3dis/gcn/two"] == ("run", 1000)
    assert folders["sweeps"] == ("logs of sweeps", 10)
    assert folders["."][1] >= 7
    assert result["bytes"] == sum(size for _, size in folders.values())
    sizes = [entry["bytes"] for entry in result["folders"]]
    assert sizes == sorted(sizes, reverse=True)
    text = expect_success("list").out
    assert "\nruns/s3dis/gcn/one  run" in text
    assert f"  {human_bytes(size_of(build.path))}  " in text
    assert re.search("^raw/s3dis +raw files", text, re.MULTILINE)


def test_a_build_is_removed_and_other_files_stay(make_build) -> None:
    build, other = make_build(), make_build("s3dis-k8")
    mine = build.path / "shards/notes.txt"
    picture = build.path / "preview.html"
    picture.write_text("a picture")
    mine.write_text("mine")
    size = size_of(build.path)
    with folder_lock(other.path):  # all of them must be free
        assert str(other.path) in expect_refusal("remove", "s3dis-k4", "s3dis-k8", "--yes")
    assert size_of(build.path) == size
    (entry,) = expect_success("remove", "s3dis-k4", "--yes", "--json").json["removed"]
    assert (entry["name"], entry["kind"]) == ("built/s3dis-k4", "build")
    assert (entry["bytes"], entry["bytes_left"]) == (size, 13)
    assert {path for path in build.path.rglob("*") if path.is_file()} == {picture, mine}
    assert "Removed " in expect_success("remove", other.path, "-y").out
    assert [path.name for path in build.path.parent.iterdir()] == [build.path.name]


def test_raw_files_are_removed_by_their_receipts_and_the_pin_and_other_files_are_kept(raw) -> None:
    expect_refusal("remove", "s3dis", "--yes")  # raw files are never what a short name means
    kept = [".unpacking-abcdefgh", "archive.zip", "notes.txt", "pinned.json", "x.partial"]
    (raw / kept[0]).mkdir()
    for name in (f"{kept[0]}/thesis.tex", *kept[1:]):
        (raw / name).write_text("{}")
    text = expect_success("remove", "raw/s3dis", "--yes").out
    assert sorted(path.name for path in raw.iterdir()) == kept
    assert f"left in {raw}, not of kmip-data or pinned: {', '.join(kept)}" in text


def test_an_unfinished_build_can_be_removed_by_name(home) -> None:
    folder = home / "built/s3dis-k32-0123456789ab"
    for name in ("shards", "work"):
        (folder / name).mkdir(parents=True)
    write_marker(folder, "build 0123456789ab")
    files = ["shards/00001.h5", "shards/00003.h5", "splits/random.h5"]
    (folder / "work/units.json").write_text(json.dumps({"files": files[:2]}))
    (folder / "work/splits.json").write_text(json.dumps({"files": files[2:]}))
    (folder / "splits").mkdir()
    for name in (*files[::2], "shards/00003-00000.h5", "shards/00003-00001.h5"):
        (folder / name).write_bytes(b"x")
    mine = ("shards/00002.h5", "shards/00003-00007.h5", "splits/mine.h5", "columns/x/00001.h5")
    (folder / "columns/x").mkdir(parents=True)
    for name in mine:
        (folder / name).write_bytes(b"mine")
    expect_success("remove", folder.name, "--yes")
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert left == set(mine)


def test_links_are_followed_only_at_the_top_of_the_home(home, tmp_path) -> None:
    away = tmp_path / "disk/s3dis/gcn/one"
    away.mkdir(parents=True)
    (away / "result.json").write_text("{}")
    write_marker(away, "run")
    (home / "runs").mkdir(parents=True)
    (home / "runs/s3dis").symlink_to(tmp_path / "disk/s3dis")
    expect_refusal("remove", "s3dis/gcn/one", "--yes")
    assert away.is_dir()
    assert not any(
        entry["folder"].startswith("runs")
        for entry in expect_success("list", "--json").json["folders"]
    )
    shutil.rmtree(home)
    home.mkdir()
    (home / "runs").symlink_to(tmp_path / "disk")
    folders = {
        entry["folder"]: entry["bytes"]
        for entry in expect_success("list", "--json").json["folders"]
    }
    assert folders["runs/s3dis/gcn/one"] == 2 + len("kmip-data: run\n")
    expect_success("remove", "one", "--yes")
    assert not any((tmp_path / "disk").iterdir())


def test_removal_asks_for_confirmation(make_build, monkeypatch) -> None:
    build = make_build()
    assert "--yes" in expect_refusal("remove", "s3dis-k4")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, code in ((False, 1), (True, 0)):
        monkeypatch.setattr("click.confirm", lambda *_, answer=answer, **__: answer)
        assert build.path.is_dir()
        expect_refusal("remove", "s3dis-k4", code=code)
    assert not build.path.exists()


def test_a_dataset_name_selects_its_only_build(make_build, raw, home) -> None:
    build, other = make_build(), make_build("s3dis-k8", content="other")
    message = expect_refusal("remove", "s3dis", "--yes")
    assert (
        "remedy: all of them\n  next: kmip-data remove built/s3dis-k4 built/s3dis-k8\n" in message
    )
    # A build that a run was trained on is not advised to be removed.
    result = home / "runs/s3dis/gcn/one/result.json"
    result.parent.mkdir(parents=True)
    result.write_text(json.dumps({"build_key": build.card.key}))
    step = "remedy: only without runs\n  next: kmip-data remove built/s3dis-k8\n"
    assert step in expect_refusal("remove", "s3dis", "--yes")
    expect_refusal("remove", "s3", "--yes")
    assert build.path.is_dir()
    assert other.path.is_dir()
    expect_success("remove", "s3dis-k8", "--yes")
    (entry,) = expect_success("remove", "s3dis", "--yes", "--json").json["removed"]
    assert (entry["name"], entry["kind"]) == ("built/s3dis-k4", "build")
    assert not build.path.exists()
    assert raw.is_dir()


def test_unknown_and_ambiguous_names_are_refused(make_build, raw, home) -> None:
    cases = {"s3di": "\n", "raw/s3di": " Did you mean 'raw/s3dis'?\n"}
    for target, hint in cases.items():  # raw files are no slip for a build
        message = expect_refusal("remove", target, "--yes")
        assert f"called {target!r} in the home.{hint}" in message
        assert "next: kmip-data list\n" in message
    for model in ("gcn", "gps-kmip"):
        (home / "runs/s3dis" / model / "one").mkdir(parents=True)
    message = expect_refusal("remove", "one", "--yes")
    assert "runs/s3dis/gcn/one" in message
