"""Prediction task of a schema: target column, task type as named by OGB, and metric."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kmip_data.errors import Command, Setting, Step, UsageError
from kmip_data.format.card import Card
from kmip_data.format.schema import LINK_ATTRIBUTE, Column, Schema
from kmip_data.manifest import dataset_names, load_manifest

#: type of the targets: a value of ``training.task``, or links
TargetType = Literal["classification", "multilabel", "regression", "links"]
#: type of the targets -> metric, if neither the dataset nor the user specifies one
DEFAULT_METRICS: dict[TargetType, str] = {
    "classification": "accuracy",
    "multilabel": "ap",
    "regression": "mae",
    "links": "mrr",
}

#: recipes of your own files whose parameter ``label`` names the labels
_RECIPES_WITH_LABEL = {"points", "graphs"}


def target_column(schema: Schema) -> Column | None:
    """Return the column to predict: ``y``, else links, else ``None``."""
    return schema.y_column or schema.link_column


def require_trainable(
    card: Card,
    folder: Path,
    *,
    needs_features: bool = True,
    needs_split: bool = True,
) -> Column:
    """Return the target column of the build in ``folder`` if it can be trained on.

    Raises ``UsageError`` with the steps that add missing node features, edges, targets or splits.
    Node features are not needed if they are computed from the edges, and a split is not needed to
    predict.
    """
    labels = target_column(card.schema_)
    missing, steps = _missing_inputs(card.schema_, needs_features=needs_features)
    if labels is None or labels.level not in {"node", "graph"}:
        missing.append("targets y")
        if card.manifest in _RECIPES_WITH_LABEL:
            steps.append("build it under another name, with a column as label")
    if needs_split and not card.splits:
        missing.append("split")
        steps.append('kmip_data.save(…, split={"train": …, "val": …, "test": …}) in a new folder')
    if missing or labels is None:
        raise UsageError(
            f"{card.dataset} cannot be trained on: it has no {' and no '.join(missing)}.",
            steps=steps or Command("kmip-data info", folder),
        )
    if len(labels.shape) > 1:
        raise UsageError(
            f"{card.dataset} cannot be trained on: its targets have several rows.",
            steps=Command("kmip-data info", folder),
        )
    return labels


def require_network_inputs(card: Card, folder: Path, *, needs_features: bool = True) -> None:
    """Raise ``UsageError`` if a build lacks node features or edges; targets are not needed."""
    missing, steps = _missing_inputs(card.schema_, needs_features=needs_features)
    if missing:
        raise UsageError(
            f"{card.dataset} has no {' and no '.join(missing)} that a network can read.",
            steps=steps or Command("kmip-data info", folder),
        )


def _missing_inputs(schema: Schema, *, needs_features: bool) -> tuple[list[str], list[Step]]:
    """Return the missing inputs of a network, and the steps that add them."""
    missing = []
    steps: list[Step] = []
    if needs_features and "x" not in schema.attributes:
        missing.append("node features x")
        steps += ["compute some from the edges", Setting({"data.features": "degree-profile"})]
    if schema.edges == "none":
        missing.append("edges")
    return missing, steps


def is_integer_column(column: Column) -> bool:
    """True if a column holds integers or booleans."""
    return column.stored.startswith(("int", "uint", "bool"))


def target_type_of(column: Column) -> TargetType:
    """Return the type of the targets in a column."""
    if column.attribute == LINK_ATTRIBUTE:
        return "links"
    if column.shape == () and is_integer_column(column):
        return "classification"
    # Labels are stored as floats if some are missing.
    is_labels = is_integer_column(column) or column.num_classes is not None
    return "multilabel" if is_labels else "regression"


def task_type(schema: Schema) -> str | None:
    """Return the task type as named by OGB; ``None`` without targets."""
    column = target_column(schema)
    if column is None:
        return None
    target_type = target_type_of(column)
    if target_type == "classification":
        return f"{'binary' if column.num_classes == 2 else 'multiclass'} classification"
    names: dict[TargetType, str] = {
        "links": "link prediction",
        "multilabel": "binary classification",
    }
    return names.get(target_type, "regression")


def num_tasks(schema: Schema) -> int:
    """Return the number of targets per row: 1 for classes and links, 0 without targets."""
    column = target_column(schema)
    if column is None:
        return 0
    return column.shape[0] if column.shape and column.attribute != LINK_ATTRIBUTE else 1


def eval_metric(schema: Schema, manifest: str) -> str | None:
    """Return the metric set by the manifest, else the default of the targets; ``None`` without targets."""
    column = target_column(schema)
    if column is None:
        return None
    target_type = target_type_of(column)
    metrics = load_manifest(manifest).metrics if manifest in dataset_names() else {}
    return metrics.get(target_type, DEFAULT_METRICS[target_type])
