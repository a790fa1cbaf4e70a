"""Choice of a setting of a simple method by val."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from kmip_data.models.training.accumulators import metric_of_outputs
from kmip_data.models.training.metrics import is_better
from kmip_data.models.training.references.reference import Reference
from kmip_data.models.training.tasks import Task

EVALUATED_PARTS = ("val", "test")


def choose_on_val(
    task: Task,
    metric: str,
    targets: Mapping[str, Tensor],
    candidates: Iterable[tuple[str, Mapping[str, Tensor]]],
) -> Reference | None:
    """Return the metric of the candidate that is best on val; ``None`` if it is undefined for all.

    A candidate is a note and its outputs (N, C) on each part; ``targets`` are (N,) or (N, C).
    """
    best = None
    best_value = None
    for note, outputs in candidates:
        values = {
            part: metric_of_outputs(task, metric, outputs[part], targets[part]) for part in outputs
        }
        value = values["val"]
        if value is not None and is_better(metric, value, best_value):
            best_value = value
            best = Reference(**values, note=note)
    return best
