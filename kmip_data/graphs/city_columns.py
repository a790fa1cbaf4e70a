"""Columns of a city: positions in metres, and model inputs (sinusoids and standardised features)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from kmip_data.arrays import F32, F64, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.card import Card
from kmip_data.format.schema import COORDINATE_ENCODING
from kmip_data.graphs.elementary_functions import sine_cosine
from kmip_data.manifest import dataset_names, load_manifest

MAX_TRAIN_ANGLE = 0.9 * math.pi  #: angle of the largest train coordinate; the smallest has −0.9 π
AXES = ("longitude", "latitude")
EARTH_RADIUS = 6_371_009.0  #: metres


def coordinate_range(lon_lat: F32) -> F32:
    """Return minimum and maximum of longitude (row 0) and latitude (row 1) of train nodes (M ≥ 1, 2)."""
    return np.stack([lon_lat.min(axis=0), lon_lat.max(axis=0)], axis=1)


def encode_coordinates(lon_lat: F32, bounds: F32, bands: int = 8) -> F32:
    """Return the sinusoids of longitude, then latitude: (N, 4 · bands) float32, in [-1, 1].

    ``lon_lat`` (N, 2) is float32, in degrees; ``bounds`` is from :func:`coordinate_range`. A
    coordinate c becomes the angle ``v = ((c - min) / (max - min) - 0.5) · 2π · 0.9`` and then
    ``sin(v), sin(2v), … sin(2^(bands-1) v), cos(v), … cos(2^(bands-1) v)``, computed in float64 with
    the same bits on any CPU, and rounded once. Nodes outside the range have larger angles.
    """
    low = bounds[:, 0].astype(np.float64)
    extent = bounds[:, 1].astype(np.float64) - low
    # With one train node, or a street along a meridian, treat the empty range as 1 degree.
    extent[extent == 0] = 1.0
    angle = ((lon_lat.astype(np.float64) - low) / extent - 0.5) * 2.0 * MAX_TRAIN_ANGLE
    out = np.empty((len(lon_lat), 4 * bands), np.float32)
    # For each axis: sines of all bands, then cosines.
    for axis in range(2):
        for band in range(bands):
            scaled = angle[:, axis] * float(1 << band)
            column = 2 * bands * axis + band
            out[:, column], out[:, column + bands] = sine_cosine(scaled)
    return out


def coordinate_encoding_names(bands: int = 8) -> tuple[str, ...]:
    """Return the column names of :func:`encode_coordinates`.

    >>> coordinate_encoding_names(1)
    ('sin 1·longitude', 'cos 1·longitude', 'sin 1·latitude', 'cos 1·latitude')
    """
    return tuple(
        f"{wave} {1 << band}·{axis}"
        for axis in AXES
        for wave in ("sin", "cos")
        for band in range(bands)
    )


CoordinateMode = Literal["replace", "append", "none"]


def is_city(card: Card) -> bool:
    """True if the card describes a build of a city."""
    return {COORDINATE_ENCODING, "node/x"} <= {column.key for column in card.schema_.columns}


def project_to_metres(lon_lat: Array, city: Array | None = None) -> F64:
    """Project degrees (N, 2) to metres east and north of the centre of a city, (N, 2) float64.

    ``city`` are the degrees of its intersections, by default the points themselves.

    The projection is equirectangular: a city is so small that distances and directions are accurate
    to about a thousandth (50 km across at 60° north: 0.7 % at the northern and southern ends). A
    city on the antimeridian stays in one piece.
    """
    lon_lat = lon_lat.astype(np.float64)
    city = lon_lat if city is None else city.astype(np.float64)

    def unwrap(degrees: F64) -> F64:
        # Measure from the first intersection, to keep a city on the antimeridian in one piece.
        east = (degrees[:, 0] - city[0, 0] + 180) % 360 - 180
        return np.stack([east, degrees[:, 1]], axis=1)

    box = unwrap(city)
    middle = (box.min(axis=0) + box.max(axis=0)) / 2
    shrinking = np.cos(np.radians(middle[1])), 1
    return np.asarray(EARTH_RADIUS * np.radians(unwrap(lon_lat) - middle) * shrinking)


def dataset_family(dataset: str, card: Card | None = None) -> str:
    """Return ``city`` for a city, else the name of the dataset.

    Without the card of a build, only shipped cities are recognised.
    """
    if card is not None:
        has_city = is_city(card)
    else:
        is_shipped = dataset in dataset_names()
        has_city = is_shipped and load_manifest(dataset).dataset_class == "CityNetwork"
    return "city" if has_city else dataset


def city_inputs(
    features: F32,
    encoding: F32,
    card: Card,
    coordinates: CoordinateMode = "replace",
) -> F32:
    """Return model inputs, float32 (N, columns): sinusoids, then the standardised columns.

    Columns are standardised by the card's mean and unbiased standard deviation over the train nodes
    of the random split with seed 0; a constant column becomes 0. ``features`` (N, 37) are longitude,
    latitude and the other columns, as stored; ``encoding`` is (N, 4 · bands). With
    ``coordinates="replace"``, sinusoids replace longitude and latitude, as in the paper's code (67
    columns for 8 bands); ``append`` has both, as in its text (69); ``none`` has neither (35).
    """
    statistics = feature_statistics(card)
    mean = np.asarray(statistics["mean"], np.float64)
    std = np.array(statistics["std"], np.float64)
    # A constant column becomes 0 instead of a division by zero.
    std[std == 0] = 1.0

    first = 0 if coordinates == "append" else 2
    scaled = (features[:, first:] - mean[first:]) / std[first:]
    if coordinates == "none":
        return scaled.astype(np.float32)
    return np.concatenate([encoding, scaled], axis=1, dtype=np.float32)


def city_input_names(card: Card, coordinates: CoordinateMode = "replace") -> tuple[str, ...]:
    """Return the column names of :func:`city_inputs`."""
    features = card.schema_.column("node/x").fields
    if coordinates != "append":
        features = features[2:]
    if coordinates == "none":
        return features
    return card.schema_.column(COORDINATE_ENCODING).fields + features


def feature_statistics(card: Card) -> Mapping[str, Sequence[object]]:
    """Return ``mean``, ``std`` (37 each) and ``coordinate_range`` from a city's card.

    Raises ``DamagedInput`` if they are missing or belong to other columns.
    """
    scaling: Mapping[str, Sequence[object]] = card.statistics.get("city", {}).get("features", {})
    width = next((column.shape for column in card.schema_.columns if column.key == "node/x"), ())
    # The card may belong to another dataset.
    if not scaling or not (len(scaling["mean"]),) == (len(scaling["std"]),) == width:
        raise DamagedInput(
            f"The card of {card.dataset} has no feature statistics: mean, std and coordinate_range.",
            steps="build it again, in another folder",
        )
    return scaling
