"""Averaged weights, early stopping and the best epochs: against PyTorch's own and their definitions."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file
from support.builds.learnable import learnable_build, tiny_config
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from kmip_data.builds.home import Home
from kmip_data.models.training.run import loop as loop_file
from kmip_data.models.training.run.averaging import Average
from kmip_data.models.training.run.evaluate import evaluate
from kmip_data.models.training.run.folder import BEST, WEIGHTS
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.train import train


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return learnable_build(tmp_path_factory.mktemp("data") / "build")


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    model.register_buffer("features", torch.zeros(2))
    return model


def steps(model, count=6):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(6, 3)).square().mean().backward()
        optimizer.step()
        model.features.add_(1.0)
        yield


def test_the_average_is_pytorchs_and_that_of_the_definition() -> None:
    model, average = network(), Average(0.8)
    theirs = AveragedModel(model, avg_fn=get_ema_avg_fn(0.8))
    slow: dict[str, torch.Tensor] = {}
    for _ in steps(model):
        average.update(model)
        theirs.update_parameters(model)
        for name, tensor in model.state_dict().items():
            new = tensor.double()
            mean = name not in {"features", "1.num_batches_tracked"} and name in slow
            slow[name] = 0.8 * slow[name] + 0.2 * new if mean else new.clone()
    for name, parameter in theirs.module.named_parameters():
        torch.testing.assert_close(average.weights[name], parameter.detach(), rtol=1e-6, atol=1e-7)
    for name, tensor in slow.items():
        torch.testing.assert_close(average.weights[name].double(), tensor, rtol=1e-5, atol=1e-7)
    assert average.weights["features"].tolist() == [6.0, 6.0]
    before = copy.deepcopy(model.state_dict())
    with average.within(model):  # while it is measured; its own weights afterwards
        assert all(
            torch.equal(tensor, average.weights[name])
            for name, tensor in model.state_dict().items()
        )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_run_evaluates_and_saves_the_averaged_weights(build, tmp_path, monkeypatch) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    update = Average.update

    def noting(self, model):
        update(self, model)
        seen.append({name: tensor.clone() for name, tensor in model.named_parameters()})

    monkeypatch.setattr(Average, "update", noting)
    home = Home(tmp_path)
    run = train(tiny_config(build, training={"epochs": 3, "ema": 0.5}), home=home, quiet=True).runs[
        0
    ]
    last = read_result(run).best_epoch
    average: dict[str, torch.Tensor] = {}
    for weights in seen[: (last + 1) * len(seen) // 3]:
        average = {
            name: torch.lerp(average.get(name, new), new, 0.5) for name, new in weights.items()
        }
    saved = load_file(run / WEIGHTS)
    for name, tensor in average.items():
        torch.testing.assert_close(saved[name], tensor.detach(), rtol=1e-5, atol=1e-7)
    assert evaluate(run, home=home).same


def scripted(monkeypatch, values):
    """Let the validation F1 of the run be ``values``, one an evaluation."""
    script = iter(values)

    def evaluate_parts(module, data, parts, device):
        value = next(script, values[-1])
        return {
            part: {"loss": 1.0, "accuracy": value, "f1": value, "miou": value} for part in parts
        }

    monkeypatch.setattr(loop_file, "evaluate_parts", evaluate_parts)


def test_patience_counts_evaluations(build, tmp_path, monkeypatch, capsys) -> None:
    scripted(monkeypatch, [0.1, 0.5, 0.4, 0.3, 0.9])
    training = {"epochs": 20, "patience": 2, "eval_every": 3, "metric": "f1"}
    run = train(tiny_config(build, training=training), home=Home(tmp_path), quiet=False).runs[0]
    # Evaluated after epochs 1, 3, 6 and 9: the second is the best, and two follow it.
    assert (read_result(run).epochs, read_result(run).best_epoch) == (9, 2)
    assert "stopped: no better val macro F1 in 2 evaluations" in capsys.readouterr().err


@pytest.mark.parametrize("patience", [None, 3])
def test_the_first_of_equal_epochs_is_kept_and_nan_is_never_better(
    build, tmp_path, monkeypatch, patience
) -> None:
    scripted(monkeypatch, [0.3, float("nan"), 0.5, 0.3, 0.4, 0.5, 0.1])
    training = {"epochs": 7, "metric": "f1", "patience": patience}
    run = train(tiny_config(build, training=training), home=Home(tmp_path), quiet=True).runs[0]
    assert (read_result(run).epochs, read_result(run).best_epoch) == (
        7 if patience is None else 6,
        2,
    )
    assert (run / BEST).read_bytes() == (run / WEIGHTS).read_bytes()
