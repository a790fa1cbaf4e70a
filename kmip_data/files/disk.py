"""Put files on disk so that whatever is visible is complete, and name what went wrong when it cannot."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources
from kmip_data.files.changes import write_file
from kmip_data.files.errors import FULL as FULL  # noqa: PLC0414 -- passed on
from kmip_data.files.errors import disk_error as disk_error  # noqa: PLC0414
from kmip_data.files.errors import writing as writing  # noqa: PLC0414

CHUNK = 2**20  #: bytes read at a time where a file is streamed


def left_in(folder: Path) -> str:
    """Say what is left of a folder that was removed by name."""
    if folder.is_dir() and any(folder.iterdir()):
        return f"in {folder} what kmip-data did not write, and nothing else"
    return "nothing"


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of ``data``, whatever the kernel takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def fsync_path(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Mapping[str, Any], *, root: Path | None = None) -> None:
    """Write ``value`` as readable JSON, whole or not at all; ``root`` as for ``write_file``."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    write_file(path, f"{text}\n".encode(), root=root)


def sha256_file(path: Path) -> tuple[str, int]:
    """SHA-256 and size of a file, streamed.

    Raises
    ------
    DamagedInput
        It cannot be read.
    """
    return _digest_file(path, hashlib.sha256())


def md5_file(path: Path) -> str:
    """MD5 of a file, by which some owners publish what they give out; raises as :func:`sha256_file`."""
    return _digest_file(path, hashlib.md5(usedforsecurity=False))[0]


def git_blob(path: Path) -> str:
    """Return the name that git gives the content of a file: SHA-1 of its size and its bytes.

    Raises
    ------
    DamagedInput
        It cannot be read.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise unreadable(path, error) from error
    return _digest_file(path, hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False))[0]


def _digest_file(path: Path, digest: Any) -> tuple[str, int]:
    size = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise unreadable(path, error) from error
    return digest.hexdigest(), size


def unreadable(path: Path, error: OSError) -> KmipDataError:
    """Return our error for a file that is there but cannot be read."""
    return DamagedInput(
        f"{path} cannot be read.",
        expected="a file this user may read, on a working disk",
        found=error.strerror or str(error),
        left="nothing was changed",
        next="check its permissions and the disk",
    )


def require_room(folder: Path, needed: int, purpose: str) -> None:
    """Raise OutOfResources when ``needed`` bytes do not fit on the disk of ``folder``."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise OutOfResources(
            f"{purpose} does not fit on the disk.",
            expected=f"{human_bytes(needed)} free in {folder}",
            found=f"{human_bytes(free)}",
            left="nothing of it was written",
            next="free some space, or choose another disk with --home DIR (or KMIP_DATA_HOME)",
        )


def human_bytes(count: float) -> str:
    """Bytes for people, decimal: ``3 kB``, ``1.7 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in {"B", "kB"} else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
