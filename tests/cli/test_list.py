"""``list``: datasets, builds, samples and half-finished builds."""

from __future__ import annotations

import json

from support.cli import expect_refusal, expect_success

from kmip_data.manifest import dataset_names


def test_empty_home_names_the_build_command(home):
    text = expect_success("list").out
    assert "Next: kmip-data list --all" in text
    assert not any(f"{name} " in text for name in dataset_names() if name != "long-range")
    assert all(f"\n{name} " in expect_success("list", "--all").out for name in dataset_names())
    assert f"No builds in {home / 'built'} yet; long-range" in text
    assert f"{home}: " in text
    assert not home.exists()


def test_list_shows_builds_with_their_counts(make_build, tmp_path):
    build = make_build(complete=False)
    make_build("s3dis-sample-k4", sample=True)
    result = expect_success("list", "--json").json
    assert [entry["sample"] for entry in result["builds"]] == [False, True]
    assert result["builds"][0]["complete"] is False
    entry = result["builds"][0]
    assert entry["path"] == str(build.path)
    assert entry["counts"]["graphs"] == 10
    assert entry["bytes"] == sum(path.stat().st_size for path in build.path.glob("shards/*.h5"))
    lines = expect_success("list").out.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("s3dis-sample-k4"))
    assert lines[row + 1] == "    sample"
    assert "    part of the published set" in lines
    assert "unfinished" not in expect_refusal("info", "s3dis-sample")
    assert expect_success("list", "--home", tmp_path / "other", "--json").json["builds"] == []
    catalogue = expect_success("list", "--all").out
    assert catalogue.startswith("dataset ")
    assert "s3dis-sample-k4" not in catalogue
    assert catalogue.endswith("Next: kmip-data list\n")


def test_lists_fit_80_columns(make_build, home):
    for dataset in dataset_names():
        make_build(
            f"{dataset}-limit1000-sample-0123456789ab",
            parameters={f"p{n}": 0.125 for n in range(30)},
        )
    lines = (expect_success("list").out + expect_success("list", "--all").out).splitlines()
    lines = [line for line in lines if not line.startswith(("Builds in", str(home)))]
    assert not [line for line in lines if len(line) > 80]


def test_unfinished_builds_show_their_progress(home):
    folder = home / "built" / "s3dis-k32-0123456789ab"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "00000.h5").write_bytes(b"x")
    (folder / "shards" / "00001.h5.partial").write_bytes(b"x")
    assert "s3dis-k32-0123456789ab has 1 shard\n" in expect_success("list").out
    (folder / "work").mkdir()
    (folder / "work" / "units.json").write_text(
        json.dumps({"files": [f"{number:05d}" for number in range(7)]})
    )
    assert "has 1 of 7 shards" in expect_success("list").out
    assert "is an unfinished build; this command" in expect_refusal("info", "s3dis-k32")
    assert expect_success("list", "--json").json["unfinished"] == [
        {"path": str(folder), "finished": 1, "shards": 7}
    ]


def test_list_all_names_the_families_and_pyg(home):
    text = expect_success("list", "--all").out
    for line in ("\nGeom-GCN\n", "\nLRIM\n", "\nOpen Graph Benchmark\n", "\npyg "):
        assert line in text
