"""Metrics that runs report and select their best epoch by; torch is imported on use.

A metric is one entry of :data:`METRICS`: function, title, unit, direction and targets. Configuration
keys, tables, plots and error messages are derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

from pydantic import Field

from kmip_data.format.targets import TargetType
from kmip_data.models.training.tasks import Level, Task
from kmip_data.registry import with_plugin_entries
from kmip_data.strict_model import StrictModel

if TYPE_CHECKING:
    from torch import Tensor

#: Metric values by part and metric name.
MetricsByPart = dict[str, dict[str, float]]
#: Largest ranks that count as hits.
HIT_RANKS = (1, 3, 10)
#: Titles of the link metrics, each a field of :class:`LinkSums`.
LINK_TITLES = {
    "mrr": "MRR",
    "mrr_filtered": "filtered MRR",
    "mrr_extended": "extended filtered MRR",
    "hits1": "hits@1",
    "hits3": "hits@3",
    "hits10": "hits@10",
}


#: Constant prediction: the most frequent train class, any one class, or a statistic of train targets.
Constant = Literal["majority", "any class", "median", "mean"]


class RegressionSums(NamedTuple):
    """Sums over the rows with a known target, per target: (T,) float64 each."""

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
    labels: Tensor  #: 0, 1, or NaN if unknown
    weights: Tensor | None = None  #: (N,) weights of the rows; ``None``: 1

    def known(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield scores, labels and weights (n,) of the known rows of each label."""
        weights = self.scores.new_ones(len(self.scores)) if self.weights is None else self.weights
        for score, label in zip(self.scores.T, self.labels.T, strict=True):
            is_known = ~label.isnan()
            yield score[is_known], label[is_known], weights[is_known]


class LinkSums(NamedTuple):
    """Sums over graphs of ranking metrics, each a mean over a graph's links: float64 scalars."""

    mrr: Tensor  #: reciprocal ranks among all nodes of the graph
    mrr_filtered: Tensor  #: reciprocal ranks, ignoring the node's other links
    mrr_extended: Tensor  #: reciprocal ranks, also ignoring the node itself
    hits1: Tensor
    hits3: Tensor
    hits10: Tensor
    graphs: Tensor  #: number of graphs with links


class ClassScores(StrictModel):
    """Scores of one class on a part."""

    precision: float | None = Field(
        description="share of the predictions of the class that are right; none: never predicted"
    )
    recall: float | None = Field(
        description="share of the rows of the class that are found; none: the part has no such row"
    )
    f1: float | None = Field(
        description="harmonic mean of both; none: neither label nor prediction"
    )
    count: int = Field(description="rows of the part with this class")


def accuracy(confusion: Tensor) -> Tensor:
    """Fraction of correct rows, from a confusion matrix (C, C) with a row per label."""
    return confusion.diagonal().sum() / confusion.sum()


def macro_f1(confusion: Tensor) -> Tensor:
    """Mean F1 over the classes that are a label or a prediction, from a confusion matrix (C, C)."""
    hits = confusion.diagonal()
    labels = confusion.sum(1)
    predictions = confusion.sum(0)
    return _mean_over_present(2 * hits, labels + predictions)


def mean_class_accuracy(confusion: Tensor) -> Tensor:
    """Mean over classes of the fraction of correct rows, from a confusion matrix (C, C).

    The mean covers the classes that are a label or a prediction; a class that is never a label
    counts as 0. This is GraphGPS's ``accuracy-SBM``, by which PATTERN and CLUSTER are reported,
    computed over an entire part. If every class is a label, it is the balanced accuracy.
    """
    hits = confusion.diagonal()
    labels = confusion.sum(1)
    present = labels + confusion.sum(0) > 0
    return (hits / labels.clamp_min(1))[present].mean()


def balanced_accuracy(confusion: Tensor) -> Tensor:
    """Mean recall of the classes that are a label, from a confusion matrix (C, C).

    Equals scikit-learn's ``balanced_accuracy_score``. A constant answer has 1 / (number of classes).
    """
    labels = confusion.sum(1)
    return (confusion.diagonal() / labels)[labels > 0].mean()


def matthews_correlation(confusion: Tensor) -> Tensor:
    """Matthews correlation coefficient of labels and predictions, from a confusion matrix (C, C).

    Equals scikit-learn's ``matthews_corrcoef``, also where labels or predictions are a single class
    and the correlation is undefined: 0, as that of a constant answer.
    """
    rows = confusion.sum()
    labels = confusion.sum(1)
    predictions = confusion.sum(0)
    covariance = confusion.diagonal().sum() * rows - labels @ predictions
    # Of a single class, the variance is exactly 0: its only product is rows².
    variances = (rows**2 - labels @ labels) * (rows**2 - predictions @ predictions)
    return covariance / variances.sqrt() if variances else variances


def mean_iou(confusion: Tensor) -> Tensor:
    """Mean Jaccard index over the classes that are a label or a prediction, from a confusion matrix (C, C)."""
    hits = confusion.diagonal()
    labels = confusion.sum(1)
    predictions = confusion.sum(0)
    return _mean_over_present(hits, labels + predictions - hits)


def _mean_over_present(numerator: Tensor, denominator: Tensor) -> Tensor:
    # The denominator of a class is 0 exactly when it is neither a label nor a prediction.
    present = denominator > 0
    return (numerator[present] / denominator[present]).mean()


def scores_of_classes(confusion: Tensor) -> list[ClassScores]:
    """Return the scores of each class, from a confusion matrix (C, C) with a row per label."""
    scores = []
    columns = (confusion.diagonal(), confusion.sum(1), confusion.sum(0))
    for hits, labels, predictions in zip(*(column.tolist() for column in columns), strict=True):
        scores.append(
            ClassScores(
                precision=hits / predictions if predictions else None,
                recall=hits / labels if labels else None,
                f1=2 * hits / (labels + predictions) if labels + predictions else None,
                count=int(labels),
            )
        )
    return scores


def mean_average_precision(rows: LabelRows) -> Tensor:
    """Average precision, averaged over the labels with a positive row.

    A label's value equals scikit-learn's ``average_precision_score`` on its known rows. Labels are
    skipped as in the paper's code (``graphgps/metric_wrapper.py``, ``ignore-mean-label``); OGB's
    evaluator also skips labels that are positive in every row, whose average precision is 1.
    """
    precisions = []
    for score, target, weight in rows.known():
        if bool((target == 1).any()):
            precisions.append(_average_precision(score, target, weight))
    return _mean(precisions)


def _average_precision(score: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Σ precision · gain in recall over the thresholds; equal scores form one threshold."""
    import torch

    score, order = score.sort(descending=True)
    end = score.new_ones(1, dtype=torch.bool)
    last = torch.cat([score[1:] != score[:-1], end])  # last row of each threshold
    hits = (weight * target)[order].cumsum(0)[last]
    precision = hits / weight[order].cumsum(0)[last]
    new_hits = torch.diff(hits, prepend=hits.new_zeros(1))
    return (precision * new_hits).sum() / hits[-1]


def mean_roc_auc(rows: LabelRows) -> Tensor:
    """Area under the ROC curve, averaged over labels.

    A label's value equals scikit-learn's ``roc_auc_score`` on its known rows. Labels without both
    positive and negative rows are skipped, as in OGB's evaluator.
    """
    import torch

    areas = []
    for score, target, weight in rows.known():
        positive = score[target == 1]
        negative, order = score[target != 1].sort()
        if not len(positive) or not len(negative):
            continue
        # Count correctly ranked pairs; pairs with equal scores count half.
        weight_below = torch.nn.functional.pad(weight[target != 1][order].cumsum(0), (1, 0))
        below = weight_below[torch.searchsorted(negative, positive, right=False)]
        below_or_equal = weight_below[torch.searchsorted(negative, positive, right=True)]
        positive_weight = weight[target == 1]
        correct_pairs = (positive_weight * (below + below_or_equal)).sum() / 2
        areas.append(correct_pairs / (positive_weight.sum() * weight_below[-1]))
    return _mean(areas)


def _mean(values: list[Tensor]) -> Tensor:
    """Mean over labels; NaN without labels."""
    import torch

    return torch.stack(values).mean() if values else torch.tensor(math.nan)


def mean_absolute_error(sums: RegressionSums) -> Tensor:
    """Mean absolute error, averaged over targets."""
    return (sums.absolute / sums.rows)[sums.rows > 0].mean()


def root_mean_squared_error(sums: RegressionSums) -> Tensor:
    """Root of the mean squared error, averaged over targets."""
    return (sums.squares / sums.rows)[sums.rows > 0].sqrt().mean()


def batch_mean_absolute_error(sums: RegressionSums) -> Tensor:
    """Mean absolute error of each batch, averaged over batches and then over targets.

    This is ECHO's metric. Unlike :func:`mean_absolute_error`, it depends on the batch size, as small
    batches count as much as large ones. A batch shared by several processes counts once per process.
    """
    return (sums.batch_means / sums.batches)[sums.batches > 0].mean()


def log10_mean_squared_error(sums: RegressionSums) -> Tensor:
    """Decimal logarithm of the mean squared error, averaged over targets."""
    return (sums.squares / sums.rows)[sums.rows > 0].mean().log10()


def r_squared(sums: RegressionSums) -> Tensor:
    """R² = 1 - Σ (prediction - target)² / Σ (target - mean)², averaged over targets.

    Constant targets are skipped; without any other target the result is NaN. Otherwise it equals
    scikit-learn's ``r2_score``.
    """
    varies = sums.spread != 0
    explained: Tensor = 1 - sums.squares[varies] / sums.spread[varies]
    return explained.mean()


def mean_over_graphs(name: str, sums: LinkSums) -> Tensor:
    """Mean over graphs of the link metric called ``name``."""
    total: Tensor = getattr(sums, name)
    return total / sums.graphs


class Accumulator(Protocol):
    """Accumulated values of batches, on one or several processes, such as a torchmetrics metric.

    It must also be a module whose ``metric_state`` holds its tensors, and lists of tensors, by name.
    Its ``merge_state``, which adds another ``metric_state``, is only called when a run continues
    within an epoch on another number of processes.
    """

    def update(self, logits: Tensor, target: Tensor, /) -> None:
        """Add a batch.

        Parameters
        ----------
        logits
            Outputs of the network, (N, C), in the precision of the run; (G, W, W) for links.
        target
            (N,) int64 classes, -1 if unknown; (N, C) float labels or values, NaN if unknown; (G, W,
            W) int8 links, see :mod:`kmip_data.models.training.tasks`.
        """

    def compute(self) -> Any:
        """Return the accumulated result of all processes, the argument of :attr:`Metric.compute`."""

    def reset(self) -> None:
        """Discard all batches."""


@dataclass(frozen=True)
class Metric:
    """Computation of a metric from accumulated values, with direction and unit."""

    #: Compute the metric, a scalar tensor (NaN if undefined), from the accumulated result of a part.
    #: Without ``accumulator`` that is, on the CPU and in float64, for ``classification`` a confusion
    #: matrix (C, C) whose entry [i, j] counts the rows of class i predicted as j; for ``multilabel``
    #: :class:`LabelRows`; for ``regression`` :class:`RegressionSums`; for ``links``
    #: :class:`LinkSums`.
    compute: Callable[[Any], Tensor]
    title: str
    target_type: TargetType
    higher_is_better: bool = True
    percent: bool = False  #: True for a fraction, which is printed in percent
    #: accumulator of a plugin's metric; ``None``: the accumulator of its target type
    accumulator: Callable[[Task], Accumulator] | None = None
    #: True if it also applies to two classes, by the difference of their scores
    supports_two_classes: bool = False
    #: levels of the targets at which every run reports the metric; at others, only on request
    reported_levels: tuple[Level, ...] = get_args(Level)
    #: True if only runs with this ``training.metric`` report it, at every level
    only_on_request: bool = False
    #: condition on a part's targets without which the metric is undefined; empty: none
    required_targets: str = ""
    #: reference answer of a constant: its value, or the prediction that is measured; ``None``: none
    constant: float | Constant | None = None

    def is_reported_for(self, target_type: TargetType, level: Level) -> bool:
        """True if every run with targets of this type and level reports the metric."""
        fits_targets = self.target_type == target_type and level in self.reported_levels
        return fits_targets and not self.only_on_request


_percent_metric = partial(Metric, percent=True)
_error_metric = partial(Metric, target_type="regression", higher_is_better=False)
METRICS: dict[str, Metric] = {
    "accuracy": _percent_metric(accuracy, "accuracy", "classification", constant="majority"),
    "f1": _percent_metric(macro_f1, "macro F1", "classification"),
    "balanced_accuracy": _percent_metric(
        balanced_accuracy, "balanced accuracy", "classification", constant="any class"
    ),
    "mcc": Metric(matthews_correlation, "MCC", "classification", constant=0.0),
    "miou": _percent_metric(mean_iou, "mIoU", "classification", reported_levels=("node",)),
    "accuracy_sbm": _percent_metric(
        mean_class_accuracy, "accuracy-SBM", "classification", only_on_request=True
    ),
    "ap": _percent_metric(
        mean_average_precision,
        "AP",
        "multilabel",
        supports_two_classes=True,
        required_targets="a row of the second class, or with a label",
    ),
    "roc_auc": _percent_metric(
        mean_roc_auc,
        "ROC-AUC",
        "multilabel",
        supports_two_classes=True,
        only_on_request=True,
        required_targets="rows of both classes, or with and without a label",
        constant=0.5,
    ),
    "mae": _error_metric(mean_absolute_error, "MAE", constant="median"),
    "rmse": _error_metric(root_mean_squared_error, "RMSE", constant="mean"),
    "mae_batches": _error_metric(batch_mean_absolute_error, "MAE of batches"),
    "log10_mse": _error_metric(log10_mean_squared_error, "log₁₀ MSE", only_on_request=True),
    "r2": Metric(
        r_squared, "R²", "regression", required_targets="two different targets", constant="mean"
    ),
}
for _name, _title in LINK_TITLES.items():
    METRICS[_name] = _percent_metric(partial(mean_over_graphs, _name), _title, "links")

#: Metrics by their names in other libraries, reduced to letters and digits.
METRIC_SYNONYMS = {
    "acc": "accuracy",
    "macrof1": "f1",
    "f1macro": "f1",
    "f1score": "f1",
    "bacc": "balanced_accuracy",
    "matthews": "mcc",
    "matthewscorrcoef": "mcc",
    "iou": "miou",
    "auc": "roc_auc",
    "auroc": "roc_auc",
    "map": "ap",
    "auprc": "ap",
    "averageprecision": "ap",
    "l1": "mae",
    "rootmeansquarederror": "rmse",
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
    """True if ``new`` is strictly better than ``old``, so that ties keep the first epoch.

    ``old`` is ``None`` before the first value. NaN is never better.
    """
    if old is None:
        return not math.isnan(new)
    if all_metrics()[metric].higher_is_better:
        return new > old
    return new < old
