"""Default network and settings for your own data, by level of the targets and number of train items.

An item is what a split divides: a graph, or a node of a single graph. The numbers were chosen by val on
22 sets (``benchmarks/own_defaults.py``, ``docs/own-data.md``). Published datasets have presets instead.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kmip_data.format.card import Card
from kmip_data.format.targets import eval_metric, target_column
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.config import component_kinds, known_models
from kmip_data.models.training.config.adapt_preset import level_of_column, molecule_encoders
from kmip_data.models.training.tasks import Level


class Bracket(NamedTuple):
    """Default network and settings up to a number of train items."""

    most_items: float
    model: str
    settings: str  #: ``section.key=value``, separated by spaces


#: Settings of all own data. The head keeps the length of its rows, on which a number may depend.
SHARED_SETTINGS = "model.head_l2norm=false schedule.warmup_epochs=5 training.patience=50"
#: Brackets by level of the targets, from few to many items.
BRACKETS: dict[Level, tuple[Bracket, ...]] = {
    "node": (
        Bracket(
            math.inf,
            "sage",
            "model.layers=2 model.hidden_dim=64 model.dropout=0.1 optimizer.lr=0.003"
            " training.epochs=300 training.batch_size=32",
        ),
    ),
    "graph": (
        Bracket(
            math.inf,
            "gps-none",
            "model.layers=3 model.hidden_dim=64 model.dropout=0.1 optimizer.lr=0.003"
            " training.epochs=300 training.batch_size=64",
        ),
    ),
}


def is_own_data(card: Card) -> bool:
    """True if a build has the user's own data, false for published datasets and cities."""
    return card.manifest not in dataset_names() or bool(load_manifest(card.manifest).recipe)


def find_bracket(card: Card) -> Bracket | None:
    """Return the bracket of a build; ``None`` if it is published, or has no targets of nodes or graphs."""
    column = target_column(card.schema_)
    if column is None or not is_own_data(card):
        return None
    items = train_items(card)
    for bracket in BRACKETS.get(level_of_column(column), ()):
        if items <= bracket.most_items:
            return bracket
    return None


def train_items(card: Card) -> int:
    """Return the number of items in train by the default split; without a split, of all items."""
    if not card.default_split:
        return card.split_records
    train = card.splits[card.default_split].parts.get("train")
    if train is None:
        return 0
    return train.nodes if card.counts["graphs"] == 1 else train.graphs


def default_settings(card: Card, bracket: Bracket | None, model: str) -> list[str]:
    """Return the default settings of ``model``: encoders of the features, and those of a bracket."""
    # 1. Read edge features if the network can.
    schema = card.schema_
    encoders = {}
    if bracket is not None and any(column.attribute == "edge_attr" for column in schema.columns):
        encoders["model.edge_encoder"] = "linear"
    encoders |= molecule_encoders(schema)
    local = component_kinds("local")[known_models()[model]["local"]["kind"]]
    if not local.reads_edges:
        encoders.pop("model.edge_encoder", None)
    settings = [f"{key}={name}" for key, name in encoders.items()]
    if bracket is None:
        return settings

    # 2. Weights of classes would lower the accuracy, which counts every item equally.
    if eval_metric(schema, card.manifest) == "accuracy":
        settings.append("training.loss=cross_entropy")
    return [*settings, *SHARED_SETTINGS.split(), *bracket.settings.split()]
