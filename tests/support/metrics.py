"""Metrics of the package, as far as tests expect them."""

from __future__ import annotations

from kmip_data.format.targets import TargetType
from kmip_data.models.training.metrics import METRICS
from kmip_data.models.training.tasks import Level


def usual_metrics(target_type: TargetType, level: Level = "node") -> set[str]:
    """Return the metrics that every run on targets of this type and level reports."""
    return {name for name, metric in METRICS.items() if metric.is_reported_for(target_type, level)}
