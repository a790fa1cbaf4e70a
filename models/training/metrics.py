"""Metrics by name, which a run reports and selects its best epoch by; torch is loaded on use.

A metric is one entry of :data:`METRICS`: function, title, unit, direction and targets. Keys,
tables, pictures and error messages read all of it here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from kmip_data.format.targets import TargetType
from kmip_data.models.training.tasks import Task
from kmip_data.registry import with_plugin_entries

if TYPE_CHECKING:
    from torch import Tensor

HITS = (1, 3, 10)
#: Titles of the link metrics, each a sum of :class:`LinkSums`.
LINK_TITLES = {
    "mrr": "MRR",
    "mrr_filtered": "filtered MRR",
    "mrr_extended": "extended filtered MRR",
    "hits1": "hits@1",
    "hits3": "hits@3",
    "hits10": "hits@10",
}


class RegressionSums(NamedTuple):
    """Sums over the rows with a known target, a value per target: (T,) float64 each."""

    rows: Tensor  #: number of rows
    absolute: Tensor  #: absolute errors
    squares: Tensor  #: squared errors
    mean: Tensor  #: mean of the targets
    spread: Tensor  #: squared distances of the targets from their mean
    batch_means: Tensor  #: mean absolute errors of the batches
    batches: Tensor  #: number of batches with a known target


class LabelRows(NamedTuple):
    """Scores and labels of all rows, (N, L) float64 each."""

    scores: Tensor
    labels: Tensor  #: 0, 1, or NaN for unknown


class LinkSums(NamedTuple):
    """Sums over graphs of the mean ranking metrics of a graph's links: float64 scalars."""

    mrr: Tensor  #: reciprocal ranks among all nodes of the graph
    mrr_filtered: Tensor  #: reciprocal ranks without the node's other links
    mrr_extended: Tensor  #: reciprocal ranks also without the node itself
    hits1: Tensor
    hits3: Tensor
    hits10: Tensor
    graphs: Tensor  #: number of graphs with links


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


def mean_average_precision(rows: LabelRows) -> Tensor:
    """Average precision, averaged over labels; labels without positives are left out.

    A label's value equals scikit-learn's ``average_precision_score`` on its known rows. Labels are
    left out as in the paper's code (``graphgps/metric_wrapper.py``, ``ignore-mean-label``); OGB's
    evaluator also leaves out labels that are positive everywhere, where the average precision is 1.
    """
    precisions = []
    for score, target in zip(rows.scores.T, rows.labels.T, strict=True):
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


def mean_roc_auc(rows: LabelRows) -> Tensor:
    """Area under the ROC curve, averaged over labels.

    A label's value equals scikit-learn's ``roc_auc_score`` on its known rows; a label without a
    positive and a negative row is left out, as in OGB's evaluator.
    """
    import torch

    areas = []
    for score, target in zip(rows.scores.T, rows.labels.T, strict=True):
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


def mean_absolute_error(sums: RegressionSums) -> Tensor:
    """Mean over targets of their mean absolute error."""
    return (sums.absolute / sums.rows)[sums.rows > 0].mean()


def mean_error_of_batches(sums: RegressionSums) -> Tensor:
    """Mean over batches of the mean absolute error of each, then over targets.

    ECHO's metric. Unlike :func:`mean_absolute_error`, it depends on the batch size, as small
    batches count as much as large ones. A batch shared by several processes counts once for each.
    """
    return (sums.batch_means / sums.batches)[sums.batches > 0].mean()


def log10_mean_squared_error(sums: RegressionSums) -> Tensor:
    """Decimal logarithm of the mean squared error, itself a mean over targets."""
    return (sums.squares / sums.rows)[sums.rows > 0].mean().log10()


def r_squared(sums: RegressionSums) -> Tensor:
    """Mean over targets of R² = 1 - Σ (prediction - target)² / Σ (target - mean)².

    Constant targets, and one value alone, have no spread and are left out; NaN without any other.
    Elsewhere it equals scikit-learn's ``r2_score``.
    """
    varies = sums.spread != 0
    explained: Tensor = 1 - sums.squares[varies] / sums.spread[varies]
    return explained.mean()


def mean_over_graphs(name: str, sums: LinkSums) -> Tensor:
    """Mean over graphs of the link metric called ``name``."""
    total: Tensor = getattr(sums, name)
    return total / sums.graphs


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

    #: Value from the accumulated result of the target type: for classes the confusion matrix (C, C),
    #: row by label; else :class:`LabelRows`, :class:`RegressionSums` or :class:`LinkSums`.
    compute: Callable[[Any], Tensor]
    title: str
    target_type: TargetType
    higher_is_better: bool = True
    percent: bool = False  #: True if it is a fraction, printed in percent
    #: accumulator of a plugin's metric; None: the accumulator of its target type
    accumulator: Callable[[Task], Accumulator] | None = None
    #: True if it also applies to two classes, by the difference of their scores
    of_two_classes: bool = False
    #: Runs that compute the metric: all of its target type, those with targets of nodes, or only
    #: those whose ``training.metric`` it is.
    reported: Literal["always", "of nodes", "on request"] = "always"
    #: Property that the targets of a part must have, else the metric is undefined; empty: none.
    needs: str = ""

    def is_reported_for(self, target_type: TargetType, level: str) -> bool:
        """True if every run with targets of this type and level reports the metric."""
        levels = {"always": {level}, "of nodes": {"node"}, "on request": set()}
        return self.target_type == target_type and level in levels[self.reported]


#: Constructor of a metric in percent.
_percent_metric = partial(Metric, percent=True)
METRICS: dict[str, Metric] = {
    "accuracy": _percent_metric(accuracy, "accuracy", "classification"),
    "f1": _percent_metric(macro_f1, "macro F1", "classification"),
    "miou": _percent_metric(mean_iou, "mIoU", "classification", reported="of nodes"),
    "accuracy_sbm": _percent_metric(
        class_accuracy, "accuracy-SBM", "classification", reported="on request"
    ),
    "ap": _percent_metric(
        mean_average_precision,
        "AP",
        "multilabel",
        of_two_classes=True,
        needs="a row of the second class, or with a label",
    ),
    "roc_auc": _percent_metric(
        mean_roc_auc,
        "ROC-AUC",
        "multilabel",
        of_two_classes=True,
        reported="on request",
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
        reported="on request",
    ),
    "r2": Metric(r_squared, "R²", "regression", needs="two different targets"),
}
for _name, _title in LINK_TITLES.items():
    METRICS[_name] = _percent_metric(partial(mean_over_graphs, _name), _title, "links")

#: Word of other libraries, letters and digits alone -> metric that it may mean.
METRIC_HINTS = {
    "acc": "accuracy",
    "macrof1": "f1",
    "f1macro": "f1",
    "f1score": "f1",
    "iou": "miou",
    "auc": "roc_auc",
    "auroc": "roc_auc",
    "map": "ap",
    "auprc": "ap",
    "averageprecision": "ap",
    "l1": "mae",
    "rsquared": "r2",
}


def all_metrics() -> Mapping[str, Metric]:
    """Return the metrics by name, with the metrics of loaded plugins."""
    return with_plugin_entries("metrics", METRICS)


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
