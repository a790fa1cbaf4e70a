"""``build``, ``verify``, ``fetch``: what they print and leave, on samples and small real archives."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from support.builds.written import numbered_build
from support.cases import check_each, damage_file
from support.cli import expect_refusal, expect_success, kmip, python
from support.shared import shared_data

from kmip_data.manifest import load_manifest

S3DIS_ZIP, SHAPENET_ZIP = "indoor3d_sem_seg_hdf5_data_small.zip", "shapenet_part_16_shapes.zip"
SMALL = ("--sample", "--limit", "3", "--k", "4", "--jobs", "1", "--quiet")


def test_build_json_describes_the_build_on_disk(home, tmp_path):
    result = expect_success("build", "s3dis", *SMALL, "--test-area", "5", "--json").json
    path = Path(result["path"])
    assert path.parent == home / "built"
    assert "sample" in path.name
    assert (result["sample"], result["dataset"], result["split"]) == (
        True,
        "s3dis",
        "upstream-area5-seed0",
    )
    assert result["key"] in path.name
    assert result["parameters"]["k"] == 4
    assert sum(part["graphs"] for part in result["splits"].values()) == 3
    assert {"graphs", "nodes", "edges", "digest"} == set(result["splits"]["train"])
    for file, digest in result["shards"].items():
        assert hashlib.sha256((path / file).read_bytes()).hexdigest() == digest
    # A second build is found, and another split is added next to the first.
    before = {path: path.stat().st_mtime_ns for path in path.glob("shards/*")}
    again = expect_success("build", "s3dis", *SMALL, "--split-rule", "room", "--json").json
    assert again["shards"] == result["shards"]
    assert again["split"] != result["split"]
    assert before == {path: path.stat().st_mtime_ns for path in path.glob("shards/*")}
    aloud = SMALL[:-1]
    outcome = expect_success("build", "s3dis", *aloud)
    text = outcome.out
    assert f"already built: {path}\n" in outcome.err
    assert expect_success("build", "s3dis", *SMALL).err == ""
    command = "kmip-data train s3dis --limit 3 --k 4 --sample"
    for fact in ("(sample: generated, not the real data)", "train", "val", "test", command):
        assert fact in text
    elsewhere = ("build", "s3dis", *aloud, "--output", tmp_path / "here", "--json")
    outcome = expect_success(*elsewhere)
    assert outcome.json["path"] == str(tmp_path / "here")
    assert "already built" not in outcome.err
    assert f"already built: {tmp_path / 'here'}\n" in expect_success(*elsewhere).err


def test_verify_finds_damage_and_repair_mends_it(home, monkeypatch):
    path = Path(expect_success("build", "s3dis", *SMALL, "--json").json["path"])
    assert "is sound" in expect_success("verify", "s3dis", *SMALL[:5]).out
    shard = path / "shards" / "00000.h5"
    data = shard.read_bytes()
    damage_file(shard, data, "flipped")
    message = expect_refusal("verify", path, code=1)
    assert "shards/00000.h5" in message
    assert "--repair" in message
    report = kmip("verify", path, "--json").json
    assert (report["broken_shards"], report["ok"]) == (["shards/00000.h5"], False)
    with (
        monkeypatch.context() as patch
    ):  # a disk that returns other bytes than it was given, for one
        patch.setattr(
            "kmip_data.pipelines.engine.repair.repair_build", lambda *_, **__: ["shards/00000.h5"]
        )
        message = expect_refusal("verify", path, "--repair", code=1)
    assert "shards/00000.h5: " in message
    assert "shards/00000.h5" in expect_success("verify", path, "--repair", "--quiet").out
    assert shard.read_bytes() == data


def test_build_from_a_real_archive(home):
    for name, archive, graphs in (("s3dis", S3DIS_ZIP, 49), ("shapenet-part", SHAPENET_ZIP, 16)):
        words = ("--archive", shared_data(archive), "--unpinned", "--quiet", "--json")
        result = expect_success("build", name, *words, "--jobs", "2").json
        assert sum(part["graphs"] for part in result["splits"].values()) == graphs
        assert result["sample"] is False
        assert (
            expect_success("build", name, "--offline", "--json").json["shards"] == result["shards"]
        )
    path = Path(expect_success("build", "s3dis", "--json").json["path"])
    (path / "card.json").write_text("{")
    assert expect_success("list", "--json").json["unreadable"] == [str(path)]
    assert f"{path}/card.json" in expect_refusal("verify", "s3dis", "--repair", code=4)


def test_a_build_of_your_own_with_a_card_that_is_cut_off_is_found_by_its_name(home):
    build = numbered_build(home / "built" / "assay-0123456789ab", 3)
    card = build.path / "card.json"
    card.write_bytes(card.read_bytes()[:3])
    for command in ("verify", "info", "preview", "train", "export"):
        message = expect_refusal(command, "assay", code=4)
        assert str(card) in message


def test_failed_build_prints_next_step_and_leaves_no_files(home, tmp_path):
    other, part = tmp_path / "other.zip", tmp_path / "part"
    other.write_bytes(b"<html>not an archive</html>")
    with zipfile.ZipFile(shared_data(S3DIS_ZIP)) as file:
        file.extractall(part, [n for n in file.namelist() if not n.endswith("_1.h5")])
    mirrors = [mirror.url for source in load_manifest("s3dis").sources for mirror in source.mirrors]
    cases = [
        ("build s3dis --offline", 3, [*mirrors, "--archive"]),
        (
            "fetch shapenet-part",
            5,
            ["--accept-license", "https://shapenet.org/terms"],
        ),  # and never waits
        (f"build s3dis --archive {other}", 4, ["other.zip"]),
        (f"build s3dis --archive {part} --unpinned", 4, ["ply_data_all_1.h5"]),
        (f"build s3dis --sample --archive {tmp_path}", 2, ["both"]),
        # This one would fill the disk.
        (f"build s3dis --sample --limit {10**10}", 2, ["A sample has at most 1,000,000 records"]),
        ("build city --archive a.osm", 2, ["expected: --name NAME and one of --archive"]),
    ]

    def check(case):
        line, code, words = case
        message = expect_refusal(*line.split(), code=code)
        assert [word for word in words if word not in message] == []
        assert not [*home.rglob("*.h5"), *home.glob("raw/s3dis/members-*"), *home.glob("built/*")]

    check_each(check, cases)


def test_a_full_disk_exits_with_6_and_the_same_command_resumes(home):
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000));"
        "sys.argv = ['kmip-data', *sys.argv[1:]]; from kmip_data.cli.main import main; main()"
    )
    # The raw sample is written before, which the limit below would not allow.
    expect_success("build", "s3dis", *SMALL, "--set", "knn_rule=torch-cluster", "--json")
    outcome = python("-c", program, "build", "s3dis", *SMALL, "--json", code=6)
    error = outcome.json["error"]
    assert (error["class"], error["exit_code"]) == ("OutOfResources", 6)
    assert not list(home.rglob("*.partial"))
    expect_success("verify", expect_success("build", "s3dis", *SMALL, "--json").json["path"])
