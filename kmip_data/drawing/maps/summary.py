"""What the tables of a city say: eccentricity by class, and its columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kmip_data.drawing.maps.city_map import CityMap


def class_eccentricity(city: CityMap) -> Iterator[tuple[int, int, float, float, float]]:
    """Give class, number of intersections, and their least, mean and largest eccentricity.

    A class without intersections is left out.
    """
    for number in range(city.num_classes):
        found = city.eccentricity[city.classes == number]
        if len(found):
            yield number, len(found), float(found.min()), _mean(found), float(found.max())


def column_spreads(city: CityMap) -> Iterator[tuple[str, float, float, float, float, float]]:
    """Give name, least, mean, largest value, standard deviation and share of values that are not zero.

    Over all intersections, not only the train nodes that standardise the columns; identifiers are left out.
    """
    for name, values in city.columns.items():
        if values.dtype.kind == "f" and len(values):
            numbers = values.astype(np.float64)
            shares = float(np.mean(numbers != 0))
            yield name, numbers.min(), _mean(numbers), numbers.max(), float(numbers.std()), shares


def _mean(values: np.ndarray) -> float:
    return float(values.mean(dtype=np.float64))
