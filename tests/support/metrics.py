"""Metrics of the package, as far as tests expect them."""

from __future__ import annotations

from kmip_data.format.targets import TargetKind
from kmip_data.models.training.metrics import METRICS


def usual_metrics(kind: TargetKind) -> set[str]:
    """Return the metrics that every run on targets of this kind reports."""
    return {name for name, metric in METRICS.items() if metric.kind == kind and metric.everywhere}
