"""What a network is fed from a build: the stored columns, or what a family of datasets makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from kmip_data.datasets.city_columns import Coordinates, city_inputs, input_names, is_city, vocabulary
from kmip_data.datasets.points import feature_views
from kmip_data.errors import UsageError
from kmip_data.files.digests import json_digest
from kmip_data.format.card import Card
from kmip_data.format.schema import View
from kmip_data.graphs.encodings.degree_profile import FIELDS, DegreeProfile, local_degree_profile
from kmip_data.manifest import Standardisation


class LocalDegreeProfile(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Transform that appends the local degree profile to ``x``, or makes it ``x``.

    Parameters
    ----------
    rule
        Of which PyTorch Geometric: ``"2.0"`` or ``"2.8"``, see
        :func:`kmip_data.graphs.encodings.degree_profile.local_degree_profile`.
    """

    def __init__(self, rule: DegreeProfile = "2.0") -> None:
        self.rule = rule

    def forward(self, data: Data) -> Data:
        """Return ``data`` with five more columns of ``x``, float32."""
        profile = local_degree_profile(data.edge_index.numpy(), data.num_nodes, self.rule)
        x = torch.from_numpy(profile)
        data.x = x if data.x is None else torch.cat([data.x.view(len(x), -1), x], dim=-1)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rule!r})"


class Standardise(BaseTransform):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Transform that takes the mean from ``x`` and ``edge_attr`` and divides by the deviation.

    It is given the constants of each column; ``None`` leaves the attribute as it is.
    """

    def __init__(self, x: Standardisation | None = None, edge_attr: Standardisation | None = None) -> None:
        self._constants = {
            name: (torch.tensor(constants.mean), torch.tensor(constants.std))
            for name, constants in (("x", x), ("edge_attr", edge_attr))
            if constants is not None
        }

    @classmethod
    def of(cls, card: Card) -> Standardise:
        """Return the one with the constants of a build: its card's, not the manifest's of today."""
        found = card.statistics["standardisation"]
        constants = {key: Standardisation.model_validate(value) for key, value in found.items()}
        return cls(constants.get("node/x"), constants.get("edge/attr"))

    def forward(self, data: Data) -> Data:
        """Return ``data`` with the attributes standardised, float32."""
        for name, (mean, std) in self._constants.items():
            data[name] = (data[name] - mean) / std
        return data


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
            next=f"kmip-data build city --set vocabulary={dataset} … builds a city that fits",
        )
