"""``train`` and ``evaluate`` through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import kmip

from kmip_data.cli.shared.commands import OLD_SPELLINGS
from kmip_data.cli.train import configuration

QUICK = ["--epochs", "2", "--device", "cpu", "--quiet", "--set", "model.parameter_budget=none"]
QUICK += ["--set", "model.layers=1", "--set", "model.hidden_dim=8"]


def test_train_prints_one_object_at_the_end_and_evaluate_repeats_it(make_build):
    build = make_build()
    outcome = kmip("train", "--dataset", build.path, *QUICK, "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json
    run = Path(found["run"])
    assert set(found["metrics"]) == {"train", "val", "test"}
    assert found["best_epoch"] in {0, 1}
    assert found["sample"] is False
    for name in ("config.toml", "metrics.csv", "model.safetensors", "result.json", "curves.png"):
        assert (run / name).is_file(), name
    again = kmip("evaluate", run, "--json")
    assert again.code == 0, again.err
    assert again.json["metrics"] == found["metrics"]
    assert again.json["same_as_result"] is True
    table = kmip("evaluate", run.name).out
    assert all(part in table for part in ("train", "val", "test"))


@pytest.mark.slow
def test_results_of_a_sample_say_so(make_build):
    make_build("s3dis-sample-k4", sample=True)
    words = ["train", "--dataset", "s3dis", "--sample", "--k", "4", *QUICK, "--epochs", "1", "--name", "mine"]
    outcome = kmip(*words)
    assert outcome.code == 0, outcome.err
    assert "sample" in outcome.out
    run = next(Path(line.split()[-1]) for line in outcome.out.splitlines() if line.startswith("run"))
    assert "sample" in run.parent.parent.name
    assert run.name == "mine"
    assert json.loads((run / "result.json").read_text())["sample"] is True


def test_seeds_give_mean_and_deviation(make_build):
    build = make_build()
    found = kmip("train", "--dataset", build.path, *QUICK, "--seeds", "0..1", "--json").json
    assert found["seed"] == [0, 1]
    assert len(found["runs"]) == 2
    assert set(found["std"]) == set(found["metrics"])


def test_resume_returns_a_finished_run_and_changes_nothing(make_build):
    build = make_build()
    run = kmip("train", "--dataset", build.path, *QUICK, "--json").json["run"]
    assert kmip("train", "--resume", run, "--json").json["run"] == run
    for args, word in (
        (["--epochs", "3", "--set", "optimiser.lr=1"], "without --epochs."),
        (["--set", "training.epochs=9"], "optimiser.lr, training.clip_norm"),
    ):
        outcome = kmip("train", "--resume", run, *args)
        assert (outcome.code, word in outcome.err) == (2, True), outcome.err


WRONG = [
    ([], "--dataset"),
    (["--dataset", "s3dis", "--resume", "x"], "There is no run called 'x'"),
    (["--dataset", "s3dis", "--name", " "], "' ' is not a name for a run"),
    (["--dataset", "s3dis", "--set", "optimiser.lrr=1"], "optimiser.lr"),
    (["--dataset", "s3dis", "--set", "optimiser"], "section.key=value"),
    (["--dataset", "s3dis", "--set", "optimiser.lr=fast"], "optimiser.lr"),
    (["--dataset", "s3dis", "--model", "gps-kmp"], "gps-kmip"),
    (["--dataset", "s3dis", "--seeds", "a"], "0..3"),
    (["--dataset", "s3dis", "--device", "tpu"], "cuda"),
    (["--resume", "no-such-run"], "no-such-run"),
    (["--dataset", "/no/such/folder"], "/no/such/folder"),
    *(
        (["--dataset", "helsinki", option, "1"], instead)
        for option, instead in OLD_SPELLINGS["train"].items()
    ),
]


def test_wrong_lines_are_2_and_leave_nothing(home):
    for args, word in WRONG:
        outcome = kmip("train", *args)
        assert outcome.code == 2, (args, outcome.err)
        assert word in outcome.err, (args, outcome.err)
        assert not home.exists(), args


def test_a_configuration_is_taken_from_a_file(make_build, tmp_path):
    build = make_build()
    first = Path(kmip("train", "--dataset", build.path, *QUICK, "--json").json["run"])
    again = kmip("train", "--config", first / "config.toml", "--epochs", 1, "--quiet", "--json")
    assert again.code == 0, again.err
    one, two = (
        json.loads((Path(run) / "result.json").read_text("utf-8"))["config"]
        for run in (first, again.json["run"])
    )
    assert (one["training"].pop("epochs"), two["training"].pop("epochs")) == (2, 1)
    assert (one.pop("schedule"), one) == (two.pop("schedule"), two)
    assert kmip("train", "--config", tmp_path / "none.toml").code == 2
    assert kmip("train", "--config", first / "config.toml", "--resume", first).code == 2
    assert "--as has no effect" in kmip("train", "--config", first / "config.toml", "--as", "text").err


def test_options_reach_the_configuration():
    config = configuration(
        "s3dis",
        {"k": 16},
        {"split_seed": 4},
        model="gps-kmip",
        variant="text",
        sample=True,
        epochs=7,
        device="cpu",
        devices=2,
        precision="bf16-mixed",
        overrides=("training.epochs=9", "optimiser.lr=1e-3", "system.checkpoint_every=2.5"),
    )
    assert config.variant == "text"
    assert config.data.sample is True
    assert config.data.parameters["k"] == 16
    assert config.data.split == {"split": "upstream", "test_area": 6, "split_seed": 4}
    assert config.data.split_seed_follows_run is False, "a seed of the split that is given counts"
    assert config.training.epochs == 9, "--set has the last word"
    assert config.optimiser.lr == 1e-3
    assert (config.system.device, config.system.devices) == ("cpu", 2)
    assert config.training.precision == "bf16-mixed"
    assert config.system.checkpoint_every == 2.5
