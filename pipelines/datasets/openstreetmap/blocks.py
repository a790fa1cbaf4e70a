"""Read the elements of a PBF file as arrays, block by block.

A Python object for each way, node and tag takes microseconds: a minute for a country of two million
intersections. Here compiled kernels decode the format, several blocks at a time
(https://wiki.openstreetmap.org/wiki/PBF_Format). The file is untrusted, so they check all bounds.
Damaged files and rare encodings raise :class:`UnusualError`; libosmium then converts the file, or
says what is wrong with it.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np

from kmip_data.arrays import I32, I64, U8
from kmip_data.runtime.threads import ahead, njit_nogil, num_threads

# Numbers of the format's fields.
_DATA_SIZE = 3  # fields of a blob's header
_RAW, _RAW_SIZE, _ZLIB = 1, 2, 3  # fields of a blob
_REQUIRED = 4  # field of the file's header: features that a reader must know
_STRINGS, _GROUP, _GRANULARITY, _LAT_OFFSET, _LON_OFFSET = 1, 2, 17, 19, 20  # fields of a block
_NODES, _WAYS, _RELATIONS = 2, 3, 4  # fields of a group
_INFO, _LAT, _LON = 5, 8, 9  # fields of a node
_VISIBLE = 6  # field of its information: some nodes are deleted
_NUMBER, _KEYS, _TEXTS = 1, 2, 3  # fields of a way or relation, the first also of nodes
_REFS = 8  # field of a way
_MEMBERS, _KINDS = 9, 10  # fields of a relation

_FEATURES = {b"OsmSchema-V0.6", b"DenseNodes"}
_MAX_HEADER = 2**16  #: bytes, by the format
_MAX_DATA = 2**25
_MAX_TEXT = 1_024  #: bytes of a key or value: longer ones are refused by libosmium
_UNITS = 100  #: units of the format, 1e-9 degrees, in 1e-7 degrees
_AHEAD = 4  #: blocks that are decoded ahead for each thread

_MIX = np.int64(6_364_136_223_846_793_005)  #: an odd number, whose powers differ in all bits

T = TypeVar("T")


class UnusualError(RuntimeError):
    """A file that the kernels cannot read: damaged, or in a rare encoding."""


class Elements(NamedTuple):
    """W ways or relations with R references."""

    number: I64  #: (W,)
    size: I64  #: (W,) references of each
    ref: I64  #: (R,) numbers of nodes or members
    member_type: I64  #: (R,) types of members: 0 node, 1 way, 2 relation; empty for ways
    combination: I64  #: (W,) position in ``tags``
    tags: I32  #: (C, K) distinct: position of the value of each key among the texts, -1 without
    data: U8  #: bytes of the block
    texts: I64  #: (T, 2) start and stop of each text in it

    def text(self, position: int) -> str:
        """Return the text at a position of ``tags``."""
        start, stop = self.texts[position]
        return self.data[start:stop].tobytes().decode()


class _Block(NamedTuple):
    """A block, parsed as far as its groups; fields as of :func:`_fields`."""

    data: U8
    fields: I64
    groups: I64  #: fields of all groups


class Pbf:
    """A PBF file, its blocks decoded in threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._with_ways: list[tuple[int, int]] = []  # blobs that have some: offset and size
        with path.open("rb") as file:
            self._blobs = list(_list_blobs(file))

    def nodes(self, keys: Sequence[str]) -> Iterator[tuple[I32, Elements]]:
        """Yield nodes, and relations that have the first key, with the values of ``keys``.

        Nodes are (n, 4): two halves of the number, longitude and latitude in 1e-7 degrees.
        """
        nobody = np.empty(0, np.int64)

        def decode(block: _Block) -> tuple[bool, I32, Elements]:
            nodes = [np.empty((0, 4), np.int32)]
            for start, stop in _spans(block.groups, _NODES).tolist():
                nodes.append(_nodes(block, start, stop))
            relations = _elements(block, _RELATIONS, _MEMBERS, keys, 1, nobody)
            return len(_spans(block.groups, _WAYS)) > 0, np.concatenate(nodes), relations

        decoded = self._decoded(self._blobs, decode)
        for blob, (has_ways, nodes, relations) in zip(self._blobs, decoded, strict=True):
            if has_ways:
                self._with_ways.append(blob)
            yield nodes, relations

    def ways(
        self,
        keys: Sequence[str],
        most: int,
        wanted: I64,
        node_id: I64,
    ) -> Iterator[tuple[Elements, I32]]:
        """Yield ways with one of the first ``most`` keys or a ``wanted`` number (n,), and their references.

        References are positions in ``node_id``. ``wanted`` and ``node_id`` are ascending. Call
        :meth:`nodes` first, which notes the blocks with ways.
        """

        def decode(block: _Block) -> tuple[Elements, I32]:
            ways = _elements(block, _WAYS, _REFS, keys, most, wanted)
            return ways, positions(node_id, ways.ref)

        return self._decoded(self._with_ways, decode)

    def _decoded(
        self,
        blobs: Sequence[tuple[int, int]],
        decode: Callable[[_Block], T],
    ) -> Iterator[T]:
        with self._path.open("rb") as file:

            def read(blob: tuple[int, int]) -> T:
                offset, size = blob
                return decode(_parsed(os.pread(file.fileno(), size, offset)))

            threads = num_threads()
            yield from ahead(blobs, read, threads=threads, depth=_AHEAD * threads)


def _list_blobs(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield offset and size of each blob of data; the file's header asks for nothing unknown."""
    first = True
    while prefix := file.read(4):
        header = file.read(min(int.from_bytes(prefix, "big"), _MAX_HEADER))
        data_size = _integer(_message(header), _DATA_SIZE, -1)
        if not 0 <= data_size <= _MAX_DATA:
            raise UnusualError("no blob is as long")
        offset = file.tell()
        if not first and b"OSMData" in header:
            yield offset, data_size
        elif first and b"OSMHeader" in header:
            data = _inflated(file.read(data_size))
            for start, stop in _spans(_message(data), _REQUIRED):
                if data[start:stop] not in _FEATURES:
                    raise UnusualError("the file has a feature that is unknown here")
        else:
            raise UnusualError("the blobs are in an unusual order")
        first = False
        file.seek(offset + data_size)
    if first:
        raise UnusualError("the file is empty")


def _message(data: bytes) -> I64:
    return _fields(np.frombuffer(data, np.uint8), 0, len(data))


def _spans(fields: I64, number: int) -> I64:
    """Return start and stop of the bytes of each field with this number, (n, 2)."""
    spans: I64 = fields[(fields[:, 0] == number) & (fields[:, 2] >= 0), 1:]
    return spans


def _integer(fields: I64, number: int, default: int) -> int:
    values = fields[(fields[:, 0] == number) & (fields[:, 2] < 0), 1]
    return int(values[-1]) if len(values) else default


def _inflated(blob: bytes) -> bytes:
    """Return the content of a blob."""
    fields = _message(blob)
    for start, stop in _spans(fields, _RAW):
        return blob[start:stop]
    for start, stop in _spans(fields, _ZLIB):
        size = _integer(fields, _RAW_SIZE, 0)
        inflater = zlib.decompressobj()
        with contextlib.suppress(zlib.error):
            # Never more than the blob says, however much is packed into it.
            data = inflater.decompress(blob[start:stop], min(size, _MAX_DATA) + 1)
            if len(data) == size and inflater.eof:
                return data
    raise UnusualError("a blob is damaged, or compressed in another way")


def _parsed(blob: bytes) -> _Block:
    data = np.frombuffer(_inflated(blob), np.uint8)
    fields = _fields(data, 0, len(data))
    groups = [np.empty((0, 3), np.int64)]
    for start, stop in _spans(fields, _GROUP):
        groups.append(_fields(data, start, stop))
    group = np.concatenate(groups)
    if ((group[:, 0] < _NODES) | (group[:, 0] > _RELATIONS)).any():
        raise UnusualError("a group has other elements")
    return _Block(data, fields, group)


def _nodes(block: _Block, start: int, stop: int) -> I32:
    """Decode a group of nodes; rows as :meth:`Pbf.nodes` has them."""
    fields = _fields(block.data, start, stop)
    for first, last in _spans(fields, _INFO):
        if (_fields(block.data, first, last)[:, 0] == _VISIBLE).any():
            raise UnusualError("nodes may be deleted")
    spans = np.concatenate([_spans(fields, field) for field in (_NUMBER, _LAT, _LON)])
    values, size = _unpacked(block.data, spans, True)
    if len(spans) != 3 or (size != size[0]).any():
        raise UnusualError("numbers and coordinates do not fit together")

    number, lat, lon = values.reshape(3, -1)
    nodes = np.empty((len(number), 4), np.int32)
    nodes.view(np.int64)[:, 0] = number
    for column, degrees, offset in ((2, lon, _LON_OFFSET), (3, lat, _LAT_OFFSET)):
        granularity = _integer(block.fields, _GRANULARITY, _UNITS)
        value = degrees * granularity + _integer(block.fields, offset, 0)
        # Towards zero, as C++ divides.
        value = np.where(value < 0, -(-value // _UNITS), value // _UNITS)
        nodes[:, column] = value
        if (nodes[:, column] != value).any():
            raise UnusualError("a coordinate is too large")
    if (number < 0).any():  # libosmium gives them no location
        nodes = nodes[number >= 0]
    return nodes


def _elements(
    block: _Block,
    field: int,
    refs: int,
    keys: Sequence[str],
    most: int,
    wanted: I64,
) -> Elements:
    """Decode the ways or relations with one of the first ``most`` keys or a ``wanted`` number."""
    data = block.data
    bounds = _spans(block.groups, field)
    texts = np.empty((0, 2), np.int64)
    if len(bounds):
        tables = [_fields(data, *span) for span in _spans(block.fields, _STRINGS)]
        texts = np.concatenate([texts, *(_spans(table, 1) for table in tables)])
    sizes = texts[:, 1] - texts[:, 0]
    if sizes.max(initial=0) > _MAX_TEXT:
        raise UnusualError("a text is too long")
    column = np.full(len(texts), -1, np.int32)
    for position, key in enumerate(keys):
        alike = np.flatnonzero(sizes == len(key))
        letters = data[texts[alike, :1] + np.arange(len(key))]
        column[alike[(letters == np.frombuffer(key.encode(), np.uint8)).all(axis=1)]] = position
    number, tags, spans = _scan(data, bounds, column, len(keys), most, wanted, refs)
    ref, size = _unpacked(data, spans[:, 2], True)
    member_type = np.empty(0, np.int64)
    if field == _RELATIONS:
        member_type, type_counts = _unpacked(block.data, spans[:, 3], False)
        if (type_counts != size).any():
            raise UnusualError("members and their types do not fit together")
    # Rows by one number each, as sorting whole rows takes ten times as long.
    code = tags @ _MIX ** np.arange(len(keys))
    _, first, combination = np.unique(code, return_index=True, return_inverse=True)
    distinct = tags[first]
    if (distinct[combination] != tags).any():
        raise UnusualError("two combinations of tags have the same number")
    return Elements(number, size, ref, member_type, combination, distinct, data, texts)


@njit_nogil()
def _varint(data: U8, offset: int, stop: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= stop:
            raise UnusualError("a message ends early")
        byte = data[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    raise UnusualError("an integer has more than 64 bits")


@njit_nogil()
def _fields(data: U8, start: int, stop: int) -> I64:
    """Return the fields of a message, (F, 3): number, start and stop of bytes, or a value and -1."""
    if not 0 <= start <= stop <= len(data):
        raise UnusualError("a message ends early")
    # Doubled where they are not enough: mostly there are few, in a group of ways 8,000.
    fields = np.empty((16, 3), np.int64)
    size = 0
    offset = start
    while offset < stop:
        key, offset = _varint(data, offset, stop)
        value, offset = _varint(data, offset, stop)
        last = -1
        first = value
        if key & 7 == 2:
            if not 0 <= value <= stop - offset:
                raise UnusualError("a message ends early")
            first = offset
            offset = last = offset + value
        elif key & 7:
            raise UnusualError("a field is neither bytes nor a varint")
        if size == len(fields):
            fields = np.concatenate((fields, np.empty_like(fields)))
        fields[size, 0] = key >> 3
        fields[size, 1] = first
        fields[size, 2] = last
        size += 1
    return fields[:size]


@njit_nogil()
def _scan(
    data: U8,
    bounds: I64,
    column: I32,
    keys: int,
    most: int,
    wanted: I64,
    refs: int,
) -> tuple[I64, I32, I64]:
    """Return numbers and tags of the chosen elements, and the spans of keys, texts, references and kinds.

    ``column`` has the column of each text, -1 if it is not a key; ``refs`` is the field of
    references.
    """
    number = np.zeros(len(bounds), np.int64)
    tags = np.full((len(bounds), keys), -1, np.int32)
    spans = np.zeros((len(bounds), 4, 2), np.int64)
    packed = (_KEYS, _TEXTS, refs, _KINDS)
    size = 0
    for element in range(len(bounds)):
        number[size] = 0
        spans[size] = 0
        fields = _fields(data, bounds[element, 0], bounds[element, 1])
        for row in range(len(fields)):
            name, start, stop = fields[row]
            if name == _NUMBER and stop < 0:
                number[size] = start
            for slot in range(4):
                if name == packed[slot] and stop >= 0:
                    spans[size, slot] = start, stop

        position = np.searchsorted(wanted, number[size])
        chosen = position < len(wanted) and wanted[position] == number[size]
        key, key_stop = spans[size, 0]
        text, text_stop = spans[size, 1]
        while key < key_stop or text < text_stop:
            name, key = _varint(data, key, key_stop)
            value, text = _varint(data, text, text_stop)
            if not (0 <= name < len(column) and 0 <= value < len(column)):
                raise UnusualError("a text is missing")
            if column[name] >= 0:
                tags[size, column[name]] = value
                chosen |= column[name] < most
        if chosen:
            size += 1
        else:
            tags[size] = -1
    return number[:size].copy(), tags[:size].copy(), spans[:size].copy()


@njit_nogil()
def _unpacked(data: U8, spans: I64, differences: bool) -> tuple[I64, I64]:
    """Return the integers in all spans, (n, 2), concatenated, and their number in each span.

    With ``differences``, stored values are differences to the previous one, with the sign in the
    last bit.
    """
    size = np.zeros(len(spans), np.int64)
    for row in range(len(spans)):
        for offset in range(spans[row, 0], spans[row, 1]):
            size[row] += data[offset] < 128
    values = np.empty(size.sum(), np.int64)
    used = 0
    for row in range(len(spans)):
        offset, stop = spans[row]
        total = 0
        while offset < stop:
            value, offset = _varint(data, offset, stop)
            if differences:
                total += (value >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
                value = total
            values[used] = value
            used += 1
    return values, size


@njit_nogil()
def positions(number: I64, wanted: I64) -> I32:
    """Return the position of each wanted number (n,) in the ascending ``number``; -1 if it is missing."""
    position = np.full(len(wanted), -1, np.int32)
    low = 0
    for i in range(len(wanted)):
        # Nodes of a way mostly have close numbers: search from the last one, in steps that double.
        step = 1
        high = low
        if low < len(number) and number[low] < wanted[i]:
            while high < len(number) and number[high] < wanted[i]:
                low = high + 1
                high += step
                step *= 2
            high = min(high, len(number))
        else:
            while low > 0 and number[low - 1] >= wanted[i]:
                high = low - 1
                low = max(low - step, 0)
                step *= 2
        while low < high:
            middle = (low + high) // 2
            if number[middle] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        if low < len(number) and number[low] == wanted[i]:
            position[i] = low
    return position
