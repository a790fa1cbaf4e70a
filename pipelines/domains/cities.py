"""Make the record of a city from intersections and streets; base class of city pipelines.

A reader gives :class:`CityArrays`; everything after that is here and equal for all cities: the
parameters, the eccentricity, its quantile chunks (the labels), the coordinate encoding, the schema.
The rules follow City-Networks; facts and deviations: ``docs/datasets/city-networks.md``,
``docs/fidelity.md``. Splits are in :mod:`~kmip_data.pipelines.domains.city_splits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import F32, I32, I64, U8, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import COORDINATES, Column, Schema, View
from kmip_data.format.writer import ComputedRows, GraphRecord
from kmip_data.graphs.city_columns import (
    coordinate_encoding_names,
    coordinate_range,
    encode_coordinates,
)
from kmip_data.pipelines.base import CardAdditions, Prepared, Records, Split, Unit
from kmip_data.pipelines.common_columns import class_column, feature_column
from kmip_data.pipelines.domains.city_splits import CitySplitParams, city_split, split_codes
from kmip_data.pipelines.graph_arrays.graph_checks import check_raw_edges
from kmip_data.pipelines.record_assignment import OneGraphParams, OneGraphPipeline

#: The 37 raw columns. Those that the published files do not identify are named by position: the
#: number of a category in the vocabulary (by frequency), which the card of an own build has.
FEATURES = (
    "longitude [°]", "latitude [°]", "street count", *map("landuse_{}".format, range(9)),
    "length [m]", "speed [km/h]", "oneway False", "oneway True",
    "lanes nan", *map("lanes_{}".format, range(1, 9)),
    "reversed False", "reversed True", "reversed [False, True]", *map("highway_{}".format, range(9)),
)  # fmt: skip
_ROWS = 2**20  #: streets that are averaged at a time
#: The first columns are the node's own; the others are means over its streets.
NODE_FEATURES = 12
#: Hops, classes and weight of the published eccentricity and labels, which are taken as they are.
PUBLISHED_TARGET = (16, 10, "length")


class CityParams(OneGraphParams):
    """Parameters that change the record."""

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
        description="what the eccentricity adds up: length in metres, or travel_time in seconds at the "
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
    """A city as returned by a reader."""

    features: F32  #: (N, 37), the columns :data:`FEATURES`; neither scaled nor standardised
    #: (2, E), every street in both directions, as :func:`symmetrise_streets` gives it.
    edge_index: I32 | I64
    edge_length: F32  #: (E,) metres; the same in both directions
    edge_speed: F32 | None = None  #: (E,) km/h; for ``weight="travel_time"`` only
    node_ids: I64 | None = None  #: (N,) numbers of OpenStreetMap; published cities have none
    eccentricity: F32 | None = None  #: (N,) as published
    labels: Array | None = None  #: (N,) integers, as published
    #: JSON, for ``statistics.city`` of the card.
    facts: Mapping[str, object] = field(default_factory=dict)
    #: Sentences for the notes of the card, shown when the city is built.
    warnings: tuple[str, ...] = ()


class Streets(NamedTuple):
    """Streets in both directions, parallel ones joined, without self loops.

    Sorted by source, then target.
    """

    edge_index: I32  #: (2, S)
    member: I32  #: (M,) edges of each street, one street after the other
    first: I64  #: (S + 1,) position in ``member`` where each street begins

    def mean(self, values: Array) -> F32:
        """Return the mean of one feature over the edges of each street, (S,).

        ``values`` (M,) are all edges' values, by street.

        Sums are made in float64 and rounded once.
        """
        mean = np.empty(len(self.first) - 1, np.float32)
        # A million streets at a time: float64 values of all would take eight bytes per edge.
        for run in range(0, len(mean), _ROWS):
            starts = self.first[run : run + _ROWS + 1]
            rows = values[starts[0] : starts[-1]].astype(np.float64)
            total = np.add.reduceat(rows, starts[:-1] - starts[0])
            mean[run : run + _ROWS] = total / np.diff(starts)
        return mean


def join_streets(source: Array, target: Array, num_nodes: int) -> Streets:
    """Return the streets of directed edges, both ends (E,), for :func:`symmetrise_streets` column by column."""
    from kmip_data.graphs.kernels.streets import group_edges_by_ends, sorted_edges  # loads numba

    source = source.astype(np.int32, copy=False)
    target = target.astype(np.int32, copy=False)
    no_loop = np.flatnonzero(source != target).astype(np.int32)
    # all forward, then all backward edges
    edges = np.concatenate([no_loop, no_loop + np.int32(len(source))])
    del no_loop
    # Stable sorts by target, then by source, give the order by both.
    edges = sorted_edges(target, source, edges, num_nodes)
    edges = sorted_edges(source, target, edges, num_nodes)
    first, index = group_edges_by_ends(source, target, edges)
    edges %= np.int32(max(len(source), 1))
    return Streets(index, edges, first)


def symmetrise_streets(edge_index: I64, edge_features: F32, num_nodes: int) -> tuple[I64, F32]:
    """Return streets in both directions, parallel ones averaged, without self loops.

    City-Networks' rule: ``to_undirected(edge_index, edge_attr, reduce="mean")``, then
    ``remove_self_loops``. PyTorch Geometric adds in float32 in the order of an unstable sort, so
    that the mean of three or more edges may differ in its last digit between the two directions;
    here the sum is made in float64 and rounded once. Edges are (2, E) int64, the new ones sorted by
    source and then target, their features (E, F) float32.
    """
    streets = join_streets(edge_index[0], edge_index[1], num_nodes)
    means = [streets.mean(column[streets.member]) for column in edge_features.T]
    return streets.edge_index.astype(np.int64), np.stack(means, axis=1)


def mean_over_streets(edge_index: I64 | I32, edge_feature: F32, num_nodes: int) -> F32:
    """Return the mean of an edge feature, (E,), over the edges into a node, (N,) float32.

    A node without edges has 0. Sums are made in float64, so their order does not matter; upstream's
    are float32.
    """
    count = np.maximum(np.bincount(edge_index[1], minlength=num_nodes), 1)
    total = np.bincount(edge_index[1], weights=edge_feature, minlength=num_nodes)
    return (total / count).astype(np.float32)


def chunk_labels(eccentricity: F32, classes: int) -> U8:
    """Return the quantile chunk (N,) of every node: 0 for the smallest eccentricities.

    Nodes sorted by eccentricity (equal ones by index) are cut in chunks of ``N // classes + 1``.
    Raises ``DamagedInput`` where there are too few nodes: a class would be empty.
    """
    n = len(eccentricity)
    size = n // classes + 1
    if size * (classes - 1) >= n:
        raise DamagedInput(
            f"The graph is too small for {classes} classes: {n} intersections leave a chunk of {size} empty.",
            next="give a larger area, or fewer classes",
        )
    labels = np.empty(n, np.uint8)
    labels[np.argsort(eccentricity, kind="stable")] = np.arange(n) // size
    return labels


def check_city(city: CityArrays, where: str) -> None:
    """Refuse a city whose arrays do not fit together or hold impossible values.

    ``where`` is its name.
    """
    n = len(city.features)
    e = city.edge_index.shape[1]
    features = city.features
    lengths = city.edge_length
    if features.shape != (n, len(FEATURES)) or lengths.shape != (e,):
        raise DamagedInput(
            f"{where}: the arrays do not fit together: "
            f"features {features.shape}, lengths {lengths.shape} of {e} edges."
        )
    if e == 0:
        raise DamagedInput(f"{where}: there are no streets.")
    check_raw_edges(city.edge_index, n, where)

    most = float(np.finfo(np.float32).max)
    checks: tuple[tuple[Array, float, float, str], ...] = (
        *((column, -most, most, "a feature is not finite") for column in features.T),
        (features[:, 0], -180, 180, "a longitude is not on the map"),
        (features[:, 1], -90, 90, "a latitude is not on the map"),
        (lengths, 0, most, "a street has no length in metres"),
    )
    for values, low, high, problem in checks:
        wrong = ~((values >= low) & (values <= high))
        if wrong.any():
            row = int(wrong.argmax())
            raise DamagedInput(f"{where}: {problem}: {values[row]}, row {row}.")


def street_weights(city: CityArrays, weight: str) -> F32:
    """Return the edge weights of the eccentricity, (E,) float32: metres, or seconds at the street's speed.

    Raises ``DamagedInput`` where the travel time is asked for, and a speed is missing or not
    positive.
    """
    if weight == "length":
        return city.edge_length
    speed = city.edge_speed
    missing = len(city.edge_length) if speed is None else int((~(speed > 0)).sum())
    if speed is None or missing:
        raise DamagedInput(
            f"Travel times need the speed of every street: {missing:,} have none.",
            next="--set weight=length",
        )
    seconds: F32 = (city.edge_length.astype(np.float64) * 3.6 / speed).astype(np.float32)
    return seconds


P = TypeVar("P", bound=CityParams)


def _array_path(workdir: Path, name: str) -> Path:
    return workdir / f"{name}.npy"


def store_features(columns: Iterable[Array], num_nodes: int, workdir: Path) -> F32:
    """Write the columns of ``features``, each (N,), one after the other.

    Returns them mapped, (N, 37).
    """
    header = {
        "descr": "<f4",
        "fortran_order": True,
        "shape": (num_nodes, len(FEATURES)),
    }
    with _array_path(workdir, "features").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for column in columns:
            column.astype("<f4", copy=False).tofile(file)
    features: F32 = np.load(_array_path(workdir, "features"), mmap_mode="r", allow_pickle=False)
    return features


class CityPipeline(OneGraphPipeline[P, CitySplitParams]):
    """A dataset of one city; ``prepare`` stores its arrays (:func:`store_city`)."""

    version = 1
    # Of a map: a million intersections, which take 0.8 GiB; a process starts in 1 s.
    max_bytes_in_process = 128 * 2**20
    Params = CityParams
    SplitParams = CitySplitParams
    folder_name_templates = (
        ("hops", "hops{}"),
        ("classes", "classes{}"),
        ("weight", "travel-time"),
        ("bands", "bands{}"),
    )
    #: True if OpenStreetMap's numbers of the intersections are stored, too.
    node_ids: ClassVar[bool] = False

    def schema(self, params: P) -> Schema:
        """Features, sinusoids, eccentricity and its chunk.

        Cities from OpenStreetMap have its numbers as well.
        """
        doc = "raw columns in the authors' order; from length on, means over streets"
        columns = [
            feature_column("node/x", FEATURES, doc),
            Column(
                key=COORDINATES, attribute="coordinate_encoding", stored="float32",
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
            columns=tuple(columns if self.node_ids else columns[:-1]),
            views=(View(attribute="pos", source="node/x", start=0, stop=2),),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=False,
        )

    def records(self, prepared: Prepared, unit: Unit, params: P) -> Iterator[GraphRecord]:
        """Yield the one record of a build, the city."""
        from kmip_data.graphs.eccentricity import local_eccentricity

        arrays = {}
        for path in prepared.path.glob("*.npy"):
            arrays[path.stem] = np.load(path, "r")
        city = CityArrays(**arrays)
        n = len(city.features)

        eccentricity = city.eccentricity
        labels = city.labels
        as_published = (params.hops, params.classes, params.weight) == PUBLISHED_TARGET
        if not as_published or eccentricity is None or labels is None:
            weights = street_weights(city, params.weight)
            eccentricity = local_eccentricity(
                city.edge_index,
                weights,
                n,
                params.hops,
                quiet=True,
            )
            labels = chunk_labels(eccentricity, params.classes)
        # The encoding is computed as the shard is written, to save memory.
        lon_lat = np.ascontiguousarray(city.features[:, :2])
        bounds = coordinate_range(lon_lat[split_codes(n) == 0])

        def encoded(start: int, stop: int) -> F32:
            return encode_coordinates(lon_lat[start:stop], bounds, params.bands)

        columns: dict[str, Any] = {
            "node/x": city.features,
            COORDINATES: ComputedRows((n, 4 * params.bands), np.dtype(np.float32), encoded),
            "node/eccentricity": eccentricity,
            "node/y": labels.astype(np.uint8),
            "edge/length": city.edge_length,
        }
        if self.node_ids:
            node_ids = city.node_ids
            if node_ids is None:  # published tensors do not have them
                node_ids = np.full(n, -1, np.int64)
            columns["node/osm_id"] = node_ids
        key = self.manifest.name.encode("ascii", "replace").decode()[:64]
        edge_index = city.edge_index.astype(self.schema(params).index_dtype, copy=False)
        yield GraphRecord(
            key=key,
            num_nodes=n,
            columns=columns,
            edge_index=edge_index,
        )

    def card_additions(self, prepared: Prepared, params: P) -> CardAdditions:
        """Return counts, vocabulary and constants that standardise the features; warnings as notes."""
        return CardAdditions({"city": prepared.plan}, prepared.plan["warnings"])

    def built_class_names(self, params: P, records: Records) -> list[str]:
        """Return the range of eccentricity of each class, such as ``310–904 m``."""
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

    def split(self, records: Records, params: CitySplitParams, raw: Path | None) -> Split:
        """Split intersections at random, as published, or by blocks of the map."""
        return city_split(records, params)


def store_city(city: CityArrays, workdir: Path) -> Prepared:
    """Write the arrays into ``workdir``; the plan has what the card says about them.

    It includes what standardises the features, over the train nodes of the default split, for
    :mod:`kmip_data.graphs.city_columns`: ``mean`` and ``std`` (unbiased, 0 for a column that never
    changes) of the 37 columns, summed in float64, and ``coordinate_range``, of longitude and then
    of latitude.
    """
    for name, values in vars(city).items():
        path = _array_path(workdir, name)
        # :func:`store_features` may have written one.
        if isinstance(values, np.ndarray) and not path.is_file():
            np.save(path, values, allow_pickle=False)

    rows = np.flatnonzero(split_codes(len(city.features)) == 0)
    train = np.empty((len(rows), len(FEATURES)))
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
    plan = {
        **city.facts,
        "warnings": list(city.warnings),
        "features": statistics,
    }
    return Prepared(workdir, plan)
