"""Parquet files of a push, and export to PyTorch Geometric's ``InMemoryDataset``."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch_geometric.data import InMemoryDataset

from kmip_data.arrays import I64, Array
from kmip_data.builds.home import Build
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import readable_json, sha256_file
from kmip_data.format.build_files import CROISSANT_NAME, PAGE_NAME
from kmip_data.format.croissant import build_croissant
from kmip_data.format.split_files import PART_CODES
from kmip_data.format.writer import MEMBER_BYTES
from kmip_data.reading import gather
from kmip_data.reading.assemble import BatchAssembler, item_fields
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.store import shared_store
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.sharing.push import PARQUET_FOLDER, dataset_page
from kmip_data.text import human_bytes

if TYPE_CHECKING:
    import pyarrow as pa

#: Croissant's data types that are not numeric, by dtype.
_NON_NUMERIC_TYPES = {"object": "sc:Text", "bool": "sc:Boolean"}
_ROW_GROUP_BYTES = 2**26  #: array bytes of a row group, unless a single graph is larger


def records_by_part(build: Build) -> dict[str, I64]:
    """Return the records of each non-empty part of the default split, in order.

    Records in no part are ``unassigned``. Without a split of graphs, all records are ``graphs``; a
    single graph has node masks instead.
    """
    store = shared_store(build)
    name = build.card.default_split
    parts: dict[str, I64] = {}
    if name:
        parts |= store.read_split(build.card.splits[name]).parts or {}
    # Records in no part get their own file, so that none is lost.
    rest = "unassigned" if parts else "graphs"
    while rest in parts:
        rest += "_"
    assigned = np.concatenate([np.empty(0, np.int64), *parts.values()])
    parts[rest] = np.setdiff1d(np.arange(len(store)), assigned)
    return {part: records for part, records in parts.items() if len(records)}


class _ArrowTables:
    """Arrow tables of the records of a build."""

    def __init__(self, build: Build) -> None:
        self._store = shared_store(build)
        fields, edges = item_fields(self._store.schema)
        self._assembler = BatchAssembler(self._store, fields, edges=edges, lengths=False)
        self._fields = {field.attribute: field for field in fields}
        self._keys = self._store.keys()
        self._masks = {}
        name = build.card.default_split
        code = self._store.read_split(build.card.splits[name]).part_codes if name else None
        if code is not None:
            self._masks = {f"{part}_mask": code == value for part, value in PART_CODES.items()}

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """Column names and types, from the first record."""
        return self.rows_as_table("", np.arange(1)).schema

    def row_groups(self, records: I64) -> Iterator[I64]:
        """Divide records into row groups."""
        bytes_per_row = np.zeros(3, np.int64)  # of each level
        for field in self._fields.values():
            row_bytes = field.presented.itemsize * math.prod(field.shape)
            bytes_per_row[gather.LEVELS[field.level]] += row_bytes
        bytes_per_row[gather.EDGE] += 16 * self._assembler.edges  # two int64

        size = np.cumsum(bytes_per_row @ self._store.row_count[:, records])
        group = size // _ROW_GROUP_BYTES
        starts = np.flatnonzero(np.diff(group)) + 1
        yield from np.split(records, starts)

    def rows_as_table(self, part: str, records: I64) -> pa.Table:
        """Return a table of the given records of a part."""
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

        # Nest lists from the last axis of a row outwards, then by graph.
        array = pa.array(values.reshape(-1))
        for axis, size in reversed(list(enumerate(field.shape, start=1))):
            if size:  # pyarrow crashes on a fixed size of zero
                array = pa.FixedSizeListArray.from_arrays(array, size)
            else:
                offsets = np.zeros(math.prod(values.shape[:axis]) + 1, np.int64)
                array = self._list_array(array, offsets)
        if field.level == "graph":
            return array
        return self._list_array(array, pointers[gather.LEVELS[field.level]])

    def _edge_list_column(self, index: Array, pointers: I64) -> object:
        """Return the list of sources and the list of targets of each graph, numbered within it."""
        import pyarrow as pa

        edges = pointers[gather.EDGE]
        counts = np.diff(edges)
        # Batches number nodes over all graphs; table rows number them within one graph.
        index = index - np.repeat(pointers[gather.NODE, :-1], counts)
        pairs = [index[:, start:stop].reshape(-1) for start, stop in itertools.pairwise(edges)]

        lengths = np.repeat(counts, 2)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        lists = self._list_array(pa.array(np.concatenate(pairs)), offsets)
        return self._list_array(lists, np.arange(0, len(offsets), 2))

    def _list_array(self, array: object, offsets: I64) -> object:
        import pyarrow as pa

        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), array)


def write_parquet(build: Build, folder: Path, *, quiet: bool = False) -> dict[str, Path]:
    """Write ``PART.parquet`` for each part into an existing folder, and return the paths by part.

    Memory holds one row group at a time: 64 MiB of arrays, or one larger graph. Raises
    ``UsageError`` if a graph is too large for a row, or an attribute cannot be a column.
    """
    for shard in build.card.shards:
        size = shard.bytes // max(shard.graphs, 1)
        if size > MEMBER_BYTES:
            raise UsageError(
                f"A graph of {human_bytes(size)} is too large for one row of Parquet.",
                steps="read its shard with kmip_data.open, or by HDF5",
            )
    import pyarrow as pa
    from pyarrow import parquet

    paths = {}
    with Progress(
        f"parquet {build.path.name}", build.card.counts["graphs"], quiet=quiet
    ) as progress:
        try:
            tables = _ArrowTables(build)
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
    """Write the Parquet view of a push into ``scratch``; return its files, page and Croissant.

    If the view cannot be written, print the reason and return no files.
    """
    try:
        files = write_parquet(build, scratch, quiet=quiet)
    except KmipDataError as error:
        print_status(
            f"Pushed without the Parquet view: {error.message} {'; '.join(map(str, error.steps))}",
            quiet=quiet,
        )
        return {}
    names = {part: f"{PARQUET_FOLDER}/{path.name}" for part, path in files.items()}
    view: dict[str, Path | bytes] = {names[part]: path for part, path in files.items()}
    view[CROISSANT_NAME] = readable_json(_croissant_with_records(build, files, names)).encode()
    view[PAGE_NAME] = dataset_page(build, names)
    return view


def _croissant_with_records(
    build: Build, files: Mapping[str, Path], names: Mapping[str, str]
) -> dict[str, object]:
    """Return the Croissant of a build with a record set for each Parquet file."""
    croissant = build_croissant(build.card)
    tables = _ArrowTables(build)
    descriptions = {column.attribute: column.doc for column in build.card.schema_.columns}

    croissant["recordSet"] = []
    # One file and record set per part, so that readers can load a single part.
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
                "description": descriptions.get(name) or name,
                "source": {"fileObject": {"@id": file}, "extract": {"column": name}},
            }
            columns.append(entry | _croissant_data_type(name, column.type))
        croissant["recordSet"].append(
            {
                "@type": "cr:RecordSet",
                "@id": part,
                "name": part,
                "description": f"Graphs of {part}, one per record.",
                "field": columns,
            }
        )
    return croissant


def _croissant_data_type(name: str, arrow_type: pa.DataType) -> dict[str, object]:
    """Translate the Arrow type of a column to Croissant's data type and shape."""
    shape = []
    while hasattr(arrow_type, "value_type"):
        shape.append(getattr(arrow_type, "list_size", -1))  # −1: any length
        arrow_type = arrow_type.value_type
    if name == "edge_index":
        shape = [2, -1]
    dtype = np.dtype(arrow_type.to_pandas_dtype()).name
    data_type = _NON_NUMERIC_TYPES.get(dtype) or f"cr:{dtype.capitalize().replace('Ui', 'UI')}"
    description: dict[str, object] = {"dataType": data_type}
    if shape:
        description |= {"isArray": True, "arrayShape": ",".join(map(str, shape))}
    return description


def export(build: Build, folder: Path, *, quiet: bool = False) -> dict[str, Path]:
    """Write each part of a build as ``PART.pt`` into a new folder; return the path of each part.

    ``InMemoryDataset.load`` of PyTorch Geometric reads the files. Memory holds all graphs of a part.
    The parts are those of :func:`records_by_part`.

    Files are written to a hidden folder next to ``folder``, which is renamed at the end. The next
    call removes the remains of a killed export, and returns a finished one of the same build.

    Raises ``UsageError`` if the folder holds anything else; ``OutOfResources`` if the disk is full.
    """
    card = build.card.to_json().encode()
    content = f"export of {hashlib.sha256(card).hexdigest()}"
    parts = records_by_part(build)
    paths = {part: folder / f"{part}.pt" for part in parts}
    if os.path.lexists(folder):
        is_finished = all(path.is_file() for path in paths.values())
        if is_finished and atomic_writes.marker_content(folder) == content:
            return paths
        raise UsageError(f"{folder} already exists.", steps="use another folder")

    dataset = ShardedDataset(build)
    graphs = build.card.counts["graphs"]
    with (
        atomic_writes.new_folder(folder, content, quiet=quiet) as scratch,
        Progress(f"export {build.path.name}", graphs, quiet=quiet) as progress,
    ):
        for part, records in parts.items():
            items = []
            for record in records.tolist():
                items.append(dataset[record])
                progress.update(1)
            path = scratch / paths[part].name
            InMemoryDataset.save(items, str(path))
            atomic_writes.fsync_path(path)
    return paths
