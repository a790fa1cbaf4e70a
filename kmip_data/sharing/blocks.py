"""Blocks of remote files: fetched once, with their neighbours, verified and cached."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import U8
from kmip_data.sharing.cache import BlockCache
from kmip_data.sharing.ranges import Ranges
from kmip_data.sharing.share import BLOCK, BlockDigests, damaged

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
    """Files at an address (``ranges``) of known ``sizes`` in bytes, read by block.

    ``digests`` verify blocks and ``cache`` keeps verified ones; ``None``: neither. What was not verified has
    no name that says what it is, so it is never kept.
    """

    def __init__(
        self, ranges: Ranges, sizes: Mapping[str, int], digests: BlockDigests | None, cache: BlockCache | None
    ) -> None:
        self.ranges, self.sizes, self._digests, self._cache = ranges, sizes, digests, cache
        self._works: dict[int, _Work] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_works": {}}

    def read(self, file: str, start: int, stop: int) -> U8:
        """Return a new array of bytes ``start`` to ``stop`` of a file, which has as many.

        Raises what :meth:`Ranges.read` does, and ``DamagedInput`` where a block is not what was pushed.
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
            pieces = {key: self._kept(key) for key in run}
            for part in _runs([key for key in run if pieces[key] is None]):
                pieces.update(self._fetched(part))
            brought = {
                key: np.frombuffer(piece, np.uint8) for key, piece in pieces.items() if piece is not None
            }
        finally:
            with work.lock:
                work.known.update(brought)
                work.recent.extend(brought.values())
                for key in run:
                    del work.flying[key]
        return brought

    def _kept(self, key: Key) -> bytes | None:
        if self._cache is None or self._digests is None:
            return None
        return self._cache.find(self._digests.digest(*key))

    def _fetched(self, keys: list[Key]) -> dict[Key, bytes]:
        """Fetch neighbouring blocks of a file in one request."""
        (file, first), size = keys[0], self.sizes[keys[0][0]]
        start, stop = first * BLOCK, min(size, (first + len(keys)) * BLOCK)
        name = f"{self.ranges.address}/{file}"
        try:
            data = self.ranges.read(file, start, stop)
        except FileNotFoundError as error:
            raise damaged(name, f"a file of {size:,} bytes", str(error)) from error
        if len(data) != stop - start:
            raise damaged(name, f"a file of {size:,} bytes", f"one of {start + len(data):,}")
        if self._digests is not None:
            self._digests.check(file, first, data)
        pieces = {
            key: data[at : at + BLOCK] for key, at in zip(keys, range(0, len(data), BLOCK), strict=True)
        }
        if self._cache is not None and self._digests is not None:
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
