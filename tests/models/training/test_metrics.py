"""Metrics against scikit-learn on random data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, jaccard_score

from kmip_data.models.training.metrics import METRICS, SplitMetrics, is_better
from kmip_data.models.training.tasks import Task


def fill(metrics, logits, target, loss, batch):
    for start in range(0, len(target), batch):
        rows = slice(start, start + batch)
        metrics.update(logits[rows], target[rows], loss[rows].mean())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("batch", [7, 64, 1000])
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
    assert values["f1"] == pytest.approx(
        f1_score(target, predicted, average="macro", zero_division=0), abs=1e-12
    )
    assert values["miou"] == pytest.approx(jaccard_score(target, predicted, average="macro"), abs=1e-12)
    # Σ loss·rows / Σ rows is the mean over rows however they were batched.
    assert values["loss"] == pytest.approx(float(loss.mean()), rel=1e-9)


def test_compute_starts_anew():
    metrics = SplitMetrics(Task("node", "single-label", 3))
    wrong = torch.eye(3)[[1, 2, 0]]
    metrics.update(wrong, torch.arange(3), torch.tensor(5.0))
    assert metrics.compute()["accuracy"] == 0.0
    metrics.update(torch.eye(3), torch.arange(3), torch.tensor(1.0))
    assert metrics.compute() == {"loss": 1.0, "accuracy": 1.0, "f1": 1.0, "miou": 1.0}


def test_long_splits_are_counted_exactly():
    metrics = SplitMetrics(Task("node", "single-label", 2))
    metrics.update(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), torch.tensor(0.1))
    for _ in range(3):  # float32 sums would be off in the third digit
        metrics.rows.confmat[0, 0] += 20_000_000
        metrics.loss.update(torch.tensor(0.1), 20_000_000)
    values = metrics.compute()
    assert values["accuracy"] == 60_000_000 / 60_000_001
    assert values["loss"] == pytest.approx(float(torch.tensor(0.1)), rel=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_the_first_of_the_best_wins(name):
    history = [0.2, 0.7, 0.5, 0.7, 0.6]
    if METRICS[name].better == "lower":
        history = [-value for value in history]
    best = None
    for epoch, value in enumerate(history):
        if is_better(name, value, None if best is None else history[best]):
            best = epoch
    assert best == 1
