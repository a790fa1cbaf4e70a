"""A run on a city, and weights that are no file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.cli import kmip

from kmip_data.builds.home import Home
from kmip_data.pipelines.find import find

QUICK = ["--device", "cpu", "--epochs", "2", "--quiet", "--json", "--set", "model.layers=1"]
QUICK += ["--set", "model.hidden_dim=8", "--set", "model.parameter_budget=none"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """A home with a generated city and a run on it."""
    folder = tmp_path_factory.mktemp("home")
    data = ["--sample", "--limit", "300", "--home", folder]
    assert kmip("build", "helsinki", *data, "--jobs", "1", "-q").code == 0
    outcome = kmip("train", "--dataset", "helsinki", *data, *QUICK, "--name", "mine")
    assert outcome.code == 0, outcome.err
    return Home(Path(folder))


def city(home: Home):
    return find("helsinki", {"limit": 300}, home=home, sample=True)


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
