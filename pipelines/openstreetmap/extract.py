"""Read the streets and land-use areas of an OpenStreetMap file: PBF, XML, or either compressed.

pyosmium (the C++ library libosmium) decodes the file, keeps the locations of its nodes and hands over
only ways and relations tagged ``highway`` or ``landuse``, so that the Python part sees each street once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import first_fault
from kmip_data.pipelines.openstreetmap.land_use import LandUse, assemble
from kmip_data.pipelines.openstreetmap.streets import direction, is_street

if TYPE_CHECKING:
    import osmium

#: Format as libosmium names it, also the end of the file's name -> beginnings of a file; PBF: see below.
_BEGINNINGS: Final = {
    "osm.gz": (b"\x1f\x8b",), "osm.bz2": (b"BZh",),
    "osm": (b"<", b"\xef\xbb\xbf<", b"\xff\xfe<", b"\xfe\xff\0<"),
}  # fmt: skip
UNITS_A_DEGREE: Final = 10_000_000  #: coordinates are integers of 1e-7 degrees
_UNDEFINED: Final = 2**31 - 1  #: libosmium's coordinate of a node that is not in the file

Value = TypeVar("Value", str, tuple[str, ...])

#: Tags whose values become features, in the order of ``Ways.tags``.
VALUES: Final = ("highway", "lanes", "maxspeed")


@dataclass(frozen=True, kw_only=True)
class Ways:
    """The streets of a file, ordered by way number: W ways with R node references."""

    owner: NDArray[np.int64]  #: (R,) way of each reference, ascending
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
        return len(np.unique(self.owner[~self.known]))


class Extract(NamedTuple):
    """Streets and land use of a file."""

    ways: Ways
    land_use: LandUse


def file_format(path: Path) -> str:
    """Return the format by content, not by name: ``osm.pbf``, ``osm``, ``osm.gz`` or ``osm.bz2``."""
    with path.open("rb") as file:
        head = file.read(64)
    if b"OSMHeader" in head[:20]:
        return "osm.pbf"
    for name, beginnings in _BEGINNINGS.items():
        if head.lstrip().startswith(beginnings):
            return name
    found = f"it begins with {head[:16].decode('latin-1')!a}" if head else "it is empty"
    raise DamagedInput(
        f"{path.name} is not an OpenStreetMap file: {found}.",
        expected="PBF (.osm.pbf) or XML (.osm, .osm.gz, .osm.bz2)",
        next="an extract of any area: https://extract.bbbike.org or https://download.geofabrik.de",
    )


def read_extract(path: Path, network_type: str, workdir: Path, *, name: str | None = None) -> Extract:
    """Read one file; the same content gives the same extract, whatever its format and order.

    ``workdir`` takes a sorted copy of a file in which ways come before their nodes, or elements twice.
    Elements that were never uploaded, which editors number from -1 downwards, are refused.
    """
    import osmium

    name = name or path.name
    with _explained(name):
        collected = _collect(path, network_type, name)
        if collected.repeated or _lacks_in_vain(path, collected):
            # The newest version of each element: nodes, ways, relations, each by number.
            reader = osmium.MergeInputReader()
            reader.add_file(str(path))
            path = workdir / "sorted.osm.pbf"
            with osmium.SimpleWriter(str(path), overwrite=True) as writer:
                reader.apply(writer, simplify=True)
            collected = _collect(path, network_type, name)
        rings = _member_rings(path, collected)
        ways = collected.ways()
        lon, lat = (axis / UNITS_A_DEGREE for axis in (ways.x, ways.y))
        outside = ways.known & ((np.abs(lon) > 180) | (np.abs(lat) > 90))
        if outside.any():
            at = int(outside.argmax())
            raise DamagedInput(
                f"{name}: node {ways.ref[at]} is not on the map, at {lon[at]}, {lat[at]} degrees.",
                next="give an undamaged extract",
            )
        return Extract(ways, assemble(collected.closed, collected.relations, rings, collected.open_areas))


class _Collected:
    """Result of one pass over a file, in the file's order."""

    def __init__(self, locations: osmium.index.LocationTable) -> None:
        self.locations = locations
        self.locations_before: int | None = None  #: bytes of ``locations`` at the first way or relation
        self.way, self.size, self.ref = array("q"), array("q"), array("q")
        self.x, self.y, self.direction = array("i"), array("i"), array("b")
        self.tags: dict[str, list[str]] = {key: [] for key in VALUES}
        self.closed: dict[int, tuple[str, NDArray[np.float64]]] = {}
        self.open_areas = 0
        self.relations: dict[int, tuple[str, list[int]]] = {}
        self.repeated = False

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

    def ways(self) -> Ways:
        """Return the streets, ordered by number, without consecutive repetitions of a node."""
        order = np.argsort(np.frombuffer(self.way, np.int64), kind="stable")
        place = np.argsort(order)  # of each way among the ordered ones
        owner = np.repeat(place, np.frombuffer(self.size, np.int64))
        rows = np.argsort(owner, kind="stable")
        owner, ref = owner[rows], np.frombuffer(self.ref, np.int64)[rows]
        new = np.ones(len(ref), np.bool_)
        new[1:] = (ref[1:] != ref[:-1]) | (owner[1:] != owner[:-1])
        x, y = (np.frombuffer(axis, np.int32)[rows[new]] for axis in (self.x, self.y))
        tags = {key: coded([values[i] for i in order], "") for key, values in self.tags.items()}
        return Ways(
            owner=owner[new],
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
        if isinstance(element, osmium.osm.Way):
            refs = [node.ref for node in element.nodes]
            wanted = len(refs) > 1
        else:
            assert isinstance(element, osmium.osm.Relation)
            refs = [member.ref for member in element.members if member.type == "w"]
            wanted = "landuse" in tags and tags.get("type") in {"multipolygon", "boundary"}
        if not wanted:
            continue
        if (number := min([element.id, *refs])) < 1:
            raise DamagedInput(
                f"{name} has elements that were never uploaded to OpenStreetMap, such as number {number}.",
                next=f"osmium renumber {name} -o renumbered.osm.pbf",
            )
        if isinstance(element, osmium.osm.Relation):
            found.repeated |= element.id in found.relations
            found.relations[element.id] = tags["landuse"], refs
            continue
        if is_street(tags, network_type):
            found.repeated |= element.id in seen
            seen.add(element.id)
            found.add_street(element, tags, network_type)
        if "landuse" in tags:
            found.add_area(element, tags)
    return found


def _member_rings(path: Path, collected: _Collected) -> dict[int, NDArray[np.float64]]:
    """Return the lines of the ways that relations are made of; ways that are not in the file are left out."""
    import osmium

    wanted = {member for _, members in collected.relations.values() for member in members}
    if not wanted:
        return {}
    processor = osmium.FileProcessor(osmium.io.File(str(path), file_format(path)), osmium.osm.WAY)
    lines = {}
    for way in processor.with_filter(osmium.filter.IdFilter(wanted)):
        assert isinstance(way, osmium.osm.Way)
        places = [_found(collected.locations, node.ref) or (np.nan, np.nan) for node in way.nodes]
        lines[way.id] = np.array(places, np.float64).reshape(-1, 2)
    return lines


def _lacks_in_vain(path: Path, collected: _Collected) -> bool:
    """True if a node that a street lacked is in the file all the same, after the street."""
    import osmium

    undefined = np.frombuffer(collected.x, np.int32) == _UNDEFINED
    lacking = np.frombuffer(collected.ref, np.int64)[undefined].tolist()
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


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what libosmium raises into the error of a damaged file."""
    import osmium

    try:
        yield
    except (RuntimeError, ValueError, OverflowError, osmium.InvalidLocationError) as error:
        raise DamagedInput(
            f"{name} cannot be read to its end: {first_fault(error)}",
            next="get the extract again; `osmium fileinfo -e FILE` checks that it is whole",
        ) from error
