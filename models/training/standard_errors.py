"""Standard errors of the metrics of one run, over the items of a part.

An item is what a split divides: a graph, or a node of a single graph. If each item has a weight, of 1,
a metric is a function of these weights, and its standard error is the root of the sum of its squared
slopes (the infinitesimal jackknife: Efron, "Nonparametric Standard Errors", 1981). For a mean over
items that is the deviation of the items divided by the root of their number; for the average
precision and other functions of all rows it needs neither a formula nor random draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from kmip_data.models.training.metrics import LinkSums, Metric, RegressionSums
from kmip_data.models.training.processes import all_gather
from kmip_data.models.training.tasks import Task


class ItemRows:
    """Outcome of each row of a part, on the CPU, whose sums can be weighted by item."""

    def __init__(self) -> None:
        self.items: list[Tensor] = []  #: item of each row, (N,) int64 in each batch
        #: confused classes, (N,); errors and targets, (2, N, T); metrics of links, (G, 7)
        self.outcomes: list[Tensor] = []
        self.count = 0

    def add(self, outcome: Tensor, rows: int, graphs: Tensor | None) -> None:
        """Add the outcome of the rows of a batch; each row is an item, or those of each graph are.

        ``graphs`` (rows,) are the sorted numbers of their graphs in the batch.
        """
        items = torch.arange(rows) if graphs is None else graphs.cpu()
        self.items.append(items + self.count)
        self.outcomes.append(outcome.cpu())
        self.count += int(items.max()) + 1 if rows else 0

    def gather(self) -> tuple[Tensor, list[Tensor], int]:
        """Return the items (N,) and outcomes of all processes, and the number of items."""
        items = []
        outcomes = []
        count = 0
        for other_items, other_outcomes, other_count in all_gather(
            (self.items, self.outcomes, self.count)
        ):
            items += [numbers + count for numbers in other_items]
            outcomes += other_outcomes
            count += other_count
        return torch.cat(items or [torch.empty(0, dtype=torch.int64)]), outcomes, count


def weighted_confusion(cells: Tensor, weights: Tensor, classes: int) -> Tensor:
    """Sum weights (N,) of rows by their cells (N,) of a confusion matrix (C, C); -1 if unknown."""
    known = cells >= 0
    sums = weights.new_zeros(classes * classes)
    return sums.index_add(0, cells[known], weights[known]).view(classes, classes)


def weighted_regression(errors: Tensor, targets: Tensor, weights: Tensor) -> RegressionSums:
    """Sum errors and targets (N, T), NaN if unknown, with weights (N,).

    Means of batches are undefined, because batches are no property of the items.
    """
    known = ~targets.isnan()
    shares = weights[:, None] * known
    errors = errors.masked_fill(~known, 0)
    targets = targets.masked_fill(~known, 0)
    rows = shares.sum(0)
    mean = (shares * targets).sum(0) / rows
    undefined = torch.full_like(rows, torch.nan)
    return RegressionSums(
        rows,
        absolute=(shares * errors.abs()).sum(0),
        squares=(shares * errors**2).sum(0),
        mean=mean,
        spread=(shares * (targets - mean) ** 2).sum(0),
        batch_means=undefined,
        batches=undefined,
    )


def weighted_sums(task: Task, outcomes: list[Tensor], weights: Tensor) -> Any:
    """Return the accumulated result of rows with weights (N,), for a :class:`Metric` of the task."""
    match task.target_type:
        case "classification":
            return weighted_confusion(torch.cat(outcomes), weights, task.outputs)
        case "regression":
            errors, targets = torch.cat(outcomes, dim=1)
            return weighted_regression(errors, targets, weights)
        case "links":
            return LinkSums(*(weights @ torch.cat(outcomes)))
    return None  # rows of labels are kept by the accumulator


def standard_errors(
    metrics: Iterable[tuple[str, Metric]],
    sums: Callable[[str, Tensor], Any],
    items: Tensor,
    count: int,
) -> dict[str, float]:
    """Return the standard error of each metric that has slopes, by name.

    ``sums(name, weights)`` returns the accumulated result for a metric with the weights (N,) of rows;
    ``items`` (N,) are the numbers of their items, below ``count``.
    """
    errors = {}
    weights = torch.ones(count, dtype=torch.float64, requires_grad=True)
    for name, metric in metrics:
        value = metric.compute(sums(name, weights[items]))
        if not value.requires_grad:
            continue
        (slopes,) = torch.autograd.grad(value, weights)
        error = float((slopes - slopes.mean()).square().sum().sqrt())
        if math.isfinite(error):
            errors[name] = error
    return errors
