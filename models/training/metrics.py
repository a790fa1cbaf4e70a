"""Metrics by name, which a run reports and selects its best epoch by; torch is loaded on use.

A metric is one entry of :data:`METRICS`: function, title, unit, direction and targets. Keys,
tables, pictures and error messages read all of it here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kmip_data.format.targets import TargetType
from kmip_data.models.training.tasks import Task
from kmip_data.registry import with_added

if TYPE_CHECKING:
    from torch import Tensor

HITS = (1, 3, 10)
#: Link metrics by name, in the order of their sums, which the number of graphs with links follows:
#: rankings among all nodes of the graph, without other links, and also without itself; then hits.
LINK_TITLES = {
    "mrr": "MRR",
    "mrr_filtered": "filtered MRR",
    "mrr_extended": "extended filtered MRR",
    "hits1": "hits@1",
    "hits3": "hits@3",
    "hits10": "hits@10",
}


def accuracy(confusion: Tensor) -> Tensor:
    """Fraction of correct rows, from a confusion matrix (C, C), row by label."""
    return confusion.diagonal().sum() / confusion.sum()


def macro_f1(confusion: Tensor) -> Tensor:
    """Mean F1 over classes among labels or predictions, from a confusion matrix (C, C)."""
    hit = confusion.diagonal()
    labels = confusion.sum(1)
    predictions = confusion.sum(0)
    return _mean_over_present(2 * hit, labels + predictions)


def class_accuracy(confusion: Tensor) -> Tensor:
    """Mean fraction of correct rows per class, from a confusion matrix (C, C), over classes that occur.

    0 for a class that is not a label. GraphGPS's ``accuracy-SBM`` over the rows of a whole part, by
    which PATTERN and CLUSTER are reported; where every class is a label, the balanced accuracy.
    """
    hit = confusion.diagonal()
    labels = confusion.sum(1)
    occurs = labels + confusion.sum(0) > 0
    return (hit / labels.clamp_min(1))[occurs].mean()


def mean_iou(confusion: Tensor) -> Tensor:
    """Mean Jaccard index over classes among labels or predictions, from a confusion matrix (C, C)."""
    hit = confusion.diagonal()
    labels = confusion.sum(1)
    predictions = confusion.sum(0)
    return _mean_over_present(hit, labels + predictions - hit)


def _mean_over_present(numerator: Tensor, denominator: Tensor) -> Tensor:
    # The denominator of a class is 0 exactly when it is neither a label nor a prediction.
    present = denominator > 0
    return (numerator[present] / denominator[present]).mean()


def mean_average_precision(rows: tuple[Tensor, Tensor]) -> Tensor:
    """Average precision, averaged over labels; labels without positives are left out.

    Takes scores and targets (0, 1, NaN for unknown), both (N, T) float64. A label equals
    scikit-learn's ``average_precision_score`` on its known rows. Labels are left out as in the
    paper's code (``graphgps/metric_wrapper.py``, ``ignore-mean-label``); OGB's evaluator also
    leaves out those that are positive everywhere, where the average precision is 1.
    """
    scores, targets = rows
    precisions = []
    for score, target in zip(scores.T, targets.T, strict=True):
        known = ~target.isnan()
        if bool((target[known] == 1).any()):
            precisions.append(_average_precision(score[known], target[known]))
    return _mean(precisions)


def _average_precision(score: Tensor, target: Tensor) -> Tensor:
    """Σ precision · gain in recall over the thresholds, equal scores being one threshold."""
    import torch

    score, order = score.sort(descending=True)
    end = score.new_ones(1, dtype=torch.bool)
    last = torch.cat([score[1:] != score[:-1], end])  # the last row of each threshold
    hits = target[order].cumsum(0)[last]
    ranks = torch.arange(1, len(score) + 1, dtype=torch.float64)
    precision = hits / ranks[last]
    gained = torch.diff(hits, prepend=hits.new_zeros(1))
    return (precision * gained).sum() / hits[-1]


def mean_roc_auc(rows: tuple[Tensor, Tensor]) -> Tensor:
    """Area under the ROC curve, averaged over labels.

    Takes scores and targets, (N, T) each, as :func:`mean_average_precision`. A label equals scikit-learn's
    ``roc_auc_score`` on its known rows; one without a positive and a negative row is left out, as
    in OGB's evaluator.
    """
    import torch

    scores, targets = rows
    areas = []
    for score, target in zip(scores.T, targets.T, strict=True):
        known = ~target.isnan()
        positive = score[known & (target == 1)]
        negative = score[known & (target != 1)].sort().values
        if not len(positive) or not len(negative):
            continue
        # Correctly ranked pairs; equal scores count half.
        below = torch.searchsorted(negative, positive, right=False)
        not_above = torch.searchsorted(negative, positive, right=True)
        pairs = (below + not_above).sum().double() / 2
        areas.append(pairs / (len(positive) * len(negative)))
    return _mean(areas)


def _mean(values: list[Tensor]) -> Tensor:
    """Mean over labels; NaN without any."""
    import torch

    return torch.tensor(values, dtype=torch.float64).mean()


def mean_absolute_error(sums: Tensor) -> Tensor:
    """Mean over targets of their mean absolute error, of the sums ``(7, T)`` of the accumulator of numbers."""
    rows, errors, *_ = sums.unbind()
    return (errors / rows)[rows > 0].mean()


def mean_error_of_batches(sums: Tensor) -> Tensor:
    """Mean over batches of the mean absolute error of each, then over targets, of sums (7, T).

    ECHO's metric. Unlike :func:`mean_absolute_error`, it depends on the batch size, as small
    batches count as much as large ones. A batch shared by several processes counts once for each.
    """
    *_, errors, batches = sums.unbind()
    return (errors / batches)[batches > 0].mean()


def log10_mean_squared_error(sums: Tensor) -> Tensor:
    """Decimal logarithm of the mean squared error, itself a mean over targets, of sums (7, T)."""
    rows, _, squares, *_ = sums.unbind()
    return (squares / rows)[rows > 0].mean().log10()


def r_squared(sums: Tensor) -> Tensor:
    """Mean over targets of R² = 1 - Σ (prediction - target)² / Σ (target - mean)², of sums (7, T).

    Constant targets, and one value alone, have no spread and are left out; NaN without any other.
    Elsewhere it equals scikit-learn's ``r2_score``.
    """
    _, _, squares, _, spread = sums[:5]
    varies = spread != 0
    explained: Tensor = 1 - squares[varies] / spread[varies]
    return explained.mean()


def mean_over_graphs(name: str, sums: Tensor) -> Tensor:
    """One of :data:`LINK_TITLES` over the number of graphs, of sums (7,)."""
    return sums[[*LINK_TITLES].index(name)] / sums[-1]


class Accumulator(Protocol):
    """Counts of batches, on one or several processes; an object of torchmetrics is one.

    A module, too, whose ``metric_state`` has its tensors and lists of tensors by name.
    """

    def update(self, logits: Tensor, target: Tensor, /) -> None:
        """Count a batch: logits (N, C) and their targets (N,) or (N, C)."""

    def compute(self) -> Any:
        """Return the counts of all processes together."""

    def reset(self) -> None:
        """Forget all batches."""


@dataclass(frozen=True)
class Metric:
    """Computation of a metric from accumulated values, with direction and unit."""

    #: Value from the accumulator's sums: of classes the confusion matrix (C, C), row by label; of labels
    #: scores and targets, (N, L) each; of numbers seven sums a target, (7, T); of links :data:`LINK_TITLES`.
    compute: Callable[[Any], Tensor]
    title: str
    target_type: TargetType
    higher_is_better: bool = True
    percent: bool = False  #: True if it is a fraction, printed in percent
    #: accumulator of a plugin's metric; None: the accumulator of its target type
    accumulator: Callable[[Task], Accumulator] | None = None
    #: True if it also applies to two classes, by the difference of their scores
    of_two_classes: bool = False
    of_nodes: bool = False  #: True if computed for targets of nodes; for others only on request
    everywhere: bool = (
        True  #: True if computed for every task of its target type; otherwise only on request
    )
    #: What the targets of a part must have, else the metric is undefined; empty: nothing.
    needs: str = ""


#: Constructor of a metric in percent.
_share = partial(Metric, percent=True)
METRICS: dict[str, Metric] = {
    "accuracy": _share(accuracy, "accuracy", "classification"),
    "f1": _share(macro_f1, "macro F1", "classification"),
    "miou": _share(mean_iou, "mIoU", "classification", of_nodes=True),
    "accuracy_sbm": _share(class_accuracy, "accuracy-SBM", "classification", everywhere=False),
    "ap": _share(
        mean_average_precision,
        "AP",
        "multilabel",
        of_two_classes=True,
        needs="a row of the second class, or with a label",
    ),
    "roc_auc": _share(
        mean_roc_auc,
        "ROC-AUC",
        "multilabel",
        of_two_classes=True,
        everywhere=False,
        needs="rows of both classes, or with and without a label",
    ),
    "mae": Metric(mean_absolute_error, "MAE", "regression", higher_is_better=False),
    "mae_batches": Metric(
        mean_error_of_batches, "MAE of batches", "regression", higher_is_better=False
    ),
    "log10_mse": Metric(
        log10_mean_squared_error,
        "log₁₀ MSE",
        "regression",
        higher_is_better=False,
        everywhere=False,
    ),
    "r2": Metric(r_squared, "R²", "regression", needs="two different targets"),
}
for _name, _title in LINK_TITLES.items():
    METRICS[_name] = _share(partial(mean_over_graphs, _name), _title, "links")


def all_metrics() -> Mapping[str, Metric]:
    """Return the metrics by name, with the metrics of loaded plugins."""
    return with_added("metrics", METRICS)


def is_percent(name: str) -> bool:
    """True for a metric reported in percent; False for the loss."""
    metric = all_metrics().get(name)
    return metric is not None and metric.percent


def is_better(metric: str, new: float, old: float | None) -> bool:
    """True if ``new`` strictly beats ``old`` (``None``: no value yet), so ties keep the first epoch.

    NaN never beats anything.
    """
    if old is None:
        return not math.isnan(new)
    if all_metrics()[metric].higher_is_better:
        return new > old
    return new < old
