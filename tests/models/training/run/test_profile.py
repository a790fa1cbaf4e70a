"""The trace of a few steps: which, where it lies, and that it changes nothing."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from support.training_data import learnable_build, tiny_config

from kmip_data.builds.home import Home
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.run.checkpoint import WEIGHTS
from kmip_data.models.training.run.profile import TABLE_NAME, TRACE_NAME, TRACED, WARM_UP
from kmip_data.models.training.run.train import train


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return learnable_build(tmp_path_factory.mktemp("data") / "build", graphs=16)


def steps_of(run):
    """Backward passes in the trace."""
    events = json.loads((run / TRACE_NAME).read_text("utf-8"))["traceEvents"]
    return sum(event["name"] == "autograd::engine::evaluate_function: NllLossBackward0" for event in events)


@pytest.mark.parametrize(
    ("batch_size", "epochs", "traced"),
    [(1, 1, TRACED), (3, 2, 4 - WARM_UP), (12, 4, 1), (12, 1, 1)],
    ids=["enough batches", "to the end of the epoch", "one batch an epoch", "a single batch"],
)
def test_a_few_batches_are_traced_and_learned_from_as_ever(
    build, tmp_path, capsys, batch_size, epochs, traced
):
    config = tiny_config(build, training={"batch_size": batch_size, "epochs": epochs})
    plain = train(config, home=Home(tmp_path), name="plain", quiet=True).runs[0]
    config = apply_overrides(config, ["system.profile=true"])
    run = train(config, home=Home(tmp_path), name="traced").runs[0]
    assert steps_of(run) == traced
    said = capsys.readouterr().err
    table = (run / TABLE_NAME).read_text("utf-8")
    assert "profile: train batches " in said
    assert table.strip() in said
    assert "kmip_data::search" in table
    assert not list(run.glob("*.partial"))
    assert not (plain / TRACE_NAME).exists()
    one, two = load_file(plain / WEIGHTS), load_file(run / WEIGHTS)
    assert all(torch.equal(one[name], two[name]) for name in one)
