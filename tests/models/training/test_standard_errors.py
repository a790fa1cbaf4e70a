"""Standard errors against the formulas of means and a bootstrap over the items."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kmip_data.models.training import standard_errors as file
from kmip_data.models.training.accumulators import PartMetrics
from kmip_data.models.training.metrics import METRICS
from kmip_data.models.training.tasks import Task

LOSS = torch.zeros(())
ITEMS = 300


def batches_of(task, items=ITEMS, seed=0):
    """Outputs and targets of the rows, some of them unknown."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    outputs = normal(items, task.outputs)
    match task.target_type:
        case "classification":
            noisy = outputs + normal(items, task.outputs)
            target = noisy.argmax(1)
            target[::17] = -1
        case "multilabel":
            target = (outputs + 2 * normal(items, task.outputs) > 1).float()
            target[::17, 0] = torch.nan
        case "regression":
            target = 1e3 + outputs + normal(items, task.outputs)
            outputs = outputs + 1e3
            target[::17, -1] = torch.nan
        case "links":
            outputs = normal(items, 5, 5)
            target = (normal(items, 5, 5) + outputs > 1).to(torch.int8)
            target[:, range(5), range(5)] = 0
            target[:, 4] = target[:, :, 4] = -1
    return outputs, target


def measure(task, metric, outputs, target, graphs=None, splits=3):
    measured = PartMetrics(task, metric, keeps_items=True)
    for rows in torch.arange(len(outputs)).tensor_split(splits):
        batch_graphs = None if graphs is None else graphs[rows] - graphs[rows[0]]
        measured.update(outputs[rows], target[rows], LOSS, batch_graphs)
    return measured.standard_errors(), measured.compute()


CASES = [
    (Task("graph", "classification", 3), "accuracy_sbm"),
    (Task("node", "classification", 2), "ap"),
    (Task("graph", "classification", 2), "roc_auc"),
    (Task("graph", "multilabel", 2), "roc_auc"),
    (Task("graph", "regression", 2), "log10_mse"),
    (Task("node", "links", 1), "mrr"),
]


@pytest.mark.parametrize(("task", "requested"), CASES)
def test_each_error_is_close_to_a_bootstrap(task, requested) -> None:
    outputs, target = batches_of(task)
    errors, values = measure(task, requested, outputs, target)
    expected = {name for name in values if name in METRICS} - {"mae_batches"}
    assert errors.keys() == expected
    generator = np.random.default_rng(0)
    draws = []
    for _ in range(100):
        rows = torch.from_numpy(generator.integers(0, ITEMS, ITEMS))
        drawn = PartMetrics(task, requested)
        drawn.update(outputs[rows], target[rows], LOSS)
        draws.append(drawn.compute())
    for name, error in errors.items():
        assert error == pytest.approx(np.std([draw[name] for draw in draws]), rel=0.3), name


def test_errors_of_means_are_those_of_their_formulas() -> None:
    task = Task("graph", "classification", 3)
    outputs, target = batches_of(task)
    errors, values = measure(task, None, outputs, target)
    rows = int((target >= 0).sum())
    accuracy = values["accuracy"]
    assert errors["accuracy"] == pytest.approx((accuracy * (1 - accuracy) / rows) ** 0.5)

    task = Task("graph", "regression", 1)
    outputs, target = batches_of(task)
    errors, _ = measure(task, None, outputs, target)
    distances = (outputs - target).abs().double()
    distances = distances[distances.isfinite()]
    deviation = float(distances.std(unbiased=False)) / len(distances) ** 0.5
    assert errors["mae"] == pytest.approx(deviation)


def test_nodes_of_one_graph_are_one_item() -> None:
    """For graphs of one size, the mean over nodes is a mean over graphs."""
    task = Task("node", "classification", 3)
    outputs, target = batches_of(task)
    target = target.clamp_min(0)
    graphs = torch.arange(ITEMS) // 10
    errors, _ = measure(task, None, outputs, target, graphs)
    by_graph = (outputs.argmax(1) == target).double().view(-1, 10).mean(1)
    expected = float(by_graph.std(unbiased=False)) / len(by_graph) ** 0.5
    assert errors["accuracy"] == pytest.approx(expected)


@pytest.mark.parametrize(("task", "requested"), CASES)
def test_several_processes_have_the_errors_of_one(task, requested, monkeypatch) -> None:
    outputs, target = batches_of(task, 40)
    errors, _ = measure(task, requested, outputs, target)
    halves = []
    for rows in (slice(0, 25), slice(25, 40)):
        half = PartMetrics(task, requested, keeps_items=True)
        half.update(outputs[rows], target[rows], LOSS)
        halves.append(half)
    first, second = halves

    def gather_both(state):
        kept = (second.items.items, second.items.outcomes, second.items.count)
        return [state, kept if isinstance(state, tuple) else second_rows.pop(0)]

    rows = [second.accumulator, second.metric_accumulator]
    second_rows = []
    for accumulator in rows:
        for name in ("scores", "targets"):
            if hasattr(accumulator, name):
                second_rows.append(torch.cat(getattr(accumulator, name)))
    monkeypatch.setattr(file, "all_gather", gather_both)
    monkeypatch.setattr("kmip_data.models.training.accumulators.all_gather", gather_both)
    assert first.standard_errors() == pytest.approx(errors)


def test_a_perfect_part_has_no_error_and_an_undefined_metric_has_none() -> None:
    task = Task("graph", "classification", 2)
    target = torch.tensor([0, 0, 0])
    errors, values = measure(task, "roc_auc", torch.eye(2)[target], target, splits=1)
    assert (values["accuracy"], errors["accuracy"]) == (1, 0)
    assert "roc_auc" not in errors
    assert PartMetrics(task).standard_errors() == {}
