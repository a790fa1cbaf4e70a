"""Runs as jobs of a cluster: submitit's own executor for one machine stands in for SLURM."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.cli import expect_refusal
from support.runs.sweeps import (
    StandInSubmission,
    count_events,
    stand_in_environment,
    wait_for,
    write_plan,
)

from kmip_data.builds.home import Home
from kmip_data.models.sweeps import submitting
from kmip_data.models.sweeps.plans import SweepRun, expand_plan, read_sweep_plan
from kmip_data.models.training.run.run_status import read_run_status

submitit = pytest.importorskip("submitit", reason="the extra slurm is not installed")


@pytest.fixture
def submit(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[SweepRun]]:
    """Submit the runs of a plan to this machine."""
    monkeypatch.setattr(submitting, "CLUSTER", "local")
    monkeypatch.setattr(submitting, "Submission", StandInSubmission)

    def call(plan: Path, **settings: object) -> list[SweepRun]:
        for name, value in stand_in_environment(**settings).items():
            monkeypatch.setenv(name, value)
        paths = Path(submitit.__file__).parents[1]  # where it is on the path of these tests alone
        monkeypatch.setenv("PYTHONPATH", f"{stand_in_environment()['PYTHONPATH']}:{paths}")
        runs = expand_plan(read_sweep_plan(str(plan)), home)
        options = {"quiet": True, "offline": True}
        folder = home.path / "sweeps" / plan.stem
        submitting.submit_sweep(runs, home=home, folder=folder, options=options, settings={})
        return runs

    return call


def test_each_run_is_a_job_that_outlives_the_command(submit, home, tmp_path):
    plan = write_plan(tmp_path / "plan.toml")
    runs = submit(plan, seconds=0.1)
    wait_for(lambda: all(read_run_status(run.folder, home).state == "done" for run in runs))
    epochs = {name: count for name, count in count_events(home.path).items() if "epoch" in name}
    assert len(epochs) == 12
    assert set(epochs.values()) == {1}
    before = count_events(home.path)
    submit(plan)  # nothing is left
    assert count_events(home.path) == before


def test_a_preempted_job_resumes_without_repeating_an_epoch(submit, home, tmp_path):
    plan = write_plan(tmp_path / "plan.toml", seeds=[0], models=["gps-none"])
    others = {process.pid for process in psutil.Process().children(recursive=True)}
    [run] = submit(plan, seconds=1.0)
    wait_for(lambda: any("epoch 0" in name for name in count_events(home.path)))
    [job] = [process for process in psutil.Process().children() if process.pid not in others]
    [task] = job.children()
    task.send_signal(signal.SIGUSR2)  # as a cluster does a while before it takes the machine away
    wait_for(lambda: read_run_status(run.folder, home).state == "done")
    counts = count_events(home.path)
    assert counts[f"{run.folder.name} start"] == 2
    assert counts[f"{run.folder.name} epoch 0"] == 1


def test_submitting_without_a_cluster_is_refused(home, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = write_plan(tmp_path / "plan.toml")
    message = expect_refusal("sweep", plan, "--submit", "slurm", "--slurm", "partition=gpu")
    assert "cannot be submitted" in message
    assert "srun" in message
