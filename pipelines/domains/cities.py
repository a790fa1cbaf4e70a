"""Records of cities from intersections and streets, and the base class of city pipelines.

Readers return :class:`CityArrays`. This module has what all cities share: parameters, schema,
eccentricity, labels (its quantile chunks) and coordinate encoding. The rules follow City-Networks;
facts and deviations: ``docs/datasets/city-networks.md``, ``docs/fidelity.md``. Splits are in
:mod:`~kmip_data.pipelines.domains.city_splits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import F32, I32, I64, U8, Array
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import COORDINATE_ENCODING, Column, FieldKind, Schema, View
from kmip_data.format.writer import LazyColumn
from kmip_data.graphs.city_columns import (
    coordinate_encoding_names,
    coordinate_range,
    encode_coordinates,
)
from kmip_data.pipelines.base import CardAdditions, Prepared, RecordTable, Split, Unit
from kmip_data.pipelines.common_columns import class_column, feature_column
from kmip_data.pipelines.domains.city_splits import CitySplitParams, city_split, random_part_codes
from kmip_data.pipelines.graph_arrays.graph_checks import check_raw_edges
from kmip_data.pipelines.units_and_splits import OneGraphParams, OneGraphPipeline

#: the 37 raw columns; categories that the published files do not identify are numbered by frequency
#: (the card of a build from OpenStreetMap has the vocabulary)
FEATURE_NAMES = (
    "longitude [°]", "latitude [°]", "street count", *map("landuse_{}".format, range(9)),
    "length [m]", "speed [km/h]", "oneway False", "oneway True",
    "lanes nan", *map("lanes_{}".format, range(1, 9)),
    "reversed False", "reversed True", "reversed [False, True]", *map("highway_{}".format, range(9)),
)  # fmt: skip
_STREETS_PER_BATCH = 2**20  #: streets averaged at a time
NODE_FEATURES = 12  #: columns that describe the node; the others are means over its streets
#: (hops, classes, weight) for which the published eccentricity and labels are used
PUBLISHED_TARGET_PARAMETERS = (16, 10, "length")


class CityParams(OneGraphParams):
    """Build parameters of a city."""

    hops: int = Field(
        default=16,
        ge=1,
        le=1_000,
        description="radius in hops of the eccentricity",
    )
    classes: int = Field(
        default=10,
        ge=2,
        le=255,
        description="quantile chunks of the eccentricity",
    )
    weight: Literal["length", "travel_time"] = Field(
        default="length",
        description="edge weight of the eccentricity: length in metres, or travel_time in seconds at the "
        "speed of each street",
    )
    bands: int = Field(
        default=8,
        ge=1,
        le=24,
        description="frequencies per coordinate of the encoding",
    )


@dataclass(frozen=True, kw_only=True)
class CityArrays:
    """Arrays of a city with N nodes and E edges, as returned by a reader."""

    features: F32  #: (N, 37), the unscaled columns :data:`FEATURE_NAMES`
    #: (2, E), every street in both directions, as returned by :func:`symmetrise_streets`
    edge_index: I32 | I64
    edge_length: F32  #: (E,) metres; the same in both directions
    edge_speed: F32 | None = None  #: (E,) km/h, for ``weight="travel_time"``
    osm_ids: I64 | None = None  #: (N,) node ids of OpenStreetMap; ``None`` for published cities
    eccentricity: F32 | None = None  #: (N,) as published
    labels: Array | None = None  #: (N,) integers, as published
    #: JSON-serialisable values of ``statistics.city`` on the card
    card_statistics: Mapping[str, object] = field(default_factory=dict)
    #: sentences for the notes on the card, printed when the city is built
    warnings: tuple[str, ...] = ()


class Streets(NamedTuple):
    """Streets in both directions, each a group of parallel edges, without self loops.

    Sorted by source, then target.
    """

    edge_index: I32  #: (2, S)
    edge_rows: I32  #: (M,) edges, grouped by street
    first: I64  #: (S + 1,) position in ``edge_rows`` where each street begins

    def mean(self, values: Array) -> F32:
        """Return the mean of a feature over the edges of each street, (S,).

        ``values`` (M,) are in the order of ``edge_rows``. Sums use float64 and are rounded once.
        """
        mean = np.empty(len(self.first) - 1, np.float32)
        # Convert a batch at a time: float64 values of all edges would take 8 bytes each.
        for start in range(0, len(mean), _STREETS_PER_BATCH):
            starts = self.first[start : start + _STREETS_PER_BATCH + 1]
            rows = values[starts[0] : starts[-1]].astype(np.float64)
            total = np.add.reduceat(rows, starts[:-1] - starts[0])
            mean[start : start + _STREETS_PER_BATCH] = total / np.diff(starts)
        return mean


def join_streets(source: Array, target: Array, num_nodes: int) -> Streets:
    """Group directed edges, with both ends (E,), into streets.

    Allows :func:`symmetrise_streets` to be applied column by column, in less memory.
    """
    from kmip_data.graphs.kernels.streets import group_edges_by_ends, sorted_edges  # loads numba

    source = source.astype(np.int32, copy=False)
    target = target.astype(np.int32, copy=False)
    not_loops = np.flatnonzero(source != target).astype(np.int32)
    # All forward edges, then all backward edges.
    edges = np.concatenate([not_loops, not_loops + np.int32(len(source))])
    del not_loops
    # Stable sorts by target and then by source sort by both.
    edges = sorted_edges(target, source, edges, num_nodes)
    edges = sorted_edges(source, target, edges, num_nodes)
    first, index = group_edges_by_ends(source, target, edges)
    edges %= np.int32(max(len(source), 1))
    return Streets(index, edges, first)


def symmetrise_streets(edge_index: I64, edge_features: F32, num_nodes: int) -> tuple[I64, F32]:
    """Return streets in both directions, averaging parallel edges and removing self loops.

    Edges are (2, E) int64 and features (E, F) float32; the result is sorted by source, then target.
    City-Networks uses ``to_undirected(edge_index, edge_attr, reduce="mean")``, then
    ``remove_self_loops``. There, PyTorch Geometric sums float32 values in the order of an unstable
    sort, so the mean of three or more edges may differ in its last digit between directions. Here,
    sums use float64 and are rounded once.
    """
    streets = join_streets(edge_index[0], edge_index[1], num_nodes)
    means = [streets.mean(column[streets.edge_rows]) for column in edge_features.T]
    return streets.edge_index.astype(np.int64), np.stack(means, axis=1)


def mean_over_incoming_edges(edge_index: I64 | I32, edge_feature: F32, num_nodes: int) -> F32:
    """Return the mean of an edge feature, (E,), over the incoming edges of each node, (N,) float32.

    Nodes without edges have 0. Sums use float64 (upstream: float32), so their order does not matter.
    """
    count = np.maximum(np.bincount(edge_index[1], minlength=num_nodes), 1)
    total = np.bincount(edge_index[1], weights=edge_feature, minlength=num_nodes)
    return (total / count).astype(np.float32)


def quantile_labels(eccentricity: F32, classes: int) -> U8:
    """Return the quantile chunk of each node's eccentricity, (N,), 0 for the smallest.

    Nodes, sorted by eccentricity and then by index, are cut into chunks of ``N // classes + 1``.
    Raises ``DamagedInput`` if there are so few nodes that a class would be empty.
    """
    n = len(eccentricity)
    size = n // classes + 1
    if size * (classes - 1) >= n:
        raise DamagedInput(
            f"The graph is too small for {classes} classes: {n} intersections leave a chunk of {size} empty.",
            steps="give a larger area, or fewer classes",
        )
    labels = np.empty(n, np.uint8)
    labels[np.argsort(eccentricity, kind="stable")] = np.arange(n) // size
    return labels


def check_city(city: CityArrays, where: str) -> None:
    """Refuse a city, called ``where`` in errors, whose arrays do not fit or have impossible values."""
    num_nodes = len(city.features)
    num_edges = city.edge_index.shape[1]
    features = city.features
    lengths = city.edge_length
    if features.shape != (num_nodes, len(FEATURE_NAMES)) or lengths.shape != (num_edges,):
        raise DamagedInput(
            f"{where}: the arrays do not fit together: "
            f"features {features.shape}, lengths {lengths.shape} of {num_edges} edges."
        )
    if num_edges == 0:
        raise DamagedInput(f"{where}: there are no streets.")
    check_raw_edges(city.edge_index, num_nodes, where)

    largest = float(np.finfo(np.float32).max)
    checks: tuple[tuple[Array, float, float, str], ...] = (
        *((column, -largest, largest, "a feature is not finite") for column in features.T),
        (features[:, 0], -180, 180, "a longitude is not on the map"),
        (features[:, 1], -90, 90, "a latitude is not on the map"),
        (lengths, 0, largest, "a street has no length in metres"),
    )
    for values, low, high, problem in checks:
        wrong = ~((values >= low) & (values <= high))
        if wrong.any():
            row = int(wrong.argmax())
            raise DamagedInput(f"{where}: {problem}: {values[row]}, row {row}.")


def street_weights(city: CityArrays, weight: str) -> F32:
    """Return the edge weights of the eccentricity, (E,) float32, in metres or seconds.

    Raises ``DamagedInput`` for travel times if a speed is missing or not positive.
    """
    if weight == "length":
        return city.edge_length
    speed = city.edge_speed
    missing = len(city.edge_length) if speed is None else int((~(speed > 0)).sum())
    if speed is None or missing:
        raise DamagedInput(
            f"Travel times need the speed of every street: {missing:,} have none.",
            steps=Setting(weight="length"),
        )
    seconds: F32 = (city.edge_length.astype(np.float64) * 3.6 / speed).astype(np.float32)
    return seconds


def _kind(feature: str) -> FieldKind:
    """Return the kind of a feature; means over streets are numbers, also those of categories."""
    if feature.startswith(("longitude", "latitude")):
        return "position"
    return "one-hot" if feature.startswith("landuse") else "number"


P = TypeVar("P", bound=CityParams)


def _array_path(workdir: Path, name: str) -> Path:
    return workdir / f"{name}.npy"


def store_features(columns: Iterable[Array], num_nodes: int, workdir: Path) -> F32:
    """Write the columns of ``features``, each (N,), one at a time; return them mapped, (N, 37)."""
    header = {
        "descr": "<f4",
        "fortran_order": True,
        "shape": (num_nodes, len(FEATURE_NAMES)),
    }
    with _array_path(workdir, "features").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for column in columns:
            column.astype("<f4", copy=False).tofile(file)
    features: F32 = np.load(_array_path(workdir, "features"), mmap_mode="r", allow_pickle=False)
    return features


class CityPipeline(OneGraphPipeline[P, CitySplitParams]):
    """Pipeline of a single city; ``prepare`` stores its arrays by :func:`store_city`."""

    version = 1
    # A map of this size has a million intersections, which take 0.8 GiB.
    max_bytes_in_process = 128 * 2**20
    Params = CityParams
    SplitParams = CitySplitParams
    folder_name_templates = (
        ("hops", "hops{}"),
        ("classes", "classes{}"),
        ("weight", "travel-time"),
        ("bands", "bands{}"),
    )
    stores_osm_ids: ClassVar[bool] = False  #: True to store OpenStreetMap's node ids, too

    def schema(self, params: P) -> Schema:
        """Return features, sinusoids, eccentricity, labels and lengths; node ids if stored."""
        doc = "raw columns in the authors' order; from length on, means over streets"
        columns = [
            feature_column("node/x", FEATURE_NAMES, doc),
            Column(
                key=COORDINATE_ENCODING, attribute="coordinate_encoding", stored="float32",
                presented="float32", shape=(4 * params.bands,), fields=coordinate_encoding_names(params.bands),
                low=-1, high=1,
                doc="sinusoids of longitude and latitude, scaled to the train nodes of the default split",
            ),
            Column(
                key="node/eccentricity", attribute="eccentricity", stored="float32", presented="float32",
                unit="m" if params.weight == "length" else "s", low=0,
                doc=f"longest shortest path inside the ball of {params.hops} hops",
            ),
            class_column("node/y", params.classes, "quantile chunk of the eccentricity, 0 the smallest"),
            Column(
                key="edge/length", attribute="edge_length", stored="float32", presented="float32",
                unit="m", low=0, doc="mean length of the streets between the two intersections",
            ),
            Column(
                key="node/osm_id", attribute="osm_id", stored="int64", presented="int64",
                doc="OpenStreetMap's number of the intersection",
            ),
        ]  # fmt: skip
        return Schema(
            columns=tuple(columns if self.stores_osm_ids else columns[:-1]),
            views=(View(attribute="pos", source="node/x", start=0, stop=2),),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=False,
        )

    def records(self, prepared: Prepared, unit: Unit, params: P) -> Iterator[GraphRecord]:
        """Yield the city as the only record."""
        from kmip_data.graphs.eccentricity import local_eccentricity

        arrays = {}
        for path in prepared.path.glob("*.npy"):
            arrays[path.stem] = np.load(path, "r")
        city = CityArrays(**arrays)
        n = len(city.features)

        eccentricity = city.eccentricity
        labels = city.labels
        target_parameters = (params.hops, params.classes, params.weight)
        has_published_target = target_parameters == PUBLISHED_TARGET_PARAMETERS
        if not has_published_target or eccentricity is None or labels is None:
            weights = street_weights(city, params.weight)
            eccentricity = local_eccentricity(
                city.edge_index,
                weights,
                n,
                params.hops,
                quiet=True,
            )
            labels = quantile_labels(eccentricity, params.classes)
        # To save memory, the encoding is computed while the shard is written.
        lon_lat = np.ascontiguousarray(city.features[:, :2])
        bounds = coordinate_range(lon_lat[random_part_codes(n) == 0])

        def encode_rows(start: int, stop: int) -> F32:
            return encode_coordinates(lon_lat[start:stop], bounds, params.bands)

        columns: dict[str, Any] = {
            "node/x": city.features,
            COORDINATE_ENCODING: LazyColumn(
                (n, 4 * params.bands), np.dtype(np.float32), encode_rows
            ),
            "node/eccentricity": eccentricity,
            "node/y": labels.astype(np.uint8),
            "edge/length": city.edge_length,
        }
        if self.stores_osm_ids:
            osm_ids = city.osm_ids
            if osm_ids is None:  # published files have no ids
                osm_ids = np.full(n, -1, np.int64)
            columns["node/osm_id"] = osm_ids
        key = self.manifest.name.encode("ascii", "replace").decode()[:64]
        edge_index = city.edge_index.astype(self.schema(params).index_dtype, copy=False)
        yield GraphRecord(
            key=key,
            num_nodes=n,
            columns=columns,
            edge_index=edge_index,
        )

    def card_additions(self, prepared: Prepared, params: P) -> CardAdditions:
        """Return counts, vocabulary, constants and kinds of features, and warnings as notes."""
        statistics = {"city": prepared.facts, "kinds": {"node/x": [*map(_kind, FEATURE_NAMES)]}}
        return CardAdditions(statistics, prepared.facts["warnings"])

    def built_class_names(self, params: P, records: RecordTable) -> list[str]:
        """Return the eccentricity range of each class, such as ``310–904 m``."""
        assert records.node_labels is not None, "a city has classes"
        labels, column = records.node_labels
        eccentricity = records.read_column("node/eccentricity")
        unit = "m" if params.weight == "length" else "s"
        names = []
        for number in range(column.num_classes or 0):
            members = eccentricity[labels == number]
            names.append(
                f"{members.min():,.0f}–{members.max():,.0f} {unit}" if len(members) else "none"
            )
        return names

    def split(
        self, records: RecordTable, params: CitySplitParams, raw_folder: Path | None
    ) -> Split:
        """Split the intersections at random, or by blocks of the map."""
        return city_split(records, params)


def store_city(city: CityArrays, workdir: Path) -> Prepared:
    """Write the arrays of a city to ``workdir``; ``facts`` has the statistics for the card.

    ``features`` in ``facts`` are constants for :mod:`kmip_data.graphs.city_columns`, from the train
    nodes of the default split: ``mean`` and ``std`` (unbiased, 0 for a constant column) of the 37
    columns in float64, and the ``coordinate_range`` of longitude and latitude.
    """
    for name, values in vars(city).items():
        path = _array_path(workdir, name)
        # store_features may have written the features already.
        if isinstance(values, np.ndarray) and not path.is_file():
            np.save(path, values, allow_pickle=False)

    rows = np.flatnonzero(random_part_codes(len(city.features)) == 0)
    train = np.empty((len(rows), len(FEATURE_NAMES)))
    for number, column in enumerate(city.features.T):
        train[:, number] = column[rows]
    std = np.zeros(train.shape[1])
    if len(train) > 1:
        std = train.std(axis=0, ddof=1)
    bounds = coordinate_range(train[:, :2].astype(np.float32)).astype(float)
    statistics = {
        "mean": train.mean(axis=0).tolist(),
        "std": std.tolist(),
        "coordinate_range": bounds.tolist(),
    }
    facts = {
        **city.card_statistics,
        "warnings": list(city.warnings),
        "features": statistics,
    }
    return Prepared(workdir, facts)
