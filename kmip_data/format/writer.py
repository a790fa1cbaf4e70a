"""Encode records as the bytes of one shard, which are written in pieces; small HDF5 files in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kmip_data.arrays import I64, Array, DType, Integers
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.reading import Digests, canonical_json
from kmip_data.format.schema import (
    EDGE_INDEX,
    EDGE_PTR,
    FORMAT,
    FORMAT_VERSION,
    KEY,
    NEIGHBOR,
    NODE_PTR,
    Column,
    ExpectedDataset,
    Schema,
    bytes_per_graph_node_edge,
    expected_datasets,
    shard_member_name,
)

if TYPE_CHECKING:
    import h5py


ALIGNMENT = 64  #: contiguous data start at multiples of this
_OPTIONS = {
    "libver": "earliest",
    "alignment_threshold": 1,
    "alignment_interval": ALIGNMENT,
}
_MAX_TEXT = 64_000  #: an attribute lies in its object's header, which HDF5 limits to 64 KiB


@contextlib.contextmanager
def open_memory_file() -> Iterator[h5py.File]:
    """Open a new HDF5 file that exists in memory only.

    ``libver="earliest"`` because the bytes of ``latest`` differ between HDF5 versions; data are
    aligned only when both alignment arguments are given.
    """
    import h5py

    with h5py.File("memory.h5", "w", driver="core", backing_store=False, **_OPTIONS) as file:
        yield file


def file_bytes(file: h5py.File) -> bytes:
    """Return all bytes of an open file of :func:`open_memory_file`."""
    file.flush()
    image: bytes = file.id.get_file_image()
    return image


def write_text_attribute(file: h5py.File, name: str, text: str) -> None:
    """Store ``text`` as a fixed-length ASCII attribute of the root.

    A variable-length string, the default of h5py, would go through HDF5's global heap: another
    structure to keep deterministic and to distrust when reading.
    """
    if not text.isascii() or len(text) > _MAX_TEXT:
        raise UsageError(
            f"The attribute {name!r} cannot be stored.",
            expected=f"ASCII text of at most {_MAX_TEXT:,} bytes, the limit of HDF5",
            found=f"{len(text):,} characters, {text[:40]!r}",
        )
    data = text.encode("ascii")
    file.attrs.create(name, np.array(data or b"\0", dtype=f"S{max(1, len(data))}"))


@dataclass(frozen=True)
class Skipped:
    """A record that was skipped on purpose; the card counts and lists it."""

    key: str  #: upstream identity of the record
    reason: str  #: the problem, in one line


@dataclass(frozen=True, kw_only=True)
class GraphRecord:
    """One graph as numpy arrays."""

    key: str  #: upstream identity (shape id, ``Area_1_office_1/000016``), unique inside a dataset, ASCII
    num_nodes: int  #: number of nodes N
    #: Column key (``node/x``) to array: [N, …] for node columns, [E, …] for edge columns, one row
    #: ([…] without a leading axis) for graph columns. Dtypes are the schema's stored ones
    columns: Mapping[str, Array] = field(default_factory=dict)
    #: [N, k] integer, sources of each target, nearest first; only with edge layout ``neighbor``
    neighbor: Integers | None = None
    #: [2, E] integer, row 0 sources and row 1 targets; only with edge layout ``index``
    edge_index: Integers | None = None

    @property
    def num_edges(self) -> int:
        """Number of stored edges E."""
        if self.neighbor is not None:
            return int(self.neighbor.size)
        return 0 if self.edge_index is None else int(self.edge_index.shape[1])


@dataclass(frozen=True)
class ComputedRows:
    """A column whose rows are computed where they are written, so that never all are in memory."""

    shape: tuple[int, ...]
    dtype: DType
    rows: Callable[[int, int], Array]  #: returns rows ``start:stop``

    def __getitem__(self, rows: slice) -> Array:
        return self.rows(*rows.indices(self.shape[0])[:2])

    def __array__(self, *_: object, **__: object) -> Array:
        return self[:]


_HEADERS = 4096  #: most bytes of a dataset in a shard besides its data
MAX_SHARD_BYTES = 64 * 2**20  #: intended size of a shard; a single larger graph may exceed it
#: Offset of the four bytes of the superblock that mark a file as open; an image has zeros there.
_OPEN = 20
PIECE_BYTES = 2**20  #: size of the pieces in which a shard is written
#: A shard whose data exceed this is cut into files of this size, to be sent and verified one by
#: one. Servers and FAT disks refuse files above 4 to 5 GB; a multiple of every page size, so that
#: members map in a row.
MEMBER_BYTES = 2**32
COUNTS = ("graphs", "nodes", "edges")  #: facts of a shard


def write_shard(
    path: Path,
    records: Iterable[GraphRecord],
    schema: Schema,
    *,
    root: Path,
    dataset: str,
    build_key: str,
) -> dict[str, Any]:
    """Check ``records`` against ``schema`` and write them as one shard (``docs/format.md``).

    All records are held in memory, in the order of the shard; its bytes go to the file in pieces and
    are never all in memory. Node and edge data are stored contiguous, so that readers
    map them. Above ``MEMBER_BYTES`` several files are written instead.

    Returns its entry on a card: ``sha256``, ``crc32``, ``bytes``, ``graphs``, ``nodes``, ``edges``
    and, if it was cut, ``members``. Equal records, schema and names give equal bytes on every machine.
    Raises ``DamagedInput``, with the key of the record, if a record does not follow the schema;
    ``UsageError`` if the schema cannot be stored; and what
    :func:`~kmip_data.files.atomic_writes.write_file` does.
    """
    from kmip_data.files.atomic_writes import remove_file

    content = ShardContent.from_records(records, schema, dataset, build_key)
    size = int(np.dot(bytes_per_graph_node_edge(schema), content.totals))
    stream = _shard_pieces(path, content, size)

    # 1. One file.
    if size <= MEMBER_BYTES:
        return content.card_entry(_write_pieces(path, stream, root))

    # 2. Several files, with their digests and the digest of all bytes.
    total = Digests()
    members = []
    for number, numbered in groupby(_pieces_by_member(stream), itemgetter(0)):
        member = path.with_name(shard_member_name(path.name, number))
        pieces = map(itemgetter(1), numbered)
        members.append(_write_pieces(member, pieces, root, total))
    # Readers prefer a single file to its members, so remove one that an earlier build left.
    remove_file(path, root=root)
    return {**content.card_entry(total), "members": [member.facts for member in members]}


def _pieces_by_member(stream: Iterable[bytes]) -> Iterator[tuple[int, memoryview]]:
    """Yield the pieces of a stream, cut where a member ends, each with the number of its member."""
    done = 0
    for piece in stream:
        rest = memoryview(piece)
        while rest:
            piece_in_member = rest[: MEMBER_BYTES - done % MEMBER_BYTES]
            yield done // MEMBER_BYTES, piece_in_member
            done = done + len(piece_in_member)
            rest = rest[len(piece_in_member) :]


def _write_pieces(
    path: Path,
    pieces: Iterable[bytes | memoryview],
    root: Path,
    *others: Digests,
) -> Digests:
    """Write a file in pieces and return its digests; the digests ``others`` get its bytes, too."""
    from kmip_data.files.atomic_writes import write_file

    digests = Digests()

    def digest_pieces() -> Iterator[bytes | memoryview]:
        for piece in pieces:
            for digest in (digests, *others):
                digest.update(piece)
            yield piece

    write_file(path, digest_pieces(), root=root)
    return digests


def _write_structure(file: h5py.File, content: ShardContent) -> dict[int, ExpectedDataset]:
    """Store attributes and datasets, but not the data of nodes and edges.

    Returns the datasets of these by offset.
    """
    left_out = {}
    write_text_attribute(file, "format", FORMAT)
    file.attrs.create("format_version", np.array(FORMAT_VERSION, dtype="<i8"))
    for name, text in content.texts.items():
        write_text_attribute(file, name, text)
    for entry in content.layout.values():
        shape = entry.shape(*content.totals)
        if entry.per not in {"node", "edge"} or 0 in shape:
            array = _join_dataset(entry, content)
            _check_values(array, entry, content)
            file.create_dataset(entry.key, data=array, dtype=entry.dtype, track_times=False)
            continue
        dataset = file.create_dataset(
            entry.key,
            shape,
            entry.dtype,
            track_times=False,
        )
        dataset[(0,) * len(shape)] = 0  # a contiguous dataset is allocated at its first write
        left_out[dataset.id.get_offset()] = entry
    return left_out


def _shard_pieces(path: Path, content: ShardContent, size: int) -> Iterator[bytes]:
    """Yield the bytes of the shard at ``path``, with ``size`` bytes of data, in order.

    HDF5 lays out a sparse file without the data of nodes and edges, next to the shard; they come
    from the records instead.
    """
    import h5py

    from kmip_data.files.atomic_writes import partial_name

    partial = path.with_name(partial_name(path.name))
    with contextlib.ExitStack() as stack:
        sparse = stack.enter_context(partial.open("x+b", buffering=0))
        stack.callback(partial.unlink, missing_ok=True)
        # HDF5 crashes if it cannot write, so test for a limit on file sizes first.
        texts = sum(map(len, content.texts.values()))
        os.ftruncate(sparse.fileno(), size + texts + _HEADERS * (1 + len(content.layout)))
        # Open it by its name: with an open file HDF5 does not aggregate small data, and the bytes differ.
        file = stack.enter_context(h5py.File(partial, "w", **_OPTIONS))
        if hasattr(os, "memfd_create"):
            # A full disk would crash it, too, so HDF5 continues in memory.
            memory = os.memfd_create("layout")
            os.write(memory, sparse.read())
            os.dup2(memory, file.id.get_vfd_handle(), inheritable=False)
            sparse = stack.enter_context(open(memory, "r+b", buffering=0))  # noqa: PTH123
        left_out = _write_structure(file, content)
        file.flush()  # read before closing, which truncates the unused end

        os.pwrite(sparse.fileno(), bytes(4), _OPEN)
        done = sparse.seek(0)
        for offset, entry in sorted(left_out.items(), key=itemgetter(0)):
            yield sparse.read(offset - done)
            yield from _rows_of_all_records(entry, content)
            rows = entry.shape(*content.totals)[entry.row_axis]
            done = sparse.seek(offset + entry.row_bytes * rows)
        yield sparse.read()


def _rows_of_all_records(entry: ExpectedDataset, content: ShardContent) -> Iterator[bytes]:
    """Yield the bytes of node or edge data: rows of all records.

    Sources come before targets in ``edge/index``.
    """
    step = max(1, PIECE_BYTES // max(1, entry.row_bytes))
    for row in range(2 if entry.row_axis else 1):
        # Write the rows of small records together, and the rows of a large record in pieces.
        waiting: list[Array] = []
        count = 0
        for record in content.records:
            rows = content.rows_of_record(record, entry.key)
            if entry.row_axis:
                rows = rows[row]
            for start in range(0, rows.shape[0], step):
                piece = rows[start : start + step]
                if waiting and count + len(piece) > step:
                    yield _join_rows(waiting, entry, content)
                    waiting = []
                    count = 0
                waiting.append(piece)
                count += len(piece)
        if waiting:
            yield _join_rows(waiting, entry, content)


def _join_rows(pieces: list[Array], entry: ExpectedDataset, content: ShardContent) -> bytes:
    rows = np.concatenate(pieces, dtype=entry.dtype, casting="unsafe")
    _check_values(rows, entry, content)
    return rows.tobytes()


def _check_values(rows: Array, entry: ExpectedDataset, content: ShardContent) -> None:
    """Refuse values that break a promise of their column, with the key of the record."""
    column = content.columns.get(entry.key)
    if column is None or not (problem := column.problem(rows)):
        return
    records = content.records
    for record in records:
        # A single graph may be too large for a second pass.
        record_problem = problem
        if len(records) > 1:
            record_problem = column.problem(np.asarray(record.columns[column.key]))
        if record_problem:
            raise DamagedInput(
                f"Record {record.key!r} does not follow the schema: {column.key} {record_problem}."
            )


class ShardContent(NamedTuple):
    """Checked records, and everything else that a shard consists of."""

    records: list[GraphRecord]
    layout: dict[str, ExpectedDataset]
    columns: dict[str, Column]
    pointers: dict[str, I64]  #: first row of each record, and one more, by dataset
    texts: dict[str, str]  #: attributes of the file
    totals: tuple[int, int, int]  #: graphs, nodes, edges

    @classmethod
    def from_records(
        cls,
        records: Iterable[GraphRecord],
        schema: Schema,
        dataset: str,
        build_key: str,
    ) -> ShardContent:
        """Check the records and count their rows."""
        layout = expected_datasets(schema)
        columns = {column.key: column for column in schema.columns}
        expected = {key: layout[key] for key in columns}
        graphs = []
        for record in records:
            _check_record(record, schema, expected)
            graphs.append(record)

        nodes = _pointers_from_counts([record.num_nodes for record in graphs])
        edges = _pointers_from_counts([record.num_edges for record in graphs])
        totals = len(graphs), int(nodes[-1]), int(edges[-1])
        texts = {
            "dataset": dataset,
            "build_key": build_key,
            "counts": canonical_json(dict(zip(COUNTS, totals, strict=True))),
            "schema": schema.to_json(),
        }
        pointers = {NODE_PTR: nodes, EDGE_PTR: edges}
        return cls(graphs, layout, columns, pointers, texts, totals)

    def card_entry(self, digests: Digests) -> dict[str, object]:
        """Return the entry of the shard on a card, without its name."""
        return {**digests.facts, **dict(zip(COUNTS, self.totals, strict=True))}

    def rows_of_record(self, record: GraphRecord, key: str) -> Array:
        """Return what a record has in a dataset."""
        if key == EDGE_INDEX:
            return np.asarray(record.edge_index)
        if key == NEIGHBOR:
            return np.asarray(record.neighbor)
        return record.columns[key]


def _pointers_from_counts(counts: Sequence[int]) -> I64:
    pointers = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=pointers[1:])
    return pointers


def _join_dataset(entry: ExpectedDataset, content: ShardContent) -> Array:
    """Join the rows of all records into the array of a dataset of pointers or graphs, or an empty one."""
    if entry.per == "pointer":
        return content.pointers[entry.key]
    joined = np.empty(entry.shape(*content.totals), dtype=entry.dtype)
    if entry.key == KEY:
        joined[:] = [record.key.encode("ascii") for record in content.records]
        return joined
    if joined.size:
        rows = [content.rows_of_record(record, entry.key) for record in content.records]
        np.stack(rows, out=joined, casting="unsafe")
    return joined


def _check_record(
    record: GraphRecord,
    schema: Schema,
    columns: Mapping[str, ExpectedDataset],
) -> None:
    """Raise DamagedInput, with the key of the record, unless it follows the schema."""

    def record_error(subject: str, expected: object, value: object) -> DamagedInput:
        return DamagedInput(
            f"Record {key!r} does not follow the schema: {subject} is wrong.",
            expected=str(expected),
            found=str(value),
            next="repair the record, or the raw file that it comes from",
        )

    # 1. Key and size.
    key = record.key
    nodes = record.num_nodes
    if not (key and key.isascii() and key.isprintable()):
        raise record_error("its key", "printable ASCII, not empty", repr(key))
    longest = schema.key_length
    if len(key) > longest:
        raise record_error("its key", f"at most {longest} bytes", len(key))
    if not 0 <= nodes <= schema.max_nodes:
        allowed = f"0 to {schema.max_nodes:,} (the largest graph that the manifest allows)"
        raise record_error("its number of nodes", allowed, f"{nodes:,}")

    # 2. Edges, in the layout of the schema and inside the graph.
    if record.columns.keys() != columns.keys():
        raise record_error("its columns", set(columns), list(record.columns))
    _check_indices(record, schema, record_error)

    # 3. Columns, with the stored dtype and one row for each node or edge.
    for name, entry in columns.items():
        array = record.columns[name]
        dtype = getattr(array, "dtype", type(array).__name__)
        if dtype != entry.dtype:
            raise record_error(name, f"dtype {entry.dtype}", dtype)
        shape = entry.row
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
        wanted = (nodes, schema.k) if name == "neighbor" else (2, *indices.shape[-1:])
        if indices.ndim != 2 or indices.shape != wanted:
            raise record_error(name, f"shape {wanted}", indices.shape)
        # Unsigned integers, the usual case, need one pass.
        is_signed = indices.dtype.kind == "i"
        if indices.size and (indices.max() >= nodes or (is_signed and indices.min() < 0)):
            inside = f"indices from 0 to {nodes - 1}"
            raise record_error(name, inside, f"{indices.min()} to {indices.max()}")
