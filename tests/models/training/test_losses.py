"""Losses against their formulas written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from kmip_data.models.training.metrics import SplitMetrics
from kmip_data.models.training.tasks import LOSSES, NO_PAIR, Task, cross_entropy, weighted_cross_entropy


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


def test_a_batch_of_one_class_is_the_plain_mean_and_has_a_gradient():
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.full((6,), 2)
    loss = weighted_cross_entropy(logits, target)
    torch.testing.assert_close(loss, cross_entropy(logits, target))
    loss.backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["binary_cross_entropy", "l1", "log10_mse"])
def test_unknown_targets_are_left_out(name):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(9, 4, generator=generator, requires_grad=True)
    target = torch.rand(9, 4, generator=generator).round()
    unknown = torch.rand(9, 4, generator=generator) < 0.3
    target = target.masked_fill(unknown, torch.nan)
    plain = {
        "binary_cross_entropy": F.binary_cross_entropy_with_logits,
        "l1": F.l1_loss,
        "log10_mse": lambda *rows: F.mse_loss(*rows).log10(),
    }[name]
    loss = LOSSES[name](logits, target)
    torch.testing.assert_close(loss, plain(logits[~unknown], target[~unknown]))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert torch.isfinite(gradient).all()
    assert (gradient[unknown] == 0).all()
    nothing = LOSSES[name](logits, torch.full((9, 4), torch.nan))
    assert nothing == 0


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", [0, 6])
def test_a_batch_without_anything_known_costs_nothing_and_moves_nothing(name, rows):
    """Upstream divides 0 by 0."""
    shape = (2, 3, 3) if LOSSES[name].kind == "links" else (rows, 3)
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(4), requires_grad=True)
    target = torch.full(shape, torch.nan)
    if LOSSES[name].kind == "links":
        target = torch.full(shape, NO_PAIR, dtype=torch.int8)
    elif LOSSES[name].kind == "single-label":
        logits, target = logits[:0], torch.empty(0, dtype=torch.int64)  # classes are always known
    loss = LOSSES[name](logits.bfloat16(), target)
    assert loss.dtype == torch.float32
    assert float(loss) == 0
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient == 0).all()


@pytest.mark.parametrize("kind", ["single-label", "multilabel", "regression"])
def test_a_part_without_anything_known_has_loss_0(kind):
    metrics = SplitMetrics(Task("graph", kind, 3))
    target = torch.full((4, 3), torch.nan)
    logits = torch.zeros(4, 3)
    if kind == "single-label":
        logits, target = logits[:0], torch.empty(0, dtype=torch.int64)
    metrics.update(logits, target, torch.tensor(0.0))
    assert metrics.compute()["loss"] == 0
