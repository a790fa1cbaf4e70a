"""Comparison of files with the CRC-32 on a card, once for each state of a file."""

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
from kmip_data.files.reading import crc32, read_json
from kmip_data.format.card import ShardMember
from kmip_data.runtime.progress import Progress

RECEIPT_BYTES = (
    2**30
)  #: bytes of a file above which a receipt saves the next process a second check
_PIECE = 2**20  #: bytes read at once; they stay in the processor's cache

#: A change so short before a check, in ns, may have the time of the next change.
_TICK = 2 * 10**7
Identity = tuple[int, ...]
#: Identities found sound by this process, or by the one it was forked or unpickled from, by path and
#: CRC-32.
sound: dict[tuple[Path, str], Identity] = {}


def file_identity(status: os.stat_result) -> Identity:
    """Return device, inode, size and the times of the last change of data and of the file, in ns."""
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_size, *times)


def check_size_and_crc(
    path: Path,
    file: io.FileIO,
    member: ShardMember,
    receipts: Path | None = None,
) -> None:
    """Raise DamagedInput unless an open file has the size and the CRC-32 on the card.

    A file with the identity of an earlier check is not read again. That holds for this process and
    those that it starts; of a file above ``RECEIPT_BYTES`` for every process on this machine that has the
    same folder of ``receipts``.
    """
    status = os.fstat(file.fileno())
    identity = file_identity(status)
    key = (path, member.crc32)
    if status.st_size != member.bytes:
        size = f"{status.st_size:,} bytes, not {member.bytes:,}"
        raise_damaged(path, "is not the file that the card names", size)
    if sound.get(key) == identity:
        return

    receipt = None
    if receipts is not None and status.st_size > RECEIPT_BYTES:
        # Machines that share a home have memory and cables of their own.
        name = "\n".join([platform.node(), str(path), member.crc32])
        receipt = receipts / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"
    known = False
    if receipt is not None:
        with contextlib.suppress(OSError, ValueError):
            known = read_json(receipt) == list(identity)
    if not known:
        digest = _read_crc32(path, file, status.st_size)
        if digest != member.crc32:
            digests = f"CRC-32 {digest}, not {member.crc32}"
            raise_damaged(path, "is not the file that the card names", digests)
        if receipt is not None:
            # In a read-only home the next process checks again.
            with contextlib.suppress(OSError, KmipDataError):
                receipt.parent.mkdir(parents=True, exist_ok=True)
                write_file(receipt, json.dumps(identity).encode())
    if abs(time.time_ns() - status.st_ctime_ns) > _TICK:
        sound[key] = identity


def _read_crc32(path: Path, file: io.FileIO, size: int) -> str:
    value = 0
    buffer = memoryview(bytearray(_PIECE))
    with Progress(f"check {path.name}", size, unit="B", quiet=size <= RECEIPT_BYTES) as progress:
        try:
            file.seek(0)
            while count := file.readinto(buffer):
                value = crc32(buffer[:count], value)
                progress.update(count)
        except OSError as error:  # the disk failed
            raise_damaged(path, "cannot be read", error)
    return f"{value:08x}"
