"""Read PCD files, as specified by the Point Cloud Library for version 0.7."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from kmip_data.arrays import U8, Array
from kmip_data.pipelines.datasets.points.ply import MAX_HEADER_LINES
from kmip_data.pipelines.datasets.points.typed_rows import read_table, require_end
from kmip_data.pipelines.domains.cloud_columns import (
    CloudColumns,
    check_column_count,
    distinct_names,
    split_vector_columns,
)
from kmip_data.runtime.parallel import njit_nogil

_PADDING = "padding of the field "
_MAX_LZF_RATIO = 88  #: a three-byte LZF reference expands to at most 264 bytes


def read_pcd(path: Path) -> CloudColumns:
    """Return the fields of a PCD file, with packed colours also as red, green and blue."""
    with path.open("rb") as file:
        header = _read_header(file)
        names = header["FIELDS"]
        counts = [int(count) for count in header.get("COUNT", ["1"] * len(names))]
        check_column_count(sum(counts))
        dtypes = []
        sizes = header.get("SIZE", ["4"] * len(names))  # before version 0.6: float32
        for letter, size in zip(header.get("TYPE", ["F"] * len(names)), sizes, strict=True):
            if letter not in {"F", "I", "U"}:
                raise ValueError(f"unknown type {letter[:20]!r}")
            dtypes.append(np.dtype(letter.lower() + size))
        # Padding fields are all called "_".
        names = [f"{_PADDING}{i}" if name == "_" else name for i, name in enumerate(names)]
        fields = list(zip(distinct_names(names), dtypes, counts, strict=True))

        points = _point_count(header)
        encoding = header["DATA"][0]
        if encoding == "binary_compressed":
            values = _decompress_fields(file, fields, points)
        elif encoding in {"ascii", "binary"}:
            types = []
            for name, dtype, count in fields:
                columns = [name] if count == 1 else [f"{name}_{i}" for i in range(count)]
                types += [(column, dtype.str[1:]) for column in columns]
            order = "<" if encoding == "binary" else ""
            values = read_table(file, path, "points", points, types, order)
            row_bytes = sum(dtype.itemsize * count for _, dtype, count in fields)
            require_end(file, "points", points, row_bytes if order else 1)
        else:
            raise ValueError(f"DATA {encoding[:40]!r} is not ascii, binary or binary_compressed")

    for name in {"rgb", "rgba"} & {*values}:
        colour_bytes = values[name]
        if colour_bytes.dtype == np.float64:  # read from ASCII
            colour_bytes = colour_bytes.astype(np.float32)
        if colour_bytes.dtype.itemsize != 4:
            continue
        packed = colour_bytes.view("u4")  # PCL stores the four bytes as a float
        for shift, colour in ((16, "red"), (8, "green"), (0, "blue")):
            values.setdefault(colour, (packed >> shift).astype("u1"))
    return CloudColumns({name: array for name, array in values.items() if _PADDING not in name})


def _point_count(header: dict[str, list[str]]) -> int:
    """Return the number of points; raises ``ValueError`` if it is not width × height."""
    size = [int(header[side][0]) for side in ("WIDTH", "HEIGHT") if side in header]
    points = int(header["POINTS"][0]) if "POINTS" in header else math.prod(size)
    if len(size) == 2 and math.prod(size) != points:
        raise ValueError(f"POINTS {points} is not WIDTH {size[0]} × HEIGHT {size[1]}")
    if points < 0:
        raise ValueError(f"POINTS {points}")
    return points


def _decompress_fields(
    file: BinaryIO, fields: list[tuple[str, np.dtype, int]], points: int
) -> dict[str, Array]:
    """Return the fields of compressed points, stored field by field."""
    packed_size, size = struct.unpack("<II", file.read(8))
    declared_size = points * sum(dtype.itemsize * count for _, dtype, count in fields)
    if size != declared_size:
        raise ValueError(f"{declared_size:,} bytes are declared, but {size:,} are compressed")
    data = file.read(packed_size)
    if len(data) != packed_size or size > _MAX_LZF_RATIO * packed_size:
        raise ValueError("points: compressed data end too early")
    output = np.empty(size, np.uint8)
    if decompress_lzf(np.frombuffer(data, np.uint8), output) != size:
        raise ValueError("points: compressed data are damaged")

    values: dict[str, Array] = {}
    start = 0
    for name, dtype, count in fields:
        end = start + points * count * dtype.itemsize
        array = output[start:end].view(dtype.newbyteorder("<"))
        start = end
        if count == 1:
            values[name] = array
        else:
            values |= split_vector_columns(name, array.reshape(points, count))
    return values


@njit_nogil()
def decompress_lzf(data: U8, output: U8) -> int:
    """Decompress LZF bytes (n,) into ``output`` (m,); return the size written, -1 if damaged.

    A control byte c < 32 precedes c + 1 literal bytes. Others refer back to the output, with three
    bits of length (7: one more byte follows) and 13 bits of distance.
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
            for i in range(length):
                output[written + i] = data[read + i]
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
        # Copy bytewise, because a reference may overlap its own output.
        for i in range(length):
            output[written + i] = output[source + i]
        written += length
    return written


def _read_header(file: BinaryIO) -> dict[str, list[str]]:
    """Read the header up to DATA: the keyword of each line -> its other words."""
    header: dict[str, list[str]] = {}
    for _ in range(MAX_HEADER_LINES):
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
