"""Prediction task of a schema: its targets, its name in OGB's words, and its metric."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kmip_data.errors import UsageError
from kmip_data.format.card import Card
from kmip_data.format.schema import LINKS, Column, Schema
from kmip_data.manifest import dataset_names, load_manifest

#: Type of the targets: a value of ``training.task``, or links.
TargetType = Literal["classification", "multilabel", "regression", "links"]
#: Kind of the targets -> the metric where neither its dataset nor the user names one.
DEFAULT_METRICS: dict[TargetType, str] = {
    "classification": "accuracy",
    "multilabel": "ap",
    "regression": "mae",
    "links": "mrr",
}

_LABEL_KEYS = {
    "points": "label_column",
    "graphs": "label",
}  #: parameter that names the labels of your own files


def target_column(schema: Schema) -> Column | None:
    """Return the column that is predicted: ``y``, or else links."""
    return schema.label_column or schema.link_column


def learned_column(card: Card, folder: Path, *, features: bool = True) -> Column:
    """Return the column of the targets of a build, ``card`` in its ``folder``, that can be learned from.

    Without ``features`` the build needs none, as some are computed from its edges. Raises
    ``UsageError``, which says how to add what is missing.
    """
    labels = target_column(card.schema_)
    look = f"kmip-data info {folder}"
    missing, steps = _missing_inputs(card.schema_, features=features)
    if labels is None or labels.level not in {"node", "graph"}:
        missing.append("targets y")
        if key := _LABEL_KEYS.get(card.manifest):
            steps.append(f"build it under another --name with --set {key}=COLUMN")
    if not card.splits:
        missing.append("split")
        steps.append('kmip_data.save(…, split={"train": …, "val": …, "test": …}) in a new folder')
    if missing or labels is None:
        raise UsageError(
            f"{card.dataset} cannot be trained on: it has no {' and no '.join(missing)}.",
            next="; ".join(steps) or look,
        )
    if len(labels.shape) > 1:
        raise UsageError(
            f"{card.dataset} cannot be trained on: its targets have several rows.",
            next=look,
        )
    return labels


def check_network_inputs(card: Card, folder: Path, *, features: bool = True) -> None:
    """Raise ``UsageError`` if a network cannot be applied to a build, with targets or without.

    ``features`` as in :func:`learned_column`.
    """
    missing, steps = _missing_inputs(card.schema_, features=features)
    if missing:
        raise UsageError(
            f"{card.dataset} has no {' and no '.join(missing)} that a network can read.",
            next="; ".join(steps) or f"kmip-data info {folder}",
        )


def _missing_inputs(schema: Schema, *, features: bool) -> tuple[list[str], list[str]]:
    """Return what a network reads and the build lacks, and steps that add it."""
    missing = []
    steps = []
    if features and not any(column.attribute == "x" for column in schema.columns):
        missing.append("node features x")
        steps.append("--set data.features=degree-profile computes some from the edges")
    if schema.edges == "none":
        missing.append("edges")
    return missing, steps


def is_integer_column(column: Column) -> bool:
    """True if targets are integers."""
    return column.stored.startswith(("int", "uint", "bool"))


def target_type_of(column: Column) -> TargetType:
    """Return the type of targets: a key of :data:`DEFAULT_METRICS`."""
    if column.attribute == LINKS:
        return "links"
    if column.shape == () and is_integer_column(column):
        return "classification"
    # Labels are stored as floats where some are unknown.
    is_labels = is_integer_column(column) or column.num_classes is not None
    return "multilabel" if is_labels else "regression"


def task_type(schema: Schema) -> str | None:
    """Return the task in OGB's words; ``None`` without targets."""
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
    """Return the number of targets of a row: labels or numbers.

    It is 1 for classes and links, and 0 without targets.
    """
    column = target_column(schema)
    if column is None:
        return 0
    return column.shape[0] if column.shape and column.attribute != LINKS else 1


def eval_metric(schema: Schema, manifest: str) -> str | None:
    """Return the metric of a dataset: its manifest's, if there is one, else the usual one of its targets.

    Returns ``None`` without targets.
    """
    column = target_column(schema)
    if column is None:
        return None
    target_type = target_type_of(column)
    chosen = load_manifest(manifest).metrics if manifest in dataset_names() else {}
    return chosen.get(target_type, DEFAULT_METRICS[target_type])
