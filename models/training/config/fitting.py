"""Adapt a preset to other data: loss, metric, head and encoders."""

from __future__ import annotations

from kmip_data.format.schema import Column, Schema
from kmip_data.format.targets import is_whole, kind_of, target_column
from kmip_data.models.tables import Encoder, all_heads, edge_encoders, node_encoders
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides, key_value
from kmip_data.models.training.losses import all_losses
from kmip_data.models.training.metrics import all_metrics
from kmip_data.models.training.tasks import KIND_OF_TASK


def fitted(config: RunConfig, schema: Schema, dataset: str) -> tuple[RunConfig, list[str]]:
    """Return ``config`` without settings that do not fit a dataset's columns, and a line about each."""
    column = target_column(schema)
    if column is None:
        return config, []
    changes: dict[str, str] = {}
    kind = kind_of(column)
    if config.training.task is not None and KIND_OF_TASK[config.training.task] != kind:
        changes["training.task"] = "none"
    loss = all_losses().get(config.training.loss or "")
    metric = all_metrics().get(config.training.metric or "")
    head = all_heads().get(config.model.head or "")
    level = "link" if kind == "links" else "node" if column.level == "node" else "graph"

    # 1. Targets: use the default loss, metric and head.
    if loss is not None and loss.kind != kind:
        changes["training.loss"] = "none"
    if metric is not None and (
        metric.kind != kind or (metric.of_two_classes and column.num_classes != 2)
    ):
        changes["training.metric"] = "none"
    if head is not None and head.level != level:
        changes["model.head"] = "none"
        if config.training.neighbors:
            changes["training.neighbors"] = "[]"

    # 2. Features: replace dataset-specific encoders by linear ones.
    columns = {stored.attribute: stored for stored in schema.columns}
    if not _encodes(node_encoders()[config.model.node_encoder], columns.get("x"), dataset):
        changes["model.node_encoder"] = "linear"
    edge_encoder = config.model.edge_encoder
    if "edge_attr" not in columns and edge_encoder not in {"dummy", "none"}:
        changes["model.edge_encoder"] = "dummy"
    elif not _encodes(edge_encoders()[edge_encoder], columns.get("edge_attr"), dataset):
        changes["model.edge_encoder"] = "linear"

    said = []
    for key, value in changes.items():
        instead = "chosen by the data" if value in {"none", "[]"} else value
        said.append(f"{key} = {key_value(config, key)} does not fit the data: {instead}")
    return apply_overrides(config, [f"{key}={value}" for key, value in changes.items()]), said


def _encodes(encoder: Encoder, column: Column | None, dataset: str) -> bool:
    """True if an encoder reads a column of a dataset; ``column`` is None for one that is computed."""
    if encoder.dataset not in {"", dataset}:
        return False
    if encoder.integers is None:
        return True
    width = column.shape[0] if column is not None and column.shape else 1
    return column is not None and is_whole(column) and width >= len(encoder.integers.sizes)
