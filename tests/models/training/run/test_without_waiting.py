"""Nothing in a step has the host wait for a GPU: batches are sent ahead, and operators are no more."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.builds.learnable import (
    BUILDS,
    OPERATORS,
    learnable_build,
    rings,
    streets_build,
    tiny_config,
)
from support.kernels.emulated_graph import WAITS, calls_of
from support.runs.captured import build_fused_optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Data

from kmip_data.builds.home import Home
from kmip_data.models.config import known_models
from kmip_data.models.training import accumulators
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import copy_ahead
from kmip_data.models.training.run import loop as loop_file
from kmip_data.models.training.run import training_module
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.training_module import (
    TrainingModule,
    evaluate_parts,
    select_part_rows,
)

CPU = torch.device("cpu")


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.update(calls_of(func, args))
        return func(*args, **(kwargs or {}))


def _steps(build, tmp_path, monkeypatch, **changes) -> list[Counter[str]]:
    """Operators of each batch of two epochs, in a loop that looks at no number, as on a GPU."""
    steps: list[Counter[str]] = []

    def watched(batches: Any) -> Any:
        for batch in batches:
            with _Calls() as calls:
                yield batch
            steps.append(calls.found)

    monkeypatch.setattr(
        loop_file, "prefetch_to_device", lambda batches, *_: watched(copy_ahead(batches, CPU))
    )
    monkeypatch.setattr(loop_file, "build_optimizer", build_fused_optimizer)
    config = tiny_config(build, **changes)
    data = open_data(config, home=Home(tmp_path))
    loop = Loop(TrainingModule(data.pin_settings(config), data), data, CPU)
    for loop.epoch in range(2):
        loop.batches_done = 0
        loop.train_epoch()
    return steps


TASKS = {**BUILDS, "graph labels": partial(rings, target="labels")}


#: Others lay out a batch of several sizes on the host.
MODELS = sorted(
    set(known_models()) - {"exphormer", "gps-bigbird", "gps-performer", "gps-transformer"}
)


@pytest.mark.parametrize("model", MODELS)
def test_no_model_synchronises_the_host(model, tmp_path, streams, monkeypatch):
    build = BUILDS["nodes with a neighbour table"](tmp_path / "build")
    usual = dict.fromkeys(("heads", "k", "key_dim"))
    steps = _steps(build, tmp_path, monkeypatch, model={"name": model, "dropout": 0.0, **usual})
    assert all(not WAITS & set(step) for step in steps), [WAITS & set(step) for step in steps]


@pytest.mark.parametrize("task", TASKS)
def test_no_training_step_synchronises_the_host(task, tmp_path, streams, monkeypatch):
    monkeypatch.setattr(accumulators, "link_indices", accumulators.all_pair_indices)
    # As on a GPU: a fused optimizer (others read their count of steps), and no CPU kernels, whose
    # dropout draws its seed on the host.
    steps = _steps(TASKS[task](tmp_path / "build"), tmp_path, monkeypatch, model={"dropout": 0.0})
    assert len(steps) >= 2
    assert all(not WAITS & set(step) for step in steps), [WAITS & set(step) for step in steps]
    if task == "nodes with a neighbour table":
        assert max(step.total() for step in steps) <= 1.1 * OPERATORS, [
            step.total() for step in steps
        ]


def test_precomputed_rows_equal_the_rows_of_the_mask():
    mask, logits, target = torch.tensor([True, False, True]), torch.randn(3, 2), torch.arange(3)
    known = SimpleNamespace(train_mask=mask, train_rows=mask.nonzero()[:, 0])
    with _Calls() as calls:
        masked = select_part_rows(SimpleNamespace(train_mask=mask), "train", logits, target)
    assert "nonzero" in calls.found  # a mask as an index has the host wait
    for one, other in zip(masked, select_part_rows(known, "train", logits, target), strict=True):
        assert torch.equal(one, other)


def test_the_next_batch_is_transferred_before_the_previous_is_yielded(streams, monkeypatch):
    batches = [Data(x=torch.full((2, 1), float(i))) for i in range(3)]
    for number, batch in enumerate(copy_ahead(batches, CPU)):
        streams.append(f"step {number}")
        assert batch.x[0, 0] == number
    arrives = "the step waits for copies"
    assert streams == [
        "copied",
        "copied",
        arrives,
        "step 0",
        "copied",
        arrives,
        "step 1",
        arrives,
        "step 2",
    ]
    monkeypatch.setattr(torch.cuda, "Stream", None)  # memory of one stream is of use to no other
    assert len(list(copy_ahead(batches, CPU))) == 3  # another epoch


def test_rows_of_masks_are_looked_up_once(streams):
    graph = Data(x=torch.randn(4, 1), train_mask=torch.tensor([True, False, True, False]))
    first = next(copy_ahead([graph], CPU)).train_rows
    assert first.tolist() == [0, 2]
    assert next(copy_ahead([graph], CPU)).train_rows is first
    assert list(copy_ahead([], CPU)) == []


@pytest.mark.parametrize("build", [learnable_build, streets_build])
def test_evaluation_batches_are_transferred_ahead(build, tmp_path, streams, monkeypatch):
    config = tiny_config(build(tmp_path / "build"))
    data = open_data(config, home=Home(tmp_path))
    module = TrainingModule(data.pin_settings(config), data)
    plain = evaluate_parts(module, data, data.parts, CPU)
    assert streams == []
    monkeypatch.setattr(training_module, "prefetch_to_device", copy_ahead)
    assert evaluate_parts(module, data, data.parts, CPU) == plain
    assert streams[:2] == [
        "copied",
        "copied" if data.part_members == "graphs" else "the step waits for copies",
    ]
    if data.part_members == "nodes":  # it is trained on, too
        assert not data.graph.train_rows.is_inference()
