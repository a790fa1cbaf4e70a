"""Constant prediction as a reference answer."""

from __future__ import annotations

from collections.abc import Sequence

from kmip_data.models.training.accumulators import metric_of_outputs
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.references.reference import Reference

_CONSTANTS = {"roc_auc": 0.5, "mcc": 0.0}  #: metrics that are equal for every constant


def constant_answer(data: RunData, metric: str) -> Reference | None:
    """Return the metric of a constant prediction; ``None`` for a metric without one.

    The prediction is the most frequent train class for accuracy, the median of the train targets for
    MAE, and their mean for RMSE and R²; a constant has a ROC-AUC of 0.5, an MCC of 0, and a balanced
    accuracy of one by the number of classes. Of classes that are equally frequent in train, as in
    splits with a fixed number of nodes per class, the prediction is the most frequent one in val, or
    else the lowest.
    """
    parts = {*data.parts}
    if metric in _CONSTANTS:
        return Reference(val=_CONSTANTS[metric], test=_CONSTANTS[metric])
    if metric in {"mae", "rmse", "r2"} and {"train", "test"} <= parts:
        values = {part: _metric_of_constant(data, metric, part) for part in {"val", "test"} & parts}
        return Reference(**values)
    classes = data.build.card.statistics.get("classes", {}).get("splits", {})
    counts = classes.get(data.split_name, {})
    test = counts.get("test", [])
    if metric == "balanced_accuracy" and sum(test):
        return Reference(test=1 / sum(count > 0 for count in test))
    if metric != "accuracy" or not sum(counts.get("train", [])) or not sum(test):
        return None
    return _most_frequent_class(data, counts["train"], counts.get("val") or [], test)


def _most_frequent_class(
    data: RunData, train: Sequence[int], val: Sequence[int], test: Sequence[int]
) -> Reference:
    """Return the accuracy of the most frequent train class, from the class counts of each part."""
    val = val or [0] * len(train)
    tied = [number for number, count in enumerate(train) if count == max(train)]
    best_on_val = [number for number in tied if val[number] == max(val[other] for other in tied)]
    predicted = best_on_val[0]
    note = ""
    name = data.build.card.class_name(predicted)
    if len(tied) > 1:
        rule = "the most frequent on val" if len(best_on_val) == 1 else "the lowest"
        parts = "train" if len(best_on_val) in {1, len(tied)} else "train, and then on val"
        note = f"class {name}, {rule} of {len(tied)} classes that tie on {parts}"
    on_val = val[predicted] / sum(val) if sum(val) else None
    return Reference(val=on_val, test=test[predicted] / sum(test), note=note)


def _metric_of_constant(data: RunData, metric: str, part: str) -> float | None:
    """Return the metric of a part if each target is its train median (MAE) or mean (RMSE, R²)."""
    train = data.read_targets("train")
    center = train.nanmedian(dim=0).values if metric == "mae" else train.nanmean(dim=0)
    targets = data.read_targets(part)
    return metric_of_outputs(data.task, metric, center.expand_as(targets), targets)
