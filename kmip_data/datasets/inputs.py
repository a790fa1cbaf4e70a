"""What a network is fed from a build: the stored columns, or what a family of datasets makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch_geometric.data import Data

from kmip_data.datasets.city_columns import Coordinates, city_inputs, input_names, is_city, vocabulary
from kmip_data.datasets.points import feature_views
from kmip_data.datasets.transforms import LocalDegreeProfile
from kmip_data.errors import UsageError
from kmip_data.files.digests import json_digest
from kmip_data.format.card import Card
from kmip_data.format.schema import View
from kmip_data.graphs.encodings.degree_profile import FIELDS

DEGREE_PROFILE: Final = "degree-profile"  #: features that are computed from the edges


@dataclass(frozen=True)
class Inputs:
    """How the node features of a build are read and made."""

    attributes: tuple[str, ...]  #: stored attributes that they are made of
    names: tuple[str, ...]  #: of the columns of ``x``; empty where the build does not name them
    transform: Callable[[Data], Data] | None = None  #: makes ``x`` of what is stored, if that is not enough
    views: tuple[View, ...] = ()  #: columns that are read, where not all are
    vocabulary: str = ""  #: digest of the categories of one-hot columns, the build's own if unknown; or empty


def network_inputs(card: Card, features: str, coordinates: Coordinates) -> Inputs:
    """Return what a network is fed from a build.

    ``features`` is ``all``, the name of a view of the dataset, or :data:`DEGREE_PROFILE` (``UsageError``
    where there are no such features); ``coordinates`` those of a city, see
    :func:`kmip_data.datasets.city_columns.city_inputs`.
    """
    categories = ""
    if city := is_city(card):
        known = vocabulary(card)
        categories = json_digest(card.key if known is None else known)[:12]
    if features == DEGREE_PROFILE:
        return Inputs((), FIELDS, LocalDegreeProfile("2.0"), vocabulary=categories)
    if city:
        transform = partial(feed_city, card=card, coordinates=coordinates)
        names = input_names(card, coordinates)
        return Inputs(("x", "coordinate_encoding"), names, transform, vocabulary=categories)
    views = feature_views(card.dataset, features)
    names = next((column.fields for column in card.schema_.columns if column.attribute == "x"), ())
    return Inputs(("x",), names[views[0].start : views[0].stop] if views else names, views=views)


def feed_city(data: Data, card: Card, coordinates: Coordinates) -> Data:
    """Make ``x`` of a city what a model is fed."""
    encoding = data.coordinate_encoding.numpy()
    data.x = torch.from_numpy(city_inputs(data.x.numpy(), encoding, card, coordinates))
    del data.coordinate_encoding
    return data


def check_vocabulary(card: Card, inputs: Inputs, trained: str, dataset: str) -> None:
    """Raise UsageError unless one-hot columns mean what they did in training: ``trained``, on ``dataset``."""
    if inputs.vocabulary != trained:
        raise UsageError(
            f"The categories of {card.dataset} are not known to be those that the weights were trained on.",
            expected=f"a city built with the vocabulary of {dataset}",
            found="another vocabulary, or (the published cities) none on its card",
            next=f"kmip-data build city --vocabulary {dataset} … builds a city that fits",
        )
