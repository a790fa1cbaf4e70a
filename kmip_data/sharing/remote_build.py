"""Remote builds, read by block: each block is fetched once, verified and cached in the home."""

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
from kmip_data.files.reading import RandomAccess, open_regular_file
from kmip_data.format.card import CARD_NAME, FileEntry, read_card
from kmip_data.format.reader import Shard
from kmip_data.sharing.push_files import BLOCK, SHARE_NAME, BlockDigests, Share, damaged_error
from kmip_data.sharing.remote import Remote, pull_command, read_exactly, read_share

CONNECTIONS = 16
_TOGETHER = 4  #: most blocks of one request, so that several requests share the connections
_HEADS = 32  #: shards whose first blocks are fetched together
_MAX_SMALL = 2**28  #: most bytes of card and splits, which are copied completely

Key = tuple[str, int]  #: file, and number of the block in it


class _Work:
    """Blocks of one process that are on disk or being fetched; a forked child starts with none."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks: dict[Key, Future[None]] = {}
        self.pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="kmip-data-remote")


class Copies:
    """Files of a push, copied by block into sparse files of ``folder``.

    Every process compares a block on disk with its digest before first use. So no list of blocks is
    kept, and processes share the folder without a lock: they write the same bytes.
    """

    def __init__(
        self,
        remote: Remote,
        share: Share,
        digests: BlockDigests,
        folder: Path,
        root: Path,
    ) -> None:
        self.remote = remote
        self.folder = folder
        self._digests = digests
        self._root = root
        self.sizes = {entry.file: entry.bytes for entry in share.files}
        self._works: dict[int, _Work] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_works": {}}  # threads and locks stay in their process

    def read(self, file: str, start: int, stop: int) -> U8:
        """Return bytes ``start`` to ``stop`` of a file as a new array; the file must have as many.

        Raises what :meth:`.remote.Remote.read_range` does, and ``DamagedInput`` where a block is not what was
        pushed.
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

    def fetch_blocks(self, wanted: Iterable[Key]) -> None:
        """Copy the missing blocks, neighbours in one request."""
        work = self._work_of_process()
        keys = set(wanted)
        with work.lock:
            missing = sorted(keys - work.blocks.keys())
            for run in _runs_of_neighbours(missing):
                future = work.pool.submit(self._copy_run, work, run)
                work.blocks.update(dict.fromkeys(run, future))
            futures = {work.blocks[key] for key in keys}
        for future in futures:
            future.result()

    def has_block(self, key: Key) -> bool:
        """True if a block can be read without waiting."""
        future = self._work_of_process().blocks.get(key)
        return future is not None and future.done() and future.exception() is None

    def _work_of_process(self) -> _Work:
        # A forked child leaves its parent's alone, whose threads and lock state it does not have.
        return self._works.get(os.getpid()) or self._works.setdefault(os.getpid(), _Work())

    def _copy_run(self, work: _Work, run: list[Key]) -> None:
        """Copy neighbouring blocks of a file, except those that are on disk already."""
        try:
            missing = [key for key in run if not self._is_on_disk(*key)]
            for keys in _runs_of_neighbours(missing):
                file, first = keys[0]
                self._fetch_and_write(file, first, len(keys))
        except BaseException:
            with work.lock:
                for key in run:
                    del work.blocks[key]  # the next reader tries again
            raise

    def _is_on_disk(self, file: str, block: int) -> bool:
        start = block * BLOCK
        size = self.sizes[file]
        with contextlib.suppress(OSError), open_regular_file(self.folder / file) as copy:
            if os.fstat(copy.fileno()).st_size == size:
                copy.seek(start)
                data = read_exactly(copy, min(BLOCK, size - start))
                return hashlib.sha256(data).hexdigest() == self._digests.digest(file, block)
        return False

    def _fetch_and_write(self, file: str, first: int, count: int) -> None:
        """Fetch ``count`` blocks of a file in one request, and write them once they are verified."""
        size = self.sizes[file]
        path = self.folder / file
        start = first * BLOCK
        stop = min(size, (first + count) * BLOCK)
        address = f"{self.remote.address}/{file}"
        data = self.remote.read_range(file, start, stop)
        if data is None:
            raise damaged_error(address, f"a file of {size:,} bytes", "no such file")
        if len(data) != stop - start:
            raise damaged_error(
                address,
                f"a file of {size:,} bytes",
                f"one of {start + len(data):,}",
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


def blocks_between(file: str, start: int, stop: int) -> list[Key]:
    """Return the blocks that hold bytes ``start`` to ``stop`` of a file."""
    if start >= stop:
        return []
    return [(file, block) for block in range(start // BLOCK, -(-stop // BLOCK))]


def _runs_of_neighbours(keys: list[Key]) -> Iterator[list[Key]]:
    """Divide sorted blocks into neighbours that are requested together."""
    run: list[Key] = []
    following = None
    for key in keys:
        if run and (key != following or len(run) == _TOGETHER):
            yield run
            run = []
        run.append(key)
        following = (key[0], key[1] + 1)
    if run:
        yield run


@dataclass(frozen=True)
class RemoteBuild(Build):
    """A build at an address; ``path`` is its folder in the cache."""

    address: str
    copies: Copies
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
        """Open a shard, or a file next to one, by name."""
        if not self.copies.sizes.get(file):
            raise damaged_error(
                f"{self.address}/{file}",
                "a file, as a card names it",
                "none, or an empty one",
            )
        self.copies.fetch_blocks((name, 0) for name in self._first_blocks.get(file, ()))
        return RemoteShard(self, file)

    @functools.cached_property
    def _first_blocks(self) -> dict[str, list[str]]:
        """Files whose first blocks are fetched together, by the first of each group of shards."""
        files = [entry.file for entry in self.card.shards if entry.bytes]
        groups = [files[start : start + _HEADS] for start in range(0, len(files), _HEADS)]
        return {group[0]: group for group in groups}

    def fetch_rows(self, rows: Sequence[tuple[Shard, str, int, int]]) -> None:
        """Fetch the blocks of these rows (shard, key, first, end) together."""
        ranges = []
        size = 0
        for shard, key, first, end in rows:
            if not isinstance(shard, RemoteShard):
                continue
            for start, stop in shard.byte_ranges(key, first, end):
                ranges.append((shard.file, start, stop))
                size += stop - start
        # Too little memory is a MemoryError before anything is fetched.
        np.empty(size, np.uint8)
        blocks = []
        for file_range in ranges:
            blocks += blocks_between(*file_range)
        self.copies.fetch_blocks(blocks)


class RemoteShard(Shard):
    """A remote shard: read by block instead of mapped, otherwise checked and read like any other."""

    def __init__(self, build: RemoteBuild, file: str) -> None:
        self.file = file
        self._copies = build.copies
        # HDF5 holds h5py's lock while it reads. A fetching thread could garbage-collect objects of
        # h5py and wait for that lock, so missing blocks are fetched between two attempts to open.
        while True:
            source = _Opened(build.copies, file)
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
            build.copies.fetch_blocks(source.missing)

    def mapped_view(self, key: str) -> Array | None:
        """Return None: a remote shard is never mapped."""
        return None

    def read(self, key: str, start: int, stop: int) -> Array:
        """Copy rows ``start:stop`` of a dataset (columns of ``edge/index``), as :meth:`Shard.read` does."""
        entry = self._expected_dataset(key)
        parts = []
        for first, end in self.byte_ranges(key, start, stop):
            parts.append(self._copies.read(self.file, first, end))
        rows = np.concatenate(parts).view(entry.dtype)
        if entry.row_axis:
            return rows.reshape((*entry.row, stop - start))
        return rows.reshape((stop - start, *entry.row))

    def byte_ranges(self, key: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges of rows ``start:stop`` of a dataset in the file."""
        entry = self._expected_dataset(key)
        offset = self._offsets[key] or 0
        size = entry.dtype.itemsize if entry.row_axis else entry.row_bytes
        for plane in range(entry.row[0] if entry.row_axis else 1):
            first = offset + plane * size * self.edges
            yield first + start * size, first + stop * size


class _Opened(RandomAccess):
    """A remote file for HDF5; ``missing`` are the blocks that a read lacked."""

    def __init__(self, copies: Copies, file: str) -> None:
        super().__init__(copies.sizes[file], self._read_fetched)
        self._copies = copies
        self._file = file
        self.missing: list[Key] = []

    def _read_fetched(self, start: int, stop: int) -> memoryview:
        keys = blocks_between(self._file, start, stop)
        self.missing += [key for key in keys if not self._copies.has_block(key)]
        if self.missing:
            raise OSError("not fetched yet")
        return self._copies.read(self._file, start, stop).data


def open_remote_build(address: str, home: Home) -> RemoteBuild:
    """Open a pushed build without pulling it.

    Raises ``UsageError`` where no build was pushed there, or the server sends whole files only;
    ``DamagedInput`` where something is not what was pushed; ``SourceUnavailable`` if the server
    does not respond.
    """
    remote = Remote(address, patient=True)
    share, digests = read_share(remote)
    address = remote.address
    if share.kind != "build":
        raise UsageError(
            f"{address} is not a build but a {share.kind}.",
            next=pull_command(address),
        )

    # 1. Copy the card, the splits and the cards of added columns.
    sizes = {}
    blocks = []
    for pushed in share.files:
        if pushed.file.startswith("splits/") or pushed.file.endswith(CARD_NAME):
            sizes[pushed.file] = pushed.bytes
            blocks += blocks_between(pushed.file, 0, pushed.bytes)
    size = sum(sizes.values())
    if not sizes.get(CARD_NAME) or size > _MAX_SMALL:
        raise damaged_error(
            f"{address}/{SHARE_NAME}",
            f"{CARD_NAME}, with splits at most {_MAX_SMALL:,} bytes",
            f"{size:,} bytes",
        )
    folder = home.cache / "builds" / f"{share.name}-{share.digest[:32]}"
    with convert_write_errors(folder):
        home.path.mkdir(parents=True, exist_ok=True)
    copies = Copies(remote, share, digests, folder, home.path)
    copies.fetch_blocks(blocks)

    # 2. Compare the card with the manifest of the push.
    try:
        card = read_card(folder)
    except DamagedInput as error:
        raise damaged_error(
            f"{address}/{CARD_NAME}",
            error.expected or "",
            error.found or "",
        ) from error
    contents = {(pushed.file, pushed.bytes, pushed.sha256) for pushed in share.files}
    for entry in card.shards:
        if entry.members:
            raise UsageError(
                f"{address} cannot be read remotely: "
                f"{entry.file} is cut into {len(entry.members)} files.",
                next=pull_command(address),
            )
        if (entry.file, entry.bytes, entry.sha256) not in contents:
            raise damaged_error(
                f"{address}/{SHARE_NAME}",
                f"{entry.file} as {CARD_NAME} names it",
                "another, or none",
            )
    return RemoteBuild(folder, card, address, copies)
