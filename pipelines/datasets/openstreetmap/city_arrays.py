"""Convert a street graph to the arrays of a city: the authors' 37 columns, and their categories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import Field

from kmip_data.arrays import F32, I8, Array, Integers
from kmip_data.pipelines.datasets.openstreetmap.land_use import LandUse, nearest_land_use
from kmip_data.pipelines.datasets.openstreetmap.network import StreetGraph, count_streets
from kmip_data.pipelines.datasets.openstreetmap.streets import street_speeds
from kmip_data.pipelines.domains.cities import (
    CityArrays,
    Streets,
    join_streets,
    mean_over_streets,
    store_features,
)
from kmip_data.runtime.memory import require_memory
from kmip_data.strict_model import Strict

OTHERS = "others"
MISSING = "nan"  #: a street without the tag, as upstream's text of a missing value
EDGE_BYTES = 60  #: memory for each directed edge besides the street graph; 50 of 25 million
WIDTH = 9  #: columns of ``landuse``, ``lanes`` and ``highway`` in the published cities

#: Of ``oneway`` (the first two) and ``reversed``: in all published cities the same, and here fixed.
FLAGS = ("False", "True", "[False, True]")


class Vocabulary(Strict):
    """The category of each one-hot column, in order.

    A city with fewer leaves the last columns zero.
    """

    landuse: tuple[str, ...] = Field(max_length=WIDTH)
    lanes: tuple[str, ...] = Field(max_length=WIDTH)
    highway: tuple[str, ...] = Field(max_length=WIDTH)


def frequent_categories(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return upstream's choice: the eight most frequent categories and ``others`` for the rest.

    ``others`` is also ordered by frequency; ties are ordered as text (upstream: by occurrence).
    """
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    frequent = ranked[: WIDTH - 1]
    rest = ranked[WIDTH - 1 :]
    totals = {name: counts[name] for name in frequent}
    if rest:
        totals[OTHERS] = totals.get(OTHERS, 0) + sum(counts[name] for name in rest)
    return tuple(sorted(totals, key=lambda name: (-totals[name], name)))


class Coded(NamedTuple):
    """Category of each node or edge, as a position in the list of names."""

    code: Integers
    names: list[str]

    def counts(self) -> dict[str, int]:
        """Return the counts of existing categories."""
        counts = np.bincount(self.code).tolist()
        return {self.names[i]: count for i, count in enumerate(counts) if count}

    def column_of(self, vocabulary: tuple[str, ...]) -> I8:
        """Return the position of each category in the vocabulary, -1 if both it and ``others`` are missing."""
        position = {name: number for number, name in enumerate(vocabulary)}
        rest = position.get(OTHERS, -1)
        column = np.array([position.get(name, rest) for name in self.names], np.int8)
        return np.asarray(column[self.code])


def city_arrays(
    graph: StreetGraph,
    uses: Coded | None,
    workdir: Path,
    *,
    vocabulary: Vocabulary | None = None,
    facts: Mapping[str, object],
    warnings: tuple[str, ...] = (),
) -> CityArrays:
    """Return the city of a simplified street graph.

    Its vocabulary and counts are added to ``facts``.

    Without ``uses`` their nine columns are zero, with a warning. ``vocabulary`` defaults to the
    city's own, by frequency. The features are written into ``workdir``. Raises ``OutOfResources``
    if the estimated memory exceeds the free memory.
    """
    n = graph.num_nodes
    # Refuse before the work; small cities are not checked.
    needed = graph.num_edges * EDGE_BYTES
    if needed > 2**28:
        require_memory(
            needed,
            f"A city of {n:,} intersections",
            "free some memory, or build a part of the map: --set bbox=W,S,E,N",
        )

    coded = {
        "oneway": Coded(graph.oneway, [*FLAGS]),
        "lanes": _categories_of_tag(graph, "lanes"),
        "reversed": Coded(graph.reversed, [*FLAGS]),
        "highway": _categories_of_tag(graph, "highway"),
    }
    if uses:
        coded["landuse"] = uses
    if vocabulary is None:
        lanes = coded["lanes"].counts()
        # Untagged streets come first, as in the published cities.
        lanes[MISSING] = sum(lanes.values()) + 1
        vocabulary = Vocabulary(
            landuse=frequent_categories(uses.counts()) if uses else (),
            lanes=frequent_categories(lanes),
            highway=frequent_categories(coded["highway"].counts()),
        )
    # One column per category; values in no column are counted, and the card states the number.
    words = {"oneway": FLAGS[:2], "reversed": FLAGS, **dict(vocabulary)}
    column = {name: categories.column_of(words[name]) for name, categories in coded.items()}
    without = {name: int((number < 0).sum()) for name, number in column.items()}

    speed = street_speeds(graph.tags, graph.values)
    no_speed = not np.isfinite(speed).any()
    kmh = np.nan_to_num(speed).astype(np.float32)
    del coded, speed  # 0.4 GB of a graph of 10⁷ nodes, before the most is in memory
    streets = join_streets(graph.source, graph.target, n)
    length = streets.mean(graph.length.astype(np.float32)[streets.member])
    speed_mean = streets.mean(kmh[streets.member])

    if not uses:
        warnings += ("The source has no land-use areas: the nine land-use columns are zero.",)
    if no_speed:
        warnings += ("No street has a maxspeed: the speed column is zero.",)
    dropped = [f"{count:,} values of {name}" for name, count in without.items() if count]
    if dropped:
        warnings += (f"{', '.join(dropped)} are not in the vocabulary and were dropped.",)

    columns = _feature_columns(graph, streets, (length, speed_mean), column)
    return CityArrays(
        features=store_features(columns, n, workdir),
        edge_index=streets.edge_index,
        edge_length=length,
        edge_speed=None if no_speed else speed_mean,
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


def _feature_columns(
    graph: StreetGraph,
    streets: Streets,
    means: tuple[F32, F32],
    column: Mapping[str, I8],
) -> Iterator[Array]:
    """Yield the columns of the features, (N,) each: all of the streets of a country would take 5 GB at once.

    ``means`` are length and speed of each street, ``column`` the category of each edge
    (``landuse``: node).
    """
    from kmip_data.graphs.kernels.streets import add_category_fractions  # loads numba

    n = graph.num_nodes
    yield graph.lon
    yield graph.lat
    yield count_streets(graph) if graph.street_count is None else graph.street_count
    for number in range(WIDTH):
        yield column["landuse"] == number if "landuse" in column else np.zeros(n)

    for mean in means:
        yield mean_over_streets(streets.edge_index, mean, n)
    target = streets.edge_index[1]
    into = np.maximum(np.bincount(target, minlength=n), 1)
    widths = {"oneway": 2, "lanes": WIDTH, "reversed": 3, "highway": WIDTH}
    for name, width in widths.items():
        category = column[name][streets.member]
        for number in range(width):
            # The mean of a one-hot column: the share of the edges with this category.
            total = np.zeros(n)
            add_category_fractions(category, number, streets.first, target, total)
            yield total / into


def land_use_of_nodes(graph: StreetGraph, land_use: LandUse | None) -> Coded | None:
    """Return the land use of each node: the nearest area's.

    ``None`` where there is no area.
    """
    if land_use is None or not land_use.value:
        return None
    names, of_area = np.unique(np.array(land_use.value, object), return_inverse=True)
    return Coded(of_area[nearest_land_use(land_use, graph.lon, graph.lat)], names.tolist())


def _categories_of_tag(graph: StreetGraph, key: str) -> Coded:
    """Return the categories of a tag: its text, or where a street has several, their list."""
    names = [values[0] if len(values) == 1 else str(list(values)) for values in graph.values[key]]
    return Coded(graph.tags[key] % (len(names) + 1), [*names, MISSING])
