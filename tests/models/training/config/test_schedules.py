"""Schedules: of the learning rate against upstream's factors; of k, which ends where it is evaluated."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from support.training_data import learnable_build, tiny_config

from kmip_data.builds.home import Home
from kmip_data.cli.train import configuration
from kmip_data.errors import UsageError
from kmip_data.models.attention import kmip
from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.config.schedules import (
    KSchedule,
    ScheduleConfig,
    build_schedule,
    cosine_with_warmup,
    linear_with_warmup,
    step_schedule,
)
from kmip_data.models.training.run.train import train


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


def test_linear_with_warmup_is_pytorchs_two_lines():
    ours, theirs = optimiser(), optimiser()
    schedule = build_schedule(ours, ScheduleConfig(kind="linear_with_warmup", warmup_epochs=4), 10)
    lines = torch.optim.lr_scheduler
    up = lines.LinearLR(theirs, start_factor=1e-6, total_iters=4)
    down = lines.LinearLR(theirs, start_factor=1.0, end_factor=0.0, total_iters=6)
    oracle = lines.SequentialLR(theirs, [up, down], milestones=[4])
    expected = []
    for _ in range(10):
        expected.append(theirs.param_groups[0]["lr"])
        theirs.step()
        oracle.step()
    assert rates(schedule, ours, [None] * 10) == pytest.approx(expected, abs=1e-6)
    assert linear_with_warmup(3, warmup=3, epochs=3) == 0.0


def test_constant_is_the_rate_from_the_first_epoch_on():
    optim = optimiser()
    schedule = build_schedule(optim, ScheduleConfig(kind="constant", warmup_epochs=4), 8)
    assert rates(schedule, optim, [None] * 8) == [0.5] * 8


@pytest.mark.parametrize("kind", ["cosine_with_warmup", "linear_with_warmup"])
def test_per_step_is_the_same_curve_over_all_steps(kind):
    config = ScheduleConfig(kind=kind, warmup_epochs=2, per="step")
    fine, coarse = optimiser(), optimiser()
    found = rates(build_schedule(fine, config, 5, steps=7), fine, [None] * 35)
    alike = ScheduleConfig(kind=kind, warmup_epochs=14)
    assert found == rates(build_schedule(coarse, alike, 35), coarse, [None] * 35)
    assert found[14] == 0.5
    assert max(found) == 0.5


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


@pytest.mark.parametrize("text", ["linear:50:5", "cosine:50:5", "cosine:3:9"])
def test_begins_and_ends_where_it_says(text: str) -> None:
    schedule = KSchedule.parse(text)
    values = [schedule.at(epoch, 10) for epoch in range(10)]
    assert (values[0], values[-1]) == (schedule.first, schedule.last)
    assert values == sorted(values, reverse=schedule.first > schedule.last)
    assert schedule.at(0, 1) == schedule.last


def test_a_line_and_half_a_cosine() -> None:
    assert [KSchedule.parse("linear:10:2").at(epoch, 5) for epoch in range(5)] == [10, 8, 6, 4, 2]
    assert [KSchedule.parse("cosine:101:0001").at(epoch, 3) for epoch in range(3)] == [101, 51, 1]


@pytest.mark.parametrize(
    "text", ["cosine", "cosine:5", "cosine:5:0", "cosine:5:-1", "step:5:2", "linear:5:2:1"]
)
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match="not a schedule of k"):
        KSchedule.parse(text)


def test_a_run_trains_by_it_and_evaluates_at_its_end(tmp_path, monkeypatch) -> None:
    used = []
    attend = kmip.attend_to_best

    def noting(queries, keys, values, k, **options):
        used.append((queries.requires_grad, k))
        return attend(queries, keys, values, k, **options)

    config = tiny_config(
        learnable_build(tmp_path / "build", graphs=6),
        model={"layers": 1, "k": 2},
        training={"epochs": 3, "k_schedule": "linear:6:2"},
    )
    monkeypatch.setattr(kmip, "attend_to_best", noting)
    train(config, home=Home(tmp_path / "home"), quiet=True)
    steps = [k for training, k in used[used.index((True, 6)) :] if training]
    assert list(dict.fromkeys(steps)) == [6, 4, 2]
    assert {k for training, k in used if not training} == {2}


def options(*overrides):
    given = {"model": "gps-kmip", "variant": "code", "overrides": overrides}
    return configuration("s3dis", {}, {}, **given)


def test_on_the_command_line(tmp_path) -> None:
    config = options("training.k_schedule=cosine:50:5", "model.attention.k=5")
    assert (config.model.attention.k, config.training.k_schedule) == (5, "cosine:50:5")
    assert config.data.parameters.get("k") != 5
    assert options("model.attention.k=7").model.attention.k == 7
    assert options("model.attention.k=[1, 2, 3, 4, 5, 6, 7, 8]").model.attention.k == (1, 2, 3, 4, 5, 6, 7, 8)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["model.attention.k=0"], "model.attention.k cannot be '0'"),
        (["model.attention.k=[3, 4]"], "there are 8 layers"),
        (["model.attention.k=7", "training.k_schedule=cosine:50:5"], "ends at 5, and model.attention.k is 7"),
        (["training.k_schedule=cosine:50:x"], "not a schedule of k"),
    ],
)
def test_refusals(given, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        options(*given)
    assert word in str(caught.value)


def test_a_number_for_each_layer(tmp_path) -> None:
    config = ModelConfig(layers=3, attention={"k": (3, 4, 5), "heads": 2}, hidden_dim=8)
    model = build_model(config, in_channels=2, num_classes=2)
    assert [layer.attention.k for layer in model.layers] == [3, 4, 5]
    build = learnable_build(tmp_path / "build", graphs=6)
    run = tiny_config(build, model={"layers": 2, "k": [3, 4]}, training={"epochs": 1})
    found = train(run, home=Home(tmp_path / "home"), quiet=True).runs[0]
    assert read_config(found / "config.toml").model.attention.k == (3, 4)
