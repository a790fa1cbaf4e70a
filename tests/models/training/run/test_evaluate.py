"""Predictions of single nodes add up to the run's result."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.cli import kmip

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.training.run.evaluate import predict_nodes
from kmip_data.pipelines.find import find

QUICK = ["--device", "cpu", "--epochs", "2", "--quiet", "--json", "--set", "model.layers=1"]
QUICK += ["--set", "model.hidden_dim=8", "--set", "model.parameter_budget=none"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """A home with two generated cities and a run on the first."""
    folder = tmp_path_factory.mktemp("home")
    data = ["--sample", "--limit", "300", "--home", folder]
    assert kmip("build", "helsinki", *data, "--jobs", "1", "-q").code == 0
    outcome = kmip("train", "--dataset", "helsinki", *data, *QUICK, "--name", "mine")
    assert outcome.code == 0, outcome.err
    return Home(Path(folder))


def city(home: Home):
    return find("helsinki", {"limit": 300}, home=home, sample=True)


def test_predictions_add_up_to_the_result(home):
    build = city(home)
    classes, result, folder = predict_nodes("mine", build, home=home)
    data = kmip_data.open(build.path)[0]
    assert folder.name == "mine"
    assert classes.shape == data.y.shape
    right = classes == data.y.numpy()
    for part in ("train", "val", "test"):
        mask = data[f"{part}_mask"].numpy()
        assert right[mask].mean() == pytest.approx(result.metrics[part]["accuracy"], abs=1e-6)


def test_the_map_of_a_run_lies_in_the_run(home):
    build = city(home)
    found = kmip("preview", build.path, "--run", "mine", "--home", home.root, "--json")
    assert found.code == 0, found.err
    saved = Path(found.json["saved"])
    assert (saved.parent.name, saved.name) == ("mine", "map.png")
    assert found.json["maps"] == ["class", "eccentricity", "split", "right or wrong", "predicted class"]
    assert np.frombuffer(saved.read_bytes()[:4], "u1").tolist() == [137, 80, 78, 71]


def test_weights_that_are_no_file_are_not_waited_for(home, tmp_path):
    source = home.runs / "helsinki-sample/gps-kmip/mine"
    run = tmp_path / "mine"
    run.mkdir()
    for name in ("config.toml", "result.json"):
        shutil.copy(source / name, run)
    os.mkfifo(run / "model.safetensors")
    outcome = kmip("evaluate", run, "--dataset", city(home).path, "--home", home.root)
    assert outcome.code == 4
    assert "cannot be read as weights" in outcome.err
    assert "train --resume" in outcome.err


def test_a_run_on_many_graphs_has_no_map(home, tmp_path):
    args = ["s3dis", "--sample", "--limit", "6", "--home", tmp_path]
    assert kmip("build", *args, "--jobs", "1", "-q").code == 0
    (run,) = home.runs.glob("*/*/mine")
    outcome = kmip("preview", *args, "--run", run)
    assert outcome.code == 2
    assert "not a city" in outcome.err
    build = find("s3dis", {"limit": 6}, home=tmp_path, sample=True)
    with pytest.raises(UsageError, match="do not fit"):
        predict_nodes("mine", build, home=home)
