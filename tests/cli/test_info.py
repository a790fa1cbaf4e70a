"""``info``: what it says of datasets and builds."""

from __future__ import annotations

import json

from support.cli import kmip


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
    stacks = ["gat", "gated-gcn", "gcn", "gine"]
    attention = ["gps-bigbird", "gps-kmip", "gps-none", "gps-performer", "gps-transformer"]
    assert found["presets"] == ["exphormer", *stacks, *attention]
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
    assert first.path.name in outcome.err
    assert second.path.name in outcome.err


def test_damaged_card_is_4(make_build):
    build = make_build()
    (build.path / "card.json").write_text(json.dumps({"version": 1}))
    outcome = kmip("info", build.path)
    assert outcome.code == 4
    assert "card.json" in outcome.err
    assert kmip("list").code == 0, "one damaged build does not hide the others"
