"""Measurements of an epoch against a direct computation, and numbers that stop a run."""

from __future__ import annotations

import math

import pytest
import torch
from support.training_data import learnable_build, tiny_config

from kmip_data.builds.home import Home
from kmip_data.errors import CheckFailed
from kmip_data.models.training.run.checkpoint import LAST
from kmip_data.models.training.run.module import Meter, TrainingModule
from kmip_data.models.training.run.train import train


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    order = list(range(17))
    parts = {"train": order[:13], "val": order[13:15], "test": order[15:]}
    return learnable_build(tmp_path_factory.mktemp("data") / "build", graphs=17, parts=parts)


def test_scaled_losses_may_overflow_a_gradient():
    """Five batches, two a step: norms of batches 2, 4 and 5 count, an infinite one only if it is unscaled."""
    for scaled, fault in ((True, None), (False, ("The gradient's norm is inf", 3, 11))):
        meter = Meter(2, scaled=scaled)
        meter.begin(10, 5, torch.device("cpu"))
        for batch, norm in enumerate([None, 2.0, None, math.inf, 4.0]):
            meter.note(batch, torch.tensor(9.0), norm and torch.tensor(norm))
        assert meter.fault() == fault
        assert {**meter.read(), "peak_memory": 0} == {"grad_norm": 3, "grad_norm_max": 4, "peak_memory": 0}


@pytest.mark.parametrize("what", ["loss", "gradient", "input", "weights"])
def test_a_run_that_diverges_names_batch_and_step_and_keeps_its_checkpoint(
    build, tmp_path, monkeypatch, what
):
    learn, calls = TrainingModule.learn, []

    def spoiling(self, data, *keep):
        calls.append(self.epoch)
        spoilt = self.epoch == 1 and calls.count(1) == 3
        if spoilt and what == "input":
            data.x[0, 0] = math.inf
        elif spoilt and what == "weights":
            next(self.parameters()).data.fill_(math.inf)
        logits, target, loss, backward = learn(self, data, *keep)
        if spoilt and what == "loss":
            loss = backward = loss * math.nan
        elif spoilt:  # 0, and its gradient 0 · ∞
            backward = backward + torch.sqrt((next(self.model.parameters()) * 0).sum())
        return logits, target, loss, backward

    monkeypatch.setattr(TrainingModule, "learn", spoiling)
    config = tiny_config(build)  # 13 graphs: batches of 3, steps of 2, 2 and 1 of them
    with pytest.raises(CheckFailed) as caught:
        train(config, home=Home(tmp_path), name="astray", quiet=True)
    words = {
        "loss": "The loss is nan, training in epoch 2, batch 3 (step 5 of the run).",
        "gradient": "The gradient's norm is nan, training in epoch 2, batch 4 (step 5 of the run).",
        "input": "The numbers inside the network are not finite numbers, training in epoch 2, batch 3.",
        "weights": "The weights are not finite numbers, training in epoch 2, batch 3.",
    }
    assert caught.value.what == words[what]
    (run,) = tmp_path.glob("runs/*/*/astray")
    state = torch.load(run / LAST, weights_only=True)
    assert state["epoch"] == 1
    assert all(torch.isfinite(weight).all() for weight in state["model"].values())
