"""Encode records as the bytes of one shard; HDF5 files made in memory."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.reading import canonical_json
from kmip_data.format import schema as names
from kmip_data.format.schema import Expected, Schema, expected_datasets

if TYPE_CHECKING:
    import h5py


ALIGNMENT: Final = 64  #: contiguous data start at multiples of this
_MAX_TEXT: Final = 64_000  #: an attribute lies in its object's header, which HDF5 limits to 64 KiB


@contextlib.contextmanager
def memory_file() -> Iterator[h5py.File]:
    """Open a new HDF5 file that exists in memory only.

    ``libver="earliest"`` because the bytes of ``latest`` differ between HDF5 versions; data are
    aligned only when both alignment arguments are given.
    """
    import h5py

    options = {"driver": "core", "backing_store": False, "libver": "earliest"}
    options |= {"alignment_threshold": 1, "alignment_interval": ALIGNMENT}
    with h5py.File("memory.h5", "w", **options) as file:
        yield file


def file_bytes(file: h5py.File) -> bytes:
    """Return all bytes of an open file of :func:`memory_file`."""
    file.flush()
    image: bytes = file.id.get_file_image()
    return image


def put_text(file: h5py.File, name: str, text: str) -> None:
    """Store ``text`` as a fixed-length ASCII attribute of the root.

    A variable-length string, the default of h5py, would go through HDF5's global heap: another structure to
    keep deterministic and to distrust when reading.
    """
    if not text.isascii() or len(text) > _MAX_TEXT:
        expected = f"ASCII text of at most {_MAX_TEXT:,} bytes, the limit of HDF5"
        found = f"{len(text):,} characters, {text[:40]!r}"
        raise UsageError(f"The attribute {name!r} cannot be stored.", expected=expected, found=found)
    data = text.encode("ascii")
    file.attrs.create(name, np.array(data or b"\0", dtype=f"S{max(1, len(data))}"))


@dataclass(frozen=True)
class Skipped:
    """A record that was skipped on purpose; the card counts and lists it."""

    key: str  #: upstream identity of the record
    reason: str  #: the fault, in one line


@dataclass(frozen=True, kw_only=True)
class GraphRecord:
    """One graph as numpy arrays."""

    key: str  #: upstream identity (shape id, ``Area_1_office_1/000016``), unique inside a dataset, ASCII
    num_nodes: int  #: number of nodes N
    #: Column key (``node/x``) to array: [N, …] for node columns, [E, …] for edge columns, one row ([…]
    #: without a leading axis) for graph columns. Dtypes are the schema's stored ones
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    #: [N, k] integer, sources of each target, nearest first; only with edge layout ``neighbor``
    neighbor: NDArray[np.integer[Any]] | None = None
    #: [2, E] integer, row 0 sources and row 1 targets; only with edge layout ``index``
    edge_index: NDArray[np.integer[Any]] | None = None

    @property
    def num_edges(self) -> int:
        """Number of stored edges E."""
        if self.neighbor is not None:
            return int(self.neighbor.size)
        return 0 if self.edge_index is None else int(self.edge_index.shape[1])


MAX_SHARD_BYTES: Final = 64 * 2**20  #: target size of a shard; a single larger graph may exceed it
CHUNK_BYTES: Final = 256 * 2**10  #: uncompressed size of a chunk of a compressed dataset

Compression = Literal["gzip", "zstd"] | None  #: of node and edge data; None: contiguous, to be mapped


class EncodedShard(NamedTuple):
    """The bytes of one shard file, and their facts."""

    data: bytes
    facts: dict[str, Any]  #: on a card: ``sha256``, ``bytes``, ``graphs``, ``nodes``, ``edges``


def encode_shard(
    records: Iterable[GraphRecord],
    schema: Schema,
    *,
    dataset: str,
    build_key: str,
    compression: Compression = None,
) -> EncodedShard:
    """Check ``records`` against ``schema`` and lay them out as one shard (``docs/format.md``).

    All records are held in memory, in the order of the shard. Node and edge data are stored contiguous, so
    that readers map them, or by ``compression`` in shuffled chunks.

    Equal records, schema, names and compression give equal bytes on every machine (compressed: with the same
    versions of the compression libraries). Raises ``DamagedInput``, with the key of the record, if a record
    does not follow the schema; ``UsageError`` if the schema cannot be stored or the compression is unknown.
    """
    if compression not in {None, "gzip", "zstd"}:
        raise UsageError(f"There is no compression {compression!r}.", expected="gzip, zstd or none")
    layout = expected_datasets(schema)
    graphs = list(records)
    for record in graphs:
        _check_record(record, schema, layout)
    node_ptr = _pointers([record.num_nodes for record in graphs])
    edge_ptr = _pointers([record.num_edges for record in graphs])
    counts = {"graphs": len(graphs), "nodes": int(node_ptr[-1]), "edges": int(edge_ptr[-1])}
    with memory_file() as file:
        put_text(file, "format", names.FORMAT)
        file.attrs.create("format_version", np.array(names.FORMAT_VERSION, dtype="<i8"))
        put_text(file, "dataset", dataset)
        put_text(file, "build_key", build_key)
        put_text(file, "counts", canonical_json(counts))
        put_text(file, "schema", schema.to_json())
        for entry in layout.values():
            array = _assemble(entry, graphs, node_ptr, edge_ptr, entry.shape(*counts.values()))
            _put(file, entry, array, compression)
        data = file_bytes(file)
    return EncodedShard(data, {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), **counts})


def _pointers(counts: Sequence[int]) -> I64:
    pointers = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=pointers[1:])
    return pointers


def _assemble(
    entry: Expected, records: Sequence[GraphRecord], node_ptr: I64, edge_ptr: I64, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Join the rows of all records, checked by :func:`_check_record`, into the array of one dataset."""
    if entry.per == "pointer":
        return node_ptr if entry.key == names.NODE_PTR else edge_ptr
    joined = np.empty(shape, dtype=entry.dtype)
    if entry.key == names.KEY:
        joined[:] = [record.key.encode("ascii") for record in records]
        return joined
    pointers = {"graph": np.arange(len(records) + 1), "node": node_ptr, "edge": edge_ptr}[entry.per]
    for record, start, stop in zip(records, pointers[:-1], pointers[1:], strict=True):
        if entry.key == names.EDGE_INDEX:
            joined[:, start:stop] = record.edge_index
        else:
            joined[start:stop] = record.neighbor if entry.key == names.NEIGHBOR else record.columns[entry.key]
    return joined


def _put(file: h5py.File, entry: Expected, array: NDArray[Any], compression: Compression) -> None:
    options: dict[str, Any] = {}
    if compression is not None and entry.per in {"node", "edge"} and array.size:
        # Chunks of complete rows, about CHUNK_BYTES each: a power of two of them, at most all.
        most = max(1, CHUNK_BYTES // max(1, entry.row_bytes))
        rows = min(1 << (most.bit_length() - 1), array.shape[entry.axis])
        chunks = (*entry.row, rows) if entry.axis else (rows, *entry.row)
        options.update(chunks=chunks, shuffle=True)
        if compression == "gzip":
            options.update(compression="gzip", compression_opts=4)
        else:
            import hdf5plugin

            options.update(hdf5plugin.Zstd(clevel=3))
    file.create_dataset(entry.key, data=array, dtype=entry.dtype, track_times=False, **options)


def _check_record(record: GraphRecord, schema: Schema, layout: dict[str, Expected]) -> None:
    """Raise DamagedInput, with the key of the record, unless it follows the schema."""

    def require(fine: object, what: str, expected: object, found: object) -> None:
        if not fine:
            raise DamagedInput(
                f"Record {key!r} does not follow the schema: {what} is wrong.",
                expected=str(expected),
                found=str(found),
                next="report it with the key of the record; its raw file may be damaged",
            )

    key, nodes = record.key, record.num_nodes
    require(key and key.isascii() and key.isprintable(), "its key", "printable ASCII, not empty", repr(key))
    require(len(key) <= schema.key_length, "its key", f"at most {schema.key_length} bytes", len(key))
    allowed = f"0 to {schema.max_nodes:,} (the largest graph that the manifest allows)"
    require(0 <= nodes <= schema.max_nodes, "its number of nodes", allowed, f"{nodes:,}")
    columns = {column.key for column in schema.columns}
    require(record.columns.keys() == columns, "its columns", columns, list(record.columns))
    layouts = (("neighbor", record.neighbor, "neighbor"), ("edge_index", record.edge_index, "index"))
    for name, array, edges in layouts:
        if schema.edges != edges:
            require(array is None, name, "none, the schema has another edge layout", "an array")
            continue
        indices = np.asarray(array)
        require(indices.dtype.kind in "iu", name, "an array of integers", indices.dtype)
        wanted = (nodes, schema.k) if name == "neighbor" else (2, *indices.shape[-1:])
        require(indices.ndim == 2 and indices.shape == wanted, name, f"shape {wanted}", indices.shape)
        low, high = (indices.min(), indices.max()) if indices.size else (0, -1)
        require(low >= 0 and high < nodes, name, f"indices from 0 to {nodes - 1}", f"{low} to {high}")
    for column in schema.columns:
        array = record.columns[column.key]
        dtype, shape = getattr(array, "dtype", type(array).__name__), getattr(array, "shape", ())
        count: tuple[int, ...] = {"graph": (), "node": (nodes,), "edge": (record.num_edges,)}[column.level]
        require(dtype == layout[column.key].dtype, column.key, f"dtype {column.stored}", dtype)
        require(shape == (*count, *column.shape), column.key, f"shape {(*count, *column.shape)}", shape)
