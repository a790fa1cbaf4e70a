"""Points of LAS and LAZ files, read by laspy."""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.arrays import Array
from kmip_data.pipelines.datasets.points.columns import Columns, check_count, columns_of_values
from kmip_data.runtime.extras import require_extra

_CHUNK = 2**20  #: points decoded at a time
_VLR = 54  #: bytes of the header of a variable length record
_LAZ_POINTS_PER_BYTE = 256  #: points that are all the same: 82; a header may declare 2⁶⁴


def read_las(path: Path) -> Columns:
    """Return the dimensions of a LAS or LAZ file; x, y and z are scaled, of several values each is one."""
    require_extra("lidar", "A LAS or LAZ file")
    import laspy

    # Silence its log, which would repeat the error.
    logging.getLogger("laspy").addHandler(logging.NullHandler())
    size = path.stat().st_size
    with path.open("rb") as file:
        records = int.from_bytes(file.read(104)[100:], "little")
    # laspy allocates as many records as the header declares, even beyond the end of the file.
    if records * _VLR > size:
        raise ValueError(f"{records:,} records are declared, and the file ends before")

    try:
        # One thread: its parallel reader believes the number of chunks.
        with (
            laspy.open(path, laz_backend=laspy.LazBackend.Lazrs, read_evlrs=False) as reader,
            np.errstate(all="ignore"),  # coordinates that overflow are refused as not finite
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


def _las_columns(reader: Any, path: Path, size: int) -> Columns:
    header = reader.header
    count = header.point_count
    least = header.offset_to_point_data + count * header.point_format.size
    if header.are_points_compressed:
        least = count // _LAZ_POINTS_PER_BYTE
    if least > size:
        raise ValueError(f"{count:,} points are declared, and the file ends before")

    if header.are_points_compressed:
        _check_number_of_chunks(header, path)
    else:
        # laspy stops at the declared number, and would lose the others without an error. Only
        # records and waveforms, located by the header, follow the points.
        following = (header.start_of_first_evlr, header.start_of_waveform_data_packet_record)
        excess = min([size, *filter(None, following)]) - least
        if excess >= header.point_format.size:
            raise ValueError(f"{count:,} points are declared, and the file has more")

    names = [*"xyz", *header.point_format.dimension_names]
    columns: dict[str, Array] = {}
    row = 0
    # A chunk at a time, straight into the columns, to limit memory.
    for points in reader.chunk_iterator(_CHUNK):
        for name in names:
            if name in "XYZ":
                continue
            values = np.asarray(points[name])
            parts = {name: values} if values.ndim == 1 else columns_of_values(name, values)
            for part, array in parts.items():
                if part not in columns:
                    check_count(len(columns) + 1)
                    columns[part] = np.empty(count, values.dtype)
                columns[part][row : row + len(array)] = array
        row += len(points)
    if row != count:
        raise ValueError(f"{count:,} points are declared, and {row:,} can be read")
    if not all(np.isfinite(columns[axis]).all() for axis in "xyz" if axis in columns):
        raise ValueError("scale and offset of the header make positions that are not finite")
    return Columns(columns)


def _check_number_of_chunks(header: Any, path: Path) -> None:
    """Raise ``ValueError`` for more chunks than fit into a LAZ file: lazrs allocates as many as are declared."""
    import lazrs

    (record,) = header.vlrs.get("LasZipVlr")
    smallest = lazrs.LazVlr(record.record_data).item_size()  # a chunk begins with a whole point
    with path.open("rb") as file:
        file.seek(header.offset_to_point_data)
        (table,) = struct.unpack("<q", file.read(8))
        if table < 0:  # a file written as a stream has the offset at its end
            file.seek(-8, os.SEEK_END)
            (table,) = struct.unpack("<q", file.read(8))
        file.seek(table)
        _, chunks = struct.unpack("<II", file.read(8))
    if chunks * smallest > path.stat().st_size:
        raise ValueError(f"{chunks:,} chunks are declared, and the file ends before")
