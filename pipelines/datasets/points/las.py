"""Read LAS and LAZ files with laspy."""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.arrays import Array
from kmip_data.pipelines.domains.cloud_columns import (
    CloudColumns,
    check_column_count,
    split_vector_columns,
)
from kmip_data.runtime.extras import require_extra

_POINTS_PER_CHUNK = 2**20  #: points decoded at a time
_VLR_HEADER_BYTES = 54  #: size of a variable length record's header
_LAZ_POINTS_PER_BYTE = 256  #: upper bound of the compression; identical points take 1/82 byte each


def read_las(path: Path) -> CloudColumns:
    """Return the dimensions of a LAS or LAZ file, with x, y and z scaled and vectors split."""
    require_extra("lidar", "A LAS or LAZ file")
    import laspy

    # Silence laspy's logger, which would repeat the error.
    logging.getLogger("laspy").addHandler(logging.NullHandler())
    size = path.stat().st_size
    with path.open("rb") as file:
        records = int.from_bytes(file.read(104)[100:], "little")
    # laspy allocates the declared number of records, even beyond the end of the file.
    if records * _VLR_HEADER_BYTES > size:
        raise ValueError(f"{records:,} records are declared, but the file ends before")

    try:
        # Use one thread: the parallel reader trusts the declared number of chunks.
        with (
            laspy.open(path, laz_backend=laspy.LazBackend.Lazrs, read_evlrs=False) as reader,
            np.errstate(all="ignore"),  # overflowing coordinates are rejected as not finite
        ):
            return _las_columns(reader, path, size)
    except (
        AssertionError,
        AttributeError,
        RuntimeError,
        struct.error,
        laspy.LaspyException,
    ) as error:
        raise ValueError(str(error) or "not a LAS file") from error


def _las_columns(reader: Any, path: Path, size: int) -> CloudColumns:
    header = reader.header
    count = header.point_count
    min_size = header.offset_to_point_data + count * header.point_format.size
    if header.are_points_compressed:
        min_size = count // _LAZ_POINTS_PER_BYTE
    if min_size > size:
        raise ValueError(f"{count:,} points are declared, but the file ends before")

    if header.are_points_compressed:
        _check_chunk_count(header, path)
    else:
        # laspy would silently drop points beyond the declared number. Only records and waveforms,
        # located by the header, may follow the points.
        next_sections = (header.start_of_first_evlr, header.start_of_waveform_data_packet_record)
        excess = min([size, *filter(None, next_sections)]) - min_size
        if excess >= header.point_format.size:
            raise ValueError(f"{count:,} points are declared, but the file has more")

    names = [*"xyz", *header.point_format.dimension_names]
    columns: dict[str, Array] = {}
    row = 0
    # Read chunks straight into the columns to limit memory.
    for points in reader.chunk_iterator(_POINTS_PER_CHUNK):
        for name in names:
            if name in "XYZ":
                continue
            values = np.asarray(points[name])
            parts = {name: values} if values.ndim == 1 else split_vector_columns(name, values)
            for part, array in parts.items():
                if part not in columns:
                    check_column_count(len(columns) + 1)
                    columns[part] = np.empty(count, values.dtype)
                columns[part][row : row + len(array)] = array
        row += len(points)
    if row != count:
        raise ValueError(f"{count:,} points are declared, but {row:,} can be read")
    if not all(np.isfinite(columns[axis]).all() for axis in "xyz" if axis in columns):
        raise ValueError("scale and offset of the header give positions that are not finite")
    return CloudColumns(columns)


def _check_chunk_count(header: Any, path: Path) -> None:
    """Raise ``ValueError`` if the declared chunks, which lazrs allocates, exceed the file."""
    import lazrs

    (record,) = header.vlrs.get("LasZipVlr")
    # A chunk begins with an uncompressed point.
    min_chunk_size = lazrs.LazVlr(record.record_data).item_size()
    with path.open("rb") as file:
        file.seek(header.offset_to_point_data)
        (table_offset,) = struct.unpack("<q", file.read(8))
        if table_offset < 0:  # a streamed file has the offset at its end
            file.seek(-8, os.SEEK_END)
            (table_offset,) = struct.unpack("<q", file.read(8))
        file.seek(table_offset)
        _, chunks = struct.unpack("<II", file.read(8))
    if chunks * min_chunk_size > path.stat().st_size:
        raise ValueError(f"{chunks:,} chunks are declared, but the file ends before")
