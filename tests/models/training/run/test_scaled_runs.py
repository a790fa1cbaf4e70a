"""Runs on numbers of any unit: scaled by the train part, and in the user's unit everywhere else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.preprocessing import StandardScaler
from support.builds.learnable import tiny_config
from support.builds.records import column_of
from support.builds.written import write_build
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.data.scaled_columns import default_scale
from kmip_data.models.training.run import loop as loop_file
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.predictions import predict
from kmip_data.models.training.run.train import resume, train

EDGES = {"model": {"edge_encoder": "linear", "local": "gine"}}
AUTO = {"scale": "auto"}


def graphs(count=24, *, missing=0.1, seed=0, nodes=6, level=None):
    """Rings with a large, a small, a binary and a constant feature; y is near 30,000."""
    rng = np.random.default_rng(seed)
    records = []
    for _ in range(count):
        small = rng.normal(0, 1e-3, nodes)
        x = np.stack([1e5 * rng.normal(size=nodes) + 1e6, small, small > 0, np.full(nodes, 7)], 1)
        x = x.astype(np.float32)
        x[rng.random(nodes) < missing, 0] = np.nan
        ring = np.arange(nodes)
        edges = np.stack([ring, np.roll(ring, 1)])
        y = np.array([30_000 + 1e6 * small.mean()]) if level is None else level(small)
        records.append(
            Data(
                x=torch.from_numpy(x),
                edge_index=torch.from_numpy(edges),
                edge_attr=torch.from_numpy(rng.normal(50, 9, (nodes, 1)).astype(np.float32)),
                y=torch.from_numpy(y).float()[None] if y.dtype.kind == "f" else torch.from_numpy(y),
            )
        )
    return records


PARTS = {"train": range(16), "val": range(16, 20), "test": range(20, 24)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("scaled")


@pytest.fixture(scope="module")
def build(place):
    return kmip_data.save(graphs(), place / "build", split=PARTS)


def config_of(build, **sections):
    return tiny_config(build, **{"data": AUTO, **EDGES, **sections})


@pytest.fixture(scope="module")
def run(place, build):
    return train(config_of(build), home=Home(place / "home"), name="run", quiet=True).runs[0]


def test_statistics_are_those_of_the_train_part(run) -> None:
    records = graphs()[:16]
    weights = load_file(run / "model.safetensors")
    x = StandardScaler().fit(np.concatenate([record.x.numpy() for record in records]))
    mean, deviation = x.mean_.copy(), x.scale_.copy()
    mean[2], deviation[2] = 0, 1  # false and true
    edges = StandardScaler().fit(np.concatenate([record.edge_attr.numpy() for record in records]))
    y = StandardScaler().fit(np.concatenate([record.y.numpy() for record in records]))
    expected = {"features.x": (mean, deviation)}
    expected["features.edge_attr"] = (edges.mean_, edges.scale_)
    expected["targets"] = (y.mean_, y.scale_)
    for name, statistics in expected.items():
        for buffer, values in zip(("mean", "deviation"), statistics, strict=True):
            np.testing.assert_allclose(weights[f"scaling.{name}.{buffer}"], values, rtol=1e-5)
    assert read_config(run / "config.toml").data.scale == "both"


@pytest.mark.parametrize("target", ["classification", "regression"])
def test_published_data_stay_as_they_are(target) -> None:
    for name in dataset_names():
        if not load_manifest(name).recipe:
            assert default_scale(SimpleNamespace(manifest=name), target) == "none"


def test_statistics_of_one_graph_are_of_its_train_nodes_and_all_edges(tmp_path) -> None:
    (graph,) = graphs(1, nodes=60, missing=0)
    train_nodes = np.arange(60) % 2 == 0
    graph.y = graph.x[:, 1:2] * 1e6 + 30_000
    for part, mask in {
        "train": train_nodes,
        "val": np.arange(60) % 4 == 1,
        "test": np.arange(60) % 4 == 3,
    }.items():
        graph[f"{part}_mask"] = torch.from_numpy(mask)
    build = kmip_data.save(graph, tmp_path / "build")
    run = train(config_of(build), home=Home(tmp_path), name="run", quiet=True).runs[0]
    weights = load_file(run / "model.safetensors")
    for name, rows in {
        "features.x": graph.x[train_nodes, :2],
        "features.edge_attr": graph.edge_attr,
        "targets": graph.y[train_nodes],
    }.items():
        mean = weights[f"scaling.{name}.mean"][: rows.shape[1]]
        np.testing.assert_allclose(mean, rows.double().mean(0), rtol=1e-5)


def test_metrics_and_predictions_are_in_the_unit_of_the_targets(run, build, place, capsys) -> None:
    home = Home(place / "home")
    measured = evaluate(run, home=home)
    assert measured.equals_result
    assert "loss [std]" in measured.table()
    predictions = predict(run, home=home)
    y = np.concatenate([record.y.numpy() for record in graphs()[20:]])
    deviation = float(load_file(run / "model.safetensors")["scaling.targets.deviation"])
    mae = float(np.abs(predictions.pred - y).mean())
    assert mae == pytest.approx(measured.metrics["test"]["mae"], rel=1e-4)
    assert measured.metrics["test"]["loss"] == pytest.approx(mae / deviation, rel=1e-4)
    assert np.abs(predictions.pred - 30_000).max() < 10 * deviation


def test_other_data_are_scaled_by_the_statistics_of_the_run(run, place, tmp_path) -> None:
    """Data of another mean and deviation, predicted graph by graph, have the run's answers."""
    records = graphs()[20:]
    for record in records[1:]:
        record.x[:, 0] *= 3
    build = kmip_data.save(records, tmp_path / "other", split={"test": range(4)})
    home = Home(place / "home")
    answers = predict(run, dataset=str(build.path), home=home).pred
    np.testing.assert_allclose(answers[0], predict(run, home=home).pred[0], rtol=1e-5)
    # A run pushed to a folder and pulled from it has the same weights.
    copied = tmp_path / "home/runs" / run.relative_to(home.runs)
    shutil.copytree(run, copied)
    again = predict(copied, dataset=str(build.path), home=Home(tmp_path / "home")).pred
    assert np.array_equal(again, answers)


def test_a_resumed_run_equals_a_run_at_once(run, build, place, monkeypatch) -> None:
    home = Home(place / "home")
    name = "resumed"
    train(config_of(build, training={"stop_after": 1}), home=home, name=name, quiet=True)
    resumed = resume(home.runs / run.relative_to(home.runs).parent / name, home=home, stop_after=3)
    weights = load_file(resumed.runs[0] / "model.safetensors")
    expected = load_file(run / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("scale", ["none", "features", "both"])
def test_fine_tuning_keeps_the_statistics_of_the_source(
    run, place, tmp_path, monkeypatch, capsys, scale
) -> None:
    """Names of weights do not depend on the scale, so that a run may start from any other."""
    begun = []
    monkeypatch.setattr(loop_file.Loop, "train_epochs", _noting(begun, loop_file.Loop.train_epochs))
    build = kmip_data.save(graphs(seed=3, missing=0), tmp_path / "build", split=PARTS)
    training = {"init_from": str(run), "epochs": 1}
    config = config_of(build, training=training, data={"scale": scale})
    train(config, home=Home(place / "home"), name=f"tuned-{scale}")
    source = load_file(run / "model.safetensors")
    assert begun[0].keys() <= source.keys()
    assert all(torch.equal(source[name], tensor) for name, tensor in begun[0].items())
    scaled = {name.split(".")[1] for name in begun[0] if name.startswith("scaling.")}
    assert (
        scaled == {"none": set(), "features": {"features"}, "both": {"features", "targets"}}[scale]
    )
    assert "initialised at random" not in capsys.readouterr().err


def _noting(begun, fit):
    def train_epochs(loop):
        begun.append(
            {name: value.clone() for name, value in loop.module.model.state_dict().items()}
        )
        fit(loop)

    return train_epochs


def test_a_source_without_statistics_says_that_they_are_measured(build, place, capsys) -> None:
    home = Home(place / "home")
    plain = graphs(missing=0)
    other = kmip_data.save(plain, place / "plain", split=PARTS)
    config = config_of(other, data={"scale": "none"})
    source = train(config, home=home, name="plain", quiet=True).runs[0]
    assert not any("scaling" in name for name in load_file(source / "model.safetensors"))
    train(config_of(build, training={"init_from": str(source)}), home=home, name="from-plain")
    error = capsys.readouterr().err
    assert "the scale of features or targets is measured on the new data" in error
    assert "initialised at random" not in error


def test_small_columns_beside_a_large_one_are_learned(tmp_path) -> None:
    """Three classes that two small columns separate, beside a large one, in a single graph."""
    rng = np.random.default_rng(0)
    nodes = 240
    classes = rng.integers(0, 3, nodes)
    centres = np.array([[0, 0], [1e-2, 0], [0, 1e-2]])[classes]
    x = np.column_stack([rng.normal(5e4, 2e4, nodes), centres + rng.normal(0, 2e-3, (nodes, 2))])
    part = np.arange(nodes) % 3
    graph = Data(
        x=torch.from_numpy(x).float(),
        edge_index=torch.from_numpy(np.stack([np.arange(nodes), rng.permutation(nodes)])),
        y=torch.from_numpy(classes),
        **{f"{name}_mask": torch.from_numpy(part == i) for i, name in enumerate(PARTS)},
    )
    build = kmip_data.save(graph, tmp_path / "build")
    accuracy = {}
    for scale in ("none", "auto"):
        config = tiny_config(build, data={"scale": scale}, training={"epochs": 25, "accumulate": 1})
        result = train(config, home=Home(tmp_path), name=scale, quiet=True).results[0]
        accuracy[scale] = result.metrics["test"]["accuracy"]
    assert accuracy["auto"] > 0.85 > 0.6 > accuracy["none"]


def test_missing_numbers_are_refused_only_without_scaling(build, tmp_path) -> None:
    with pytest.raises(UsageError):
        train(config_of(build, data={"scale": "none"}), home=Home(tmp_path), quiet=True)
    records = graphs()
    records[21].x[0, 0] = torch.inf
    infinite = kmip_data.save(records, tmp_path / "infinite", split=PARTS)
    with pytest.raises(UsageError):
        train(config_of(infinite), home=Home(tmp_path), quiet=True)


TARGETS = {
    "constant": (lambda _: np.array([3.0]), 16, "the target has at most one value in train"),
    "one class": (
        lambda small: np.array([int(small[0] > 9)]),
        16,
        "every label of train is class calm, so",
    ),
    "few": (lambda small: 1e3 * small[:1], 5, "train has 5 labelled graphs"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets_that_teach_little_are_named_before_the_first_epoch(tmp_path, capsys, name) -> None:
    level, size, warning = TARGETS[name]
    records = graphs(missing=0, level=level)
    class_names = []
    if name == "one class":
        records[-1].y[:] = 1
        class_names = ["calm", "loud"]
    split = {**PARTS, "train": range(size)}
    build = kmip_data.save(records, tmp_path / "build", split=split, class_names=class_names)
    train(config_of(build, training={"epochs": 1}), home=Home(tmp_path))
    error = capsys.readouterr().err
    assert error.index(f"warning: {warning}") < error.index("model: ")


@pytest.mark.parametrize("position", [2, 18, 22])
def test_an_infinite_target_is_refused(tmp_path, position) -> None:
    """A card may allow NaN, for missing targets, and infinity with it."""
    ring = np.arange(6, dtype=np.uint16)
    records = []
    for number in range(24):
        value = np.float32(np.inf if number == position else number)
        columns = {"node/x": np.ones((6, 1), np.float32), "graph/y": value}
        edges = np.stack([ring, np.roll(ring, 1)])
        records.append(
            GraphRecord(key=f"g{number}", num_nodes=6, columns=columns, edge_index=edges)
        )
    columns = (column_of("node/x", shape=(1,)), replace(column_of("graph/y"), finite=False))
    schema = Schema(columns=columns, edges="index", max_nodes=8)
    build = write_build(tmp_path / "build", records, schema, dataset="own", parts=PARTS)
    with pytest.raises(UsageError):
        train(tiny_config(build, data=AUTO), home=Home(tmp_path), quiet=True)
    assert not list(Home(tmp_path).runs.glob("*/*/*"))


def test_a_run_of_over_a_day_says_so_in_its_first_epoch(
    build, tmp_path, monkeypatch, capfd
) -> None:
    """Even if the epoch has a single batch; once, and with commands of shorter runs."""
    monkeypatch.setattr(loop_file, "FORECAST_SECONDS", 1e-9)
    monkeypatch.setattr(loop_file, "DAY_SECONDS", 1e-6)
    training = {"batch_size": 16, "epochs": 4}
    train(config_of(build, training=training), home=Home(tmp_path), name="long")
    error = capfd.readouterr().err
    assert error.count("warning: over a day") == 1
    assert "of 1 batches, by the first batch" in error
    assert error.index("over a day") < error.index("while the weights change")
    config = tmp_path / "runs/build/gps-kmip/long/config.toml"
    assert f"kmip-data train --config {config} --home {tmp_path} --epochs 1" in error
