"""Reader of shard files: safe opening, memory-mapped access, and checks of values."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import itertools
import math
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field, Json, NonNegativeInt

from kmip_data.arrays import I64, Array
from kmip_data.errors import UsageError
from kmip_data.files.path_errors import raise_damaged
from kmip_data.files.small_files import MemoryFile, open_regular_file
from kmip_data.format import crc_checks
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
    ShardStructure,
    parse_schema,
    shard_member_name,
)
from kmip_data.strict_model import StrictModel

if TYPE_CHECKING:
    import h5py

    from kmip_data.format.card import FileEntry
    from kmip_data.format.untrusted_hdf5 import StoredArray

#: Limit of the declared size of all datasets. Contiguous data cannot exceed the file; this bounds the
#: rows of empty datasets.
MAX_DECLARED_BYTES = 2**36
_MAP_FIXED = 0x10  #: flag of Linux and macOS that the mmap module lacks
RELEASED_MAP_BYTES = 2**30  #: size of a map above which :meth:`Shard.release_pages` has an effect


class _Counts(StrictModel):
    graphs: NonNegativeInt
    nodes: NonNegativeInt
    edges: NonNegativeInt


class _Attributes(StrictModel):
    """Root attributes of a shard, except format and version."""

    dataset: str
    build_key: str
    schema_text: str = Field(alias="schema")
    counts: Json[_Counts]


class Shard:
    """Read access to one shard.

    Opening checks the structure once with h5py (no harmful constructs, all datasets of the schema,
    ordered row pointers) and closes the file. Data are read from a read-only map created on first
    use, so an instance holds no file descriptor, can be pickled, and works after a fork and in
    several threads. Values are checked by ``verify``, not here.

    Raises ``DamagedInput`` if the file is not a shard, is truncated, malicious or inconsistent, or was
    written by a newer version of this package, and ``OutOfResources`` if this process lacks memory or
    file descriptors.

    With its ``entry`` on a card, the files are compared with their CRC-32 before anything in them is
    used.
    ``stamps`` is the folder for stamp files of large checked files (:func:`.crc_checks.check_size_and_crc`).
    With the ``structure`` that :func:`.writer.write_shard` has returned, the file's headers are not read.

    Attributes
    ----------
    node_ptr, edge_ptr
        int64 [G+1], first node and first edge of each graph; ``edge_ptr`` is zero without edges.
    expected_arrays
        Expected arrays of the schema by key.
    files
        Paths of the shard: one, or its members.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        entry: FileEntry | None = None,
        stamps: Path | None = None,
        structure: ShardStructure | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        self.files: list[Path] = []
        if entry is not None:
            self.files = [self.path.with_name(Path(name).name) for name in entry.files]
        else:
            self.files = shard_member_paths(self.path)
        self._entry_on_card = entry
        self._stamps = stamps
        self._sizes: list[int] = []  # bytes of each file when it was opened
        self._buffer: memoryview | None = None
        if entry is not None:
            with self._open_checked_files():  # compare them with the card
                pass
        structure = structure or self._read_structure()
        self.dataset = structure.dataset
        self.build_key = structure.build_key
        self.schema = structure.schema
        self.expected_arrays = structure.expected_arrays
        self.graphs = structure.graphs
        self.nodes = structure.nodes
        self.edges = structure.edges
        self.node_ptr = structure.node_ptr
        self.edge_ptr = structure.edge_ptr
        self._offsets = structure.offsets
        self._sizes = self._sizes or [path.stat().st_size for path in self.files]
        self._views: dict[str, Array] = {}

    def _read_structure(self) -> ShardStructure:
        from kmip_data.format.untrusted_hdf5 import open_untrusted_hdf5

        source = None
        if len(self.files) > 1:
            source = MemoryFile(np.frombuffer(self._shared_map(), np.uint8).data)
        size = sum(path.stat().st_size for path in self.files if path.is_file())
        with open_untrusted_hdf5(
            self.path,
            max_declared_bytes=max(MAX_DECLARED_BYTES, size),
            filters=frozenset(),
            source=source,
        ) as (file, stored):
            self._sizes = self._sizes or [path.stat().st_size for path in self.files]
            return _checked_structure(self.path, file, stored)

    def __getstate__(self) -> dict[str, object]:
        state = {**self.__dict__, "_buffer": None, "_views": {}}
        state.pop("keys", None)  # read again on use
        verified = {
            key: identity
            for key, identity in crc_checks.verified_files.items()
            if key[0] in self.files
        }
        return {**state, "verified": verified}

    def __setstate__(self, state: dict[str, Any]) -> None:
        crc_checks.verified_files.update(state.pop("verified"))
        self.__dict__.update(state)

    @functools.cached_property
    def keys(self) -> list[str]:
        """Upstream identity of each graph."""
        try:
            return [key.decode("ascii") for key in self.read(GRAPH_KEY, 0, self.graphs).tolist()]
        except UnicodeDecodeError as error:
            raise_damaged(self.path, "has a key that is not ASCII", error)

    def mapped_view(self, key: str) -> Array:
        """Return a read-only view of a whole dataset in the map.

        It cannot be made writable: copy it before changing values.
        """
        if key not in self._views:
            self._views[key] = self._array_view(key, self._shared_map())
        return self._views[key]

    def private_view(self, key: str) -> Array:
        """Return a writable view of a whole dataset in a copy-on-write map of its own.

        Writes stay in this process; only written pages are copied.
        """
        return self._array_view(key, self._map_members(private=True))

    def _array_view(self, key: str, buffer: memoryview) -> Array:
        entry = self._expected_array(key)
        shape = entry.shape(self.graphs, self.nodes, self.edges)
        values = np.frombuffer(buffer, entry.dtype, math.prod(shape), self._offsets[key] or 0)
        view: Array = values.reshape(shape)
        return view

    def read(self, key: str, start: int, stop: int) -> Array:
        """Return a writable copy of rows ``start:stop`` of a dataset; of ``edge/index``, columns."""
        entry = self._expected_array(key)
        view = self.mapped_view(key)
        rows = view[:, start:stop] if entry.row_axis else view[start:stop]
        return rows.copy()

    def release_pages(self) -> None:
        """Release the resident pages of a large map; the system reads them again on use."""
        if self._buffer is not None and sum(self._sizes) > RELEASED_MAP_BYTES:
            address = np.frombuffer(self._buffer, np.uint8).ctypes.data
            _c_library().madvise(address, sum(self._sizes), mmap.MADV_DONTNEED)

    def _expected_array(self, key: str) -> ExpectedArray:
        try:
            return self.expected_arrays[key]
        except KeyError:
            raise UsageError(
                f"{self.path.name} of {self.dataset} has no dataset {key!r}.",
                expected=", ".join(self.expected_arrays),
            ) from None

    def _shared_map(self) -> memoryview:
        """Return the map of the file, or of its members one after another."""
        if self._buffer is None:
            self._buffer = self._map_members()
        return self._buffer

    def _map_members(self, *, private: bool = False) -> memoryview:
        with self._open_checked_files() as opened:
            try:
                sizes = [os.fstat(file.fileno()).st_size for file in opened]
                # Access beyond the end of a truncated file would kill the process.
                if sizes != (self._sizes or sizes):
                    raise_damaged(
                        self.path,
                        "changed since it was opened",
                        f"{sum(sizes):,} bytes, not {sum(self._sizes):,}",
                    )
                descriptors = [file.fileno() for file in opened]
                buffer = map_files(descriptors, sizes, private=private)
            except OSError as error:
                raise_damaged(self.path, "cannot be read any more", error)
        self._sizes = sizes
        return buffer

    @contextlib.contextmanager
    def _open_checked_files(self) -> Iterator[list[io.FileIO]]:
        """Open all files and compare them with the card, if it is given."""
        with contextlib.ExitStack() as stack:
            try:
                opened = [stack.enter_context(open_regular_file(path)) for path in self.files]
            except (OSError, ValueError) as error:  # a zero byte in the path
                problem = "cannot be read any more" if self._sizes else "cannot be opened"
                raise_damaged(self.path, problem, error)
            if self._entry_on_card is not None:
                members = self._entry_on_card.files.values()
                for path, file, member in zip(self.files, opened, members, strict=True):
                    crc_checks.check_size_and_crc(path, file, member, self._stamps)
            yield opened


def _checked_structure(
    path: Path, file: h5py.File, stored: dict[str, StoredArray]
) -> ShardStructure:
    """Compare the stored datasets with schema and counts, and return their structure."""
    from kmip_data.format.untrusted_hdf5 import read_root_attributes

    # 1. Root attributes.
    attributes = read_root_attributes(path, file, _Attributes, FORMAT_NAME, FORMAT_VERSION)
    try:
        schema, expected_arrays = parse_schema(attributes.schema_text)
    except ValueError as error:
        raise_damaged(path, "has a schema that is not valid", error)
    graphs = attributes.counts.graphs
    nodes = attributes.counts.nodes
    edges = attributes.counts.edges

    # 2. Datasets: exactly the schema's, with its dtypes and shapes, and contiguous.
    for key in sorted(set(expected_arrays) ^ set(stored)):
        difference = f"no {key}" if key in expected_arrays else f"an unexpected {key}"
        raise_damaged(path, "does not follow its schema", difference)
    offsets: dict[str, int | None] = {}
    for key, entry in expected_arrays.items():
        dataset = stored[key]
        shape = entry.shape(graphs, nodes, edges)
        if dataset.dtype != entry.dtype or dataset.shape != shape:
            raise_damaged(
                path,
                "does not follow its schema",
                f"{key} as {dataset.dtype} {dataset.shape}, not {entry.dtype} {shape}",
            )
        if dataset.nbytes and dataset.offset is None:
            raise_damaged(path, "does not follow the format", f"{key} in chunks, not contiguous")
        offsets[key] = dataset.offset

    # 3. Row pointers, which must agree with the counts. A neighbour table has k edges per node.
    node_ptr = _read_pointers(path, file, NODE_PTR, nodes)
    edge_ptr = np.zeros_like(node_ptr)
    if schema.edges == "neighbor":
        edge_ptr = node_ptr * (schema.k or 0)
        if edges != edge_ptr[-1]:
            raise_damaged(
                path,
                "has counts that contradict its data",
                f"{edges:,} edges, not {edge_ptr[-1]:,} ({schema.k} per node)",
            )
    elif schema.edges == "index":
        edge_ptr = _read_pointers(path, file, EDGE_PTR, edges)

    # 4. Graph sizes: indices must be able to number all nodes.
    largest = int(np.diff(node_ptr).max(initial=0))
    if largest > schema.max_nodes:
        raise_damaged(
            path,
            "holds a graph that is too large",
            f"{largest:,} nodes, of at most {schema.max_nodes:,}",
        )
    return ShardStructure(
        attributes.dataset,
        attributes.build_key,
        schema,
        expected_arrays,
        graphs,
        nodes,
        edges,
        offsets,
        node_ptr,
        edge_ptr,
    )


def _read_pointers(path: Path, file: h5py.File, key: str, total: int) -> I64:
    pointers: I64 = file[key][:].astype(np.int64, copy=False)
    if pointers[0] != 0 or pointers[-1] != total or (pointers[1:] < pointers[:-1]).any():
        raise_damaged(
            path,
            f"has row pointers that are not in order ({key})",
            f"{pointers[0]:,} to {pointers[-1]:,}, not from 0 up to {total:,}",
        )
    pointers.setflags(write=False)
    return pointers


def shard_member_paths(path: Path) -> list[Path]:
    """Return the files of a shard in order: ``path``, or its members if it was split."""
    if path.exists():
        return [path]
    members = []
    for number in itertools.count():
        member = path.with_name(shard_member_name(path.name, number))
        if not member.is_file():
            break
        members.append(member)
    return members or [path]


def map_files(
    descriptors: Sequence[int], sizes: Sequence[int], *, private: bool = False
) -> memoryview:
    """Map open files one after another, as if they were one; the caller may close them at once.

    The map is read-only; a ``private`` one is writable, and written pages are copied. It is unmapped
    when the last array over it is freed. All files but the last must end at a page boundary;
    otherwise ``OSError`` is raised.

    ``mmap(2)`` is called directly, because ``mmap.mmap`` keeps a descriptor per map, and a build may
    have more shards than a process may open files. It also allows mapping each file over its part of
    one anonymous range.
    """
    library = _c_library()
    total = sum(sizes)

    # 1. Reserve one anonymous range for all files.
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANON
    address = _check_map_address(library.mmap(None, total, mmap.PROT_READ, anonymous, -1, 0))
    buffer = (ctypes.c_ubyte * total).from_address(address)
    unmap = weakref.finalize(buffer, library.munmap, address, total)
    unmap.atexit = False  # arrays may be in use until the process ends

    # 2. Map each file over its part of the range. MAP_NORESERVE: a private map may be larger than
    #    memory.
    access = mmap.PROT_READ
    flags = mmap.MAP_SHARED | _MAP_FIXED
    if private:
        access |= mmap.PROT_WRITE
        flags = mmap.MAP_PRIVATE | _MAP_FIXED | getattr(mmap, "MAP_NORESERVE", 0)
    for descriptor, size in zip(descriptors, sizes, strict=True):
        _check_map_address(library.mmap(address, size, access, flags, descriptor, 0))
        address += size
    view = memoryview(buffer)
    return view if private else view.toreadonly()


def _check_map_address(address: int) -> int:
    if address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return address


@functools.cache
def _c_library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    off_t = ctypes.c_long
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, off_t]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


BLOCK_VALUES = 2**20  #: number of values checked at a time, which bounds memory
_RELEASE_INTERVAL = 32  #: blocks after which the pages of a large shard are released


def check_values(shard: Shard) -> None:
    """Check all edges and columns of a shard; raise ``DamagedInput`` for the first invalid row.

    Edges must stay inside their graph, and columns must keep the bounds of the schema and be finite.
    """
    check_shard_edges(shard)
    for column in shard.schema.columns:
        check_column(shard, column)


def check_shard_edges(shard: Shard) -> None:
    """Raise ``DamagedInput`` if an edge leaves its graph: compiled code follows edges unchecked."""
    if shard.schema.edges == "none":
        return
    is_table = shard.schema.edges == "neighbor"
    row_ptr = shard.node_ptr if is_table else shard.edge_ptr
    nodes_per_graph = np.diff(shard.node_ptr)

    def problem(block: Array, start: int) -> str:
        rows = np.arange(start, start + len(block))
        limits = nodes_per_graph[np.searchsorted(row_ptr, rows, side="right") - 1]
        is_outside = block >= limits[:, None]
        if not is_outside.any():
            return ""
        return f"leads to node {block[is_outside][0]:,}, out of its graph"

    _refuse_first_bad_row(shard, NEIGHBOR if is_table else EDGE_INDEX, problem)


def check_column(shard: Shard, column: Column) -> None:
    """Raise ``DamagedInput`` for the first row of a column that violates the schema."""
    _refuse_first_bad_row(shard, column.key, lambda block, _: column.problem(block))


def _refuse_first_bad_row(shard: Shard, key: str, problem: Callable[[Array, int], str]) -> None:
    """Raise ``DamagedInput`` for the first row for which ``problem(rows, first row)`` is not empty."""
    entry = shard.expected_arrays[key]
    pointers = {
        "graph": np.arange(shard.graphs + 1),
        "node": shard.node_ptr,
        "edge": shard.edge_ptr,
    }
    row_ptr = pointers[entry.per]
    rows = int(row_ptr[-1])
    step = max(1, BLOCK_VALUES // max(1, math.prod(entry.row_shape)))
    for number, start in enumerate(range(0, rows, step)):
        # Resident pages of a map count as memory of this process.
        if number % _RELEASE_INTERVAL == _RELEASE_INTERVAL - 1:
            shard.release_pages()
        block = shard.read(key, start, min(rows, start + step))
        if entry.row_axis:
            block = block.T
        if not problem(block, start):
            continue

        # Halve the block until only its first invalid row is left.
        row = start
        while len(block) > 1:
            half = block[: len(block) // 2]
            if problem(half, row):
                block = half
            else:
                row += len(half)
                block = block[len(half) :]
        graph = int(np.searchsorted(row_ptr, row, side="right")) - 1
        location = f"record {shard.keys[graph]!r}, row {row - int(row_ptr[graph]):,}"
        raise_damaged(shard.path, f"is damaged: {key} {problem(block, row)}", location)
