"""From a street graph to the tensors of a city: the authors' 37 columns, and their categories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import first_fault, read_small
from kmip_data.manifest import Strict
from kmip_data.pipelines.cities.graph import FEATURES, CityTensors, mean_over_streets, symmetrise
from kmip_data.pipelines.openstreetmap.land_use import LandUse, nearest_land_use
from kmip_data.pipelines.openstreetmap.network import StreetGraph, count_streets
from kmip_data.pipelines.openstreetmap.streets import street_speeds

OTHERS: Final = "others"
MISSING: Final = "nan"  #: a street without the tag, as upstream's text of a missing value
LAND_USE: Final = 3  #: first of its columns
WIDTH: Final = 9  #: columns of ``landuse``, ``lanes`` and ``highway`` in the published cities

#: Of ``oneway`` (the first two) and ``reversed``: in all published cities the same, and here fixed.
FLAGS: Final = ("False", "True", "[False, True]")


class Vocabulary(Strict):
    """The category of each one-hot column, in order; a city with fewer leaves the last columns zero."""

    landuse: tuple[str, ...] = Field(max_length=WIDTH)
    lanes: tuple[str, ...] = Field(max_length=WIDTH)
    highway: tuple[str, ...] = Field(max_length=WIDTH)


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


def read_vocabulary(path: Path) -> Vocabulary:
    """Read the vocabulary that a raw copy has."""
    try:
        return Vocabulary.model_validate_json(read_small(path))
    except (ValueError, RecursionError, OSError) as error:
        raise DamagedInput(f"{path.name} is not a vocabulary: {first_fault(error)}") from error


class _Coded(NamedTuple):
    """Categories of nodes or edges: position of each one's category among the names."""

    code: NDArray[np.integer[Any]]
    names: list[str]

    def counts(self) -> dict[str, int]:
        return {self.names[i]: n for i, n in enumerate(np.bincount(self.code).tolist()) if n}

    def one_hot(self, vocabulary: tuple[str, ...], width: int) -> tuple[NDArray[np.float32], int]:
        """Return (n, width) float32 and how many have a category without a column (nor ``others``)."""
        position = {name: number for number, name in enumerate(vocabulary)}
        rest = position.get(OTHERS, -1)
        column = np.array([position.get(name, rest) for name in self.names], np.int64)[self.code]
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
    """Return the city of a simplified street graph; its vocabulary and counts are added to ``facts``.

    Without ``land_use``, or areas in it, its nine columns stay zero, with a warning. The ``vocabulary`` is
    another build's; by default the city's own, by frequency.
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
    edge_index, street_features = symmetrise(
        np.stack([graph.source, graph.target], dtype=np.int64), edge_features, n
    )
    features = np.zeros((n, len(FEATURES)), np.float32)
    features[:, 0], features[:, 1] = graph.lon, graph.lat
    features[:, 2] = count_streets(graph) if graph.street_count is None else graph.street_count
    features[:, LAND_USE + WIDTH :] = mean_over_streets(edge_index, street_features, n)
    if uses:
        hot, without["landuse"] = uses.one_hot(vocabulary.landuse, WIDTH)
        features[:, LAND_USE : LAND_USE + WIDTH] = hot
    else:
        warnings += ("The source has no land-use areas: the nine land-use columns are zero.",)
    no_speed = not np.isfinite(speed).any()
    if no_speed:
        warnings += ("No street has a maxspeed: the speed column is zero.",)
    if counted := ", ".join(f"{count:,} values of {name}" for name, count in without.items() if count):
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
    columns: list[NDArray[Any]] = [graph.length[:, None], np.nan_to_num(speed)[:, None]]
    without: dict[str, int] = {}
    for name, categories, words, width in (
        ("oneway", _Coded(graph.oneway, [*FLAGS]), FLAGS[:2], 2),
        ("lanes", coded["lanes"], vocabulary.lanes, WIDTH),
        ("reversed", _Coded(graph.reversed, [*FLAGS]), FLAGS, 3),
        ("highway", coded["highway"], vocabulary.highway, WIDTH),
    ):
        hot, without[name] = categories.one_hot(words, width)
        columns.append(hot)
    return np.hstack(columns, dtype=np.float32), without


def _land_uses(graph: StreetGraph, land_use: LandUse | None) -> _Coded | None:
    if land_use is None or not land_use.value:
        return None
    names, of_area = np.unique(np.array(land_use.value, object), return_inverse=True)
    return _Coded(of_area[nearest_land_use(land_use, graph.lon, graph.lat)], names.tolist())


def _tagged(graph: StreetGraph, key: str) -> _Coded:
    """Return the categories of a tag: its text, or where a street has several, their list."""
    names = [values[0] if len(values) == 1 else str(list(values)) for values in graph.values[key]]
    return _Coded(graph.tags[key] % (len(names) + 1), [*names, MISSING])
