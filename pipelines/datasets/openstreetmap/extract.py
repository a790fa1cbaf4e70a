"""Read the streets and land-use areas of an OpenStreetMap file: PBF, XML, or either compressed.

The C++ library libosmium decodes and filters; Python sees only relations and ways that may matter,
and the nodes that they refer to. References become arrays, so a country takes a few gigabytes.
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

from kmip_data.arrays import F64, I8, I32, I64, Bools
from kmip_data.errors import DamagedInput
from kmip_data.files.path_errors import require_room
from kmip_data.files.reading import first_problem
from kmip_data.pipelines.datasets.openstreetmap.land_use import LandUse, assemble_areas
from kmip_data.pipelines.datasets.openstreetmap.streets import LEFT_OUT, is_street, street_direction
from kmip_data.runtime.memory import mapped_copy
from kmip_data.runtime.parallel import num_threads

if TYPE_CHECKING:
    import osmium

#: Format as libosmium names it, also the end of the file's name -> beginnings of a file; PBF: see
#: below.
_BEGINNINGS = {
    "osm.gz": (b"\x1f\x8b",), "osm.bz2": (b"BZh",),
    "osm": (b"<", b"\xef\xbb\xbf<", b"\xff\xfe<", b"\xfe\xff\0<"),
}  # fmt: skip
UNITS_PER_DEGREE = 10_000_000  #: coordinates are integers of 1e-7 degrees
_FILTER_BLOCKS = 1_024  #: blocks of a filter by numbers: 4 GB
_UNDEFINED = 2**31 - 1  #: libosmium's coordinate of a node that is not in the file

Values = tuple[str, ...]
Value = TypeVar("Value", str, Values)

#: Tags whose values become features, in the order of ``Ways.tags``.
VALUES = ("highway", "lanes", "maxspeed")


@dataclass(frozen=True, kw_only=True)
class Ways:
    """Streets that are not simplified yet, ordered by way number: W ways with R references to n nodes."""

    start: I64  #: (W + 1,) position of each way's first reference
    node: I32  #: (R,) positions of nodes; -1 for one that is not in the file or was left out
    node_id: I64  #: (n,) OpenStreetMap's numbers, ascending
    x: I32  #: (n,) longitude in 1e-7 degrees
    y: I32  #: (n,) latitude
    #: (W,) of :func:`~kmip_data.pipelines.datasets.openstreetmap.streets.street_direction`
    direction: I8
    tags: Mapping[str, I32]  #: (W,) position of the way's value in ``values``, -1 without one
    values: Mapping[str, list[Values]]  #: values of each tag of :data:`VALUES`, sorted

    def __len__(self) -> int:
        return len(self.direction)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, including nodes that no way refers to any more."""
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
    def incomplete(self) -> int:
        """Number of ways with a node that is not in the file."""
        missing = np.flatnonzero(self.node < 0)
        ways = np.searchsorted(self.start, missing, "right")
        return len(np.unique(ways))

    def keep_nodes(self, inside: Bools) -> Ways:
        """Return the ways cut at all nodes but the marked ones, ``inside`` (N,)."""
        number = np.full(len(inside) + 1, -1, np.int32)  # the last one for references to no node
        number[:-1][inside] = np.flatnonzero(inside)
        return replace(self, node=number[self.node])


class Extract(NamedTuple):
    """Streets and land use of a file."""

    ways: Ways
    land_use: LandUse


def file_format(path: Path) -> str:
    """Return the format by content, not by name: ``osm.pbf``, ``osm``, ``osm.gz`` or ``osm.bz2``."""
    with path.open("rb") as file:
        # libosmium judges by the file name, which may be wrong.
        head = file.read(64)
    if b"OSMHeader" in head[:20]:
        return "osm.pbf"
    for name, beginnings in _BEGINNINGS.items():
        if head.lstrip().startswith(beginnings):
            return name

    raise DamagedInput(
        f"{path.name} is not an OpenStreetMap file: it begins with {head[:16]!r}.",
        expected="PBF (.osm.pbf) or XML (.osm, .osm.gz, .osm.bz2)",
        next="download an extract of any area: https://extract.bbbike.org or https://download.geofabrik.de",
    )


def read_extract(
    path: Path,
    network_type: str,
    workdir: Path,
    *,
    name: str | None = None,
) -> Extract:
    """Read one file; the same content gives the same extract, whatever its format and order.

    ``workdir`` holds arrays that are mapped, and a sorted copy of a file with repeated elements.
    Elements that were never uploaded, which editors number from -1 downwards, are refused.
    """
    name = name or path.name
    with _osmium_errors(name), tempfile.TemporaryDirectory(dir=workdir) as temporary:
        import osmium

        folder = Path(temporary)
        source = osmium.io.File(str(path), file_format(path))
        if osmium.FileProcessor(source).header.has_multiple_object_versions:
            raise DamagedInput(
                f"{name} is a history or change file, not a map of one point in time.",
                next="make a map of a history file with osmium time-filter",
            )
        city_map = _Map(source, network_type, folder, name)
        if city_map.repeated:
            # The newest version of each element: nodes, ways, relations, each by number.
            copy = folder / "sorted.osm.pbf"
            require_room(folder, 3 * path.stat().st_size, "A sorted copy of the map")
            reader = osmium.MergeInputReader()
            reader.add_file(str(path))
            with osmium.SimpleWriter(str(copy)) as writer:
                reader.apply(writer, simplify=True)
            city_map = _Map(osmium.io.File(str(copy)), network_type, folder, name)

        land_use = assemble_areas(city_map.closed, city_map.relations, city_map.member_lines)
        return Extract(city_map.ways, land_use)


class _References:
    """Nodes of many ways in one array: a Python list for each would be ten times as large."""

    def __init__(self) -> None:
        self.number = array("q")  #: (W,) of each way
        self.size = array("i")  #: (W,) nodes of each way
        self.ref = array("q")  #: numbers of the nodes, way by way

    def add(self, number: int, refs: Sequence[int]) -> None:
        """Add the nodes of a way."""
        self.number.append(number)
        self.size.append(len(refs))
        self.ref.extend(refs)


class _Map:
    """Streets and areas of a file, read by libosmium in one filtered pass for each type of element."""

    def __init__(
        self,
        source: osmium.io.File,
        network_type: str,
        folder: Path,
        name: str,
    ) -> None:
        self.source = source
        self.network_type = network_type
        self.folder = folder
        self.name = name
        self.keys = sorted({*VALUES, "oneway", "junction", *LEFT_OUT[network_type]})
        self.repeated = False  #: true if an element comes twice
        self.relations: dict[int, tuple[str, list[int]]] = {}
        self._read_relations()

        # 1. Streets, areas, and ways of which relations are made.
        self.tag_sets: dict[tuple[str | None, ...], int] = {}  #: distinct combinations of tags
        self.is_street: list[bool] = []  #: whether each combination belongs to the network
        self.streets = _References()
        self.tag_set = array("i")  #: combination of each street
        self.areas = _References()
        self.uses: list[str] = []  #: land use of each area
        self.members = _References()
        self._read_ways()
        self._read_members()

        # 2. Locations of all nodes that these refer to.
        self.node_id, self.x, self.y = self._read_nodes()
        areas = self._way_coordinates(self.areas)
        self.closed = {
            number: (use, line) for use, (number, line) in zip(self.uses, areas, strict=True)
        }
        self.repeated |= len(self.closed) < len(self.uses)
        self.member_lines = dict(self._way_coordinates(self.members))
        self.ways = self._street_ways()

    def _read_elements(self, entities: Any, *filters: Any) -> Iterator[Any]:
        """Yield the elements of a type that all filters pass."""
        import osmium

        # By default libosmium leaves two cores idle, or uses one of two.
        pool = osmium.io.ThreadPool(num_threads())
        elements = osmium.FileProcessor(self.source, entities, pool)
        for element_filter in filters:
            elements = elements.with_filter(element_filter)
        yield from elements

    def _read_relations(self) -> None:
        """Keep the ways of relations that may be areas."""
        import osmium

        for relation in self._read_elements(
            osmium.osm.RELATION, osmium.filter.KeyFilter("landuse")
        ):
            tags = relation.tags
            if tags.get("type") in {"multipolygon", "boundary"}:
                refs = [member.ref for member in relation.members if member.type == "w"]
                self._refuse_bad_numbers(relation.id, *refs)
                self.repeated |= relation.id in self.relations
                self.relations[relation.id] = tags["landuse"], refs

    def _read_ways(self) -> None:
        """Keep streets, and closed ways with a land use as areas."""
        import osmium

        wanted = osmium.filter.KeyFilter("highway", "landuse")
        for way in self._read_elements(osmium.osm.WAY, wanted):
            if len(way.nodes) < 2:
                continue
            tags = way.tags
            tag_set = self._tag_set_number(tags) if "highway" in tags else -1
            street = tag_set >= 0 and self.is_street[tag_set]
            use = tags.get("landuse")
            area = use is not None and tags.get("area") != "no" and way.is_closed()
            if not (street or area):
                continue
            refs = [node.ref for node in way.nodes]
            self._refuse_bad_numbers(way.id, *refs)
            if street:
                # Without consecutive repetitions.
                once = [refs[0], *(b for a, b in pairwise(refs) if a != b)]
                self.streets.add(way.id, once)
                self.tag_set.append(tag_set)
            if area and len(refs) >= 4:
                self.areas.add(way.id, refs)
                self.uses.append(use)

    def _read_members(self) -> None:
        """Keep the references of ways of which relations are made."""
        import osmium

        wanted = {ref for _, refs in self.relations.values() for ref in refs}
        if not wanted:
            return
        for way in self._read_elements(osmium.osm.WAY, *_number_filter(np.array([*wanted]))):
            if way.id in wanted:
                self.members.add(way.id, [node.ref for node in way.nodes])

    def _read_nodes(self) -> tuple[I64, I32, I32]:
        """Return number, longitude and latitude of the nodes that are referred to, by number."""
        import osmium

        groups = (self.streets, self.areas, self.members)
        wanted = np.unique(np.concatenate([np.array(references.ref) for references in groups]))
        number, x, y = array("q"), array("i"), array("i")
        for node in self._read_elements(osmium.osm.NODE, *_number_filter(wanted)):
            location = node.location
            number.append(node.id)
            x.append(location.x)
            y.append(location.y)

        # A file in the order of the numbers needs no sort.
        numbers, places = np.array(number), np.array([x, y])
        if not (numbers[1:] > numbers[:-1]).all() or (places[0] == _UNDEFINED).any():
            order = np.argsort(numbers, kind="stable")
            order = order[places[0, order] != _UNDEFINED]
            numbers = numbers[order]
            places = places[:, order]
            self.repeated |= bool((numbers[1:] == numbers[:-1]).any())
        return numbers, places[0], places[1]

    def _street_ways(self) -> Ways:
        """Return the ways that are streets of the network."""
        number = np.array(self.streets.number)
        size = np.array(self.streets.size, np.int64)
        tag_set = np.array(self.tag_set)
        node = self._node_positions(np.array(self.streets.ref))

        # 1. Order by way number, whatever the order of the file.
        start = np.append(0, np.cumsum(size))
        if not (number[1:] > number[:-1]).all():
            order = np.argsort(number, kind="stable")
            self.repeated |= bool((np.diff(number[order]) == 0).any())
            size = size[order]
            tag_set = tag_set[order]
            first = start[order]
            start = np.append(0, np.cumsum(size))
            node = node[np.repeat(first - start[:-1], size) + np.arange(len(node))]

        # 2. Number only the nodes that streets use.
        used = np.zeros(len(self.node_id), np.bool_)
        used[node[node >= 0]] = True
        renumbered = np.cumsum(used, dtype=np.int32)[node] - 1
        node = np.where(node < 0, -1, renumbered).astype(np.int32, copy=False)
        node_id = mapped_copy(self.node_id[used], self.folder)
        x = mapped_copy(self.x[used], self.folder)
        y = mapped_copy(self.y[used], self.folder)
        self._check_places(node_id, x, y)

        # 3. Encode the tags, examining each distinct combination once.
        distinct, combination = np.unique(tag_set, return_inverse=True)
        combinations = [*self.tag_sets]
        tags = [self._tags(combinations[number]) for number in distinct.tolist()]
        directions = np.array([street_direction(tag, self.network_type) for tag in tags], np.int8)
        codes: dict[str, I32] = {}
        values: dict[str, list[Values]] = {}
        for key in VALUES:
            code, texts = factorize([tag.get(key, "") for tag in tags], "")
            codes[key] = code[combination]
            values[key] = [(text,) for text in texts]
        return Ways(
            start=start,
            node=mapped_copy(node, self.folder),
            node_id=node_id,
            x=x,
            y=y,
            direction=directions[combination],
            tags=codes,
            values=values,
        )

    def _tag_set_number(self, tags: Any) -> int:
        """Return the number of a way's combination of tags."""
        known = tuple(tags.get(key) for key in self.keys)
        tag_set = self.tag_sets.setdefault(known, len(self.tag_sets))
        if tag_set == len(self.is_street):
            self.is_street.append(is_street(self._tags(known), self.network_type))
        return tag_set

    def _tags(self, known: tuple[str | None, ...]) -> dict[str, str]:
        return {key: text for key, text in zip(self.keys, known, strict=True) if text is not None}

    def _refuse_bad_numbers(self, *numbers: int) -> None:
        if (number := min(numbers)) < 1:
            raise DamagedInput(
                f"{self.name} has elements that were never uploaded to OpenStreetMap, "
                f"such as number {number}.",
                next=f"osmium renumber {self.name} -o renumbered.osm.pbf",
            )

    def _check_places(self, node_id: I64, x: I32, y: I32) -> None:
        """Refuse coordinates beyond 180 degrees of longitude or 90 of latitude."""
        lon_limit = 180 * UNITS_PER_DEGREE
        lat_limit = 90 * UNITS_PER_DEGREE
        outside = (x != x.clip(-lon_limit, lon_limit)) | (y != y.clip(-lat_limit, lat_limit))
        if outside.any():
            first = int(outside.argmax())
            lon = x[first] / UNITS_PER_DEGREE
            lat = y[first] / UNITS_PER_DEGREE
            raise DamagedInput(
                f"{self.name}: node {node_id[first]} is not on the map, at {lon}, {lat} degrees.",
                next="use an undamaged extract",
            )

    def _node_positions(self, ref: I64) -> I32:
        """Return the position of each reference in ``node_id``, -1 for a node that is not in the file."""
        if not len(self.node_id):
            return np.full(len(ref), -1, np.int32)
        position = np.searchsorted(self.node_id, ref).astype(np.int32)
        position[position == len(self.node_id)] = 0
        position[self.node_id[position] != ref] = -1
        return position

    def _way_coordinates(self, ways: _References) -> Iterator[tuple[int, F64]]:
        """Yield the number of each way, and its longitudes and latitudes, (n, 2); NaN for missing nodes."""
        position = self._node_positions(np.array(ways.ref))
        line = np.full((len(position), 2), np.nan)
        inside = position >= 0
        line[inside, 0] = self.x[position[inside]] / UNITS_PER_DEGREE
        line[inside, 1] = self.y[position[inside]] / UNITS_PER_DEGREE
        start = 0
        for number, size in zip(ways.number, ways.size, strict=True):
            yield number, line[start : start + size]
            start += size


def _number_filter(numbers: I64) -> list[Any]:
    """Return libosmium's filter by numbers (n,), as a list; no filter where it would be too large.

    It has 4 MB for each 2²⁵ numbers in a row of which one is wanted: 1.6 GB for OpenStreetMap's
    nodes, any amount for a file that was made to fill the memory.
    """
    import osmium

    blocks = len(np.unique(numbers >> 25))
    return [osmium.filter.IdFilter(array("q", numbers))] if blocks <= _FILTER_BLOCKS else []


def factorize(values: Sequence[Value], missing: Value) -> tuple[I32, list[Value]]:
    """Return the position of each value among the sorted distinct ones, -1 for ``missing``, and these."""
    distinct = sorted(set(values) - {missing})
    position = {value: i for i, value in enumerate(distinct)}
    position[missing] = -1
    return np.array([position[value] for value in values], np.int32), distinct


@contextmanager
def _osmium_errors(name: str) -> Iterator[None]:
    """Convert errors of libosmium to ``DamagedInput``."""
    import osmium

    try:
        yield
    except (RuntimeError, ValueError, OverflowError, osmium.InvalidLocationError) as error:
        raise DamagedInput(
            f"{name} cannot be read to its end: {first_problem(error)}",
            next="download the extract again; `osmium fileinfo -e FILE` checks that it is complete",
        ) from error
