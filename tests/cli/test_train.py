"""``train`` and ``evaluate`` through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import done, refused

from kmip_data.cli.train import SAMPLE_EPOCHS, configuration
from kmip_data.models import evaluate_predictions

QUICK = ["--epochs", "2", "--device", "cpu", "--quiet", "--set", "model.parameter_budget=none"]
QUICK += ["--set", "model.layers=1", "--set", "model.hidden_dim=8"]


def test_a_run_is_evaluated_resumed_repeated_and_measured_by_its_predictions(make_build, tmp_path):
    build = make_build()
    found = done("train", "--dataset", build.path, *QUICK, "--json").json
    run = Path(found["run"])
    assert set(found["metrics"]) == {"train", "val", "test"}
    assert found["best_epoch"] in {0, 1}
    assert found["sample"] is False
    for name in ("config.toml", "metrics.csv", "model.safetensors", "result.json"):
        assert (run / name).is_file(), name
    again = done("evaluate", run, "--json").json
    assert (again["metrics"], again["same_as_result"]) == (found["metrics"], True)
    assert all(part in done("evaluate", run.name).out for part in ("train", "val", "test"))

    file = tmp_path / "p.npz"
    step = f"Next: kmip_data.models.evaluate_predictions({str(file)!r}, {str(build.path)!r})"
    assert step in done("predict", run, "--output", file).out
    measured = evaluate_predictions(file, str(build.path)).metrics
    assert measured == {
        name: pytest.approx(found["metrics"]["test"][name], abs=1e-6) for name in measured
    }

    assert done("train", "--resume", run, "--json").json["run"] == str(run)
    message = refused("train", "--resume", run, "--epochs", "3", "--set", "optimiser.lr=1")
    assert "without --epochs, --set." in message
    assert "without --epochs." in refused("train", "--reproduce", "long-range/gcn", "--epochs", "3")

    config = run / "config.toml"
    other = done("train", "--config", config, "--epochs", 1, "--quiet", "--json").json["run"]
    one, two = (
        json.loads((Path(each) / "result.json").read_text())["config"] for each in (run, other)
    )
    assert (one["training"].pop("epochs"), two["training"].pop("epochs")) == (2, 1)
    assert (one.pop("schedule"), one) == (two.pop("schedule"), two)
    refused("train", "--config", config, "--resume", run)

    early = done("train", "--config", config, "--stop-after", 1, "--quiet", "--json").json["run"]
    assert len(Path(early, "metrics.csv").read_text().splitlines()) == 2
    assert (
        "after 1 of 2 epochs; --stop-after with more than 1 continues it"
        in done("train", "--resume", early).err
    )
    longer = done("train", "--resume", early, "--stop-after", 2, "--quiet", "--json").json
    assert longer["metrics"] == found["metrics"]
    message = refused("train", "--dataset", build.path, "--model", "gcn", "--as", "nonsense")
    assert "no variant of s3dis/gcn called 'nonsense'" in message
    assert "--as has no effect" in refused("train", "--config", config, "--as", "text")
    (run / "result.json").unlink()
    assert f"next: kmip-data train --resume {run}\n" in refused("report", run)


def test_results_of_a_sample_say_so_and_seeds_give_mean_and_deviation(make_build, home):
    words = ["train", "--dataset", make_build(sample=True).path, *QUICK, "--epochs", "1"]
    found = done(*words, "--seeds", "0..1", "--name", "mine", "--json").json
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    assert set(found["std"]) == set(found["metrics"])
    for run in (Path(each["run"]) for each in found["runs"]):
        assert "sample" in run.parent.parent.name
        assert run.name.startswith("mine")
        assert json.loads((run / "result.json").read_text())["sample"] is True
    for args, word in {
        (): "--dataset",
        ("--dataset", "s3dis", "--name", " "): "' ' is not a name",
    }.items():
        assert word in refused("train", *args)


@pytest.mark.parametrize(
    ("options", "epochs"),
    [
        ({"sample": True}, SAMPLE_EPOCHS),
        ({"sample": True, "epochs": 7}, 7),
        ({"sample": True, "overrides": ("training.epochs=9",)}, 9),
        ({"sample": True, "stop_after": 5}, 200),
        ({}, 200),
    ],
)
def test_a_sample_trains_few_epochs_unless_told_otherwise(options, epochs):
    config = configuration("s3dis", {}, {}, model="gps-kmip", variant=None, **options)
    assert config.training.epochs == epochs
    assert config.schedule.warmup_epochs < epochs, "the rate is reached"


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
        overrides=(
            "training.epochs=9",
            "training.precision=bf16-mixed",
            "optimiser.lr=1e-3",
            "system.checkpoint_every=2.5",
        ),
    )
    assert (config.variant, config.data.sample, config.data.parameters["k"]) == ("text", True, 16)
    assert config.data.split == {"split": "upstream", "test_area": 6, "split_seed": 4}
    assert config.data.split_seed_follows_run is False, "a seed of the split that is given counts"
    assert config.training.epochs == 9, "--set has the last word"
    assert (config.optimiser.lr, config.training.precision) == (1e-3, "bf16-mixed")
    assert (config.system.device, config.system.devices) == ("cpu", 2)
    assert config.system.checkpoint_every == 2.5
