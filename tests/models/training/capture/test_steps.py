"""Steps captured and replayed by an emulated graph learn what plain ones do, and say where they cannot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support.builds.learnable import (
    OF_THE_MACHINE,
    learnable_build,
    read_history,
    streets_build,
    tiny_config,
)
from support.kernels.emulated_graph import EmulatedGraphs
from support.runs.captured import assert_same_runs, build_fused_optimizer, train_run
from torch_geometric.data import Batch, Data

from kmip_data.builds.home import Home
from kmip_data.models.layers import gated_gcn
from kmip_data.models.search.backends import cuda
from kmip_data.models.training.capture import steps
from kmip_data.models.training.capture.steps import shape_key, why_not_capturable
from kmip_data.models.training.config.overrides import config_from_mapping
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import copy_ahead
from kmip_data.models.training.devices import Device
from kmip_data.models.training.run import fit as fit_file
from kmip_data.models.training.run import loop
from kmip_data.models.training.run.train import resume, train
from kmip_data.runtime.memory import keeping_alive_for_capture

GPU, FIXED = Device("cuda", "a GPU", ""), SimpleNamespace(is_ragged=False, part_members="graphs")


@pytest.fixture(autouse=True)
def _operators_alone(monkeypatch):
    """The CPU's compiled kernels write to memory that no operator names."""
    monkeypatch.setattr(gated_gcn, "_find_kernel", lambda *_: None)


@pytest.fixture(scope="module")
def clouds(tmp_path_factory):
    """Eleven train graphs of one size: batches of three, three, three and two."""
    return learnable_build(tmp_path_factory.mktemp("data") / "build", graphs=15, varied=0)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_replayed_steps_equal_eager_steps(accumulate, clouds, tmp_path):
    """Batches are shuffled anew, the last is smaller; rates and dropout move."""
    changes = {
        "training": {"epochs": 8, "accumulate": accumulate},
        "model": {"dropout": 0.25},
    }
    graphs = EmulatedGraphs()
    plain, replayed = (train_run(clouds, tmp_path, each, **changes) for each in (None, graphs))
    assert_same_runs(plain, replayed)
    assert not replayed.told
    assert (
        graphs.captured == 1 + accumulate
    )  # whole batches, first ones of a step and others; the last
    assert graphs.replayed == 32 - steps.WARM_UP_BATCHES * graphs.captured


def test_a_city_is_captured_in_one_graph(tmp_path, streams, monkeypatch):
    monkeypatch.setattr(loop, "prefetch_to_device", copy_ahead)  # which knows the rows of the mask
    build = streets_build(tmp_path / "build", nodes=60)
    changes = {"training": {"epochs": 8, "accumulate": 1}}
    graphs = EmulatedGraphs()
    assert_same_runs(*(train_run(build, tmp_path, each, **changes) for each in (None, graphs)))
    assert (graphs.captured, graphs.replayed) == (1, 8 - steps.WARM_UP_BATCHES)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"name": "sgd", "momentum": 0.5}},
        {"model": {"k": 2}, "training": {"k_schedule": "linear:6:2"}},
        {"training": {"precision": "bf16-mixed"}},
        {"model": {"attention": {"kind": "performer"}, "local": {"kind": "gcn"}}},
    ],
    ids=["sgd", "k", "bfloat16", "performer"],
)
def test_replay_follows_changing_values(changes, clouds, tmp_path):
    """Momentum, rates by the step, groups of parameters, k, and further parts of networks."""
    if "attention" in changes.get("model", {}):  # keys of another kind
        changes = {
            **changes,
            "model": {**dict.fromkeys(("heads", "k", "key_dim")), **changes["model"]},
        }
    training = {"epochs": 8, "accumulate": 1, **changes.get("training", {})}
    graphs = EmulatedGraphs()
    sections = {**changes, "training": training}
    assert_same_runs(*(train_run(clouds, tmp_path, each, **sections) for each in (None, graphs)))
    assert graphs.replayed > 5


def test_a_captured_step_keeps_tensors_of_its_graph_alive(clouds, tmp_path):
    class Keeping(EmulatedGraphs):
        def capture(self, work):
            self.objects = []
            with keeping_alive_for_capture(self.objects):
                return super().capture(work)

    model = {**dict.fromkeys(("heads", "k", "key_dim")), "attention": {"kind": "performer"}}
    changes = {"optimizer": {"name": "sgd"}, "model": {**model, "local": {"kind": "gcn"}}}
    graphs = Keeping()
    assert_same_runs(*(train_run(clouds, tmp_path, each, **changes) for each in (None, graphs)))
    assert graphs.objects  # the tilings of its layers


def test_graphs_of_several_sizes_are_not_confused(tmp_path):
    """Equal numbers of nodes and edges, other graphs: what the host knows of them is part of the key."""
    build = learnable_build(tmp_path / "build", graphs=12, varied=1)
    changes = {"training": {"epochs": 8, "batch_size": 2, "accumulate": 1}}
    graphs = EmulatedGraphs()
    assert_same_runs(*(train_run(build, tmp_path, each, **changes) for each in (None, graphs)))
    assert graphs.captured > 2  # such as 24 and 25 nodes, and 25 and 24


def test_captured_steps_leave_an_evaluation_their_memory(clouds, tmp_path):
    """Captured steps are freed if memory is short or an evaluation runs out, and captured anew afterwards."""
    graphs = EmulatedGraphs()
    captured = train_run(clouds, tmp_path, graphs, training={"epochs": 4, "accumulate": 1}).captured
    assert len(captured._steps) == 2
    assert captured.run_with_free_memory(lambda: "measured") == "measured"
    assert len(captured._steps) == 2
    calls = []

    def runs_out():
        calls.append(1)
        if len(calls) == 1:
            raise torch.cuda.OutOfMemoryError
        return "measured"

    assert captured.run_with_free_memory(runs_out) == "measured"
    assert not captured._steps
    calls.clear()
    with pytest.raises(torch.cuda.OutOfMemoryError):  # without them there is nothing to drop
        captured.run_with_free_memory(runs_out)
    captured._steps["a shape"] = None
    graphs.free = 0
    assert captured.run_with_free_memory(lambda: len(captured._steps)) == 0


def test_uncapturable_steps_are_reported_and_train_eagerly(clouds, tmp_path):
    """The second shape fails; steps captured earlier are no longer replayed either."""

    class Failing(EmulatedGraphs):
        def capture(self, work):
            result = super().capture(work)
            if self.captured > 1:
                raise RuntimeError("operation not permitted\nwhen stream is capturing")
            return result

    changes = {"training": {"epochs": 4, "accumulate": 1}}
    graphs = Failing()
    plain, failed = (train_run(clouds, tmp_path, each, **changes) for each in (None, graphs))
    assert_same_runs(plain, failed)
    assert graphs.replayed == 7  # of the first three epochs the whole batches but two
    assert failed.told == ["steps: no longer captured: operation not permitted"]


def test_a_run_resumes_bit_for_bit(clouds, tmp_path, monkeypatch):
    """Stopped after three of six epochs; the first steps after that are plain ones again."""
    made = []

    def capturing(module, data, device, **options):
        made.append(EmulatedGraphs())
        options["captured"] = steps.CapturedSteps(made[-1], print)
        return Loop(module, data, device, **options)

    Loop = loop.Loop
    monkeypatch.setattr(fit_file, "Loop", capturing)
    monkeypatch.setattr(loop, "build_optimizer", build_fused_optimizer)
    config = tiny_config(clouds, training={"epochs": 6, "accumulate": 1})
    whole = train(config, home=Home(tmp_path / "whole"), quiet=True).runs[0]
    evaluate = loop.Loop.evaluate

    def stopped(self, epoch, row):
        if epoch == 3:
            raise KeyboardInterrupt
        return evaluate(self, epoch, row)

    with monkeypatch.context() as patched:
        patched.setattr(loop.Loop, "evaluate", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(config, home=Home(tmp_path / "parts"), quiet=True)
    run = next((tmp_path / "parts").glob("runs/*/*/*"))
    resume(run, home=tmp_path / "parts", quiet=True)
    assert [graphs.replayed for graphs in made] == [20, 12, 8]
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    rows = [
        [
            {name: row[name] for name in row if name not in OF_THE_MACHINE}
            for row in read_history(each)
        ]
        for each in (run, whole)
    ]
    assert rows[0] == rows[1]


def test_the_reason_against_capture_is_known_before_training(clouds, monkeypatch):
    monkeypatch.setattr(cuda, "why_unusable", lambda _: None)
    cpu, one = Device("cpu", "", ""), SimpleNamespace(is_ragged=False, part_members="nodes")
    by_epoch = {"model": {"k": 2}, "training": {"k_schedule": "linear:6:2"}}
    cases = [
        ({}, {}, None),
        ({}, {"recompute": True}, "recomputed layers"),
        ({}, {"device": cpu}, "no GPU"),
        (by_epoch, {}, None),
        (by_epoch, {"data": one}, "k_schedule changes k in every epoch, of one step"),
        (
            {},
            {"data": SimpleNamespace(is_ragged=True, part_members="graphs")},
            "batches differ in size",
        ),
        ({"system": {"capture": "off"}}, {}, "system.capture = off"),
        ({"system": {"devices": 2}}, {}, "several processes exchange gradients"),
        (
            {"training": {"precision": "16-mixed"}},
            {},
            "16-mixed looks at the gradients before it steps",
        ),
        ({"model": {"search": "dense"}}, {}, "the search dense waits for the GPU"),
    ]
    for changes, changed_options, reason in cases:
        options = {"data": FIXED, "device": GPU, "recompute": False, **changed_options}
        assert why_not_capturable(tiny_config(clouds, **changes), **options) == reason
    for attention, reason in (
        ({"kind": "bigbird"}, "BigBird's blocks are laid out on the host"),
        ({"kind": "exphormer"}, "Exphormer's expander is checked on the host"),
        ({"kind": "exphormer", "expander": 0}, None),
        ({"kind": "performer", "legacy_mask": True}, "the legacy mask is made on the host"),
        ({"kind": "transformer"}, None),
    ):
        config = config_from_mapping(
            {"data": {"dataset": "clouds"}, "model": {"attention": attention}}, "test"
        )
        assert why_not_capturable(config, FIXED, GPU, recompute=False) == reason
    monkeypatch.setattr(cuda, "why_unusable", lambda _: "not installed")
    assert why_not_capturable(tiny_config(clouds), FIXED, GPU, recompute=False) == "not installed"


def test_batches_of_different_shapes_are_not_captured_and_learn_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda, "why_unusable", lambda _: None)
    build = learnable_build(tmp_path / "build", graphs=15, varied=6)
    changes = {"training": {"epochs": 8, "accumulate": 1, "shuffle": True}}
    config = tiny_config(build, **changes)
    data = open_data(config, home=Home(tmp_path))
    assert why_not_capturable(config, data, GPU, recompute=False) == "batches differ in size"
    graphs = EmulatedGraphs()
    assert_same_runs(*(train_run(build, tmp_path, each, **changes) for each in (None, graphs)))
    assert not graphs.captured


def test_where_graphs_begin_must_be_known_on_the_host(clouds, tmp_path, monkeypatch):
    several = Batch.from_data_list([Data(x=torch.zeros(count, 1)) for count in (2, 3)])
    assert shape_key(several)[:3] == (0, 2, 5)
    several.x = several.x[:4]  # where its graphs begin now nothing on the host says
    assert shape_key(several) is None
    assert shape_key(several[0]) is not None
    monkeypatch.setattr(steps, "pointers_on_cpu", lambda *_: None)
    run = train_run(clouds, tmp_path, graphs := EmulatedGraphs(), training={"epochs": 2})
    (told,) = run.told
    assert "where the graphs of a batch begin" in told
    assert not graphs.captured
