"""``sweep`` through the command line."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import sweeps
from support.cases import check_each
from support.cli import done, kmip, kmip_process, refused
from support.stand_in_train import result
from support.sweeps import SMALL, write_plan
from support.training_data import learnable_build, read_history

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def plan(home: Path, tmp_path: Path) -> Path:
    """Two models and two seeds on existing data."""
    learnable_build(home / "built/clouds")
    return write_plan(tmp_path / "small.toml", set=SMALL)


def test_a_dry_run_lists_the_runs_and_starts_none(home, plan):
    outcome = done("sweep", plan, "--dry-run")
    assert re.findall(r"^clouds +(\S+) +(\d) +waiting +0/3 +small-", outcome.out, re.MULTILINE) == [
        (model, seed) for model in ("gps-kmip", "gps-none") for seed in "01"
    ]
    assert outcome.out.endswith("\n4 waiting\n\n")
    assert sorted(entry.name for entry in home.iterdir()) == ["built"]


def test_the_axes_of_the_line_replace_those_of_the_plan(home, tmp_path, plan):
    other = learnable_build(tmp_path / "other")
    options = ("--dataset", f"helsinki,{other.path}", "--model", "gcn", "--seeds", "3,5", "--epochs", "7")
    found = kmip("sweep", plan, *options, "--set", "model.layers=2", "--dry-run", "--json").json
    assert [(run["dataset"], run["model"], run["seed"], run["epoch"]) for run in found["runs"]] == [
        (dataset, "gcn", seed, "0/7") for dataset in ("helsinki", str(other.path)) for seed in (3, 5)
    ]
    assert found["sweep"] == "small"


def test_what_is_wrong_is_named_before_anything_runs(home, tmp_path, plan):
    cases = {
        ("--model", "gps-kmap"): "gps-kmip",
        ("--dataset", "clowds"): "Did you mean 'clouds'",
        ("--set", "model.layer=2"): "Did you mean 'model.layers'",
        ("--seeds", "x"): "--seeds is not a list",
        ("--submit", "slurm", "--gpus", "0,1"): "--gpus is for runs on this machine",
    }

    def check(words):
        assert cases[words] in refused("sweep", plan, *words)
        assert not (home / "runs").exists()

    check_each(check, cases)
    wrong = write_plan(tmp_path / "p.toml", dataset=["clouds"])
    assert "there is no key 'dataset', did you mean 'datasets'?" in refused("sweep", wrong)


def test_results_are_mean_and_deviation_over_seeds(home, plan, stand_in):
    outcome = done("sweep", plan, "--jobs", "2")
    assert "waiting" not in outcome.out
    for model in ("gps-kmip", "gps-none"):
        runs = sorted((home / "runs/clouds" / model).glob("small-*-seed*/result.json"))
        values = [json.loads(run.read_text())["metrics"]["test"]["accuracy"] for run in runs]
        mean, std = statistics.fmean(values), statistics.pstdev(values)
        row = next(line for line in outcome.out.splitlines() if f" {model} " in line)
        assert f"{100 * mean:.2f} ± {100 * std:.2f}  2 of 2" in row
        assert row.endswith("1,234")
    status = kmip("sweep", plan, "--status")
    assert "\n4 done\n" in status.out
    assert status.out.endswith(outcome.out)
    found = kmip("sweep", plan, "--status", "--json").json["results"]
    page = (ROOT / "docs/sweeps.md").read_text("utf-8")
    assert [key for key in found[0] if f"`{key}`" not in page] == []
    assert found[1]["test"] == pytest.approx(mean)


def test_a_run_that_fails_is_a_row_and_exit_code_1(home, plan, stand_in, monkeypatch):
    monkeypatch.setenv("STAND_IN", json.dumps({"fails": "seed1"}))
    outcome = kmip("sweep", plan)
    assert outcome.code == 1
    assert outcome.out.count("The loss is not a number any more.") == 2
    assert outcome.out.count("1 of 2") == 2
    assert "2 of 4 runs failed: The loss is not a number any more." in outcome.err
    assert "2 done, 2 failed" in done("sweep", plan, "--status").out
    monkeypatch.delenv("STAND_IN")
    done("sweep", plan)


def test_the_best_change_on_val_is_chosen(home, tmp_path, plan, stand_in):
    changes = [{"name": "as-it-is"}, {"name": "lr", "set": ["optimiser.lr=0.01"]}]
    search = write_plan(tmp_path / "search.toml", set=SMALL, changes=changes, choose="validation", seeds=[0])
    done("sweep", search)
    for run in (home / "runs/clouds").glob("*/search-*"):
        value = 0.7 if ("lr" in run.name) == (run.parent.name == "gps-none") else 0.6
        (run / "result.json").write_text(result(run.name, 0, value, run.parent.name))
    found = kmip("sweep", search, "--status", "--json").json["results"]
    assert [(row["model"], row["change"]) for row in found if row["chosen"]] == [
        ("gps-kmip", "as-it-is"),
        ("gps-none", "lr"),
    ]
    assert kmip("sweep", search, "--status").out.count("lr (best on val)") == 1


def test_the_best_of_each_key_is_run_last(home, tmp_path, plan, stand_in):
    changes = [{"name": "start"}] + [
        {"name": f"change{i}", "set": [setting]}
        for i, setting in enumerate(["optimiser.lr=0.01", "optimiser.lr=0.02", "model.dropout=0.3"])
    ]
    keys = {"choose": "validation", "then": "best-of-each", "seeds": [0], "models": ["gps-none"]}
    search = write_plan(tmp_path / "search.toml", set=SMALL, changes=changes, **keys)
    assert kmip("sweep", search, "--dry-run").out.endswith("4 waiting; then best-of-each\n\n")
    kmip("sweep", search)
    for run in (home / "runs/clouds/gps-none").glob("search-*"):
        value = 0.4 if "start" in run.name else 0.6
        (run / "result.json").write_text(result(run.name, 0, value, run.parent.name))
    for run in (home / "runs/clouds/gps-none").glob("search-best-of-each-*"):
        (run / "result.json").unlink()  # as in a sweep that was killed before it
    done("sweep", search)
    found = done("sweep", search, "--status", "--json").json
    names = ["start", "change0", "change1", "change2", "best-of-each"]
    assert [row["change"] for row in found["results"]] == names
    assert {run["state"] for run in found["runs"]} == {"done"}


def test_runs_on_gpus_of_their_own_and_on_a_sample(home, plan, stand_in):
    done("sweep", plan, "--gpus", "0,4")
    assert {name.split()[2] for name in sweeps.events(home) if " on " in name} == {"0", "4"}
    for run in (home / "runs/clouds/gps-kmip").iterdir():
        (run / "result.json").write_text(result(run.name, 0, 0.5, "gps-kmip", sample=True))
    out = done("sweep", plan, "--status").out
    assert "clouds (sample: generated, not the real data)  gps-kmip" in out


@pytest.mark.slow
def test_a_sweep_is_a_loop_of_train_and_resumes_after_a_kill(home, plan, monkeypatch):
    """Real processes: killed in the middle, then the same command; each run as ``train`` makes it."""
    options = ["--epochs", "8", "--model", "gps-kmip", "-q"]
    words = [sys.executable, "-m", "kmip_data", "sweep", str(plan), *options, "--jobs", "2"]
    process = subprocess.Popen(words, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=ROOT)
    runs = home / "runs/clouds/gps-kmip"
    while process.poll() is None and not list(runs.glob("*/metrics.csv")):
        time.sleep(0.02)
    process.kill()
    process.wait()
    sweeps.kill_runs(home)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    outcome = done("sweep", plan, *options, "--json")
    assert [run["state"] for run in outcome.json["runs"]] == ["done", "done"]
    settings = [word for item in SMALL for word in ("--set", item)]
    options = ["--dataset", "clouds", "--epochs", "8", "--seeds", "0..1", "--name", "loop", "-q", *settings]
    loop = kmip_process("train", *options, "--json").json  # of as many threads: this one has more
    assert outcome.json["results"][0]["test"] == loop["metrics"]["test"]["accuracy"]
    assert outcome.json["results"][0]["test_std"] == loop["std"]["test"]["accuracy"]
    for seed in range(2):
        [run] = runs.glob(f"small-*-seed{seed}")
        assert [row["train_loss"] for row in read_history(run)] == [
            row["train_loss"] for row in read_history(runs / f"loop-seed{seed}")
        ]
