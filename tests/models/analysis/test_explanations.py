"""Answers of a run for one graph, as `predict` writes them, and its accuracy by class."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from support.builds.learnable import TINY_RUN, learnable_build, streets
from support.cli import kmip
from torch import nn
from torch_geometric.data import Data

import kmip_data
from kmip_data.errors import UsageError
from kmip_data.models import ModelConfig, build_model
from kmip_data.models.analysis.explanations import (
    influence_by_hop,
    node_influence,
    predict_record,
    prediction_from_logits,
    search_chosen_keys,
)
from kmip_data.models.analysis.projections import collect_projections
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.training.run.predictions import predict
from kmip_data.models.training.tasks import Task

HEADS, K = 2, 3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on clouds of 40 to 42 points."""
    folder = tmp_path_factory.mktemp("home")
    build = learnable_build(folder / "build", graphs=8, nodes=40)
    heads = [
        "--model",
        "gps-kmip",
        "--set",
        f"model.attention.heads={HEADS}",
        "--set",
        f"model.attention.k={K}",
    ]
    done = kmip("train", build.path, "--epochs", 2, *TINY_RUN, *heads, "--home", folder)
    return Path(done.json["run"])


@pytest.fixture(autouse=True)
def _home(run, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(run.parents[3]))


def test_explained_classes_equal_the_classes_of_predict(run):
    written, (_, answer) = predict(run), predict_record(run, position=1)
    start, stop = written.ptr[1:3]
    np.testing.assert_array_equal(answer.classes, written.pred[start:stop])
    np.testing.assert_array_equal(answer.nodes, np.arange(stop - start))
    assert answer.prediction_text == ""
    with pytest.raises(UsageError):
        predict_record(run, position=99)


@pytest.mark.parametrize(("legacy", "count"), [(False, 12), (True, 2)])
def test_the_weighted_values_of_chosen_keys_equal_the_layer_output(legacy, count):
    torch.manual_seed(0)
    layer = KMIPAttention(8, heads=HEADS, key_dim=4, k=K, legacy_padding=legacy).eval()
    x = torch.randn(count, 8)
    with collect_projections(layer) as projections, torch.no_grad():
        out = layer(x)
    values = layer.project(x)[2]
    nodes, layers = search_chosen_keys(projections, count, 10**6)
    (chosen,), rows = layers, torch.arange(HEADS)[:, None, None]
    indices, weights = torch.from_numpy(chosen.indices), torch.from_numpy(chosen.weights)
    assert nodes.tolist() == list(range(count))
    mean = (weights[..., None] * values[rows, indices.clamp(min=0)]).sum(2)
    torch.testing.assert_close(mean.transpose(0, 1).flatten(1), out)
    torch.testing.assert_close(weights.sum(-1), torch.ones(HEADS, count))
    queries, keys, _ = layer.project(x)
    scores = queries.double() @ keys.double().transpose(1, 2)
    best = scores.topk(min(K, count)).indices
    assert torch.equal(indices[..., : best.shape[2]], best)


def test_a_large_graph_is_reduced_to_a_fixed_sample_of_nodes(run):
    (_, whole), (_, some), (_, again) = (
        predict_record(run),
        predict_record(run, max_pairs=60),
        predict_record(run, max_pairs=60),
    )
    assert len(some.attention_layers) == 2
    assert len(some.nodes) == 60 // (2 * HEADS * K)
    assert (np.diff(some.nodes) > 0).all()
    np.testing.assert_array_equal(some.nodes, again.nodes)
    for part, all_of_it in zip(some.attention_layers, whole.attention_layers, strict=True):
        np.testing.assert_array_equal(part.indices, all_of_it.indices[:, some.nodes])
        np.testing.assert_array_equal(part.weights, all_of_it.weights[:, some.nodes])


def test_logits_become_a_class_labels_or_values_by_task():
    row = torch.tensor([-1.0, 2.0, 0.5])
    assert prediction_from_logits(Task("graph", "classification", 3), row) == 1
    np.testing.assert_array_equal(
        prediction_from_logits(Task("graph", "multilabel", 3), row), [False, True, True]
    )
    np.testing.assert_array_equal(
        prediction_from_logits(Task("graph", "regression", 3), row), row.numpy()
    )


def test_the_command_writes_curves_answers_and_keys(run, tmp_path):
    page = tmp_path / "page.html"
    result = kmip("explore", run, run, "--record", "1", "--output", page, "--json").json
    assert result["saved"] == str(page)
    header = json.loads(
        re.search(r'class="header">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)[1]
    )
    explore = header["explore"]
    assert [len(curve["columns"]["val_loss"]) for curve in explore["curves"]] == [2, 2]
    for curve in explore["curves"]:
        names = [name for name, _ in curve["answers"]]
        assert names[:2] == ["accuracy [%]", curve["name"]]
        assert "linear model" in names
        hops, influence = zip(*curve["columns"]["influence by hop"], strict=True)
        assert hops == tuple(range(1, 17))
        assert sum(influence) > 0, "derivatives reach other nodes"
    assert [layer["heads"] for layer in explore["keys"]["layers"]] == [HEADS, HEADS]
    for curve in explore["curves"]:
        assert "val_accuracy" in curve["percent"]
        assert {"val_loss", "influence by hop"}.isdisjoint(curve["percent"])
    names = [layer["name"] for layer in header["layers"]]
    assert {"both runs", "right or wrong"} <= {*names}
    assert sum(name.startswith("predicted class") for name in names) == 2


def test_accuracy_by_class_is_a_count_of_predictions(run, tmp_path):
    build = run.parents[3] / "build"
    shown = kmip("evaluate", run, "--by-class", "--json").json["classes"]
    for part in ("train", "val", "test"):
        labels = np.concatenate([data.y.numpy() for data in kmip_data.open(build, split=part)])
        assert shown["rows"][part] == np.bincount(labels, minlength=len(shown["names"])).tolist()
        kmip("predict", run, "--split", part, "--output", tmp_path / f"{part}.npz")
        predicted = np.load(tmp_path / f"{part}.npz")["logits"].argmax(1)
        wanted = [int(((predicted == c) & (labels == c)).sum()) for c in range(len(shown["names"]))]
        assert shown["right"][part] == wanted
    lines = kmip("evaluate", run, "--by-class").out.splitlines()
    share = 100 * shown["right"]["val"][0] / shown["rows"]["val"][0]
    assert any(line.split()[:1] == [shown["names"][0]] and f"{share:.1f}" in line for line in lines)


class OfTensors(nn.Module):
    """A network called as PyTorch Geometric calls a model."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        keys = {"attention": {"heads": 2, "key_dim": 4, "k": 3}} if name == "gps-kmip" else {}
        config = ModelConfig(
            name=name, layers=2, hidden_dim=8, parameter_budget=None, head="node", **keys
        )
        self.model = build_model(config, in_channels=5, out_channels=4).eval()

    def forward(self, x, edge_index):
        return self.model(Data(x=x, edge_index=edge_index))


def influence(model: nn.Module, graph: Data, nodes: list[int]):
    x = graph.x.clone().requires_grad_()
    outputs = model(x, graph.edge_index)
    return np.stack([node_influence(outputs, x, node) for node in nodes])


def test_influence_of_message_passing_equals_pyg():
    oracle = pytest.importorskip("torch_geometric.utils.influence")
    graph, model, hops = (
        streets(40),
        OfTensors("gcn"),
        5,
    )  # beyond the layers: its cut changes nothing
    wanted, _ = oracle.total_influence(model, graph, hops, vectorize=False)
    nodes = list(range(40))
    sums = influence_by_hop(influence(model, graph, nodes), graph.edge_index, nodes, hops)
    np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=1e-7)
    assert not sums[3:].any()  # two layers


def test_influence_through_attention_equals_the_full_jacobian():
    graph, model = streets(40), OfTensors("gps-kmip")
    values = influence(model, graph, [0, 7])
    for row, node in zip(values, (0, 7), strict=True):
        outputs = lambda x, node=node: model(x, graph.edge_index)[node]
        jacobian = torch.autograd.functional.jacobian(outputs, graph.x)
        np.testing.assert_allclose(row, jacobian.abs().sum((0, 2)), rtol=1e-4, atol=1e-7)


def test_influence_is_summed_by_distance_against_the_edges():
    index = torch.tensor([[1, 2, 2, 3, 4], [0, 0, 0, 1, 2]])  # one twice
    sums = influence_by_hop(np.array([[1.0, 2, 4, 8, 5, 9]]), index, [0], 3)
    assert sums.tolist() == [1, 6, 13, 0]
