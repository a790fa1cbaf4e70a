"""Predictions: files of a run, their metrics, and what is refused; no file is trusted."""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from support.builds.learnable import learnable_build, streets, tiny_config
from support.cli import expect_refusal, expect_success, kmip
from support.datasets import datasets
from support.raises import raises

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.format.schema import LINK_ATTRIBUTE
from kmip_data.format.split_files import PARTS
from kmip_data.format.targets import target_column, task_type
from kmip_data.manifest import load_manifest
from kmip_data.models import evaluate_predictions
from kmip_data.models.analysis.explanations import counts_by_class
from kmip_data.models.training.run import predictions as file
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.predictions import predict
from kmip_data.models.training.run.train import train
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.find_builds import find_build

QUICK = ["--device", "cpu", "--epochs", "1", "--quiet", "--json", "--set", "model.layers=1"]
QUICK += [
    "--set",
    "model.hidden_dim=8",
    "--set",
    "model.positional=none",
    "--set",
    "model.parameter_budget=none",
]
#: Level and kind of the targets -> dataset (none: the smallest), records, attention, arrays in the file.
KINDS = {
    ("node", "classification"): ("s3dis", 6, "k-mip", {"logits", "pred", "key", "ptr"}),
    ("nodes of one graph", "classification"): (
        "helsinki",
        300,
        "performer",
        {"logits", "pred", "key"},
    ),
    ("graph", "classification"): (None, 24, "k-mip", {"logits", "pred", "key"}),
    ("graph", "multilabel"): (None, 60, "transformer", {"logits", "pred", "key"}),
    ("graph", "regression"): (None, 20, "performer", {"pred", "key"}),
    ("link", "links"): (None, 24, "transformer", {"logits", "key", "ptr"}),
}
WORDS = {  # of OGB
    "multiclass classification": "classification",
    "binary classification": "multilabel",
    "regression": "regression",
    "link prediction": "links",
}


def smallest(level: str, target_type: str) -> str:
    """The shipped dataset of these targets with the fewest nodes a graph."""
    sizes = {}
    for name in datasets():
        manifest = load_manifest(name)
        pipeline = load_pipeline(manifest)
        schema = pipeline.schema(pipeline.Params())
        its_kind = WORDS[task_type(schema)]
        its_level = "link" if its_kind == "links" else target_column(schema).level
        if (its_level, its_kind) == (level, target_type):
            sizes[name] = manifest.expected.avg_nodes or math.inf
    return min(sizes, key=sizes.__getitem__)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    """A home with a build of clouds, of which two are the test part, and a run on it."""
    home = Home(tmp_path_factory.mktemp("home"))
    build = learnable_build(home.path / "built" / "clouds")
    train(tiny_config(build, training={"epochs": 1}), home=home, quiet=True, name="mine")
    return home


@pytest.fixture(scope="module")
def predictions(home):
    return predict("mine", home=home)


@pytest.fixture
def clouds(home) -> str:
    return str(find_build("clouds", home=home).path)


def without_targets(build: str, folder: Path) -> str:
    """Save the records of a build without what a network learns."""
    graphs = [*kmip_data.open(build)]
    for graph in graphs:
        names = {"y", LINK_ATTRIBUTE, "train_mask", "val_mask", "test_mask"}
        for name in names & {*graph.keys()}:
            del graph[name]
    return str(kmip_data.save(graphs, folder, name="bare").path)


def test_all_records_are_predicted_without_targets(home, clouds, tmp_path) -> None:
    bare = without_targets(clouds, tmp_path / "bare")
    every, new = predict("mine", split="all", home=home), predict("mine", dataset=bare, home=home)
    assert len(every.key) == 10
    for name in ("logits", "pred", "ptr"):
        assert np.array_equal(every.arrays[name], new.arrays[name])
    rows = dict(zip(every.key, np.split(every.pred, every.ptr[1:-1]), strict=True))
    test = predict("mine", home=home)
    assert np.array_equal(np.concatenate([rows[key] for key in test.key]), test.pred)
    assert evaluate_predictions(every, clouds).part == "all"
    with pytest.raises(UsageError) as caught:
        evaluate("mine", dataset=bare, home=home)
    assert "predict" in caught.value.steps[0].words


@pytest.mark.parametrize("sampled", [False, True])
def test_a_single_graph_is_predicted_without_targets(sampled, tmp_path) -> None:
    home = Home(tmp_path)
    build = kmip_data.save(streets(60), tmp_path / "streets", name="streets")
    training = {"epochs": 1}
    if sampled:
        training |= {"neighbors": [4, 4], "eval_neighbors": [4, 4], "batch_size": 16}
    train(tiny_config(build, training=training), home=home, quiet=True, name="mine")
    bare = without_targets(str(build.path), tmp_path / "bare")
    every, new = predict("mine", split="all", home=home), predict("mine", dataset=bare, home=home)
    assert every.key.tolist() == list(range(60))
    assert np.array_equal(every.logits, new.logits)
    if not sampled:  # neighbourhoods depend on the rows of their batch
        test = predict("mine", home=home)
        assert np.array_equal(every.logits[test.key], test.logits)


@pytest.mark.slow
@pytest.mark.parametrize("targets", KINDS, ids=" ".join)
def test_a_file_has_exactly_the_metrics_of_its_run(targets, tmp_path) -> None:
    level, target_type = targets
    dataset, limit, attention, arrays = KINDS[targets]
    dataset = dataset or smallest(level, target_type)
    where = ["--home", tmp_path]
    data = ["--sample", "--limit", limit, *(["--k", 4] if dataset == "s3dis" else [])]
    chosen = ["--set", f"model.attention.kind={attention}"]
    trained = kmip("train", dataset, *data, *QUICK, *chosen, *where)
    assert trained.code == 0, trained.err
    run, output = trained.json["run"], tmp_path / "found.npz"
    told = kmip("predict", run, "--output", output, "--json", *where)
    assert told.code == 0, told.err
    assert (told.json["level"], told.json["target_type"]) == (
        level.partition("s of")[0],
        target_type,
    )
    assert told.json["part"] == "test"
    evaluated = kmip("evaluate", run, "--json", *where).json
    assert evaluated["same_as_result"]
    build = evaluated["build"]
    measured = evaluate_predictions(output, build)
    expected = {
        name: value for name, value in trained.json["metrics"]["test"].items() if name != "loss"
    }
    assert measured.metrics == expected

    with np.load(output, allow_pickle=False) as archive:
        assert set(archive) == {*arrays, "about"}
        about = json.loads(str(archive["about"]))
        arrays_read = {name: archive[name] for name in arrays}
    part = kmip_data.open(build, split="test")
    assert about["run"] == run
    if level == "nodes of one graph":
        assert np.array_equal(arrays_read["key"], part[0].test_mask.numpy().nonzero()[0])
    else:
        assert arrays_read["key"].tolist() == part.keys
    if "ptr" in arrays:
        each = part.nodes**2 if target_type == "links" else part.nodes
        assert np.array_equal(np.diff(arrays_read["ptr"]), each)
    if "logits" in arrays:
        assert arrays_read["logits"].shape == (told.json["rows"], len(arrays_read["logits"][0]))
    if target_type == "classification":
        assert np.array_equal(arrays_read["pred"], arrays_read["logits"].argmax(-1))
    if dataset != "helsinki":  # a city's features are read with its card
        bare = without_targets(build, tmp_path / "bare")
        every = predict(run, split="all", home=tmp_path)
        new = predict(run, dataset=bare, home=tmp_path)
        for name in arrays - {"key"}:
            assert np.array_equal(every.arrays[name], new.arrays[name])
    # Of a model made elsewhere there are arrays alone; sums in other batches may round otherwise.
    alone = evaluate_predictions(
        {name: arrays_read[name] for name in arrays - {"key", "ptr"}}, build
    )
    assert alone.metrics == pytest.approx(expected, rel=1e-9)


def test_every_part_and_the_metrics_of_classes_alone(home, clouds) -> None:
    metrics = evaluate("mine", home=home).metrics
    for part in ("train", "val", "test"):
        predicted = predict("mine", split=part, home=home)
        measured = evaluate_predictions(predicted, clouds)
        expected = {name: value for name, value in metrics[part].items() if name != "loss"}
        assert (measured.part, measured.metrics) == (part, expected)
        assert (
            evaluate_predictions({"pred": predicted.pred}, clouds, split=part).metrics == expected
        )
        zeros = {"pred": np.zeros_like(predicted.pred)}  # the least class that there is
        targets = torch.cat([data.y for data in kmip_data.open(clouds, split=part)])
        share = float((targets == 0).double().mean())
        accuracy = evaluate_predictions(zeros, clouds, split=part).metrics["accuracy"]
        assert accuracy == pytest.approx(share)
        tensor = torch.from_numpy(predicted.logits).double()
        assert evaluate_predictions({"logits": tensor}, clouds, split=part).metrics == expected


def test_one_part_is_evaluated_with_keys_that_may_change(home) -> None:
    line = ["evaluate", "mine", "--home", home.path, "--split", "test"]
    same = expect_success(*line, "--json").json
    one_key = expect_success(*line, "--json", "--set", "model.attention.k=1").json
    assert [same["same_as_result"], one_key["same_as_result"]] == [True, None]
    assert same["metrics"].keys() == {"test"}
    assert same["metrics"] != one_key["metrics"]
    assert "; model.attention.k=1" in expect_success(*line, "--set", "model.attention.k=1").out
    refusal = expect_refusal(*line, "--set", "model.layers=3")
    assert "model.layers" in refusal
    assert "model.attention.k, model.attention.search" in refusal


def test_other_data_are_evaluated_in_parts_only_if_they_bring_a_split(tmp_path) -> None:
    """Nodes of one graph in a drawn split, in masks, and one graph in the test part."""
    home = Home(tmp_path)
    config = tiny_config(kmip_data.save(streets(), tmp_path / "own"), training={"epochs": 1})
    train(config, home=home, quiet=True, name="mine")
    other = streets(nodes=60, seed=1)
    masked = kmip_data.save(other, tmp_path / "masked")
    assert {*evaluate("mine", dataset=str(masked.path), home=home).metrics} == {*PARTS}

    for part in PARTS:
        del other[f"{part}_mask"]
    drawn = str(kmip_data.save(other, tmp_path / "drawn").path)
    evaluation = evaluate("mine", dataset=drawn, home=home)
    predicted = evaluate_predictions(predict("mine", dataset=drawn, home=home), drawn, split="all")
    del evaluation.metrics["all"]["loss"]
    assert evaluation.metrics == {"all": predicted.metrics}
    assert evaluation.to_dict()["split"]["name"] == "all"
    assert re.search(r"\n +accuracy \[%\] +[0-9.]+ ± ", evaluation.table())
    assert counts_by_class("mine", dataset=drawn, home=home)["rows"].keys() == {"all"}

    parts = {"train": [0, 1], "val": [2], "test": [3]}
    one = learnable_build(tmp_path / "clouds", graphs=4, parts=parts)
    train(tiny_config(one, training={"epochs": 1}), home=home, quiet=True, name="one")
    evaluation = evaluate("one", home=home)
    assert evaluation.equals_result
    assert evaluation.standard_errors == {}
    assert "±" not in evaluation.table()


def test_incompatible_predictions_are_refused(predictions, clouds) -> None:
    logits, pred, key, ptr = (predictions.arrays[name] for name in file.ARRAY_NAMES)
    nan = logits.copy()
    nan[3, 1] = np.nan
    for arrays in (
        {"logits": logits[:-1]},
        {"logits": logits[:, :-1]},
        {"logits": logits.astype(str)},
        {"logits": nan},
        {"logits": logits, "key": key[::-1]},
        {"logits": logits, "ptr": ptr + 1},
        {"pred": pred + 9},
        {"pred": pred / 2},
        {"key": key},
    ):
        with raises(UsageError, naming="test"):
            evaluate_predictions(arrays, clouds)
    with raises(UsageError, naming="train"):
        evaluate_predictions(predictions, clouds, split="train")
    with raises(UsageError, naming="rest"):
        predict("mine", split="rest", home=Home(Path(clouds).parents[1]))


def test_classes_of_other_names_are_refused(tmp_path, monkeypatch) -> None:
    """Four classes fit four outputs, whatever they mean; a city's are ranges of its own.

    Classes without names are numbers.
    """
    home = Home(tmp_path)
    builds = {
        names: learnable_build(tmp_path / (names or "numbers"), class_names=names)
        for names in ("abcd", "bcde", "0123", "")
    }
    train(tiny_config(builds[""], training={"epochs": 1}), home=home, quiet=True, name="numbers")
    assert evaluate("numbers", dataset=str(builds["0123"].path), home=home).metrics
    with raises(UsageError, naming="'a'"):
        evaluate("numbers", dataset=str(builds["abcd"].path), home=home)
    train(tiny_config(builds["abcd"], training={"epochs": 1}), home=home, quiet=True, name="mine")
    assert evaluate("mine", dataset=str(builds["abcd"].path), home=home).metrics
    for apply in (evaluate, predict):
        with raises(UsageError, naming="'b'"):
            apply("mine", dataset=str(builds["bcde"].path), home=home)
    monkeypatch.setattr("kmip_data.models.training.run.finished_run.is_city", lambda _: True)
    assert evaluate("mine", dataset=str(builds["bcde"].path), home=home).metrics


class Boom:
    """Shows that a pickle was executed."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_hostile_files_are_damaged_and_never_executed(clouds, tmp_path, monkeypatch) -> None:
    with_objects = io.BytesIO()
    np.savez(with_objects, logits=np.array([Boom()], dtype=object))
    about = io.BytesIO()
    np.savez(about, logits=np.zeros(3), about=np.array('{"version": 7}'))
    hostile = {
        "objects": with_objects.getvalue(),
        "pickle": pickle.dumps(Boom()),
        "cut": with_objects.getvalue()[:-30],
        "about": about.getvalue(),
    }
    for name, data in hostile.items():
        path = tmp_path / f"{name}.npz"
        path.write_bytes(data)
        with raises(DamagedInput, naming=path):
            evaluate_predictions(path, clouds)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", bytes(2**20))
    monkeypatch.setattr(file, "free_host_memory", lambda: 2**19)
    with raises(OutOfResources, naming="bomb.npz"):
        evaluate_predictions(tmp_path / "bomb.npz", clouds)


@pytest.mark.parametrize("ids", [["ann", "bob", "Zoë", "d" * 300], [70, 8, -3, 2**40]])
def test_predictions_of_nodes_carry_the_ids_of_their_table(ids, tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    rows = [f"{node},{number}" for number, node in enumerate(ids)]
    labels = ["a,train", "b,val", "a,test", "b,test"]
    for name, columns in (
        ("old", [",group,split", *(f",{label}" for label in labels)]),
        ("new", [""] * 5),
    ):
        (tmp_path / name).mkdir()
        lines = [line + added for line, added in zip(["node,age", *rows], columns, strict=True)]
        (tmp_path / name / "nodes.csv").write_text("\n".join(lines))
        edges = [f"{ids[0]},{node}" for node in ids[1:]]
        (tmp_path / name / "edges.csv").write_text("\n".join(["source,target", *edges]))
    expect_success(
        "build",
        "graphs",
        "--name",
        "old",
        "--archive",
        tmp_path / "old",
        "--set",
        "label=group",
        "-q",
    )
    expect_success(
        "build", "graphs", "--name", "new", "--archive", tmp_path / "new", "--like", "old", "-q"
    )
    run = expect_success("train", "old", "--model", "gcn", *QUICK[:-4], "--name", "r").json["run"]

    long = f"{'d' * 147}~{hashlib.sha256(b'd' * 300).hexdigest()[:12]}"
    expected = [long if len(str(node)) > 160 else str(node) for node in ids]
    for words, keys in (([], expected[2:]), (["--dataset", "new"], expected)):
        expect_success("predict", run, *words, "--output", tmp_path / "p.csv", "--force")
        table = pd.read_csv(tmp_path / "p.csv", dtype=str)
        assert table["key"].tolist() == keys
        assert "row" not in table
    expect_success("predict", run, "--output", tmp_path / "p.npz")
    assert evaluate_predictions(tmp_path / "p.npz", "old").metrics == {
        name: value for name, value in evaluate(run).metrics["test"].items() if name != "loss"
    }


def test_predictions_are_written_as_a_table(tmp_path):
    origin = dict.fromkeys(("dataset", "build", "build_key", "split", "part", "run"), "a")
    origin |= {"sample": False, "complete": True, "batch_size": 2, "class_names": ("no", "yes")}
    prediction_origin = file.PredictionOrigin(**origin, level="node", target_type="classification")
    logits = np.array([[1, 0.5], [0, 2], [0, 3]], np.float32)
    key = np.array(["x", "y"])
    nodes = file.Predictions(logits, logits.argmax(1), key, np.array([0, 1, 3]), prediction_origin)
    file.write_predictions(tmp_path / "p.csv", nodes)
    table = pd.read_csv(tmp_path / "p.csv")
    titles = ["probability no", "probability yes", "logit no", "logit yes"]
    assert list(table) == ["key", "row", "pred", *titles]
    rows = [["x", 0, "no"], ["y", 0, "yes"], ["y", 1, "yes"]]
    assert table[["key", "row", "pred"]].to_numpy().tolist() == rows
    assert np.array_equal(table[titles[2:]], logits)
    # The ratio of two probabilities is the exponential of the difference of their logits.
    probabilities = table[titles[:2]].to_numpy()
    assert probabilities.sum(axis=1) == pytest.approx(1)
    ratios = probabilities[:, 1] / probabilities[:, 0]
    assert np.log(ratios) == pytest.approx(logits[:, 1] - logits[:, 0])
    multilabel = prediction_origin.model_copy(update={"target_type": "multilabel"})
    labels = replace(nodes, origin=multilabel)
    first = file.predictions_table(labels).splitlines()[1].split(b",")
    assert float(first[3]) == pytest.approx(1 / (1 + np.exp(-1)))

    values = file.Predictions(pred=np.array([[0.5], [2]], np.float32), key=np.arange(2))
    assert file.predictions_table(values) == b"key,pred 0\n0,0.5\n1,2.0\n"
