"""Read raw files and their first bytes, which show the format."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import open_gzip

_GZIP = b"\x1f\x8b"
_BLOCK_BYTES = 2**20
WORKBOOK_SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


def decompressed_head(path: Path, max_bytes: int = 4_096) -> bytes:
    """Return the first bytes of a file, decompressed; raises ``DamagedInput`` for a damaged gzip."""
    with path.open("rb") as file:
        head = file.read(max_bytes)
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, max_bytes)
    except zlib.error as error:
        raise DamagedInput(f"{path.name} is a damaged gzip: {error}.") from error


def first_member(head: bytes) -> bytes:
    """Return the name of a zip's first member; empty for other files."""
    if not head.startswith(b"PK\3\4") or len(head) < 30:
        return b""
    (length,) = struct.unpack_from("<H", head, 26)
    return head[30 : 30 + length]


def is_gzip(path: Path) -> bool:
    """Return True if a file is gzip-compressed."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def read_checked(path: Path, check_size: Callable[[int], None]) -> bytes:
    """Return the bytes of a file, which may be gzipped; ``check_size`` takes their number as it grows.

    Raises ``InflateError`` or ``EOFError`` for a damaged gzip.
    """
    data = bytearray()
    with open_gzip(path) if is_gzip(path) else path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            data += block
            check_size(len(data))
    return bytes(data)


def is_workbook(name: str) -> bool:
    """Return True for the name of a workbook of Excel or OpenDocument."""
    return name.lower().endswith(WORKBOOK_SUFFIXES)
