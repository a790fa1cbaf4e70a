"""``build``, ``verify``, ``fetch``: what they print and leave, on samples and small real archives."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from support.cases import check_each
from support.cli import kmip
from support.shared import shared_data

from kmip_data.manifest import load_manifest

S3DIS_ZIP, SHAPENET_ZIP = "indoor3d_sem_seg_hdf5_data_small.zip", "shapenet_part_16_shapes.zip"
SMALL = ("--sample", "--limit", "3", "--k", "4", "--jobs", "1", "--quiet")


def test_build_json_is_as_designed_and_true(home, tmp_path):
    outcome = kmip("build", "s3dis", *SMALL, "--test-area", "5", "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json
    path = Path(found["path"])
    assert path.parent == home / "built"
    assert "sample" in path.name
    assert (found["sample"], found["dataset"], found["split"]) == (True, "s3dis", "upstream-area5-seed0")
    assert found["key"] in path.name
    assert found["parameters"]["k"] == 4
    assert sum(part["graphs"] for part in found["splits"].values()) == 3
    assert {"graphs", "nodes", "edges", "digest"} == set(found["splits"]["train"])
    for file, digest in found["shards"].items():
        assert hashlib.sha256((path / file).read_bytes()).hexdigest() == digest
    # A second build is found, and another split is added next to the first.
    before = {path: path.stat().st_mtime_ns for path in path.glob("shards/*")}
    again = kmip("build", "s3dis", *SMALL, "--split-rule", "room", "--json").json
    assert again["shards"] == found["shards"]
    assert again["split"] != found["split"]
    assert before == {path: path.stat().st_mtime_ns for path in path.glob("shards/*")}
    outcome = kmip("build", "s3dis", *SMALL)
    for fact in ("(sample: generated, not the real data)", "3", "train", "val", "test", "kmip-data verify"):
        assert fact in outcome.out
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


def test_build_from_a_real_archive(home):
    def check(case):
        name, archive, graphs = case
        found = kmip("build", name, "--archive", shared_data(archive), "--jobs", "2", "--quiet", "--json")
        assert found.code == 0, found.err
        assert sum(part["graphs"] for part in found.json["splits"].values()) == graphs
        assert found.json["sample"] is False
        assert kmip("build", name, "--offline", "--json").json["shards"] == found.json["shards"]

    check_each(check, [("s3dis", S3DIS_ZIP, 49), ("shapenet-part", SHAPENET_ZIP, 16)])


def test_fetch_from_a_local_archive(home):
    archive = shared_data(SHAPENET_ZIP)
    outcome = kmip("fetch", "shapenet-part", "--archive", archive, "--json", "-q")
    assert outcome.code == 0, outcome.err
    assert outcome.json["receipts"][0]["bytes"] == archive.stat().st_size
    assert kmip("build", "shapenet-part", "--offline", "-q").code == 0, "what was fetched is enough to build"


def test_what_cannot_be_built_ends_with_the_way_on(home, tmp_path):
    other = tmp_path / "other.zip"
    other.write_bytes(b"<html>not an archive</html>")
    mirrors = [
        word for source in load_manifest("s3dis").sources
        for word in (source.name, *(mirror.url for mirror in source.mirrors))
    ]  # fmt: skip
    cases = [
        ("build s3dis --offline", 3, [*mirrors, "--archive"]),
        ("fetch shapenet-part", 5, ["--accept-license", "https://shapenet.org/terms"]),  # and never waits
        (f"build s3dis --archive {tmp_path / 'none.zip'}", 2, ["none.zip"]),
        (f"build s3dis --archive {other}", 4, ["other.zip"]),
        (f"build s3dis --sample --archive {tmp_path}", 2, ["both"]),
        (f"build s3dis --sample --limit {10**10}", 2, ["miniature"]),  # would fill the disk
    ]

    def check(case):
        line, code, words = case
        outcome = kmip(*line.split())
        assert outcome.code == code, outcome.err
        assert [word for word in words if word not in outcome.err] == []
        assert not list(home.rglob("*.h5"))

    check_each(check, cases)


def test_full_disk_is_6_and_the_same_command_goes_on(home):
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000));"
        "sys.argv = ['kmip-data', *sys.argv[1:]]; from kmip_data.cli.main import main; main()"
    )
    raw = kmip("build", "s3dis", *SMALL, "--set", "knn_rule=torch-cluster", "--json")
    assert raw.code == 0, "the raw sample is there now, which the limit below would not allow"
    words = [sys.executable, "-c", program, "build", "s3dis", *SMALL, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 6, done.stderr
    assert "Traceback" not in done.stderr
    error = json.loads(done.stdout)["error"]
    assert (error["class"], error["exit_code"]) == ("OutOfResources", 6)
    assert not list(home.rglob("*.partial"))
    again = kmip("build", "s3dis", *SMALL, "--json")
    assert again.code == 0, again.err
    assert kmip("verify", again.json["path"]).code == 0


def test_an_archive_that_cannot_be_built_from_leaves_nothing(home, tmp_path):
    with zipfile.ZipFile(shared_data(S3DIS_ZIP)) as file:
        file.extractall(tmp_path / "part", [n for n in file.namelist() if not n.endswith("_1.h5")])
    outcome = kmip("build", "s3dis", "--archive", tmp_path / "part")
    assert outcome.code == 4
    assert "ply_data_all_1.h5" in outcome.err
    assert not list(home.glob("raw/s3dis/members-*"))
    assert not list(home.glob("built/*"))
    assert kmip("build", "s3dis", "--offline").code == 3


def test_a_build_that_lost_a_shard_or_its_card(home):
    assert kmip("build", "s3dis", "--archive", shared_data(S3DIS_ZIP)).code == 0
    path = Path(kmip("build", "s3dis", "--json").json["path"])
    (path / "shards" / "00001.h5").unlink()
    outcome = kmip("build", "s3dis")
    assert outcome.code == 4
    assert "--repair" in outcome.err
    assert kmip("verify", "s3dis", "--repair").code == 0
    assert kmip("build", "s3dis").code == 0
    (path / "card.json").write_text("{")
    assert kmip("list", "--json").json["unreadable"] == [str(path)]
    assert "unreadable" in kmip("list").out
