"""Metrics against scikit-learn on random data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    jaccard_score,
    mean_absolute_error,
    r2_score,
)

from kmip_data.models.training.metrics import METRICS, SplitMetrics, is_better
from kmip_data.models.training.tasks import LOSSES, Task


def ogb_accuracy(target, predicted) -> float:
    from ogb.graphproppred import Evaluator

    rows = {"y_true": target[:, None], "y_pred": predicted[:, None]}
    return Evaluator("ogbg-ppa").eval(rows)["acc"]


def ogb_mae(target, predicted) -> float:
    from ogb.lsc import PCQM4Mv2Evaluator

    rows = {"y_true": target.ravel(), "y_pred": predicted.ravel()}
    return PCQM4Mv2Evaluator().eval(rows)["mae"]


def fill(metrics, logits, target, loss, batch):
    for start in range(0, len(target), batch):
        rows = slice(start, start + batch)
        metrics.update(logits[rows], target[rows], loss[rows].mean())


@pytest.mark.parametrize(("seed", "batch"), [(0, 7), (3, 64), (5, 1000), (7, 64)])
def test_equal_to_scikit_learn_on_the_whole_split(seed, batch):
    rng = np.random.default_rng(seed)
    classes = 13
    # Some classes are never labels, some never predictions, some neither.
    labels = rng.choice(classes, size=1 + seed, replace=False)
    guesses = rng.choice(classes, size=2 + seed // 2, replace=False)
    target = rng.choice(labels, size=500)
    predicted = rng.choice(guesses, size=500)
    logits = torch.randn(500, classes, generator=torch.Generator().manual_seed(seed))
    logits[torch.arange(500), torch.from_numpy(predicted)] = 10.0
    loss = torch.from_numpy(rng.random(500))

    metrics = SplitMetrics(Task("node", "single-label", classes))
    fill(metrics, logits, torch.from_numpy(target), loss, batch)
    values = metrics.compute()

    assert values["accuracy"] == pytest.approx(accuracy_score(target, predicted), abs=1e-12)
    assert values["accuracy"] == pytest.approx(ogb_accuracy(target, predicted), abs=1e-12)
    assert values["f1"] == pytest.approx(
        f1_score(target, predicted, average="macro", zero_division=0), abs=1e-12
    )
    assert values["miou"] == pytest.approx(jaccard_score(target, predicted, average="macro"), abs=1e-12)
    # Σ loss·rows / Σ rows is the mean over rows however they were batched.
    assert values["loss"] == pytest.approx(float(loss.mean()), rel=1e-9)


@pytest.mark.parametrize("kind", ["single-label", "multilabel", "regression"])
def test_goes_on_from_what_was_counted(kind):
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 3, generator=draw)
    classes = torch.randint(0, 3, (40,), generator=draw)
    values = torch.randint(0, 2, (40, 3), generator=draw).float()
    target, loss = classes if kind == "single-label" else values, torch.rand(40, generator=draw)
    first, then, whole = (SplitMetrics(Task("graph", kind, 3)) for _ in range(3))
    fill(first, logits[:21], target[:21], loss[:21], 7)
    then.load(first.state())
    fill(then, logits[21:], target[21:], loss[21:], 7)
    fill(whole, logits, target, loss, 7)
    assert then.compute() == whole.compute()


def test_long_splits_are_counted_exactly():
    metrics = SplitMetrics(Task("node", "single-label", 2))
    metrics.update(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), torch.tensor(0.1))
    for _ in range(3):  # float32 sums would be off in the third digit
        metrics.rows.sums[0, 0] += 20_000_000
        metrics.loss.update(torch.tensor(0.1), torch.tensor(20_000_000))
    values = metrics.compute()
    assert values["accuracy"] == 60_000_000 / 60_000_001
    assert values["loss"] == pytest.approx(float(torch.tensor(0.1)), rel=1e-12)


def test_the_first_of_the_best_wins():
    for name, metric in METRICS.items():
        history = [0.2, 0.7, 0.5, 0.7, 0.6]
        if metric.better == "lower":
            history = [-value for value in history]
        best = None
        for epoch, value in enumerate(history):
            if is_better(name, value, None if best is None else history[best]):
                best = epoch
        assert best == 1, name


def labels_and_scores(seed, rows=300, labels=6):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((rows, labels)).round(1 if seed % 2 else 6)  # with and without ties
    target = (rng.random((rows, labels)) < rng.random(labels)).astype(np.float64)
    target[rng.random((rows, labels)) < 0.1] = np.nan
    target[:2, :] = [[0.0], [1.0]]  # both occur
    return scores, target


@pytest.mark.parametrize(("seed", "batch"), [(0, 7), (1, 300), (2, 300), (3, 7)])
def test_average_precision_is_scikit_learns_and_ogbs(seed, batch):
    from ogb.graphproppred import Evaluator

    scores, target = labels_and_scores(seed)
    metrics = SplitMetrics(Task("graph", "multilabel", 6))
    fill_rows(metrics, scores, target, batch)
    found = metrics.compute()
    each = [
        average_precision_score(target[known, label], scores[known, label])
        for label in range(6)
        for known in [~np.isnan(target[:, label])]
    ]
    single = torch.from_numpy(scores).float().double().numpy()  # what a network gives
    assert found["ap"] == pytest.approx(np.mean(each), rel=1e-9)
    evaluator = Evaluator("ogbg-molpcba")  # mean average precision over labels
    evaluator.num_tasks = 6
    assert found["ap"] == pytest.approx(evaluator.eval({"y_true": target, "y_pred": single})["ap"], rel=1e-9)


def test_labels_without_a_positive_row_are_left_out():
    target = torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
    scores = torch.tensor([[1.0, 0.0, 0.0], [2.0, 1.0, 5.0]])
    metrics = SplitMetrics(Task("graph", "multilabel", 3))
    metrics.update(scores, target, torch.tensor(0.0))
    assert metrics.compute()["ap"] == (0.5 + 1.0) / 2  # nowhere positive; ranked last of two; everywhere
    metrics.update(scores[:, :1], target[:, :1], torch.tensor(0.0))
    assert math.isnan(metrics.compute()["ap"])


def test_errors_of_batches_and_of_logarithms():
    """A small last batch counts as much as others; metrics of logarithms are of 10^y."""
    rng = np.random.default_rng(4)
    target, predicted = (torch.from_numpy(rng.normal(size=(23, 1))) for _ in range(2))
    plain, powers = (SplitMetrics(Task("node", "regression", 1, log10=log10)) for log10 in (False, True))
    for metrics in (plain, powers):
        fill_rows(metrics, predicted.numpy(), target.numpy(), 10)
        metrics.update(predicted[:3], torch.full((3, 1), torch.nan), torch.tensor(0.0))  # nothing known
    each = [(predicted - target)[rows].abs().mean() for rows in (slice(10), slice(10, 20), slice(20, 23))]
    found = plain.compute()
    assert found["mae_batches"] == pytest.approx(float(sum(each)) / 3)
    assert found["mae_batches"] != pytest.approx(found["mae"])
    assert powers.compute()["mae"] == pytest.approx(float((10**predicted - 10**target).abs().mean()))


def test_an_epoch_that_an_older_version_began_goes_on():
    metrics, target = SplitMetrics(Task("node", "regression", 1)), torch.zeros(4, 1)
    fill_rows(metrics, np.ones((4, 1)), target.numpy(), 2)
    state = metrics.state()
    state["rows"]["sums"] = state["rows"]["sums"][:5]  # without means of batches
    metrics.reset()
    metrics.load(state)
    metrics.update(target + 3, target, torch.tensor(0.0))
    assert metrics.compute()["mae"] == 2


def test_regression_is_scikit_learns():
    rng = np.random.default_rng(0)
    predicted, target = rng.standard_normal((2, 200, 11)).astype(np.float32).astype(np.float64)
    metrics = SplitMetrics(Task("graph", "regression", 11))
    fill_rows(metrics, predicted, target, 32)
    found = metrics.compute()
    assert found["mae"] == pytest.approx(mean_absolute_error(target, predicted), rel=1e-7)
    assert found["mae"] == pytest.approx(ogb_mae(target, predicted), rel=1e-7)
    assert found["r2"] == pytest.approx(r2_score(target, predicted), rel=1e-7)
    target[:, 3] = np.nan
    target[:50, 5] = np.nan
    target[:, 7] = 2.5  # constant: R² is 0, unless it is predicted
    predicted[:, 8] = target[:, 8] = -1.0
    fill_rows(metrics, predicted, target, 64)
    found = metrics.compute()
    for name, oracle in (("mae", mean_absolute_error), ("r2", r2_score)):
        each = [oracle(target[k, t], predicted[k, t]) for t in range(11)
                if t != 3 for k in [~np.isnan(target[:, t])]]  # fmt: skip
        assert found[name] == pytest.approx(np.mean(each), rel=1e-7)
    metrics.update(torch.full((2, 11), math.nan), torch.zeros(2, 11), torch.tensor(0.0))
    found = metrics.compute()
    assert math.isnan(found["mae"])  # never a good one
    assert math.isnan(found["r2"])


def test_the_loss_is_the_mean_over_known_targets():
    scores, target = labels_and_scores(1)
    loss = LOSSES["binary_cross_entropy"]
    metrics = SplitMetrics(Task("graph", "multilabel", 6))
    fill_rows(metrics, scores, target, 40, loss)
    whole = float(loss(torch.from_numpy(scores), torch.from_numpy(target)))
    assert metrics.compute()["loss"] == pytest.approx(whole, rel=1e-5)


def fill_rows(metrics, scores, target, batch, loss=None):
    for start in range(0, len(target), batch):
        rows = [torch.from_numpy(array[start : start + batch]) for array in (scores, target)]
        metrics.update(*rows, torch.tensor(0.0) if loss is None else loss(*rows))
