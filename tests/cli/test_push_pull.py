"""``push`` and ``pull`` through the command line: builds and runs, there and back."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from support.cli import expect_refusal, expect_success

from kmip_data.files.atomic_writes import MARKER_NAME
from kmip_data.models.training.push_run import run_page
from kmip_data.models.training.references.reference import Reference
from kmip_data.models.training.run.result import read_result

QUICK = ["--epochs", "1", "--device", "cpu", "--quiet", "--name", "mine"]
TINY = ["model.parameter_budget=none", "model.layers=1", "model.hidden_dim=8"]


def test_pushed_build_is_pulled_into_another_home(home_of_sample, sample, tmp_path):
    share, other = tmp_path / "share", tmp_path / "other"
    target = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home", home_of_sample)
    pushed = expect_success("push", *target, share, "--json", "-q").json
    pulled = expect_success("pull", share, "--home", other, "--json", "-q").json
    assert pulled["path"] == str(other / "built" / sample.name)
    same = ("digest", "kind", "name")
    assert [pulled[key] for key in same] == [pushed[key] for key in same]
    view = {file for file in pushed["files"] if file.startswith("parquet/")}
    assert view == {f"parquet/{part}.parquet" for part in ("train", "val", "test")}
    assert pulled["files"] == {
        file: sha256 for file, sha256 in pushed["files"].items() if file not in view
    }
    assert pulled["bytes"] == pushed["bytes"] - sum((share / file).stat().st_size for file in view)
    expect_success("verify", pulled["path"])
    text = expect_success("pull", share, "--home", other, "-q").out
    for words in ("already complete", pushed["digest"], "CC BY 4.0"):
        assert words in text
    assert "s3dis" in expect_success(*shlex.split(text.partition("kmip-data ")[2])).out


def test_pulled_run_evaluates_to_same_metrics(make_build, tmp_path, monkeypatch):
    build, options = make_build(), [word for key in TINY for word in ("--set", key)]
    run = Path(expect_success("train", build.path, *QUICK, *options, "--json").json["run"])
    share, work = tmp_path / "share", tmp_path / "work"
    assert "run mine: 4 files" in expect_success("push", f"{run.parent.name}/mine", share, "-q").out
    page = (share / "README.md").read_text()
    assert page.startswith('---\nlibrary_name: "kmip-data"\n')
    assert "CC BY 4.0" in page
    reference = {"linear": Reference(val=0.5, test=0.25)}
    page = run_page(read_result(run).model_copy(update={"references": reference}))
    assert re.search(r"linear model +50.00 +25.00", page)
    work.mkdir()
    monkeypatch.chdir(work)
    assert "run: 4 files" in expect_success("pull", share, "-q").out
    copied = ("config.toml", "result.json", "model.safetensors")
    assert {path.name for path in (work / "mine").iterdir()} == {
        *copied,
        "metrics.csv",
        MARKER_NAME,
    }
    for name in copied:
        assert (work / "mine" / name).read_bytes() == (run / name).read_bytes()
    again = expect_success("evaluate", work / "mine", "--dataset", build.path, "--json").json
    assert again["same_as_result"] is True
    expect_success("pull", share, "-q")  # what is there stays as it is
    result = read_result(run).model_copy(update={"name": "a`b", "dataset": "x\n---\n# y"})
    assert "\n# y" not in run_page(result).split("```")[0]
    (run / "model.safetensors").write_bytes(b"x")
    expect_refusal("push", run, tmp_path / "elsewhere", code=4)


def test_an_address_without_two_slashes_is_not_read_as_a_folder(make_build, tmp_path, monkeypatch):
    build = make_build()
    monkeypatch.chdir(tmp_path)
    for typed, meant in (
        ("s3:/bucket/x", "s3://bucket/x"),
        ("hf:datasets/me/x", "hf://datasets/me/x"),
        ("http:/host/x", "http://host/x"),
    ):
        message = expect_refusal("push", build.path, typed, "-q")
        assert f"next: kmip-data push {build.path} {meant} -q\n" in message
        assert f"next: kmip-data pull {meant}\n" in expect_refusal("pull", typed)
    assert "secret" not in expect_refusal("push", build.path, "s3:/me:secret@bucket/x", "-q")
    assert not list(tmp_path.glob("*:*"))
