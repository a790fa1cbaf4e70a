"""Select or compute the node features that a network reads from a build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch_geometric.data import Data

from kmip_data.datasets.transforms import LocalDegreeProfile
from kmip_data.errors import Command, UsageError, unknown_name_error
from kmip_data.files.small_files import json_digest
from kmip_data.format.card import Card
from kmip_data.format.schema import View
from kmip_data.graphs.city_columns import (
    CoordinateMode,
    city_input_names,
    city_inputs,
    is_city,
)
from kmip_data.graphs.encodings.degree_profile import FIELDS

DEGREE_PROFILE = "degree-profile"  #: name of the features that are computed from the edges


@dataclass(frozen=True)
class NetworkInputs:
    """Recipe for the node features of a network."""

    attributes: tuple[str, ...]  #: stored attributes to read
    names: tuple[str, ...]  #: names of the columns of ``x``; empty if the build does not name them
    transform: Callable[[Data], Data] | None = None  #: computes ``x`` if it is not stored
    views: tuple[View, ...] = ()  #: column ranges to read; empty for all columns
    #: digest of the categories of one-hot columns, or of the build key if they are unknown
    vocabulary_digest: str = ""


#: Named column ranges of ``x``, by dataset. Every dataset also has ``all``.
_FEATURE_VIEWS = {
    "s3dis": {"position-color": View(attribute="x", source="node/x", start=0, stop=6)}
}


def feature_views(
    dataset: str,
    name: str,
    computed: Sequence[str] = (),
) -> tuple[View, ...]:
    """Return the view of the features ``name`` of ``dataset``; empty for ``all``.

    Raises ``UsageError`` for an unknown name; the error also lists the names in ``computed``.
    """
    views = _FEATURE_VIEWS.get(dataset, {})
    if name == "all":
        return ()
    if name not in views:
        raise unknown_name_error(
            f"set of features of {dataset}",
            name,
            ["all", *views, *computed],
            command=Command("kmip-data info", dataset),
        )
    return (views[name],)


def network_inputs(card: Card, features: str, coordinates: CoordinateMode) -> NetworkInputs:
    """Return the node features that a network reads from a build.

    ``features`` is ``all``, the name of a view of the dataset, or :data:`DEGREE_PROFILE`
    (``UsageError`` for any other name). For ``coordinates``, which matter only for a city, see
    :func:`kmip_data.graphs.city_columns.city_inputs`.
    """
    # The meaning of a city's one-hot columns depends on the build's categories: compare digests.
    digest = ""
    if has_city := is_city(card):
        digest = json_digest(card.vocabulary or card.key)[:12]
    if features == DEGREE_PROFILE:
        return NetworkInputs((), FIELDS, LocalDegreeProfile("2.0"), vocabulary_digest=digest)
    if has_city:
        transform = partial(replace_city_inputs, card=card, coordinates=coordinates)
        names = city_input_names(card, coordinates)
        return NetworkInputs(
            ("x", "coordinate_encoding"), names, transform, vocabulary_digest=digest
        )

    # A view is read as a slice: the columns outside it are never gathered.
    views = feature_views(card.dataset, features, computed=[DEGREE_PROFILE])
    names = card.schema_.feature_names
    return NetworkInputs(
        ("x",), names[views[0].start : views[0].stop] if views else names, views=views
    )


def replace_city_inputs(data: Data, card: Card, coordinates: CoordinateMode) -> Data:
    """Replace ``x`` of a city by the model inputs for ``coordinates``."""
    # Sinusoids are stored separately and joined to x here, so one build serves all three options.
    encoding = data.coordinate_encoding.numpy()
    data.x = torch.from_numpy(city_inputs(data.x.numpy(), encoding, card, coordinates))
    del data.coordinate_encoding
    return data


def check_same_categories(
    card: Card, inputs: NetworkInputs, training_digest: str, training_dataset: str
) -> None:
    """Raise ``UsageError`` if one-hot columns have other categories than the training data."""
    if inputs.vocabulary_digest != training_digest:
        raise UsageError(
            f"The categories of {card.dataset} differ from the training data's, or are not on its card.",
            steps=f"build the city again with vocabulary={training_dataset}",
        )
