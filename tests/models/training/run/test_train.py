"""Whole runs: what they compute, write and say."""

from __future__ import annotations

import json
import math
import re
import statistics
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.builds.learnable import CLASSES, learnable_build, read_history, tiny_config
from support.metrics import usual_metrics
from support.raises import raises
from torch_geometric.data import Data

from kmip_data.builds.home import Home
from kmip_data.builds.verify import verify_build
from kmip_data.errors import CheckFailed, OutOfResources, Setting, UsageError
from kmip_data.files.atomic_writes import MARKER_NAME
from kmip_data.format import targets
from kmip_data.format.card import SAMPLE_NOTE
from kmip_data.models.layers.gated_gcn import _find_kernel
from kmip_data.models.network import build_model
from kmip_data.models.reports.result_tables import read_finished_runs, tables_of_runs
from kmip_data.models.reports.sheets import results_sheet
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.config.presets import load_preset
from kmip_data.models.training.losses import weighted_cross_entropy
from kmip_data.models.training.run import fit as fit_file
from kmip_data.models.training.run import loop as loop_file
from kmip_data.models.training.run import prepared_run as prepared_run_file
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.find_runs import find_run
from kmip_data.models.training.run.result import RunResult, read_result
from kmip_data.models.training.run.run_folder import (
    BEST_WEIGHTS,
    CHECKPOINT_DIGESTS,
    LAST_CHECKPOINT,
    PREVIOUS_CHECKPOINT,
    WEIGHTS_NAME,
)
from kmip_data.models.training.run.train import train
from kmip_data.models.training.run.training_module import Meter, TrainingModule
from kmip_data.models.training.schedules import ScheduleOptions, cosine_with_warmup
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader
from kmip_data.runtime import reused_buffers
from kmip_data.runtime.extras import GPU_EXTRAS
from kmip_data.saving.save import save


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return learnable_build(tmp_path_factory.mktemp("data") / "build", sample=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def done(build, home):
    """Three seeds of a small run."""
    config = tiny_config(build, training={"epochs": 3, "metric": "miou"})
    return train(config, home=home, seeds=[0, 1, 2], name="three", quiet=True)


def test_the_metric_of_a_manifest_equals_the_metric_of_its_datasets(tmp_path, monkeypatch) -> None:
    build = learnable_build(tmp_path / "build")
    monkeypatch.setattr(targets, "dataset_names", lambda: [build.card.manifest])
    metrics = SimpleNamespace(metrics={"classification": "f1"})
    monkeypatch.setattr(targets, "load_manifest", lambda name: metrics)
    config = tiny_config(build, training={"epochs": 1, "metric": None})
    summary = train(config, home=Home(tmp_path), quiet=True)
    assert summary.results[0].metric == "f1"


def test_a_run_on_part_of_the_published_dataset_is_labelled(tmp_path, capsys):
    """Result, table and report mark a run on part of the published set; hidden_dim follows parameter_budget."""
    build = learnable_build(tmp_path / "build", complete=False)
    small = {"layers": 1, "hidden_dim": 56, "heads": 4, "parameter_budget": 30_000}
    summary = train(
        tiny_config(build, model=small, training={"epochs": 1}), home=Home(tmp_path), name="part"
    )
    result, said = summary.results[0], capsys.readouterr().err
    assert "data: clouds (part of the published set), " in said
    assert "clouds (part of the published set), gps-kmip" in summary.table()
    assert SAMPLE_NOTE not in summary.table()
    assert (summary.to_dict()["complete"], read_result(summary.runs[0]).complete) == (False, False)
    evaluation = evaluate(summary.runs[0], home=Home(tmp_path))
    test = f"{100 * result.metrics['test'][result.metric]:.2f} %"
    assert repr(summary).startswith("RunSummary(clouds/gps-kmip, 1 run, train ")
    assert repr(evaluation).startswith(f"Evaluation({result.name}, train ")
    for shown in (repr(summary), repr(evaluation)):
        assert shown.endswith(f"test {result.metric} {test})")
    assert "clouds (part of the published set), split" in evaluation.table()
    assert evaluation.to_dict()["complete"] is False
    width, parameters = result.config["model"]["hidden_dim"], result.num_parameters
    assert width != 56
    assert parameters <= 30_000
    assert f"model: gps-kmip, 1 layer, hidden_dim {width}, {parameters:,} parameters" in said


def test_a_dataset_stands_for_its_preset(monkeypatch, tmp_path):
    def stop(config):
        raise UsageError(f"{config.preset} on {config.system.device}")

    monkeypatch.setattr("kmip_data.models.training.run.train._select_device", stop)
    with raises(UsageError, naming="s3dis/gps-kmip on auto"):
        train("s3dis", home=tmp_path)


def test_nan_among_features_is_found_before_the_first_epoch(tmp_path, recwarn):
    """NaN in targets means unlabelled; in features it is a warning of ``save``, and no run begins."""
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    graphs = [
        Data(x=torch.rand(3, 2), edge_index=ring, y=torch.tensor([[math.nan, 1.0]]))
        for _ in range(6)
    ]
    split = {"train": [0, 1, 2, 3], "val": [4], "test": [5]}
    with warnings.catch_warnings(action="error"):
        sound = save(graphs, tmp_path / "sound", split=split)
    assert verify_build(sound.path).notes == []
    graphs[4].x[2, 1] = math.nan
    build = save(graphs, tmp_path / "mine", split=split)
    report = verify_build(build.path)
    assert report.ok
    (found,) = report.notes
    assert str(recwarn.pop(UserWarning).message) == found
    config = tiny_config(build, model={"head": "graph"}, training={"epochs": 1})
    with raises(UsageError, naming=["x", "00000004", 2]) as refused:
        train(config, home=Home(tmp_path), quiet=True)
    assert refused.value.message == f"{build.path}: {found}."
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("per", ["epoch", "step"])
def test_the_loop_equals_the_papers_code(tmp_path, monkeypatch, per):
    """Against the loop of the paper's code written out: seven batches, three a step, the last one alone.

    Norms are those before clipping; a logger gets the rows of ``metrics.csv``.
    """
    logged = []
    monkeypatch.setattr(fit_file, "build_logger", lambda *_: lambda *row: logged.append(row))
    order = list(range(17))
    build = learnable_build(
        tmp_path / "build",
        graphs=17,
        parts={"train": order[:13], "val": order[13:15], "test": order[15:]},
    )
    config = tiny_config(
        build,
        model={"dropout": 0.2},
        optimizer={"lr": 5e-3, "weight_decay": 1e-2},
        schedule={"warmup_epochs": 1, "per": per},
        training={
            "epochs": 3,
            "batch_size": 2,
            "accumulate": 3,
            "shuffle": False,
            "clip_norm": 0.1,
        },
    )
    run = train(config, home=Home(tmp_path / "home"), quiet=True).runs[0]

    torch.manual_seed(0)
    model = build_model(config.model, in_channels=6, out_channels=CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    loader = GraphLoader(ShardedDataset(build, "train"), 2, compact=True)
    units = 3 if per == "step" else 1  # seven batches, three of them a step
    history = read_history(run)
    assert [(number, {"epoch": number, **values}) for values, number in logged] == list(
        enumerate(history)
    )
    for epoch, row in enumerate(history):
        norms = []
        for number, batch in enumerate(loader):
            moment = epoch * units + (number // 3 if per == "step" else 0)
            rate = cosine_with_warmup(moment, ScheduleOptions(3 * units, units))
            optimizer.param_groups[0]["lr"] = 5e-3 * rate
            (weighted_cross_entropy(model(batch), batch.y) / 3).backward()
            if (number + 1) % 3 == 0 or number + 1 == len(loader):
                norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
                optimizer.step()
                optimizer.zero_grad()
        assert row["grad_norm"] == pytest.approx(sum(norms) / 3, rel=1e-4)
        assert row["grad_norm_max"] == pytest.approx(max(norms), rel=1e-4)
        assert row["peak_memory"] > 50e6

    last = torch.load(run / LAST_CHECKPOINT, weights_only=True)["model"]
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(last[name], weight, rtol=1e-5, atol=1e-7)


def test_a_run_writes_config_metrics_result_and_weights(done, build, home):
    run = done.runs[0]
    assert run == home.runs / "clouds-sample" / "gps-kmip" / "three-seed0"
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    checkpoints = {LAST_CHECKPOINT, PREVIOUS_CHECKPOINT, CHECKPOINT_DIGESTS, BEST_WEIGHTS}
    assert (
        names
        == {"config.toml", "metrics.csv", "result.json", WEIGHTS_NAME, MARKER_NAME} | checkpoints
    )
    assert load_file(run / WEIGHTS_NAME).keys() == load_file(run / BEST_WEIGHTS).keys()
    config = read_config(run / "config.toml")
    assert (config.data.sample, config.data.parameters) == (True, {"k": 3})


def test_the_result_describes_the_run(done, build):
    run = done.runs[1]
    raw = json.loads((run / "result.json").read_text("utf-8"))
    assert set(raw) == set(RunResult.model_fields)
    result = read_result(run)
    assert (result.version, result.seed, result.sample, result.dataset) == (1, 1, True, "clouds")
    assert (result.build_key, result.config["training"]["seed"]) == (build.card.key, 1)
    digests = {part: entry.digest for part, entry in build.card.splits["default"].parts.items()}
    assert result.split.digests == digests
    assert set(result.metrics) == {"train", "val", "test"}
    assert set(result.metrics["val"]) == {"loss"} | usual_metrics("classification")
    assert (result.num_features, result.num_classes) == (6, CLASSES)
    assert 0 < result.seconds.train_epoch <= result.seconds.total
    assert (result.memory.device, result.memory.host > 50e6) == (None, True)
    assert {"torch", "kmip-data", "numpy", "python"} <= set(result.versions)


def test_the_first_best_validation_epoch_is_reported_with_its_test_metric(done):
    for run, result in zip(done.runs, done.results, strict=True):
        history = read_history(run)
        values = [row["val_miou"] for row in history]
        assert result.best_epoch == values.index(max(values))
        # Test is measured only after epochs that improve on all earlier ones.
        improves = [value > max(values[:epoch], default=-1) for epoch, value in enumerate(values)]
        assert improves == ["test_miou" in row for row in history]
        best = history[result.best_epoch]
        for part in ("val", "test"):
            assert result.metrics[part] == {
                name: best[f"{part}_{name}"] for name in result.metrics[part]
            }


def test_mean_and_std_over_seeds(done):
    summary = done.to_dict()
    values = [result.metrics["test"]["miou"] for result in done.results]
    assert summary["metrics"]["test"]["miou"] == pytest.approx(statistics.fmean(values))
    assert summary["std"]["test"]["miou"] == pytest.approx(
        statistics.stdev(values)
    )  # ddof 0, as upstream
    assert [entry["seed"] for entry in summary["runs"]] == [0, 1, 2]
    assert [entry["run"] for entry in summary["runs"]] == [str(run) for run in done.runs]
    assert len({tuple(result.metrics["train"].values()) for result in done.results}) == 3
    assert (
        f"{100 * statistics.fmean(values):.2f} ± {100 * statistics.stdev(values):.2f}"
        in done.table()
    )


def test_evaluate_reproduces_the_result(done, home):
    for name in (str(done.runs[2]), "clouds-sample/gps-kmip/three-seed2", "three-seed2"):
        evaluation = evaluate(name, home=home)
        assert (evaluation.run, evaluation.metrics, evaluation.equals_result) == (
            done.runs[2],
            done.results[2].metrics,
            True,
        )
    assert "equal to result.json" in evaluation.table()
    assert "sample" in evaluation.table()


# What can go wrong.


def test_an_evaluation_that_is_not_finite_names_its_part(build, tmp_path, monkeypatch):
    forward = TrainingModule.forward

    def broken(self, batch):
        logits, target = forward(self, batch)
        return (logits if self.training else logits * math.nan), target

    monkeypatch.setattr(TrainingModule, "forward", broken)
    with raises(CheckFailed, naming=[math.nan, "val"]):
        train(tiny_config(build), home=Home(tmp_path), quiet=True)


def test_a_metric_that_is_not_finite_is_named_with_its_part(build, tmp_path, monkeypatch):
    """The ROC-AUC of a part that lacks a class is one."""
    measured = fit_file.compute_metrics

    def undefined(*arguments):
        metrics = measured(*arguments)
        metrics["test"]["f1"] = math.nan
        return metrics

    monkeypatch.setattr(fit_file, "compute_metrics", undefined)
    with raises(CheckFailed, naming=["test", "f1"]):
        train(tiny_config(build), home=Home(tmp_path), quiet=True)


def test_undefined_r2_of_a_single_target_is_reported(tmp_path):
    edges = torch.tensor([[0], [1]])
    graphs = []
    for number in range(6):
        y = torch.tensor([number + 0.5])
        graphs.append(Data(x=torch.ones(2, 1), edge_index=edges, y=y))
    split = {"train": [0, 1, 2, 3], "val": [4], "test": [5]}
    build = save(graphs, tmp_path / "b", split=split)
    config = tiny_config(build, training={"epochs": 1})
    summary = train(config, home=Home(tmp_path), quiet=True, name="r")
    metrics = summary.results[0].metrics
    assert "r2" in metrics["train"]
    assert "r2" not in metrics["val"]
    lines = summary.table().splitlines()
    assert lines[2].split()[-1] == lines[3].split()[-1] == "–"
    assert "–: R² needs two different targets" in lines
    evaluation = evaluate("r", home=Home(tmp_path))
    assert evaluation.equals_result
    assert "–: R² needs two different targets" in evaluation.table()


def test_one_seed_is_a_number_as_on_the_command_line(build, tmp_path):
    config = tiny_config(build, training={"epochs": 1})
    summary = train(config, home=Home(tmp_path), seeds=0, folds=None, name="one", quiet=True)
    assert [result.config["training"]["seed"] for result in summary.results] == [0]
    summary = train(config, home=Home(tmp_path), seeds=3, quiet=True)
    assert [result.config["training"]["seed"] for result in summary.results] == [3]


def test_a_negative_seed_is_refused(build, tmp_path):
    with raises(UsageError, naming=["training.seed", -1]):
        train(tiny_config(build), home=Home(tmp_path), seeds=[0, -1], quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_build_without_a_test_part_is_trained(tmp_path):
    build = learnable_build(
        tmp_path / "build", graphs=4, parts={"train": [0, 1], "val": [2, 3], "test": []}
    )
    result = train(tiny_config(build), home=Home(tmp_path / "home"), quiet=True).results[0]
    assert set(result.metrics) == {"train", "val"}


def test_wrong_or_taken_names_of_runs_are_refused(done, build, home, tmp_path):
    with raises(UsageError, steps=Setting(name="three-seed1-2")):
        train(tiny_config(build), home=home, name="three-seed1", quiet=True)
    with raises(UsageError, naming="../three"):
        train(tiny_config(build), home=home, name="../three", quiet=True)
    with raises(UsageError, naming="three-seed1"):
        find_run("three-sed1", home)
    with raises(UsageError, naming="three"):
        find_run("three", Home(tmp_path / "empty"))


@pytest.mark.whole_run
def test_training_prints_plan_and_epochs(build, tmp_path, capfd, recwarn):
    config = tiny_config(build)
    summary = train(config, home=Home(tmp_path))
    assert summary.table().endswith(f"\n{SAMPLE_NOTE}")
    tables, _ = tables_of_runs(read_finished_runs(summary.runs)[0])
    assert SAMPLE_NOTE in results_sheet(tables[0]).notes
    out, err = capfd.readouterr()
    assert out == ""
    # Without the progress of a slow machine.
    lines = [line for line in err.splitlines() if not line.startswith("training: ")]
    assert lines[0].startswith("data: clouds (sample: generated, not the real data), ")
    assert "split 'default': train 6, val 2, test 2 graphs" in lines[0]
    assert lines[1].startswith("model: gps-kmip, ")
    assert lines[2] == "schedule: cosine_with_warmup per epoch, 3 epochs, 0 of them warm-up"
    assert lines[3] == "device: cpu (requested), precision 32"
    assert lines[4].startswith("memory: about ")
    assert lines[5].startswith("run: ")
    assert lines[6].startswith("accuracy [%]; train: ")
    assert lines[7].split() == ["epoch", "train", "loss", "train", "val", "test", "seconds", "left"]
    assert [line.split()[0] for line in lines[8:]] == [f"{n}/3" for n in (1, 2, 3)]
    assert [str(warning.message) for warning in recwarn] == []
    train(config, home=Home(tmp_path), quiet=True)
    assert capfd.readouterr() == ("", "")

    train(tiny_config(build, schedule={"warmup_epochs": 5}), home=Home(tmp_path))
    assert "--set schedule.warmup_epochs=0 skips it" in capfd.readouterr().err


def test_free_memory_is_given_back_at_the_end(build, tmp_path):
    reused_buffers.reused_array((2 << 20,), np.dtype(np.uint8))
    assert reused_buffers.free_buffer_bytes() > 0
    train(tiny_config(build, training={"epochs": 1}), home=Home(tmp_path), quiet=True)
    assert reused_buffers.free_buffer_bytes() == 0


def test_tensorboard_gets_the_metrics_too(build, tmp_path):
    pytest.importorskip("tensorboard")
    run = train(
        tiny_config(build, system={"logger": "tensorboard"}), home=Home(tmp_path), quiet=True
    ).runs[0]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    assert len(events.Scalars("val_miou")) == 3
    assert (run / "metrics.csv").is_file()


def test_matrix_products_use_the_configured_precision(build, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "kmip_data.models.training.run.train.check_precision", lambda *_: None
    )  # no GPU is here
    seen = set()

    def noted(*args):
        seen.add((torch.get_float32_matmul_precision(), torch.is_grad_enabled()))
        return _find_kernel(*args)

    monkeypatch.setattr("kmip_data.models.layers.gated_gcn._find_kernel", noted)
    config = tiny_config(build, training={"precision": "tf32", "epochs": 1})
    train(config, home=Home(tmp_path), quiet=True)
    assert seen == {("high", True), ("high", False)}
    assert torch.get_float32_matmul_precision() == "highest"


def test_long_runs_print_a_forecast(build, tmp_path, monkeypatch, capfd):
    """A run of at least ``LONG`` (half an hour) gets a forecast at its third batch."""
    for long in (1e9, 1e-9):
        monkeypatch.setattr(loop_file, "FORECAST_SECONDS", long)
        train(tiny_config(build, training={"epochs": 2}), home=Home(tmp_path / str(long)))
        forecast = "for 2 epochs of 2 batches, by the third batch" in capfd.readouterr().err
        assert forecast is (long < 1)


def test_a_batch_that_does_not_fit_names_its_size_and_remedies(
    build, tmp_path, monkeypatch, capsys
):
    forward = TrainingModule.forward
    memory = (
        "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: 1 bytes"
    )
    cases = [
        (
            torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
            "training",
            3,
        ),
        (RuntimeError(memory), "evaluating", 2),
        (MemoryError(), "training", 3),
    ]
    for error, where, graphs in cases:

        def failing(self, batch, error=error, where=where):
            logits = forward(self, batch)
            if self.training == (where == "training"):
                raise error
            return logits

        monkeypatch.setattr(TrainingModule, "forward", failing)
        with raises(OutOfResources, naming=[where, graphs]) as caught:
            train(tiny_config(build), home=Home(tmp_path))
        assert [step for step in caught.value.steps if isinstance(step, Setting)] == [
            Setting({"training.batch_size": 2, "training.accumulate": 4}),
            Setting({"model.checkpoint_layers": "true"}),
            Setting({"training.precision": "bf16-mixed"}),
        ]
        assert "Start over with: kmip-data train" in capsys.readouterr().err

    def other(self, batch):
        raise RuntimeError("shapes cannot be multiplied")

    monkeypatch.setattr(TrainingModule, "forward", other)
    with raises(RuntimeError, naming="shapes"):
        train(tiny_config(build), home=Home(tmp_path), quiet=True)


def test_wrong_settings_are_refused_before_training(build, tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name)
    )
    for section, value in (
        ({"system": {"device": "cuda", "devices": 99}}, 99),
        ({"training": {"precision": "16-mixed"}}, "16-mixed"),
        ({"training": {"precision": "tf32"}}, "tf32"),
        ({"system": {"logger": "wandb"}}, "wandb"),
        ({"data": {"features": "position-color"}}, "position-color"),
        ({"data": {"parameters": {"k": 5}}}, 5),
        ({"model": {"name": "gps-kmap"}}, "gps-kmip"),
    ):
        with raises(UsageError, naming=value):
            train(tiny_config(build, **section), home=Home(tmp_path), quiet=True)
        assert not list(tmp_path.glob("runs/*/*/*")), section
    for empty in ("train", "val"):
        parts = {"train": [0, 1], "val": [2], "test": [3], empty: []}
        empty_build = learnable_build(tmp_path / empty, graphs=4, parts=parts)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the error says it, no warning of another line
            with raises(UsageError, naming=empty):
                train(tiny_config(empty_build), home=Home(tmp_path / "home"), quiet=True)
        assert not (tmp_path / "home").exists()


def test_evaluate_repeats_the_result_in_every_mode(build, tmp_path):
    home = Home(tmp_path)
    for option in ({"training": {"precision": "bf16-mixed"}}, {"system": {"deterministic": True}}):
        summary = train(tiny_config(build, **option), home=home, quiet=True)
        assert evaluate(summary.runs[0], home=home).equals_result, option
        assert not torch.are_deterministic_algorithms_enabled()
    other = learnable_build(tmp_path / "other", seed=5, graphs=6)
    evaluation = evaluate(summary.runs[0], dataset=str(other.path), home=home)
    assert (evaluation.equals_result, evaluation.build.card.sample) == (None, False)
    assert evaluation.metrics["test"] != summary.results[0].metrics["test"]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    order = list(range(17))
    parts = {"train": order[:13], "val": order[13:15], "test": order[15:]}
    return learnable_build(tmp_path_factory.mktemp("data") / "uneven", graphs=17, parts=parts)


def test_scaled_losses_may_overflow_a_gradient():
    """Five batches, two a step: norms of batches 2, 4 and 5 count, an infinite one only if it is unscaled."""
    for scaled, problem in ((True, None), (False, ("The gradient's norm is inf", 3, 11))):
        meter = Meter(2, scaled=scaled)
        meter.begin(10, 5, torch.device("cpu"))
        for batch, norm in enumerate([None, 2.0, None, math.inf, 4.0]):
            meter.record_loss(batch, torch.tensor(9.0), norm and torch.tensor(norm))
        assert meter.first_not_finite() == problem
        assert {**meter.epoch_measurements(), "peak_memory": 0} == {
            "grad_norm": 3,
            "grad_norm_max": 4,
            "peak_memory": 0,
        }


@pytest.mark.parametrize("what", ["loss", "gradient", "input", "weights"])
def test_a_run_that_diverges_names_batch_and_step_and_keeps_its_checkpoint(
    uneven, tmp_path, monkeypatch, what
):
    learn, calls = TrainingModule.train_loss, []

    def spoiling(self, data):
        calls.append(self.epoch)
        spoilt = self.epoch == 1 and calls.count(1) == 3
        if spoilt and what == "input":
            data.x[0, 0] = math.inf
        elif spoilt and what == "weights":
            next(self.parameters()).data.fill_(math.inf)
        logits, target, loss, backward = learn(self, data)
        if spoilt and what == "loss":
            loss = backward = loss * math.nan
        elif spoilt:  # 0, and its gradient 0 · ∞
            backward = backward + torch.sqrt((next(self.model.parameters()) * 0).sum())
        return logits, target, loss, backward

    monkeypatch.setattr(TrainingModule, "train_loss", spoiling)
    config = tiny_config(uneven)  # 13 graphs: batches of 3, steps of 2, 2 and 1 of them
    named = {
        "loss": ["loss", 2, 3, 5],
        "gradient": ["gradient", 2, 4, 5],
        "input": ["network", 2, 3],
        "weights": ["weights", 2, 3],
    }
    with raises(CheckFailed, naming=named[what]):
        train(config, home=Home(tmp_path), name="astray", quiet=True)
    (run,) = tmp_path.glob("runs/*/*/astray")
    state = torch.load(run / LAST_CHECKPOINT, weights_only=True)
    assert state["epoch"] == 1
    assert all(torch.isfinite(weight).all() for weight in state["model"].values())


def test_missing_gpu_extras_print_their_cost(monkeypatch):
    config = load_preset("s3dis")
    device = SimpleNamespace(type="cuda", name="GPU", reason="PyTorch sees one")
    memory = SimpleNamespace(recompute=False)
    card = SimpleNamespace(schema_=SimpleNamespace(attributes=[]))
    data = SimpleNamespace(description="", is_ragged=False, build=SimpleNamespace(card=card))
    run = SimpleNamespace(config=config, data=data, device=device, memory=memory, folder="run")
    module = SimpleNamespace(model=torch.nn.Linear(2, 2))
    for spec, lines in ((None, 2), (SimpleNamespace(), 0)):
        monkeypatch.setattr(
            prepared_run_file.importlib.util, "find_spec", lambda name, spec=spec: spec
        )
        text = list(prepared_run_file.announcement(run, module, None, resumed=False))
        slower = [line for line in text if line.startswith("slower: ")]
        assert len(slower) == lines
        costs = zip(slower, GPU_EXTRAS.values(), strict=False)
        assert all(cost in line and "pip install" in line for line, cost in costs)


def test_the_first_epoch_prints_the_time_left(build, tmp_path, capfd):
    train(tiny_config(build, training={"epochs": 2}), home=Home(tmp_path))
    lines = capfd.readouterr().err.splitlines()
    first, last = [line for line in lines if re.match(r" +\d/2 ", line)]
    assert re.search(r" \d+\.\d  \d+ s$", first)
    assert re.search(r" \d+\.\d$", last)


def test_the_loss_of_float32_is_not_scaled(tmp_path, monkeypatch):
    scaled = []
    scaler = torch.amp.GradScaler

    def noting(device, *, enabled):
        scaled.append(enabled)
        return scaler(device, enabled=enabled)

    monkeypatch.setattr(torch.amp, "GradScaler", noting)
    config = tiny_config(learnable_build(tmp_path / "build", graphs=6), training={"epochs": 1})
    train(config, home=Home(tmp_path / "home"), quiet=True)
    assert scaled == [False]
