"""Metrics by name, accumulated over a split."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import pad

from kmip_data.manifest import with_added
from kmip_data.models.training.tasks import APART, LINK, NO_PAIR, Kind, Task

#: Ranks of a link among the nodes of its graph: all others; without its other links; nor itself.
RANKINGS = ("mrr", "mrr_filtered", "mrr_extended")
HITS = (1, 3, 10)


def accuracy(confusion: Tensor) -> Tensor:
    """Share of rows predicted right."""
    return confusion.diagonal().sum() / confusion.sum()


def macro_f1(confusion: Tensor) -> Tensor:
    """Mean F1 over the classes that occur among the labels or the predictions."""
    hit, true, predicted = _counts(confusion)
    return _mean_over_present(2 * hit, true + predicted)


def mean_iou(confusion: Tensor) -> Tensor:
    """Mean Jaccard index over the classes that occur among the labels or the predictions."""
    hit, true, predicted = _counts(confusion)
    return _mean_over_present(hit, true + predicted - hit)


def _counts(confusion: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return confusion.diagonal(), confusion.sum(1), confusion.sum(0)


def _mean_over_present(numerator: Tensor, denominator: Tensor) -> Tensor:
    # The denominator of a class is 0 exactly when it is neither a label nor a prediction.
    present = denominator > 0
    return (numerator[present] / denominator[present]).mean()


def mean_average_precision(rows: tuple[Tensor, Tensor]) -> Tensor:
    """Mean over labels of the average precision; labels that are nowhere positive are left out.

    Takes scores and targets (0, 1, NaN for unknown), both (N, T) float64. A label equals scikit-learn's
    ``average_precision_score`` on its known rows. Labels are left out as in the paper's code
    (``graphgps/metric_wrapper.py``, ``ignore-mean-label``); OGB's evaluator also leaves out those that are
    positive everywhere, where the average precision is 1.
    """
    scores, targets = rows
    found = []
    for score, target in zip(scores.T, targets.T, strict=True):
        known = ~target.isnan()
        if bool((target[known] == 1).any()):
            found.append(_average_precision(score[known], target[known]))
    return torch.stack(found).mean() if found else torch.tensor(math.nan, dtype=torch.float64)


def _average_precision(score: Tensor, target: Tensor) -> Tensor:
    """Σ precision · gain in recall over the thresholds, equal scores being one threshold."""
    score, order = score.sort(descending=True)
    last = torch.cat([score[1:] != score[:-1], score.new_ones(1, dtype=torch.bool)])
    hits = target[order].cumsum(0)[last]
    precision = hits / (torch.arange(1, len(score) + 1, dtype=torch.float64)[last])
    return (precision * torch.diff(hits, prepend=hits.new_zeros(1))).sum() / hits[-1]


def mean_absolute_error(sums: Tensor) -> Tensor:
    """Mean over targets of their mean absolute error, of the sums ``(7, T)`` of :func:`_regression_sums`."""
    rows = sums[0]
    errors = sums[1]
    return (errors / rows)[rows > 0].mean()


def mean_error_of_batches(sums: Tensor) -> Tensor:
    """Mean over batches of the mean absolute error of each, then over targets; sums as above.

    What ECHO reports: unlike :func:`mean_absolute_error` it depends on the batch size, as batches of few
    nodes count as much as others. A batch that several processes share counts once for each.
    """
    errors = sums[5]
    batches = sums[6]
    return (errors / batches)[batches > 0].mean()


def r_squared(sums: Tensor) -> Tensor:
    """Mean over targets of R² = 1 - Σ (prediction - target)² / Σ (target - mean)²; sums as above.

    A constant target has 1 where it is predicted exactly, else 0, as scikit-learn's ``r2_score``.
    """
    rows, _, squares, targets, target_squares = sums[:5, sums[0] > 0]
    spread = target_squares - targets**2 / rows
    of_constant = torch.where(squares == 0, 1, 0 * squares)  # NaN of NaN
    return torch.where(spread > 0, 1 - squares / spread.where(spread > 0, 1), of_constant).mean()


def link_ranks(scores: Tensor, target: Tensor) -> Tensor:
    """Sum over graphs of the mean over a graph's links of what :data:`RANKINGS` and :data:`HITS` name.

    A link (i, j) competes with the pairs (i, c) of its graph; with an equal score it ranks half above it,
    as in OGB's evaluator. Hits count in the first of the rankings. From (G, W, W) each to float64 (7): three
    mean reciprocal ranks, three shares of hits, and the number of graphs with links.
    """
    graph, i, j = links_alone(target) if target.is_cpu else all_pairs(target)
    nan = scores[graph, i].isnan()
    rows = scores[graph, i].masked_fill(nan, torch.inf)
    kinds = target[graph, i]
    own = rows.gather(1, j)
    link = kinds.gather(1, j) == LINK
    # A score's rank follows from its places among all of its row, which one sort gives for every j.
    ordered, order = rows.sort(1)
    first, behind = (torch.searchsorted(ordered, own, right=right) for right in (False, True))
    other = torch.arange(rows.shape[1], device=i.device) != i[:, None]
    ranks = []
    for among in (kinds != NO_PAIR, kinds == APART, (kinds == APART) & other):
        upto = pad((among & ~nan).gather(1, order).cumsum(1), (1, 0))
        ranks.append(
            1 + upto[:, -1:] - (upto.gather(1, first) + upto.gather(1, behind)).double() / 2
        )
    ranks[0] -= 0.5  # the link itself, which is as good as itself
    values = [*(1 / rank for rank in ranks), *((ranks[0] <= most).double() for most in HITS)]
    each = torch.stack(values, 2).masked_fill(nan.gather(1, j)[:, :, None], torch.nan)
    each = each.where(link[:, :, None], 0).flatten(0, 1)
    per_graph = each.new_zeros(len(target), each.shape[1])
    per_graph.index_add_(0, graph[:, None].expand_as(j).flatten(), each)
    links = (target == LINK).sum((1, 2))
    means = per_graph / links.clamp_min(1)[:, None]
    return torch.cat([means.sum(0), (links > 0).sum()[None]])


def links_alone(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Links (graph, i, j) of :data:`LINK` in (G, W, W): (R,), (R,) and (R, 1)."""
    graph, i, j = (target == LINK).nonzero(as_tuple=True)
    return graph, i, j[:, None]


def all_pairs(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All pairs of (G, W, W), (G · W,) twice and (G · W, W), where the host would wait to learn the links."""
    graphs, width, _ = target.shape
    row, column = (torch.arange(count, device=target.device) for count in (graphs * width, width))
    return row // width, row % width, column.expand(len(row), -1)


def mean_over_graphs(place: int, ranks: Tensor) -> Tensor:
    """One of the sums that :func:`~.links.link_ranks` gives, over the number of graphs."""
    return ranks[place] / ranks[-1]


class Accumulator(Protocol):
    """Counts of batches, on one or several processes; an object of torchmetrics is one.

    A module, too, whose ``metric_state`` has its tensors and lists of tensors by name.
    """

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Count a batch."""

    def compute(self) -> Any:
        """Return the counts of all processes together."""

    def reset(self) -> None:
        """Forget all batches."""


@dataclass(frozen=True)
class Metric:
    """Computation of a metric from accumulated values, and its better end."""

    compute: Callable[[Any], Tensor]  #: of what the accumulator gives
    better: Literal["higher", "lower"]
    title: str
    kind: Kind
    accumulator: Callable[[Task], Accumulator] | None = (
        None  #: of a plugin's metric; none: that of its kind
    )

    def __post_init__(self) -> None:
        if self.better not in {"higher", "lower"}:
            raise ValueError(
                f"the better end of {self.title} is higher or lower, not {self.better!r}"
            )


METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, "higher", "accuracy", "single-label"),
    "f1": Metric(macro_f1, "higher", "macro F1", "single-label"),
    "miou": Metric(mean_iou, "higher", "mIoU", "single-label"),
    "ap": Metric(mean_average_precision, "higher", "AP", "multilabel"),
    "mae": Metric(mean_absolute_error, "lower", "MAE", "regression"),
    "mae_batches": Metric(mean_error_of_batches, "lower", "MAE of batches", "regression"),
    "r2": Metric(r_squared, "higher", "R²", "regression"),
    **{
        name: Metric(partial(mean_over_graphs, place), "higher", title, "links")
        for place, (name, title) in enumerate(
            [
                *zip(RANKINGS, ("MRR", "filtered MRR", "extended filtered MRR"), strict=True),
                *((f"hits{most}", f"hits@{most}") for most in HITS),
            ]
        )
    },
}


def all_metrics() -> Mapping[str, Metric]:
    """Return the metrics by name, with those of loaded plugins."""
    return with_added("metrics", METRICS)


def is_better(metric: str, new: float, old: float | None) -> bool:
    """True if ``new`` strictly beats ``old`` (``None``: nothing yet), so that the first best epoch stays.

    NaN never does.
    """
    if old is None:
        return not math.isnan(new)
    return new > old if all_metrics()[metric].better == "higher" else new < old


def gathered(rows: Tensor) -> list[Tensor]:
    """Return the rows of each process, in the order of ranks; their numbers may differ."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return [rows]
    processes = distributed.get_world_size()
    count = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.zeros_like(count) for _ in range(processes)]
    distributed.all_gather(counts, count)

    # Tensors that are exchanged have one shape: shorter ones are padded, and cut again.
    most = int(torch.cat(counts).max())
    padded = rows.new_zeros(most, *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in range(processes)]
    distributed.all_gather(parts, padded)
    return [part[: int(number)] for part, number in zip(parts, counts, strict=True)]


class _Counts(nn.Module):
    """Tensors that move with the module; no buffers, which DDP would fill with the first process's."""

    device = torch.device("cpu")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.device = fn(torch.zeros(0, device=self.device)).device
        for name, value in self.metric_state.items():
            setattr(self, name, _moved(value, self.device))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    @property
    def metric_state(self) -> dict[str, Any]:
        """The tensors, and lists of tensors, by name."""
        raise NotImplementedError


class _Sums(_Counts):
    """Sum over batches of ``of`` one batch, in float64."""

    def __init__(self, of: Callable[..., Tensor], *shape: int) -> None:
        super().__init__()
        self.of = of
        self.sums = torch.zeros(shape, dtype=torch.float64)

    @property
    def metric_state(self) -> dict[str, Any]:
        return {"sums": self.sums}

    def update(self, *batch: Tensor) -> None:
        self.sums += self.of(*batch)

    def compute(self) -> Tensor:
        return torch.stack(gathered(self.sums)).sum(0).cpu()

    def reset(self) -> None:
        self.sums = torch.zeros_like(self.sums)


def _regression_sums(log10: bool, logits: Tensor, target: Tensor) -> Tensor:
    """``(7, T)`` over known targets: rows, absolute errors, squared errors, targets, their squares.

    Then the mean absolute error of this batch, and 1, or 0 where no target is known. With ``log10`` of
    10 to the power of both arguments.
    """
    values = logits.double()
    target = target.double().view(logits.shape)
    if log10:
        values = 10**values
        target = 10**target
    known = ~target.isnan()  # a prediction of NaN stays, and makes the metrics NaN
    error = (values - target).masked_fill(~known, 0.0)
    target = target.masked_fill(~known, 0.0)
    sums = [each.sum(0) for each in (known, error.abs(), error**2, target, target**2)]
    return torch.stack([*sums, sums[1] / sums[0].clamp_min(1), sums[0].clamp_max(1)])


def _loss_of_rows(loss: Tensor, rows: Tensor) -> Tensor:
    """``(2,)``: loss·rows, rows (``MeanMetric`` drops the weights when it need not look for NaN)."""
    return torch.stack([loss.double() * rows, rows.double()])


def _confusion(logits: Tensor, target: Tensor) -> Tensor:
    """``(C, C)``, rows are labels, columns predictions: C² integers whatever the split's size.

    Added up by index, not by ``bincount``, which has the host wait for a GPU.
    """
    classes = logits.shape[-1]
    place = target * classes + logits.argmax(dim=-1)
    counts = place.new_zeros(classes * classes).scatter_add_(0, place, torch.ones_like(place))
    return counts.view(classes, classes)


class _Rows(_Counts):
    """Scores and targets of all rows, because a ranking needs all of them; ``(N, T)`` float64 each."""

    scores: list[Tensor]
    targets: list[Tensor]

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.labels = labels
        self.reset()

    @property
    def metric_state(self) -> dict[str, Any]:
        return {"scores": self.scores, "targets": self.targets}

    def update(self, logits: Tensor, target: Tensor) -> None:
        self.scores.append(logits.float())
        self.targets.append(target.float().view(logits.shape))

    def compute(self) -> tuple[Tensor, Tensor]:
        return self._of_all(self.scores), self._of_all(self.targets)

    def reset(self) -> None:
        self.scores = []
        self.targets = []

    def _of_all(self, rows: list[Tensor]) -> Tensor:
        # A process without any takes part in the exchange.
        local = torch.cat(rows) if rows else torch.zeros(0, self.labels, device=self.device)
        return torch.cat(gathered(local)).double().cpu()


_ACCUMULATORS: dict[Kind, Callable[[Task], Accumulator]] = {
    "single-label": lambda task: _Sums(_confusion, task.outputs, task.outputs),
    "multilabel": lambda task: _Rows(task.outputs),
    "regression": lambda task: _Sums(partial(_regression_sums, task.log10), 7, task.outputs),
    "links": lambda _: _Sums(link_ranks, len(RANKINGS) + len(HITS) + 1),
}


class SplitMetrics(nn.Module):
    """Loss and all metrics of one split, over all its rows (points, graphs) pooled.

    The sums are no buffers of the module, and :meth:`compute` adds them over the processes of a
    distributed run. Equal to scikit-learn's ``accuracy_score``, ``f1_score(average="macro",
    zero_division=0)``, ``jaccard_score(average="macro")``, ``average_precision_score`` (mean over labels),
    ``mean_absolute_error`` and ``r2_score`` on the concatenated predictions of the split
    (``graphgps/logger.py`` of the paper's code). The loss is Σ loss·rows / Σ rows over batches, a row being
    a known target. ``chosen`` may be the metric of a plugin, computed besides ours.
    """

    def __init__(self, task: Task, chosen: str | None = None) -> None:
        super().__init__()
        self.kind = task.kind
        ours = {name: metric for name, metric in METRICS.items() if metric.kind == task.kind}
        self.of = ours | ({} if chosen is None else {chosen: all_metrics()[chosen]})
        self.rows = _ACCUMULATORS[task.kind](task)
        own = None if chosen is None else self.of[chosen].accumulator
        self.own = None if own is None else own(task)
        self.loss = _Sums(_loss_of_rows, 2)

    @torch.no_grad()
    def update(self, logits: Tensor, target: Tensor, loss: Tensor) -> None:
        """Add a batch: ``logits`` (N, outputs), its targets, its scalar ``loss``."""
        self.rows.update(logits, target)
        if self.own is not None:
            self.own.update(logits, target)
        self.loss.update(loss.detach(), self._known(target))

    def _known(self, target: Tensor) -> Tensor:
        """Targets that the loss is a mean over, up to a factor."""
        return (target == LINK if self.kind == "links" else ~target.isnan()).sum()

    def compute(self) -> dict[str, float]:
        """``loss`` and every metric of the task's kind, then start anew."""
        rows = self.rows.compute()
        own = rows if self.own is None else self.own.compute()
        total, known = self.loss.compute()
        found = {
            name: metric.compute(rows if metric.accumulator is None else own)
            for name, metric in self.of.items()
        }
        self.reset()
        loss = total / known.clamp_min(
            1
        )  # a part without a known target has loss 0, as a batch has
        return {name: float(value) for name, value in {"loss": loss, **found}.items()}

    def state(self) -> dict[str, Any]:
        """Return what was counted so far, on the CPU, for :meth:`load`."""
        return {name: _moved(metric.metric_state, "cpu") for name, metric in self.named_children()}

    def load(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Continue from the result of :meth:`state`."""
        for name, values in state.items():
            for key, value in values.items():
                found = _moved(value, self.loss.device)
                if self.kind == "regression" and name == "rows" and len(found) == 5:
                    found = pad(found, (0, 0, 0, 2))  # of a version without means of batches
                setattr(self.get_submodule(name), key, found)

    def reset(self) -> None:
        """Forget all batches."""
        self.rows.reset()
        self.loss.reset()
        if self.own is not None:
            self.own.reset()


def _moved(value: Any, device: torch.device | str) -> Any:
    """Return a metric's state, tensors and lists of them by name, on a device."""
    if isinstance(value, Mapping):
        return {name: _moved(each, device) for name, each in value.items()}
    return [_moved(each, device) for each in value] if isinstance(value, list) else value.to(device)
