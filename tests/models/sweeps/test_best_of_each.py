"""The combination of each axis's winner: which it is, when, and that nothing but the results decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.stand_in_train import format_result
from support.runs.sweeps import write_plan

from kmip_data.errors import DamagedInput
from kmip_data.models.sweeps.plans import (
    SweepPlan,
    SweepRun,
    best_on_val,
    combined_change_runs,
    expand_plan,
    read_sweep_plan,
)

CHANGES = [
    {"name": "start"},
    {"name": "deep", "set": ["model.layers=9"]},
    {"name": "flat", "set": ["model.layers=2"]},
    {"name": "fast", "set": ["optimizer.lr=0.1"]},
    {"name": "k5", "set": ["model.attention.k=5"], "models": ["gps-kmip"]},
]


@pytest.fixture
def plan(tmp_path: Path) -> SweepPlan:
    keys = {"changes": CHANGES, "choose": "validation", "then": "best-of-each", "seeds": [0, 1]}
    return read_sweep_plan(str(write_plan(tmp_path / "search.toml", **keys)))


def finish(runs: list[SweepRun], **values: float) -> None:
    """Results whose mean over seeds is the change's."""
    for run in runs:
        run.folder.mkdir(parents=True)
        value = values[run.change] + (0.01 if run.seed else -0.01)
        (run.folder / "result.json").write_text(
            format_result(run.folder.name, run.seed, value, run.model)
        )


def test_the_winner_of_each_axis_is_taken(home, plan):
    runs = expand_plan(plan, home)
    finish(runs, start=0.5, deep=0.6, flat=0.7, fast=0.4, k5=0.55)
    best = combined_change_runs(plan, runs, home)
    assert [(run.model, run.change, run.seed) for run in best] == [
        ("gps-kmip", "best-of-each", 0),
        ("gps-kmip", "best-of-each", 1),
    ]  # one axis alone gained with the other model: "flat" is the combination
    config, start = best[0].config, runs[0].config
    assert (config.model.layers, config.model.attention.k) == (2, 5)
    assert config.optimizer.lr == start.optimizer.lr
    assert best[0].folder.name.startswith("search-best-of-each-")
    assert combined_change_runs(plan, runs, home) == best


def test_ties_are_won_by_the_first_run_of_the_plan(home, plan):
    runs = expand_plan(plan, home)
    finish(runs, start=0.5, deep=0.6, flat=0.6, fast=0.5, k5=0.8)
    [first, _] = combined_change_runs(plan, runs, home)
    assert (first.config.model.layers, first.config.optimizer.lr) == (
        9,
        runs[0].config.optimizer.lr,
    )


def test_best_of_each_waits_for_last_run_of_model(home, plan):
    runs = expand_plan(plan, home)
    finish(runs, start=0.5, deep=0.6, flat=0.7, fast=0.9, k5=0.55)
    last = next(run for run in runs if run.model == "gps-kmip")
    (last.folder / "result.json").unlink()
    assert {run.model for run in combined_change_runs(plan, runs, home)} == {"gps-none"}


def test_an_edited_result_is_not_used_to_choose_the_best(home, plan):
    runs = expand_plan(plan, home)
    finish(runs, start=0.5, deep=0.6, flat=0.7, fast=0.4, k5=0.55)
    path = runs[0].folder / "result.json"
    path.write_text(path.read_text().replace('"seed": ', '"seed": 1', 1))
    for choose in (lambda: combined_change_runs(plan, runs, home), lambda: best_on_val(runs)):
        with pytest.raises(DamagedInput):
            choose()
