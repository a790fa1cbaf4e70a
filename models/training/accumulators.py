"""Metrics of a split, accumulated over its batches on one or several processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from kmip_data.models.training.machine import all_gather
from kmip_data.models.training.metrics import (
    HITS,
    METRICS,
    Accumulator,
    LabelRows,
    LinkSums,
    RegressionSums,
    all_metrics,
)
from kmip_data.models.training.tasks import LINK, NO_LINK, NO_PAIR, Task, is_known


def count_link_ranks(scores: Tensor, target: Tensor) -> Tensor:
    """Count the ranks of a batch's links, from scores and targets (G, W, W) to :class:`LinkSums` (7,).

    A link (i, j) competes with the pairs (i, c) of its graph; half of the pairs with an equal score
    rank above it, as in OGB's evaluator. Hits belong to the first ranking.
    """
    if target.is_cpu:
        graph, i, j = link_indices(target)
    else:
        graph, i, j = all_pair_indices(target)
    pair_codes = target[graph, i]
    is_nan = scores[graph, i].isnan()
    rows = scores[graph, i].masked_fill(is_nan, torch.inf)

    # The rank of a score follows from its position in the sorted row: one sort serves every j.
    score = rows.gather(1, j)
    ordered, order = rows.sort(1)
    first = torch.searchsorted(ordered, score, right=False)
    behind = torch.searchsorted(ordered, score, right=True)

    apart = pair_codes == NO_LINK
    columns = torch.arange(rows.shape[1], device=i.device)
    other = columns != i[:, None]
    ranks = []
    for competes in (pair_codes != NO_PAIR, apart, apart & other):
        counted = (competes & ~is_nan).gather(1, order)
        below = pad(counted.cumsum(1), (1, 0))
        # Half of those with an equal score rank above it.
        not_above = below.gather(1, first) + below.gather(1, behind)
        ranks.append(1 + below[:, -1:] - not_above.double() / 2)
    ranks[0] -= 0.5  # without the link itself

    values = [1 / rank for rank in ranks]
    values += [(ranks[0] <= most).double() for most in HITS]
    measures = torch.stack(values, 2)
    measures = measures.masked_fill(is_nan.gather(1, j)[:, :, None], torch.nan)
    link = pair_codes.gather(1, j) == LINK
    measures = measures.where(link[:, :, None], 0)
    measures = measures.flatten(0, 1)

    # Mean over the links of a graph, then sum over graphs.
    graph_of_pair = graph[:, None].expand_as(j).flatten()
    per_graph = measures.new_zeros(len(target), measures.shape[1])
    per_graph.index_add_(0, graph_of_pair, measures)
    links = (target == LINK).sum((1, 2))
    means = per_graph / links.clamp_min(1)[:, None]
    graphs_with_links = (links > 0).sum()
    return torch.cat([means.sum(0), graphs_with_links[None]])


def link_indices(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Links (graph, i, j) of :data:`LINK` in (G, W, W): (R,), (R,) and (R, 1)."""
    graph, i, j = (target == LINK).nonzero(as_tuple=True)
    return graph, i, j[:, None]


def all_pair_indices(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return all pairs of (G, W, W) without waiting for the links: (G · W,) twice and (G · W, W)."""
    graphs, width, _ = target.shape
    row = torch.arange(graphs * width, device=target.device)
    column = torch.arange(width, device=target.device)
    return row // width, row % width, column.expand(len(row), -1)


#: Tensors, and lists of tensors, of an accumulator.
State = dict[str, Tensor | list[Tensor]]


class _LossSums(NamedTuple):
    """Sums over the rows of batches: float64 scalars."""

    weighted: Tensor  #: loss of each batch times its rows
    rows: Tensor


class _Sums(nn.Module):
    """Float64 sum of ``count`` over batches, or another ``merge`` of two counts.

    The result is the tensor, or with ``fields`` a named tuple of its rows.
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
    def metric_state(self) -> State:
        return {"sums": self.sums}

    def update(self, *batch: Tensor) -> None:
        counted = self.count(*batch)
        self.sums = self.merge(self.sums.to(counted.device), counted.double())

    def compute(self) -> Any:
        sums = reduce(self.merge, all_gather(self.sums.cpu()))
        return sums if self.fields is None else self.fields(*sums)

    def reset(self) -> None:
        self.sums = torch.zeros_like(self.sums)


def _regression_sums(log10: bool, logits: Tensor, target: Tensor) -> Tensor:
    """Return :class:`RegressionSums` (7, T) of a batch; with ``log10``, of 10 to the power of both arguments."""
    values = logits.double()
    target = target.double().view(logits.shape)
    if log10:
        values = 10**values
        target = 10**target

    known = ~target.isnan()  # a prediction of NaN stays, and makes the metrics NaN
    error = values - target
    error = error.masked_fill(~known, 0.0)
    rows = known.sum(0)
    divisor = rows.clamp_min(1)

    # Around the mean, whose rounding a second pass mends: Σ target² - (Σ target)² / rows would
    # cancel where the mean is large, and a constant must have no spread.
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


def _merged_sums(first: Tensor, second: Tensor) -> Tensor:
    """Merge two results of :func:`_regression_sums` (Chan, Golub and LeVeque 1983)."""
    total = RegressionSums(*(first + second))
    before = RegressionSums(*first)
    added = RegressionSums(*second)

    share = added.rows / total.rows.clamp_min(1)
    distance = added.mean - before.mean
    mean = before.mean + distance * share
    spread = total.spread + distance**2 * before.rows * share
    return torch.stack(total._replace(mean=mean, spread=spread))


def _sum_loss(loss: Tensor, rows: Tensor) -> Tensor:
    """Return :class:`_LossSums` (2,) of a batch.

    torchmetrics' ``MeanMetric`` drops the weights when it need not look for NaN.
    """
    return torch.stack(_LossSums(weighted=loss.double() * rows, rows=rows.double()))


def _confusion_matrix(logits: Tensor, target: Tensor) -> Tensor:
    """``(C, C)``, rows are labels, columns predictions: C² integers whatever the split's size.

    Rows without a class are left out. Added up by index, not by ``bincount``, which has the host wait for a GPU.
    """
    classes = logits.shape[-1]
    prediction = logits.argmax(dim=-1)
    cell = target.clamp_min(0) * classes + prediction
    counts = cell.new_zeros(classes * classes)
    counts.scatter_add_(0, cell, is_known(target).to(cell.dtype))
    return counts.view(classes, classes)


class _Scores(nn.Module):
    """Scores and targets of all rows, ``(N, T)`` float64 each: a ranking needs all of them."""

    scores: list[Tensor]
    targets: list[Tensor]

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.labels = labels
        self.reset()

    @property
    def metric_state(self) -> State:
        return {"scores": self.scores, "targets": self.targets}

    def update(self, logits: Tensor, target: Tensor) -> None:
        self.scores.append(logits.float())
        self.targets.append(target.float().view(logits.shape))

    def compute(self) -> LabelRows:
        return LabelRows(self._gather_rows(self.scores), self._gather_rows(self.targets))

    def reset(self) -> None:
        self.scores = []
        self.targets = []

    def _gather_rows(self, rows: list[Tensor]) -> Tensor:
        # A process without rows still takes part in the exchange.
        local = torch.cat(rows).cpu() if rows else torch.zeros(0, self.labels)
        return torch.cat(all_gather(local)).double()


class _TwoClasses(_Scores):
    """Log-odds of the second class of two, and the class, (N, 1) each."""

    def __init__(self) -> None:
        super().__init__(1)

    def update(self, logits: Tensor, target: Tensor) -> None:
        logits = logits.float()
        known = target.float().masked_fill(~is_known(target), torch.nan)
        super().update(logits[:, 1:] - logits[:, :1], known)


def _accumulator_of(task: Task) -> Accumulator:
    """Return the accumulator for the metrics of a task's target type."""
    match task.target_type:
        case "classification":
            return _Sums(_confusion_matrix, task.outputs, task.outputs)
        case "multilabel":
            return _Scores(task.outputs)
        case "regression":
            return _Sums(
                partial(_regression_sums, task.log10),
                len(RegressionSums._fields),
                task.outputs,
                merge=_merged_sums,
                fields=RegressionSums,
            )
        case "links":
            return _Sums(count_link_ranks, len(LinkSums._fields), fields=LinkSums)


class SplitMetrics(nn.Module):
    """Loss and all metrics of one split, over all its rows (points, graphs) pooled.

    The sums are not buffers; :meth:`compute` adds them over the processes of a distributed run.
    Equal to scikit-learn's ``accuracy_score``, ``f1_score(average="macro", zero_division=0)``,
    ``jaccard_score(average="macro")``, ``average_precision_score`` (mean over labels),
    ``mean_absolute_error`` and ``r2_score`` on the concatenated predictions of the split
    (``graphgps/logger.py`` of the paper's code). The loss is Σ loss·rows / Σ rows over batches, a
    row being a known target. ``chosen`` may be a plugin's metric, computed in addition, or a
    built-in metric that is computed on request alone. A metric with its own accumulator is computed
    if chosen.
    """

    def __init__(self, task: Task, chosen: str | None = None) -> None:
        super().__init__()
        self.target_type = task.target_type
        self.metrics = {}
        for name, metric in METRICS.items():
            if metric.is_reported_for(task.target_type, task.level):
                self.metrics[name] = metric
        self.chosen = chosen
        self.rows = _accumulator_of(task)
        #: accumulator of the chosen metric, if it has one
        self.metric_accumulator: Accumulator | None = None
        if chosen is not None:
            metric = all_metrics()[chosen]
            self.metrics[chosen] = metric
            if metric.accumulator is not None:
                self.metric_accumulator = metric.accumulator(task)
            elif metric.target_type != task.target_type:  # two classes
                self.metric_accumulator = _TwoClasses()
        self.loss = _Sums(_sum_loss, len(_LossSums._fields), fields=_LossSums)

    @torch.no_grad()
    def update(self, logits: Tensor, target: Tensor, loss: Tensor) -> None:
        """Add a batch: ``logits`` (N, outputs), its targets, its scalar ``loss``."""
        self.rows.update(logits, target)
        if self.metric_accumulator is not None:
            self.metric_accumulator.update(logits, target)
        # Number of targets that the loss averages over, up to a factor.
        known = target == LINK if self.target_type == "links" else is_known(target)
        self.loss.update(loss.detach(), known.sum())

    def compute(self) -> dict[str, float]:
        """Return ``loss`` and every metric of the task's target type, then reset."""
        rows = self.rows.compute()
        chosen_values = (
            rows if self.metric_accumulator is None else self.metric_accumulator.compute()
        )
        loss = self.loss.compute()
        # A part without known targets has loss 0, like such a batch.
        values = {"loss": float(loss.weighted / loss.rows.clamp_min(1))}
        for name, metric in self.metrics.items():
            values[name] = float(metric.compute(chosen_values if name == self.chosen else rows))
        self.reset()
        return values

    def state(self) -> dict[str, State]:
        """Return the current sums on the CPU, for :meth:`load`."""
        accumulators: dict[str, Any] = dict(self.named_children())
        return {
            name: _move_state(metric.metric_state, "cpu") for name, metric in accumulators.items()
        }

    def load(self, state: Mapping[str, State], device: torch.device | str = "cpu") -> None:
        """Continue from the result of :meth:`state`, with batches on a device."""
        for name, values in state.items():
            for key, value in _move_state(values, device).items():
                setattr(self.get_submodule(name), key, value)

    def reset(self) -> None:
        """Forget all batches."""
        self.rows.reset()
        self.loss.reset()
        if self.metric_accumulator is not None:
            self.metric_accumulator.reset()


def _move_state(state: State, device: torch.device | str) -> State:
    """Return an accumulator's state on a device."""
    moved: State = {}
    for name, value in state.items():
        if isinstance(value, list):
            moved[name] = [tensor.to(device) for tensor in value]
        else:
            moved[name] = value.to(device)
    return moved
