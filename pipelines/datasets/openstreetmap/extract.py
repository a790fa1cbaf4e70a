"""Read the streets and land-use areas of an OpenStreetMap file: PBF, XML, or either compressed.

Compiled kernels decode PBF twice: first nodes, whose locations go to a temporary file with 16 bytes
each, and relations; then ways, which become arrays with 4 bytes per reference. So a country takes a
few gigabytes. Other files are first converted to PBF by the C++ library libosmium.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from kmip_data.arrays import F64, I8, I32, I64, Array, Bools
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.path_errors import require_room
from kmip_data.files.reading import first_problem
from kmip_data.pipelines.datasets.openstreetmap.blocks import (
    Elements,
    Pbf,
    UnusualError,
    positions,
)
from kmip_data.pipelines.datasets.openstreetmap.land_use import LandUse, assemble
from kmip_data.pipelines.datasets.openstreetmap.streets import LEFT_OUT, direction, is_street
from kmip_data.runtime.memory import mapped
from kmip_data.runtime.threads import num_threads

#: Format as libosmium names it, also the end of the file's name -> beginnings of a file; PBF: see
#: below.
_BEGINNINGS = {
    "osm.gz": (b"\x1f\x8b",), "osm.bz2": (b"BZh",),
    "osm": (b"<", b"\xef\xbb\xbf<", b"\xff\xfe<", b"\xfe\xff\0<"),
}  # fmt: skip
UNITS_A_DEGREE = 10_000_000  #: coordinates are integers of 1e-7 degrees
_WAY = 1  #: type of a member
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
    #: (W,) of :func:`~kmip_data.pipelines.datasets.openstreetmap.streets.direction`
    direction: I8
    tags: Mapping[str, I32]  #: (W,) position of the way's value in ``values``, -1 without one
    values: Mapping[str, list[Values]]  #: values of each tag of :data:`VALUES`, sorted

    def __len__(self) -> int:
        return len(self.direction)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, including those that no way refers to any more."""
        return len(self.node_id)

    @property
    def lon(self) -> F64:
        """Longitude of each node in degrees."""
        return self.x / UNITS_A_DEGREE

    @property
    def lat(self) -> F64:
        """Latitude of each node in degrees."""
        return self.y / UNITS_A_DEGREE

    @property
    def incomplete(self) -> int:
        """Number of ways with a node that is not in the file."""
        missing = np.flatnonzero(self.node < 0)
        ways = np.searchsorted(self.start, missing, "right")
        return len(np.unique(ways))

    def nodes(self, inside: Bools) -> Ways:
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

    ``workdir`` holds temporary files, and a sorted copy of a file with repeated elements.
    Elements that were never uploaded, which editors number from -1 downwards, are refused.
    """
    name = name or path.name
    with _explained(name), tempfile.TemporaryDirectory(dir=workdir) as temporary:
        folder = Path(temporary)
        # Extracts take up to twice their size.
        require_room(folder, 3 * path.stat().st_size, "A copy of the nodes")
        try:
            city_map = _Map(path, network_type, folder, name)
        except UnusualError:
            # Another format, a rare kind of PBF, or damaged: libosmium converts it, or says why not.
            city_map = _Map(_converted(path, folder, name), network_type, folder, name)

        if city_map.repeated:
            import osmium

            # The newest version of each element: nodes, ways, relations, each by number.
            reader = osmium.MergeInputReader()
            reader.add_file(str(path))
            with osmium.SimpleWriter(str(folder / "sorted.osm.pbf")) as writer:
                reader.apply(writer, simplify=True)
            city_map = _Map(folder / "sorted.osm.pbf", network_type, folder, name)

        land_use = assemble(city_map.closed, city_map.relations, city_map.member_lines)
        return Extract(city_map.ways, land_use)


def _converted(path: Path, folder: Path, name: str) -> Path:
    """Write all elements of a file as PBF of the usual kind."""
    import osmium

    source = osmium.io.File(str(path), file_format(path))
    if osmium.FileProcessor(source).header.has_multiple_object_versions:
        raise DamagedInput(
            f"{name} is a history or change file, not a map of one point in time.",
            next="make a map of a history file with osmium time-filter",
        )
    copy = folder / "copy.osm.pbf"
    target = osmium.io.File(str(copy), "pbf,pbf_compression=none,add_metadata=false")
    element_types = osmium.osm.NODE | osmium.osm.WAY | osmium.osm.RELATION
    # By default libosmium leaves two cores idle, or uses one of two.
    pool = osmium.io.ThreadPool(num_threads())
    with (
        osmium.SimpleWriter(target, overwrite=True, thread_pool=pool) as writer,
        osmium.io.Reader(source, element_types, pool) as reader,
    ):
        osmium.apply(reader, writer)
    return copy


class _Map:
    """Streets and areas of a file."""

    def __init__(
        self,
        path: Path,
        network_type: str,
        folder: Path,
        name: str,
    ) -> None:
        self.network_type = network_type
        self.folder = folder
        self.name = name
        self.keys = ["highway", "landuse"]
        others = {*VALUES, "oneway", "junction", "area", *LEFT_OUT[network_type]}
        self.keys += sorted(others.difference(self.keys))
        self.closed: dict[int, tuple[str, F64]] = {}
        self.relations: dict[int, tuple[str, list[int]]] = {}
        self.member_lines: dict[int, F64] = {}  #: lines of the ways that relations are made of
        self.repeated = False  #: true if an element comes twice
        self.tag_sets: dict[tuple[tuple[str, str], ...], int] = {}  #: distinct combinations of tags
        self.street = array("b")  #: 1 for each combination that belongs to the network, else 0
        self.file = Pbf(path)
        self.node_id, self.x, self.y = self._nodes()
        self.ways = self._ways()

    def _nodes(self) -> tuple[I64, I32, I32]:
        """Keep relations, and return number, longitude and latitude of all nodes, by number."""
        with tempfile.TemporaryFile(dir=self.folder) as nodes:
            size = 0
            for rows, relations in self.file.nodes(("landuse", "type")):
                nodes.write(rows.data)
                size += len(rows)
                self._add_relations(relations)
            nodes.flush()
            table = np.empty((0, 4), np.int32)
            if size:  # an empty file cannot be mapped
                table = np.memmap(
                    nodes,
                    np.int32,
                    "r",
                    shape=(size, 4),
                ).view(np.ndarray)
        if size >= 2**31:
            raise UsageError(
                f"{self.name} has {size:,} nodes.", next="use an extract of a part of it"
            )

        # Each row: a number of 8 bytes, longitude, latitude.
        number = table.view(np.int64)[:, 0]
        x = table[:, 2]
        y = table[:, 3]
        # A file in the order of the numbers needs no sort.
        ascending = (number[1:] > number[:-1]).all()
        if not ascending or (x == _UNDEFINED).any():
            order = np.argsort(number, kind="stable")
            order = order[x[order] != _UNDEFINED]
            number = number[order]
            x = x[order]
            y = y[order]
            self.repeated = bool((number[1:] == number[:-1]).any())
        return number, x, y

    def _ways(self) -> Ways:
        """Return the streets, without consecutive repetitions of a node.

        Keep areas and the lines of relations.
        """
        members = set()
        for _, refs in self.relations.values():
            members.update(refs)
        wanted = np.array(sorted(members), np.int64)

        # 1. Of each block, keep the streets as numbers: 4 bytes a reference.
        used = np.zeros(len(self.node_id), np.bool_)
        rows: list[tuple[Array, ...]] = [tuple(np.empty(0, code) for code in "qqii")]
        for block, position in self.file.ways(self.keys, 2, wanted, self.node_id):
            tag_set = self._tag_sets(block)
            owner = np.repeat(np.arange(len(tag_set)), block.size)
            self._add_members(block, wanted, position, owner)
            tagged = block.tags[:, :2].max(axis=1, initial=-1) >= 0
            several = (block.size > 1) & tagged[block.combination]
            least_way = block.number[several].min(initial=1)
            least_node = block.ref[several[owner]].min(initial=1)
            self._refuse(least_way, least_node)
            self._add_areas(block, tag_set, position, owner)

            street = several & np.frombuffer(self.street, np.bool_)[tag_set]
            # Keep references of streets, without consecutive repetitions.
            new = street[owner]
            new[1:] &= (block.ref[1:] != block.ref[:-1]) | (owner[1:] != owner[:-1])
            node = position[new]
            used[node[node >= 0]] = True
            size = np.bincount(owner[new], minlength=len(street))
            rows.append((block.number[street], size[street], tag_set[street], node))
        number, size, tag_set, node = map(np.concatenate, zip(*rows, strict=True))
        del rows

        # 2. Order by way number, whatever the order of the file.
        start = np.append(0, np.cumsum(size))
        if not (number[1:] > number[:-1]).all():
            order = np.argsort(number, kind="stable")
            self.repeated |= bool((np.diff(number[order]) == 0).any())
            size = size[order]
            tag_set = tag_set[order]
            first = start[order]
            start = np.append(0, np.cumsum(size))
            node = node[np.repeat(first - start[:-1], size) + np.arange(len(node))]

        # 3. Number only the nodes that streets use.
        renumbered = np.cumsum(used, dtype=np.int32)[node] - 1
        node = np.where(node < 0, -1, renumbered).astype(np.int32, copy=False)
        node_id = mapped(self.node_id[used], self.folder)
        x = mapped(self.x[used], self.folder)
        y = mapped(self.y[used], self.folder)
        self._check_places(node_id, x, y)

        # 4. Encode the tags, examining each distinct combination once.
        distinct, combination = np.unique(tag_set, return_inverse=True)
        combinations = [*self.tag_sets]
        tags = [dict(combinations[number]) for number in distinct.tolist()]
        directions = np.array([direction(tag, self.network_type) for tag in tags], np.int8)
        codes: dict[str, I32] = {}
        values: dict[str, list[Values]] = {}
        for key in VALUES:
            code, texts = coded([tag.get(key, "") for tag in tags], "")
            codes[key] = code[combination]
            values[key] = [(text,) for text in texts]
        return Ways(
            start=start,
            node=mapped(node, self.folder),
            node_id=node_id,
            x=x,
            y=y,
            direction=directions[combination],
            tags=codes,
            values=values,
        )

    def _tag_sets(self, block: Elements) -> I32:
        """Return the combination of tags of each way."""
        known = []
        for texts in block.tags.tolist():
            tags = {}
            for key, text in zip(self.keys, texts, strict=True):
                if text >= 0:
                    tags[key] = block.text(text)
            known.append(self.tag_sets.setdefault(tuple(tags.items()), len(self.tag_sets)))
            if len(self.tag_sets) > len(self.street):
                self.street.append(is_street(tags, self.network_type))
        return np.array(known, np.int32)[block.combination]

    def _refuse(self, *numbers: int) -> None:
        if (number := min(numbers)) < 1:
            raise DamagedInput(
                f"{self.name} has elements that were never uploaded to OpenStreetMap, "
                f"such as number {number}.",
                next=f"osmium renumber {self.name} -o renumbered.osm.pbf",
            )

    def _check_places(self, node_id: I64, x: I32, y: I32) -> None:
        """Refuse coordinates beyond 180 degrees of longitude or 90 of latitude."""
        lon_limit = 180 * UNITS_A_DEGREE
        lat_limit = 90 * UNITS_A_DEGREE
        outside = (x != x.clip(-lon_limit, lon_limit)) | (y != y.clip(-lat_limit, lat_limit))
        if outside.any():
            first = int(outside.argmax())
            lon = x[first] / UNITS_A_DEGREE
            lat = y[first] / UNITS_A_DEGREE
            raise DamagedInput(
                f"{self.name}: node {node_id[first]} is not on the map, at {lon}, {lat} degrees.",
                next="use an undamaged extract",
            )

    def _add_areas(self, block: Elements, tag_set: I32, position: I32, owner: I64) -> None:
        """Keep closed ways with a land use as areas."""
        area = (block.size > 1) & (block.tags[block.combination, 1] >= 0)
        if not area.any():
            return
        combinations = [*self.tag_sets]
        # Locations of all areas of a block at once, then one slice an area.
        ref = block.ref[area[owner]]
        lines = self._lines(position[area[owner]])

        numbers = block.number[area].tolist()
        first = 0
        for number, size, way in zip(
            numbers,
            block.size[area].tolist(),
            tag_set[area].tolist(),
            strict=True,
        ):
            last = first + size - 1
            tags = dict(combinations[way])
            if tags.get("area") != "no" and ref[first] == ref[last] and size >= 4:
                self.repeated |= number in self.closed
                self.closed[number] = tags["landuse"], lines[first : last + 1]
            first = last + 1

    def _add_relations(self, block: Elements) -> None:
        """Keep the ways of relations that may be areas."""
        start = 0
        tags = block.tags[block.combination].tolist()
        rows = zip(block.number.tolist(), block.size.tolist(), tags, strict=True)
        for number, size, (use, relation_type) in rows:
            member = slice(start, start + size)
            start += size
            if relation_type >= 0 and block.text(relation_type) in {"multipolygon", "boundary"}:
                refs = block.ref[member][block.member_type[member] == _WAY].tolist()
                self._refuse(number, *refs)
                self.repeated |= number in self.relations
                self.relations[number] = block.text(use), refs

    def _add_members(self, block: Elements, wanted: I64, position: I32, owner: I64) -> None:
        """Keep the lines of ways of which relations are made."""
        member = positions(wanted, block.number) >= 0
        if member.any():
            lines = self._lines(position[member[owner]])
            parts = np.split(lines, np.cumsum(block.size[member])[:-1])
            self.member_lines |= zip(block.number[member].tolist(), parts, strict=True)

    def _lines(self, position: I32) -> F64:
        """Return longitude and latitude of nodes, (n, 2); NaN for missing nodes."""
        inside = position >= 0
        line = np.full((len(position), 2), np.nan)
        line[inside, 0] = self.x[position[inside]] / UNITS_A_DEGREE
        line[inside, 1] = self.y[position[inside]] / UNITS_A_DEGREE
        return line


def coded(values: Sequence[Value], missing: Value) -> tuple[I32, list[Value]]:
    """Return the position of each value among the sorted distinct ones, -1 for ``missing``, and these."""
    distinct = sorted(set(values) - {missing})
    position = {value: i for i, value in enumerate(distinct)}
    position[missing] = -1
    return np.array([position[value] for value in values], np.int32), distinct


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Convert errors of libosmium to ``DamagedInput``."""
    import osmium

    try:
        yield
    except (RuntimeError, ValueError, OverflowError, osmium.InvalidLocationError) as error:
        raise DamagedInput(
            f"{name} cannot be read to its end: {first_problem(error)}",
            next="download the extract again; `osmium fileinfo -e FILE` checks that it is complete",
        ) from error
