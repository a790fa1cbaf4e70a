"""Exports of a build by part: Parquet and PyTorch Geometric's ``InMemoryDataset``."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch_geometric.data import InMemoryDataset

from kmip_data.arrays import I64, Array
from kmip_data.builds.home import Build
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.reading import readable_json, sha256_file
from kmip_data.format.build_files import CROISSANT_NAME, PAGE_NAME
from kmip_data.format.croissant import build_croissant
from kmip_data.format.split_files import NODE_PARTS
from kmip_data.format.writer import MEMBER_BYTES
from kmip_data.reading import gather
from kmip_data.reading.assemble import Assembler, item_fields
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.store import shared_store
from kmip_data.runtime.extras import require_extra
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.saving import ExportFormat
from kmip_data.sharing.push import PARQUET, dataset_page
from kmip_data.text import human_bytes

if TYPE_CHECKING:
    import pyarrow as pa

#: Croissant's types, by dtype, other than types of numbers.
_DATA_TYPES = {"object": "sc:Text", "bool": "sc:Boolean"}
_GROUP_BYTES = 2**26  #: bytes of arrays in memory: a row group, or one larger graph


def records_by_part(build: Build) -> dict[str, I64]:
    """Return the records of each part of the default split, in its order, leaving out empty parts.

    Records of no part are ``unassigned``. Without a split of records all are ``graphs``: a single
    graph has masks of its nodes instead.
    """
    store = shared_store(build)
    name = build.card.default_split
    parts: dict[str, I64] = {}
    if name:
        parts |= store.read_split(build.card.splits[name]).parts or {}
    # Lose no record: those in no part get their own file.
    rest = "unassigned" if parts else "graphs"
    while rest in parts:
        rest += "_"
    taken = np.concatenate([np.empty(0, np.int64), *parts.values()])
    parts[rest] = np.setdiff1d(np.arange(len(store)), taken)
    return {part: records for part, records in parts.items() if len(records)}


class _Tables:
    """Arrow tables of records of a build."""

    def __init__(self, build: Build) -> None:
        self._store = shared_store(build)
        fields, edges = item_fields(self._store.schema)
        self._assembler = Assembler(self._store, fields, edges=edges, lengths=False)
        self._fields = {field.attribute: field for field in fields}
        self._keys = self._store.keys()
        self._masks = {}
        name = build.card.default_split
        code = self._store.read_split(build.card.splits[name]).node_code if name else None
        if code is not None:
            self._masks = {f"{part}_mask": code == value for part, value in NODE_PARTS.items()}

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """Names and types of the columns, from the first record."""
        return self.rows_as_table("", np.arange(1)).schema

    def row_groups(self, records: I64) -> Iterator[I64]:
        """Divide records into row groups."""
        # Bytes of a node, an edge and a graph, times how many each record has.
        rows = np.zeros(3, np.int64)
        for field in self._fields.values():
            row_bytes = field.presented.itemsize * math.prod(field.shape)
            rows[gather.LEVELS[field.level]] += row_bytes
        rows[gather.EDGE] += 16 * self._assembler.edges  # two int64

        size = np.cumsum(rows @ self._store.count[:, records])
        group = size // _GROUP_BYTES
        starts = np.flatnonzero(np.diff(group)) + 1
        yield from np.split(records, starts)

    def rows_as_table(self, part: str, records: I64) -> pa.Table:
        """Return the rows of records of a part."""
        import pyarrow as pa

        values, pointers = self._assembler.gather(records)
        columns: dict[str, object] = {
            "key": [self._keys[record] for record in records.tolist()],
            "split": [part] * len(records),
        }
        for name in self._assembler.names:
            columns[name] = self._arrow_column(name, values[name].numpy(), pointers)
        if self._assembler.adds_num_nodes:
            columns["num_nodes"] = np.diff(pointers[gather.NODE])
        for name, mask in self._masks.items():
            columns[name] = [mask]
        return pa.table(columns)

    def _arrow_column(self, name: str, values: Array, pointers: I64) -> object:
        import pyarrow as pa

        field = self._fields.get(name)
        if field is None:
            return self._edge_list_column(values, pointers)
        if field.form == "text":
            return [bytes(row).rstrip(b"\0").decode("utf-8", "replace") for row in values]

        # Nested from the last axis of a row outwards; then the rows of each graph.
        array = pa.array(values.reshape(-1))
        for axis, size in reversed(list(enumerate(field.shape, start=1))):
            if size:  # a fixed size of zero crashes pyarrow by a division
                array = pa.FixedSizeListArray.from_arrays(array, size)
            else:
                empty = np.zeros(math.prod(values.shape[:axis]) + 1, np.int64)
                array = self._list_array(array, empty)
        if field.level == "graph":
            return array
        return self._list_array(array, pointers[gather.LEVELS[field.level]])

    def _edge_list_column(self, index: Array, pointers: I64) -> object:
        """Return two lists per graph, of nodes numbered within it."""
        import pyarrow as pa

        edges = pointers[gather.EDGE]
        counts = np.diff(edges)
        # A batch numbers nodes over all its graphs, a row of the table within one.
        index = index - np.repeat(pointers[gather.NODE, :-1], counts)
        pairs = [index[:, start:stop].reshape(-1) for start, stop in itertools.pairwise(edges)]

        lengths = np.repeat(counts, 2)
        inner = np.concatenate([[0], np.cumsum(lengths)])
        lists = self._list_array(pa.array(np.concatenate(pairs)), inner)
        return self._list_array(lists, np.arange(0, len(inner), 2))

    def _list_array(self, array: object, offsets: I64) -> object:
        import pyarrow as pa

        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), array)


def write_parquet(build: Build, folder: Path, *, quiet: bool = False) -> dict[str, Path]:
    """Write ``PART.parquet`` of each part into an existing folder, and return the paths by part.

    Memory holds one row group: 64 MiB of arrays, or one larger graph. Raises ``UsageError`` where
    pyarrow is not installed, a graph is too large for a row, or an attribute cannot be a column.
    """
    require_extra("parquet", "Parquet")
    for shard in build.card.shards:
        size = shard.bytes // max(shard.graphs, 1)
        if size > MEMBER_BYTES:
            raise UsageError(
                f"A graph of {human_bytes(size)} is too large for one row of Parquet.",
                next="read its shard with kmip_data.open, or by HDF5",
            )
    import pyarrow as pa
    from pyarrow import parquet

    paths = {}
    with Progress(
        f"parquet {build.path.name}", build.card.counts["graphs"], quiet=quiet
    ) as progress:
        try:
            tables = _Tables(build)
            for part, records in records_by_part(build).items():
                path = folder / f"{part}.parquet"
                paths[part] = path
                with (
                    convert_write_errors(path),
                    parquet.ParquetWriter(path, tables.schema, compression="zstd") as writer,
                ):
                    for group in tables.row_groups(records):
                        writer.write_table(tables.rows_as_table(part, group))
                        progress.update(len(group))
        except (pa.ArrowException, OverflowError) as error:
            raise UsageError(
                f"{build.path} cannot be written as Parquet.",
                found=f"{type(error).__name__}: {str(error)[:300]}",
            ) from error
    return paths


def parquet_view(build: Build, scratch: Path, *, quiet: bool = False) -> Mapping[str, Path | bytes]:
    """Write the Parquet view of a push into ``scratch``.

    Returns its files, with its page and Croissant description.

    Returns nothing, with a line on stderr, if pyarrow is missing or the view cannot be written.
    """
    try:
        files = write_parquet(build, scratch, quiet=quiet)
    except KmipDataError as error:
        print_status(
            f"Pushed without the Parquet view: {' '.join(str(error).split())}", quiet=quiet
        )
        return {}
    names = {part: f"{PARQUET}/{path.name}" for part, path in files.items()}
    view: dict[str, Path | bytes] = {names[part]: path for part, path in files.items()}
    view[CROISSANT_NAME] = readable_json(_croissant_with_records(build, files, names)).encode()
    view[PAGE_NAME] = dataset_page(build, names)
    return view


def _croissant_with_records(
    build: Build, files: Mapping[str, Path], names: Mapping[str, str]
) -> dict[str, object]:
    """Return the Croissant of a build with its Parquet files, and a record set for each."""
    croissant = build_croissant(build.card)
    tables = _Tables(build)
    meaning = {column.attribute: column.doc for column in build.card.schema_.columns}

    croissant["recordSet"] = []
    # A file and a record set for each part, so that a reader can take one alone.
    for part, path in files.items():
        file = names[part]
        croissant["distribution"].append(
            {
                "@type": "cr:FileObject",
                "encodingFormat": "application/x-parquet",
                "@id": file,
                "name": file,
                "contentUrl": file,
                "sha256": sha256_file(path)[0],
                "contentSize": f"{path.stat().st_size} B",
            }
        )
        columns = []
        for column in tables.schema:
            name = column.name
            entry = {
                "@type": "cr:Field",
                "@id": f"{part}/{name}",
                "name": name,
                "description": meaning.get(name) or name,
                "source": {"fileObject": {"@id": file}, "extract": {"column": name}},
            }
            columns.append(entry | _croissant_data_type(name, column.type))
        croissant["recordSet"].append(
            {
                "@type": "cr:RecordSet",
                "@id": part,
                "name": part,
                "description": f"Graphs of {part}, one a record.",
                "field": columns,
            }
        )
    return croissant


def _croissant_data_type(name: str, kind: pa.DataType) -> dict[str, object]:
    """Return the Arrow type of a column as type and shape in the words of Croissant."""
    shape = []
    while hasattr(kind, "value_type"):
        shape.append(getattr(kind, "list_size", -1))  # −1: any length
        kind = kind.value_type
    if name == "edge_index":
        shape = [2, -1]
    dtype = np.dtype(kind.to_pandas_dtype()).name
    data_type = _DATA_TYPES.get(dtype) or f"cr:{dtype.capitalize().replace('Ui', 'UI')}"
    description: dict[str, object] = {"dataType": data_type}
    if shape:
        description |= {"isArray": True, "arrayShape": ",".join(map(str, shape))}
    return description


def export(build: Build, to: ExportFormat, folder: Path, *, quiet: bool = False) -> dict[str, Path]:
    """Write a build in another format into a new folder; return the path of each part.

    ``parquet``: ``PART.parquet``, see :func:`write_parquet`. ``pt``: ``PART.pt``, read by
    ``InMemoryDataset.load``; all graphs of a part are in memory. Parts are the parts of
    :func:`~kmip_data.saving.export.records_by_part`.

    A hidden folder next to ``folder`` is written and renamed at the end; the next call removes the
    remains of a killed one, and returns a finished one of the same build and format.

    Raises ``UsageError`` where the folder holds anything else, a package is missing, or the format
    cannot hold the data; ``OutOfResources`` where the disk is full.
    """
    card = build.card.to_json().encode()
    content = f"export {to} of {hashlib.sha256(card).hexdigest()}"
    if os.path.lexists(folder):
        paths = {part: folder / f"{part}.{to}" for part in records_by_part(build)}
        finished = all(path.is_file() for path in paths.values())
        if finished and atomic_writes.marker_content(folder) == content:
            return paths
        raise UsageError(f"{folder} already exists.", next="use another --output folder")
    with atomic_writes.new_folder(folder, content, quiet=quiet) as scratch:
        written = WRITERS[to](build, scratch, quiet=quiet)
        for path in scratch.rglob("*"):
            atomic_writes.fsync_path(path)
    return {part: folder / path.name for part, path in written.items()}


def _write_pt(build: Build, folder: Path, *, quiet: bool) -> dict[str, Path]:
    dataset = ShardedDataset(build)
    paths = {}
    with Progress(
        f"export {build.path.name}", build.card.counts["graphs"], quiet=quiet
    ) as progress:
        for part, records in records_by_part(build).items():
            items = []
            for record in records.tolist():
                items.append(dataset[record])
                progress.update(1)
            paths[part] = folder / f"{part}.pt"
            InMemoryDataset.save(items, str(paths[part]))
    return paths


#: Writer of each format: takes the build and a folder, returns the file of each part.
WRITERS: dict[ExportFormat, Callable[..., dict[str, Path]]] = {
    "parquet": write_parquet,
    "pt": _write_pt,
}
