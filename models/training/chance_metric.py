"""Metric of a constant prediction, which a trained network should exceed."""

from __future__ import annotations

import math

import torch

from kmip_data.models.training.accumulators import PartMetrics
from kmip_data.models.training.data.run_data import RunData


def chance_metric(data: RunData, metric: str) -> float | None:
    """Return the metric of a constant prediction on test, or ``None`` for other metrics.

    The prediction is the most frequent train class for accuracy, the median of the train targets for
    MAE, and their mean for R²; a constant has a ROC-AUC of 0.5.
    """
    if metric == "roc_auc":
        return 0.5
    if metric in {"mae", "r2"} and {"train", "test"} <= {*data.parts}:
        return _metric_of_constant(data, metric)
    classes = data.build.card.statistics.get("classes", {}).get("splits", {})
    counts = classes.get(data.split_name, {})
    train = counts.get("train", [])
    test = counts.get("test", [])
    if metric != "accuracy" or not sum(train) or not sum(test):
        return None
    return float(test[train.index(max(train))] / sum(test))


def _metric_of_constant(data: RunData, metric: str) -> float | None:
    """Return the metric on test if each target is predicted by its train median (MAE) or mean (R²)."""
    train = data.read_targets("train")
    center = train.nanmedian(dim=0).values if metric == "mae" else train.nanmean(dim=0)
    test = data.read_targets("test")
    metrics = PartMetrics(data.task, metric)
    metrics.update(center.expand_as(test), test, torch.zeros(()))
    value = metrics.compute()[metric]
    return value if math.isfinite(value) else None
