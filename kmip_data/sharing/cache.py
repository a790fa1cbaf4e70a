"""Disk cache of verified blocks by digest; the oldest are removed beyond a limit."""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from pathlib import Path
from typing import Final

from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.changes import make_folder, remove_file, remove_partials, write_file
from kmip_data.files.reading import read_small
from kmip_data.sharing.share import BLOCK

ENVIRONMENT: Final = "KMIP_DATA_CACHE_GB"
_GIGABYTES: Final = 20.0
_SLACK: Final = 2**26  #: bytes that a process adds before it looks at the bound again


def cache_bytes() -> int:
    """Return the size limit in bytes: ``KMIP_DATA_CACHE_GB`` or 20 GB; UsageError if that is no size."""
    text = os.environ.get(ENVIRONMENT) or str(_GIGABYTES)
    with contextlib.suppress(ValueError, OverflowError):
        if (most := int(float(text) * 1e9)) >= 0:
            return most
    raise UsageError(
        f"{ENVIRONMENT} is not a size.",
        expected="gigabytes, from 0",
        found=text,
        next=f"unset {ENVIRONMENT}",
    )


class BlockCache:
    """Files of at most one block, each named by its SHA-256.

    Processes share it without a lock: a file is put in place whole, its name says what is in it, and one
    that is removed under a reader is fetched again. All of them together keep ``most`` bytes, and what each
    has added since it last looked: at most 64 MiB.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most = folder, most
        self._added, self._broken = _SLACK, False

    def find(self, digest: str) -> bytes | None:
        """Return the block with this digest, ``None`` if it is not cached; a damaged file is removed."""
        path = self._path(digest)
        try:
            data = read_small(path, BLOCK)
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest() == digest:
            return data
        with contextlib.suppress(KmipDataError, OSError):
            remove_file(path, root=self.folder)
        return None

    def keep(self, digest: str, data: bytes) -> None:
        """Cache a block; if the disk does not take it, warn once and stop caching."""
        if self._broken:
            return
        path = self._path(digest)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            make_folder(path.parent, root=self.folder)
            write_file(path, data, root=self.folder)
        except (KmipDataError, OSError) as error:
            self._broken = True
            warnings.warn(f"blocks are not kept in {self.folder}: {error}", stacklevel=2)
            return
        self._added += len(data)
        if self._added >= _SLACK or self.most < _SLACK:
            self._added = 0
            self._trim()

    def _trim(self) -> None:
        """Remove the oldest blocks until at most ``most`` bytes are left; two processes choose the same."""
        found = []
        for folder in self.folder.glob("??"):
            remove_partials(folder, root=self.folder)
        for path in self.folder.glob(f"??/{'?' * 64}"):
            with contextlib.suppress(OSError):  # removed by another process
                status = path.stat(follow_symlinks=False)
                found.append((status.st_mtime_ns, status.st_size, path))
        excess = sum(size for _, size, _ in found) - self.most
        for _, size, path in sorted(found):
            if excess <= 0:
                return
            with contextlib.suppress(KmipDataError, OSError):
                remove_file(path, root=self.folder)
            excess -= size

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest
