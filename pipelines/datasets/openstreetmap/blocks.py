"""Read the ways of a PBF file that libosmium wrote without compression, block by block, as arrays.

A Python object for each way, node and tag takes microseconds: a minute for a country of two million
intersections. Therefore libosmium, which has checked the input, writes the ways that matter as
uncompressed PBF (https://wiki.openstreetmap.org/wiki/PBF_Format), and compiled kernels decode that
copy. They do not check bounds, so they must never be given a file from someone else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import I32, I64, U8
from kmip_data.runtime.threads import njit_nogil

FORMAT = "pbf,pbf_compression=none,add_metadata=false"  #: as libosmium calls it

# Numbers of the format's fields.
_DATA_SIZE = 3  # of a blob's header
_RAW = 1  # of a blob
# of a block
_STRINGS = 1
_GROUP = 2
_WAYS = 3  # of a group


class WayBlock(NamedTuple):
    """W ways with R node references."""

    number: I64  #: (W,)
    size: I64  #: (W,) references of each way
    ref: I64  #: (R,) node numbers
    tags: I32  #: (W, K) position in ``texts`` of the value of each key, -1 without
    texts: list[bytes]


def read_blocks(path: Path, keys: Sequence[str]) -> Iterator[WayBlock]:
    """Yield the ways of a file in :data:`FORMAT`, at most 8,000 at a time, with the values of ``keys``."""
    wanted = {key.encode(): column for column, key in enumerate(keys)}
    with path.open("rb") as file:
        while size := file.read(4):
            # A blob: the size of its header, the header with the size of the data, the data.
            header = file.read(int.from_bytes(size, "big"))
            head = np.frombuffer(bytearray(header), np.uint8)
            content = file.read(int(_first(_fields(head, 0, len(head)), _DATA_SIZE)[0]))
            if b"OSMData" not in header:
                continue

            # Only positions are decoded here: texts stay slices, ways go to the kernel.
            data = np.frombuffer(bytearray(content), np.uint8)
            start, stop = _first(_fields(data, 0, len(data)), _RAW)
            block = _fields(data, start, stop)
            texts = []
            for _, start, stop in _fields(data, *_first(block, _STRINGS)).tolist():
                texts.append(content[start:stop])
            ways = []
            for _, start, stop in block[block[:, 0] == _GROUP].tolist():
                group = _fields(data, start, stop)
                ways.append(group[group[:, 0] == _WAYS, 1:])
            bounds = np.concatenate(ways)

            column = np.array([wanted.get(text, -1) for text in texts], np.int32)
            if len(bounds):
                yield WayBlock(*_decode(data, bounds, column, len(keys)), texts)


def _first(fields: I64, number: int) -> list[int]:
    bounds: list[int] = fields[fields[:, 0] == number, 1:][0].tolist()
    return bounds


@njit_nogil()
def _varint(data: U8, offset: int) -> tuple[int, int]:
    value = shift = 0
    while data[offset] > 127:
        value |= (data[offset] & 127) << shift
        shift += 7
        offset += 1
    return value | data[offset] << shift, offset + 1


@njit_nogil()
def _fields(data: U8, offset: int, stop: int) -> I64:
    """Return the fields of a message, (F, 3): number, and start and stop of its bytes, or value and 0."""
    fields = np.empty(((stop - offset) // 2 + 1, 3), np.int64)
    size = 0
    while offset < stop:
        key, offset = _varint(data, offset)
        value, offset = _varint(data, offset)
        if key & 7 == 2:  # bytes; all else in this format is an integer
            fields[size] = key >> 3, offset, offset + value
            offset += value
        else:
            fields[size] = key >> 3, value, 0
        size += 1
    return fields[:size].copy()


@njit_nogil()
def _decode(
    data: U8,
    ways: I64,
    column: I32,
    keys: int,
) -> tuple[I64, I64, I64, I32]:
    """Decode ways between the given (W, 2) bounds.

    ``column`` is that of each text, -1 if it is no key.
    """
    number = np.empty(len(ways), np.int64)
    size = np.empty(len(ways), np.int64)
    # At least one byte each; memory that is not written to is free.
    ref = np.empty(len(data), np.int64)
    tags = np.full((len(ways), keys), -1, np.int32)
    used = 0
    for way in range(len(ways)):
        before = used
        key_at = key_stop = value_at = 0
        offset, stop = ways[way]
        while offset < stop:
            field, offset = _varint(data, offset)
            value, offset = _varint(data, offset)
            if field == 1 << 3:
                number[way] = value
            if field & 7 != 2:
                continue
            end = offset + value
            if field >> 3 == 2:
                key_at = offset
                key_stop = end
            elif field >> 3 == 3:
                value_at = offset
            elif field >> 3 == 8:  # signed differences, the sign in the last bit
                node = 0
                while offset < end:
                    step, offset = _varint(data, offset)
                    node += (step >> 1 & 0x7FFFFFFFFFFFFFFF) ^ -(step & 1)
                    ref[used] = node
                    used += 1
            offset = end
        size[way] = used - before
        while key_at < key_stop:
            key, key_at = _varint(data, key_at)
            text, value_at = _varint(data, value_at)
            if column[key] >= 0:
                tags[way, column[key]] = text
    return number, size, ref[:used].copy(), tags


@njit_nogil()
def positions(number: I64, wanted: I64) -> I32:
    """Return the position of each wanted number in ``number``, ascending; -1 if it is not there."""
    position = np.full(len(wanted), -1, np.int32)
    for i in range(len(wanted)):
        low = 0
        high = len(number)
        while low < high:
            middle = (low + high) // 2
            if number[middle] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        if low < len(number) and number[low] == wanted[i]:
            position[i] = low
    return position
