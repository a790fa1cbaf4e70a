"""Constant prediction as a reference answer."""

from __future__ import annotations

from collections.abc import Sequence

from kmip_data.models.training.accumulators import metric_of_outputs
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.metrics import all_metrics
from kmip_data.models.training.references.reference import Reference


def constant_answer(data: RunData, metric: str) -> Reference | None:
    """Return the metric of a constant prediction; ``None`` for a metric without one.

    The prediction is the :attr:`~kmip_data.models.training.metrics.Metric.constant` of the metric. Of
    classes that are equally frequent in train, as in splits with a fixed number of nodes per class,
    ``majority`` is the most frequent one in val, or else the lowest.
    """
    parts = {*data.parts}
    constant = all_metrics()[metric].constant
    if isinstance(constant, float):
        return Reference(val=constant, test=constant)
    if constant in {"median", "mean"} and {"train", "test"} <= parts:
        values = {part: _metric_of_constant(data, metric, part) for part in {"val", "test"} & parts}
        return Reference(**values)
    classes = data.build.card.statistics.get("classes", {}).get("splits", {})
    counts = classes.get(data.split_name, {})
    test = counts.get("test", [])
    if constant == "any class" and sum(test):
        return Reference(test=1 / sum(count > 0 for count in test))
    if constant != "majority" or not sum(counts.get("train", [])) or not sum(test):
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
        rule = "the most frequent of them on val" if len(best_on_val) == 1 else "the lowest of them"
        parts = "train" if len(best_on_val) in {1, len(tied)} else "train, and then on val"
        note = f"class {name}; {len(tied)} classes tie on {parts}, and it is {rule}"
    on_val = val[predicted] / sum(val) if sum(val) else None
    return Reference(val=on_val, test=test[predicted] / sum(test), note=note)


def _metric_of_constant(data: RunData, metric: str, part: str) -> float | None:
    """Return the metric of a part if each prediction is the train median or mean of its target."""
    train = data.read_targets("train")
    center = train.nanmean(dim=0)
    if all_metrics()[metric].constant == "median":
        center = train.nanmedian(dim=0).values
    targets = data.read_targets(part)
    return metric_of_outputs(data.task, metric, center.expand_as(targets), targets)
