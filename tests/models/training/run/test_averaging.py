"""Averaged weights, early stopping and the best epochs: against PyTorch's own and their definitions."""

from __future__ import annotations

import copy

import pytest
import torch
from safetensors.torch import load_file
from support.training_data import learnable_build, read_history, tiny_config
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from kmip_data.builds.home import Home
from kmip_data.models.training.run import loop as loop_file
from kmip_data.models.training.run.checkpoint import BEST, WEIGHTS, Average
from kmip_data.models.training.run.evaluate import evaluate
from kmip_data.models.training.run.folder import read_result
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
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        optimiser.zero_grad()
        model(torch.randn(6, 3)).square().mean().backward()
        optimiser.step()
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


def test_the_network_has_the_average_while_it_is_measured_and_its_own_weights_afterwards() -> None:
    model, average = network(), Average(0.8)
    for _ in steps(model):
        average.update(model)
    before = copy.deepcopy(model.state_dict())
    with average.within(model):
        assert all(torch.equal(tensor, average.weights[name]) for name, tensor in model.state_dict().items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_run_evaluates_and_saves_the_averaged_weights(build, tmp_path, monkeypatch) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    update = Average.update

    def noting(self, model):
        update(self, model)
        seen.append({name: tensor.clone() for name, tensor in model.named_parameters()})

    monkeypatch.setattr(Average, "update", noting)
    home = Home(tmp_path)
    run = train(tiny_config(build, training={"epochs": 3, "ema": 0.5}), home=home, quiet=True).runs[0]
    last = read_result(run).best_epoch
    average: dict[str, torch.Tensor] = {}
    for weights in seen[: (last + 1) * len(seen) // 3]:
        average = {name: torch.lerp(average.get(name, new), new, 0.5) for name, new in weights.items()}
    saved = load_file(run / WEIGHTS)
    for name, tensor in average.items():
        torch.testing.assert_close(saved[name], tensor.detach(), rtol=1e-5, atol=1e-7)
    assert evaluate(run, home=home).same


def test_an_average_changes_nothing_of_what_is_learned(build, tmp_path) -> None:
    rows = []
    for ema in (None, 0.9):
        home = Home(tmp_path / str(ema))
        run = train(tiny_config(build, training={"epochs": 3, "ema": ema}), home=home, quiet=True).runs[0]
        rows.append(read_history(run))
    learned = [[(row["lr"], row["train_loss"], row["train_f1"]) for row in history] for history in rows]
    assert learned[0] == learned[1]
    assert [row["val_loss"] for row in rows[0]] != [row["val_loss"] for row in rows[1]]


def scripted(monkeypatch, values):
    """Let the validation F1 of the run be ``values``, one an evaluation."""
    script = iter(values)

    def evaluate_parts(module, data, parts, device):
        value = next(script, values[-1])
        return {part: {"loss": 1.0, "accuracy": value, "f1": value, "miou": value} for part in parts}

    monkeypatch.setattr(loop_file, "evaluate_parts", evaluate_parts)


def evaluations_until(values, patience):
    """Evaluations of a run that ends after ``patience`` without a better one; NaN is never better."""
    best, waited = -1.0, 0
    for number, value in enumerate(values, start=1):
        waited = 0 if value > best else waited + 1
        best = max(best, value) if value == value else best
        if waited == patience:
            return number
    return len(values)


def test_patience_counts_evaluations(build, tmp_path, monkeypatch, capsys) -> None:
    scripted(monkeypatch, [0.1, 0.5, 0.4, 0.3, 0.9])
    training = {"epochs": 20, "patience": 2, "eval_every": 3, "metric": "f1"}
    run = train(tiny_config(build, training=training), home=Home(tmp_path), quiet=False).runs[0]
    # Evaluated after epochs 1, 3, 6 and 9: the second is the best, and two follow it.
    assert (read_result(run).epochs, read_result(run).best_epoch) == (9, 2)
    assert "stopped: no better val F1 in 2 evaluations" in capsys.readouterr().err.replace("macro ", "")


def test_the_best_epoch_is_kept(build, tmp_path, monkeypatch) -> None:
    values = [0.3, float("nan"), 0.5, 0.3, 0.4, 0.5, 0.1]
    scripted(monkeypatch, values)
    run = train(
        tiny_config(build, training={"epochs": 7, "metric": "f1"}), home=Home(tmp_path), quiet=True
    ).runs[0]
    # Equal metrics: the earlier epoch is the better one.
    assert read_result(run).best_epoch == 2
    assert (run / BEST).read_bytes() == (run / WEIGHTS).read_bytes()


def test_early_stopping_is_that_of_its_definition(build, tmp_path, monkeypatch) -> None:
    nan = float("nan")
    for number, (patience, values) in enumerate(
        [
            (1, [0.1, 0.2, 0.2, 0.1, 0.3, 0.2, 0.1, 0.0]),
            (2, [0.1, nan, 0.2, nan, nan, 0.3, 0.1, 0.1]),
            (3, [0.1, nan, 0.2, nan, nan, 0.3, 0.1, 0.1]),
        ]
    ):
        scripted(monkeypatch, values)
        training = {"epochs": 8, "patience": patience, "metric": "f1"}
        home = Home(tmp_path / str(number))
        run = train(tiny_config(build, training=training), home=home, quiet=True).runs[0]
        expected = evaluations_until(values, patience)
        assert read_result(run).epochs == len(read_history(run)) == expected, (patience, values)
