"""Optimisers by name against PyTorch's own; which parameters are decayed; what is refused."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest
import torch
from torch import nn

from kmip_data.errors import UsageError
from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model
from kmip_data.models.registry import ATTENTION, MESSAGE_PASSING
from kmip_data.models.training.config.optimisers import FURTHER, TAKES, OptimiserConfig, build_optimiser
from kmip_data.models.training.config.overrides import apply_overrides, config_from_mapping

CLASSES = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
    "asgd": torch.optim.ASGD,
}
VALUES = {"betas": (0.8, 0.95), "momentum": 0.7, "eps": 1e-3, "fused": True}


def config(*settings):
    return apply_overrides(config_from_mapping({"data": {"dataset": "s3dis"}}, "the test"), settings)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def learn(model, optimiser, steps=5):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimiser.zero_grad()
        model(torch.randn(6, 3, generator=generator)).square().mean().backward()
        optimiser.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_every_name_has_its_class_and_what_that_takes() -> None:
    names = get_args(OptimiserConfig.model_fields["name"].annotation)
    assert set(names) == set(CLASSES) == set(TAKES)
    for name, kind in CLASSES.items():
        assert TAKES[name] == set(FURTHER) & set(inspect.signature(kind).parameters), name


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("further", [False, True])
def test_steps_equal_those_of_pytorchs_own(name: str, further: bool) -> None:
    more = {key: VALUES[key] for key in sorted(TAKES[name]) if further}
    ours, theirs = network(), network()
    settings = OptimiserConfig(name=name, lr=0.01, weight_decay=0.1, **more)
    found = learn(ours, build_optimiser(ours, settings))
    optimiser = CLASSES[name](theirs.parameters(), lr=0.01, weight_decay=0.1, **more)
    assert all(map(torch.equal, found, learn(theirs, optimiser)))


def test_the_default_is_what_runs_had_before() -> None:
    ours, theirs = network(), network()
    optimiser = build_optimiser(ours, OptimiserConfig())
    before = torch.optim.AdamW(theirs.parameters(), lr=1e-3, weight_decay=0.0)
    assert [group | {"params": 0} for group in optimiser.param_groups] == [
        group | {"params": 0} for group in before.param_groups
    ]
    assert all(map(torch.equal, learn(ours, optimiser), learn(theirs, before)))


def test_norms_and_biases_are_not_decayed_where_asked() -> None:
    model = network()
    settings = OptimiserConfig(name="sgd", lr=0.1, weight_decay=0.5, decay_norms_and_biases=False)
    optimiser = build_optimiser(model, settings)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for name, parameter in model.named_parameters():
        expected = before[name] * 0.95 if name in {"0.weight", "3.weight"} else before[name]
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("attention", "local"),
    [(kind, "gated-gcn") for kind in ATTENTION]
    + [("none", kind) for kind in MESSAGE_PASSING if kind != "none"],
)
def test_vectors_of_a_network_are_its_norms_and_biases(attention: str, local: str) -> None:
    parts = {"attention": {"kind": attention}, "local": {"kind": local}}
    model = build_model(
        ModelConfig.model_validate({"layers": 1, "hidden_dim": 16, **parts}), in_channels=3, num_classes=2
    )
    for name, parameter in model.named_parameters():
        assert (parameter.ndim < 2) == (name.endswith("bias") or "norm" in name), name


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["optimiser.name=adma"], "adamw | adam"),
        (["optimiser.momentum=0.9"], "adamw takes no momentum; rmsprop, sgd do"),
        (["optimiser.name=sgd", "optimiser.betas=[0.9, 0.99]"], "sgd takes no betas"),
        (["optimiser.name=radam", "optimiser.fused=true"], "radam takes no fused"),
        (["optimiser.betas=[0.9, 1.5]"], "optimiser.betas cannot be"),
        (["optimiser.fused=true", "training.precision=16-mixed"], "training.clip_norm must be 0"),
        (["training.ema=1"], "training.ema cannot be '1'"),
        (["training.patience=0"], "training.patience cannot be '0'"),
        (["schedule.kind=reduce_on_plateau", "schedule.per=step"], "once an epoch"),
    ],
)
def test_refusals(settings: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        config(*settings)
    assert words in str(caught.value)


def test_settings_of_the_command_line() -> None:
    found = config("optimiser.name=sgd", "optimiser.momentum=0.9", "optimiser.fused=true").optimiser
    assert (found.name, found.momentum, found.fused) == ("sgd", 0.9, True)
    assert config("optimiser.betas=[0.9, 0.95]").optimiser.betas == (0.9, 0.95)
    assert config("training.patience=none", "training.ema=0.99").training.ema == 0.99
