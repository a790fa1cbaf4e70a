"""What a run says of one graph: as `predict` says it, by the keys that its own layers attend to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from support.cli import kmip
from support.training_data import TINY_RUN, learnable_build

from kmip_data.errors import UsageError
from kmip_data.models.analysis.answers import ask, choosing, said
from kmip_data.models.attention.kmip import KMIPAttention
from kmip_data.models.training.objective.tasks import Task
from kmip_data.models.training.run.predictions import predict

HEADS, K = 2, 3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on clouds of 40 to 42 points."""
    folder = tmp_path_factory.mktemp("home")
    build = learnable_build(folder / "build", graphs=8, nodes=40)
    heads = ["--set", f"model.attention.heads={HEADS}", "--set", f"model.attention.k={K}"]
    done = kmip("train", "--dataset", build.path, "--epochs", 2, *TINY_RUN, *heads, "--home", folder)
    return Path(done.json["run"])


@pytest.fixture(autouse=True)
def _home(run, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(run.parents[3]))


@pytest.mark.parametrize("position", [0, 1])
def test_classes_are_those_that_predict_writes(run, position):
    written, (_, answer) = predict(run), ask(run, position=position)
    start, stop = written.ptr[position : position + 2]
    np.testing.assert_array_equal(answer.classes, written.pred[start:stop])
    np.testing.assert_array_equal(answer.nodes, np.arange(stop - start))
    assert answer.words == ""


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("count", [12, 2])
def test_the_weighted_values_of_the_chosen_keys_are_what_the_layer_gives(legacy, count):
    torch.manual_seed(0)
    layer = KMIPAttention(8, heads=HEADS, key_dim=4, k=K, legacy_padding=legacy).eval()
    x = torch.randn(count, 8)
    with choosing(layer, count, 10**6) as (nodes, layers), torch.no_grad():
        out = layer(x)
        values = layer.project(x)[2]
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


def test_of_a_large_graph_a_fixed_draw_of_nodes_is_kept(run):
    (_, whole), (_, some), (_, again) = ask(run), ask(run, pairs=60), ask(run, pairs=60)
    assert len(some.layers) == 2
    assert len(some.nodes) == 60 // (2 * HEADS * K)
    assert (np.diff(some.nodes) > 0).all()
    np.testing.assert_array_equal(some.nodes, again.nodes)
    for part, all_of_it in zip(some.layers, whole.layers, strict=True):
        np.testing.assert_array_equal(part.indices, all_of_it.indices[:, some.nodes])
        np.testing.assert_array_equal(part.weights, all_of_it.weights[:, some.nodes])


def test_a_row_of_logits_says_a_class_labels_or_values():
    row = torch.tensor([-1.0, 2.0, 0.5])
    assert said(Task("graph", "single-label", 3), row) == 1
    np.testing.assert_array_equal(said(Task("graph", "multilabel", 3), row), [False, True, True])
    np.testing.assert_array_equal(said(Task("graph", "regression", 3), row), row.numpy())


def test_no_such_record(run):
    with pytest.raises(UsageError, match="no record 99"):
        ask(run, position=99)


def test_the_command_writes_curves_answers_and_keys(run, tmp_path):
    page = tmp_path / "page.html"
    found = kmip("explore", run, run, "--record", "1", "--output", page, "--json").json
    assert found["saved"] == str(page)
    header = json.loads(re.search(r'id="header">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)[1])
    explore = header["explore"]
    assert [len(curve["columns"]["val_loss"]) for curve in explore["curves"]] == [2, 2]
    for curve in explore["curves"]:
        hops, influence = zip(*curve["columns"]["influence by hop"], strict=True)
        assert hops == tuple(range(1, 17))
        assert sum(influence) > 0, "derivatives reach other nodes"
    assert [layer["heads"] for layer in explore["keys"]["layers"]] == [HEADS, HEADS]
    assert np.sum(explore["confusion"]) == header["x"]["count"]
    assert "right or wrong" in [layer["name"] for layer in header["layers"]]
