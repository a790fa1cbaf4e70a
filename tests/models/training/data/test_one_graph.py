"""Transductive runs: one graph, masks, one pass for a step and one for an evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.builds.learnable import (
    CITY_CLASSES,
    read_history,
    streets,
    streets_build,
    tiny_config,
)
from support.builds.same import assert_same_data
from support.raises import raises

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.network import build_model
from kmip_data.models.training.accumulators import PartMetrics
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data, load_preset
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.losses import weighted_cross_entropy
from kmip_data.models.training.run.checkpoint import LAST_CHECKPOINT
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.predictions import predict
from kmip_data.models.training.run.train import train
from kmip_data.models.training.run.training_module import TrainingModule, evaluate_parts
from kmip_data.models.training.schedules import ScheduleOptions, cosine_with_warmup
from kmip_data.pipelines.find_builds import find_or_build


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return streets_build(tmp_path_factory.mktemp("data") / "streets")


def config_of(build, **sections):
    sections["model"] = {"norm": "graph-layer", **sections.get("model", {})}
    sections["training"] = {"accumulate": 1, **sections.get("training", {})}
    return tiny_config(build, **sections)


def test_a_step_is_one_pass_and_one_update_on_the_train_nodes(build, tmp_path):
    """Against the loop of the paper's code written out."""
    config = config_of(
        build,
        model={"dropout": 0.2},
        optimizer={"lr": 5e-3},
        training={"epochs": 4, "clip_norm": 0.1},
    )
    run = train(config, home=Home(tmp_path), quiet=True).runs[0]

    torch.manual_seed(0)
    graph = kmip_data.open(build.path)[0]
    model = build_model(config.model, in_channels=5, out_channels=CITY_CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    for epoch in range(4):
        optimizer.param_groups[0]["lr"] = 5e-3 * cosine_with_warmup(epoch, ScheduleOptions(4))
        mask = graph.train_mask
        weighted_cross_entropy(model(graph)[mask], graph.y[mask]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()

    last = torch.load(run / LAST_CHECKPOINT, weights_only=True)["model"]
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(last[name], weight, rtol=1e-5, atol=1e-7)


def test_your_own_build_has_settings_by_its_name(tmp_path):
    home = Home(tmp_path)
    streets_build(home.built / "streets")
    config = load_preset("streets", "gcn", home=home)
    assert config == config_for_data("streets", "gcn", home=home)
    assert (config.preset, config.model.name) == ("", "gcn")

    of_s3dis = load_preset("s3dis", data="streets", home=home)
    assert (of_s3dis.preset, of_s3dis.data) == ("s3dis/gps-kmip", config.data)
    with raises(UsageError, naming="streets"):
        load_preset("street", home=home)


def test_one_pass_equals_three_passes_of_upstream(build, tmp_path, monkeypatch):
    data = open_data(config_of(build), home=Home(tmp_path))
    torch.manual_seed(1)
    module = TrainingModule(data.config, data)
    passes = []
    forward = TrainingModule.forward

    def counted(self, batch):
        passes.append(batch)
        return forward(self, batch)

    monkeypatch.setattr(TrainingModule, "forward", counted)
    values = evaluate_parts(module, data, data.parts, torch.device("cpu"))
    assert len(passes) == 1
    module.eval()
    for part in ("train", "val", "test"):  # upstream: a pass for each
        mask = data.graph[f"{part}_mask"]
        with torch.no_grad():
            logits = module.model(data.graph)[mask]
        metrics = PartMetrics(data.task)
        metrics.update(
            logits, data.graph.y[mask], weighted_cross_entropy(logits, data.graph.y[mask])
        )
        assert values[part] == metrics.compute()
    assert module.training is False


def test_run_prints_and_writes_its_results(build, tmp_path, capfd):
    config = config_of(build, training={"epochs": 5, "eval_every": 2})
    summary = train(config, home=Home(tmp_path))
    lines = capfd.readouterr().err.splitlines()
    sizes = [int(build.card.splits["masks"].parts[part].nodes) for part in ("train", "val", "test")]
    assert lines[0].endswith("split 'masks': train {}, val {}, test {} nodes".format(*sizes))
    history = read_history(summary.runs[0])
    assert ["val_accuracy" in row for row in history] == [True, True, False, True, True]
    assert ["train_eval_accuracy" in row for row in history] == [True, True, False, True, True]
    assert all("train_accuracy" in row for row in history)
    result = summary.results[0]
    best = history[result.best_epoch]
    for part, column in (("train", "train_eval"), ("val", "val"), ("test", "test")):
        assert result.metrics[part] == {
            name: best[f"{column}_{name}"] for name in result.metrics[part]
        }
    assert evaluate(summary.runs[0], home=Home(tmp_path)).equals_result


def test_sampled_neighbourhoods_are_subgraphs_within_their_limits(build, tmp_path):
    """Seeds first, every edge is one of the graph, at most so many a node, each train node once."""
    config = config_of(build, training={"neighbors": [2, 1], "batch_size": 20})
    data = open_data(config, home=Home(tmp_path))
    graph = data.graph
    edges = set(zip(*graph.edge_index.tolist(), strict=True))
    batches = data.train_batches(0)
    seeds = []
    for batch in batches:
        chosen = int(batch.train_mask.sum())
        assert batch.train_mask[:chosen].all()
        assert len(batch.n_id.unique()) == batch.num_nodes
        torch.testing.assert_close(batch.x, graph.x[batch.n_id])
        source, target = batch.n_id[batch.edge_index]
        assert set(zip(source.tolist(), target.tolist(), strict=True)) <= edges
        assert len({*zip(source.tolist(), target.tolist(), strict=True)}) == len(source)
        incoming = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)
        assert incoming.max() <= 2
        degree = torch.bincount(graph.edge_index[1])[batch.n_id[:chosen]]
        assert torch.equal(incoming[:chosen], degree.clamp(max=2))
        seeds += batch.n_id[:chosen].tolist()
        assert batch.num_nodes <= data.largest_batch.nodes
        assert batch.num_edges <= data.largest_batch.edges
    assert sorted(seeds) == graph.train_mask.nonzero().flatten().tolist()
    assert len(batches) == -(-len(seeds) // 20)
    first, again = ([batch.n_id.tolist() for batch in batches] for _ in range(2))
    batches = data.train_batches(1)
    later = [batch.n_id.tolist() for batch in batches]
    assert first == again != later
    [(_, [whole])] = data.evaluation_passes(
        ["val"]
    )  # sent elsewhere, it leaves what is sampled from where it is
    assert whole.to("meta").x.is_meta
    assert [batch.n_id.tolist() for batch in batches] == later
    wide = config_of(build, training={"neighbors": [1000], "batch_size": 10**6})
    (batch,) = open_data(wide, home=Home(tmp_path)).train_batches(0)
    assert batch.num_edges == int(graph.train_mask[graph.edge_index[1]].sum())


@pytest.mark.parametrize("positional", ["rwse", "lappe"])
def test_sampled_neighbourhoods_carry_positional_encodings(build, tmp_path, positional):
    """Whatever has a row for each node is cut with the nodes, and the network reads it."""
    changed = {"positional": positional, "hidden_dim": 40, "layers": 1}
    config = config_of(
        build, model=changed, training={"neighbors": [2], "batch_size": 20, "epochs": 1}
    )
    data = open_data(config, home=Home(tmp_path))
    batch = next(iter(data.train_batches(0)))
    added = [name for name in data.graph.keys() if data.graph.is_node_attr(name)]  # noqa: SIM118
    assert len(added) > 5
    for name in set(added) - {"train_mask", "val_mask", "test_mask"}:
        assert torch.equal(batch[name], data.graph[name][batch.n_id])
    assert train(config, home=Home(tmp_path), quiet=True).results


def test_a_mapped_graph_gives_the_batches_of_a_loaded_one(tmp_path):
    """Column for column, with a city's features; evaluations draw around every node of a part."""
    home, keys = Home(tmp_path), ["model.layers=1", "model.hidden_dim=8", "training.epochs=2"]
    keys += ["system.device=cpu", "training.neighbors=[3,2]", "training.batch_size=20"]
    keys += ["training.eval_neighbors=[4]", "model.parameter_budget=none"]
    city = find_or_build("paris", {"limit": 300}, home=home, sample=True, quiet=True)
    config = apply_overrides(config_for_data(str(city.path), "gcn"), keys)
    mapped, loaded = (open_data(config, home=home) for _ in range(2))
    whole = loaded.graph
    for part, seeds in (("train", None), ("val", "val"), ("test", "test")):
        pairs = [
            list(data.train_batches(1) if seeds is None else data.evaluation_passes([seeds])[0][1])
            for data in (mapped, loaded)
        ]
        for a, b in zip(*pairs, strict=True):
            assert a.x.shape[1] == 67
            assert_same_data(a, b, ordered=False)
        nodes = torch.cat([batch.n_id[batch[f"{part}_mask"]] for batch in pairs[0]])
        nodes = nodes.sort().values if seeds is None else nodes
        assert torch.equal(nodes, whole[f"{part}_mask"].nonzero()[:, 0])
    run = train(config, home=home, quiet=True).runs[0]
    assert "graph" not in vars(mapped)
    assert {"val_accuracy", "test_accuracy"} & read_history(run)[0].keys() == {"val_accuracy"}
    measured, predicted = evaluate(run, home=home), predict(run, split="test", home=home)
    assert measured.equals_result
    assert predicted.key.tolist() == whole.test_mask.nonzero()[:, 0].tolist()
    right = np.mean(predicted.pred == whole.y[whole.test_mask].numpy())
    assert right == pytest.approx(measured.metrics["test"]["accuracy"])


def test_an_empty_part_is_refused(tmp_path):
    graph = streets()
    graph.val_mask = torch.zeros_like(graph.val_mask)
    other = kmip_data.save(graph, tmp_path / "empty")
    with raises(UsageError, naming="val"):
        train(config_of(other), home=Home(tmp_path), quiet=True)


def test_a_run_evaluates_on_another_graph_of_the_same_width(build, tmp_path):
    home = Home(tmp_path)
    summary = train(config_of(build), home=home, quiet=True)
    other = streets_build(tmp_path / "other", nodes=200, seed=4)
    evaluation = evaluate(summary.runs[0], dataset=str(other.path), home=home)
    assert evaluation.equals_result is None
    assert evaluation.metrics.keys() == {"train", "val", "test"}
    graph = streets()
    graph.x = torch.from_numpy(np.zeros((300, 6), np.float32))
    wide = kmip_data.save(graph, tmp_path / "wide")
    with raises(UsageError, naming=6):
        evaluate(summary.runs[0], dataset=str(wide.path), home=home)
