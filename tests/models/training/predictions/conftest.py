"""A run on a small build, and what it predicts."""

from __future__ import annotations

import pytest
from support.training_data import learnable_build, tiny_config

from kmip_data.builds.home import Home
from kmip_data.models.training.predictions.predict import predict
from kmip_data.models.training.run.train import train
from kmip_data.pipelines.find import find


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Home:
    """A home with a build of clouds, of which two are the test part, and a run on it."""
    home = Home(tmp_path_factory.mktemp("home"))
    build = learnable_build(home.root / "built" / "clouds")
    train(tiny_config(build, training={"epochs": 1}), home=home, quiet=True, name="mine")
    return home


@pytest.fixture(scope="session")
def predictions(home):
    return predict("mine", home=home)


@pytest.fixture
def clouds(home) -> str:
    return str(find("clouds", home=home).path)
