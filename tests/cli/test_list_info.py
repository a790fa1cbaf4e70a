"""``list`` and ``info``: what they say of datasets, builds, samples and half-finished builds."""

from __future__ import annotations

import json

import pytest
from support.cli import kmip

from kmip_data.manifest import dataset_names


def test_empty_home_names_the_build_command(home):
    outcome = kmip("list")
    assert outcome.code == 0
    assert all(name in outcome.out for name in dataset_names())
    assert f"No builds in {home / 'built'} yet: kmip-data build helsinki" in outcome.out
    assert not home.exists()


def test_builds_with_their_counts(make_build):
    build = make_build()
    make_build("s3dis-sample-k4", sample=True)
    found = kmip("list", "--json").json
    assert [entry["sample"] for entry in found["builds"]] == [False, True]
    entry = found["builds"][0]
    assert entry["path"] == str(build.path)
    assert entry["counts"]["graphs"] == 10
    assert entry["bytes"] == sum(path.stat().st_size for path in build.path.glob("shards/*.h5"))
    text = kmip("list").out
    line = next(line for line in text.splitlines() if line.startswith("s3dis-sample-k4"))
    assert line.endswith("sample")
    assert "--k 4" in line


def test_home_option_goes_before_the_environment(make_build, tmp_path):
    make_build()
    assert kmip("list", "--home", tmp_path / "other", "--json").json["builds"] == []


def test_unfinished_builds_say_how_far_they_are(home):
    folder = home / "built" / "s3dis-k32-0123456789ab"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "00000.h5").write_bytes(b"x")
    (folder / "shards" / "00001.h5.partial").write_bytes(b"x")
    assert "s3dis-k32-0123456789ab has 1 shards" in kmip("list").out
    (folder / "work").mkdir()
    (folder / "work" / "journal.jsonl").write_text('{"journal":1,"key":"0123456789ab"}\n{"units":7}\n{"uni')
    assert "has 1 of 7 shards" in kmip("list").out
    assert kmip("list", "--json").json["unfinished"] == [{"path": str(folder), "finished": 1, "shards": 7}]


def test_info_of_a_dataset(home):
    text = kmip("info", "shapenet-part").out
    for fact in (
        "16,881",
        "train 12,137",
        "Terms of Use",
        "https://",
        "--archive PATH",
        "gps-kmip",
        "Airplane/0",
    ):
        assert fact in text, fact
    found = kmip("info", "shapenet-part", "--json").json
    assert found["expected"]["graphs"] == 16_881
    assert found["presets"] == ["gps-kmip"]
    assert found["builds"] == []


def test_info_of_a_dataset_lists_its_builds(make_build):
    make_build()
    assert "s3dis-k4" in kmip("info", "s3dis").out
    assert "s3dis-k4" not in kmip("info", "shapenet-part").out


def test_info_of_a_recipe_names_what_it_needs(home):
    text = kmip("info", "points").out
    assert "kmip-data build points --name NAME" in text
    assert "kmip_data.open(NAME)" in text
    assert "--archive" not in text


def test_info_of_a_build(make_build):
    build = make_build()
    by_path, by_parameters = kmip("info", build.path), kmip("info", "s3dis", "--k", "4")
    assert by_path.code == 0
    assert by_path.out == by_parameters.out
    for fact in (str(build.path), "node/x", "edge/neighbor", "train", "ceiling, floor, wall"):
        assert fact in by_path.out
    assert kmip("info", build.path, "--json").json["key"] == build.card.key


def test_info_of_a_sample_says_so(make_build):
    make_build("s3dis-sample-k4", sample=True)
    assert "sample: generated" in kmip("info", "s3dis", "--sample", "--k", "4").out
    assert kmip("info", "s3dis", "--k", "4").code == 2, "a sample is never a silent substitute"


def test_several_builds_that_match_are_listed(make_build):
    first, second = make_build("one"), make_build("two")
    outcome = kmip("info", "s3dis", "--k", "4")
    assert outcome.code == 2
    assert str(first.path) in outcome.err
    assert str(second.path) in outcome.err


def test_damaged_card_is_4(make_build):
    build = make_build()
    (build.path / "card.json").write_text(json.dumps({"version": 1}))
    outcome = kmip("info", build.path)
    assert outcome.code == 4
    assert "card.json" in outcome.err
    assert kmip("list").code == 0, "one damaged build does not hide the others"


@pytest.mark.parametrize("command", ["list", "info", "stats", "preview"])
def test_part_of_the_published_set_says_so(make_build, command):
    """Fails before for ``stats`` and ``preview``."""
    build = make_build("s3dis-k4", complete=False)
    target = [] if command == "list" else [build.path]
    if command == "preview":
        picture = build.path / "preview.html"
        assert kmip("preview", build.path, "--html").code == 0
        assert "(part of the published set)" in picture.read_text()
    else:
        assert "part of the published set" in kmip(command, *target).out
    facts = json.loads(kmip(command, *target, "--json").out)
    assert (facts["builds"][0] if command == "list" else facts)["complete"] is False
