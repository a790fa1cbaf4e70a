"""Node features of a network: stored columns of a build, or computed from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch_geometric.data import Data

from kmip_data.datasets.transforms import LocalDegreeProfile
from kmip_data.errors import UsageError, unknown_name_error
from kmip_data.files.reading import json_digest
from kmip_data.format.card import Card
from kmip_data.format.schema import View
from kmip_data.graphs.city_columns import (
    Coordinates,
    city_input_names,
    city_inputs,
    city_vocabulary,
    is_city,
)
from kmip_data.graphs.encodings.degree_profile import FIELDS

DEGREE_PROFILE = "degree-profile"  #: features that are computed from the edges


@dataclass(frozen=True)
class Inputs:
    """Recipe of the node features of a build."""

    attributes: tuple[str, ...]  #: stored attributes to read
    names: tuple[str, ...]  #: names of the columns of ``x``; empty if the build has none
    transform: Callable[[Data], Data] | None = None  #: computes ``x`` if it is not stored
    views: tuple[View, ...] = ()  #: columns to read, if not all
    #: digest of the categories of one-hot columns (if unknown, of the build key)
    vocabulary: str = ""


#: Views of ``x`` besides ``all``, every column, by dataset and name.
_FEATURES = {"s3dis": {"position-color": View(attribute="x", source="node/x", start=0, stop=6)}}


def feature_views(
    dataset: str,
    name: str,
    computed: Sequence[str] = (),
) -> tuple[View, ...]:
    """Return the views for the features ``name`` of ``dataset``, none for ``all``.

    Raises ``UsageError`` for another name, which also lists ``computed`` ones.
    """
    known = _FEATURES.get(dataset, {})
    if name == "all":
        return ()
    if name not in known:
        raise unknown_name_error(
            f"set of features of {dataset}",
            name,
            ["all", *known, *computed],
            command=f"kmip-data info {dataset}",
        )
    return (known[name],)


def network_inputs(card: Card, features: str, coordinates: Coordinates) -> Inputs:
    """Return the node features of a network for a build.

    ``features`` is ``all``, the name of a view of the dataset, or :data:`DEGREE_PROFILE`
    (``UsageError`` for any other); for ``coordinates`` of a city see
    :func:`kmip_data.graphs.city_columns.city_inputs`.
    """
    # One-hot columns mean what the build's own categories say: a digest tells them apart.
    categories = ""
    if city := is_city(card):
        known = city_vocabulary(card)
        categories = json_digest(card.key if known is None else known)[:12]
    if features == DEGREE_PROFILE:
        return Inputs((), FIELDS, LocalDegreeProfile("2.0"), vocabulary=categories)
    if city:
        transform = partial(replace_city_inputs, card=card, coordinates=coordinates)
        names = city_input_names(card, coordinates)
        return Inputs(("x", "coordinate_encoding"), names, transform, vocabulary=categories)
    # A view is read as a slice: columns that it leaves out are never gathered.
    views = feature_views(card.dataset, features, computed=[DEGREE_PROFILE])
    names = next((column.fields for column in card.schema_.columns if column.attribute == "x"), ())
    return Inputs(("x",), names[views[0].start : views[0].stop] if views else names, views=views)


def replace_city_inputs(data: Data, card: Card, coordinates: Coordinates) -> Data:
    """Replace ``x`` of a city by the inputs of a model."""
    # Sinusoids are stored next to x and joined to it here: one build serves all three inputs.
    encoding = data.coordinate_encoding.numpy()
    data.x = torch.from_numpy(city_inputs(data.x.numpy(), encoding, card, coordinates))
    del data.coordinate_encoding
    return data


def check_same_categories(card: Card, inputs: Inputs, trained: str, dataset: str) -> None:
    """Raise UsageError unless one-hot columns have the categories of training (``trained``, ``dataset``)."""
    if inputs.vocabulary != trained:
        raise UsageError(
            f"The categories of {card.dataset} are not the training data's, or not on its card.",
            next=f"kmip-data build city --set vocabulary={dataset} … builds a city with these categories",
        )
