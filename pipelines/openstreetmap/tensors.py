"""From a street graph to the tensors of a city: the authors' 37 columns, and their categories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import first_fault, read_small
from kmip_data.manifest import Strict
from kmip_data.pipelines.cities.graph import (
    FEATURES,
    NODE_FEATURES,
    CityTensors,
    mean_over_streets,
    symmetrise,
)
from kmip_data.pipelines.openstreetmap.land_use import LandUse, nearest_land_use
from kmip_data.pipelines.openstreetmap.network import StreetGraph, Values, count_streets
from kmip_data.pipelines.openstreetmap.streets import street_speeds

OTHERS: Final = "others"
MISSING: Final = "nan"  #: a street without the tag, as upstream's text of a missing value
WIDTH: Final = 9  #: columns of ``landuse``, ``lanes`` and ``highway`` in the published cities

#: In all published cities the same; here fixed, so that these columns mean the same everywhere.
ONEWAY: Final = ("False", "True")
REVERSED: Final = ("False", "True", "[False, True]")


class Vocabulary(Strict):
    """The category of each one-hot column, in order; a city with fewer leaves the last columns zero."""

    landuse: tuple[str, ...]
    lanes: tuple[str, ...]
    highway: tuple[str, ...]

    @field_validator("landuse", "lanes", "highway")
    @classmethod
    def _fits(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > WIDTH or len(set(value)) < len(value):
            raise ValueError(f"at most {WIDTH} distinct categories")
        return value


def by_frequency(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return upstream's choice: the eight most frequent categories and ``others`` for the rest.

    ``others`` has its place by frequency like the rest. Equally frequent ones are ordered as text
    (upstream: as they come).
    """
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    kept, rest = ranked[: WIDTH - 1], ranked[WIDTH - 1 :]
    totals = {name: counts[name] for name in kept}
    if rest:
        totals[OTHERS] = totals.get(OTHERS, 0) + sum(counts[name] for name in rest)
    return tuple(sorted(totals, key=lambda name: (-totals[name], name)))


def lanes_by_frequency(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the same with streets that lack the tag in the first column, as in the published cities."""
    chosen = by_frequency({**counts, MISSING: sum(counts.values()) + 1})
    return (MISSING, *(name for name in chosen if name != MISSING))


def columns_of(categories: list[str], vocabulary: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the column of each category, -1 for one that has none (and there is no ``others``)."""
    rest = vocabulary.index(OTHERS) if OTHERS in vocabulary else -1
    position = {name: column for column, name in enumerate(vocabulary)}
    return np.array([position.get(name, rest) for name in categories], np.int64)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read what :func:`vocabulary_of_card` gave, from a file."""
    try:
        return Vocabulary.model_validate_json(read_small(path))
    except (ValueError, RecursionError, OSError) as error:
        raise DamagedInput(f"{path.name} is not a vocabulary: {first_fault(error)}") from error


def vocabulary_of_card(statistics: Mapping[str, Any]) -> Vocabulary | None:
    """Return the vocabulary of a build from the statistics on its card; ``None`` where it has none."""
    found = statistics.get("city", {}).get("vocabulary")
    try:
        return None if found is None else Vocabulary.model_validate_json(json.dumps(found))
    except ValueError:
        return None


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
    speed = street_speeds(graph.tags, graph.values)
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
        counted = ", ".join(f"{count:,} values of {name}" for name, count in unplaced.items())
        warnings += (f"{counted} are not in the vocabulary and were dropped.",)
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
            "vocabulary": vocabulary.model_dump(mode="json"),
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
