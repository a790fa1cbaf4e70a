"""Exphormer: batches, expanders, dropout and refusals; its formula is in test_whole_networks.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.builds.learnable import streets_build
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.graphs.encodings.expander import expander_targets
from kmip_data.models import (
    ExphormerAttention,
    ExphormerInitialState,
    ModelConfig,
    build_model,
    read_batch,
)
from kmip_data.models.attention.exphormer import read_expander_edges
from kmip_data.models.layers.batch import EdgeList, NeighborTable
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.data.open_data import open_data

D = 8
MIXED, LARGE = (13, 1, 2, 7, 12), (13, 11)  #: with complete graphs, and where all edges fit a table


def graphs(sizes: tuple[int, ...]) -> Batch:
    """Graphs with features, an expander and edges."""
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    made = []
    for n in sizes:
        x = torch.randn(n, D, generator=generator, dtype=torch.float64)
        expander = torch.from_numpy(expander_targets(n, 3, rng)).long()
        edges = torch.randint(0, n, (2, 3 * n), generator=generator)
        made.append(Data(x=x, edge_index=edges, expander=expander))
    return Batch.from_data_list(made)


def parts(**options: Any) -> tuple[ExphormerInitialState, ExphormerAttention]:
    torch.manual_seed(1)
    return ExphormerInitialState(D, virtual_nodes=3).double(), ExphormerAttention(
        D, heads=2, **options
    ).double()


def run(batch: Any, begin: ExphormerInitialState, layer: ExphormerAttention) -> Tensor:
    """Nodes after two passes through a layer, so that virtual nodes matter."""
    graph_batch = read_batch(batch, ("expander",))
    (carried,) = begin(torch.ones(1, D, dtype=torch.float64), graph_batch)
    x, carried = layer(batch.x, graph_batch, carried)
    return layer(x, graph_batch, carried)[0]


def test_expanders_are_a_table_unless_a_graph_is_complete_or_loops_are_left_out() -> None:
    large, mixed = (read_batch(graphs(sizes), ("expander",)) for sizes in (LARGE, MIXED))
    table = read_expander_edges(large)
    assert isinstance(table, NeighborTable)
    assert table.neighbor.shape == (24, 6)
    listed = read_expander_edges(large, self_loops=False)
    assert isinstance(listed, EdgeList)
    proper = table.index[:, table.index[0] != table.index[1]]
    assert sorted(proper.t().tolist()) == sorted(listed.index.t().tolist())
    assert isinstance(read_expander_edges(mixed), EdgeList)


def test_targets_that_are_no_permutation_are_edges_too() -> None:
    data = Data(
        x=torch.ones(12, 1), edge_index=torch.zeros(2, 0).long(), expander=torch.zeros(12, 1).long()
    )
    index = read_expander_edges(read_batch(data, ("expander",))).index
    assert sorted(index.t().tolist()) == sorted(
        [[i, 0] for i in range(12)] + [[0, i] for i in range(12)]
    )


@pytest.mark.parametrize(
    ("expander", "error"),
    [
        (None, UsageError),
        (torch.full((12, 1), 12), DamagedInput),
        (torch.full((12, 1), -2), DamagedInput),
    ],
)
def test_a_missing_expander_or_one_that_leaves_its_graph_is_refused(expander, error) -> None:
    data = Data(
        x=torch.ones(12, D).double(), edge_index=torch.zeros(2, 0).long(), expander=expander
    )
    with pytest.raises(error) as caught:
        run(data, *parts())
    assert caught.value.steps[-1] == Setting({"model.attention.expander": 0})


def test_dropout_acts_on_weights_in_training_alone_and_not_on_their_sum(monkeypatch) -> None:
    batch = read_batch(graphs(LARGE), ("expander",))
    begin, layer = parts(dropout=0.3)
    (carried,) = begin(torch.ones(1, D, dtype=torch.float64), batch)
    assert not torch.equal(layer(batch.x, batch, carried)[0], layer(batch.x, batch, carried)[0])
    plain = parts()[1](batch.x, batch, carried)[0]
    assert torch.equal(layer.eval()(batch.x, batch, carried)[0], plain)
    chances = []

    def doubled(weight: Tensor, chance: float, training: bool) -> Tensor:
        chances.append(chance)
        return 2 * weight if training else weight

    monkeypatch.setattr(nn.functional, "dropout", doubled)
    torch.testing.assert_close(layer.train()(batch.x, batch, carried)[0], 2 * plain)
    assert set(chances) == {0.3}


def test_layers_attend_to_the_features_of_edges_as_they_were_encoded() -> None:
    """Message passing updates the edges; attention goes on with the first ones."""
    config, edge_inputs = ModelConfig(name="exphormer", layers=3, hidden_dim=D), []
    model = build_model(config, in_channels=D, out_channels=4).double().eval()
    for layer in model.layers:
        layer.attention.register_forward_pre_hook(
            lambda _, inputs: edge_inputs.append(inputs[2].edges)
        )
    model(graphs(LARGE))
    assert len(edge_inputs) == 3
    assert all(edges is model.edge_encoder.embedding.weight for edges in edge_inputs)


def test_sampled_neighbourhoods_have_no_expander(tmp_path: Path) -> None:
    build = streets_build(tmp_path / "build", nodes=60)
    training = {"neighbors": (3,), "batch_size": 8}
    sections = {"training": training, "model": {"name": "exphormer", "hidden_dim": 8}}
    settings = {"data": {"dataset": str(build.path)}, "system": {"device": "cpu"}, **sections}
    with pytest.raises(UsageError):
        open_data(config_from_mapping(settings, "the test"), home=Home(tmp_path))
    sections["model"]["attention"] = {"kind": "exphormer", "expander": 0}
    assert open_data(
        config_from_mapping(settings, "the test"), home=Home(tmp_path)
    ).build.card.dataset_label
