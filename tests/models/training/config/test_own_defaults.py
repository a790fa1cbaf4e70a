"""Default network and settings of your own data, which published datasets do not have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.builds.learnable import rings, streets_build
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.reports.result_tables import read_finished_runs
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.own_defaults import OWN_SETTINGS
from kmip_data.models.training.config.presets import config_for_data, load_preset
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.run.train import train


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    return {
        "node": streets_build(folder / "streets", nodes=60),
        "graph": rings(folder / "rings", "value"),
    }


@pytest.mark.parametrize(("level", "model"), [("node", "sage"), ("graph", "dir-sage")])
def test_own_data_are_trained_with_the_default_network_and_settings(
    builds, level, model, tmp_path: Path
):
    config = config_for_data(str(builds[level].path))
    for setting in OWN_SETTINGS:
        assert apply_overrides(config, setting) == config, setting
    assert (config.model.name, config.preset) == (model, "")
    config = config.with_values("training", epochs=1, references=False)
    (result,) = train(config, home=Home(tmp_path), name="a", quiet=True).results
    assert result.model == model

    # The defaults are no changes in a report.
    (run,), _ = read_finished_runs(Home(tmp_path).run_folders())
    assert run.changes == ("training.epochs=1 instead of 300",)


def test_another_network_has_the_same_settings(builds):
    default = config_for_data(str(builds["node"].path))
    gcn = config_for_data(str(builds["node"].path), "gcn")
    assert gcn.model.name == "gcn"
    assert gcn.model.hidden_dim == default.model.hidden_dim
    assert (gcn.optimizer, gcn.training) == (default.optimizer, default.training)


def test_features_of_edges_are_read_by_a_network_that_can(tmp_path):
    graph = Data(
        x=torch.rand(6, 2),
        edge_index=torch.arange(12).view(2, 6) % 6,
        edge_attr=torch.rand(6, 3),
        y=torch.rand(6),
        train_mask=torch.arange(6) < 4,
        val_mask=torch.arange(6) == 4,
        test_mask=torch.arange(6) == 5,
    )
    folder = str(kmip_data.save([graph], tmp_path / "edges").path)
    encoders = {
        model: config_for_data(folder, model).model.edge_encoder
        for model in ("gcn", "gine", "gps-none")
    }
    assert encoders == {"gcn": "dummy", "gine": "linear", "gps-none": "linear"}


@pytest.mark.parametrize(
    ("both_ways", "features", "model"),
    [(True, 0, "sage"), (False, 0, "dir-sage"), (True, 2, "dir-sage")],
)
def test_the_default_network_reads_features_and_directions_of_edges(
    tmp_path, both_ways, features, model
):
    start = torch.arange(6)
    edges = torch.stack([start, (start + 1) % 6])
    if both_ways:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    graph = Data(x=torch.rand(6, 2), edge_index=edges, y=torch.rand(6))
    if features:
        graph.edge_attr = torch.rand(edges.shape[1], features)
    folder = str(kmip_data.save([graph], tmp_path / "own", split={"train": range(6)}).path)
    config = config_for_data(folder)
    assert config.model.name == model
    assert config.model.edge_encoder == ("linear" if features else "dummy")


def test_classes_are_unweighted_where_the_metric_is_accuracy(builds, tmp_path):
    assert config_for_data(str(builds["node"].path)).training.loss == "cross_entropy"
    assert config_for_data(str(builds["graph"].path)).training.loss is None


def test_published_datasets_keep_their_presets():
    assert config_for_data("minesweeper") == load_preset("minesweeper", "gps-kmip")
    # Without a preset, a published dataset has the defaults of the keys.
    config = config_for_data("lrim-16-easy")
    assert config.model == RunConfig.model_validate({"data": {"dataset": "a"}}).model
    with pytest.raises(UsageError):
        load_preset("one-graph", "gcn")
