"""Trials as cells: as many as asked for, bad ones ended, gone on with after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support import sweeps
from support.cli import kmip
from support.sweeps import ROOT, environment, events, write_plan

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.sweeps import running, tuning
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.plan import read_plan
from kmip_data.models.sweeps.state import state_of
from kmip_data.models.sweeps.tuning import tried, tune_cells
from kmip_data.runtime import processes

pytestmark = pytest.mark.slow

optuna = pytest.importorskip("optuna", reason="the extra tune is not installed")
SPACE = {
    "optimiser.lr": {"low": 1e-4, "high": 1e-1, "log": True},
    "model.layers": {"low": 1, "high": 9},
    "model.feed_forward": {"choices": [True, False]},
}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write_plan(
        tmp_path / "search.toml",
        models=["gps-none"],
        seeds=[3],
        set=["training.metric=accuracy"],
        choose="validation",
        space={key: SPACE[key] for key in ("optimiser.lr", "model.layers")},
    )


@pytest.fixture
def tune(home: Home, plan: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Cell]]:
    """Tune by the stand-in, in this process, and return the cells of the trials."""
    monkeypatch.setattr(processes, "PROGRAM", sweeps.PROGRAM)
    monkeypatch.setattr(tuning, "LOOK", 0.01)

    def call(trials: int, jobs: int = 2, **settings: object) -> list[Cell]:
        for name, value in environment(**settings).items():
            monkeypatch.setenv(name, value)
        whole, folder = read_plan(str(plan)), home.root / "sweeps/search"
        places, options = running.places_of(jobs), {"quiet": True}
        tune_cells(whole, home=home, folder=folder, places=places, trials=trials, options=options)
        return tried(whole, home=home, folder=folder)

    return call


def test_there_are_as_many_trials_as_asked_for(tune, home):
    cells = tune(12, seconds=0.4)
    states = [state_of(cell, home.root / "sweeps/search") for cell in cells]
    assert [cell.change for cell in cells] == [f"trial-{number}" for number in range(12)]
    assert {state.kind for state in states} == {"done", "pruned"}
    assert all(state.epoch < 3 for state in states if state.kind == "pruned")
    assert {"worse than the median of the trials at epoch 1"} <= {state.reason for state in states}
    assert len({(cell.config.optimiser.lr, cell.config.model.layers) for cell in cells}) == 12
    assert all(
        1e-4 <= cell.config.optimiser.lr <= 1e-1 and 1 <= cell.config.model.layers <= 9 for cell in cells
    )
    assert {cell.seed for cell in cells} == {3}
    before = events(home.root)
    assert tune(12) == cells
    assert events(home.root) == before
    assert len(tune(13)) == 13


def test_a_trial_that_fails_is_not_the_end(tune, home):
    cells = tune(3, fails="trial-1")
    assert [state_of(cell, home.root / "sweeps/search").kind for cell in cells] == ["done", "failed", "done"]


def test_a_tuner_that_was_killed_goes_on(tune, home, plan):
    driver = (
        "import sys; from support import sweeps; from kmip_data.runtime import processes;"
        "processes.PROGRAM = sweeps.PROGRAM; from kmip_data.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    words = [
        sys.executable,
        "-c",
        driver,
        "sweep",
        str(plan),
        "--tune",
        "optuna",
        "--trials",
        "4",
        "--jobs",
        "2",
    ]
    paths = f"{environment()['PYTHONPATH']}:{Path(optuna.__file__).parents[1]}"
    process = subprocess.Popen(words, env=environment(seconds=0.5) | {"PYTHONPATH": paths}, cwd=ROOT)
    ends = time.monotonic() + 60
    while not any("epoch" in name for name in events(home.root)):
        assert time.monotonic() < ends
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    sweeps.kill_runs(home.root)
    cells = tune(4)
    found = events(home.root)
    assert [cell.change for cell in cells] == [f"trial-{number}" for number in range(4)]
    assert {state_of(cell, home.root / "sweeps/search").kind for cell in cells} == {"done"}
    assert max(count for name, count in found.items() if "epoch" in name) == 1
    assert max(count for name, count in found.items() if "start" in name) == 2


def test_what_is_tried_is_a_table(tune, home, plan):
    tune(2)
    found = kmip("sweep", plan, "--tune", "optuna", "--status", "--format", "json").json
    assert [row["change"] for row in found["results"]] == ["trial-0", "trial-1"]
    assert sum(row["chosen"] for row in found["results"]) == 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"space": {}}, "nothing to tune"),
        ({"set": []}, "The metric of clouds is not named"),
        ({"space": {"model.layer": SPACE["model.layers"]}}, "Did you mean 'model.layers'"),
        ({"space": {"model.layers": {"low": 0, "high": 3}}}, "model.layers cannot be '0'"),
    ],
)
def test_what_is_wrong_is_said_before_any_trial(home, plan, keys, said):
    keys = {"models": ["gps-none"], "set": ["training.metric=accuracy"], "space": SPACE} | keys
    whole = read_plan(str(write_plan(plan, **keys)))
    with pytest.raises(UsageError, match=said):
        tune_cells(whole, home=home, folder=home.root / "x", places=[{}], trials=1, options={"quiet": True})
    assert not (home.root / "x").exists()
