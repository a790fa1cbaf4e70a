"""``build``, ``verify``, ``fetch``: what they print and leave, on samples and small real archives."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.cli import kmip
from support.shared import shared_data

SMALL = ("--sample", "--limit", "3", "--k", "4", "--jobs", "1", "--quiet")


def test_build_json_is_as_designed_and_true(home):
    outcome = kmip("build", "s3dis", *SMALL, "--test-area", "5", "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json
    path = Path(found["path"])
    assert path.parent == home / "built"
    assert "sample" in path.name
    assert found["sample"] is True
    assert found["dataset"] == "s3dis"
    assert found["key"] in path.name
    assert found["parameters"]["k"] == 4
    assert found["split"] == "upstream-area5-seed0"
    assert sum(part["graphs"] for part in found["splits"].values()) == 3
    assert {"graphs", "nodes", "edges", "digest"} == set(found["splits"]["train"])
    for file, digest in found["shards"].items():
        assert hashlib.sha256((path / file).read_bytes()).hexdigest() == digest


def test_second_build_is_found_and_another_split_is_added_beside_it(home):
    first = kmip("build", "s3dis", *SMALL, "--json").json
    before = {path: path.stat().st_mtime_ns for path in Path(first["path"]).glob("shards/*")}
    again = kmip("build", "s3dis", *SMALL, "--split-rule", "room", "--json").json
    assert again["shards"] == first["shards"]
    assert again["split"] != first["split"]
    assert before == {path: path.stat().st_mtime_ns for path in Path(first["path"]).glob("shards/*")}


def test_build_says_what_was_built_and_what_to_do_next(home):
    outcome = kmip("build", "s3dis", *SMALL)
    assert outcome.code == 0
    for fact in ("(sample: generated, not the real data)", "3", "train", "val", "test", "kmip-data verify"):
        assert fact in outcome.out
    assert "not the real data" in outcome.out


def test_output_folder(home, tmp_path):
    found = kmip("build", "s3dis", *SMALL, "--output", tmp_path / "here", "--json").json
    assert found["path"] == str(tmp_path / "here")
    assert (tmp_path / "here" / "card.json").is_file()


def test_verify_sound_then_broken_then_repaired(home):
    path = Path(kmip("build", "s3dis", *SMALL, "--json").json["path"])
    sound = kmip("verify", "s3dis", *SMALL[:5])
    assert sound.code == 0
    assert "is sound" in sound.out
    shard = path / "shards" / "00000.h5"
    shard.chmod(0o644)
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    broken = kmip("verify", path)
    assert broken.code == 1
    assert "shards/00000.h5" in broken.err
    assert "--repair" in broken.err
    report = kmip("verify", path, "--json")
    assert report.code == 1
    assert report.json["broken_shards"] == ["shards/00000.h5"]
    assert report.json["ok"] is False
    repaired = kmip("verify", path, "--repair", "--quiet")
    assert repaired.code == 0, repaired.err
    assert "shards/00000.h5" in repaired.out
    assert shard.read_bytes() == whole


def test_a_repair_that_does_not_help_says_what_it_changed(make_build, monkeypatch):
    """A disk that returns other bytes than it was given, for one."""
    path = make_build().path
    shard = path / "shards" / "00000.h5"
    shard.write_bytes(shard.read_bytes()[:-1])
    monkeypatch.setattr(
        "kmip_data.pipelines.engine.repair.repair_build", lambda *_, **__: ["shards/00000.h5"]
    )
    outcome = kmip("verify", path, "--repair")
    assert outcome.code == 1
    assert "still broken after the repair" in outcome.err
    assert "on disk: rebuilt: shards/00000.h5" in outcome.err
    assert "nothing was changed" not in outcome.err


@pytest.mark.parametrize(
    ("name", "archive", "graphs"),
    [
        ("s3dis", "indoor3d_sem_seg_hdf5_data_small.zip", 49),
        ("shapenet-part", "shapenet_part_16_shapes.zip", 16),
    ],
)
def test_build_from_a_real_archive(home, name, archive, graphs):
    found = kmip("build", name, "--archive", shared_data(archive), "--jobs", "2", "--quiet", "--json")
    assert found.code == 0, found.err
    assert sum(part["graphs"] for part in found.json["splits"].values()) == graphs
    assert found.json["sample"] is False
    assert kmip("build", name, "--offline", "--json").json["shards"] == found.json["shards"]


def test_offline_with_an_empty_home_is_3_and_shows_the_way(home):
    from kmip_data.manifest import load_manifest

    outcome = kmip("build", "s3dis", "--offline")
    assert outcome.code == 3
    for source in load_manifest("s3dis").sources:
        assert source.name in outcome.err
        assert all(mirror.url in outcome.err for mirror in source.mirrors)
    assert "--archive" in outcome.err


def test_fetch_from_a_local_archive(home):
    outcome = kmip(
        "fetch", "shapenet-part", "--archive", shared_data("shapenet_part_16_shapes.zip"), "--json", "-q"
    )
    assert outcome.code == 0, outcome.err
    receipt = outcome.json["receipts"][0]
    assert receipt["bytes"] == shared_data("shapenet_part_16_shapes.zip").stat().st_size
    assert kmip("build", "shapenet-part", "--offline", "-q").code == 0, "what was fetched is enough to build"


def test_licence_is_asked_for_before_a_download_and_never_waits(home):
    outcome = kmip("fetch", "shapenet-part")
    assert outcome.code == 5
    assert "--accept-license" in outcome.err
    assert "https://shapenet.org/terms" in outcome.err


def test_archive_that_is_not_there_or_is_something_else(home, tmp_path):
    missing = kmip("build", "s3dis", "--archive", tmp_path / "none.zip")
    assert missing.code in {2, 3}
    other = tmp_path / "other.zip"
    other.write_bytes(b"<html>not an archive</html>")
    damaged = kmip("build", "s3dis", "--archive", other)
    assert damaged.code == 4
    assert "other.zip" in damaged.err


def test_full_disk_is_6_and_the_same_command_goes_on(home):
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000));"
        "sys.argv = ['kmip-data', *sys.argv[1:]]; from kmip_data.cli.main import main; main()"
    )
    raw = kmip("build", "s3dis", *SMALL, "--set", "knn_rule=torch-cluster", "--json")
    assert raw.code == 0, "the raw sample is there now, which the limit below would not allow"
    done = subprocess.run(
        [sys.executable, "-c", program, "build", "s3dis", *SMALL, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 6, done.stderr
    assert "Traceback" not in done.stderr
    error = json.loads(done.stdout)["error"]
    assert (error["class"], error["exit_code"]) == ("OutOfResources", 6)
    assert not list(home.rglob("*.partial"))
    again = kmip("build", "s3dis", *SMALL, "--json")
    assert again.code == 0, again.err
    assert kmip("verify", again.json["path"]).code == 0


def test_an_archive_that_cannot_be_built_from_leaves_nothing(home, tmp_path):
    archive = shared_data("indoor3d_sem_seg_hdf5_data_small.zip")
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "part", [n for n in file.namelist() if not n.endswith("_1.h5")])
    outcome = kmip("build", "s3dis", "--archive", tmp_path / "part")
    assert outcome.code == 4
    assert "ply_data_all_1.h5" in outcome.err
    assert not list(home.glob("raw/s3dis/members-*"))
    assert not list(home.glob("built/*"))
    assert kmip("build", "s3dis", "--offline").code == 3


def test_a_build_that_lost_a_shard_is_not_called_built():
    archive = shared_data("indoor3d_sem_seg_hdf5_data_small.zip")
    assert kmip("build", "s3dis", "--archive", archive).code == 0
    path = Path(kmip("build", "s3dis", "--json").json["path"])
    (path / "shards" / "00001.h5").unlink()
    outcome = kmip("build", "s3dis")
    assert outcome.code == 4
    assert "--repair" in outcome.err
    assert kmip("verify", "s3dis", "--repair").code == 0
    assert kmip("build", "s3dis").code == 0


def test_sample_and_archive_together_are_refused(tmp_path):
    outcome = kmip("build", "s3dis", "--sample", "--archive", tmp_path)
    assert outcome.code == 2
    assert "both" in outcome.err


def test_list_shows_a_build_whose_card_is_damaged(home):
    archive = shared_data("indoor3d_sem_seg_hdf5_data_small.zip")
    path = Path(kmip("build", "s3dis", "--archive", archive, "--json").json["path"])
    (path / "card.json").write_text("{")
    assert kmip("list", "--json").json["unreadable"] == [str(path)]
    assert "unreadable" in kmip("list").out


def test_a_sample_that_would_fill_the_disk_is_refused(home):
    outcome = kmip("build", "s3dis", "--sample", "--limit", 10**10)
    assert outcome.code == 2
    assert "miniature" in outcome.err
    assert not list(home.rglob("*.h5"))
