"""``push`` and ``pull`` through the command line: builds and runs, there and back."""

from __future__ import annotations

from pathlib import Path

from support.cli import kmip

from kmip_data.errors import DamagedInput
from kmip_data.models.training.run.folder import read_result
from kmip_data.models.training.sharing import run_page

QUICK = ["--epochs", "1", "--device", "cpu", "--quiet", "--name", "mine"]
TINY = ["model.parameter_budget=none", "model.layers=1", "model.hidden_dim=8"]


def test_a_build_there_and_back_into_another_home(home_of_sample, sample, tmp_path):
    share, other = tmp_path / "share", tmp_path / "other"
    target = ("s3dis", "--sample", "--limit", "12", "--k", "4", "--home", home_of_sample)
    pushed = kmip("push", *target, share, "--json", "-q")
    assert pushed.code == 0, pushed.err
    found = kmip("pull", share, "--home", other, "--json", "-q")
    assert found.code == 0, found.err
    assert found.json["path"] == str(other / "built" / sample.name)
    assert found.json["digest"] == pushed.json["digest"]
    assert kmip("verify", found.json["path"]).code == 0
    assert "s3dis" in kmip("list", "--home", other).out
    text = kmip("pull", share, "--home", other, "-q").out
    assert "there already" in text
    assert pushed.json["digest"] in text
    assert "CC BY 4.0" in text


def test_a_run_there_and_back_measures_the_same(make_build, tmp_path, monkeypatch):
    build, options = make_build(), [word for key in TINY for word in ("--set", key)]
    run = Path(kmip("train", "--dataset", build.path, *QUICK, *options, "--json").json["run"])
    share = tmp_path / "share"
    outcome = kmip("push", f"{run.parent.name}/mine", share, "-q")
    assert outcome.code == 0, outcome.err
    assert "run mine: 5 files" in outcome.out
    page = (share / "README.md").read_text()
    assert page.startswith('---\nlibrary_name: "kmip-data"\n')
    assert "CC BY 4.0" in page
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    outcome = kmip("pull", share, "-q")
    assert outcome.code == 0, outcome.err
    assert {path.name for path in (work / "mine").iterdir()} == {
        *("README.md", "config.toml", "metrics.csv", "model.safetensors", "result.json")
    }
    for name in ("config.toml", "result.json", "model.safetensors"):
        assert (work / "mine" / name).read_bytes() == (run / name).read_bytes()
    again = kmip("evaluate", work / "mine", "--dataset", build.path, "--json")
    assert again.code == 0, again.err
    assert again.json["same_as_result"] is True
    assert kmip("pull", share, "-q").code == 0, "what is there is left as it is"
    assert kmip("pull", share, "--columns", "x", "-q").code == 2
    result = read_result(run).model_copy(update={"name": "a`b", "dataset": "x\n---\n# y"})
    assert "\n# y" not in run_page(result).split("```")[0]
    (run / "model.safetensors").write_bytes(b"x")
    assert kmip("push", run, tmp_path / "elsewhere").code == DamagedInput.exit_code


def test_what_is_not_there_is_named(home, tmp_path):
    for target in ("nothing", "s3dis", "./nowhere"):
        assert kmip("push", target, tmp_path / "share").code == 2
        assert not (tmp_path / "share").exists()
