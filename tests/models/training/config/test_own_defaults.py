"""Defaults of your own data: each bracket is chosen by the number of train items, and trains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.builds.learnable import rings, streets_build
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.training.config.own_defaults import BRACKETS, find_bracket, train_items
from kmip_data.models.training.config.presets import config_for_data, load_preset
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.run.train import train

#: Brackets of nodes and graphs, each with the largest number of items of the previous one.
CASES = [
    (level, bracket, 0 if number == 0 else brackets[number - 1].most_items)
    for level, brackets in BRACKETS.items()
    for number, bracket in enumerate(brackets)
]


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    return {
        "node": streets_build(folder / "streets", nodes=60),
        "graph": rings(folder / "rings", "value"),
    }


def with_train_items(card, items: int):
    """Return a card whose train part has a number of items."""
    split = card.splits[card.default_split]
    train_part = split.parts["train"].model_copy(update={"nodes": items, "graphs": items})
    parts = {**split.parts, "train": train_part}
    splits = {**card.splits, card.default_split: split.model_copy(update={"parts": parts})}
    return card.model_copy(update={"splits": splits})


@pytest.mark.parametrize(("level", "bracket", "previous"), CASES)
def test_each_bracket_is_chosen_by_the_number_of_train_items(builds, level, bracket, previous):
    card = builds[level].card
    largest = int(min(bracket.most_items, 10**9))
    for items in (int(previous) + 1, largest):
        assert find_bracket(with_train_items(card, items)) is bracket
    assert BRACKETS[level][-1].most_items == float("inf"), "every size has a default"
    limits = [bracket.most_items for bracket in BRACKETS[level]]
    assert limits == sorted(set(limits))


@pytest.mark.parametrize("level", BRACKETS)
def test_own_data_are_trained_with_the_default_of_their_size(builds, level, tmp_path: Path):
    build = builds[level]
    parts = build.card.splits[build.card.default_split].parts
    assert train_items(build.card) == (
        parts["train"].nodes if level == "node" else parts["train"].graphs
    )
    bracket = find_bracket(build.card)
    config = config_for_data(str(build.path))
    values = config.model_dump()
    for setting in bracket.settings.split():
        key, _, value = setting.partition("=")
        section, _, name = key.partition(".")
        assert str(values[section][name]) == value
    assert (config.model.name, config.preset) == (bracket.model, "")
    config = config.with_values("training", epochs=1, references=False)
    (result,) = train(config, home=Home(tmp_path), name="a", quiet=True).results
    assert result.model == bracket.model


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


def test_classes_are_unweighted_where_the_metric_is_accuracy(builds, tmp_path):
    assert config_for_data(str(builds["node"].path)).training.loss == "cross_entropy"
    assert config_for_data(str(builds["graph"].path)).training.loss is None


def test_published_datasets_keep_their_presets():
    assert config_for_data("minesweeper") == load_preset("minesweeper", "gps-kmip")
    # Without a preset, a published dataset has the defaults of the keys.
    config = config_for_data("lrim-16-easy")
    assert config.model == RunConfig.model_validate({"data": {"dataset": "a"}}).model
    with pytest.raises(UsageError, match="one-graph"):
        load_preset("one-graph", "gcn")
