"""Runs as processes: each once, at most so many at a time, gone on with, whatever ended them."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from support.runs import sweeps
from support.runs.sweeps import (
    count_events,
    stand_in_environment,
    start_sweep,
    wait_for,
    write_plan,
)

from kmip_data.builds.home import Home
from kmip_data.files.atomic_writes import folder_lock, lock_path
from kmip_data.models.sweeps import running
from kmip_data.models.sweeps.plans import SweepRun, expand_plan, read_sweep_plan
from kmip_data.models.sweeps.running import log_path
from kmip_data.models.training.run.run_status import read_run_status


@pytest.fixture
def run_plan(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[SweepRun]]:
    """Run a plan by the stand-in, in this process, and return its runs."""
    monkeypatch.setattr(running, "PROGRAM_COMMAND", sweeps.PROGRAM)
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)

    def call(
        plan: Path, *, offline: bool = False, gpus: tuple[str, ...] = (), **settings: object
    ) -> list[SweepRun]:
        for name, value in stand_in_environment(**settings).items():
            monkeypatch.setenv(name, value)
        runs = expand_plan(read_sweep_plan(str(plan)), home)
        where = {"home": home, "folder": place(home, plan)}
        running.run_sweep(
            runs, jobs=2, options={"quiet": True, "offline": offline}, gpus=gpus, **where
        )
        return runs

    return call


def place(home: Home, plan: Path) -> Path:
    return home.path / "sweeps" / plan.stem


def whole(runs: list[SweepRun], epochs: int = 3) -> set[str]:
    return {f"{run.folder.name} epoch {epoch}" for run in runs for epoch in range(epochs)}


def check_once(home: Home, runs: list[SweepRun]) -> None:
    """Every epoch of every run happened, and none twice."""
    epochs = {name: count for name, count in count_events(home.path).items() if "epoch" in name}
    assert epochs == dict.fromkeys(whole(runs), 1)


def test_every_run_is_trained_once_and_not_again(run_plan, home, tmp_path):
    plan = write_plan(tmp_path / "plan.toml")
    runs = run_plan(plan)
    check_once(home, runs)
    assert [read_run_status(run.folder, home).state for run in runs] == ["done"] * 4
    before = count_events(home.path)
    lock_path(log_path(runs[0], place(home, plan))).touch()  # of a sweep that was killed
    run_plan(plan)
    assert count_events(home.path) == before
    assert not list(home.path.rglob("*.lock"))


def test_each_run_gets_a_separate_gpu(run_plan, home, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    runs = run_plan(
        write_plan(tmp_path / "plan.toml", seeds="0..2"), gpus=("3", "MIG-7"), seconds=0.03
    )
    check_once(home, runs)
    placements = sorted(name.split(" ") for name in count_events(home.path) if " on " in name)
    spans: dict[str, list[tuple[float, float]]] = {}
    for (_, _, gpu, _, begun), (_, _, same, _, ended) in zip(
        placements[::2], placements[1::2], strict=True
    ):
        assert gpu == same
        spans.setdefault(gpu, []).append((float(begun), float(ended)))
    assert spans.keys() == {"3", "MIG-7"}
    for of_gpu in map(sorted, spans.values()):
        assert all(ended <= begun for (_, ended), (begun, _) in pairwise(of_gpu))


def test_a_process_without_output_gets_a_reason(run_plan, home, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "PROGRAM_COMMAND", ("sh", "-c", "kill -9 $$"))
    plan = write_plan(tmp_path / "plan.toml", seeds=[0])
    states = [read_run_status(run.folder, home) for run in run_plan(plan)]
    assert [(state.state, state.reason) for state in states] == [
        ("failed", "it ended by signal 9")
    ] * 2


def test_unavailable_data_fail_only_their_runs(run_plan, home, tmp_path):
    plan = write_plan(
        tmp_path / "plan.toml", datasets=["paris", "clouds"], models=["gps-kmip"], seeds=[0]
    )
    first, second = (read_run_status(run.folder, home) for run in run_plan(plan, offline=True))
    assert (first.state, second.state) == ("failed", "done")
    assert "paris" in first.reason


def test_a_sweep_waits_for_runs_of_another_process(run_plan, home, tmp_path):
    plan = write_plan(tmp_path / "plan.toml")
    other = start_sweep(plan, home.path, jobs=2, seconds=0.3)
    runs = run_plan(plan, seconds=0.3)
    assert other.wait(600) == 0
    check_once(home, runs)


def test_a_run_in_progress_shows_its_remaining_time(home, tmp_path):
    plan = write_plan(tmp_path / "plan.toml", seeds=[0], models=["gps-kmip"])
    [run] = expand_plan(read_sweep_plan(str(plan)), home)
    assert read_run_status(run.folder, home).state == "waiting"
    run.folder.mkdir(parents=True)
    (run.folder / "config.toml").write_text("[training]\nepochs = 3\n")
    (run.folder / "metrics.csv").write_text("epoch,seconds\n0,90.0\n1,70.0\n")
    assert read_run_status(run.folder, home).remaining == "80 s"
    log = log_path(run, place(home, plan))
    log.parent.mkdir(parents=True)
    log.touch()
    with folder_lock(log):
        assert read_run_status(run.folder, home).state == "running"


def test_a_locked_run_with_a_damaged_result_is_running(home, tmp_path):
    plan = write_plan(tmp_path / "plan.toml", seeds=[0], models=["gps-kmip"])
    [run] = expand_plan(read_sweep_plan(str(plan)), home)
    run.folder.mkdir(parents=True)
    (run.folder / "config.toml").write_text("[training]\nepochs = 3\n")
    (run.folder / "result.json").write_text("{")
    with folder_lock(run.folder):
        status = read_run_status(run.folder, home)
        assert (status.state, status.reason, status.resume) == ("running", "", None)


def test_an_interrupt_stops_the_runs_too(home, tmp_path):
    plan = write_plan(tmp_path / "plan.toml")
    process = start_sweep(plan, home.path, seconds=0.5)
    wait_for(lambda: any("epoch" in name for name in count_events(home.path)))
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) != 0
    before = count_events(home.path)
    time.sleep(0.7)
    assert count_events(home.path) == before
    assert start_sweep(plan, home.path).wait(600) == 0
    check_survivors(home, plan)


def disturbed(home: Home, plan: Path, kills: int, seed: int) -> int:
    """Kill the sweep at random, its runs with it or not, then let it end; return the kills."""
    rng, landed = random.Random(seed), 0
    for _ in range(kills):
        process = start_sweep(plan, home.path, seconds=0.15)
        begun = sum(count_events(home.path).values())
        while sum(count_events(home.path).values()) == begun and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.4))
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended before
            runs = psutil.Process(process.pid).children() if rng.random() < 0.5 else []
            for each in (psutil.Process(process.pid), *runs):
                each.kill()
                landed += 1
        process.wait()
    assert start_sweep(plan, home.path, seconds=0.02).wait(1200) == 0
    return landed


@pytest.mark.slow
def test_a_killed_sweep_resumes(home, tmp_path):
    plan = write_plan(tmp_path / "plan.toml")
    assert disturbed(home, plan, 2, seed=0)
    check_survivors(home, plan)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_a_sweep_killed_a_hundred_times_completes(home, tmp_path, torture_count):
    plan = write_plan(tmp_path / "plan.toml", seeds="0..79")
    landed = disturbed(home, plan, 100, seed=1)
    assert landed >= 100
    torture_count("kills", landed)
    check_survivors(home, plan)


def check_survivors(home: Home, plan: Path) -> None:
    """Every run is finished.

    An epoch that was done is done again only where its process was killed.
    """
    runs = expand_plan(read_sweep_plan(str(plan)), home)
    counts = count_events(home.path)
    assert whole(runs) <= counts.keys()
    for run in runs:
        assert read_run_status(run.folder, home).state == "done"
        done = sum(
            count for name, count in counts.items() if name.startswith(f"{run.folder.name} epoch")
        )
        assert done <= 3 + counts[f"{run.folder.name} start"] - 1
        assert json.loads((run.folder / "result.json").read_text())["seed"] == run.seed
