"""Metrics of a part, accumulated over its batches on one or several processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from kmip_data.models.training.metrics import (
    HIT_RANKS,
    METRICS,
    Accumulator,
    ClassScores,
    LabelRows,
    LinkSums,
    RegressionSums,
    all_metrics,
    scores_of_classes,
)
from kmip_data.models.training.processes import all_gather
from kmip_data.models.training.standard_errors import (
    ItemRows,
    standard_errors,
    weighted_sums,
)
from kmip_data.models.training.tasks import LINK, NO_LINK, NO_PAIR, Task, is_known


def sum_link_metrics(scores: Tensor, target: Tensor) -> Tensor:
    """Compute :class:`LinkSums` (7,) of a batch from its scores and targets (G, W, W)."""
    return link_metrics_by_graph(scores, target).sum(0)


def link_metrics_by_graph(scores: Tensor, target: Tensor) -> Tensor:
    """Compute :class:`LinkSums` (G, 7) of each graph from scores and targets (G, W, W).

    A link (i, j) competes with the pairs (i, c) of its graph. Half of the pairs with an equal score
    rank above it, as in OGB's evaluator. Hits refer to the ranking among all nodes.
    """
    if target.is_cpu:
        graph, i, j = link_indices(target)
    else:
        graph, i, j = all_pair_indices(target)
    pair_codes = target[graph, i]
    is_nan = scores[graph, i].isnan()
    rows = scores[graph, i].masked_fill(is_nan, torch.inf)

    # 1. Sort each row once: a score's position in the sorted row gives its rank, for every j.
    score = rows.gather(1, j)
    ordered, order = rows.sort(1)
    first_equal = torch.searchsorted(ordered, score, right=False)
    after_equal = torch.searchsorted(ordered, score, right=True)

    # 2. Rank among all nodes, among unlinked ones, and among unlinked ones except i itself.
    is_unlinked = pair_codes == NO_LINK
    columns = torch.arange(rows.shape[1], device=i.device)
    is_other_node = columns != i[:, None]
    ranks = []
    for competes in (pair_codes != NO_PAIR, is_unlinked, is_unlinked & is_other_node):
        counted = (competes & ~is_nan).gather(1, order)
        below = pad(counted.cumsum(1), (1, 0))
        # Half of the competitors with an equal score rank above the link.
        twice_not_above = below.gather(1, first_equal) + below.gather(1, after_equal)
        ranks.append(1 + below[:, -1:] - twice_not_above.double() / 2)
    ranks[0] -= 0.5  # the link does not compete with itself

    # 3. Compute the measures of every pair; only links count.
    values = [1 / rank for rank in ranks]
    values += [(ranks[0] <= largest_rank).double() for largest_rank in HIT_RANKS]
    measures = torch.stack(values, 2)
    measures = measures.masked_fill(is_nan.gather(1, j)[:, :, None], torch.nan)
    is_link = pair_codes.gather(1, j) == LINK
    measures = measures.where(is_link[:, :, None], 0)
    measures = measures.flatten(0, 1)

    # 4. Average over the links of a graph.
    graph_of_pair = graph[:, None].expand_as(j).flatten()
    per_graph = measures.new_zeros(len(target), measures.shape[1])
    per_graph.index_add_(0, graph_of_pair, measures)
    links = (target == LINK).sum((1, 2))
    means = per_graph / links.clamp_min(1)[:, None]
    return torch.cat([means, (links > 0)[:, None]], dim=1)


def link_indices(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices (graph, i, j) of the links in (G, W, W): (R,), (R,) and (R, 1)."""
    graph, i, j = (target == LINK).nonzero(as_tuple=True)
    return graph, i, j[:, None]


def all_pair_indices(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices of all pairs in (G, W, W), to avoid waiting for a GPU.

    Graph and i are (G · W,), j is (G · W, W).
    """
    graphs, width, _ = target.shape
    row = torch.arange(graphs * width, device=target.device)
    column = torch.arange(width, device=target.device)
    return row // width, row % width, column.expand(len(row), -1)


#: An accumulator's tensors, and lists of tensors, by name.
AccumulatorState = dict[str, Tensor | list[Tensor]]


class _LossSums(NamedTuple):
    """Sums over batches: float64 scalars."""

    weighted: Tensor  #: loss of a batch times its number of rows
    rows: Tensor


class _SumAccumulator(nn.Module):
    """Sum over batches of the result of ``count``, in float64, or another ``merge`` of two results.

    With ``fields``, :meth:`compute` returns the rows of the sum as that named tuple.
    """

    def __init__(
        self,
        count: Callable[..., Tensor],
        *shape: int,
        merge: Callable[[Tensor, Tensor], Tensor] = torch.add,
        fields: Callable[..., tuple[Tensor, ...]] | None = None,
    ) -> None:
        super().__init__()
        self.count = count
        self.merge = merge
        self.fields = fields
        self.sums = torch.zeros(shape, dtype=torch.float64)

    @property
    def metric_state(self) -> AccumulatorState:
        return {"sums": self.sums}

    def update(self, *batch: Tensor) -> None:
        counted = self.count(*batch)
        self.sums = self.merge(self.sums.to(counted.device), counted.double())

    def merge_state(self, state: dict[str, Tensor]) -> None:
        self.sums = self.merge(self.sums, state["sums"])

    def compute(self) -> Any:
        sums = reduce(self.merge, all_gather(self.sums.cpu()))
        return sums if self.fields is None else self.fields(*sums)

    def reset(self) -> None:
        self.sums = torch.zeros_like(self.sums)


def _regression_sums(log10: bool, logits: Tensor, target: Tensor) -> Tensor:
    """Compute :class:`RegressionSums` (7, T) of a batch; ``log10``: arguments are logarithms of the numbers."""
    values = logits.double()
    target = target.double().view(logits.shape)
    if log10:
        values = 10**values
        target = 10**target

    known = ~target.isnan()  # a NaN prediction makes the metrics NaN
    error = values - target
    error = error.masked_fill(~known, 0.0)
    rows = known.sum(0)
    divisor = rows.clamp_min(1)

    # Sum squares around the mean: Σ target² - (Σ target)² / rows would cancel if the mean is large.
    # A second pass corrects the mean's rounding, so that constant targets have a spread of exactly 0.
    mean = target.nansum(0) / divisor
    mean += (target - mean).nansum(0) / divisor
    spread = ((target - mean) ** 2).nansum(0)

    absolute = error.abs().sum(0)
    squares = (error**2).sum(0)
    return torch.stack(
        RegressionSums(
            rows,
            absolute,
            squares,
            mean,
            spread,
            batch_means=absolute / divisor,
            batches=rows.clamp_max(1),
        )
    )


def _merge_regression_sums(first: Tensor, second: Tensor) -> Tensor:
    """Merge two results of :func:`_regression_sums` (Chan, Golub and LeVeque 1983)."""
    total = RegressionSums(*(first + second))
    left = RegressionSums(*first)
    right = RegressionSums(*second)

    fraction = right.rows / total.rows.clamp_min(1)
    distance = right.mean - left.mean
    mean = left.mean + distance * fraction
    spread = total.spread + distance**2 * left.rows * fraction
    return torch.stack(total._replace(mean=mean, spread=spread))


def _sum_loss(loss: Tensor, rows: Tensor) -> Tensor:
    """Compute :class:`_LossSums` (2,) of a batch.

    torchmetrics' ``MeanMetric`` is no alternative: it drops the weights unless it checks for NaN.
    """
    return torch.stack(_LossSums(weighted=loss.double() * rows, rows=rows.double()))


def _confusion_matrix(logits: Tensor, target: Tensor) -> Tensor:
    """Count the labels (rows) and predictions (columns) of a batch, (C, C); skip unknown labels."""
    classes = logits.shape[-1]
    prediction = logits.argmax(dim=-1)
    cell = target.clamp_min(0) * classes + prediction
    # ``bincount`` would make the host wait for a GPU.
    counts = cell.new_zeros(classes * classes)
    counts.scatter_add_(0, cell, is_known(target).to(cell.dtype))
    return counts.view(classes, classes)


class _RowAccumulator(nn.Module):
    """Scores and targets of all rows, ``(N, T)`` each, which ranking metrics need."""

    scores: list[Tensor]
    targets: list[Tensor]

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.labels = labels
        self.reset()

    @property
    def metric_state(self) -> AccumulatorState:
        return {"scores": self.scores, "targets": self.targets}

    def update(self, logits: Tensor, target: Tensor) -> None:
        self.scores.append(logits.float())
        self.targets.append(target.float().view(logits.shape))

    def merge_state(self, state: dict[str, list[Tensor]]) -> None:
        self.scores += state["scores"]
        self.targets += state["targets"]

    def compute(self) -> LabelRows:
        return LabelRows(self._gather_rows(self.scores), self._gather_rows(self.targets))

    def reset(self) -> None:
        self.scores = []
        self.targets = []

    def _gather_rows(self, rows: list[Tensor]) -> Tensor:
        # A process without rows must still take part in the exchange.
        local = torch.cat(rows).cpu() if rows else torch.zeros(0, self.labels)
        return torch.cat(all_gather(local)).double()


class _BinaryRowAccumulator(_RowAccumulator):
    """Log-odds of the second of two classes, and the class, (N, 1) each."""

    def __init__(self) -> None:
        super().__init__(1)

    def update(self, logits: Tensor, target: Tensor) -> None:
        logits = logits.float()
        known = target.float().masked_fill(~is_known(target), torch.nan)
        super().update(logits[:, 1:] - logits[:, :1], known)


def _row_outcome(task: Task, logits: Tensor, target: Tensor) -> Tensor:
    """Return the outcome of the rows of a batch for :class:`ItemRows`."""
    match task.target_type:
        case "classification":
            cells = target * task.outputs + logits.argmax(dim=-1)
            return cells.masked_fill(~is_known(target), -1)
        case "regression":
            values = logits.double()
            targets = target.double().view(logits.shape)
            if task.log10:
                values = 10**values
                targets = 10**targets
            return torch.stack([values - targets, targets])
        case "links":
            return link_metrics_by_graph(logits, target)
    return logits.new_zeros(0)  # the accumulator keeps the rows of labels


def _label_rows(accumulator: Accumulator | None) -> LabelRows | None:
    """Return the rows of an accumulator that keeps them."""
    return accumulator.compute() if isinstance(accumulator, _RowAccumulator) else None


def _build_accumulator(task: Task) -> Accumulator:
    """Return the accumulator for the built-in metrics of a task's target type."""
    match task.target_type:
        case "classification":
            return _SumAccumulator(_confusion_matrix, task.outputs, task.outputs)
        case "multilabel":
            return _RowAccumulator(task.outputs)
        case "regression":
            return _SumAccumulator(
                partial(_regression_sums, task.log10),
                len(RegressionSums._fields),
                task.outputs,
                merge=_merge_regression_sums,
                fields=RegressionSums,
            )
        case "links":
            return _SumAccumulator(sum_link_metrics, len(LinkSums._fields), fields=LinkSums)


class PartMetrics(nn.Module):
    """Loss and metrics of one part, over all its rows (nodes, graphs or links).

    The functions in :data:`~kmip_data.models.training.metrics.METRICS` define the metrics. The loss
    is Σ loss·rows / Σ rows over batches, where rows are known targets. :meth:`compute` merges the
    processes of a distributed run.

    Parameters
    ----------
    requested
        Metric to compute in addition to those always reported for the task: a plugin's, or a
        built-in one that is computed only on request.
    keeps_items
        Keep the outcome of each row, for :meth:`standard_errors`.
    """

    def __init__(
        self, task: Task, requested: str | None = None, *, keeps_items: bool = False
    ) -> None:
        super().__init__()
        self.task = task
        self.items = ItemRows() if keeps_items else None
        self.target_type = task.target_type
        self.metrics = {}
        for name, metric in METRICS.items():
            if metric.is_reported_for(task.target_type, task.level):
                self.metrics[name] = metric
        self.requested = requested
        self.accumulator = _build_accumulator(task)
        #: accumulator of the requested metric, if it has its own
        self.metric_accumulator: Accumulator | None = None
        if requested is not None:
            metric = all_metrics()[requested]
            self.metrics[requested] = metric
            if metric.accumulator is not None:
                self.metric_accumulator = metric.accumulator(task)
            elif metric.target_type != task.target_type:  # two classes
                self.metric_accumulator = _BinaryRowAccumulator()
        self.loss = _SumAccumulator(_sum_loss, len(_LossSums._fields), fields=_LossSums)

    @torch.no_grad()
    def update(
        self, logits: Tensor, target: Tensor, loss: Tensor, graphs: Tensor | None = None
    ) -> None:
        """Add a batch: ``logits`` (N, outputs), their targets, and the scalar ``loss``.

        ``graphs`` (N,) are the graphs of the rows if graphs are the items of the part.
        """
        if self.items is not None:
            self.items.add(_row_outcome(self.task, logits, target), len(target), graphs)
        self.accumulator.update(logits, target)
        if self.metric_accumulator is not None:
            self.metric_accumulator.update(logits, target)
        # Weight of the loss: the number of targets it averages over, up to a constant factor.
        known = target == LINK if self.target_type == "links" else is_known(target)
        self.loss.update(loss.detach(), known.sum())

    def compute(self) -> dict[str, float]:
        """Return the loss and the metrics by name, then reset."""
        accumulated = self.accumulator.compute()
        accumulated_on_request = accumulated
        if self.metric_accumulator is not None:
            accumulated_on_request = self.metric_accumulator.compute()
        loss = self.loss.compute()
        # A part without known targets has loss 0, like a batch without known targets.
        values = {"loss": float(loss.weighted / loss.rows.clamp_min(1))}
        for name, metric in self.metrics.items():
            sums = accumulated_on_request if name == self.requested else accumulated
            values[name] = float(metric.compute(sums))
        self.reset()
        return values

    def class_scores(self) -> list[ClassScores]:
        """Return the scores of each class so far; empty unless rows are classified."""
        if self.target_type != "classification":
            return []
        return scores_of_classes(self.accumulator.compute())

    def standard_errors(self) -> dict[str, float]:
        """Return the standard errors of the metrics so far, over the items of the part."""
        if self.items is None:
            return {}
        # Gather before the count is tested: a process may have no items where others have some.
        items, outcomes, count = self.items.gather()
        if count < 2:
            return {}
        label_rows = _label_rows(self.accumulator)
        requested_rows = _label_rows(self.metric_accumulator)

        def sums(name: str, weights: Tensor) -> Any:
            has_own = name == self.requested and self.metric_accumulator is not None
            rows = requested_rows if has_own else label_rows
            if rows is not None:
                return rows._replace(weights=weights)
            return weighted_sums(self.task, outcomes, weights)

        # The accumulator of a plugin knows no weights.
        metrics = [
            (name, metric) for name, metric in self.metrics.items() if metric.accumulator is None
        ]
        return standard_errors(metrics, sums, items, count)

    def state(self) -> dict[str, AccumulatorState]:
        """Return the accumulated values on the CPU, for :meth:`load`."""
        accumulators: dict[str, Any] = dict(self.named_children())
        return {
            name: _move_state(metric.metric_state, "cpu") for name, metric in accumulators.items()
        }

    def load(
        self, state: Mapping[str, AccumulatorState], device: torch.device | str = "cpu"
    ) -> None:
        """Continue from the result of :meth:`state`, with batches on ``device``."""
        for name, values in state.items():
            for key, value in _move_state(values, device).items():
                setattr(self.get_submodule(name), key, value)

    def merge(
        self, states: Sequence[Mapping[str, AccumulatorState]]
    ) -> dict[str, AccumulatorState]:
        """Return the merged :meth:`state` of several processes, and discard all batches.

        Raises ``AttributeError`` or ``RuntimeError`` if a plugin's accumulator has no ``merge_state``
        (as in torchmetrics), or cannot merge.
        """
        self.load(states[0])
        for state in states[1:]:
            for name, values in state.items():
                accumulator: Any = self.get_submodule(name)
                accumulator.merge_state(values)
        merged = self.state()
        self.reset()
        return merged

    def reset(self) -> None:
        """Discard all batches."""
        self.accumulator.reset()
        self.loss.reset()
        if self.metric_accumulator is not None:
            self.metric_accumulator.reset()


def metric_of_outputs(task: Task, metric: str, outputs: Tensor, targets: Tensor) -> float | None:
    """Return a metric of outputs (N, C) on their targets, (N,) or (N, C); ``None`` if undefined."""
    metrics = PartMetrics(task, metric)
    metrics.update(outputs, targets, torch.zeros(()))
    value = metrics.compute()[metric]
    return value if math.isfinite(value) else None


def _move_state(state: AccumulatorState, device: torch.device | str) -> AccumulatorState:
    """Return an accumulator's state on a device."""
    moved: AccumulatorState = {}
    for name, value in state.items():
        if isinstance(value, list):
            moved[name] = [tensor.to(device) for tensor in value]
        else:
            moved[name] = value.to(device)
    return moved
