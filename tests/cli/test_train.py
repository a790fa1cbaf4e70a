"""``train`` and ``evaluate`` through the command line."""

from __future__ import annotations

import json
import shlex
import statistics
from pathlib import Path

import pytest
import torch
from support.builds.learnable import learnable_build
from support.cli import expect_refusal, expect_success, kmip
from torch_geometric.data import Data
from torch_geometric.datasets import FakeDataset

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.models import evaluate_predictions
from kmip_data.models.training.config.compose import SAMPLE_EPOCHS, compose_configuration
from kmip_data.models.training.config.overrides import config_to_toml, read_config
from kmip_data.models.training.losses import LOSSES
from kmip_data.models.training.metrics import METRICS
from kmip_data.models.training.run.result import read_result

PARTS = {"train": [0], "val": [1], "test": [2]}

QUICK = ["--epochs", "2", "--device", "cpu", "--quiet", "--set", "model.parameter_budget=none"]
QUICK += ["--set", "model.layers=1", "--set", "model.hidden_dim=8"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run, as it is printed, in the home of the tests that use it."""
    home = tmp_path_factory.mktemp("home")
    build = learnable_build(home / "built" / "clouds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KMIP_DATA_HOME", str(home))
        yield expect_success("train", "--dataset", build.path, *QUICK, "--json").json


def test_evaluate_reproduces_the_result_of_training(trained):
    run = Path(trained["run"])
    assert set(trained["metrics"]) == {"train", "val", "test"}
    assert trained["best_epoch"] in {0, 1}
    assert trained["sample"] is False
    for name in ("config.toml", "metrics.csv", "model.safetensors", "result.json"):
        assert (run / name).is_file(), name
    again = expect_success("evaluate", run, "--json").json
    assert (again["metrics"], again["same_as_result"]) == (trained["metrics"], True)
    assert all(
        part in expect_success("evaluate", run.name).out for part in ("train", "val", "test")
    )


def test_predictions_have_the_metrics_of_the_run(trained, tmp_path):
    file = tmp_path / "p.npz"
    build = read_config(Path(trained["run"]) / "config.toml").data.dataset
    step = f"In Python: kmip_data.models.evaluate_predictions({str(file)!r}, {build!r})"
    assert step in expect_success("predict", trained["run"], "--output", file).out
    expect_success("predict", trained["run"])
    run = Path(trained["run"])
    assert (run / "predictions.npz").read_bytes() == file.read_bytes()
    # Other rows have another file.
    expect_success("predict", run, "--split", "all")
    name = Path(build).name
    for words in ([], ["--split", "test"], []):
        expect_success("predict", run, "--dataset", build, *words)
    assert (run / "predictions.npz").read_bytes() == file.read_bytes()
    assert {path.name for path in run.glob("*.npz")} == {
        "predictions.npz",
        "predictions-all.npz",
        f"predictions-{name}.npz",
        f"predictions-{name}-test.npz",
    }
    measured = evaluate_predictions(file, build).metrics
    assert measured
    for name, value in measured.items():
        assert value == pytest.approx(trained["metrics"]["test"][name], abs=1e-6), name


def test_the_written_configuration_reproduces_a_run(trained):
    config = Path(trained["run"]) / "config.toml"
    other = expect_success("train", "--config", config, "--epochs", 1, "--quiet", "--json").json[
        "run"
    ]
    one, two = (
        json.loads((Path(run) / "result.json").read_text())["config"]
        for run in (trained["run"], other)
    )
    assert (one["training"].pop("epochs"), two["training"].pop("epochs")) == (2, 1)
    assert (one.pop("schedule"), one) == (two.pop("schedule"), two)
    message = expect_refusal("train", "--config", config, "--variant", "text")
    assert f"next: kmip-data train --config {config}\n" in message


def test_a_stopped_run_continues_to_the_same_result(trained):
    config = Path(trained["run"]) / "config.toml"
    early = expect_success(
        "train", "--config", config, "--stop-after", 1, "--quiet", "--json"
    ).json["run"]
    assert len(Path(early, "metrics.csv").read_text().splitlines()) == 2
    assert (
        f"after 1 of 2 epochs; kmip-data train --resume {early} --stop-after 2 continues it"
        in expect_success("train", "--resume", early).err
    )
    longer = expect_success("train", "--resume", early, "--stop-after", 2, "--quiet", "--json").json
    assert longer["metrics"] == trained["metrics"]
    Path(early, "result.json").unlink()
    assert "next: kmip-data runs" in expect_refusal("report", early)


def test_sample_results_are_labelled_and_seeds_give_mean_and_deviation(make_build, home):
    words = ["train", make_build(sample=True).path, *QUICK, "--epochs", "1"]
    result = expect_success(*words, "--seeds", "0..1", "--name", "mine", "--json").json
    assert [run["seed"] for run in result["runs"]] == [0, 1]
    assert set(result["std"]) == set(result["metrics"])
    for run in (Path(each["run"]) for each in result["runs"]):
        assert "sample" in run.parent.parent.name
        assert run.name.startswith("mine")
        assert json.loads((run / "result.json").read_text())["sample"] is True


@pytest.mark.parametrize(
    ("options", "epochs"),
    [
        ({"sample": True}, SAMPLE_EPOCHS),
        ({"sample": True, "epochs": 7}, 7),
        ({"sample": True, "overrides": ("training.epochs=9",)}, 9),
        ({"sample": True, "stop_after": 5}, 200),
        ({}, 200),
    ],
)
def test_a_sample_trains_few_epochs_by_default(options, epochs):
    config = compose_configuration("s3dis", {}, {}, model="gps-kmip", variant=None, **options)
    assert config.training.epochs == epochs
    assert config.schedule.warmup_epochs < epochs, "the rate is reached"


def test_options_reach_the_configuration():
    config = compose_configuration(
        "s3dis",
        {"k": 16},
        {"split_seed": 4},
        model="gps-kmip",
        variant="text",
        sample=True,
        epochs=7,
        device="cpu",
        devices=2,
        overrides=(
            "training.precision=bf16-mixed",
            "optimizer.lr=1e-3",
            "system.checkpoint_every=2.5",
        ),
    )
    assert (config.variant, config.data.sample, config.data.parameters["k"]) == ("text", True, 16)
    assert config.data.split == {"split_rule": "upstream", "test_area": 6, "split_seed": 4}
    assert config.data.split_seed_follows_run is False, "a seed of the split that is given counts"
    assert config.training.epochs == 7
    assert (config.optimizer.lr, config.training.precision) == (1e-3, "bf16-mixed")
    assert (config.system.device, config.system.devices) == ("cpu", 2)
    assert config.system.checkpoint_every == 2.5


@pytest.fixture
def one_graph(home: Path, tmp_path: Path) -> str:
    """A graph of 40 nodes with two classes, numbers at nodes and edges, and three folds, as ``mine``."""
    generator = torch.Generator().manual_seed(0)
    order = torch.stack([torch.randperm(40, generator=generator) for _ in range(3)], dim=1)
    graph = Data(
        x=torch.randn(40, 5, generator=generator),
        edge_index=torch.randint(40, (2, 120), generator=generator),
        edge_attr=torch.randn(120, 2, generator=generator),
        y=torch.arange(40) % 2,
        train_mask=order < 20,
        val_mask=(order >= 20) & (order < 30),
        test_mask=order >= 30,
    )
    torch.save(graph, tmp_path / "mine.pt")
    expect_success(
        "build", "graphs", "--name", "mine", "--archive", tmp_path / "mine.pt", "--quiet"
    )
    return "mine"


def test_each_fold_is_a_run_and_the_deviation_is_computed_as_in_papers(one_graph, home):
    words = ["train", one_graph, "--model", "gcn", *QUICK]
    result = expect_success(*words, "--folds", "0..1", "--json").json
    folders = [Path(run["run"]) for run in result["runs"]]
    assert [run["fold"] for run in result["runs"]] == [0, 1]
    assert [read_config(folder / "config.toml").data.split["fold"] for folder in folders] == [0, 1]
    values = [run["metrics"]["test"]["loss"] for run in result["runs"]]
    assert result["std"]["test"]["loss"] == pytest.approx(statistics.stdev(values))
    assert result["metrics"]["test"]["loss"] == pytest.approx(statistics.fmean(values))

    # The same command goes on: a finished fold is read, a stopped one continues, a new one starts.
    written = (folders[0] / "result.json").read_bytes()
    changed = (folders[0] / "result.json").stat().st_mtime_ns
    (folders[1] / "result.json").unlink()
    more = expect_success(*words, "--folds", "0..2")
    line = "mine, gcn, fold 0, 1, 2: mean ± standard deviation (n - 1) over 3 runs, seed 0;"
    assert line in more.out
    assert (folders[0] / "result.json").read_bytes() == written
    assert (folders[0] / "result.json").stat().st_mtime_ns == changed
    assert len([*folders[0].parent.iterdir()]) == 3

    # A report has one row of all folds, with the deviation of papers.
    row, *references = expect_success("report", "--format", "json").json["rows"]
    assert {reference["runs"] for reference in references} == {3}
    tests = [
        read_result(folder).metrics["test"][row["metric"]] for folder in folders[0].parent.iterdir()
    ]
    assert row["runs"] == 3
    assert row["test_std"] == pytest.approx(statistics.stdev(tests))

    # A run has a whole name; only a report takes the folds of one command together.
    start = folders[0].name.removesuffix("-fold0")
    assert f"There is no run called '{start}'. Did you mean" in expect_refusal("evaluate", start)
    assert expect_success("report", f"gcn/{start}", "--format", "json").json["rows"][0]["runs"] == 3
    result = expect_success("evaluate", f"gcn/{start}-fold2", "--json").json
    assert result["run"] == str(folders[0].with_name(f"{start}-fold2"))

    # Other settings are other runs; under a name that is taken they are refused.
    other = [*words, "--set", "optimizer.lr=0.5", "--folds", "0"]
    assert Path(expect_success(*other, "--json").json["run"]) not in folders
    name = folders[0].name.removesuffix("-fold0")
    assert "already exists" in expect_refusal(*other, "--name", name)
    runs = [*folders[0].parent.iterdir()]
    message = expect_refusal(*words, "--folds", "2,3", "--name", "new")
    assert [*folders[0].parent.iterdir()] == runs, "nothing is trained before all folds are there"
    command = message.partition("next: kmip-data ")[2]
    assert command == f"{shlex.join(words)} --name new --folds 0..2\n"
    expect_success(*shlex.split(command))
    assert len([*folders[0].parent.glob("new-fold*")]) == 3


def test_folds_of_one_drawn_split_are_refused(home):
    words = ("train", "texas", "--sample", "--model", "gcn", "--epochs", "1", "--folds", "0..1")
    expect_refusal(*words, "--split-rule", "stratified")
    assert not (home / "runs").exists()


def test_folds_are_refused_for_data_without_folds(make_build, home, tmp_path):
    user_folder = tmp_path / "own"
    user_folder.mkdir()
    (user_folder / "edges.csv").write_text("source,target\n0,1\n1,2\n2,3\n3,0\n")
    (user_folder / "nodes.csv").write_text("node,age,group\n0,1,a\n1,2,b\n2,3,a\n3,4,b\n")
    named = ["--name", "own", "--archive", user_folder, "--set", "label=group"]
    expect_success("build", "graphs", *named, "--quiet")
    kmip_data.save([FakeDataset(1, task="node")[0]] * 3, home / "built" / "saved", split=PARTS)
    for target in ("s3dis", "cora", "own", "saved"):
        sample = ["--sample"] if target in {"s3dis", "cora"} else []
        message = expect_refusal("train", target, *sample, "--model", "gcn", "--folds", "0..2")
        assert target in message
        assert "fold" in message or target == "saved"


def test_a_preset_of_another_dataset_keeps_keys_that_do_not_depend_on_data(one_graph, home):
    short = ["--epochs", "1", "--device", "cpu", "--set", "model.hidden_dim=40"]
    run = expect_success("train", one_graph, "--preset", "squirrel-filtered/gcn", *short)
    assert "preset squirrel-filtered/gcn, variant code, not the paper's" in run.err
    assert "does not fit" not in run.err
    molecules = expect_success("train", one_graph, "--preset", "peptides-func/gcn-plus", *short)
    for line in (
        "training.loss = binary_cross_entropy does not fit the data; using the default for the data",
        "model.head = graph does not fit the data; using the default for the data",
        "model.node_encoder = atom does not fit the data; using linear",
    ):
        assert line in molecules.err
    assert "training.metric" not in molecules.err  # AP is also of two classes
    assert "the paper's result" not in molecules.err
    both = expect_refusal("train", one_graph, "--preset", "cora/gcn", "--model", "gat")
    assert "--preset names its model itself, so --model has no effect." in both
    assert "Did you mean 'gcn'" in expect_refusal("train", one_graph, "--preset", "cora/gnc")


def test_a_configuration_moves_to_other_data_without_their_split(one_graph, home, tmp_path):
    """Sample, split and a metric of two classes stay behind; the other keys move."""
    file = tmp_path / "config.toml"
    options = {"model": "gcn", "variant": None, "sample": True}
    overrides = ("data.split.fold=2", "model.dropout=0.3", "training.metric=roc_auc")
    config = compose_configuration("minesweeper", {}, {}, overrides=overrides, **options)
    file.write_text(config_to_toml(config))
    moved = compose_configuration(one_graph, {}, {}, file=file, home=Home(home))
    assert (moved.data.dataset, moved.data.sample, moved.data.split) == ("mine", False, {})
    assert (moved.model, moved.training) == (config.model, config.training)
    ten = compose_configuration("cifar10", {}, {}, file=file, home=Home(home))
    assert (ten.data.split, ten.training.metric, ten.model.dropout) == ({}, None, 0.3)
    same = compose_configuration("minesweeper", {}, {}, file=file, home=Home(home))
    assert (same.data.sample, same.data.split) == (True, {"fold": 2})
    assert (
        expect_success("train", one_graph, "--config", file, *QUICK, "--json").json["sample"]
        is False
    )


def test_options_that_are_keys_name_the_key(home):
    for option, key in {
        "--lr": "optimizer.lr",
        "--batch-size": "training.batch_size",
        "--dropout": "model.dropout",
    }.items():
        for command in ("train", "sweep"):
            assert f"next: kmip-data {command} helsinki --set {key}=1\n" in expect_refusal(
                command, "helsinki", option, "1"
            )
    assert "next: kmip-data train helsinki --seeds 1\n" in expect_refusal(
        "train", "helsinki", "--seed", "1"
    )
    assert "kmip-data train has no option --nonsense." in expect_refusal(
        "train", "helsinki", "--nonsense"
    )


def test_a_key_that_nothing_reads_is_refused_where_the_user_typed_it(home, tmp_path):
    """Typed keys of a part that is set, too, and keys of a preset or of a run, are accepted."""
    file = tmp_path / "config.toml"
    own = '[data]\ndataset = "cora"\n[model]\nname = "sage"\nrwse = {steps = 9}\n'
    file.write_text(own)
    message = expect_refusal("train", "--config", file)
    assert f"leave model.rwse.steps out of {file}" in message

    read = ("model.positional=rwse", "model.rwse.steps=9", "schedule.warmup_epochs=3")
    assert compose_configuration("cora", {}, {}, overrides=read).model.rwse.steps == 9
    unread = compose_configuration(
        "zinc", {}, {}, model="gine", overrides=["model.local.kind=sage", "model.positional=none"]
    )
    assert unread.model.edge_encoder != "dummy"
    file.write_text(config_to_toml(unread))
    assert compose_configuration(None, {}, {}, file=file) == unread


def test_loss_and_metric_are_chosen_where_the_targets_allow(one_graph, home):
    words = ["train", one_graph, "--model", "gcn", *QUICK[:2], "--quiet", "--json"]
    small = ["--device", "cpu", "--set", "model.hidden_dim=8", "--set", "model.layers=1"]
    for metric in ("accuracy", "roc_auc", "ap", "f1"):
        result = expect_success(*words, *small, "--set", f"training.metric={metric}").json
        assert read_config(Path(result["run"]) / "config.toml").training.metric == metric
        assert metric in result["metrics"]["test"]
    loss = "training.loss=weighted_binary_cross_entropy"
    assert expect_success(*words, *small, "--set", loss).json
    message = expect_refusal(*words, *small, "--set", "training.metric=mae")
    assert (
        "training.metric = mae does not fit the targets: y is one of 2 classes of a node."
        in message
    )
    fitting = [
        name
        for name, metric in METRICS.items()
        if metric.target_type == "classification" or metric.supports_two_classes
    ]
    assert f"expected: {', '.join(fitting)}\n" in message
    message = expect_refusal(*words, *small, "--set", "training.loss=l1")
    losses = [name for name, loss in LOSSES.items() if loss.target_type == "classification"]
    assert f"expected: {', '.join(losses)}\n" in message


def test_the_task_is_chosen_where_the_targets_allow(one_graph, home):
    """Two classes as one label, or as numbers: the usual loss and metric follow, a named one stays."""
    words = ["train", one_graph, "--model", "gcn", *QUICK[:2], "--quiet", "--json"]
    words += ["--device", "cpu", "--set", "model.hidden_dim=8", "--set", "model.layers=1"]
    for task, settings, loss, metric in (
        ("multilabel", [], "binary_cross_entropy", "ap"),
        ("multilabel", ["--set", "training.metric=roc_auc"], "binary_cross_entropy", "roc_auc"),
        ("regression", ["--set", "training.loss=mse"], "mse", "mae"),
        ("classification", [], "weighted_cross_entropy", "accuracy"),
    ):
        result = expect_success(*words, "--set", f"training.task={task}", *settings).json
        training = read_config(Path(result["run"]) / "config.toml").training
        assert (training.task, training.loss, training.metric) == (task, loss, metric)
        assert metric in result["metrics"]["test"]
        assert (
            expect_success("evaluate", result["run"], "--json").json["metrics"] == result["metrics"]
        )
    message = expect_refusal(
        *words, "--set", "training.task=regression", "--set", "training.metric=f1"
    )
    fitting = [name for name, metric in METRICS.items() if metric.target_type == "regression"]
    assert f"expected: {', '.join(fitting)}\n" in message
    assert "training.task cannot be 'classes'" in expect_refusal(
        *words, "--set", "training.task=classes"
    )


def test_offline_training_downloads_nothing(tmp_path):
    message = expect_refusal("train", "london", "--offline", "--home", tmp_path, code=3)
    assert "offline" in message
    assert "https://" in message
    sweep = kmip("sweep", "--dataset", "london", "--offline", "--home", tmp_path)
    assert sweep.code == 1
    assert "offline" in sweep.err
