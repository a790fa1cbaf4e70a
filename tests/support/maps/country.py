"""Generated countries: blocks of real extracts, shifted and joined by roads, as one ``.osm.pbf``.

``PYTHONPATH=tests python -m support.maps.country FILE INTERSECTIONS`` writes one. Blocks of Paris
and Helsinki alternate on a grid, each with all its elements and tags under numbers as far apart as
OpenStreetMap's; a road joins each to its neighbours, so that the streets of any network type are
one weakly connected component.

Each element is encoded once, with numbers and offsets of coordinates as integers of a fixed width:
a copy costs their replacement and a compression. The format:
https://wiki.openstreetmap.org/wiki/PBF_Format
"""

from __future__ import annotations

import functools
import math
import sys
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from support.maps.osm_maps import elements_of, helsinki
from support.shared import shared_data

from kmip_data.arrays import I64

INTERSECTIONS: Final = (1_040, 2_526)  #: counts for Paris and Helsinki, network type ``all``
GENERATOR: Final = (
    "a generator of test data: GENERATED from blocks of Paris and Helsinki, not a real map"
)
NODE, WAY, RELATION, LAT, LON = range(5)  #: entries of a block's shift
#: Distances between numbers: with 10^7 intersections they reach 1.6e10, 1.8e9 and 5e7, as
#: OpenStreetMap's do.
SPACING: Final = {NODE: 199, WAY: 97, RELATION: 31}
STRIDE: Final = np.array(
    [200 * 25_000, 98 * 5_600, 32 * 650, 180_000, 320_000]
)  #: from block to block
ORIGIN: Final = (
    400_000_000,
    50_000_000,
)  #: latitude and longitude of the first block, 1e-7 degrees
ROAD: Final = {"highway": "secondary", "lanes": "2", "maxspeed": "80"}
DRIVABLE: Final = {"primary", "secondary", "tertiary", "residential", "unclassified"}
WIDTH: Final = 6  #: bytes of an integer that is replaced: 42 bits
AT_ONCE: Final = 8_000  #: elements of a block of the format


class Mark(NamedTuple):
    """An integer that differs between copies: ``factor * (base + shift[of])``."""

    base: int
    of: int
    factor: int = 1  # 2: a number that is not negative where the format has signed ones


Chunk = bytes | Mark


class Stencil(NamedTuple):
    """Encoded elements, and where their M marks are."""

    data: np.ndarray  #: (B,) uint8
    at: I64  #: (M,) positions
    marks: I64  #: (M, 3) fields of :class:`Mark`

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> Stencil:
        """Join chunks, and leave room for the marks."""
        data, at, marks = bytearray(), [], []
        for chunk in chunks:
            if isinstance(chunk, Mark):
                at.append(len(data))
                marks.append(chunk)
            data += bytes(WIDTH) if isinstance(chunk, Mark) else chunk
        rows = np.array(marks, np.int64).reshape(-1, 3)
        return cls(np.frombuffer(data, np.uint8).copy(), np.array(at, np.int64), rows)

    def moved(self, shift: I64) -> bytes:
        """Return the elements of one copy."""
        base, of, factor = self.marks.T
        value = factor * (base + shift[of])
        digits = value[:, None] >> np.arange(0, 7 * WIDTH, 7) & 127
        digits[:, :-1] |= 128  # more follows
        self.data[self.at[:, None] + np.arange(WIDTH)] = digits
        return self.data.tobytes()


class Block(NamedTuple):
    """A real extract: stencils by kind of element, and its outermost drivable nodes."""

    stencils: dict[int, list[Stencil]]
    west: int
    east: int
    south: int
    north: int


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _packed(values: Iterable[int], *, signed: bool = False) -> bytes:
    return b"".join(_varint((v << 1 ^ v >> 63) if signed else v) for v in values)


def _field(number: int, *chunks: Chunk) -> list[Chunk]:
    """Return a field of bytes with its length before it."""
    size = sum(WIDTH if isinstance(chunk, Mark) else len(chunk) for chunk in chunks)
    return [_varint(number << 3 | 2), _varint(size), *chunks]


def _deltas(values: Sequence[int], of: int) -> list[Chunk]:
    """Return numbers as the first of them and signed differences."""
    return [Mark(values[0], of, 2), _packed(np.diff(values).tolist(), signed=True)]


class _Strings(dict[str, int]):
    """Positions of strings in the table of a block of the format; the first is a blank one."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self) + 1
        return self[text]

    def tags(self, tags: dict[str, str]) -> list[Chunk]:
        return [
            *_field(2, _packed(self[key] for key in tags)),
            *_field(3, _packed(self[value] for value in tags.values())),
        ]

    def table(self) -> list[Chunk]:
        return _field(
            1, *_field(1), *(chunk for text in self for chunk in _field(1, text.encode()))
        )


@functools.cache
def read_block(extract: Path) -> Block:
    """Encode an extract.

    Its streets are cut where they leave it, other elements that do so are left out.
    """
    elements = elements_of(extract)
    rank = {node["id"]: SPACING[NODE] * (i + 1) for i, node in enumerate(elements["n"])}
    y, x = (
        np.array([round(node[axis] * 1e7) for node in elements["n"]]) for axis in ("lat", "lon")
    )
    stencils: dict[int, list[Stencil]] = {NODE: [], WAY: [], RELATION: []}
    for first in range(0, len(rank), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        places = y[part] - y.min(), x[part] - x.min()
        stencils[NODE].append(_dense(elements["n"][part], [*rank.values()][part], *places))
    kept, ways, number = dict[int, int](), list[tuple[list[int], dict[str, str]]](), SPACING[WAY]
    for way in elements["w"]:
        inside = np.array([False, *(ref in rank for ref in way["nodes"]), False])
        borders = np.flatnonzero(inside[1:] != inside[:-1]).reshape(-1, 2)
        whole = len(way["nodes"]) > 1 and inside[1:-1].all()
        if whole:
            kept[way["id"]] = number * (len(ways) + 1)
        if whole or "highway" in way["tags"]:
            pieces = ([rank[ref] for ref in way["nodes"][first:last]] for first, last in borders)
            ways += [(piece, way["tags"]) for piece in pieces if len(piece) > 1]
    assert SPACING[NODE] * len(rank) < STRIDE[NODE]
    assert number * (len(ways) + 1) < STRIDE[WAY] - 2
    strings = _Strings()
    messages = (_way(number * (i + 1), refs, tags, strings) for i, (refs, tags) in enumerate(ways))
    stencils[WAY].append(_primitives([c for message in messages for c in message], strings))
    stencils[RELATION].append(_relations(elements["r"], kept))
    return Block(stencils, *_outermost(ways, y, x))


def _dense(nodes: Sequence[Any], numbers: Sequence[int], y: I64, x: I64) -> Stencil:
    strings = _Strings()
    tags = ([*(strings[t] for pair in node["tags"].items() for t in pair), 0] for node in nodes)
    listed = _packed(code for row in tags for code in row)
    places = (_packed(np.diff(axis, prepend=0).tolist(), signed=True) for axis in (y, x))
    lat, lon = (_field(number, place) for number, place in zip((8, 9), places, strict=True))
    chunks = [*_field(1, *_deltas(numbers, NODE)), *lat, *lon, *_field(10, listed)]
    # Offsets of coordinates, in units of 1e-9 degrees, and a granularity of 100 of them.
    offsets: list[Chunk] = [
        _varint(19 << 3),
        Mark(0, LAT, 100),
        _varint(20 << 3),
        Mark(0, LON, 100),
    ]
    return Stencil.of([*strings.table(), *_field(2, *_field(2, *chunks)), *offsets])


def _way(number: int, refs: Sequence[int], tags: dict[str, str], strings: _Strings) -> list[Chunk]:
    return _field(
        3, b"\x08", Mark(number, WAY), *strings.tags(tags), *_field(8, *_deltas(refs, NODE))
    )


def _relations(relations: Sequence[Any], kept: dict[int, int]) -> Stencil:
    """Encode the relations of which all ways are there, without their other members."""
    strings, messages, number = _Strings(), list[Chunk](), 0
    for relation in relations:
        parts = [member for member in relation["members"] if member["type"] == "way"]
        if parts and all(member["ref"] in kept for member in parts):
            number += SPACING[RELATION]
            roles = _field(8, _packed(strings[member["role"]] for member in parts))
            members = _field(9, *_deltas([kept[member["ref"]] for member in parts], WAY))
            kinds = _field(10, _packed([1] * len(parts)))
            tags = strings.tags(relation["tags"])
            messages += _field(4, b"\x08", Mark(number, RELATION), *tags, *roles, *members, *kinds)
    return _primitives(messages, strings)


def _primitives(messages: list[Chunk], strings: _Strings) -> Stencil:
    return Stencil.of([*strings.table(), *_field(2, *messages)])


def _outermost(ways: Sequence[tuple[list[int], dict[str, str]]], y: I64, x: I64) -> list[int]:
    """Return the westernmost, easternmost, southernmost and northernmost node of the connected roads."""
    roads = [
        np.array(refs) // SPACING[NODE] - 1
        for refs, tags in ways
        if tags.get("highway") in DRIVABLE
    ]
    a, b = (np.concatenate([refs[cut] for refs in roads]) for cut in (slice(-1), slice(1, None)))
    component = connected_components(coo_array((np.ones(len(a)), (a, b)), (len(x), len(x))))[1]
    inside = np.flatnonzero(component == np.bincount(component[a]).argmax())
    ends = (inside[choose(axis[inside])] for axis in (x, y) for choose in (np.argmin, np.argmax))
    return [SPACING[NODE] * (int(end) + 1) for end in ends]


def write_country(path: Path, intersections: int, sources: Sequence[Path] | None = None) -> Path:
    """Write a country of at least so many intersections after simplification, the same bytes each time."""
    sources = sources or (shared_data("osm", "paris_3e_11e.osm.pbf"), helsinki())
    blocks = [read_block(source) for source in sources]
    pairs, rest = divmod(intersections, sum(INTERSECTIONS))
    count = 2 * pairs + (rest > 0) + (rest > INTERSECTIONS[0])
    columns = math.isqrt(max(count - 1, 0)) | 1  # odd: the extracts alternate in columns as well
    with path.open("wb") as file:
        _write_blob(file, "OSMHeader", _header(count, columns))
        for kind in (NODE, WAY, RELATION):
            for number in range(count):
                for stencil in blocks[number % 2].stencils[kind]:
                    _write_blob(file, "OSMData", stencil.moved(_shift(number, columns)))
                if kind == WAY and number:
                    _write_blob(file, "OSMData", _roads(blocks, number, columns))
    return path


def _shift(number: int, columns: int) -> I64:
    row, column = divmod(number, columns)
    places = STRIDE[[LAT, LON]] * (row, column) + ORIGIN
    return np.concatenate([STRIDE[: RELATION + 1] * number, places])


def _roads(blocks: Sequence[Block], number: int, columns: int) -> bytes:
    """Encode the roads to the blocks before, in the west and in the south."""
    here, strings, messages = blocks[number % 2], _Strings(), list[Chunk]()
    roads = list[tuple[int, int, int]]()
    if number % columns:
        roads.append((number - 1, blocks[(number - 1) % 2].east, here.west))
    if number >= columns:
        roads.append((number - columns, blocks[(number - columns) % 2].north, here.south))
    for i, (other, theirs, ours) in enumerate(roads):
        behind = int(STRIDE[NODE]) * (number - other)
        messages += _way(int(STRIDE[WAY]) - 2 + i, [theirs - behind, ours], ROAD, strings)
    return _primitives(messages, strings).moved(_shift(number, columns))


def _header(count: int, columns: int) -> bytes:
    south, west = ORIGIN
    rows = -(-count // columns)
    north, east = south + int(STRIDE[LAT]) * rows, west + int(STRIDE[LON]) * columns
    sides = (
        _varint(i << 3) + _varint(200 * side)
        for i, side in enumerate((west, east, north, south), 1)
    )
    texts = [(4, "OsmSchema-V0.6"), (4, "DenseNodes"), (5, "Sort.Type_then_ID"), (16, GENERATOR)]
    texts += [(17, "OpenStreetMap contributors, ODbL 1.0")]
    strings = (chunk for key, text in texts for chunk in _field(key, text.encode()))
    return Stencil.of([*_field(1, *sides), *strings]).data.tobytes()


def _write_blob(file: BinaryIO, kind: str, data: bytes) -> None:
    """Append a block of the format, compressed."""
    size, packed = _varint(2 << 3) + _varint(len(data)), _field(3, zlib.compress(data, 1))
    blob = b"".join([size, *packed])
    head = b"".join([*_field(1, kind.encode()), _varint(3 << 3), _varint(len(blob))])
    file.write(len(head).to_bytes(4, "big") + head + blob)


if __name__ == "__main__":
    write_country(Path(sys.argv[1]), int(sys.argv[2]))
