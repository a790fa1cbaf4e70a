"""Optimizers against PyTorch's own, schedules against upstream's factors, k until it is evaluated."""

from __future__ import annotations

import math

import pytest
import torch
from support.builds.learnable import learnable_build, tiny_config
from support.raises import raises
from torch import nn

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models.attention import kmip
from kmip_data.models.training.config.compose import compose_configuration
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.config.run_config import KSchedule
from kmip_data.models.training.optimizers import OPTIMIZERS, build_optimizer
from kmip_data.models.training.run.train import train
from kmip_data.models.training.schedules import (
    ScheduleConfig,
    ScheduleOptions,
    build_schedule,
    cosine_with_warmup,
    step_schedule,
)

CLASSES = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def learn(model, optimizer):
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(6, 3, generator=generator)).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_optimizers_learn_the_same_weights_as_pytorchs():
    further = {
        "adamw": {"betas": (0.8, 0.95)},
        "adam": {"betas": (0.8, 0.95)},
        "sgd": {"momentum": 0.7},
    }
    assert CLASSES.keys() == further.keys() == OPTIMIZERS.keys()
    for name, more in [*further.items(), *((name, {}) for name in further)]:
        ours, theirs = network(), network()
        settings = {"name": name, "lr": 0.01, "weight_decay": 0.1, **more}
        config = config_from_mapping(
            {"data": {"dataset": "s3dis"}, "optimizer": settings}, "the test"
        )
        weights = learn(ours, build_optimizer(ours, config.optimizer, fused=False))
        optimizer = CLASSES[name](theirs.parameters(), lr=0.01, weight_decay=0.1, **more)
        assert all(map(torch.equal, weights, learn(theirs, optimizer))), (name, more)


def options(*overrides):
    return compose_configuration(
        "s3dis", {}, {}, model="gps-kmip", variant="code", overrides=overrides
    )


def test_wrong_settings_are_refused():
    for settings, *named in (
        (["optimizer.momentum=0.9"], "adamw", "momentum"),
        (["optimizer.name=sgd", "optimizer.betas=[0.9, 0.99]"], "sgd", "betas"),
        (["optimizer.betas=[0.9, 1.5]"], "optimizer.betas"),
        (["schedule.kind=reduce_on_plateau", "schedule.per=step"], "reduce_on_plateau"),
        (["model.attention.k=[3, 4]"], 2, 8),
        (["model.attention.k=7", "training.k_schedule=cosine:50:5"], 5, 7),
        (["training.k_schedule=cosine:50:x"], "cosine:50:x"),
    ):
        with raises(UsageError, naming=named):
            options(*settings)


def rates(config, epochs, losses, steps=1, part="val"):
    """Rates of a schedule from 0.5 on, one for each of the losses."""
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=0.5)
    schedule, learning_rates, history = build_schedule(optimizer, config, epochs, steps), [], []
    for loss in losses:
        learning_rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        history.append({"train_loss": 1.0, "val_loss": 1.0})
        history[-1] |= {f"{part}_loss": loss}
        if loss is None:
            del history[-1][f"{part}_loss"]
        step_schedule(schedule, history, part)
    return learning_rates


def test_cosine_with_warmup_is_stepped_once_an_epoch():
    for warmup, epochs in ((10, 200), (10, 1500), (0, 5), (3, 3), (10, 5)):
        expected = [
            0.5 * max(1e-6, e / warmup)
            if e < warmup
            else 0.5 * max(0.0, 0.5 * (1 + math.cos(math.pi * (e - warmup) / (epochs - warmup))))
            for e in range(epochs)
        ]
        learning_rates = rates(ScheduleConfig(warmup_epochs=warmup), epochs, [None] * epochs)
        assert learning_rates == pytest.approx(expected, rel=1e-12)
    points = [
        cosine_with_warmup(epoch, ScheduleOptions(200, 10)) for epoch in (0, 1, 9, 10, 105, 200)
    ]
    assert points == pytest.approx([1e-6, 0.1, 0.9, 1.0, 0.5, 0.0], abs=1e-12)


def test_linear_schedules_with_warmup_equal_graphgps():
    """Values of ``get_linear_schedule_with_warmup`` and its polynomial sister, at powers of 1."""
    for warmup, epochs in ((2, 6), (0, 4), (10, 5)):
        linear, polynomial = [], []
        for epoch in range(epochs):
            left = (epochs - epoch) / max(1, epochs - warmup)
            before = epoch / max(1, warmup)
            linear.append(0.5 * (max(1e-6, before) if epoch < warmup else left))
            polynomial.append(0.5 * before if epoch < warmup else 1e-7 + (0.5 - 1e-7) * left)
        for kind, expected in (("linear", linear), ("polynomial", polynomial)):
            config = ScheduleConfig(kind=f"{kind}_with_warmup", warmup_epochs=warmup)
            assert rates(config, epochs, [None] * epochs) == pytest.approx(expected, rel=1e-12)


def test_per_step_is_the_same_curve_over_all_steps():
    learning_rates = rates(ScheduleConfig(warmup_epochs=2, per="step"), 5, [None] * 35, steps=7)
    assert learning_rates == rates(ScheduleConfig(warmup_epochs=14), 35, [None] * 35)
    assert learning_rates[14] == max(learning_rates) == 0.5
    assert rates(ScheduleConfig(kind="constant", warmup_epochs=4), 8, [None] * 8) == [0.5] * 8


def test_reduce_on_plateau_halves_after_patience_and_takes_the_last_loss_there_is():
    config = ScheduleConfig(kind="reduce_on_plateau", patience=2)
    # None before the first loss; best at epoch 3, and the third bad one exceeds the patience of
    # two.
    losses = [None, None, 1.0, 0.9, 0.9, *[None] * 6]
    for part in ("val", "train"):
        assert rates(config, 100, losses, part=part) == [0.5] * 7 + [0.25] * 3 + [0.125]
    config = ScheduleConfig(kind="reduce_on_plateau", patience=2, min_lr=0.2)
    assert rates(config, 100, losses) == [0.5] * 7 + [0.25] * 3 + [0.2]


def test_a_k_schedule_begins_and_ends_at_its_given_values():
    for text, expected in (
        ("linear:10:2", [10, 8, 6, 4, 2]),
        ("cosine:50:5", [50, 43, 28, 12, 5]),
        ("cosine:3:9", [3, 4, 6, 8, 9]),
    ):
        assert [KSchedule.parse(text).k_in_epoch(epoch, 5) for epoch in range(5)] == expected
    for text in ("cosine:5", "cosine:5:0", "step:5:2"):
        with raises(ValueError, naming=text):
            KSchedule.parse(text)


def test_run_trains_with_k_schedule_and_evaluates_with_last_k(tmp_path, monkeypatch):
    used = []
    attend = kmip.kmip_attention_with_weights

    def noting(queries, keys, values, k, **options):
        used.append((queries.requires_grad, k))
        return attend(queries, keys, values, k, **options)

    config = tiny_config(
        learnable_build(tmp_path / "build", graphs=6),
        model={"layers": 1, "k": 2},
        training={"epochs": 3, "k_schedule": "linear:6:2"},
    )
    monkeypatch.setattr(kmip, "kmip_attention_with_weights", noting)
    train(config, home=Home(tmp_path / "home"), quiet=True)
    steps = [k for training, k in used[used.index((True, 6)) :] if training]
    assert list(dict.fromkeys(steps)) == [6, 4, 2]
    assert {k for training, k in used if not training} == {2}


def test_a_gpu_steps_in_one_launch_unless_half_precision_is_clipped():
    fused = []
    for precision, clip in (("32", 1), ("16-mixed", 0), ("16-mixed", 1)):
        config = options(f"training.precision={precision}", f"training.clip_norm={clip}")
        assert not config.training.can_fuse_step("cpu")
        fused.append(config.training.can_fuse_step("cuda"))
        optimizer = build_optimizer(network(), config.optimizer, fused=fused[-1])
        assert bool(optimizer.defaults["fused"]) == fused[-1]
    assert fused == [True, True, False]
