"""Metrics by name, accumulated over a split as one confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torchmetrics import Metric as Accumulator
from torchmetrics.classification import MulticlassConfusionMatrix

PARTS = ("train", "val", "test")  #: of a split, in the order in which they are shown


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


@dataclass(frozen=True)
class Metric:
    """How a metric is computed from the confusion matrix, and which end is better."""

    compute: Callable[[Tensor], Tensor]  #: ``(C, C)`` float64, rows are labels, columns predictions
    better: Literal["higher", "lower"]
    title: str


METRICS: dict[str, Metric] = {
    "accuracy": Metric(accuracy, "higher", "accuracy"),
    "f1": Metric(macro_f1, "higher", "macro F1"),
    "miou": Metric(mean_iou, "higher", "mIoU"),
}


def is_better(metric: str, new: float, old: float | None) -> bool:
    """Whether ``new`` strictly beats ``old`` (``None``: nothing yet), so that the first best epoch stays.

    NaN never does.
    """
    if old is None:
        return not math.isnan(new)
    return new > old if METRICS[metric].better == "higher" else new < old


class _MeanLoss(Accumulator):
    """Σ loss·rows / Σ rows in float64 (``MeanMetric`` drops the weights when it need not look for NaN)."""

    full_state_update = False
    total: Tensor
    rows: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("rows", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, loss: Tensor, rows: int) -> None:
        self.total += loss.double() * rows
        self.rows += rows

    def compute(self) -> Tensor:
        return self.total / self.rows


class SplitMetrics(nn.Module):
    """Loss and all metrics of one split, over all its rows (points) pooled.

    The sums are torchmetrics states, so :meth:`compute` adds them over the processes of a
    distributed run. Memory is C² integers, whatever the size of the split.

    Notes
    -----
    Equal to scikit-learn's ``accuracy_score``, ``f1_score(average="macro", zero_division=0)`` and
    ``jaccard_score(average="macro")`` on the concatenated predictions of the split
    (``graphgps/logger.py`` of the paper's code). The loss is Σ loss·rows / Σ rows over batches.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.confusion = MulticlassConfusionMatrix(num_classes, validate_args=False)
        self.loss = _MeanLoss()

    @torch.no_grad()
    def update(self, logits: Tensor, target: Tensor, loss: Tensor) -> None:
        """Add a batch: ``logits`` (N, C), ``target`` (N,) int64, its scalar ``loss``."""
        self.confusion.update(logits.argmax(dim=-1), target)
        self.loss.update(loss.detach(), target.numel())

    def compute(self) -> dict[str, float]:
        """``loss`` and every metric of :data:`METRICS`, then start anew."""
        confusion = self.confusion.compute().double().cpu()
        values = {"loss": float(self.loss.compute())}
        values |= {name: float(metric.compute(confusion)) for name, metric in METRICS.items()}
        self.reset()
        return values

    def reset(self) -> None:
        """Forget all batches."""
        self.confusion.reset()
        self.loss.reset()
