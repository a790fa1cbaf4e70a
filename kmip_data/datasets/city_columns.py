"""The input columns of a city, put together from what a build stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from kmip_data.arrays import F32
from kmip_data.errors import DamagedInput
from kmip_data.format.card import Card
from kmip_data.format.schema import COORDINATES
from kmip_data.manifest import dataset_names, load_manifest

Coordinates = Literal["replace", "append", "none"]


def is_city(card: Card) -> bool:
    """Whether a build is a city."""
    return card.schema_.family == "city"


def family(dataset: str, card: Card | None = None) -> str:
    """Return the family of a dataset: ``city`` for cities, or its own name; ``card`` is its build's."""
    shipped = card is None and dataset in dataset_names()
    city = is_city(card) if card else shipped and load_manifest(dataset).dataset_class == "CityNetwork"
    return "city" if city else dataset


def city_inputs(features: F32, encoding: F32, card: Card, coordinates: Coordinates = "replace") -> F32:
    """Return what a model is fed, (N, columns) float32: sinusoids, then the standardised columns.

    Columns are standardised by mean and unbiased standard deviation over the train nodes of the default
    split, which the card has; a column that never changes there becomes 0 where it has that value.
    ``features`` (N, 37) and ``encoding`` (N, 4 · bands) are as stored: longitude, latitude, the others.
    ``coordinates="replace"``: sinusoids instead of longitude and latitude, as the paper's code (67 columns
    for 8 bands); ``append``: beside them, as its text (69); ``none``: neither (35).
    """
    statistics = feature_statistics(card)
    mean, std = (np.asarray(statistics[name], np.float64) for name in ("mean", "std"))
    columns = slice(0 if coordinates == "append" else 2, None)
    scaled = (features[:, columns] - mean[columns]) / np.where(std == 0, 1.0, std)[columns]
    if coordinates == "none":
        return scaled.astype(np.float32)
    return np.concatenate([encoding, scaled], axis=1, dtype=np.float32)


def input_names(card: Card, coordinates: Coordinates = "replace") -> tuple[str, ...]:
    """Return the names of the columns of :func:`city_inputs`."""
    features, encoding = (card.schema_.column(key).fields for key in ("node/x", COORDINATES))
    if coordinates == "none":
        return features[2:]
    return encoding + (features if coordinates == "append" else features[2:])


def feature_statistics(card: Card) -> Mapping[str, Any]:
    """Return ``mean``, ``std`` (37 each) and ``coordinate_range`` of a city's card.

    Raises ``DamagedInput`` where the card has none, or for other columns.
    """
    found: Mapping[str, Any] = card.statistics.get("city", {}).get("features", {})
    width = next((column.shape for column in card.schema_.columns if column.key == "node/x"), ())
    fits = {"mean", "std", "coordinate_range"} <= found.keys()
    if not fits or not (len(found["mean"]),) == (len(found["std"]),) == width:
        raise DamagedInput(
            f"The card of {card.dataset} does not say how its features are scaled.",
            expected="mean, std and coordinate_range under statistics.city.features, for each column of x",
            found=", ".join(found) or "nothing",
            next=f"kmip-data build {card.dataset}, in another --output",
        )
    return found


def vocabulary(card: Card) -> Any:
    """Return the categories that the one-hot columns of a city stand for; ``None`` where they are unknown."""
    return card.statistics.get("city", {}).get("vocabulary")
