"""Default network and settings for your own data, by the task and the number of train items.

An item is what a split divides: a graph, or a node of a single graph. The numbers were chosen on 22 sets
(``benchmarks/own_defaults.py``, ``docs/own-data.md``, ADR 0359). Published datasets have presets instead.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from kmip_data.format.card import Card
from kmip_data.format.schema import Schema
from kmip_data.format.targets import target_column
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.config import component_kinds, known_models
from kmip_data.models.training.config.adapt_preset import level_of_column, molecule_encoders
from kmip_data.models.training.tasks import Level


class Bracket(NamedTuple):
    """Settings up to a number of train items."""

    train_items: float
    model: str
    settings: str  #: ``section.key=value``, separated by spaces


def is_own_data(card: Card) -> bool:
    """True if a build has the user's own data, false for published datasets and cities."""
    return card.manifest not in dataset_names() or bool(load_manifest(card.manifest).recipe)


#: Settings that all own data share: the head keeps the size of a row, which a number may depend on.
COMMON = "model.head_l2norm=false training.epochs=300 training.patience=50 training.batch_size=32"
#: Brackets by level and type of the targets, from few to many items.
BRACKETS: dict[Level, tuple[Bracket, ...]] = {
    "node": (
        Bracket(
            math.inf,
            "sage",
            "model.layers=2 model.hidden_dim=64 model.dropout=0.1 optimizer.lr=0.003",
        ),
    ),
    "graph": (
        Bracket(
            math.inf,
            "gps-none",
            "model.layers=3 model.hidden_dim=64 model.dropout=0.1 optimizer.lr=0.003",
        ),
    ),
}


def find_bracket(card: Card) -> Bracket | None:
    """Return the bracket of a build; ``None`` if it is published or has no targets of rows."""
    column = target_column(card.schema_)
    if column is None or not is_own_data(card):
        return None
    brackets = BRACKETS.get(level_of_column(column), ())
    items = train_items(card)
    return next((bracket for bracket in brackets if items <= bracket.train_items), None)


def train_items(card: Card) -> int:
    """Return the number of items in train by the default split; without a split, of all items."""
    if not card.default_split:
        return card.split_records
    train = card.splits[card.default_split].parts.get("train")
    if train is None:
        return 0
    return train.nodes if card.counts["graphs"] == 1 else train.graphs


def default_settings(schema: Schema, bracket: Bracket | None, model: str) -> list[str]:
    """Return the default settings of ``model``: encoders of the features, and those of a bracket."""
    local = component_kinds("local")[known_models()[model]["local"]["kind"]]
    encoders = {}
    if bracket is not None and any(column.attribute == "edge_attr" for column in schema.columns):
        encoders["model.edge_encoder"] = "linear"
    encoders |= molecule_encoders(schema)
    if not local.reads_edges:
        encoders.pop("model.edge_encoder", None)
    settings = [f"{key}={name}" for key, name in encoders.items()]
    if bracket is not None:
        settings += [*COMMON.split(), *bracket.settings.split()]
    return settings
