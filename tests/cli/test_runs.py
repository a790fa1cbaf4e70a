"""``runs``: each state, the result of a run, and the command that resumes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builds.learnable import learnable_build, tiny_config
from support.cli import expect_success

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


@pytest.fixture
def listed(runs: Path) -> dict[str, Any]:
    """Rows of ``runs --json`` by the name of the run, in the order of the list."""
    return {run["name"]: run for run in expect_success("runs", "--json").json["runs"]}


def test_an_empty_home_is_reported_and_not_created(tmp_path: Path) -> None:
    assert "No runs yet in" in expect_success("runs", "--home", tmp_path / "none").out
    assert not (tmp_path / "none").exists()


def test_json_lists_state_and_epochs_with_the_newest_run_first(listed: dict[str, Any]) -> None:
    rows = [(name, run["state"], run["epoch"], run["epochs"]) for name, run in listed.items()]
    assert rows == [
        ("damaged", "stopped", 2, 2),
        ("running", "running", 2, 2),
        ("failed", "failed", 2, 2),
        ("stopped", "stopped", 2, 2),
        ("done", "done", 2, 2),
        ("early", "stopped", 0, 2),
    ]


def test_json_has_path_start_and_test_metric(runs: Path, listed: dict[str, Any]) -> None:
    assert listed["stopped"]["begun"] == "2001-09-09T01:46:41Z"
    assert listed["done"]["path"] == str(runs / "done")
    assert 0 <= listed["done"]["test"] <= 1


def test_failed_and_damaged_runs_have_a_reason(listed: dict[str, Any]) -> None:
    assert listed["failed"]["reason"] == "Out of memory."
    assert "result.json cannot be read" in listed["damaged"]["reason"]


def test_only_unfinished_idle_runs_have_a_resume_command(listed: dict[str, Any]) -> None:
    assert listed["stopped"]["resume"] == "kmip-data train --resume clouds/gps-kmip/stopped"
    assert listed["failed"]["resume"]
    assert listed["done"]["resume"] is None
    assert listed["running"]["resume"] is None


def test_the_table_shows_progress_resume_command_and_result(listed: dict[str, Any]) -> None:
    lines = expect_success("runs").out.splitlines()
    row = lines.index("clouds/gps-kmip/stopped")
    assert lines[row + 1].split() == ["2001-09-09", "0", "stopped", "2", "of", "2"]
    assert lines[row + 2] == "    resume: kmip-data train --resume clouds/gps-kmip/stopped"

    done = listed["done"]
    result = f"{100 * done['test']:.2f} % {done['metric']}"
    assert lines[lines.index("clouds/gps-kmip/done") + 1].endswith(result)
    assert max(map(len, lines)) <= 80


def test_resume_commands_name_a_home_other_than_the_default(runs: Path, monkeypatch) -> None:
    home = runs.parents[2]
    monkeypatch.delenv("KMIP_DATA_HOME")
    rows = expect_success("runs", "--home", home, "--json").json["runs"]
    (failed,) = [run for run in rows if run["state"] == "failed"]
    assert failed["resume"] == f"kmip-data train --resume clouds/gps-kmip/failed --home {home}"
