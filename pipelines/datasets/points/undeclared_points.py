"""Detect points of a LAS or LAZ file beyond those declared in its header.

Readers stop at the declared number, so a header with 1,000 of 2,000 points would lose half of them
without an error. Only the last chunk of a LAZ file is decoded here.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, BinaryIO

_LAYERED = 6  #: point format from which a chunk of a LAZ file has its number of points
_TAIL = (24, 8)  #: last bytes of a chunk that are changed: from, and up to the coder's own ending


def check_end(header: Any, path: Path) -> None:
    """Refuse a file that has more points than its header declares (``ValueError``)."""
    count = header.point_count
    hidden = f"{count:,} points are declared, and the file has more"
    if header.are_points_compressed:
        _check_chunks(header, path, hidden)
        return

    # Only records and waveforms, located by the header, follow uncompressed points.
    behind = (header.start_of_first_evlr, header.start_of_waveform_data_packet_record)
    end = min([path.stat().st_size, *filter(None, behind)])
    room = end - header.offset_to_point_data - count * header.point_format.size
    if room >= header.point_format.size:
        raise ValueError(f"{hidden}: {room // header.point_format.size:,} follow them")


def _check_chunks(header: Any, path: Path, hidden: str) -> None:
    import lazrs

    count = header.point_count
    (record,) = header.vlrs.get("LasZipVlr")
    vlr = lazrs.LazVlr(record.record_data)
    with path.open("rb") as file:
        # 1. The table of chunks. A chunk has at least its first point, uncompressed, so the size of
        #    the file bounds their number: lazrs makes a table as long as is declared.
        file.seek(_chunk_table(file, header))
        _, declared = struct.unpack("<II", file.read(8))
        if declared * vlr.item_size() > path.stat().st_size:
            raise ValueError(f"{declared:,} chunks are declared, and the file ends before")
        file.seek(header.offset_to_point_data)
        chunks = lazrs.read_chunk_table(file, vlr)
        if not chunks:
            raise ValueError(f"{count:,} points are declared, and the file has no chunks")

        # 2. All chunks but the last are full: it has what they leave of the declared points. If that
        #    is nothing, the chunk itself is too many.
        left = count - sum(points for points, _ in chunks[:-1])
        if left <= 0:
            raise ValueError(f"{hidden}: {len(chunks):,} chunks")
        file.seek(sum(size for _, size in chunks[:-1]), os.SEEK_CUR)
        data = file.read(chunks[-1][1])

    # 3. The last chunk itself: newer formats store its number of points behind the first point.
    if header.point_format.id >= _LAYERED:
        (points,) = struct.unpack_from("<I", data, vlr.item_size())
        more = points > left
    else:
        more = _has_unread_end(data, left, record, vlr)
    if more:
        raise ValueError(f"{hidden} in its last chunk")


def _chunk_table(file: BinaryIO, header: Any) -> int:
    """Return the offset of the table of chunks, which stands before the points."""
    file.seek(header.offset_to_point_data)
    (table,) = struct.unpack("<q", file.read(8))
    if table < 0:  # a file written as a stream has it at its end
        file.seek(-8, os.SEEK_END)
        (table,) = struct.unpack("<q", file.read(8))
    return int(table)


def _has_unread_end(data: bytes, points: int, record: object, vlr: Any) -> bool:
    """True if the ``points`` of a chunk do not depend on its last bytes, which then code others."""
    # Points are coded one after the other by an arithmetic coder: with other last bytes the last
    # points are others, or cannot be decoded, unless there are more.
    first, last = _TAIL
    changed = bytearray(data)
    for offset in range(max(len(data) - first, vlr.item_size()), len(data) - last):
        changed[offset] ^= 0xFF
    if changed == data:  # too short to tell
        return False
    return _decoded(data, points, record, vlr) == _decoded(bytes(changed), points, record, vlr)


def _decoded(data: bytes, points: int, record: Any, vlr: Any) -> bytes | None:
    """Return the bytes of a chunk's points, ``None`` if they cannot be decoded."""
    import lazrs

    table = [(points, len(data))]
    decoded = bytearray(points * vlr.item_size())
    try:
        lazrs.decompress_points_with_chunk_table(data, record.record_data, decoded, table)
    except lazrs.LazrsError:
        return None
    return bytes(decoded)
