"""The input columns of a city, put together as the run asks for them."""

from __future__ import annotations

from torch_geometric.data import Data

from kmip_data.home import Build


def city_features(graph: Data, build: Build, split_name: str, coordinates: str) -> Data:
    """Return ``graph`` with the features that ``coordinates`` means, where it is a city."""
    del split_name, coordinates
    return graph


def is_city(build: Build) -> bool:
    """Whether a build stores the coordinate encoding of a city."""
    return any(column.key == "node/coordinate_encoding" for column in build.card.schema_.columns)
