"""Read streets and land-use areas from an OpenStreetMap file: PBF or XML, compressed or not.

The C++ library libosmium decodes and filters. Python sees only candidate relations and ways, and
the nodes they refer to. References become arrays, so a country takes a few gigabytes.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from kmip_data.arrays import F64, I8, I32, I64, Array, Bools
from kmip_data.errors import Command, DamagedInput
from kmip_data.files.path_errors import require_disk_space
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.datasets.openstreetmap.ground import (
    GROUND_KEYS,
    MAX_GROUND_BYTES,
    ground_kind,
)
from kmip_data.pipelines.datasets.openstreetmap.land_use import (
    AreaKind,
    LandUse,
    assemble_areas,
)
from kmip_data.pipelines.datasets.openstreetmap.streets import EXCLUDED, is_street, street_direction
from kmip_data.runtime.memory import mapped_copy
from kmip_data.runtime.parallel import num_threads

if TYPE_CHECKING:
    import osmium

#: libosmium's format name, also a file suffix -> first bytes of a file; PBF is detected separately.
_FORMAT_PREFIXES = {
    "osm.gz": (b"\x1f\x8b",), "osm.bz2": (b"BZh",),
    "osm": (b"<", b"\xef\xbb\xbf<", b"\xff\xfe<", b"\xfe\xff\0<"),
}  # fmt: skip
UNITS_PER_DEGREE = 10_000_000  #: coordinates are integers of 1e-7 degrees
_MAX_FILTER_BLOCKS = 1_024  #: blocks of an id filter: 4 GB
_UNDEFINED_COORDINATE = 2**31 - 1  #: libosmium's coordinate of a node missing from the file

TagValues = tuple[str, ...]
TagValue = TypeVar("TagValue", str, TagValues)

#: Tags whose values become features, in the order of ``Ways.tag_codes``.
VALUE_TAGS = ("highway", "lanes", "maxspeed")
#: Values of the tag ``place`` whose names help to read a map, from large to small.
PLACE_KINDS = ("city", "town", "borough", "suburb", "village", "quarter", "neighbourhood")


@dataclass(frozen=True, kw_only=True)
class Ways:
    """Streets before simplification, ordered by way id: W ways with R references to n nodes."""

    start: I64  #: (W + 1,) position of each way's first reference
    node: I32  #: (R,) node positions; -1 if the node is missing or left out
    node_id: I64  #: (n,) OpenStreetMap ids, ascending
    x: I32  #: (n,) longitude in 1e-7 degrees
    y: I32  #: (n,) latitude
    direction: I8  #: (W,) result of ``street_direction``
    #: (W,) per tag of :data:`VALUE_TAGS`: position in ``tag_values``, -1 if missing
    tag_codes: Mapping[str, I32]
    tag_values: Mapping[str, list[TagValues]]  #: sorted distinct values of each tag

    def __len__(self) -> int:
        return len(self.direction)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, including nodes without a way."""
        return len(self.node_id)

    @property
    def lon(self) -> F64:
        """Longitude of each node in degrees."""
        return self.x / UNITS_PER_DEGREE

    @property
    def lat(self) -> F64:
        """Latitude of each node in degrees."""
        return self.y / UNITS_PER_DEGREE

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east and north of all nodes in degrees."""
        corners = self.x.min(), self.y.min(), self.x.max(), self.y.max()
        west, south, east, north = (float(corner) / UNITS_PER_DEGREE for corner in corners)
        return west, south, east, north

    @property
    def num_incomplete(self) -> int:
        """Number of ways with a missing node."""
        missing = np.flatnonzero(self.node < 0)
        ways = np.searchsorted(self.start, missing, "right")
        return len(np.unique(ways))

    def keep_nodes(self, mask: Bools) -> Ways:
        """Return the ways cut at every node outside ``mask`` (n,)."""
        position = np.full(len(mask) + 1, -1, np.int32)  # the last entry maps -1 to itself
        position[:-1][mask] = np.flatnonzero(mask)
        return replace(self, node=position[self.node])


class Place(NamedTuple):
    """A town or district with a name, at a point of the map."""

    name: str
    lon: float  #: degrees
    lat: float


class Ground(NamedTuple):
    """Areas and coastlines below the streets of a map."""

    kinds: list[str]  #: key of ``GROUND_TAGS`` for each area
    areas: Array  #: (A,) polygons and multipolygons in degrees
    coastlines: list[F64]  #: (n, 2) degrees each; the sea is on their right
    #: shores in the file, of each closed way of water that crosses its border
    shores: list[list[F64]]


class Extract(NamedTuple):
    """Streets, land use, ground and places of a file."""

    ways: Ways
    land_use: LandUse
    ground: Ground
    places: list[Place]  #: from large ones to small ones


def file_format(path: Path) -> str:
    """Detect ``osm.pbf``, ``osm``, ``osm.gz`` or ``osm.bz2`` from the content of a file."""
    # libosmium relies on the file name, which may be wrong.
    with path.open("rb") as file:
        head = file.read(64)
    if b"OSMHeader" in head[:20]:
        return "osm.pbf"
    for name, beginnings in _FORMAT_PREFIXES.items():
        if head.lstrip().startswith(beginnings):
            return name

    raise DamagedInput(
        f"{path.name} is not an OpenStreetMap file: it begins with {head[:16]!r}.",
        expected="PBF (.osm.pbf) or XML (.osm, .osm.gz, .osm.bz2)",
        steps="download an extract of any area: https://extract.bbbike.org or https://download.geofabrik.de",
    )


def read_extract(
    path: Path,
    network_type: str,
    workdir: Path,
    *,
    name: str | None = None,
) -> Extract:
    """Read one file; the result does not depend on its format or element order.

    ``workdir`` holds memory-mapped arrays, and a sorted copy of a file with duplicate elements.
    Raises ``DamagedInput`` for elements that were never uploaded; editors give them negative ids.
    """
    name = name or path.name
    with _convert_osmium_errors(name), tempfile.TemporaryDirectory(dir=workdir) as temporary:
        import osmium

        folder = Path(temporary)
        source = osmium.io.File(str(path), file_format(path))
        if osmium.FileProcessor(source).header.has_multiple_object_versions:
            raise DamagedInput(
                f"{name} is a history or change file, not a map of one point in time.",
                steps=Command("osmium time-filter {} -o map.osm.pbf", name),
            )
        area_keys = GROUND_KEYS if path.stat().st_size <= MAX_GROUND_BYTES else ["landuse"]
        city_map = _MapReader(source, network_type, folder, name, area_keys)
        if city_map.has_duplicates:
            # Keep the newest version of each element, ordered by type and id.
            copy = folder / "sorted.osm.pbf"
            require_disk_space(folder, 3 * path.stat().st_size, "A sorted copy of the map")
            reader = osmium.MergeInputReader()
            reader.add_file(str(path))
            with osmium.SimpleWriter(str(copy)) as writer:
                reader.apply(writer, simplify=True)
            source = osmium.io.File(str(copy))
            city_map = _MapReader(source, network_type, folder, name, area_keys)

        kinds, areas = assemble_areas(
            city_map.closed_ways, city_map.relations, city_map.member_coordinates
        )
        land_use = LandUse(*_with_value([kind.land_use for kind in kinds], areas))
        grounds = _with_value([kind.ground for kind in kinds], areas)
        ground = Ground(*grounds, city_map.coastlines, city_map.shores)
        return Extract(city_map.ways, land_use, ground, city_map.read_places())


def _with_value(values: list[str | None], areas: Array) -> tuple[list[str], Array]:
    """Return the values that are not None, and their areas."""
    has_value = [value is not None for value in values]
    return [value for value in values if value is not None], areas[has_value]


class _WayReferences:
    """Node ids of many ways in one array; Python lists would be ten times as large."""

    def __init__(self) -> None:
        self.way_id = array("q")  #: (W,)
        self.size = array("i")  #: (W,) number of nodes of each way
        self.node_id = array("q")  #: (R,) way by way

    def add(self, way_id: int, node_ids: Sequence[int]) -> None:
        """Add the nodes of a way."""
        self.way_id.append(way_id)
        self.size.append(len(node_ids))
        self.node_id.extend(node_ids)


class _MapReader:
    """Streets and areas of a file, read in one filtered pass per element type."""

    def __init__(
        self,
        source: osmium.io.File,
        network_type: str,
        folder: Path,
        name: str,
        area_keys: Sequence[str],
    ) -> None:
        self.source = source
        self.network_type = network_type
        self.folder = folder
        self.name = name
        self.area_keys = area_keys
        self.keys = sorted({*VALUE_TAGS, "oneway", "junction", *EXCLUDED[network_type]})
        self.has_duplicates = False  #: True if an element occurs more than once
        #: Kind and member ways of each relation.
        self.relations: dict[int, tuple[AreaKind, list[int]]] = {}
        self._read_relations()

        # 1. Read streets, areas, and the member ways of relations.
        self.tag_sets: dict[tuple[str | None, ...], int] = {}  #: distinct combinations of tags
        self.is_street: list[bool] = []  #: True for each combination in the network
        self.streets = _WayReferences()
        self.street_tag_set = array("i")  #: tag combination of each street
        self.areas = _WayReferences()
        self.area_kinds: list[AreaKind] = []
        self.coasts = _WayReferences()
        self.member_ways = _WayReferences()
        self._read_ways()
        self._read_members()

        # 2. Read the coordinates of their nodes.
        self.node_id, self.x, self.y = self._read_nodes()
        areas = self._way_coordinates(self.areas)
        self.closed_ways = {
            way_id: (kind, ring)
            for kind, (way_id, ring) in zip(self.area_kinds, areas, strict=True)
        }
        self.has_duplicates |= len(self.closed_ways) < len(self.area_kinds)
        self.member_coordinates = dict(self._way_coordinates(self.member_ways))
        coasts = dict(self._way_coordinates(self.coasts))
        self.has_duplicates |= len(coasts) < len(self.coasts.way_id)
        self.coastlines = [
            piece for _, line in sorted(coasts.items()) for piece in _present_pieces(line)
        ]
        self.shores = [
            _present_pieces(ring)
            for _, (kind, ring) in sorted(self.closed_ways.items())
            if kind.ground == "water" and np.isnan(ring).any()
        ]
        self.ways = self._street_ways()

    def _read_elements(self, entities: Any, *filters: Any) -> Iterator[Any]:
        """Yield the elements of one type that pass all filters."""
        import osmium

        # libosmium's default pool leaves two cores idle, or uses one of two.
        pool = osmium.io.ThreadPool(num_threads())
        elements = osmium.FileProcessor(self.source, entities, pool)
        for element_filter in filters:
            elements = elements.with_filter(element_filter)
        yield from elements

    def _read_relations(self) -> None:
        """Collect relations that may be areas."""
        import osmium

        for relation in self._read_elements(
            osmium.osm.RELATION, osmium.filter.KeyFilter(*self.area_keys)
        ):
            kind = self._area_kind(relation.tags)
            if kind and relation.tags.get("type") in {"multipolygon", "boundary"}:
                way_ids = [member.ref for member in relation.members if member.type == "w"]
                self._require_uploaded(relation.id, *way_ids)
                self.has_duplicates |= relation.id in self.relations
                self.relations[relation.id] = kind, way_ids

    def _area_kind(self, tags: Any) -> AreaKind | None:
        """Return what an element is if it is an area, or None."""
        use = tags.get("landuse")
        ground = ground_kind(tags) if "natural" in self.area_keys else None
        return None if use is None and ground is None else AreaKind(use, ground)

    def read_places(self) -> list[Place]:
        """Return the places of :data:`PLACE_KINDS` in the order of their kinds and names."""
        import osmium

        ranked = []
        for node in self._read_elements(osmium.osm.NODE, osmium.filter.KeyFilter("place")):
            name = node.tags.get("name")
            kind = node.tags["place"]
            if name and kind in PLACE_KINDS and node.location.valid():
                place = Place(name, node.location.lon, node.location.lat)
                ranked.append((PLACE_KINDS.index(kind), place))
        return [place for _, place in sorted(ranked)]

    def _read_ways(self) -> None:
        """Collect streets, coastlines, and closed ways with a land use or ground as areas."""
        import osmium

        street_or_area = osmium.filter.KeyFilter("highway", *self.area_keys)
        for way in self._read_elements(osmium.osm.WAY, street_or_area):
            if len(way.nodes) < 2:
                continue
            tags = way.tags
            tag_set = self._tag_set_index(tags) if "highway" in tags else -1
            is_street = tag_set >= 0 and self.is_street[tag_set]
            kind = None
            if tags.get("area") != "no" and way.is_closed():
                kind = self._area_kind(tags)
            is_coast = "natural" in self.area_keys and tags.get("natural") == "coastline"
            if not (is_street or kind or is_coast):
                continue
            node_ids = [node.ref for node in way.nodes]
            self._require_uploaded(way.id, *node_ids)
            if is_street:
                # Drop consecutive duplicates.
                self.streets.add(
                    way.id, [node_ids[0], *(b for a, b in pairwise(node_ids) if a != b)]
                )
                self.street_tag_set.append(tag_set)
            if kind and len(node_ids) >= 4:
                self.areas.add(way.id, node_ids)
                self.area_kinds.append(kind)
            if is_coast:
                self.coasts.add(way.id, node_ids)

    def _read_members(self) -> None:
        """Collect the node ids of the relations' member ways."""
        import osmium

        member_ids = {way_id for _, way_ids in self.relations.values() for way_id in way_ids}
        if not member_ids:
            return
        for way in self._read_elements(osmium.osm.WAY, *_id_filter(np.array([*member_ids]))):
            if way.id in member_ids:
                self.member_ways.add(way.id, [node.ref for node in way.nodes])

    def _read_nodes(self) -> tuple[I64, I32, I32]:
        """Return id, longitude and latitude of the referenced nodes, ordered by id."""
        import osmium

        groups = (self.streets, self.areas, self.coasts, self.member_ways)
        referenced = np.unique(np.concatenate([np.array(ways.node_id) for ways in groups]))
        node_id, x, y = array("q"), array("i"), array("i")
        for node in self._read_elements(osmium.osm.NODE, *_id_filter(referenced)):
            location = node.location
            node_id.append(node.id)
            x.append(location.x)
            y.append(location.y)

        # A file ordered by id needs no sort.
        ids, coordinates = np.array(node_id), np.array([x, y])
        undefined = coordinates[0] == _UNDEFINED_COORDINATE
        if not (ids[1:] > ids[:-1]).all() or undefined.any():
            order = np.argsort(ids, kind="stable")
            order = order[~undefined[order]]
            ids = ids[order]
            coordinates = coordinates[:, order]
            self.has_duplicates |= bool((ids[1:] == ids[:-1]).any())
        return ids, coordinates[0], coordinates[1]

    def _street_ways(self) -> Ways:
        """Return the ways that are streets of the network."""
        way_id = np.array(self.streets.way_id)
        size = np.array(self.streets.size, np.int64)
        tag_set = np.array(self.street_tag_set)
        node = self._node_positions(np.array(self.streets.node_id))

        # 1. Order by way id.
        start = np.append(0, np.cumsum(size))
        if not (way_id[1:] > way_id[:-1]).all():
            order = np.argsort(way_id, kind="stable")
            self.has_duplicates |= bool((np.diff(way_id[order]) == 0).any())
            size = size[order]
            tag_set = tag_set[order]
            first = start[order]
            start = np.append(0, np.cumsum(size))
            node = node[np.repeat(first - start[:-1], size) + np.arange(len(node))]

        # 2. Drop nodes without a street.
        on_street = np.zeros(len(self.node_id), np.bool_)
        on_street[node[node >= 0]] = True
        renumbered = np.cumsum(on_street, dtype=np.int32)[node] - 1
        node = np.where(node < 0, -1, renumbered).astype(np.int32, copy=False)
        node_id = mapped_copy(self.node_id[on_street], self.folder)
        x = mapped_copy(self.x[on_street], self.folder)
        y = mapped_copy(self.y[on_street], self.folder)
        self._check_coordinates(node_id, x, y)

        # 3. Encode the tags, examining each distinct combination once.
        distinct, combination = np.unique(tag_set, return_inverse=True)
        combinations = [*self.tag_sets]
        tags = [self._tags(combinations[index]) for index in distinct.tolist()]
        directions = np.array([street_direction(tag, self.network_type) for tag in tags], np.int8)
        codes: dict[str, I32] = {}
        values: dict[str, list[TagValues]] = {}
        for key in VALUE_TAGS:
            code, strings = factorize([tag.get(key, "") for tag in tags], "")
            codes[key] = code[combination]
            values[key] = [(string,) for string in strings]
        return Ways(
            start=start,
            node=mapped_copy(node, self.folder),
            node_id=node_id,
            x=x,
            y=y,
            direction=directions[combination],
            tag_codes=codes,
            tag_values=values,
        )

    def _tag_set_index(self, tags: Any) -> int:
        """Return the position of a way's combination of tags in ``tag_sets``."""
        values = tuple(map(tags.get, self.keys))
        index = self.tag_sets.setdefault(values, len(self.tag_sets))
        if index == len(self.is_street):
            self.is_street.append(is_street(self._tags(values), self.network_type))
        return index

    def _tags(self, values: tuple[str | None, ...]) -> dict[str, str]:
        return {
            key: value for key, value in zip(self.keys, values, strict=True) if value is not None
        }

    def _require_uploaded(self, *ids: int) -> None:
        smallest = min(ids)
        if smallest < 1:
            raise DamagedInput(
                f"{self.name} has elements that were never uploaded to OpenStreetMap, "
                f"such as id {smallest}.",
                steps=Command("osmium renumber {} -o renumbered.osm.pbf", self.name),
            )

    def _check_coordinates(self, node_id: I64, x: I32, y: I32) -> None:
        """Raise ``DamagedInput`` if a longitude exceeds 180 degrees or a latitude 90."""
        lon_limit = 180 * UNITS_PER_DEGREE
        lat_limit = 90 * UNITS_PER_DEGREE
        outside = (x != x.clip(-lon_limit, lon_limit)) | (y != y.clip(-lat_limit, lat_limit))
        if outside.any():
            first = int(outside.argmax())
            lon = x[first] / UNITS_PER_DEGREE
            lat = y[first] / UNITS_PER_DEGREE
            raise DamagedInput(
                f"{self.name}: node {node_id[first]} is not on the map, at {lon}, {lat} degrees.",
                steps="use an undamaged extract",
            )

    def _node_positions(self, ids: I64) -> I32:
        """Return the position of each id in ``node_id``, -1 if missing."""
        if not len(self.node_id):
            return np.full(len(ids), -1, np.int32)
        position = np.searchsorted(self.node_id, ids).astype(np.int32)
        position[position == len(self.node_id)] = 0
        position[self.node_id[position] != ids] = -1
        return position

    def _way_coordinates(self, ways: _WayReferences) -> Iterator[tuple[int, F64]]:
        """Yield the id of each way, and its longitudes and latitudes, (n, 2); NaN if missing."""
        position = self._node_positions(np.array(ways.node_id))
        coordinates = np.full((len(position), 2), np.nan)
        exists = position >= 0
        coordinates[exists, 0] = self.x[position[exists]] / UNITS_PER_DEGREE
        coordinates[exists, 1] = self.y[position[exists]] / UNITS_PER_DEGREE
        start = 0
        for way_id, size in zip(ways.way_id, ways.size, strict=True):
            yield way_id, coordinates[start : start + size]
            start += size


def _present_pieces(line: F64) -> list[F64]:
    """Return the parts of a line (n, 2) between its missing nodes, which are NaN."""
    is_missing = np.isnan(line[:, 0])
    pieces = np.split(line, np.flatnonzero(np.diff(is_missing)) + 1)
    return [piece for piece in pieces if not np.isnan(piece[0, 0])]


def _id_filter(ids: I64) -> list[Any]:
    """Return a list with libosmium's filter by id, empty if the filter would be too large.

    It takes 4 MB per block of 2²⁵ consecutive ids: 1.6 GB for all nodes of OpenStreetMap, but any
    amount for a file crafted to exhaust memory.
    """
    import osmium

    blocks = len(np.unique(ids >> 25))
    return [osmium.filter.IdFilter(array("q", ids))] if blocks <= _MAX_FILTER_BLOCKS else []


def factorize(values: Sequence[TagValue], missing: TagValue) -> tuple[I32, list[TagValue]]:
    """Return each value's position among the sorted distinct values, -1 for ``missing``, and these."""
    distinct = sorted(set(values) - {missing})
    position = {value: i for i, value in enumerate(distinct)}
    position[missing] = -1
    return np.array([position[value] for value in values], np.int32), distinct


@contextmanager
def _convert_osmium_errors(name: str) -> Iterator[None]:
    """Convert libosmium's errors to ``DamagedInput``."""
    import osmium

    try:
        yield
    except (RuntimeError, ValueError, OverflowError, osmium.InvalidLocationError) as error:
        raise DamagedInput(
            f"{name} cannot be read to its end: {first_problem(error)}",
            steps="download the extract again",
        ) from error
