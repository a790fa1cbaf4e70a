"""Scaled columns of a run: their default, the network that scales them, and their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from kmip_data.format.card import Card
from kmip_data.format.schema import Column, FieldKind
from kmip_data.format.targets import TargetType
from kmip_data.graphs.city_columns import is_city
from kmip_data.models.config import ModelConfig
from kmip_data.models.network import build_model
from kmip_data.models.registries import edge_encoders, node_encoders
from kmip_data.models.scaling import Moments, add_scaling, missing_flags, scaling_of
from kmip_data.models.training.config.own_defaults import is_own_data, own_scale
from kmip_data.models.training.config.run_config import DataScale

if TYPE_CHECKING:
    from kmip_data.models.training.data.run_data import RunData

#: Ends of the names of positions among the features of points.
_POSITION_UNITS = (" [unit of the file]", " / room extent")


def default_scale(card: Card, target_type: TargetType) -> DataScale:
    """Return the default of ``data.scale``: published data stay as their papers use them."""
    # The features of a city are standardised when it is built.
    if not is_own_data(card) or is_city(card):
        return "none"
    return own_scale(target_type)


def build_scaled_network(model: ModelConfig, data: RunData) -> nn.Module:
    """Build the network of a configuration for ``data``, which scales what ``data.scale`` names."""
    network = build_model(model, **data.network_sizes)
    scale = data.config.data.scale
    if scale in {"features", "both"}:
        is_regression = data.task.target_type == "regression"
        scales_targets = scale == "both" and is_regression
        add_scaling(
            network, scaled_features(model, data), data.task.outputs if scales_targets else None
        )
    return network


def scaled_features(model: ModelConfig, data: RunData) -> dict[str, int]:
    """Return the number of columns of each attribute with features to scale.

    Computed features, embedded integers and features that an encoder standardises itself stay.
    """
    encoders = {
        "x": node_encoders()[model.node_encoder],
        "edge_attr": edge_encoders()[model.edge_encoder],
    }
    sizes = data.network_sizes
    widths = {"x": sizes["in_channels"], "edge_attr": sizes["edge_channels"]}
    features = {}
    for attribute in data.attributes_read(data.config):
        column = _stored_column(data, attribute)
        is_computed = attribute == "x" and data.inputs.transform is not None
        if column is None or is_computed or attribute not in encoders:
            continue
        # A plugin may embed integers by itself.
        is_embedded = encoders[attribute].integers is not None or (
            data.config.plugins and not column.presented.startswith("float")
        )
        if not is_embedded and not encoders[attribute].dataset:
            features[attribute] = widths[attribute]
    return features


def _stored_column(data: RunData, attribute: str) -> Column | None:
    columns = data.build.card.schema_.columns
    return next((column for column in columns if column.attribute == attribute), None)


def measure_scaling(network: nn.Module, data: RunData) -> None:
    """Set the statistics of a network from the train part, in one pass over its rows."""
    scaling = scaling_of(network)
    if scaling is None:
        return
    scales = dict(scaling.features)
    for attribute, scale in scales.items():
        flags = missing_flags(_field_names(data, attribute), _field_kinds(data, attribute))
        if len(flags) == len(scale.mean):
            scale.missing_flag.copy_(flags)

    # 1. Sum over the rows.
    moments = {attribute: Moments(len(scale.mean)) for attribute, scale in scales.items()}
    targets = None if scaling.targets is None else Moments(data.task.outputs)
    attributes = [*scales, *([] if targets is None else ["y"])]
    for rows in data.stored_train_rows(attributes):
        for attribute, scale in scales.items():
            values = rows[attribute].reshape(-1, len(scale.mean))
            moments[attribute].add(scale.with_missing_as_nan(values))
        if targets is not None:
            targets.add(data.task.targets(rows).view(-1, data.task.outputs))

    # 2. Set mean and deviation of the numbers.
    for attribute, scale in scales.items():
        mean, deviation = moments[attribute].statistics()
        stays = ~_is_number(data, attribute, moments[attribute])
        scale.set_statistics(mean.masked_fill(stays, 0.0), deviation.masked_fill(stays, 1.0))
    if targets is not None:
        scaling.targets.set_statistics(*targets.statistics())


def _is_number(data: RunData, attribute: str, moments: Moments) -> Tensor:
    """Return a mask (C,) of the fields to scale: the numbers, except positions.

    Without kinds on the card, a number is a field with a train value other than 0 and 1.
    """
    is_number = ~moments.is_binary
    kinds = _field_kinds(data, attribute)
    if len(kinds) == len(is_number):
        is_number = torch.tensor([kind == "number" for kind in kinds])
    for index, name in enumerate(_field_names(data, attribute)[: len(is_number)]):
        if name.endswith(_POSITION_UNITS):
            is_number[index] = False
    return is_number


def _field_names(data: RunData, attribute: str) -> tuple[str, ...]:
    """Return the names of an attribute's columns, as a network reads them; empty if unknown."""
    if attribute == "x":
        return data.inputs.names
    column = _stored_column(data, attribute)
    return () if column is None else column.fields


def _field_kinds(data: RunData, attribute: str) -> tuple[FieldKind, ...]:
    """Return the kinds of an attribute's columns; empty if unknown."""
    column = _stored_column(data, attribute)
    return () if column is None else data.build.card.field_kinds(column.key)
