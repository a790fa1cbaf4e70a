"""Exports of a build: Parquet, PyTorch Geometric's ``InMemoryDataset`` and litData's chunks, by part."""

from __future__ import annotations

import glob
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from torch_geometric.data import Data, InMemoryDataset

from kmip_data.arrays import I64
from kmip_data.builds.home import Build
from kmip_data.errors import UsageError, writing
from kmip_data.files import changes as files
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.runtime.progress import Progress
from kmip_data.saving.parquet import parts_of, write_parquet

Format = Literal["parquet", "pt", "litdata"]
_CHUNK_BYTES: Final = 2**26  #: litData's chunks, of which one is in memory
#: dtypes that litData 0.2.76 cannot store
_NOT_IN_LITDATA: Final = {"uint32", "uint64"}


def export(build: Build, to: Format, folder: Path, *, quiet: bool = False) -> dict[str, Path]:
    """Write a build in another format into a new folder; return the path of each part.

    ``parquet``: ``PART.parquet``, see :mod:`kmip_data.saving.parquet`. ``pt``: ``PART.pt``, read by
    ``InMemoryDataset.load``; all graphs of a part are in memory. ``litdata``: folders ``PART``, read by
    ``litdata.StreamingDataset``, with items of :class:`torch_geometric.data.Data`. Parts are those of
    :func:`~kmip_data.saving.parquet.parts_of`.

    A hidden folder next to ``folder`` is written and renamed at the end; the next call removes that of one
    that was killed.

    Raises ``UsageError`` where the folder exists, a package is missing, or the format cannot hold the
    data; ``OutOfResources`` where the disk is full.
    """
    scratch = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")
    with files.build_lock(folder, quiet=quiet), writing(folder, left="nothing"):
        if os.path.lexists(folder):
            raise UsageError(f"{folder} already exists.", next="another --output folder")
        for stale in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 32}.partial"):
            files.remove_scratch(stale)  # of an export that was killed
        scratch.mkdir()
        try:
            found = _WRITERS[to](build, scratch, quiet=quiet)
            for path in scratch.rglob("*"):
                files.fsync_path(path)
            files.move(scratch, folder)
        except BaseException:
            files.remove_scratch(scratch)
            raise
    return {part: folder / path.name for part, path in found.items()}


def _items(build: Build, records: I64, progress: Progress) -> Iterator[Data]:
    """Yield the items of records, one in memory at a time."""
    dataset = ShardedDataset(build)
    for record in records.tolist():
        progress.update(1)
        yield dataset[record]


def _write_pt(build: Build, folder: Path, *, quiet: bool) -> dict[str, Path]:
    parts = parts_of(build)
    paths = {part: folder / f"{part}.pt" for part in parts}
    with Progress(f"export {build.path.name}", build.card.counts["graphs"], quiet=quiet) as progress:
        for part, records in parts.items():
            InMemoryDataset.save(list(_items(build, records, progress)), str(paths[part]))
    return paths


def _write_litdata(build: Build, folder: Path, *, quiet: bool) -> dict[str, Path]:
    """Write chunks of 64 MiB in this process: ``litdata.optimize`` starts others and asks a server."""
    try:
        from litdata.streaming.writer import BinaryWriter
    except ImportError as error:
        what = "The format litdata needs the package litdata, which is not installed here."
        raise UsageError(what, found=str(error), next="pip install litdata (see docs/sharing.md)") from error
    for column in build.card.schema_.columns:
        if column.presented in _NOT_IN_LITDATA:
            what = f"litData cannot store {column.attribute}, which is {column.presented}."
            raise UsageError(what, next="--to parquet, or --to pt")
    parts = parts_of(build)
    with Progress(f"export {build.path.name}", build.card.counts["graphs"], quiet=quiet) as progress:
        for part, records in parts.items():
            writer = BinaryWriter(str(folder / part), chunk_bytes=_CHUNK_BYTES)
            for at, item in enumerate(_items(build, records, progress)):
                writer.add_item(at, item)
            writer.done()
            writer._merge_no_wait()  # noqa: SLF001 -- merge() waits for others where WORLD_SIZE is set
    return {part: folder / part for part in parts}


_WRITERS: Final[dict[Format, Callable[..., dict[str, Path]]]] = {
    "parquet": write_parquet,
    "pt": _write_pt,
    "litdata": _write_litdata,
}
