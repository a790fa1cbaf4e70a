"""``sweep`` through the command line."""

from __future__ import annotations

import json
import re
import shlex
import statistics
from pathlib import Path

import pytest
from support.builds.learnable import learnable_build, read_history
from support.cli import expect_refusal, expect_success, kmip
from support.runs.stand_in_train import format_result
from support.runs.sweeps import SMALL, write_plan
from support.shared import ROOT

from kmip_data.builds.home import Home
from kmip_data.models.sweeps.plans import expand_plan, read_sweep_plan
from kmip_data.models.training.run.result import read_result


@pytest.fixture
def plan(home: Path, tmp_path: Path) -> Path:
    """Two models and two seeds on existing data."""
    learnable_build(home / "built/clouds")
    return write_plan(tmp_path / "small.toml", set=SMALL)


def test_a_dry_run_lists_the_runs_and_starts_none(home, plan):
    outcome = expect_success("sweep", plan, "--dry-run")
    row = r"^clouds/(\S+)/small-\w{8}-seed(\d)\n +\d +waiting +0 of 3$"
    assert re.findall(row, outcome.out, re.MULTILINE) == [
        (model, seed) for model in ("gps-kmip", "gps-none") for seed in "01"
    ]
    assert outcome.out.endswith(f"\n4 waiting\n\nNext: kmip-data sweep {plan}\n")
    assert sorted(entry.name for entry in home.iterdir()) == ["built"]


def test_a_dry_run_shows_the_papers_cells_next_to_its_own():
    out = expect_success("sweep", "paper-city", "--dataset", "london", "--dry-run").out
    row = r"^london/gps-kmip +paper-depth +1 +7 +500,000 parameters\n    paper: accuracy 56.05 %, 1 run$"
    assert re.search(row, out, re.MULTILINE)
    assert "\nsource: paper, table of City-Networks results" in out
    assert "exphormer" not in out
    cells = kmip("sweep", "paper-points", "--model", "gcn", "--dry-run", "--json").json["cells"]
    assert [cell["paper"] for cell in cells] == [
        "macro F1 60.18 ± 0.04 %, 3 runs",
        "mIoU 39.98 ± 1.47 %, 3 runs",
    ]
    assert [cell["seeds"] for cell in cells] == [[0, 1, 2]] * 2


def test_a_dry_run_lists_its_cells_without_paper_results(home):
    out = kmip("sweep", "small-cities", "--model", "gcn,mlp", "--dry-run", "--home", home).out
    assert out.splitlines()[0].split() == ["cell", "variant", "seeds", "layers", "hidden_dim"]


def test_seeds_on_the_command_line_replace_the_seeds_of_cells():
    options = ("--dataset", "london", "--model", "gps-kmip", "--seeds", "0..3", "--dry-run")
    assert len(kmip("sweep", "paper-city", *options, "--json").json["runs"]) == 4
    message = expect_refusal(
        "sweep", "paper-city", "--dataset", "la", "--model", "gps-bigbird", "--dry-run"
    )
    assert "kmip-data sweep --dataset la --model gps-bigbird" in message


def test_axes_on_the_command_line_replace_the_axes_of_the_plan(home, tmp_path, plan):
    other = learnable_build(tmp_path / "other")  # of the same dataset
    options = (
        "--dataset",
        f"helsinki,{other.path}",
        "--model",
        "gcn",
        "--seeds",
        "3,5",
        "--epochs",
        "7",
    )
    plan_rows = kmip("sweep", plan, *options, "--set", "model.layers=2", "--dry-run", "--json").json
    assert [
        (run["dataset"], run["model"], run["name"][-5:], run["epochs"]) for run in plan_rows["runs"]
    ] == [
        (dataset, "gcn", seed, 7)
        for dataset in ("helsinki", "clouds")
        for seed in ("seed3", "seed5")
    ]
    assert plan_rows["sweep"] == "small"


def test_results_are_mean_and_deviation_over_seeds(home, plan, stand_in):
    text = expect_success("sweep", plan, "--jobs", "2", "--dry-run").out
    outcome = expect_success(*shlex.split(text.rpartition("\nNext: kmip-data ")[2]))
    assert "waiting" not in outcome.out
    # After each run but the last, how many are left and how long they will take.
    assert [f"; {n} left, about" in outcome.err for n in ("3 runs", "1 run")] == [True, True]
    assert outcome.err.count("left, about") == 3
    for model in ("gps-kmip", "gps-none"):
        runs = sorted((home / "runs/clouds" / model).glob("small-*-seed*/result.json"))
        values = [json.loads(run.read_text())["metrics"]["test"]["accuracy"] for run in runs]
        mean, std = statistics.fmean(values), statistics.stdev(values)
        row = next(line for line in outcome.out.splitlines() if line.startswith(f"{model} "))
        assert f" {100 * mean:.2f} ± {100 * std:.2f} " in row
    status = kmip("sweep", plan, "--status")
    assert "\n4 done\n" in status.out
    assert status.out.endswith(outcome.out)
    status_json = kmip("sweep", plan, "--status", "--json").json
    assert status_json["results"][1]["test"] == pytest.approx(mean)
    page = (ROOT / "docs/sweeps.md").read_text("utf-8")
    assert [key for key in (*status_json, *status_json["runs"][0]) if f"`{key}`" not in page] == []


def test_a_failed_run_becomes_a_row_and_exits_with_1(home, plan, stand_in, monkeypatch):
    monkeypatch.setenv("STAND_IN", json.dumps({"fails": "seed1"}))
    outcome = kmip("sweep", plan)
    assert outcome.code == 1
    assert outcome.out.count("The loss is not a number any more.") == 2
    assert "2 of 4 runs failed: The loss is not a number any more." in outcome.err
    assert "2 done, 2 failed" in expect_success("sweep", plan, "--status").out
    monkeypatch.delenv("STAND_IN")
    command = re.search(r"next: kmip-data (sweep .*)\n", outcome.err)[1]
    expect_success(*shlex.split(command))


def test_the_best_change_is_chosen_and_the_best_of_each_key_is_run_last(
    home, tmp_path, plan, stand_in
):
    changes = [{"name": "start"}] + [
        {"name": f"change{i}", "set": [setting]}
        for i, setting in enumerate(["optimizer.lr=0.01", "optimizer.lr=0.02", "model.dropout=0.3"])
    ]
    keys = {"choose": "validation", "then": "best-of-each", "seeds": [0], "models": ["gps-none"]}
    search = write_plan(tmp_path / "search.toml", set=SMALL, changes=changes, **keys)
    assert "4 waiting; then best-of-each\n\nNext: " in kmip("sweep", search, "--dry-run").out
    kmip("sweep", search)
    for run in (home / "runs/clouds/gps-none").glob("search-*"):
        value = 0.4 if "start" in run.name else 0.6
        (run / "result.json").write_text(format_result(run.name, 0, value, run.parent.name))
    for run in (home / "runs/clouds/gps-none").glob("search-best-of-each-*"):
        (run / "result.json").unlink()  # as in a sweep that was killed before it
    expect_success("sweep", search)
    status = expect_success("sweep", search, "--status", "--json").json
    names = ["start", "change0", "change1", "change2", "best-of-each"]
    assert [
        run["name"].removeprefix("search-")[: -len("-01234567-seed0")] for run in status["runs"]
    ] == names
    assert {run["state"] for run in status["runs"]} == {"done"}
    [chosen] = status["chosen"]
    assert (chosen["dataset"], chosen["model"]) == ("clouds", "gps-none")
    assert (
        f"Best on val: {chosen['change']} of gps-none on clouds"
        in expect_success("sweep", search, "--status").out
    )


def test_a_sweep_on_a_sample_is_labelled(home, plan, stand_in):
    expect_success("sweep", plan, "--gpus", "0,4")
    for run in (home / "runs/clouds/gps-kmip").iterdir():
        (run / "result.json").write_text(format_result(run.name, 0, 0.5, "gps-kmip", sample=True))
    out = expect_success("sweep", plan, "--status").out
    assert "clouds (sample: generated, not the real data): accuracy" in out


def test_a_sweep_gives_the_results_of_single_training_commands(home, plan, in_process):
    """Uses a real training, which ``tests/test_plugins.py`` has in a process of its own."""
    options = ["--epochs", "3", "--model", "gps-kmip", "--seeds", "0", "-q"]
    choices = {"epochs": 3, "models": ("gps-kmip",), "seeds": (0,)}
    [planned] = expand_plan(read_sweep_plan(str(plan)).model_copy(update=choices), Home(home))
    [run] = expect_success("sweep", plan, *options, "--json").json["runs"]
    assert (run["state"], run["path"]) == ("done", str(planned.folder))
    settings = [word for item in SMALL for word in ("--set", item)]
    words = [
        "clouds",
        "--model",
        "gps-kmip",
        "--epochs",
        "3",
        "--name",
        "loop",
        "-q",
        *settings,
    ]
    expect_success("train", *words)
    loop = planned.folder.with_name("loop")
    both = [
        [row["train_loss"] for row in read_history(folder)] for folder in (planned.folder, loop)
    ]
    assert both[0] == both[1]
    assert read_result(planned.folder).metrics == read_result(loop).metrics
