"""Remote builds: card and splits are copied, shards are read by block."""

from __future__ import annotations

import functools
import gc
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.builds.home import COLUMNS, Build, Home
from kmip_data.errors import DamagedInput, KmipDataError, UsageError, writing
from kmip_data.files.changes import make_folder, write_file
from kmip_data.files.reading import MAX_BYTES, read_small
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.format.reader import Shard
from kmip_data.sharing.blocks import BlockCache, Blocks, blocks_between, cache_bytes
from kmip_data.sharing.remote import Remote, not_pushed, pull_command
from kmip_data.sharing.share import BLOCKS_NAME, SHARE_NAME, BlockDigests, Share, damaged, parse_share

_MOST_SMALL: Final = 2**28  #: bytes of card and splits, which are read whole
_HEADS: Final = 32  #: shards whose first blocks are fetched together


@dataclass(frozen=True)
class BuildAfar(Build):
    """A build at an address; ``path`` is a folder in the cache with its card, splits and no shards."""

    address: str
    blocks: Blocks
    waits: ClassVar[bool] = True

    @property
    def location(self) -> str:
        """The address."""
        return self.address

    @property
    def remedy(self) -> str:
        """Advice for a damaged file."""
        return f"ask whoever pushed it to push it again, or {pull_command(self.address)}"

    def shard(self, file: str) -> Shard:
        """Open one of its shards, or a file next to one, by its name."""
        if not self.blocks.sizes.get(file):
            raise damaged(f"{self.address}/{file}", "a file, as a card names it", "none, or an empty one")
        self.blocks.take((name, 0) for name in self._heads.get(file, ()))
        return ShardAfar(self, file)

    @functools.cached_property
    def _heads(self) -> dict[str, list[str]]:
        """Files whose first blocks are fetched together, by the first of each group of shards."""
        files = [entry.file for entry in self.card.shards if entry.bytes]
        return {files[at]: files[at : at + _HEADS] for at in range(0, len(files), _HEADS)}

    def bring(self, rows: Sequence[tuple[Shard, str, int, int]]) -> object:
        """Fetch the blocks of these rows (shard, key, first, end) at once; the caller keeps the result."""
        ranges = [
            (shard.file, *place)
            for shard, key, first, end in rows
            if isinstance(shard, ShardAfar)
            for place in shard.places(key, first, end)
        ]
        # What does not fit into memory is a MemoryError before it is fetched.
        np.empty(sum(stop - start for _, start, stop in ranges), np.uint8)
        return self.blocks.take(block for place in ranges for block in blocks_between(*place))


class ShardAfar(Shard):
    """A remote shard: read by block instead of mapped, otherwise checked and read like any other."""

    def __init__(self, build: BuildAfar, file: str) -> None:
        self.file, self._blocks = file, build.blocks
        name, source = f"{build.address}/{file}", _Opened(build.blocks, file)
        try:
            super().__init__(build.path / file, source)
        except DamagedInput as error:
            if source.failure is not None:  # which HDF5 reports as if the file was damaged
                raise source.failure from None
            raise DamagedInput(
                error.what.replace(str(self.path), name),
                expected=error.parts["expected"],
                found=error.parts["found"],
                next=build.remedy,
            ) from error
        for key, entry in self.layout.items():
            shape = entry.shape(self.graphs, self.nodes, self.edges)
            if self._offsets[key] is None and 0 not in shape:
                raise UsageError(
                    f"{build.address} cannot be read from afar: it is compressed.",
                    next=pull_command(build.address),
                )

    def mapped(self, key: str) -> NDArray[Any] | None:
        """Return None: a remote shard is never mapped."""
        return None

    def read(self, key: str, start: int, stop: int) -> NDArray[Any]:
        """Copy rows ``start:stop`` of a dataset (columns of ``edge/index``), as :meth:`Shard.read` does."""
        entry = self._entry(key)
        parts = [self._blocks.read(self.file, low, high) for low, high in self.places(key, start, stop)]
        rows = np.concatenate(parts).view(entry.dtype)
        return rows.reshape((*entry.row, stop - start) if entry.axis else (stop - start, *entry.row))

    def places(self, key: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of bytes in the file that rows ``start:stop`` of a dataset lie in."""
        entry, offset = self._entry(key), self._offsets[key] or 0
        size = entry.dtype.itemsize if entry.axis else entry.row_bytes
        for plane in range(entry.row[0] if entry.axis else 1):
            first = offset + plane * size * self.edges
            yield first + start * size, first + stop * size


class _Opened(io.RawIOBase):
    """A file of blocks as HDF5 reads it; ``failure`` is why a block could not be had."""

    def __init__(self, blocks: Blocks, file: str) -> None:
        self._blocks, self._file, self._at = blocks, file, 0
        self.failure: KmipDataError | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._blocks.sizes[self._file]}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._at + len(view), self._blocks.sizes[self._file])
        count = max(0, stop - self._at)
        # HDF5 calls this under h5py's lock and waits for threads that fetch. If one of them collected garbage
        # with objects of h5py in it, those of a refused file, it would wait for that lock in turn.
        collecting = gc.isenabled()
        gc.disable()
        try:
            view[:count] = self._blocks.read(self._file, self._at, self._at + count).data
        except KmipDataError as error:
            self.failure = error
            raise
        finally:
            if collecting:
                gc.enable()
        self._at += count
        return count


def open_afar(address: str, home: Home) -> BuildAfar:
    """Open a pushed build where it lies.

    Raises ``UsageError`` where no build was pushed there, it is compressed, or the server gives whole files
    only; ``DamagedInput`` where something is not what was pushed; ``SourceUnavailable`` where nobody answers.
    """
    remote, most = Remote(address), cache_bytes()
    address = remote.address
    data = remote.range(SHARE_NAME, 0, MAX_BYTES)
    if data is None:
        raise not_pushed(address)
    share = parse_share(data, address)
    if share.kind != "build":
        raise UsageError(f"{address} is not a build but a {share.kind}.", next=pull_command(address))
    digests = BlockDigests(share, remote.range(BLOCKS_NAME, 0, share.blocks_bytes + 1) or b"", address)
    sizes = {entry.file: entry.bytes for entry in share.files}
    blocks = Blocks(remote, sizes, digests, BlockCache(home.cache / "blocks", most) if most else None)
    small = [file for file in sizes if _is_small(file)]
    if CARD_NAME not in sizes or (total := sum(sizes[file] for file in small)) > _MOST_SMALL:
        found = f"no {CARD_NAME}" if CARD_NAME not in sizes else f"{total:,} bytes of them"
        raise damaged(
            f"{address}/{SHARE_NAME}", f"a card, and splits of at most {_MOST_SMALL:,} bytes", found
        )
    folder = home.cache / "afar" / f"{share.name}-{share.digest[:32]}"
    with writing(folder):
        home.root.mkdir(parents=True, exist_ok=True)
        for file in small:
            path, content = folder / file, blocks.read(file, 0, sizes[file]).tobytes()
            make_folder(path.parent, root=home.root)
            if not _holds(path, content):
                write_file(path, content, root=home.root)
    try:
        card = read_card(folder)
    except DamagedInput as error:
        parts = error.parts
        raise damaged(f"{address}/{CARD_NAME}", parts["expected"] or "", parts["found"] or "") from error
    _check_shards(card, share, address)
    return BuildAfar(folder, card, address, blocks)


def _is_small(file: str) -> bool:
    """True if a file is copied completely: the card, a split, the card of an added column."""
    folder, _, name = file.rpartition("/")
    return file == CARD_NAME or folder == "splits" or (folder.startswith(f"{COLUMNS}/") and name == CARD_NAME)


def _check_shards(card: Card, share: Share, address: str) -> None:
    """Refuse a card that names other shards than the manifest."""
    pushed = share.by_name()
    for entry in card.shards:
        found = pushed.get(entry.file)
        if found is None or (found.bytes, found.sha256) != (entry.bytes, entry.sha256):
            raise damaged(
                f"{address}/{SHARE_NAME}", f"{entry.file} as {CARD_NAME} names it", "another, or none"
            )


def _holds(path: Path, data: bytes) -> bool:
    """True if a file has these bytes; one that has grown is not read."""
    try:
        return read_small(path, len(data)) == data
    except OSError:
        return False
