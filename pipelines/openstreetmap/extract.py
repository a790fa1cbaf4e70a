"""Read the streets and land-use areas of an OpenStreetMap file: PBF, XML, or either compressed.

pyosmium (the C++ library libosmium) decodes the file, keeps the locations of its nodes and hands over
only ways and relations tagged ``highway`` or ``landuse``, so that the Python part sees each street once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import first_fault
from kmip_data.pipelines.openstreetmap.land_use import LandUse, assemble
from kmip_data.pipelines.openstreetmap.streets import direction, is_street

if TYPE_CHECKING:
    import osmium

#: Beginning of a file -> the format as libosmium names it, also the end of the file's name.
_BEGINNINGS: Final = ((b"\x1f\x8b", "osm.gz"), (b"BZh", "osm.bz2"))
_XML_BEGINNINGS: Final = (b"<", b"\xef\xbb\xbf<", b"\xff\xfe<", b"\xfe\xff\0<")
UNITS_A_DEGREE: Final = 10_000_000  #: coordinates are integers of 1e-7 degrees
_UNDEFINED: Final = 2**31 - 1  #: libosmium's coordinate of a node that is not in the file

Value = TypeVar("Value", str, tuple[str, ...])

#: Tags whose values become features, in the order of ``Ways.tags``.
VALUES: Final = ("highway", "lanes", "maxspeed")


@dataclass(frozen=True, kw_only=True)
class Ways:
    """The streets of a file, ordered by way number: W ways with R node references."""

    ptr: NDArray[np.int64]  #: (W + 1,); way w has the node references ``ptr[w]:ptr[w + 1]``
    ref: NDArray[np.int64]  #: (R,) node numbers
    x: NDArray[np.int32]  #: (R,) longitude in 1e-7 degrees
    y: NDArray[np.int32]  #: (R,) latitude
    known: NDArray[np.bool_]  #: (R,) whether the node is in the file
    direction: NDArray[np.int8]  #: (W,) of :func:`~kmip_data.pipelines.openstreetmap.streets.direction`
    tags: Mapping[str, NDArray[np.int32]]  #: (W,) position of the way's value in ``values``, -1 without one
    values: Mapping[str, list[str]]  #: of each tag of :data:`VALUES`, sorted

    def __len__(self) -> int:
        return len(self.direction)

    @property
    def cut(self) -> int:
        """Number of ways with a node that is not in the file."""
        unknown = np.concatenate([[0], np.cumsum(~self.known)])
        return int((unknown[self.ptr[1:]] > unknown[self.ptr[:-1]]).sum())


@dataclass(frozen=True)
class Extract:
    """Streets and land use of a file."""

    ways: Ways
    land_use: LandUse


def file_format(path: Path) -> str:
    """Return the format by content, not by name: ``osm.pbf``, ``osm``, ``osm.gz`` or ``osm.bz2``."""
    with path.open("rb") as file:
        head = file.read(64)
    if b"OSMHeader" in head[:20]:
        return "osm.pbf"
    for beginning, compressed in _BEGINNINGS:
        if head.startswith(beginning):
            return compressed
    if head.lstrip().startswith(_XML_BEGINNINGS):
        return "osm"
    found = f"it begins with {head[:16].decode('latin-1')!a}" if head else "it is empty"
    raise DamagedInput(
        f"{path.name} is not an OpenStreetMap file: {found}.",
        expected="PBF (.osm.pbf) or XML (.osm, .osm.gz, .osm.bz2)",
        next="an extract of any area: https://extract.bbbike.org or https://download.geofabrik.de",
    )


def read_extract(path: Path, network_type: str, workdir: Path, *, name: str | None = None) -> Extract:
    """Read one file; the same content gives the same extract, whatever its format and order.

    ``workdir`` takes a sorted copy of a file in which ways come before their nodes, or elements twice. Raises
    ``DamagedInput`` if the file cannot be read to its end, is not a map of one point in time, or has elements
    that were never uploaded, which editors number from -1 downwards.
    """
    name = name or path.name
    with _explained(name):
        collected = _collect(path, network_type, name)
        if collected.repeated or _lacks_in_vain(path, collected):
            path = _sorted_copy(path, workdir)
            collected = _collect(path, network_type, name)
        rings = _member_rings(path, collected)
        ways = collected.ways()
        _check_places(ways, name)
        return Extract(ways, assemble(collected.closed, collected.relations, rings, collected.open_areas))


@dataclass
class _Collected:
    """Result of one pass over a file, in the file's order."""

    locations: osmium.index.LocationTable
    way: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    ref: array[int] = field(default_factory=lambda: array("q"))
    x: array[int] = field(default_factory=lambda: array("i"))
    y: array[int] = field(default_factory=lambda: array("i"))
    direction: array[int] = field(default_factory=lambda: array("b"))
    tags: dict[str, list[str]] = field(default_factory=lambda: {key: [] for key in VALUES})
    closed: dict[int, tuple[str, NDArray[np.float64]]] = field(default_factory=dict)
    open_areas: int = 0
    relations: dict[int, tuple[str, list[int]]] = field(default_factory=dict)
    repeated: bool = False
    locations_before: int | None = None  #: bytes of ``locations`` at the first way or relation

    def add_street(self, way: osmium.osm.Way, tags: Mapping[str, str], network_type: str) -> None:
        """Keep a way's nodes, direction and values."""
        before = len(self.ref)
        for node in way.nodes:
            self.ref.append(node.ref)
            self.x.append(node.x)
            self.y.append(node.y)
        self.way.append(way.id)
        self.size.append(len(self.ref) - before)
        self.direction.append(direction(tags, network_type))
        for key, values in self.tags.items():
            values.append(tags.get(key, ""))

    def add_area(self, way: osmium.osm.Way, tags: Mapping[str, str]) -> None:
        """Keep a closed way as an area."""
        ring = _ring(way)
        if tags.get("area") == "no" or way.nodes[0].ref != way.nodes[-1].ref or len(ring) < 4:
            self.open_areas += 1
        else:
            self.repeated |= way.id in self.closed
            self.closed[way.id] = tags["landuse"], ring

    @property
    def lacking(self) -> list[int]:
        """Numbers of the nodes of streets that were not in the file so far."""
        lacking = np.frombuffer(self.x, np.int32) == _UNDEFINED
        return [int(ref) for ref in np.frombuffer(self.ref, np.int64)[lacking]]

    def ways(self) -> Ways:
        """Return the streets, ordered by number, without consecutive repetitions of a node."""
        number = np.frombuffer(self.way, np.int64)
        order = np.argsort(number, kind="stable")
        size = np.frombuffer(self.size, np.int64)
        start = np.cumsum(size) - size
        size = size[order]
        shift = np.repeat(start[order] - (np.cumsum(size) - size), size)
        rows = np.arange(int(size.sum())) + shift
        owner = np.repeat(np.arange(len(size)), size)
        ref = np.frombuffer(self.ref, np.int64)[rows]
        new = np.ones(len(ref), np.bool_)
        new[1:] = (ref[1:] != ref[:-1]) | (owner[1:] != owner[:-1])
        rows, owner = rows[new], owner[new]
        x, y = (np.frombuffer(axis, np.int32)[rows] for axis in (self.x, self.y))
        tags = {key: coded([values[i] for i in order], "") for key, values in self.tags.items()}
        return Ways(
            ptr=np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(size)))]),
            ref=ref[new],
            x=x,
            y=y,
            known=(x != _UNDEFINED) & (y != _UNDEFINED),
            direction=np.frombuffer(self.direction, np.int8)[order],
            tags={key: codes for key, (codes, _) in tags.items()},
            values={key: values for key, (_, values) in tags.items()},
        )


def _collect(path: Path, network_type: str, name: str) -> _Collected:
    import osmium

    processor = osmium.FileProcessor(osmium.io.File(str(path), file_format(path))).with_locations()
    if processor.header.has_multiple_object_versions:
        raise DamagedInput(
            f"{name} is a history or change file, not a map of one point in time.",
            next="osmium time-filter makes a map of a history file",
        )
    processor.with_filter(osmium.filter.EntityFilter(osmium.osm.WAY | osmium.osm.RELATION))
    processor.with_filter(osmium.filter.KeyFilter("highway", "landuse"))
    assert processor.node_location_storage is not None  # with_locations() made it
    found = _Collected(processor.node_location_storage)
    seen: set[int] = set()
    for element in processor:
        if found.locations_before is None:
            found.locations_before = found.locations.used_memory()
        tags = dict(element.tags)
        if isinstance(element, osmium.osm.Relation):
            if "landuse" in tags and tags.get("type") in {"multipolygon", "boundary"}:
                found.repeated |= element.id in found.relations
                members = [member.ref for member in element.members if member.type == "w"]
                _check_uploaded(name, element.id, *members)
                found.relations[element.id] = tags["landuse"], members
            continue
        if not isinstance(element, osmium.osm.Way) or len(element.nodes) < 2:
            continue
        _check_uploaded(name, element.id, *(node.ref for node in element.nodes))
        if is_street(tags, network_type):
            found.repeated |= element.id in seen
            seen.add(element.id)
            found.add_street(element, tags, network_type)
        if "landuse" in tags:
            found.add_area(element, tags)
    return found


def _check_uploaded(name: str, *numbers: int) -> None:
    if (number := min(numbers)) < 1:
        raise DamagedInput(
            f"{name} has elements that were never uploaded to OpenStreetMap, such as number {number}.",
            next=f"osmium renumber {name} -o renumbered.osm.pbf",
        )


def _member_rings(path: Path, collected: _Collected) -> dict[int, NDArray[np.float64]]:
    """Return the lines of the ways that relations are made of; ways that are not in the file are left out."""
    import osmium

    wanted = {member for _, members in collected.relations.values() for member in members}
    if not wanted:
        return {}
    processor = osmium.FileProcessor(osmium.io.File(str(path), file_format(path)), osmium.osm.WAY)
    lines = {}
    for way in processor.with_filter(osmium.filter.IdFilter(wanted)):
        if not isinstance(way, osmium.osm.Way):
            continue
        places = [_found(collected.locations, node.ref) for node in way.nodes]
        line = np.array([place or (np.nan, np.nan) for place in places], np.float64).reshape(-1, 2)
        lines[way.id] = line
    return lines


def _lacks_in_vain(path: Path, collected: _Collected) -> bool:
    """True if a node that a street lacked is in the file all the same, after the street."""
    import osmium

    lacking = collected.lacking
    if any(_found(collected.locations, number) for number in lacking):
        return True
    # Else the table of locations is to be believed, unless it grew after the first street: what was added
    # in no order is not found. The filter takes 4 MiB for each 33 million numbers, so it comes last.
    if not lacking or collected.locations.used_memory() == collected.locations_before:
        return False
    processor = osmium.FileProcessor(osmium.io.File(str(path), file_format(path)), osmium.osm.NODE)
    nodes = processor.with_filter(osmium.filter.IdFilter(lacking))
    return next(iter(nodes), None) is not None


def _found(locations: osmium.index.LocationTable, node: int) -> tuple[float, float] | None:
    try:
        place = locations.get(node)
    except (KeyError, TypeError):  # the table has no numbers below 0
        return None
    return (place.x / UNITS_A_DEGREE, place.y / UNITS_A_DEGREE) if place.x != _UNDEFINED else None


def _ring(way: osmium.osm.Way) -> NDArray[np.float64]:
    """Return longitude and latitude of the nodes of a way, (n, 2); NaN where a node is not in the file."""
    places = np.array([(node.x, node.y) for node in way.nodes], np.int64)
    ring = places / UNITS_A_DEGREE
    ring[(places == _UNDEFINED).any(axis=1)] = np.nan
    return ring


def coded(values: Sequence[Value], missing: Value) -> tuple[NDArray[np.int32], list[Value]]:
    """Return the position of each value among the sorted distinct ones, -1 for ``missing``, and these."""
    distinct = sorted(set(values) - {missing})
    position = {missing: -1, **{value: i for i, value in enumerate(distinct)}}
    return np.array([position[value] for value in values], np.int32), distinct


def _sorted_copy(path: Path, workdir: Path) -> Path:
    """Write the newest version of each element: nodes, ways, relations, each by number."""
    import osmium

    target = workdir / "sorted.osm.pbf"
    reader = osmium.MergeInputReader()
    reader.add_file(str(path))
    with osmium.SimpleWriter(str(target), overwrite=True) as writer:
        reader.apply(writer, simplify=True)
    return target


def _check_places(ways: Ways, name: str) -> None:
    outside = ways.known & (
        (np.abs(ways.x.astype(np.int64)) > 180 * UNITS_A_DEGREE)
        | (np.abs(ways.y.astype(np.int64)) > 90 * UNITS_A_DEGREE)
    )
    if outside.any():
        at = int(outside.argmax())
        raise DamagedInput(
            f"{name}: node {ways.ref[at]} is not on the map, at {ways.x[at] / UNITS_A_DEGREE}, "
            f"{ways.y[at] / UNITS_A_DEGREE} degrees.",
            next="give an undamaged extract",
        )


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what libosmium raises into the error of a damaged file."""
    import osmium

    try:
        yield
    except (RuntimeError, ValueError, OverflowError, osmium.InvalidLocationError) as error:
        if isinstance(error, DamagedInput):
            raise
        raise DamagedInput(
            f"{name} cannot be read to its end: {first_fault(error)}",
            expected="a whole OpenStreetMap file: PBF, or XML without a document type",
            next="get the extract again; `osmium fileinfo -e FILE` checks that it is whole",
        ) from error
