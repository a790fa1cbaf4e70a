"""Checks of features, targets and encoders, before a run folder is created."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kmip_data.builds.verify import feature_problems
from kmip_data.errors import UsageError
from kmip_data.models.encoders import check_integers
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.network import GPSNetwork, build_model
from kmip_data.models.registries import edge_encoders, node_encoders
from kmip_data.models.scaling import Moments
from kmip_data.models.training.config.own_defaults import is_own_data
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.data.scaled_columns import scaled_features
from kmip_data.models.training.tasks import is_known
from kmip_data.text import count_with_noun

FEW_LABELS = 10  #: labelled items of train below which a run is warned of


UNEQUAL_CLASSES = 10  #: ratio of the largest to the smallest class that a run is warned of


def check_features(config: RunConfig, data: RunData) -> None:
    """Raise ``UsageError`` for features that the encoders cannot read, such as NaN.

    All records are checked for integers without an embedding, as early batches may have none.
    """
    encoders = {
        "x": node_encoders()[config.model.node_encoder],
        "edge_attr": edge_encoders()[config.model.edge_encoder],
    }
    stored = data.build.card.schema_.attributes
    for attribute, encoder in encoders.items():
        if encoder.integers is not None and attribute in stored:
            check_integers(encoder.integers, data.read_rows(attribute))

    # Scaled features may lack numbers. A plugin's encoder may accept NaN.
    if config.plugins:
        return
    scaled = set()
    if config.data.scale != "none":
        scaled = set(scaled_features(config.model, data))
    columns = data.build.card.schema_.columns
    not_finite = {column.attribute for column in columns if not column.finite}
    for attribute in scaled & not_finite:
        if any(bool(rows.isinf().any()) for rows in data.read_rows(attribute)):
            raise _bad_values_error(data, f"{attribute} has infinite values")
    for problem in feature_problems(data.build, set(data.attributes_read(config)) - scaled):
        raise _bad_values_error(data, problem)


def _bad_values_error(data: RunData, problem: str) -> UsageError:
    return UsageError(
        f"{data.build.path}: {problem}.",
        steps="repair the graphs and build them under another name",
    )


def target_warnings(config: RunConfig, data: RunData) -> Iterator[str]:
    """Yield warnings for train targets that teach a network little, such as a single class.

    Raises ``UsageError`` for an infinite target of a part.
    """
    task = data.task
    if task.target_type == "links":
        return
    targets = data.read_targets("train")
    if task.target_type == "regression":
        for part in data.parts:
            if data.read_targets(part).isinf().any():
                raise _bad_values_error(data, f"the targets of the {part} part are infinite")
    # A generated sample is small on purpose.
    if data.build.card.sample:
        return

    known = is_known(targets)
    labelled = int(known.sum() if known.ndim == 1 else known.any(dim=1).sum())
    if labelled < FEW_LABELS:
        items = count_with_noun(labelled, f"labelled {task.level}")
        yield f"train has {items}, and results on so few are mostly chance"
    values = torch.unique(targets[known])
    if labelled and task.target_type == "classification" and len(values) == 1:
        yield (
            f"every label of train is class {data.build.card.class_name(int(values.item()))}, "
            "so a constant answer fits them; "
            "--split-rule stratified has each class in every part"
        )
    is_unweighted = config.training.loss == "cross_entropy" and is_own_data(data.build.card)
    if task.target_type == "classification" and is_unweighted:
        counts = targets[known].bincount()
        counts = counts[counts > 0]
        if len(counts) and counts.max() >= UNEQUAL_CLASSES * counts.min():
            yield (
                f"the classes of train have {counts.min():,} to {counts.max():,} {task.level}s; "
                "--set training.loss=weighted_cross_entropy gives rare classes larger weights, "
                "and --set training.metric=balanced_accuracy chooses the epoch by all classes equally"
            )
    if task.target_type == "regression":
        moments = Moments(task.outputs)
        moments.add(targets)
        for number in moments.is_constant.nonzero()[:, 0].tolist():
            name = f"target {number}" if task.outputs > 1 else "the target"
            yield f"{name} has at most one value in train, so a constant answer fits it"


def check_encoders(config: RunConfig, data: RunData) -> None:
    """Apply the network's encoders, or a plugin's entire network, to one record on the CPU.

    This reveals features whose dtype or number does not match the configuration. The state of the
    random generators is preserved.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = build_model(config.model, **data.network_sizes).eval()
        if not isinstance(model, GPSNetwork):
            model(data.example_batch)
            return
        batch = read_batch(data.example_batch, model.added_attributes)
        model.node_encoder(batch)
        if model.reads_edges:
            model.edge_encoder(batch)
