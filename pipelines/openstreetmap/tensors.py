"""From a street graph to the tensors of a city: the authors' 37 columns, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.pipelines.cities.graph import (
    FEATURES,
    NODE_FEATURES,
    CityTensors,
    mean_over_streets,
    symmetrise,
)
from kmip_data.pipelines.openstreetmap.land_use import LandUse, nearest_land_use
from kmip_data.pipelines.openstreetmap.network.construction import StreetGraph, Values, count_streets
from kmip_data.pipelines.openstreetmap.network.speeds import street_speeds
from kmip_data.pipelines.openstreetmap.vocabulary import (
    MISSING,
    ONEWAY,
    REVERSED,
    WIDTH,
    Vocabulary,
    by_frequency,
    columns_of,
    lanes_by_frequency,
)

LAND_USE = 3  #: first of its columns


@dataclass(frozen=True)
class _Coded:
    """Categories of nodes or edges: position of each one's category among the names."""

    code: NDArray[np.int64]
    names: list[str]

    def counts(self) -> dict[str, int]:
        return {
            self.names[i]: int(n)
            for i, n in enumerate(np.bincount(self.code, minlength=len(self.names)))
            if n
        }

    def one_hot(self, vocabulary: tuple[str, ...], width: int) -> tuple[NDArray[np.float32], int]:
        """Return (n, width) float32 and how many have a category without a column."""
        column = columns_of(self.names, vocabulary)[self.code] if self.names else self.code
        hot = np.zeros((len(column), width), np.float32)
        placed = np.flatnonzero(column >= 0)
        hot[placed, column[placed]] = 1
        return hot, len(column) - len(placed)


def city_tensors(
    graph: StreetGraph,
    land_use: LandUse | None,
    *,
    vocabulary: Vocabulary | None = None,
    facts: dict[str, Any],
    warnings: tuple[str, ...] = (),
) -> CityTensors:
    """Return the city of a simplified street graph.

    Without ``land_use``, or areas in it, its nine columns stay zero, with a warning. The ``vocabulary`` is
    another build's; by default the city's own, by frequency. It and counts are added to ``facts``, for the
    card.
    """
    coded = {key: _tagged(graph, key) for key in ("lanes", "highway")}
    uses = _land_uses(graph, land_use)
    if vocabulary is None:
        vocabulary = Vocabulary(
            landuse=by_frequency(uses.counts()) if uses else (),
            lanes=lanes_by_frequency(coded["lanes"].counts()),
            highway=by_frequency(coded["highway"].counts()),
        )
    speed = street_speeds(graph)
    edge_features, without = _street_features(graph, speed, coded, vocabulary)
    n = graph.num_nodes
    edge_index, street_features = symmetrise(np.stack([graph.source, graph.target]), edge_features, n)
    features = np.zeros((n, len(FEATURES)), np.float32)
    features[:, 0], features[:, 1] = graph.lon, graph.lat
    features[:, 2] = count_streets(graph) if graph.street_count is None else graph.street_count
    if uses:
        features[:, LAND_USE:NODE_FEATURES], without["landuse"] = uses.one_hot(vocabulary.landuse, WIDTH)
    features[:, NODE_FEATURES:] = mean_over_streets(edge_index, street_features, n)
    if not uses:
        warnings += ("The source has no land-use areas: the nine land-use columns are zero.",)
    no_speed = not np.isfinite(speed).any()
    if no_speed:
        warnings += ("No street has a maxspeed: the speed column is zero.",)
    unplaced = {name: count for name, count in without.items() if count}
    if unplaced:
        counted = ", ".join(f"{count:,} of {name}" for name, count in unplaced.items())
        warnings += (f"Categories without a column in the vocabulary: {counted}; their columns are zero.",)
    return CityTensors(
        features=features,
        edge_index=edge_index,
        edge_length=np.ascontiguousarray(street_features[:, 0]),
        edge_speed=None if no_speed else np.ascontiguousarray(street_features[:, 1]),
        node_ids=graph.node_id,
        facts={
            **facts,
            "intersections": n,
            "directed_edges": graph.num_edges,
            "without_column": without,
            "vocabulary": {**vocabulary.model_dump(mode="json")},
        },
        warnings=warnings,
    )


def _street_features(
    graph: StreetGraph, speed: NDArray[np.float64], coded: Mapping[str, _Coded], vocabulary: Vocabulary
) -> tuple[NDArray[np.float32], dict[str, int]]:
    """Return length, speed and one-hot columns of each edge, (E, 25), and how many categories have none."""
    flags = [*ONEWAY, "[False, True]"]
    columns: list[NDArray[Any]] = [graph.length[:, None], np.nan_to_num(speed)[:, None]]
    without: dict[str, int] = {}
    for name, categories, words, width in (
        ("oneway", _Coded(graph.oneway.astype(np.int64), flags), ONEWAY, len(ONEWAY)),
        ("lanes", coded["lanes"], vocabulary.lanes, WIDTH),
        ("reversed", _Coded(graph.reversed.astype(np.int64), flags), REVERSED, len(REVERSED)),
        ("highway", coded["highway"], vocabulary.highway, WIDTH),
    ):
        hot, without[name] = categories.one_hot(words, width)
        columns.append(hot)
    return np.hstack(columns, dtype=np.float32), without


def _land_uses(graph: StreetGraph, land_use: LandUse | None) -> _Coded | None:
    if land_use is None or not land_use.value:
        return None
    names = sorted(set(land_use.value))
    position = {name: number for number, name in enumerate(names)}
    of_area = np.array([position[value] for value in land_use.value], np.int64)
    return _Coded(of_area[nearest_land_use(land_use, graph.lon, graph.lat)], names)


def _tagged(graph: StreetGraph, key: str) -> _Coded:
    """Return the categories of a tag: its text, or where a street has several, their list."""
    names = [_text(values) for values in graph.values[key]]
    return _Coded(graph.tags[key].astype(np.int64) % (len(names) + 1), [*names, MISSING])


def _text(values: Values) -> str:
    return values[0] if len(values) == 1 else str(list(values))
