"""Measurements of an epoch against a direct computation, and numbers that stop a run."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from support.training_data import CLASSES, learnable_build, read_history, tiny_config

from kmip_data.builds.home import Home
from kmip_data.errors import CheckFailed
from kmip_data.models.network import build_model
from kmip_data.models.training.run import module as module_file
from kmip_data.models.training.run import train as run_file
from kmip_data.models.training.run.checkpoint import LAST, cosine_with_warmup
from kmip_data.models.training.run.module import Meter, TrainingModule
from kmip_data.models.training.run.train import train
from kmip_data.models.training.tasks import weighted_cross_entropy
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    order = list(range(17))
    parts = {"train": order[:13], "val": order[13:15], "test": order[15:]}
    return learnable_build(tmp_path_factory.mktemp("data") / "build", graphs=17, parts=parts)


def test_an_epoch_against_the_loop_written_out(build, tmp_path, monkeypatch):
    """Seven batches, three a step, the last alone; norms before clipping; a logger gets the same rows."""
    logged = []
    monkeypatch.setattr(run_file, "build_logger", lambda *_: lambda *row: logged.append(row))
    training = {"epochs": 2, "batch_size": 2, "accumulate": 3, "shuffle": False, "clip_norm": 0.01}
    config = tiny_config(build, model={"dropout": 0.0}, training=training)
    history = read_history(train(config, home=Home(tmp_path), quiet=True).runs[0])

    torch.manual_seed(0)
    model = build_model(config.model, in_channels=6, num_classes=CLASSES)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for epoch, row in enumerate(history):
        optimiser.param_groups[0]["lr"] = 1e-2 * cosine_with_warmup(epoch, warmup=0, epochs=2)
        norms = []
        for number, batch in enumerate(GraphLoader(ShardedDataset(build, "train"), 2, compact=True)):
            (weighted_cross_entropy(model(batch), batch.y) / 3).backward()
            if number in {2, 5, 6}:
                gradients = [p.grad.double() for p in model.parameters() if p.grad is not None]
                norms.append(math.sqrt(sum(float((each**2).sum()) for each in gradients)))
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                optimiser.step()
                optimiser.zero_grad()
        assert row["grad_norm"] == pytest.approx(sum(norms) / 3, rel=1e-4)
        assert row["grad_norm_max"] == pytest.approx(max(norms), rel=1e-4)
        assert row["peak_memory"] > 50e6
    assert [(number, {"epoch": number, **values}) for values, number in logged] == list(enumerate(history))


def test_times_are_sums_over_the_batches(monkeypatch):
    """A clock that is set by hand, two batches a step: 3 s of 10 waiting; a resumed epoch counts both."""
    now = [0.0]
    monkeypatch.setattr(module_file.time, "perf_counter", lambda: now[0])
    meter, resumed = Meter(scaled=False), Meter(scaled=False)
    meter.begin(0, 2, torch.device("cpu"))
    for number, (wait, work) in enumerate([(1.0, 4.0), (2.0, 3.0)]):
        now[0] += wait
        meter.begin_batch(SimpleNamespace(num_graphs=2, num_nodes=10 * (number + 1)))
        if number:
            meter.norm(torch.tensor(5.0))
        now[0] += work
        meter.end_batch()
    resumed.begin(0, 2, torch.device("cpu"))
    resumed.load(meter.state())
    for row in (meter.read(), resumed.read()):
        found = [
            row[name] for name in ("share_waiting", "graphs_per_second", "nodes_per_second", "grad_norm")
        ]
        assert found == pytest.approx([0.3, 0.4, 3.0, 5.0])
    assert meter.seconds() == resumed.seconds() == [(5.0, 2), (5.0, 2)]


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_measuring_waits_for_nothing_on_a_gpu():
    device = torch.device("cuda")
    meter = Meter(scaled=False)
    loss, batch = torch.ones((), device=device), SimpleNamespace(num_graphs=2, num_nodes=10)
    torch.cuda.set_sync_debug_mode("error")
    try:
        meter.begin(0, 1, device)
        meter.begin_batch(batch)
        meter.loss(loss)
        meter.norm(3 * loss)
        meter.end_batch()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert meter.read()["grad_norm"] == 3
