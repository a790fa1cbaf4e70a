"""Comparison of files with the CRC-32 on a card, once per state of a file."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import platform
import time
from pathlib import Path

from kmip_data.errors import KmipDataError
from kmip_data.files.atomic_writes import write_file
from kmip_data.files.path_errors import raise_damaged
from kmip_data.files.small_files import crc32, read_json
from kmip_data.format.card import FileDigests
from kmip_data.runtime.progress import Progress

#: Checked files above this size get a stamp file, so that other processes skip the check.
MIN_STAMPED_BYTES = 2**30
_CHUNK_BYTES = 2**20  #: read at once; fits the processor's cache
#: resolution of file times: a later change within this time may leave them unchanged
_TIMESTAMP_RESOLUTION_NS = 2 * 10**7
FileIdentity = tuple[int, ...]
#: (path, CRC-32) -> identity of a file verified by this process or the one it came from
verified_files: dict[tuple[Path, str], FileIdentity] = {}


def file_identity(status: os.stat_result) -> FileIdentity:
    """Return device, inode, size, modification time and status change time (ns) of a file."""
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_size, *times)


def check_size_and_crc(
    path: Path,
    file: io.FileIO,
    member: FileDigests,
    stamps: Path | None = None,
) -> None:
    """Raise ``DamagedInput`` unless an open file has the size and CRC-32 on the card.

    A file whose identity is unchanged since the last check is not read again, in this process and its
    children. Files above ``MIN_STAMPED_BYTES`` get a stamp in the folder ``stamps``, which all
    processes of this machine share.
    """
    status = os.fstat(file.fileno())
    identity = file_identity(status)
    key = (path, member.crc32)
    if status.st_size != member.bytes:
        size = f"{status.st_size:,} bytes, not {member.bytes:,}"
        raise_damaged(path, "is not the file that the card names", size)
    if verified_files.get(key) == identity:
        return

    stamp = None
    if stamps is not None and status.st_size > MIN_STAMPED_BYTES:
        # One stamp file per machine: the network or memory of another one may be faulty.
        name = "\n".join([platform.node(), str(path), member.crc32])
        stamp = stamps / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"
    has_stamp = False
    if stamp is not None:
        with contextlib.suppress(OSError, ValueError):
            has_stamp = read_json(stamp) == list(identity)
    if not has_stamp:
        digest = _read_crc32(path, file, status.st_size)
        if digest != member.crc32:
            digests = f"CRC-32 {digest}, not {member.crc32}"
            raise_damaged(path, "is not the file that the card names", digests)
        if stamp is not None:
            # Without a stamp, as in a read-only home, the next process checks again.
            with contextlib.suppress(OSError, KmipDataError):
                stamp.parent.mkdir(parents=True, exist_ok=True)
                write_file(stamp, json.dumps(identity).encode())
    if abs(time.time_ns() - status.st_ctime_ns) > _TIMESTAMP_RESOLUTION_NS:
        verified_files[key] = identity


def _read_crc32(path: Path, file: io.FileIO, size: int) -> str:
    value = 0
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    with Progress(
        f"check {path.name}", size, unit="B", quiet=size <= MIN_STAMPED_BYTES
    ) as progress:
        try:
            file.seek(0)
            while count := file.readinto(buffer):
                value = crc32(buffer[:count], value)
                progress.update(count)
        except OSError as error:  # the disk failed
            raise_damaged(path, "cannot be read", error)
    return f"{value:08x}"
