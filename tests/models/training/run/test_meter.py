"""Measurements of an epoch's steps against a direct computation, and what stops a run."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from support.city_data import streets_build
from support.training_data import CLASSES, learnable_build, read_history, tiny_config

from kmip_data.builds.home import Home
from kmip_data.errors import CheckFailed
from kmip_data.models.network import build_model
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.run import module as module_file
from kmip_data.models.training.run import train as run_file
from kmip_data.models.training.run.checkpoint import LAST, cosine_with_warmup
from kmip_data.models.training.run.module import NAMED, STEP, Meter, TrainingModule
from kmip_data.models.training.run.train import resume, train
from kmip_data.models.training.tasks import weighted_cross_entropy
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    order = list(range(17))
    return learnable_build(
        tmp_path_factory.mktemp("data") / "build",
        graphs=17,
        parts={"train": order[:13], "val": order[13:15], "test": order[15:]},
    )


def test_norms_and_losses_of_each_step_are_those_of_the_loop_written_out(build, tmp_path):
    """Seven batches, three a step, the last alone; norms before the clipping that they bring about."""
    config = tiny_config(
        build,
        model={"dropout": 0.0},
        training={"epochs": 2, "batch_size": 2, "accumulate": 3, "shuffle": False, "clip_norm": 0.01},
        system={"log_every": 1},
    )
    run = train(config, home=Home(tmp_path), quiet=True).runs[0]

    torch.manual_seed(0)
    model = build_model(config.model, in_channels=6, num_classes=CLASSES)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    expected = []
    for epoch in range(2):
        optimiser.param_groups[0]["lr"] = 1e-2 * cosine_with_warmup(epoch, warmup=0, epochs=2)
        losses = []
        for number, batch in enumerate(GraphLoader(ShardedDataset(build, "train"), 2, compact=True)):
            losses.append(weighted_cross_entropy(model(batch), batch.y))
            (losses[-1] / 3).backward()
            if number in {2, 5, 6}:
                norm = math.sqrt(
                    sum(float((p.grad.double() ** 2).sum()) for p in model.parameters() if p.grad is not None)
                )
                expected.append(
                    (epoch, len(expected), sum(loss.item() for loss in losses) / len(losses), norm)
                )
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
                optimiser.step()
                optimiser.zero_grad()
                losses = []

    rows, history = read_history(run, "steps.csv"), read_history(run)
    assert len(rows) == len(expected) == 6
    for row, (epoch, step, loss, norm) in zip(rows, expected, strict=True):
        assert tuple(row) == STEP
        assert (row["epoch"], row["step"]) == (epoch, step)
        assert row["loss"] == pytest.approx(loss, rel=1e-4)
        assert row["grad_norm"] == pytest.approx(norm, rel=1e-4)
    for epoch, row in enumerate(history):
        norms = [norm for at, _, _, norm in expected if at == epoch]
        assert row["grad_norm"] == pytest.approx(sum(norms) / 3, rel=1e-4)
        assert row["grad_norm_max"] == pytest.approx(max(norms), rel=1e-4)
        assert 0 <= row["share_waiting"] < 1
        assert row["peak_memory"] > 50e6
        nodes = int(ShardedDataset(build, "train").nodes.sum())
        assert row["nodes_per_second"] / row["graphs_per_second"] == pytest.approx(nodes / 13)


def test_times_are_sums_over_the_batches(monkeypatch):
    """A clock that is set by hand, two batches a step: 3 s of 10 waiting."""
    now = [0.0]
    monkeypatch.setattr(module_file.time, "perf_counter", lambda: now[0])
    meter = Meter(every=1, scaled=False)
    meter.begin(0, 0, 2, torch.device("cpu"))
    for number, (wait, work) in enumerate([(1.0, 4.0), (2.0, 3.0)]):
        batch = SimpleNamespace(num_graphs=2, num_nodes=10 * (number + 1))
        now[0] += wait
        meter.begin_batch(batch)
        meter.loss(torch.tensor(float(number)))
        if number:
            meter.norm(torch.tensor(5.0))
        now[0] += work
        meter.end_batch()
    row, (step,) = meter.read()
    step = dict(zip(STEP, step, strict=True))
    for found in (row, step):
        assert found["share_waiting"] == pytest.approx(0.3)
        assert found["graphs_per_second"] == pytest.approx(0.4)
        assert found["nodes_per_second"] == pytest.approx(3.0)
        assert found["grad_norm"] == pytest.approx(5.0)
    assert step["loss"] == 0.5


def test_a_logger_gets_the_epochs_and_the_steps(build, tmp_path, monkeypatch):
    logged = []
    monkeypatch.setattr(run_file, "build_logger", lambda *_: lambda *values: logged.append(values))
    config = tiny_config(build, training={"epochs": 2}, system={"log_every": 2})
    run = train(config, home=Home(tmp_path), quiet=True).runs[0]
    steps = [(values, number) for values, number in logged if "step/grad_norm" in values]
    for row, (values, number) in zip(read_history(run, "steps.csv"), steps, strict=True):
        assert row["step"] == number
        assert {f"step/{name}": row[name] for name in STEP[2:]} == values
    epochs = [(number, values) for values, number in logged if "grad_norm_max" in values]
    expected = [(epoch, row) for epoch, row in enumerate(read_history(run))]
    assert [(number, {"epoch": number, **values}) for number, values in epochs] == expected


# What stops a run.


def spoiled(monkeypatch, *, epoch, batch, what):
    """Let the loss, or the gradient alone, become NaN in one batch."""
    learn = TrainingModule.learn

    def spoiling(self, data, *keep):
        logits, target, loss, backward = learn(self, data, *keep)
        if (self.epoch, self.meter.newest) == (epoch, batch):
            if what == "loss":
                loss = backward = loss * math.nan
            else:  # 0, and its gradient 0 · ∞
                backward = backward + torch.sqrt((next(self.model.parameters()) * 0).sum())
        return logits, target, loss, backward

    monkeypatch.setattr(TrainingModule, "learn", spoiling)


def keys_by_hand(build, config, epoch, *batches):
    """Keys in the batches of an epoch: the loader's own batches, by what they hold."""
    dataset = ShardedDataset(build, "train")
    rows = {dataset[i].x.numpy().tobytes(): key for i, key in enumerate(dataset.keys)}
    loader = GraphLoader(dataset, config.training.batch_size, shuffle=True, seed=config.training.seed)
    loader.set_epoch(epoch)
    made = list(loader)
    return [rows[graph.x.numpy().tobytes()] for number in batches for graph in made[number].to_data_list()]


@pytest.mark.parametrize("late", [False, True], ids=["at once", "with the epoch's metrics"])
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_run_that_diverges_names_the_records_of_its_batch_and_can_go_on(
    build, tmp_path, monkeypatch, what, late
):
    """Late, as on a GPU, where nothing is read before the epoch's end."""
    config = tiny_config(build)  # 13 graphs: batches of 3, steps of 2, 2 and 1 of them
    if late:
        begin = Meter.begin

        def beginning(self, *args):
            begin(self, *args)
            self.at_once = False

        monkeypatch.setattr(Meter, "begin", beginning)
    home = Home(tmp_path)
    with monkeypatch.context() as patch:
        spoiled(patch, epoch=1, batch=2, what=what)
        with pytest.raises(CheckFailed) as caught:
            train(config, home=home, name="astray", quiet=True)
    batches = (2,) if what == "loss" else (2, 3)
    where = "batch 3" if what == "loss" else "batches 3 to 4"
    title = "The loss is nan" if what == "loss" else "The gradient's norm is nan"
    assert caught.value.what == f"{title}, training in epoch 2, {where} (step 5 of the run)."
    keys = keys_by_hand(build, config, 1, *batches)
    assert caught.value.parts["found"] == f"{len(keys)} records: {', '.join(keys)}"
    (run,) = home.runs.glob("*/*/astray")
    assert caught.value.parts["on disk"] == f"{run}; the checkpoint after epoch 1 is kept"
    assert f"kmip-data train --resume {run} --set optimiser.lr=0.001" in caught.value.parts["next"]
    state = torch.load(run / LAST, weights_only=True)
    assert state["epoch"] == 1
    assert all(torch.isfinite(weight).all() for weight in state["model"].values())

    assert resume(run, home=home, overrides=["optimiser.lr=0.001"], quiet=True).results[0].epochs == 3
    rates = [row["lr"] for row in read_history(run)]
    shape = [cosine_with_warmup(epoch, warmup=0, epochs=3) for epoch in range(3)]
    assert rates == pytest.approx([0.01 * shape[0], 0.001 * shape[1], 0.001 * shape[2]])
    assert read_config(run / "config.toml").optimiser.lr == 0.001


def test_numbers_that_the_search_refuses_name_the_records_too(build, tmp_path, monkeypatch):
    """The weights are sound and the input is not: exit code 1, as for any run that diverged."""
    learn = TrainingModule.learn

    def spoiling(self, batch, *keep):
        if (self.epoch, self.meter.newest) == (1, 2):
            batch.x[0, 0] = math.inf
        return learn(self, batch, *keep)

    monkeypatch.setattr(TrainingModule, "learn", spoiling)
    config = tiny_config(build)
    with pytest.raises(CheckFailed) as caught:
        train(config, home=Home(tmp_path), quiet=True)
    what = "The numbers inside the network are not finite numbers, training in epoch 2, batch 3."
    assert caught.value.what == what
    assert ", ".join(keys_by_hand(build, config, 1, 2)) in caught.value.parts["found"]


def test_a_long_list_of_records_is_cut(tmp_path, monkeypatch):
    order = list(range(NAMED + 9))
    build = learnable_build(
        tmp_path / "build", graphs=len(order), parts={"train": order[4:], "val": [0, 1], "test": [2, 3]}
    )
    spoiled(monkeypatch, epoch=0, batch=0, what="loss")
    with pytest.raises(CheckFailed, match="loss is nan") as caught:
        train(tiny_config(build, training={"batch_size": 99}), home=Home(tmp_path), quiet=True)
    assert caught.value.parts["found"].endswith(" and 5 more")
    assert caught.value.parts["found"].count("graph/") == NAMED


@pytest.mark.parametrize("kind", ["cosine_with_warmup", "reduce_on_plateau"])
def test_another_rate_moves_all_rates_by_one_factor(build, tmp_path, kind, monkeypatch):
    home = Home(tmp_path)
    config = tiny_config(build, schedule={"kind": kind}, training={"epochs": 3})
    with monkeypatch.context() as patch:
        spoiled(patch, epoch=1, batch=0, what="loss")
        with pytest.raises(CheckFailed):
            train(config, home=home, name="a", quiet=True)
    (run,) = home.runs.glob("*/*/a")
    resume(run, home=home, overrides=["optimiser.lr=0.0025"], quiet=True)
    rates = [row["lr"] for row in read_history(run)]
    untouched = train(config, home=home, name="b", quiet=True).runs[0]
    expected = [row["lr"] for row in read_history(untouched)]
    assert rates == pytest.approx([expected[0], expected[1] / 4, expected[2] / 4])


def test_names_of_one_graphs_batches(tmp_path):
    build = streets_build(tmp_path / "build")
    for neighbors in ([], [3]):
        config = tiny_config(build, training={"neighbors": neighbors, "batch_size": 5})
        data = open_data(config, home=Home(tmp_path))
        for number, batch in enumerate(data.batches(lambda: 2)):
            names = data.names(2, number)
            if neighbors:
                seeds = batch.n_id[batch.train_mask].tolist()
                assert [name.split(" of ")[0] for name in names] == [f"node {seed}" for seed in seeds]
            else:
                assert names == data._records(data.config).keys


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_measuring_waits_for_nothing_on_a_gpu():
    device = torch.device("cuda")
    meter = Meter(every=1, scaled=False)
    loss, batch = torch.ones((), device=device), SimpleNamespace(num_graphs=2, num_nodes=10)
    torch.cuda.set_sync_debug_mode("error")
    try:
        meter.begin(0, 0, 1, device)
        meter.begin_batch(batch)
        meter.loss(loss)
        meter.norm(3 * loss)
        meter.end_batch()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert meter.read()[0]["grad_norm"] == 3


def test_steps_are_logged_every_so_often(build, tmp_path):
    for every, steps in ((0, None), (2, [0, 2, 4, 6, 8]), (50, [0])):  # three steps an epoch
        config = tiny_config(build, system={"log_every": every})
        run = train(config, home=Home(tmp_path / str(every)), quiet=True).runs[0]
        found = (run / "steps.csv").is_file() and [row["step"] for row in read_history(run, "steps.csv")]
        assert found == (steps or False), every
