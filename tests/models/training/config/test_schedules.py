"""Schedules against upstream's table of factors."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch

from kmip_data.models.training.config.schedules import (
    ScheduleConfig,
    build_schedule,
    cosine_with_warmup,
    step_schedule,
)


def optimiser(lr=0.5):
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def rates(schedule, optim, losses):
    found = []
    for loss in losses:
        found.append(optim.param_groups[0]["lr"])
        optim.step()
        step_schedule(schedule, loss)
    return found


@pytest.mark.parametrize(("warmup", "epochs"), [(10, 200), (5, 250), (10, 1500), (0, 5), (3, 3), (10, 5)])
def test_cosine_with_warmup_is_stepped_once_an_epoch(warmup, epochs):
    optim = optimiser()
    schedule = build_schedule(optim, ScheduleConfig(warmup_epochs=warmup), epochs)
    expected = [
        0.5 * max(1e-6, e / warmup)
        if e < warmup
        else 0.5 * max(0.0, 0.5 * (1 + math.cos(math.pi * (e - warmup) / (epochs - warmup))))
        for e in range(epochs)
    ]
    assert rates(schedule, optim, [None] * epochs) == pytest.approx(expected, rel=1e-12)


def test_the_paper_point_cloud_schedule_at_chosen_epochs():
    def factor(epoch):
        return cosine_with_warmup(epoch, warmup=10, epochs=200)

    assert [factor(0), factor(1), factor(9), factor(10)] == [1e-6, 0.1, 0.9, 1.0]
    assert factor(105) == pytest.approx(0.5)
    assert factor(200) == pytest.approx(0.0, abs=1e-12)


def test_reduce_on_plateau_halves_after_patience_and_skips_epochs_without_a_loss():
    optim = optimiser()
    config = ScheduleConfig(kind="reduce_on_plateau", patience=2)
    schedule = build_schedule(optim, config, 100)
    losses = [1.0, 0.9, 0.9, 0.9, 0.9, 0.9]
    # Best at epoch 1; epochs 2-4 are bad, and the third bad one exceeds the patience of two.
    assert rates(schedule, optim, losses) == [0.5] * 5 + [0.25]
    assert rates(schedule, optim, [None] * 5) == [0.25] * 5


@pytest.mark.parametrize("kind", get_args(ScheduleConfig.model_fields["kind"].annotation))
def test_a_schedule_goes_on_from_its_state(kind):
    config = ScheduleConfig(kind=kind, warmup_epochs=2, patience=1)
    losses = [1.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]
    optim = optimiser()
    whole = rates(build_schedule(optim, config, 8), optim, losses)

    optim = optimiser()
    first = build_schedule(optim, config, 8)
    begun = rates(first, optim, losses[:3])
    state, lr = first.state_dict(), optim.param_groups[0]["lr"]
    optim = optimiser()
    second = build_schedule(optim, config, 8)
    second.load_state_dict(state)
    optim.param_groups[0]["lr"] = lr  # the optimiser's state brings it in a run
    assert begun + rates(second, optim, losses[3:]) == whole
