"""Metric of a constant prediction, which a trained network should exceed."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from kmip_data.models.training.accumulators import PartMetrics
from kmip_data.models.training.data.run_data import RunData

_CONSTANTS = {"roc_auc": 0.5, "mcc": 0.0}  #: metrics that are equal for every constant


class ChanceMetric(NamedTuple):
    """Metric of a constant prediction on test."""

    chance: float | None  #: ``None`` for a metric without one, or unknown counts
    chance_tie: str = ""  #: the predicted class, if several are the most frequent in train


def chance_metric(data: RunData, metric: str) -> ChanceMetric:
    """Return the metric of a constant prediction on test.

    The prediction is the most frequent train class for accuracy, the median of the train targets for
    MAE, and their mean for RMSE and R²; a constant has a ROC-AUC of 0.5 an MCC of 0,
    and a balanced accuracy of one by the number of classes. Of classes that are equally frequent
    in train, as in splits with a fixed number of nodes per class, the prediction is the most frequent
    one in val, or else the lowest.
    """
    if metric in _CONSTANTS:
        return ChanceMetric(_CONSTANTS[metric])
    if metric in {"mae", "rmse", "r2"} and {"train", "test"} <= {*data.parts}:
        return ChanceMetric(_metric_of_constant(data, metric))
    classes = data.build.card.statistics.get("classes", {}).get("splits", {})
    counts = classes.get(data.split_name, {})
    train = counts.get("train", [])
    test = counts.get("test", [])
    if metric == "balanced_accuracy" and sum(test):
        return ChanceMetric(1 / sum(count > 0 for count in test))
    if metric != "accuracy" or not sum(train) or not sum(test):
        return ChanceMetric(None)

    tied = [number for number, count in enumerate(train) if count == max(train)]
    val = counts.get("val") or [0] * len(train)
    best_on_val = [number for number in tied if val[number] == max(val[other] for other in tied)]
    predicted = best_on_val[0]
    tie = ""
    name = data.build.card.class_name(predicted)
    if len(tied) > 1:
        rule = "the most frequent on val" if len(best_on_val) == 1 else "the lowest"
        parts = "train" if len(best_on_val) in {1, len(tied)} else "train, and then on val"
        tie = f"class {name}, {rule} of {len(tied)} classes that tie on {parts}"
    return ChanceMetric(test[predicted] / sum(test), tie)


def _metric_of_constant(data: RunData, metric: str) -> float | None:
    """Return the metric on test if each target is predicted by its train median (MAE) or mean (RMSE, R²)."""
    train = data.read_targets("train")
    center = train.nanmedian(dim=0).values if metric == "mae" else train.nanmean(dim=0)
    test = data.read_targets("test")
    metrics = PartMetrics(data.task, metric)
    metrics.update(center.expand_as(test), test, torch.zeros(()))
    value = metrics.compute()[metric]
    return value if math.isfinite(value) else None
