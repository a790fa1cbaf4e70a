"""Adapt a preset to other data: loss, metric, head and encoders."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from kmip_data.columns.labels import TaskName
from kmip_data.format.schema import LINK_ATTRIBUTE, Column, Schema
from kmip_data.format.targets import TargetType, is_integer_column, target_column, target_type_of
from kmip_data.models.registries import Encoder, all_heads, edge_encoders, node_encoders
from kmip_data.models.training.config.overrides import apply_overrides, value_of_key
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.losses import all_losses
from kmip_data.models.training.metrics import all_metrics
from kmip_data.models.training.tasks import Level


def fit_to_columns(config: RunConfig, schema: Schema, dataset: str) -> tuple[RunConfig, list[str]]:
    """Replace settings that do not fit a dataset's columns; return a message for each, too."""
    column = target_column(schema)
    if column is None:
        return config, []

    # 1. Use the default loss, metric or head if it does not fit the targets.
    changes: dict[str, str] = {}
    target_type = target_type_of(column)
    for key, names in compatible_choices(
        column, target_type, {target_type}, column.num_classes
    ).items():
        if value_of_key(config, key) not in {None, *names}:
            changes[key] = "none"
    if "model.head" in changes and config.training.neighbors:
        changes["training.neighbors"] = "[]"

    # 2. Replace encoders that cannot read the features: by OGB's for molecules, else by linear ones.
    replacements = molecule_encoders(schema)
    columns = {stored.attribute: stored for stored in schema.columns}
    if not _encoder_reads_column(
        node_encoders()[config.model.node_encoder], columns.get("x"), dataset
    ):
        changes["model.node_encoder"] = replacements.get("model.node_encoder", "linear")
    edge_encoder = config.model.edge_encoder
    if "edge_attr" not in columns and edge_encoder not in {"dummy", "none"}:
        changes["model.edge_encoder"] = "dummy"
    elif not _encoder_reads_column(
        edge_encoders()[edge_encoder], columns.get("edge_attr"), dataset
    ):
        changes["model.edge_encoder"] = replacements.get("model.edge_encoder", "linear")

    messages = []
    for key, value in changes.items():
        new_value = "the default for the data" if value in {"none", "[]"} else value
        messages.append(
            f"{key} = {value_of_key(config, key)} does not fit the data; using {new_value}"
        )
    return apply_overrides(config, [f"{key}={value}" for key, value in changes.items()]), messages


def molecule_encoders(schema: Schema) -> dict[str, str]:
    """Return the encoders, by key, of node and edge features that are OGB's atom and bond indices."""
    from kmip_data.graphs.molecule_fields import ATOM_FIELDS, BOND_FIELDS

    fields = {column.attribute: column.fields for column in schema.columns}
    encoders = {}
    if fields.get("x") == ATOM_FIELDS:
        encoders["model.node_encoder"] = "atom"
    if fields.get("edge_attr") == BOND_FIELDS:
        encoders["model.edge_encoder"] = "bond"
    return encoders


def level_of_column(column: Column) -> Level:
    """Return the level of a target column: node, graph or link."""
    if column.attribute == LINK_ATTRIBUTE:
        return "link"
    return "node" if column.level == "node" else "graph"


def compatible_choices(
    column: Column,
    target_type: TargetType,
    target_types: Collection[TargetType],
    classes: int | None,
) -> dict[str, list[str]]:
    """Return the tasks, losses, metrics and heads, by key, for targets learned as ``target_type``.

    ``target_types`` are the types that the column allows; ``classes`` is the number of classes for
    ``classification``.
    """
    is_binary = target_type == "classification" and classes == 2
    level = level_of_column(column)
    return {
        "training.task": [name for name in get_args(TaskName) if name in target_types],
        "training.loss": [
            name for name, loss in all_losses().items() if loss.target_type == target_type
        ],
        "training.metric": [
            name
            for name, metric in all_metrics().items()
            if metric.target_type == target_type or (is_binary and metric.supports_two_classes)
        ],
        "model.head": [name for name, head in all_heads().items() if head.level == level],
    }


def _encoder_reads_column(encoder: Encoder, column: Column | None, dataset: str) -> bool:
    """True if an encoder can read a dataset's column; ``column`` is ``None`` if it is computed."""
    if encoder.dataset not in {"", dataset}:
        return False
    if encoder.integers is None:
        return True
    width = column.shape[0] if column is not None and column.shape else 1
    return column is not None and is_integer_column(column) and width == len(encoder.integers.sizes)
