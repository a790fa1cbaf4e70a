"""Points of PCD files, as the Point Cloud Library's page on version 0.7 describes them."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kmip_data.arrays import U8, Array
from kmip_data.pipelines.datasets.points.columns import (
    Columns,
    check_count,
    columns_of_values,
    distinct_names,
)
from kmip_data.pipelines.datasets.points.ply import MAX_HEADER
from kmip_data.pipelines.datasets.points.typed_rows import check_all_read, read_table
from kmip_data.runtime.parallel import njit_nogil

_PADDING = "padding of the field "
_EXPANSION = 88  #: an LZF reference of three bytes stands for at most 264


def read_pcd(path: Path) -> Columns:
    """Return the fields of a PCD file; packed colours also as red, green and blue."""
    with path.open("rb") as file:
        header = _read_header(file)
        names = header["FIELDS"]
        counts = [int(count) for count in header.get("COUNT", ["1"] * len(names))]
        check_count(sum(counts))
        kinds = []
        sizes = header.get("SIZE", ["4"] * len(names))  # before version 0.6: float32
        for letter, size in zip(header.get("TYPE", ["F"] * len(names)), sizes, strict=True):
            if letter not in {"F", "I", "U"}:
                raise ValueError(f"the type {letter[:20]!r} is not known")
            kinds.append(np.dtype(letter.lower() + size))
        # Padding is called "_", and there may be several.
        names = [f"{_PADDING}{at}" if name == "_" else name for at, name in enumerate(names)]
        fields = list(zip(distinct_names(names), kinds, counts, strict=True))

        points = _point_count(header)
        form = header["DATA"][0]
        if form == "binary_compressed":
            values = _decompress_fields(file, fields, points)
        elif form in {"ascii", "binary"}:
            types = []
            for name, kind, count in fields:
                parts = [name] if count == 1 else [f"{name}_{at}" for at in range(count)]
                types += [(part, kind.str[1:]) for part in parts]
            order = "<" if form == "binary" else ""
            values = read_table(file, path, "points", points, types, order)
            row_bytes = sum(kind.itemsize * count for _, kind, count in fields)
            check_all_read(file, "points", points, row_bytes if order else 1)
        else:
            raise ValueError(f"DATA {form[:40]!r} is not ascii, binary or binary_compressed")

    for name in {"rgb", "rgba"} & {*values}:
        colour_bytes = values[name]
        if colour_bytes.dtype == np.float64:  # of text
            colour_bytes = colour_bytes.astype(np.float32)
        if colour_bytes.dtype.itemsize != 4:
            continue
        packed = colour_bytes.view("u4")  # a float by its type, four bytes by its meaning
        for shift, colour in ((16, "red"), (8, "green"), (0, "blue")):
            values.setdefault(colour, (packed >> shift).astype("u1"))
    return Columns({name: array for name, array in values.items() if _PADDING not in name})


def _point_count(header: dict[str, list[str]]) -> int:
    """Return the number of points; raise ``ValueError`` where it is not width × height."""
    sides = [int(header[side][0]) for side in ("WIDTH", "HEIGHT") if side in header]
    points = int(header["POINTS"][0]) if "POINTS" in header else math.prod(sides)
    if len(sides) == 2 and math.prod(sides) != points:
        raise ValueError(f"POINTS {points} is not WIDTH {sides[0]} × HEIGHT {sides[1]}")
    if points < 0:
        raise ValueError(f"POINTS {points}")
    return points


def _decompress_fields(
    file: BinaryIO, fields: list[tuple[str, np.dtype, int]], points: int
) -> dict[str, Array]:
    """Return the fields of compressed points: each has its values together."""
    packed, size = struct.unpack("<II", file.read(8))
    needed = points * sum(kind.itemsize * count for _, kind, count in fields)
    if size != needed:
        raise ValueError(f"{needed:,} bytes of points are declared, and {size:,} are compressed")
    data = file.read(packed)
    if len(data) != packed or size > _EXPANSION * packed:
        raise ValueError("points: compressed data end before")
    output = np.empty(size, np.uint8)
    if decompress_lzf(np.frombuffer(data, np.uint8), output) != size:
        raise ValueError("points: compressed data are damaged")

    values: dict[str, Array] = {}
    start = 0
    for name, kind, count in fields:
        end = start + points * count * kind.itemsize
        array = output[start:end].view(kind.newbyteorder("<"))
        start = end
        if count == 1:
            values[name] = array
        else:
            values |= columns_of_values(name, array.reshape(points, count))
    return values


@njit_nogil()
def decompress_lzf(data: U8, output: U8) -> int:
    """Decompress LZF bytes (n,) into ``output`` (m,); return the number of bytes, -1 for damaged data.

    A byte below 32 precedes so many bytes and one more, as they are. Others refer to bytes of the
    output: three bits of length, 7 for one more byte of it, and 13 bits of distance.
    """
    read = 0
    written = 0
    while read < len(data):
        control = int(data[read])
        read += 1
        if control < 32:
            length = control + 1
            if read + length > len(data) or written + length > len(output):
                return -1
            for at in range(length):
                output[written + at] = data[read + at]
            read += length
            written += length
            continue

        length = control >> 5
        if length == 7:
            if read >= len(data):
                return -1
            length += int(data[read])
            read += 1
        length += 2
        if read >= len(data):
            return -1
        source = written - ((control & 31) << 8) - int(data[read]) - 1
        read += 1
        if source < 0 or written + length > len(output):
            return -1
        # Byte by byte: a reference may overlap what it writes.
        for at in range(length):
            output[written + at] = output[source + at]
        written += length
    return written


def _read_header(file: BinaryIO) -> dict[str, list[str]]:
    """Return the words of each line of the header by its first; the last is DATA."""
    header: dict[str, list[str]] = {}
    for _ in range(MAX_HEADER):
        words = file.readline(10_000).decode("ascii", "replace").split()
        if len(words) > 1 and not words[0].startswith("#"):
            # Before version 0.7 fields were called columns.
            header["FIELDS" if words[0] == "COLUMNS" else words[0]] = words[1:]
        if "DATA" in header:
            break
    missing = {"FIELDS", "DATA"} - {*header}
    if "POINTS" not in header and "WIDTH" not in header:
        missing.add("POINTS")
    if missing:
        raise ValueError(f"a header without {', '.join(sorted(missing))}")
    return header
