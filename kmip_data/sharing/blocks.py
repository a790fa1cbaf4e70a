"""Blocks of remote files: fetched once, with their neighbours, verified, and cached on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import U8
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files.changes import make_folder, remove_file, remove_partials, write_file
from kmip_data.files.reading import read_small
from kmip_data.sharing.remote import Remote
from kmip_data.sharing.share import BLOCK, BlockDigests, damaged

ENVIRONMENT: Final = "KMIP_DATA_CACHE_GB"
_GIGABYTES: Final = 20.0
_SLACK: Final = 2**26  #: bytes that a process adds before it looks at the bound again
CONNECTIONS: Final = 16
_TOGETHER: Final = 4  #: most blocks of one request, so that several requests share the connections
_RECENT: Final = 128  #: blocks kept in memory, for what the next batch shares with the last ones

Key = tuple[str, int]  #: file, number of the block in it


class _Work:
    """Blocks in memory and requests under way of one process; a forked child starts with none."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: WeakValueDictionary[Key, NDArray[Any]] = WeakValueDictionary()
        self.recent: deque[U8] = deque(maxlen=_RECENT)
        self.flying: dict[Key, Future[dict[Key, U8]]] = {}
        self.pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="kmip-data-afar")


class Blocks:
    """Files at an address of known ``sizes`` in bytes, read by block; ``cache`` keeps verified blocks."""

    def __init__(
        self, remote: Remote, sizes: Mapping[str, int], digests: BlockDigests, cache: BlockCache | None
    ) -> None:
        self.remote, self.sizes, self._digests, self._cache = remote, sizes, digests, cache
        self._works: dict[int, _Work] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_works": {}}

    def read(self, file: str, start: int, stop: int) -> U8:
        """Return a new array of bytes ``start`` to ``stop`` of a file, which has as many.

        Raises what :meth:`Remote.range` does, and ``DamagedInput`` where a block is not what was pushed.
        """
        out = np.empty(stop - start, np.uint8)  # a MemoryError before anything is fetched
        keys = blocks_between(file, start, stop)
        held = self.take(keys)
        for key in keys:
            first = key[1] * BLOCK
            low, high = max(start, first), min(stop, first + BLOCK)
            out[low - start : high - start] = held[key][low - first : high - first]
        return out

    def take(self, wanted: Iterable[Key]) -> dict[Key, U8]:
        """Return these blocks, missing ones fetched together; they stay in memory while in use."""
        # The parent's is kept in a child: its threads and locks are not there, and must not be touched.
        work = self._works.get(os.getpid()) or self._works.setdefault(os.getpid(), _Work())
        keys = sorted(set(wanted))
        with work.lock:
            found = {key: block for key in keys if (block := work.known.get(key)) is not None}
            missing = [key for key in keys if key not in found and key not in work.flying]
            for run in _runs(missing):
                work.flying.update(dict.fromkeys(run, work.pool.submit(self._bring, work, run)))
            futures = {work.flying[key] for key in keys if key not in found}
        for future in futures:
            found.update(future.result())
        return found

    def _bring(self, work: _Work, run: list[Key]) -> dict[Key, U8]:
        """Read neighbouring blocks of a file from the cache; fetch the others in few requests."""
        brought: dict[Key, U8] = {}
        try:
            cache = self._cache
            found = {key: cache.find(self._digests.digest(*key)) if cache else None for key in run}
            pieces = {key: piece for key, piece in found.items() if piece is not None}
            for part in _runs([key for key in run if key not in pieces]):
                pieces.update(self._fetched(part))
            brought = {key: np.frombuffer(piece, np.uint8) for key, piece in pieces.items()}
        finally:
            with work.lock:
                work.known.update(brought)
                work.recent.extend(brought.values())
                for key in run:
                    del work.flying[key]
        return brought

    def _fetched(self, keys: list[Key]) -> dict[Key, bytes]:
        """Fetch neighbouring blocks of a file in one request."""
        (file, first), size = keys[0], self.sizes[keys[0][0]]
        start, stop = first * BLOCK, min(size, (first + len(keys)) * BLOCK)
        data = self.remote.range(file, start, stop)
        if data is None or len(data) != stop - start:
            found = "no such file" if data is None else f"one of {start + len(data):,}"
            raise damaged(f"{self.remote.address}/{file}", f"a file of {size:,} bytes", found)
        self._digests.check(file, first, data)
        starts = range(0, len(data), BLOCK)
        pieces = {key: data[at : at + BLOCK] for key, at in zip(keys, starts, strict=True)}
        if self._cache is not None:
            for key, piece in pieces.items():
                self._cache.keep(self._digests.digest(*key), piece)
        return pieces


def blocks_between(file: str, start: int, stop: int) -> list[Key]:
    """Return the blocks that bytes ``start`` to ``stop`` of a file lie in."""
    return [(file, block) for block in range(start // BLOCK, -(-stop // BLOCK))] if stop > start else []


def _runs(keys: list[Key]) -> Iterator[list[Key]]:
    """Divide sorted blocks into neighbours that are requested together."""
    run: list[Key] = []
    for key in keys:
        if run and (key != (run[-1][0], run[-1][1] + 1) or len(run) == _TOGETHER):
            yield run
            run = []
        run.append(key)
    if run:
        yield run


def cache_bytes() -> int:
    """Return the size limit in bytes: ``KMIP_DATA_CACHE_GB`` or 20 GB; UsageError if that is no size."""
    text = os.environ.get(ENVIRONMENT) or str(_GIGABYTES)
    with contextlib.suppress(ValueError, OverflowError):
        if (most := int(float(text) * 1e9)) >= 0:
            return most
    raise UsageError(f"{ENVIRONMENT} is not a size.", expected="gigabytes, from 0", found=text)


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
