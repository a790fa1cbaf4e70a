"""``stats``: tables, printed and saved."""

from __future__ import annotations

from pathlib import Path

from support.cli import kmip

TARGET = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home")


def test_stats_prints_and_saves_the_same_table(home_of_sample, tmp_path):
    outcome = kmip("stats", *TARGET, home_of_sample, "--output", tmp_path / "table.txt")
    assert outcome.code == 0
    saved = (tmp_path / "table.txt").read_text("utf-8")
    assert outcome.out.startswith(saved.rstrip())
    assert "sample: generated, not the real data" in saved
    for fact in ("49,152", "196,608", "ceiling", "out-degree", "train"):
        assert fact in saved


def test_stats_json_adds_up(sample):
    found = kmip("stats", sample, "--json").json
    classes = found["statistics"]["classes"]
    assert sum(classes["total"]) == found["counts"]["nodes"] == 12 * 4096
    split = next(iter(found["splits"]))
    parts = classes["splits"][split]
    assert [sum(column) for column in zip(*parts.values(), strict=True)] == classes["total"]
    assert Path(found["saved"]).is_file()


def test_stats_of_a_build_that_may_not_be_changed_are_printed(make_build):
    build = make_build()
    (build.path / "statistics.txt").mkdir()  # no file can take its name, whoever asks
    outcome = kmip("stats", build.path)
    assert outcome.code == 0
    assert "edges/node" in outcome.out
    assert "Saved" not in outcome.out
    assert "Not saved" in outcome.err
    assert "--output FILE" in outcome.err
    assert kmip("stats", build.path, "--json").json["saved"] is None
    asked = kmip("stats", build.path, "--output", build.path)
    assert (asked.code, "edges/node" in asked.out) == (2, True)


def test_a_repeated_parameter_finds_its_build(home):
    """Cards keep lists, the line gives tuples, and names of categories in any case."""
    line = ("shapenet-part", "--sample", "--limit", "2", "--category", "airplane")
    assert kmip("build", *line, "--jobs", "1", "-q").code == 0
    outcome = kmip("stats", *line)
    assert outcome.code == 0, outcome.err
    assert "Airplane/0" in outcome.out
