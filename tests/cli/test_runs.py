"""``runs``: each state, the result of a run, and the command that resumes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.builds.learnable import learnable_build, tiny_config
from support.cli import expect_refusal, expect_success

from kmip_data.builds.home import Home
from kmip_data.files.atomic_writes import folder_lock
from kmip_data.models.training.run.train import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a finished run, ``clouds/gps-kmip/done``."""
    home = tmp_path_factory.mktemp("trained")
    build = learnable_build(home / "built/clouds")
    train(tiny_config(build, training={"epochs": 2}), home=Home(home), name="done", quiet=True)
    return home


@pytest.fixture
def runs(trained: Path, home: Path) -> Iterator[Path]:
    """One run in each state, begun one after the other, with the lock of the running one."""
    folder = home / "runs/clouds/gps-kmip"
    for number, name in enumerate(("done", "stopped", "failed", "running", "damaged")):
        shutil.copytree(trained / "runs/clouds/gps-kmip/done", folder / name)
        if name != "done":
            (folder / name / "result.json").unlink()
        os.utime(folder / name / "config.toml", (1e9 + number, 1e9 + number))
    (folder / "damaged/result.json").write_text('{"metric": ')
    shutil.copytree(folder / "stopped", home / "runs/clouds-sample/gcn/early")
    (home / "runs/clouds-sample/gcn/early/metrics.csv").unlink()
    os.utime(home / "runs/clouds-sample/gcn/early/config.toml", (1, 1))
    (home / "runs/clouds/gps-kmip/no-run").mkdir()
    log = home / "sweeps/plan/clouds.gps-kmip.failed.log"
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1/2\nError: Out of memory.\n  next: less\n")
    with folder_lock(folder / "running"):
        yield folder


def test_each_state_with_its_next_command(runs: Path, monkeypatch, tmp_path) -> None:
    assert "No runs yet in" in expect_success("runs", "--home", tmp_path / "none").out
    assert "There is no dataset called 'nothing' among the runs" in expect_refusal(
        "runs", "--dataset", "nothing"
    )
    for options, filters in (
        (("--dataset", "s3dis"), "on s3dis"),
        (("--model", "gat"), "of gat"),
        (("--dataset", "s3dis", "--model", "gat"), "of gat on s3dis"),
    ):
        assert expect_success("runs", *options).out.startswith(
            f"No run {filters} in {runs.parents[1]}\n"
        )
    assert not (tmp_path / "none").exists()
    shown = expect_success("runs", "--json").json["runs"]
    assert [(run["name"], run["state"], run["epoch"], run["epochs"]) for run in shown] == [
        ("damaged", "stopped", 2, 2),
        ("running", "running", 2, 2),
        ("failed", "failed", 2, 2),
        ("stopped", "stopped", 2, 2),
        ("done", "done", 2, 2),
        ("early", "stopped", 0, 2),
    ]
    by_name = {run["name"]: run for run in shown}
    assert by_name["stopped"]["resume"] == "kmip-data train --resume clouds/gps-kmip/stopped"
    assert by_name["stopped"]["begun"] == "2001-09-09T01:46:41Z"
    assert by_name["failed"]["reason"] == "Out of memory."
    assert by_name["failed"]["resume"]
    assert "result.json cannot be read" in by_name["damaged"]["reason"]
    assert by_name["done"]["resume"] is by_name["running"]["resume"] is None
    assert by_name["done"]["path"] == str(runs / "done")
    assert 0 <= by_name["done"]["test"] <= 1
    lines = expect_success("runs").out.splitlines()
    row = next(
        number for number, line in enumerate(lines) if line.startswith("clouds/gps-kmip/stopped ")
    )
    assert lines[row].split()[1:] == ["2001-09-09", "0", "stopped", "2", "of", "2"]
    assert lines[row + 1] == "    resume: kmip-data train --resume clouds/gps-kmip/stopped"
    test = f"{100 * by_name['done']['test']:.2f} % {by_name['done']['metric']}"
    assert any(line.startswith("clouds/gps-kmip/done ") and line.endswith(test) for line in lines)
    assert max(map(len, lines)) <= 100
    cases = {
        "--dataset clouds --model gcn": ["early"],
        "--model gps-kmip": ["damaged", "running", "failed", "stopped", "done"],
        "--dataset s3dis": [],
    }
    chosen = {line: expect_success("runs", *line.split(), "--json").json["runs"] for line in cases}
    assert {line: [run["name"] for run in each] for line, each in chosen.items()} == cases
    home = runs.parents[2]  # another one is named in the command
    monkeypatch.delenv("KMIP_DATA_HOME")
    listed = expect_success("runs", "--home", home, "--json").json["runs"]
    (run,) = [run for run in listed if run["state"] == "failed"]
    assert run["resume"] == f"kmip-data train --resume clouds/gps-kmip/failed --home {home}"
