"""``preview``: pictures, drawn and saved."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.cases import check_each, read_contents
from support.cli import expect_refusal, expect_success

from kmip_data.cli.build import _add_picture
from kmip_data.cli.preview import typical_records
from kmip_data.pipelines.build import build_dataset

TARGET = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home")


@pytest.mark.slow
def test_the_same_picture_from_the_same_build(home_of_sample):
    result = expect_success("preview", *TARGET, home_of_sample, "--json").json
    assert [entry["position"] for entry in result["records"]] == [1, 7, 10]
    data = Path(result["saved"]).read_bytes()
    assert data.startswith(b"\x89PNG")
    again = expect_success("preview", *TARGET, home_of_sample, "--json").json
    assert Path(again["saved"]).read_bytes() == data


class Graphs(list[int]):
    """Numbers of nodes of graphs without labels, as a dataset."""

    schema = SimpleNamespace(y_column=None)

    @property
    def nodes(self):
        return np.array(self)


def test_a_typical_record_has_about_the_median_size_or_fifty_nodes():
    for sizes, wanted in (
        ([1_600, 5, 40, 3_000, 2_000], 2),
        ([40, 12, 11, 2], 1),
        ([10, 12, 11], 0),
        ([7], 0),
    ):
        assert typical_records([0], Graphs(sizes)) == [wanted], sizes
    for name in ("preview", "explore"):
        help_text = " ".join(expect_success(name, "--help").out.split())
        assert "of about the median size, or 50 nodes if that is less]" in help_text


def test_missing_records_end_with_exit_code_2(sample, tmp_path):
    outside = {"0,99": "99", "0,20..30": "30", "12": "12", "0..99": "99"}
    no_numbers = ["0,", "0,-1", "9" * 5_000, "2..1", "1..", "1_0", "٣"]

    def check(records):
        message = expect_refusal(
            "preview", sample, f"--records={records}", "--output", tmp_path / "no.png"
        )
        if records in outside:
            assert "from 0 to 11" in message
            assert f"found: {outside[records]}\n" in message
        else:
            assert f"--records is not a list of numbers: {records:.80}" in message
        assert not (tmp_path / "no.png").exists()

    check_each(check, [*outside, *no_numbers])


def test_nothing_is_written_into_a_read_only_build_a_device_or_through_a_link(
    make_build, tmp_path, monkeypatch
):
    build, link, device = make_build(name="toy").path, tmp_path / "link", tmp_path / "device"
    words = ("preview", build, "--records", "0")
    os.mkfifo(device)
    link.symlink_to(device)
    expect_refusal(*words, "--output", link)
    expect_refusal(*words, "--output", link, "--force")
    assert link.is_symlink()
    assert device.is_fifo()
    link.unlink()
    link.symlink_to(tmp_path / "file")
    expect_success(*words, "--output", link, "--force")  # a path that the user named may be a link
    assert link.is_symlink()
    assert (tmp_path / "file").stat().st_size
    assert str(tmp_path / "no") in expect_refusal(*words, "--output", tmp_path / "no" / "file")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != build and real(path, mode))
    message = expect_refusal(*words)
    assert str(build) in message


def test_build_draws_the_picture_that_its_page_begins_with(tmp_path, monkeypatch):
    monkeypatch.setattr("kmip_data.cli.build._add_picture", _add_picture)  # tests draw none
    home = tmp_path / "home"
    built = expect_success("build", "zinc", "--sample", "--limit", 9, "--home", home)
    assert "Drawing the picture" in built.err
    (folder,) = (home / "built").iterdir()
    page = (folder / "README.md").read_text()
    assert page.splitlines()[2] == "![Picture, drawn by kmip-data preview](preview.png)"
    assert (folder / "preview.png").read_bytes().startswith(b"\x89PNG")
    assert "is sound" in expect_success("verify", folder).out
    assert (
        "Drawing"
        not in expect_success("build", "zinc", "--sample", "--limit", 9, "--home", home).err
    )

    shared = tmp_path / "shared"
    expect_success("push", folder, shared)
    assert (shared / "preview.png").read_bytes() == (folder / "preview.png").read_bytes()
    assert "(preview.png)" in (shared / "README.md").read_text()
    pulled = tmp_path / "pulled"
    expect_success("pull", shared, "--output", pulled)
    assert read_contents(pulled) == read_contents(folder)


def test_a_user_file_with_the_name_of_the_picture_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("kmip_data.cli.build._add_picture", _add_picture)
    home = tmp_path / "home"
    built = build_dataset("zinc", sample=True, home=home, parameters={"limit": 9}, quiet=True)
    (built.path / "preview.png").write_text("mine")
    expect_success("build", "zinc", "--sample", "--limit", 9, "--home", home)
    assert (built.path / "preview.png").read_text() == "mine"
    expect_success("push", built.path, tmp_path / "shared")
    assert not (tmp_path / "shared/preview.png").exists()
    assert "(preview.png)" not in (tmp_path / "shared/README.md").read_text()


def test_build_says_why_it_draws_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr("kmip_data.cli.build._add_picture", _add_picture)
    monkeypatch.setattr("kmip_data.cli.build.MAX_DRAWN_NODES", 2)
    words = ("build", "zinc", "--sample", "--limit", 9, "--home", tmp_path)
    built = expect_success(*words)
    (folder,) = (tmp_path / "built").iterdir()
    (line,) = (line for line in built.err.splitlines() if "No picture was drawn" in line)
    assert "nodes are more than 18" in line
    assert not (folder / "preview.png").exists()
    expect_success(*shlex.split(line.partition("kmip-data ")[2]))
    assert (folder / "preview.png").exists()
    assert "picture" not in expect_success(*words).err
