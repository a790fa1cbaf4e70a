"""Losses against formulas, runs whose targets belong to graphs, and what does not fit."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.builds.learnable import rings, tiny_config
from support.metrics import usual_metrics
from support.raises import raises
from torch_geometric.data import Data

from kmip_data.builds.home import Home, added_column_names
from kmip_data.errors import Setting, UsageError
from kmip_data.models.analysis.explanations import predict_record
from kmip_data.models.positional_encodings import POSITIONAL_ENCODINGS
from kmip_data.models.training.accumulators import PartMetrics
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import load_preset
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.losses import LOSSES, cross_entropy, weighted_cross_entropy
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.predictions import evaluate_predictions, predict
from kmip_data.models.training.run.train import train
from kmip_data.models.training.tasks import NO_PAIR, Task, target_types_of_values

USUAL = {
    "classes": ("classification", "cross_entropy", "accuracy", 3),
    "labels": ("multilabel", "binary_cross_entropy", "ap", 2),
    "values": ("regression", "l1", "mae", 2),
    "value": ("regression", "l1", "mae", 1),
}


@pytest.mark.parametrize("target_type", USUAL)
def test_targets_decide_task_loss_metric_and_head(tmp_path, target_type):
    build = rings(tmp_path / "b", target_type, 40)
    config = tiny_config(build, model={"edge_encoder": "linear"}, training={"epochs": 2})
    summary = train(config, home=Home(tmp_path), quiet=True)
    result = summary.results[0]
    targets, loss, metric, outputs = USUAL[target_type]
    assert (result.metric, result.num_classes) == (metric, outputs)
    assert result.config["training"]["loss"] == loss
    assert result.config["model"]["head"] == "graph"
    assert metric in usual_metrics(targets, "graph")
    assert set(result.metrics["test"]) == {"loss"} | usual_metrics(targets, "graph")
    evaluation = evaluate(summary.runs[0], home=Home(tmp_path))
    assert evaluation.equals_result
    assert ("MAE" if metric == "mae" else "[%]") in evaluation.table()
    history = (summary.runs[0] / "metrics.csv").read_text("utf-8").splitlines()[0].split(",")
    assert f"val_{metric}" in history


def test_values_are_learned_and_the_lowest_error_wins(tmp_path):
    build = rings(tmp_path / "b", "value", 40)
    config = tiny_config(
        build,
        model={"dropout": 0.0, "hidden_dim": 16, "head_l2norm": False},
        training={"epochs": 25, "accumulate": 1, "batch_size": 8},
    )
    summary = train(config, home=Home(tmp_path), quiet=True)
    rows = (summary.runs[0] / "metrics.csv").read_text("utf-8").splitlines()
    column = rows[0].split(",").index("val_mae")
    values = [float(row.split(",")[column]) for row in rows[1:]]
    assert summary.results[0].best_epoch == values.index(min(values))
    assert summary.results[0].metrics["test"]["mae"] < 0.2


def test_regression_leaves_unknown_targets_out(tmp_path):
    build = rings(tmp_path / "b", "values", 40, unknown=True)
    regression = train(tiny_config(build), home=Home(tmp_path), quiet=True).results[0]
    assert np.isfinite(regression.metrics["test"]["mae"])


AS_OTHERS = {
    ("classes", "regression"): ("regression", "mae", lambda y: y[:, None].float()),
    ("classes", "multilabel"): ("multilabel", "ap", lambda y: F.one_hot(y, 3).float()),
    ("labels", "regression"): ("regression", "mae", lambda y: y.float()),
    ("one-hot", "classification"): ("classification", "accuracy", lambda y: y.argmax(dim=1)),
}


@pytest.mark.parametrize(("stored", "chosen"), AS_OTHERS)
def test_targets_are_learned_as_another_kind(tmp_path, stored, chosen):
    target_type, metric, expected = AS_OTHERS[stored, chosen]
    config = tiny_config(rings(tmp_path / "b", stored, 40), training={"epochs": 1})
    config = apply_overrides(config, [f"training.task={chosen}"])
    data = open_data(config, home=Home(tmp_path))
    batch = next(iter(data.evaluation_passes(["val"])[0][1]))
    targets = expected(batch.y)
    assert torch.equal(data.task.targets(batch), targets)
    columns = 3 if target_type == "classification" else targets.shape[1]
    assert (data.task.target_type, data.task.outputs) == (target_type, columns)

    summary = train(config, home=tmp_path, quiet=True)
    assert summary.results[0].metric == metric
    assert evaluate(summary.runs[0], home=tmp_path).equals_result
    predictions = predict(summary.runs[0], split="test", home=tmp_path)
    scored = evaluate_predictions(predictions, str(data.build.path), home=tmp_path)
    assert scored.metrics[metric] == pytest.approx(summary.results[0].metrics["test"][metric])
    with raises(UsageError, naming=f"training.task={chosen}"):
        predict_record(summary.runs[0], home=Home(tmp_path))


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        ([[0, 1], [1, 0]], {"regression": 2, "multilabel": 2, "classification": 2}),
        ([[0, 1], [1, 1]], {"regression": 2, "multilabel": 2}),
        ([[0, 1], [0, 0]], {"regression": 2, "multilabel": 2}),
        ([[0, 1], [math.nan, 1]], {"regression": 2, "multilabel": 2}),
        ([[0], [1], [1]], {"regression": 1, "multilabel": 1, "classification": 2}),
        ([0, 2, 1], {"regression": 1, "classification": 3}),
        ([0, 2, math.nan], {"regression": 1}),
        ([0, 1.5, 1], {"regression": 1}),
        ([-1, 1, 0], {"regression": 1}),
        ([0, math.inf, 1], {"regression": 1}),
        ([0, 1e9, 1], {"regression": 1}),
    ],
)
def test_values_decide_the_tasks_they_allow(rows, kinds):
    values = torch.tensor(rows)
    assert target_types_of_values(values.split(2)) == kinds


def test_the_second_of_two_classes_is_the_positive_label():
    task = Task("node", "multilabel", 1, stored_type="classification")
    targets = task.targets(Data(y=torch.tensor([0, 1, 1])))
    assert targets.tolist() == [[0.0], [1.0], [1.0]]


@pytest.mark.whole_run  # a step on a cut finds the wrong encoders
def test_incompatible_settings_are_refused(tmp_path):
    kinds = ("values", "classes", "labels", "links")
    builds = {target_type: rings(tmp_path / target_type, target_type, 40) for target_type in kinds}
    for target_type, sections, value in (
        ("values", {"training": {"loss": "cross_entropy"}}, "training.loss = cross_entropy"),
        ("values", {"training": {"task": "classification"}}, "training.task = classification"),
        ("values", {"training": {"task": "multilabel"}}, "training.task = multilabel"),
        ("labels", {"training": {"task": "classification"}}, "training.task = classification"),
        ("links", {"training": {"task": "regression"}}, "training.task = regression"),
        (
            "classes",
            {"training": {"task": "regression", "metric": "accuracy"}},
            "training.metric = accuracy",
        ),
        ("links", {"training": {"metric": "mae"}}, "training.metric = mae"),
        ("classes", {"model": {"head": "node"}}, "model.head = node"),
        ("classes", {"model": {"node_encoder": "atom"}}, 9),
        ("classes", {"model": {"node_encoder": "voc"}}, 14),
        ("classes", {"model": {"edge_encoder": "bond"}}, "torch.float32"),
    ):
        with raises(UsageError, naming=value):
            train(tiny_config(builds[target_type], **sections), home=Home(tmp_path), quiet=True)
    assert not list((tmp_path).glob("runs/*/*/*"))


def test_graphs_without_features_take_their_degree_profile(tmp_path):
    from torch_geometric.transforms import LocalDegreeProfile

    build = rings(tmp_path / "b", "classes", 40, features=False)
    with pytest.raises(UsageError) as caught:
        open_data(tiny_config(build), home=Home(tmp_path))
    assert caught.value.steps[-1] == Setting({"data.features": "degree-profile"})
    config = tiny_config(build, data={"features": "degree-profile"})
    data = open_data(config, home=Home(tmp_path))
    assert (data.in_channels, data.task.outputs) == (5, 3)
    ((_, batches),) = data.evaluation_passes(["val"])
    batch = next(iter(batches))
    one = batch.get_example(0)
    one.x = None
    torch.testing.assert_close(batch.get_example(0).x[:, :4], LocalDegreeProfile()(one).x[:, :4])
    assert train(config, home=Home(tmp_path), quiet=True).results[0].num_features == 5


@pytest.mark.parametrize("positional", ["lappe", "rwse", "equivstable"])
def test_a_missing_encoding_is_added_first(tmp_path, positional):
    build = rings(tmp_path / "b", "classes", 40)
    config = tiny_config(
        build,
        model={"positional": positional, "hidden_dim": 32, "layers": 1},
        training={"epochs": 1},
    )
    with pytest.raises(UsageError) as caught:
        train(config, home=Home(tmp_path), quiet=True, build=False)
    assert "encode" in caught.value.steps[0].words
    assert added_column_names(build.path) == []
    summary = train(config, home=Home(tmp_path), quiet=True, jobs=1)
    assert added_column_names(build.path) == [POSITIONAL_ENCODINGS[positional].encoding.name]
    assert evaluate(summary.runs[0], home=Home(tmp_path)).equals_result


def weighted_by_hand(logits, target):
    """The formula row by row, in float64."""
    total = len(target)
    labels = [int(label) for label in target]
    numerator = denominator = 0.0
    for row, label in zip(logits.double(), labels, strict=True):
        weight = (total - labels.count(label)) / total
        numerator += weight * (math.log(sum(math.exp(value) for value in row)) - float(row[label]))
        denominator += weight
    return numerator / denominator


def test_weighted_cross_entropy_follows_its_formula():
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(200, 13, generator=generator)
        target = torch.randint(0, 4 + seed, (200,), generator=generator)  # several classes absent
        expected = pytest.approx(weighted_by_hand(logits, target), rel=1e-5)
        assert float(weighted_cross_entropy(logits, target)) == expected


@pytest.mark.parametrize("ones", [0, 1, 37, 100])
def test_weighted_binary_cross_entropy_is_graphgps_loss_of_one_output(ones):
    """Value and gradient of ``graphgps/loss/weighted_cross_entropy.py`` for z1 - z0."""
    logits = torch.randn(100, 2, dtype=torch.float64).float().requires_grad_()
    target = (torch.arange(100) < ones).long()
    sizes = torch.bincount(target, minlength=2)
    weight = (len(target) - sizes).float() / len(target) * (sizes > 0)
    theirs = torch.nn.functional.binary_cross_entropy_with_logits(
        logits[:, 1] - logits[:, 0], target.float(), weight=weight[target]
    )
    ours = LOSSES["weighted_binary_cross_entropy"](logits, target)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(*gradients)
    share = ones / 100
    if 0 < share < 1:
        mean = float(weighted_cross_entropy(logits.detach(), target))
        assert float(ours) == pytest.approx(2 * share * (1 - share) * mean, rel=1e-4)


def test_pattern_has_the_loss_of_one_output():
    for name in ("gps-transformer", "gps-kmip", "gcn-plus", "gine-plus", "gated-gcn-plus"):
        losses = [load_preset(data, name, "code").training.loss for data in ("pattern", "cluster")]
        assert losses == ["weighted_binary_cross_entropy", "weighted_cross_entropy"]


def test_a_batch_of_one_class_is_the_plain_mean_and_has_a_gradient():
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.full((6,), 2)
    loss = weighted_cross_entropy(logits, target)
    torch.testing.assert_close(loss, cross_entropy(logits, target))
    loss.backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.abs().sum() > 0


#: Losses of PyTorch that losses of numbers and labels equal on known targets.
PLAIN_LOSSES = {
    "binary_cross_entropy": F.binary_cross_entropy_with_logits,
    "l1": F.l1_loss,
    "mse": F.mse_loss,
    "log10_mse": lambda *rows: F.mse_loss(*rows).log10(),
}


def losses_of(*target_types: str) -> list[str]:
    return [name for name, loss in LOSSES.items() if loss.target_type in target_types]


@pytest.mark.parametrize("name", losses_of("multilabel", "regression"))
def test_unknown_targets_are_left_out(name):
    assert name in PLAIN_LOSSES, f"add what {name} equals on known targets to PLAIN_LOSSES"
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(9, 4, generator=generator, requires_grad=True)
    target = torch.rand(9, 4, generator=generator).round()
    unknown = torch.rand(9, 4, generator=generator) < 0.3
    target = target.masked_fill(unknown, torch.nan)
    loss = LOSSES[name](logits, target)
    torch.testing.assert_close(loss, PLAIN_LOSSES[name](logits[~unknown], target[~unknown]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(gradient).all()
    assert (gradient[unknown] == 0).all()


@pytest.mark.parametrize("name", losses_of("classification"))
def test_rows_without_a_class_are_left_out(name):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(40, 2, generator=generator, requires_grad=True)
    target = (torch.rand(40, generator=generator) < 0.3).long()
    unknown = torch.rand(40, generator=generator) < 0.3
    missing = target.masked_fill(unknown, -1)
    known = LOSSES[name](logits[~unknown], target[~unknown])
    loss = LOSSES[name](logits, missing)
    torch.testing.assert_close(loss, known)
    gradients = [torch.autograd.grad(value, logits)[0] for value in (loss, known)]
    torch.testing.assert_close(*gradients)
    for metric in ("accuracy", "roc_auc"):
        measured = []
        for rows, classes in ((logits, missing), (logits[~unknown], target[~unknown])):
            metrics = PartMetrics(Task("node", "classification", 2), metric)
            metrics.update(rows.detach(), classes, loss.detach())
            measured.append(metrics.compute())
        assert measured[0] == measured[1]
    task = Task("node", "multilabel", 1, stored_type="classification")
    batch = type("Batch", (), {"y": torch.tensor([0, 1, -1])})
    torch.testing.assert_close(
        task.targets(batch), torch.tensor([[0.0], [1.0], [torch.nan]]), equal_nan=True
    )


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", [0, 6])
def test_a_batch_without_known_targets_has_zero_loss_and_gradient(name, rows):
    """Upstream divides 0 by 0 in this case."""
    shape = (2, 3, 3) if LOSSES[name].target_type == "links" else (rows, 3)
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(4), requires_grad=True)
    target = torch.full(shape, torch.nan)
    if LOSSES[name].target_type == "links":
        target = torch.full(shape, NO_PAIR, dtype=torch.int8)
    elif LOSSES[name].target_type == "classification":
        target = torch.full((rows,), -1)
    loss = LOSSES[name](logits.bfloat16(), target)
    assert loss.dtype == torch.float32
    assert float(loss) == 0
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient == 0).all()


@pytest.mark.parametrize("target_type", ["classification", "multilabel", "regression"])
def test_a_part_without_known_targets_has_zero_loss(target_type):
    metrics = PartMetrics(Task("graph", target_type, 3))
    target = torch.full((4, 3), torch.nan)
    logits = torch.zeros(4, 3)
    if target_type == "classification":
        target = torch.full((4,), -1)
    metrics.update(logits, target, torch.tensor(0.0))
    assert metrics.compute()["loss"] == 0
