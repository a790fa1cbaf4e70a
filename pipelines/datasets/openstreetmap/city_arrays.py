"""Convert a street graph to the arrays of a city: the 37 feature columns of City-Networks."""

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
    mean_over_incoming_edges,
    store_features,
)
from kmip_data.runtime.memory import require_memory
from kmip_data.strict_model import StrictModel

OTHER = "others"
MISSING_TAG = "nan"  #: upstream's category of a street without the tag
BYTES_PER_EDGE = 60  #: peak memory besides the street graph; 50 measured at 25 million edges
CATEGORY_COLUMNS = 9  #: columns of ``landuse``, ``lanes`` and ``highway`` in the published cities

#: Categories of ``reversed``, and the first two of ``oneway``, in all published cities.
FLAG_NAMES = ("False", "True", "[False, True]")


class Vocabulary(StrictModel):
    """Category of each one-hot column, in order; the last columns may be unused."""

    landuse: tuple[str, ...] = Field(max_length=CATEGORY_COLUMNS)
    lanes: tuple[str, ...] = Field(max_length=CATEGORY_COLUMNS)
    highway: tuple[str, ...] = Field(max_length=CATEGORY_COLUMNS)


def frequent_categories(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the eight most frequent categories, and ``others`` for the rest, like upstream.

    ``others`` is also ranked by frequency. Ties are sorted by name (upstream: by occurrence).
    """
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    frequent = ranked[: CATEGORY_COLUMNS - 1]
    rare = ranked[CATEGORY_COLUMNS - 1 :]
    totals = {name: counts[name] for name in frequent}
    if rare:
        totals[OTHER] = totals.get(OTHER, 0) + sum(counts[name] for name in rare)
    return tuple(sorted(totals, key=lambda name: (-totals[name], name)))


class Categories(NamedTuple):
    """Category of each node or edge."""

    code: Integers  #: position in ``names``
    names: list[str]

    def counts(self) -> dict[str, int]:
        """Count the elements of each non-empty category."""
        counts = np.bincount(self.code).tolist()
        return {self.names[i]: count for i, count in enumerate(counts) if count}

    def to_columns(self, vocabulary: tuple[str, ...]) -> I8:
        """Map categories to vocabulary positions; unknown ones to ``others``, or -1 without it."""
        position = {name: i for i, name in enumerate(vocabulary)}
        position_of_others = position.get(OTHER, -1)
        column = np.array([position.get(name, position_of_others) for name in self.names], np.int8)
        return np.asarray(column[self.code])


def city_arrays(
    graph: StreetGraph,
    land_use: Categories | None,
    workdir: Path,
    *,
    vocabulary: Vocabulary | None = None,
    card_statistics: Mapping[str, object],
    warnings: tuple[str, ...] = (),
) -> CityArrays:
    """Return the arrays of a city, adding its vocabulary and counts to ``card_statistics``.

    Without ``land_use`` its nine columns are zero, with a warning. ``vocabulary`` defaults to the
    city's most frequent categories. The features are written into ``workdir``. Raises
    ``OutOfResources`` if the estimated memory exceeds the free memory.
    """
    n = graph.num_nodes
    # Small cities skip the check.
    estimated_bytes = graph.num_edges * BYTES_PER_EDGE
    if estimated_bytes > 2**28:
        require_memory(
            estimated_bytes,
            f"A city of {n:,} intersections",
            "free some memory, or build a part of the map, as bbox (west, south, east, north)",
        )

    categories = {
        "oneway": Categories(graph.oneway, [*FLAG_NAMES]),
        "lanes": _categories_of_tag(graph, "lanes"),
        "reversed": Categories(graph.reversed, [*FLAG_NAMES]),
        "highway": _categories_of_tag(graph, "highway"),
    }
    if land_use:
        categories["landuse"] = land_use
    if vocabulary is None:
        vocabulary = _default_vocabulary(categories)
    # The card states how many values have no column.
    column_names = {"oneway": FLAG_NAMES[:2], "reversed": FLAG_NAMES, **dict(vocabulary)}
    column = {name: coded.to_columns(column_names[name]) for name, coded in categories.items()}
    num_without_column = {name: int((index < 0).sum()) for name, index in column.items()}

    speed = street_speeds(graph.tag_codes, graph.tag_values)
    has_speed = bool(np.isfinite(speed).any())
    kmh = np.nan_to_num(speed).astype(np.float32)
    del categories, speed  # frees 0.4 GB at 10⁷ nodes before memory use peaks
    streets = join_streets(graph.source, graph.target, n)
    length = streets.mean(graph.length.astype(np.float32)[streets.edge_rows])
    speed_mean = streets.mean(kmh[streets.edge_rows])

    if not land_use:
        warnings += ("The source has no land-use areas: the nine land-use columns are zero.",)
    if not has_speed:
        warnings += ("No street has a maxspeed: the speed column is zero.",)
    dropped = [f"{count:,} values of {name}" for name, count in num_without_column.items() if count]
    if dropped:
        warnings += (f"{', '.join(dropped)} are not in the vocabulary and were dropped.",)

    columns = _feature_columns(graph, streets, (length, speed_mean), column)
    return CityArrays(
        features=store_features(columns, n, workdir),
        edge_index=streets.edge_index,
        edge_length=length,
        edge_speed=speed_mean if has_speed else None,
        osm_ids=graph.node_id,
        card_statistics={
            **card_statistics,
            "intersections": n,
            "directed_edges": graph.num_edges,
            "without_column": num_without_column,
            "vocabulary": vocabulary.model_dump(mode="json"),
        },
        warnings=warnings,
    )


def _default_vocabulary(categories: Mapping[str, Categories]) -> Vocabulary:
    """Return the most frequent categories of a city."""
    lanes = categories["lanes"].counts()
    # Untagged streets come first, as in the published cities.
    lanes[MISSING_TAG] = sum(lanes.values()) + 1
    land_use: tuple[str, ...] = ()
    if "landuse" in categories:
        land_use = frequent_categories(categories["landuse"].counts())
    return Vocabulary(
        landuse=land_use,
        lanes=frequent_categories(lanes),
        highway=frequent_categories(categories["highway"].counts()),
    )


def _feature_columns(
    graph: StreetGraph,
    streets: Streets,
    means: tuple[F32, F32],
    column: Mapping[str, I8],
) -> Iterator[Array]:
    """Yield the feature columns (N,) lazily; together, the columns of a country would take 5 GB.

    ``means`` are length and speed of each street; ``column`` has the category of each edge, or for
    ``landuse`` of each node.
    """
    # Import lazily: this loads numba.
    from kmip_data.graphs.kernels.streets import add_street_fractions_to_end_nodes

    n = graph.num_nodes
    yield graph.lon
    yield graph.lat
    yield count_streets(graph) if graph.street_count is None else graph.street_count
    for index in range(CATEGORY_COLUMNS):
        yield column["landuse"] == index if "landuse" in column else np.zeros(n)

    for mean in means:
        yield mean_over_incoming_edges(streets.edge_index, mean, n)
    target = streets.edge_index[1]
    in_degree = np.maximum(np.bincount(target, minlength=n), 1)
    widths = {"oneway": 2, "lanes": CATEGORY_COLUMNS, "reversed": 3, "highway": CATEGORY_COLUMNS}
    for name, width in widths.items():
        category = column[name][streets.edge_rows]
        for index in range(width):
            # The mean of a one-hot column is the fraction of edges in this category.
            total = np.zeros(n)
            add_street_fractions_to_end_nodes(category, index, streets.first, target, total)
            yield total / in_degree


def land_use_of_nodes(graph: StreetGraph, land_use: LandUse | None) -> Categories | None:
    """Return the land use of the area nearest to each node; None without areas."""
    if land_use is None or not land_use.value:
        return None
    names, area_code = np.unique(np.array(land_use.value, object), return_inverse=True)
    return Categories(area_code[nearest_land_use(land_use, graph.lon, graph.lat)], names.tolist())


def _categories_of_tag(graph: StreetGraph, key: str) -> Categories:
    """Return the values of a tag as categories; several values form a list."""
    names = [
        values[0] if len(values) == 1 else str(list(values)) for values in graph.tag_values[key]
    ]
    return Categories(graph.tag_codes[key] % (len(names) + 1), [*names, MISSING_TAG])
