"""A metric, a loss, a schedule and an optimiser of the package are one entry of one file each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import python
from support.shared import ROOT

METRIC = """
def share_of_first(confusion: Tensor) -> Tensor:
    return confusion[0].sum() / confusion.sum()


METRICS["first"] = Metric(share_of_first, "higher", "first class", "single-label", unit="share")
"""
LOSS = """
LOSSES["l4"] = Loss(lambda logits, target: ((logits - target) ** 4).mean(), "regression")
"""
SCHEDULE = """
SCHEDULES["half"] = Schedule(by_factor(lambda moment, span: 0.5))
"""
OPTIMISER = """
OPTIMISERS["adagrad"] = Optimiser(late("torch.optim:Adagrad"))
"""
#: Begins each program: overrides of a configuration, and the names that are shown for a key.
BEGIN = """
import json
from kmip_data.models.training.config.overrides import *
config = config_from_mapping({"data": {"dataset": "s3dis"}}, "the trial")
def choices(name):
    return next(key.type for key in documented_keys() if key.name == name).split(" | ")
def chosen(item):
    return apply_overrides(config, [item])
"""
OF_METRIC = """
import sys
from kmip_data.models.training.run.folder import metrics_table, with_unit
assert chosen("training.metric=first").training.metric == "first"
shown = with_unit("first", 0.2256)
assert "torch" not in sys.modules  # lists of runs write it, too

import torch
from kmip_data.models.training.accumulators import SplitMetrics
from kmip_data.models.training.tasks import Task
counts = SplitMetrics(Task("graph", "single-label", 2), "first")
counts.update(torch.eye(2)[[0, 1, 1]], torch.tensor([0, 0, 1]), torch.tensor(0.0))
values = counts.compute()
table = metrics_table([{"val": values}])
print(json.dumps([choices("training.metric"), shown, values["first"], table]))
"""
OF_LOSS = """
import torch
from kmip_data.models.training.losses import all_losses
loss = all_losses()[chosen("training.loss=l4").training.loss]
print(json.dumps([choices("training.loss"), float(loss(torch.tensor([[3.0]]), torch.tensor([[1.0]])))]))
"""
OF_RATE = """
import torch
from kmip_data.models.training.run.checkpoint import build_optimiser, build_schedule
config = chosen("optimiser.name=adagrad") if "adagrad" in choices("optimiser.name") else config
config = chosen("schedule.kind=half") if "half" in choices("schedule.kind") else config
optimiser = build_optimiser(torch.nn.Linear(1, 1), config, torch.device("cpu"))
rate = build_schedule(optimiser, config.schedule, 100).get_last_lr()[0] / config.optimiser.lr
print(json.dumps([type(optimiser).__name__, rate]))
"""


def copy_of_the_tree(folder: Path, file: str, addition: str) -> Path:
    """Make a tree of links to this one in which a single file is another: it ends with ``addition``."""
    package = folder / "kmip_data"
    room = ROOT / "models" / "training"
    for source, copy, other in (
        (ROOT / "kmip_data", package, "models"),
        (ROOT / "models", package / "models", "training"),
        (room, package / "models" / "training", file),
    ):
        copy.mkdir(parents=True)
        for entry in source.iterdir():
            if entry.name not in {other, "__pycache__"}:
                (copy / entry.name).symlink_to(entry)
    changed = package / "models" / "training" / file
    changed.write_text((room / file).read_text("utf-8") + addition, encoding="utf-8")
    return folder


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """Run a program on a copy of the tree, and return what it prints."""

    def run(file: str, addition: str, program: str) -> list:
        tree = copy_of_the_tree(tmp_path, file, addition)
        monkeypatch.setenv("PYTHONPATH", str(tree))
        begin = f"import kmip_data; assert kmip_data.__file__.startswith({str(tree)!r})"
        return json.loads(python("-c", begin + BEGIN + program, cwd=tree).out)

    return run


def test_a_metric_is_one_entry_and_a_share_is_printed_in_percent(trial):
    names, shown, value, table = trial("metrics.py", METRIC, OF_METRIC)
    assert names[-1] == "first"
    assert shown == "22.56 %"
    assert value == pytest.approx(2 / 3)
    assert "first class [%]" in table
    assert "66.67" in table


def test_a_loss_is_one_entry(trial):
    names, value = trial("losses.py", LOSS, OF_LOSS)
    assert names[-1] == "l4"
    assert value == 16


def test_a_schedule_is_one_entry(trial):
    assert trial("schedules.py", SCHEDULE, OF_RATE) == ["AdamW", 0.5]


def test_an_optimiser_is_one_entry(trial):
    # In the first epoch of the default schedule.
    assert trial("optimisers.py", OPTIMISER, OF_RATE) == ["Adagrad", 1e-6]


def test_every_metric_states_its_unit():
    """A metric that is read in percent is a share of something, so it is none of numbers."""
    from kmip_data.models.training.metrics import METRICS

    for name, metric in METRICS.items():
        assert (metric.unit == "number") == (metric.kind == "regression"), name
