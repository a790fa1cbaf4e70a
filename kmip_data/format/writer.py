"""Writer of shards: checks records and streams them to HDF5 files with reproducible bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kmip_data.arrays import I64, Array, DType
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small_files import RunningDigests, canonical_json
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import (
    EDGE_INDEX,
    EDGE_PTR,
    FORMAT_NAME,
    FORMAT_VERSION,
    GRAPH_KEY,
    NEIGHBOR,
    NODE_PTR,
    Column,
    ExpectedArray,
    Schema,
    ShardStructure,
    expected_arrays,
    shard_member_name,
)

if TYPE_CHECKING:
    import h5py


ALIGNMENT = 64  #: contiguous data start at multiples of this number of bytes
_HDF5_OPTIONS = {
    "libver": "earliest",
    "alignment_threshold": 1,
    "alignment_interval": ALIGNMENT,
}
_MAX_ATTRIBUTE_BYTES = 64_000  #: HDF5 stores attributes in the object header, limited to 64 KiB


@contextlib.contextmanager
def open_memory_file() -> Iterator[h5py.File]:
    """Open a new HDF5 file in memory.

    ``libver="earliest"``: the bytes of ``latest`` differ between HDF5 versions. HDF5 aligns data only
    if both alignment arguments are given.
    """
    import h5py

    with h5py.File("memory.h5", "w", driver="core", backing_store=False, **_HDF5_OPTIONS) as file:
        yield file


def file_bytes(file: h5py.File) -> bytes:
    """Return all bytes of an open file of :func:`open_memory_file`."""
    file.flush()
    image: bytes = file.id.get_file_image()
    return image


def write_text_attribute(file: h5py.File, name: str, text: str) -> None:
    """Store ``text`` as a fixed-length ASCII attribute of the root.

    A variable-length string, the default of h5py, would be stored in HDF5's global heap, which would
    have to be reproducible when written and checked when read.
    """
    if not text.isascii() or len(text) > _MAX_ATTRIBUTE_BYTES:
        raise UsageError(
            f"The attribute {name!r} cannot be stored.",
            expected=f"ASCII text of at most {_MAX_ATTRIBUTE_BYTES:,} bytes, the limit of HDF5",
            found=f"{len(text):,} characters, {text[:40]!r}",
        )
    _write_attribute(file, name, np.array(text.encode("ascii") or b"\0"))


def _write_attribute(file: h5py.File, name: str, value: Array) -> None:
    """Store a scalar () as an attribute of the root."""
    from h5py import h5a, h5s, h5t

    space = h5s.create(h5s.SCALAR)
    attribute = h5a.create(file.id, name.encode("ascii"), h5t.py_create(value.dtype), space)
    attribute.write(value)


@dataclass(frozen=True)
class SkippedRecord:
    """Record that was left out on purpose; the card counts and lists it."""

    key: str  #: upstream identity of the record
    reason: str  #: the problem, in one line


@dataclass(frozen=True)
class LazyColumn:
    """Column whose rows are computed while they are written, so that they need not fit in memory."""

    shape: tuple[int, ...]
    dtype: DType
    rows: Callable[[int, int], Array]  #: function of ``start, stop`` that returns these rows

    def __getitem__(self, rows: slice) -> Array:
        return self.rows(*rows.indices(self.shape[0])[:2])

    def __array__(self, *_: object, **__: object) -> Array:
        return self[:]


_HEADER_BYTES = 4096  #: upper bound of the metadata of one dataset in a shard
MAX_SHARD_BYTES = 64 * 2**20  #: intended size of a shard; a single larger graph may exceed it
#: Offset of the four superblock bytes that mark a file as open; they are zero in a closed file.
_OPEN_FLAG_OFFSET = 20
PIECE_BYTES = 2**20  #: size of the pieces in which a shard is written
#: A larger shard is split into member files of this size, sent and verified one by one. Servers and
#: FAT disks refuse files above 4 to 5 GB. A multiple of every page size, so that members can be mapped
#: one after another.
MEMBER_BYTES = 2**32
COUNTS = ("graphs", "nodes", "edges")  #: counts of a shard, in this order


def write_shard(
    path: Path,
    records: Iterable[GraphRecord],
    schema: Schema,
    *,
    root: Path,
    dataset: str,
    build_key: str,
) -> tuple[dict[str, Any], ShardStructure]:
    """Check ``records`` against ``schema`` and write them as one shard (``docs/format.md``).

    All records are held in memory; the bytes of the file are not, they are written in pieces. Node
    and edge data are contiguous, so that readers can map them. A shard above ``MEMBER_BYTES`` is
    written as several files. Equal records, schema and names give equal bytes on every machine.

    Returns the fields of its entry on the card (``sha256``, ``crc32``, ``bytes``, ``graphs``,
    ``nodes``, ``edges`` and, if it was split, ``members``), and the structure of the shard. Raises
    ``DamagedInput`` with the key of a record that does not follow the schema, ``UsageError`` if the
    schema cannot be stored, and the errors of :func:`~kmip_data.files.atomic_writes.write_file`.
    """
    from kmip_data.files.atomic_writes import remove_file

    content = ShardContent.from_records(records, schema, dataset, build_key)
    size = sum(
        entry.row_bytes * entry.shape(*content.totals)[entry.row_axis]
        for entry in content.expected_arrays.values()
    )
    offsets: dict[str, int | None] = {}
    stream = _shard_pieces(path, content, size, offsets)

    # 1. One file.
    if size <= MEMBER_BYTES:
        card_entry = content.card_entry(_write_pieces(path, stream, root))
        return card_entry, content.structure(offsets)

    # 2. Member files, with their own digests and the digest of all bytes.
    total = RunningDigests()
    members = []
    for number, numbered in groupby(_pieces_by_member(stream), itemgetter(0)):
        member = path.with_name(shard_member_name(path.name, number))
        pieces = map(itemgetter(1), numbered)
        members.append(_write_pieces(member, pieces, root, total))
    # Readers prefer a single file to members, so remove one left by an earlier build.
    remove_file(path, root=root)
    card_entry = content.card_entry(total)
    card_entry["members"] = [member.facts for member in members]
    return card_entry, content.structure(offsets)


def _pieces_by_member(stream: Iterable[bytes]) -> Iterator[tuple[int, memoryview]]:
    """Yield pieces of the stream with the number of their member, split at the ends of members."""
    offset = 0
    for piece in stream:
        rest = memoryview(piece)
        while rest:
            head = rest[: MEMBER_BYTES - offset % MEMBER_BYTES]
            yield offset // MEMBER_BYTES, head
            offset += len(head)
            rest = rest[len(head) :]


def _write_pieces(
    path: Path,
    pieces: Iterable[bytes | memoryview],
    root: Path,
    *totals: RunningDigests,
) -> RunningDigests:
    """Write a file in pieces and return its digests; also add its bytes to the digests ``totals``."""
    from kmip_data.files.atomic_writes import write_file

    digests = RunningDigests()

    def pieces_while_digesting() -> Iterator[bytes | memoryview]:
        for piece in pieces:
            for running in (digests, *totals):
                running.update(piece)
            yield piece

    write_file(path, pieces_while_digesting(), root=root)
    return digests


def _write_structure(
    file: h5py.File, content: ShardContent, offsets: dict[str, int | None]
) -> dict[int, ExpectedArray]:
    """Write attributes, graph data and the headers of all datasets; node and edge data are left out.

    Adds the ``offsets`` of all datasets; returns those whose data are left out, by offset.
    """
    # The classes of h5py take twice the time of its low-level functions, which counts for small shards.
    from h5py import h5d, h5g, h5p, h5s, h5t

    write_text_attribute(file, "format", FORMAT_NAME)
    _write_attribute(file, "format_version", np.array(FORMAT_VERSION, dtype="<i8"))
    for name, text in content.texts.items():
        write_text_attribute(file, name, text)

    properties = h5p.create(h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    groups: dict[str, h5g.GroupID] = {}
    left_out = {}
    for entry in content.expected_arrays.values():
        shape = entry.shape(*content.totals)
        is_written = entry.per not in {"node", "edge"} or 0 in shape
        if is_written:
            array = _join_array(entry, content)
            _check_values(array, entry, content)

        group, _, name = entry.key.rpartition("/")
        if group not in groups:
            groups[group] = h5g.create(file.id, group.encode("ascii"))
        space = h5s.create_simple(shape)
        dataset = h5d.create(
            groups[group],
            name.encode("ascii"),
            h5t.py_create(entry.dtype),
            space,
            properties,
        )
        if is_written:
            dataset.write(h5s.ALL, h5s.ALL, array)
        else:  # HDF5 allocates a contiguous dataset at its first write
            space.select_hyperslab((0,) * len(shape), (1,) * len(shape))
            dataset.write(h5s.create_simple((1,)), space, np.zeros(1, entry.dtype))
            left_out[dataset.get_offset()] = entry
        offsets[entry.key] = dataset.get_offset()
    return left_out


def _shard_pieces(
    path: Path, content: ShardContent, size: int, offsets: dict[str, int | None]
) -> Iterator[bytes]:
    """Yield the bytes of the shard at ``path``, with ``size`` bytes of data, in order.

    The ``offsets`` of all datasets are added before the first bytes.

    HDF5 lays out a sparse temporary file without node and edge data, which are taken from the records
    instead.
    """
    import h5py

    from kmip_data.files.atomic_writes import partial_name

    partial = path.with_name(partial_name(path.name))
    with contextlib.ExitStack() as stack:
        sparse = stack.enter_context(partial.open("x+b", buffering=0))
        stack.callback(partial.unlink, missing_ok=True)
        # HDF5 crashes if it cannot write, so test the limit on file sizes first.
        attribute_bytes = sum(map(len, content.texts.values()))
        header_bytes = _HEADER_BYTES * (1 + len(content.expected_arrays))
        os.ftruncate(sparse.fileno(), size + attribute_bytes + header_bytes)
        # Pass the path: given a file object, HDF5 does not aggregate small data, and the bytes differ.
        file = stack.enter_context(h5py.File(partial, "w", **_HDF5_OPTIONS))
        if hasattr(os, "memfd_create"):
            # A full disk would also crash HDF5, so let it write to memory.
            memory = os.memfd_create("layout")
            os.write(memory, sparse.read())
            os.dup2(memory, file.id.get_vfd_handle(), inheritable=False)
            sparse = stack.enter_context(open(memory, "r+b", buffering=0))  # noqa: PTH123
        left_out = _write_structure(file, content, offsets)
        file.flush()  # not closed yet: closing truncates the unused end

        os.pwrite(sparse.fileno(), bytes(4), _OPEN_FLAG_OFFSET)
        position = sparse.seek(0)
        for offset, entry in sorted(left_out.items(), key=itemgetter(0)):
            yield sparse.read(offset - position)
            yield from _array_pieces(entry, content)
            rows = entry.shape(*content.totals)[entry.row_axis]
            position = sparse.seek(offset + entry.row_bytes * rows)
        yield sparse.read()


def _array_pieces(entry: ExpectedArray, content: ShardContent) -> Iterator[bytes]:
    """Yield the bytes of a node or edge dataset; in ``edge/index``, all sources precede all targets."""
    max_rows = max(1, PIECE_BYTES // max(1, entry.row_bytes))
    for end in range(2 if entry.row_axis else 1):
        # Join the rows of small records, and split the rows of large ones.
        pending: list[Array] = []
        num_pending = 0
        for record in content.records:
            rows = content.rows_of_record(record, entry.key)
            if entry.row_axis:
                rows = rows[end]
            for start in range(0, rows.shape[0], max_rows):
                block = rows[start : start + max_rows]
                if pending and num_pending + len(block) > max_rows:
                    yield _join_rows(pending, entry, content)
                    pending = []
                    num_pending = 0
                pending.append(block)
                num_pending += len(block)
        if pending:
            yield _join_rows(pending, entry, content)


def _join_rows(blocks: list[Array], entry: ExpectedArray, content: ShardContent) -> bytes:
    rows = np.concatenate(blocks, dtype=entry.dtype, casting="unsafe")
    _check_values(rows, entry, content)
    return rows.tobytes()


def _check_values(rows: Array, entry: ExpectedArray, content: ShardContent) -> None:
    """Raise ``DamagedInput`` with the key of the record if values violate their column."""
    column = content.columns.get(entry.key)
    if column is None or not (problem := column.problem(rows)):
        return
    records = content.records
    for record in records:
        record_problem = problem
        if len(records) > 1:  # a single graph may be too large for a second pass
            record_problem = column.problem(np.asarray(record.columns[column.key]))
        if record_problem:
            raise DamagedInput(
                f"Record {record.key!r} does not follow the schema: {column.key} {record_problem}."
            )


class ShardContent(NamedTuple):
    """Checked records of a shard, with its arrays, row pointers and attributes."""

    records: list[GraphRecord]
    schema: Schema
    expected_arrays: dict[str, ExpectedArray]
    columns: dict[str, Column]
    pointers: dict[str, I64]  #: dataset of row pointers -> first row of each record, and the total
    texts: dict[str, str]  #: root attributes
    totals: tuple[int, int, int]  #: numbers of graphs, nodes and edges

    @classmethod
    def from_records(
        cls,
        records: Iterable[GraphRecord],
        schema: Schema,
        dataset: str,
        build_key: str,
    ) -> ShardContent:
        """Check the records and count their rows."""
        schema_text = schema.to_json()
        arrays = expected_arrays(schema, schema_text)
        columns = {column.key: column for column in schema.columns}
        expected = {key: arrays[key] for key in columns}
        checked = []
        for record in records:
            _check_record(record, schema, expected)
            checked.append(record)

        nodes = _pointers_from_counts([record.num_nodes for record in checked])
        edges = _pointers_from_counts([record.num_edges for record in checked])
        totals = len(checked), int(nodes[-1]), int(edges[-1])
        texts = {
            "dataset": dataset,
            "build_key": build_key,
            "counts": canonical_json(dict(zip(COUNTS, totals, strict=True))),
            "schema": schema_text,
        }
        pointers = {NODE_PTR: nodes, EDGE_PTR: edges}
        return cls(checked, schema, arrays, columns, pointers, texts, totals)

    def card_entry(self, digests: RunningDigests) -> dict[str, Any]:
        """Return the fields of the shard's entry on the card, without its name."""
        return {**digests.facts, **dict(zip(COUNTS, self.totals, strict=True))}

    def structure(self, offsets: dict[str, int | None]) -> ShardStructure:
        """Return the structure of the shard, whose datasets begin at ``offsets``."""
        texts = self.texts
        return ShardStructure(
            texts["dataset"],
            texts["build_key"],
            self.schema,
            self.expected_arrays,
            *self.totals,
            offsets,
            self.pointers[NODE_PTR],
            self.pointers[EDGE_PTR],
        )

    def rows_of_record(self, record: GraphRecord, key: str) -> Array:
        """Return the rows of a record in a dataset."""
        if key == EDGE_INDEX:
            return np.asarray(record.edge_index)
        if key == NEIGHBOR:
            return np.asarray(record.neighbor)
        return record.columns[key]


def _pointers_from_counts(counts: Sequence[int]) -> I64:
    pointers = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=pointers[1:])
    pointers.setflags(write=False)
    return pointers


def _join_array(entry: ExpectedArray, content: ShardContent) -> Array:
    """Return the array of a pointer, graph-level or empty dataset."""
    if entry.per == "pointer":
        return content.pointers[entry.key]
    joined = np.empty(entry.shape(*content.totals), dtype=entry.dtype)
    if entry.key == GRAPH_KEY:
        joined[:] = [record.key.encode("ascii") for record in content.records]
        return joined
    if joined.size:
        rows = [content.rows_of_record(record, entry.key) for record in content.records]
        np.stack(rows, out=joined, casting="unsafe")
    return joined


def _check_record(
    record: GraphRecord,
    schema: Schema,
    columns: Mapping[str, ExpectedArray],
) -> None:
    """Raise ``DamagedInput`` with the key of the record unless it follows the schema."""

    def record_error(subject: str, expected: object, value: object) -> DamagedInput:
        return DamagedInput(
            f"Record {key!r} does not follow the schema: {subject} is not valid.",
            expected=str(expected),
            found=str(value),
            steps="repair the record, or the raw file that it comes from",
        )

    # 1. Key and size.
    key = record.key
    nodes = record.num_nodes
    if not (key and key.isascii() and key.isprintable()):
        raise record_error("its key", "printable ASCII, not empty", repr(key))
    if len(key) > schema.key_length:
        raise record_error("its key", f"at most {schema.key_length} bytes", len(key))
    if not 0 <= nodes <= schema.max_nodes:
        allowed = f"0 to {schema.max_nodes:,} (the largest graph that the manifest allows)"
        raise record_error("its number of nodes", allowed, f"{nodes:,}")

    # 2. Edges: in the layout of the schema, and inside the graph.
    if record.columns.keys() != columns.keys():
        raise record_error("its columns", set(columns), list(record.columns))
    _check_indices(record, schema, record_error)

    # 3. Columns: in the stored dtype, with one row per node or edge.
    for name, entry in columns.items():
        array = record.columns[name]
        dtype = getattr(array, "dtype", type(array).__name__)
        if dtype != entry.dtype:
            raise record_error(name, f"dtype {entry.dtype}", dtype)
        shape = entry.row_shape
        if entry.per != "graph":
            shape = entry.shape(1, nodes, record.num_edges)
        actual = getattr(array, "shape", ())
        if actual != shape:
            raise record_error(name, f"shape {shape}", actual)


def _check_indices(
    record: GraphRecord,
    schema: Schema,
    record_error: Callable[[str, object, object], DamagedInput],
) -> None:
    nodes = record.num_nodes
    layouts = (
        ("neighbor", record.neighbor, "neighbor"),
        ("edge_index", record.edge_index, "index"),
    )
    for name, array, edges in layouts:
        if schema.edges != edges:
            if array is not None:
                raise record_error(name, "none, the schema has another edge layout", "an array")
            continue
        indices = np.asarray(array)
        if indices.dtype.kind not in "iu":
            raise record_error(name, "an array of integers", indices.dtype)
        shape = (nodes, schema.k) if name == "neighbor" else (2, *indices.shape[-1:])
        if indices.ndim != 2 or indices.shape != shape:
            raise record_error(name, f"shape {shape}", indices.shape)
        is_signed = indices.dtype.kind == "i"
        if indices.size and (indices.max() >= nodes or (is_signed and indices.min() < 0)):
            expected = f"indices from 0 to {nodes - 1}"
            raise record_error(name, expected, f"{indices.min()} to {indices.max()}")
