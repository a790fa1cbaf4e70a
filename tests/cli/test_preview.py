"""``preview``: pictures, drawn and saved."""

from __future__ import annotations

import os
from pathlib import Path

from support.cases import check_each
from support.cli import kmip

TARGET = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home")


def test_preview_png(home_of_sample):
    found = kmip("preview", *TARGET, home_of_sample, "--json").json
    assert [entry["position"] for entry in found["records"]] == [2, 6, 10]
    data = Path(found["saved"]).read_bytes()
    assert data.startswith(b"\x89PNG")
    again = kmip("preview", *TARGET, home_of_sample, "--json").json
    assert Path(again["saved"]).read_bytes() == data, "the same picture from the same build"


def test_preview_of_a_part(sample):
    found = kmip("preview", sample, "--split", "test", "--json").json
    assert len(found["records"]) == 2
    assert all(entry["key"].startswith("Area_6") for entry in found["records"])


def test_part_of_a_build_without_it_or_without_splits_is_2(make_build):
    other = make_build("other", parts={"train": [0, 1], "val": []})
    none = make_build("none", parts=None)
    for build, expected in ((other, "called 'test'"), (none, "no splits")):
        outcome = kmip("preview", build.path, "--split", "test")
        assert outcome.code == 2, outcome.err
        assert expected in outcome.err
        assert f"next: kmip-data info {build.path}" in outcome.err
    empty = kmip("preview", other.path, "--split", "val")
    assert empty.code == 2, empty.err
    assert "the val part has no records" in empty.err


def test_part_of_a_changed_split_file_is_4(make_build):
    build = make_build()
    file = build.path / build.card.splits["default"].file
    file.write_bytes(file.read_bytes() + b" ")
    outcome = kmip("preview", build.path, "--split", "test")
    assert outcome.code == 4, outcome.err
    assert "--repair" in outcome.err


def test_records_that_are_not_there_are_2(sample, tmp_path):
    named = {"0,99": "99", "99,0": "99", "0,20..30": "20..30", "0,": "", "0,-1": "-1", "9" * 5_000: "999"}
    odd = ("12", "0..99", "a", "", "2..1", "1..2..3", "1..", "-999999999999..1", "1_0", "٣")
    picture = tmp_path / "no.png"

    def check(records):
        outcome = kmip("preview", sample, f"--records={records}", "--output", picture)
        assert outcome.code == 2
        assert "from 0 to 11" in outcome.err
        assert f"{named.get(records, records)}'" in outcome.err
        assert not picture.exists()

    check_each(check, [*named, *odd])


def test_preview_of_a_build_that_may_not_be_changed_goes_to_the_current_folder(
    make_build, tmp_path, monkeypatch
):
    build = make_build()
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != build.path and real(path, mode))
    monkeypatch.chdir(tmp_path)
    outcome = kmip("preview", build.path, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["saved"] == str(tmp_path / "s3dis-k4-preview.png")
    assert (tmp_path / "s3dis-k4-preview.png").is_file()
    assert not (build.path / "preview.png").exists()
    assert "may not be written to" in outcome.err


def test_an_output_is_written_where_a_link_leads_but_no_device(make_build, tmp_path):
    build, link, device = make_build(name="toy").path, tmp_path / "link", tmp_path / "device"
    os.mkfifo(device)
    link.symlink_to(device)
    words = ("preview", build, "--records", "0", "--output", link)
    outcome = kmip(*words)
    assert outcome.code == 2
    assert "is not a regular file" in outcome.err
    assert link.is_symlink()
    assert device.is_fifo()
    link.unlink()
    link.symlink_to(tmp_path / "file")
    assert kmip(*words).code == 0
    assert link.is_symlink()
    assert (tmp_path / "file").stat().st_size


def test_nothing_is_written_through_a_link_in_a_build(make_build, tmp_path):
    build = make_build(name="toy").path
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (build / "preview.png").symlink_to(mine)
    outcome = kmip("preview", build, "--records", "0")
    assert outcome.code == 2
    assert "is a symbolic link" in outcome.err
    assert mine.read_text() == "mine"


def test_output_folder_that_is_not_there_is_2(sample, tmp_path):
    outcome = kmip("preview", sample, "--output", tmp_path / "no" / "file")
    assert outcome.code == 2
    assert "cannot be written" in outcome.err
