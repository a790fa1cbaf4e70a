"""What is drawn of a city: intersections in metres, streets, and everything known about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.builds.home import Build
from kmip_data.errors import UsageError
from kmip_data.format.card import SplitEntry
from kmip_data.format.reader import content_faults, refuse_faults
from kmip_data.format.schema import COORDINATES, EDGE_INDEX
from kmip_data.format.splits import NO_PART, NODE_PARTS
from kmip_data.graphs.city_columns import feature_statistics, is_city, vocabulary
from kmip_data.reading.store import ShardStore, open_store
from kmip_data.wording import in_words

EARTH_RADIUS: Final = 6_371_009.0  #: metres
ATTRIBUTION: Final = "© OpenStreetMap contributors, ODbL 1.0"
PART_NAMES: Final = (*NODE_PARTS, "no part")  #: by the codes of :attr:`CityMap.splits`


@dataclass(frozen=True, kw_only=True)
class CityMap:
    """A city as arrays, ready to be drawn."""

    title: str  #: what this is; a sample says so
    options: str  #: what it was built with
    position: NDArray[np.float64]  #: (N, 2), metres east and north of the middle of the map
    #: (2, S), both ends of each, every pair once; a build does not keep their courses
    streets: NDArray[np.int64]
    lengths: NDArray[np.float32]  #: (S,) metres of each
    hops: int | None  #: radius of the balls that the eccentricity is measured in; None: not said
    classes: NDArray[np.int64]  #: (N,) labels
    num_classes: int  #: how many there may be
    eccentricity: NDArray[np.float32]  #: (N,)
    unit: str  #: of it, ``m`` or ``s``
    splits: Mapping[str, NDArray[np.uint8]]  #: name on the card -> (N,) position in :data:`PART_NAMES`
    columns: Mapping[str, NDArray[Any]]  #: name with unit -> (N,) of every other column but the sinusoids
    bounds: NDArray[np.float64]  #: what the sinusoids of longitude and latitude are made with
    bands: int  #: likewise

    def class_ranges(self) -> list[str]:
        """Least and largest eccentricity of each class, such as ``310–904 m``."""
        ranges = []
        for number in range(self.num_classes):
            found = self.eccentricity[self.classes == number]
            ranges.append(f"{found.min():,.0f}–{found.max():,.0f} {self.unit}" if len(found) else "none")
        return ranges


def read_city_map(build: Build) -> CityMap:
    """Read a city.

    Raises ``UsageError`` where the build is not a city; ``DamagedInput`` where a shard or split is missing or
    damaged.
    """
    card = build.card
    schema = card.schema_
    drawn = {"node/y", "node/eccentricity", "edge/length"} <= {column.key for column in schema.columns}
    one = card.counts["graphs"] == len(card.shards) == 1
    if not (is_city(card) and one and drawn and schema.edges == "index"):
        raise UsageError(
            f"{card.dataset} is not a city.",
            expected="a build of one graph of streets",
            found=f"{card.counts['graphs']:,} graphs",
            next="kmip-data list",
        )
    hops = card.parameters.get("hops")
    bounds = np.asarray(feature_statistics(card)["coordinate_range"], np.float64)
    store = open_store(build)
    shard = store.shards[0]
    refuse_faults(shard, content_faults(shard))
    features = shard.read("node/x", 0, shard.nodes)
    source, target = shard.read(EDGE_INDEX, 0, shard.edges).astype(np.int64)
    labels, eccentricity = schema.column("node/y"), schema.column("node/eccentricity")
    names = column_names(schema.column("node/x").fields, vocabulary(card))
    columns = dict(zip(names, features.T, strict=False))
    known = {"node/x", "node/y", "node/eccentricity", COORDINATES}
    for column in schema.columns:
        if column.level == "node" and column.key not in known and not column.shape:
            columns[column.attribute] = shard.read(column.key, 0, shard.nodes)
    return CityMap(
        title=card.heading,
        options=in_words(card.parameters),
        position=project(features[:, :2]),
        streets=np.stack([source, target])[:, source < target],
        lengths=shard.read("edge/length", 0, shard.edges)[source < target],
        hops=hops if isinstance(hops, int) else None,
        classes=shard.read("node/y", 0, shard.nodes).astype(np.int64),
        num_classes=int(labels.num_classes or 0),
        eccentricity=shard.read("node/eccentricity", 0, shard.nodes),
        unit=eccentricity.unit,
        splits={name: _codes(store, entry) for name, entry in card.splits.items()},
        columns=columns,
        bounds=bounds,
        bands=schema.column(COORDINATES).shape[0] // 4,
    )


def project(lon_lat: NDArray[Any]) -> NDArray[np.float64]:
    """Return metres east and north of the middle, (N, 2) float64, of (N, 2) degrees.

    An equirectangular projection: a city spans so little of the globe that distances and directions are
    right to about a thousandth (50 km across at 60° north: 0.7 % at the northern and southern ends). A city
    on the antimeridian stays in one piece.
    """
    lon, lat = lon_lat.astype(np.float64).T
    if not len(lon):
        return np.zeros((0, 2))
    # Measured from the first intersection, so that a city on the antimeridian is not torn apart.
    lon = (lon - lon[0] + 180) % 360 - 180
    middle_lon, middle_lat = ((axis.min() + axis.max()) / 2 for axis in (lon, lat))
    east = np.radians(lon - middle_lon) * np.cos(np.radians(middle_lat))
    return EARTH_RADIUS * np.stack([east, np.radians(lat - middle_lat)], axis=1)


def column_names(fields: tuple[str, ...], categories: Any) -> list[str]:
    """Add to the names of one-hot columns what they stand for, where the card says so.

    >>> column_names(("length [m]", "highway_0"), {"highway": ["footway"]})
    ['length [m]', 'highway_0 footway']
    """
    names = []
    for field in fields:
        found = re.fullmatch(r"([a-z]+)_(\d+)", field)
        known = categories.get(found[1], []) if found and categories else []
        position = int(found[2]) if found else 0
        names.append(f"{field} {known[position]}" if position < len(known) else field)
    return names


def _codes(store: ShardStore, entry: SplitEntry) -> NDArray[np.uint8]:
    code = store.read_split(entry).node_code
    if code is None:  # parts of graphs: all nodes of the one graph would be in one part
        return np.full(store.shards[0].nodes, len(NODE_PARTS), np.uint8)
    return np.where(code == NO_PART, len(NODE_PARTS), code).astype(np.uint8)
