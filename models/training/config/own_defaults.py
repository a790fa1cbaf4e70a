"""Default network and settings for your own data; published datasets have presets instead.

They were chosen by val on 22 sets of 48 to 16,000 train items (``benchmarks/own_defaults.py``,
``docs/own-data-rules.md``), where one network served nodes and graphs, few and many, numbers and
classes; the network for edges with features or without a reverse, on eight more.
"""

from __future__ import annotations

from kmip_data.format.card import Card
from kmip_data.format.targets import TargetType, eval_metric, target_column
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.config import ModelConfig
from kmip_data.models.training.config.adapt_preset import level_of_column, molecule_encoders
from kmip_data.models.training.config.run_config import DataScale

#: Settings of any network. The head keeps the length of its rows, on which a number may depend.
OWN_SETTINGS = (
    "model.layers=2",
    "model.hidden_dim=64",
    "model.dropout=0.1",
    "model.head_l2norm=false",
    "optimizer.lr=0.003",
    "schedule.warmup_epochs=5",
    "training.epochs=300",
    "training.patience=50",
    "training.batch_size=32",
)


def is_own_data(card: Card) -> bool:
    """True if a build has the user's own data, false for published datasets and cities."""
    return card.manifest not in dataset_names() or bool(load_manifest(card.manifest).recipe)


def own_model(card: Card) -> str:
    """Return the default network: GraphSAGE, which keeps a node apart from the mean of its neighbours.

    Where edges have features, or one without a reverse, it reads them and both directions.
    """
    has_edge_features = "edge_attr" in card.schema_.attributes
    is_one_way = card.statistics.get("files", {}).get("directed", "").startswith("yes")
    return "dir-sage" if has_edge_features or is_one_way else "sage"


def has_own_defaults(card: Card | None) -> bool:
    """True for a build of your own data with targets of nodes or graphs."""
    if card is None or not is_own_data(card):
        return False
    column = target_column(card.schema_)
    return column is not None and level_of_column(column) != "link"


def own_scale(target_type: TargetType) -> DataScale:
    """Return the default of ``data.scale`` for your own data but cities."""
    return "both" if target_type == "regression" else "features"


def default_settings(card: Card, model: ModelConfig) -> list[str]:
    """Return the default settings of a network on a build, ``KEY=VALUE``."""
    # 1. Molecules have encoders of their own; other edge features are read if the network can.
    schema = card.schema_
    is_own = has_own_defaults(card)
    encoders = {}
    if is_own and "edge_attr" in schema.attributes:
        encoders["model.edge_encoder"] = "linear"
    encoders |= molecule_encoders(schema)
    if not model.reads_edges:
        encoders.pop("model.edge_encoder", None)
    settings = [f"{key}={name}" for key, name in encoders.items()]
    if not is_own:
        return settings

    # 2. Weights of classes would lower the accuracy, which counts every item equally.
    if eval_metric(schema, card.manifest) == "accuracy":
        settings.append("training.loss=cross_entropy")
    return [*settings, *OWN_SETTINGS]
