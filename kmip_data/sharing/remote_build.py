"""Remote builds: each block is fetched once when it is needed, verified and cached in the home."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from kmip_data.arrays import U8, Array
from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.atomic_writes import make_folder, open_partial, write_all
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import RandomAccess, open_regular_file
from kmip_data.format.card import CARD_NAME, FileEntry, read_card
from kmip_data.format.reader import Shard
from kmip_data.sharing.push_metadata import (
    BLOCK_BYTES,
    SHARE_NAME,
    BlockDigests,
    PushIndex,
    damaged_error,
)
from kmip_data.sharing.remote import Remote, pull_command, read_exactly, read_push_index

MAX_CONNECTIONS = 16
_MAX_BLOCKS_PER_REQUEST = 4  #: small, so that several requests use the connections in parallel
_SHARDS_PER_PREFETCH = 32  #: shards whose first blocks are fetched together
_MAX_METADATA_BYTES = 2**28  #: maximum size of card and splits, which are copied completely

BlockKey = tuple[str, int]  #: file, and index of the block in it


class _FetchedBlocks:
    """Blocks that one process has on disk or is fetching; a forked child starts without any."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.futures: dict[BlockKey, Future[None]] = {}
        self.pool = ThreadPoolExecutor(MAX_CONNECTIONS, thread_name_prefix="kmip-data-remote")


class BlockCache:
    """Files of a push, copied block by block into sparse files of ``folder``.

    Every process compares a block on disk with its digest before first use. Therefore no list of
    blocks is needed, and processes share the folder without a lock: they write the same bytes.
    """

    def __init__(
        self,
        remote: Remote,
        index: PushIndex,
        digests: BlockDigests,
        folder: Path,
        root: Path,
    ) -> None:
        self.remote = remote
        self.folder = folder
        self._digests = digests
        self._root = root
        self.sizes = {entry.file: entry.bytes for entry in index.files}
        self._fetched_by_process: dict[int, _FetchedBlocks] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_fetched_by_process": {}}  # threads and locks cannot be pickled

    def read(self, file: str, start: int, stop: int) -> U8:
        """Return bytes ``start:stop`` of a file as a new array; the file must be that long.

        Raises the errors of :meth:`.remote.Remote.read_range`, and ``DamagedInput`` if a block differs
        from the push.
        """
        self.fetch_blocks(blocks_between(file, start, stop))
        data = np.empty(0, np.uint8)
        path = self.folder / file
        with contextlib.suppress(OSError), open_regular_file(path) as copy:
            data = np.fromfile(copy, np.uint8, stop - start, offset=start)
        if len(data) != stop - start:
            raise DamagedInput(
                f"{path} was changed while it was read.",
                next="run the same command again",
            )
        return data

    def fetch_blocks(self, keys: Iterable[BlockKey]) -> None:
        """Fetch the missing blocks, adjacent ones in one request."""
        fetched = self._fetched_blocks()
        requested = set(keys)
        with fetched.lock:
            missing = sorted(requested - fetched.futures.keys())
            for run in _adjacent_runs(missing):
                future = fetched.pool.submit(self._fetch_run, fetched, run)
                fetched.futures.update(dict.fromkeys(run, future))
            futures = {fetched.futures[key] for key in requested}
        for future in futures:
            future.result()

    def has_block(self, key: BlockKey) -> bool:
        """True if a block can be read without waiting."""
        future = self._fetched_blocks().futures.get(key)
        return future is not None and future.done() and future.exception() is None

    def _fetched_blocks(self) -> _FetchedBlocks:
        # A forked child must not use its parent's: it lacks the threads and may inherit a held lock.
        by_process = self._fetched_by_process
        return by_process.get(os.getpid()) or by_process.setdefault(os.getpid(), _FetchedBlocks())

    def _fetch_run(self, fetched: _FetchedBlocks, run: list[BlockKey]) -> None:
        """Fetch adjacent blocks of a file, except those that are already on disk."""
        try:
            missing = [key for key in run if not self._is_on_disk(*key)]
            for keys in _adjacent_runs(missing):
                file, first = keys[0]
                self._fetch_and_write(file, first, len(keys))
        except BaseException:
            with fetched.lock:
                for key in run:
                    del fetched.futures[key]  # the next reader retries
            raise

    def _is_on_disk(self, file: str, block: int) -> bool:
        start = block * BLOCK_BYTES
        size = self.sizes[file]
        with contextlib.suppress(OSError), open_regular_file(self.folder / file) as copy:
            if os.fstat(copy.fileno()).st_size == size:
                copy.seek(start)
                data = read_exactly(copy, min(BLOCK_BYTES, size - start))
                return hashlib.sha256(data).hexdigest() == self._digests.digest(file, block)
        return False

    def _fetch_and_write(self, file: str, first: int, count: int) -> None:
        """Fetch ``count`` blocks of a file in one request, verify and write them."""
        size = self.sizes[file]
        path = self.folder / file
        start = first * BLOCK_BYTES
        stop = min(size, (first + count) * BLOCK_BYTES)
        address = f"{self.remote.address}/{file}"
        data = self.remote.read_range(file, start, stop)
        if data is None:
            raise damaged_error(address, f"a file of {size:,} bytes", "no such file")
        if len(data) != stop - start:
            raise damaged_error(
                address,
                f"a file of {size:,} bytes",
                f"{'' if data else 'at most '}{start + len(data):,} bytes",
            )
        self._digests.check(file, first, data)

        with convert_write_errors(path):
            make_folder(path.parent, root=self._root)
            descriptor = open_partial(path)
            try:
                os.ftruncate(descriptor, size)
                os.lseek(descriptor, start, os.SEEK_SET)
                write_all(descriptor, data)
            finally:
                os.close(descriptor)


def blocks_between(file: str, start: int, stop: int) -> list[BlockKey]:
    """Return the blocks with bytes ``start:stop`` of a file."""
    if start >= stop:
        return []
    return [(file, block) for block in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))]


def _adjacent_runs(keys: list[BlockKey]) -> Iterator[list[BlockKey]]:
    """Divide sorted blocks into runs of adjacent blocks, one per request."""
    run: list[BlockKey] = []
    next_key = None
    for key in keys:
        if run and (key != next_key or len(run) == _MAX_BLOCKS_PER_REQUEST):
            yield run
            run = []
        run.append(key)
        next_key = (key[0], key[1] + 1)
    if run:
        yield run


@dataclass(frozen=True)
class RemoteBuild(Build):
    """A build at an address; ``path`` is its folder in the cache."""

    address: str
    cache: BlockCache
    is_remote: ClassVar[bool] = True

    @property
    def location(self) -> str:
        """The address."""
        return self.address

    @property
    def remedy(self) -> str:
        """Advice for a damaged file."""
        return f"ask whoever pushed it to push it again, or {pull_command(self.address)}"

    def open_shard(self, file: str, entry: FileEntry) -> Shard:
        """Open a shard, or a file of an added column, by name."""
        if not self.cache.sizes.get(file):
            raise damaged_error(
                f"{self.address}/{file}",
                "a file that the card lists",
                "no file, or an empty one",
            )
        self.cache.fetch_blocks((name, 0) for name in self._first_blocks.get(file, ()))
        return RemoteShard(self, file)

    @functools.cached_property
    def _first_blocks(self) -> dict[str, list[str]]:
        """Groups of shards whose first blocks are fetched together, by the first shard of each group."""
        files = [entry.file for entry in self.card.shards if entry.bytes]
        groups = {}
        for start in range(0, len(files), _SHARDS_PER_PREFETCH):
            groups[files[start]] = files[start : start + _SHARDS_PER_PREFETCH]
        return groups

    def prefetch_rows(self, rows: Sequence[tuple[Shard, str, int, int]]) -> None:
        """Fetch the blocks of all ``rows`` (shard, key, first, end) together."""
        ranges = []
        size = 0
        for shard, key, first, end in rows:
            if not isinstance(shard, RemoteShard):
                continue
            for start, stop in shard.byte_ranges(key, first, end):
                ranges.append((shard.file, start, stop))
                size += stop - start
        # Raise MemoryError before fetching anything if the rows do not fit into memory.
        np.empty(size, np.uint8)
        blocks = []
        for file_range in ranges:
            blocks += blocks_between(*file_range)
        self.cache.fetch_blocks(blocks)


class RemoteShard(Shard):
    """A remote shard, which is read by block instead of mapped."""

    def __init__(self, build: RemoteBuild, file: str) -> None:
        self.file = file
        self._cache = build.cache
        # HDF5 holds h5py's lock while it reads. A fetching thread could garbage-collect objects of
        # h5py and wait for that lock, so fetch missing blocks between two attempts to open the file.
        while True:
            source = _CachedFile(build.cache, file)
            try:
                super().__init__(build.path / file, source)
                break
            except DamagedInput as error:
                if not source.missing:
                    raise DamagedInput(
                        error.message.replace(str(self.path), f"{build.address}/{file}"),
                        found=error.found,
                        next=build.remedy,
                    ) from error
            build.cache.fetch_blocks(source.missing)

    def mapped_view(self, key: str) -> Array | None:
        """Return ``None``: a remote shard is never mapped."""
        return None

    def read(self, key: str, start: int, stop: int) -> Array:
        """Return a copy of rows ``start:stop`` of a dataset (columns of ``edge/index``)."""
        entry = self._expected_array(key)
        planes = []
        for first, end in self.byte_ranges(key, start, stop):
            planes.append(self._cache.read(self.file, first, end))
        rows = np.concatenate(planes).view(entry.dtype)
        if entry.row_axis:
            return rows.reshape((*entry.row_shape, stop - start))
        return rows.reshape((stop - start, *entry.row_shape))

    def byte_ranges(self, key: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges of rows ``start:stop`` of a dataset in the file."""
        entry = self._expected_array(key)
        offset = self._offsets[key] or 0
        size = entry.dtype.itemsize if entry.row_axis else entry.row_bytes
        for plane in range(entry.row_shape[0] if entry.row_axis else 1):
            first = offset + plane * size * self.edges
            yield first + start * size, first + stop * size


class _CachedFile(RandomAccess):
    """A remote file for HDF5, with fetched blocks only; ``missing`` collects blocks to fetch."""

    def __init__(self, cache: BlockCache, file: str) -> None:
        super().__init__(cache.sizes[file], self._read_fetched)
        self._cache = cache
        self._file = file
        self.missing: list[BlockKey] = []

    def _read_fetched(self, start: int, stop: int) -> memoryview:
        keys = blocks_between(self._file, start, stop)
        self.missing += [key for key in keys if not self._cache.has_block(key)]
        if self.missing:
            raise OSError("not fetched yet")
        return self._cache.read(self._file, start, stop).data


def open_remote_build(address: str, home: Home) -> RemoteBuild:
    """Open a pushed build without pulling it.

    Raises ``UsageError`` if no build was pushed there, or the server sends only complete files;
    ``DamagedInput`` if data differ from the push; ``SourceUnavailable`` if the server does not
    respond.
    """
    remote = Remote(address, retries=True)
    index, digests = read_push_index(remote)
    address = remote.address
    if index.kind != "build":
        raise UsageError(
            f"{address} is not a build but a {index.kind}.",
            next=pull_command(address),
        )

    # 1. Fetch the card, the splits and the cards of added columns.
    sizes = {}
    blocks = []
    for pushed in index.files:
        if pushed.file.startswith("splits/") or pushed.file.endswith(CARD_NAME):
            sizes[pushed.file] = pushed.bytes
            blocks += blocks_between(pushed.file, 0, pushed.bytes)
    size = sum(sizes.values())
    if not sizes.get(CARD_NAME) or size > _MAX_METADATA_BYTES:
        raise damaged_error(
            f"{address}/{SHARE_NAME}",
            f"{CARD_NAME}, and with splits at most {_MAX_METADATA_BYTES:,} bytes",
            f"{size:,} bytes",
        )
    folder = home.cache / "builds" / f"{index.name}-{index.digest[:32]}"
    with convert_write_errors(folder):
        home.path.mkdir(parents=True, exist_ok=True)
    cache = BlockCache(remote, index, digests, folder, home.path)
    cache.fetch_blocks(blocks)

    # 2. Compare the card with the index of the push.
    try:
        card = read_card(folder)
    except DamagedInput as error:
        raise damaged_error(
            f"{address}/{CARD_NAME}",
            error.expected or "",
            error.found or "",
        ) from error
    pushed_files = {(pushed.file, pushed.bytes, pushed.sha256) for pushed in index.files}
    for entry in card.shards:
        if entry.members:
            raise UsageError(
                f"{address} cannot be read remotely: "
                f"{entry.file} is cut into {len(entry.members)} files.",
                next=pull_command(address),
            )
        if (entry.file, entry.bytes, entry.sha256) not in pushed_files:
            raise damaged_error(
                f"{address}/{SHARE_NAME}",
                f"{entry.file} as listed in {CARD_NAME}",
                "another file, or none",
            )
    return RemoteBuild(folder, card, address, cache)
