"""A shard file: opened safely, read through a memory map, and its values checked against its schema."""

from __future__ import annotations

import ctypes
import functools
import io
import json
import math
import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64
from kmip_data.errors import UsageError, check_version, refuse
from kmip_data.format import schema as names
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR, Column, Expected, parse_schema

if TYPE_CHECKING:
    import h5py

    from kmip_data.format.safety import StoredDataset

T = TypeVar("T", int, str)
#: Contiguous data cannot exceed the file; this bounds what a compressed shard may declare.
MAX_DECLARED_BYTES: Final = 2**36
LARGE: Final = 2**30  #: bytes of a map whose pages are worth giving back


class Shard:
    """A shard file.

    Opening checks the structure once with h5py (harmless, complete, as in the schema, row pointers in
    order) and closes the file. Data are read from a read-only map that is made on first use, so an instance
    holds no file descriptor for uncompressed shards, can be pickled, and works after a fork and from several
    threads. Values are checked by ``verify``, not here. Raises ``DamagedInput`` if the file is not a shard,
    is truncated, hostile or contradictory, or from a newer version of this package; ``OutOfResources`` if
    this process lacks memory or file descriptors.

    ``source`` supplies the bytes of a file that is not at ``path``; such a shard is not mapped.

    Attributes
    ----------
    node_ptr, edge_ptr
        int64 [G+1], first node and first edge of each graph; zeros in ``edge_ptr`` without edges.
    layout
        Every dataset of the schema, by key.
    """

    def __init__(self, path: str | os.PathLike[str], source: io.RawIOBase | None = None) -> None:
        from kmip_data.format.safety import SHARD_FILTERS, open_untrusted

        self.path = Path(path).absolute()
        inspected = open_untrusted(
            self.path, max_declared_bytes=MAX_DECLARED_BYTES, filters=SHARD_FILTERS, source=source
        )
        with inspected as (file, stored):
            self._size = self.path.stat().st_size if source is None else 0  # bytes to map
            self._read_attributes(file)
            self._read_structure(file, stored)
        self._buffer: Any = None
        self._views: dict[str, NDArray[Any] | None] = {}
        self._handle: tuple[int, h5py.File] | None = None

    def _read_attributes(self, file: h5py.File) -> None:
        found = _attribute(self.path, file, "format", str)
        if found != names.FORMAT:
            refuse(self.path, "is HDF5, but not a shard", f"format {found!r}"[:40])
        check_version(self.path, _attribute(self.path, file, "format_version", int), names.FORMAT_VERSION)
        self.dataset = _attribute(self.path, file, "dataset", str)
        self.build_key = _attribute(self.path, file, "build_key", str)
        try:
            self.schema, self.layout = parse_schema(_attribute(self.path, file, "schema", str))
        except ValueError as error:
            refuse(self.path, "has a schema that is not valid", str(error)[:200], error)
        text = _attribute(self.path, file, "counts", str)
        try:
            counts = json.loads(text)
            values: list[int] = [counts[name] for name in ("graphs", "nodes", "edges")]
        except (TypeError, KeyError, ValueError, RecursionError):
            values = []
        if not values or any(type(value) is not int or value < 0 for value in values):
            refuse(self.path, "has counts that are not valid", repr(text[:80]))
        self.graphs, self.nodes, self.edges = values

    def _read_structure(self, file: h5py.File, stored: dict[str, StoredDataset]) -> None:
        """Compare the stored datasets with schema and counts, and note where their data begin."""
        for key in sorted(set(self.layout) ^ set(stored)):
            found = f"no {key}" if key in self.layout else f"{key} besides"
            refuse(self.path, "does not follow its schema", found)
        self._offsets: dict[str, int | None] = {}
        for key, entry in self.layout.items():
            wanted = entry.shape(self.graphs, self.nodes, self.edges)
            if stored[key].dtype != entry.dtype or stored[key].shape != wanted:
                found = f"{key} as {stored[key].dtype} {stored[key].shape}, not {entry.dtype} {wanted}"
                refuse(self.path, "does not follow its schema", found)
            if entry.per in {"pointer", "graph"} and stored[key].nbytes and stored[key].offset is None:
                refuse(self.path, "does not follow the format", f"{key} in chunks, not contiguous")
            self._offsets[key] = stored[key].offset
        self.node_ptr = self._pointers(file, names.NODE_PTR, self.nodes)
        if self.schema.edges == "neighbor":
            self.edge_ptr = self.node_ptr * (self.schema.k or 0)
            if self.edges != self.edge_ptr[-1]:
                found = f"{self.edges:,} edges, not {self.edge_ptr[-1]:,} ({self.schema.k} per node)"
                refuse(self.path, "has counts that contradict its data", found)
        elif self.schema.edges == "index":
            self.edge_ptr = self._pointers(file, names.EDGE_PTR, self.edges)
        else:
            self.edge_ptr = np.zeros_like(self.node_ptr)
        largest = int(np.diff(self.node_ptr).max(initial=0))
        if largest > self.schema.max_nodes:
            found = f"{largest:,} nodes, of at most {self.schema.max_nodes:,}"
            refuse(self.path, "holds a graph that is too large", found)

    def _pointers(self, file: h5py.File, key: str, total: int) -> NDArray[np.int64]:
        pointers: NDArray[np.int64] = file[key][:].astype(np.int64, copy=False)
        if pointers[0] != 0 or pointers[-1] != total or (pointers[1:] < pointers[:-1]).any():
            found = f"{pointers[0]:,} to {pointers[-1]:,}, not from 0 up to {total:,}"
            refuse(self.path, f"has row pointers that are not in order ({key})", found)
        pointers.setflags(write=False)
        return pointers

    def __len__(self) -> int:
        return self.graphs

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_buffer": None, "_views": {}, "_handle": None}
        state.pop("keys", None)  # read again on use
        return state

    @functools.cached_property
    def keys(self) -> list[str]:
        """Upstream identity of each graph."""
        try:
            return [key.decode("ascii") for key in self.read(names.KEY, 0, self.graphs).tolist()]
        except UnicodeDecodeError as error:
            refuse(self.path, "has a key that is not text", str(error), error)

    def mapped(self, key: str) -> NDArray[Any] | None:
        """Return a read-only view of a complete dataset in the map; ``None`` if compressed or empty.

        Copy it before any change: it cannot be made writable.
        """
        if key in self._views:
            return self._views[key]
        entry, offset = self._entry(key), self._offsets[key]
        view = None
        if offset is not None:
            if self._buffer is None:
                self._buffer = self._map()
            shape = entry.shape(self.graphs, self.nodes, self.edges)
            view = np.frombuffer(self._buffer, entry.dtype, math.prod(shape), offset).reshape(shape)
        self._views[key] = view
        return view

    def read(self, key: str, start: int, stop: int) -> NDArray[Any]:
        """Return a writable copy of rows ``start:stop`` of a dataset (of columns of ``edge/index``)."""
        entry = self._entry(key)
        view = self.mapped(key)
        if view is not None:
            part = view[:, start:stop] if entry.axis else view[start:stop]
            return part.copy()
        shape = entry.shape(self.graphs, self.nodes, self.edges)
        rows = range(shape[entry.axis])[start:stop]
        if not math.prod(shape) or not rows:
            return np.empty((*entry.row, len(rows)) if entry.axis else (len(rows), *entry.row), entry.dtype)
        from kmip_data.format.safety import read_chunked

        try:
            return read_chunked(self._file()[key], entry.axis, rows.start, rows.stop)
        except (OSError, RuntimeError, LookupError, ValueError, TypeError, MemoryError) as error:
            refuse(self.path, f"is damaged in {key}", str(error), error)

    def release(self) -> None:
        """Give the pages of a large map back to the system, which brings them again on use."""
        if self._buffer is not None and self._size > LARGE:
            address = np.frombuffer(self._buffer, np.uint8).ctypes.data
            _library().madvise(address, self._size, mmap.MADV_DONTNEED)

    def _entry(self, key: str) -> Expected:
        try:
            return self.layout[key]
        except KeyError:
            what = f"{self.path.name} of {self.dataset} has no dataset {key!r}."
            raise UsageError(what, expected=", ".join(self.layout)) from None

    def _map(self) -> Any:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(descriptor).st_size
                if size != self._size:  # access beyond the end of a shorter file would kill the process
                    found = f"{size:,} bytes, not {self._size:,}"
                    refuse(self.path, "changed since it was opened", found)
                return map_file(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError as error:
            refuse(self.path, "cannot be read any more", str(error), error)

    def _file(self) -> h5py.File:
        """Return a handle of this process on a compressed shard."""
        import h5py

        from kmip_data.format.safety import enable_zstd

        if self._handle is None or self._handle[0] != os.getpid():
            enable_zstd()
            self._handle = (os.getpid(), h5py.File(self.path, "r", locking=False))
        return self._handle[1]


def _attribute(path: Path, file: h5py.File, name: str, kind: type[T]) -> T:
    from kmip_data.format.safety import read_scalar

    what = f"has an attribute {name!r} that is not valid"
    try:
        value = read_scalar(file, name)
    except ValueError as error:
        refuse(path, what, str(error), error)
    if value is None:
        refuse(path, "is HDF5, but not a shard", f"no attribute {name!r}")
    if not isinstance(value, kind):
        refuse(path, what, repr(value)[:80])
    return value


def map_file(descriptor: int, size: int) -> memoryview | mmap.mmap:
    """Map ``size`` bytes of an open file read-only; the caller may close the descriptor at once.

    A build can have more shards than a process may open files, and before Python 3.13 ``mmap.mmap`` keeps a
    duplicate of the descriptor, so ``mmap(2)`` is called directly there. The mapping ends with the last array
    over it.
    """
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, trackfd=False)
    library = _library()
    address = library.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    buffer = (ctypes.c_ubyte * size).from_address(address)
    release = weakref.finalize(buffer, library.munmap, address, size)
    release.atexit = False  # arrays may be in use until the process ends
    return memoryview(buffer).toreadonly()


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    off_t = ctypes.c_long
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, off_t]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


BLOCK_VALUES: Final = 2**20  #: values checked at once; bounds the memory


Fault = tuple[str, str, str]  #: a promise of the schema that values break: what, expected, found


def content_faults(shard: Shard) -> Iterator[Fault]:
    """Yield one fault for every promise of the schema that some values of ``shard`` break.

    Indices must lie inside their graph, floating-point columns be finite, and bounds hold.
    """
    yield from _edge_faults(shard)
    for column in shard.schema.columns:
        yield from column_faults(shard, column)


def check_edges(shard: Shard) -> None:
    """Raise DamagedInput if an edge leads out of its graph: compiled code follows edges unchecked."""
    refuse_faults(shard, _edge_faults(shard))


def refuse_faults(shard: Shard, faults: Iterator[Fault]) -> None:
    """Raise DamagedInput for the first fault of a shard, if there is one."""
    for what, expected, found in faults:
        refuse(shard.path, f"is damaged: {what}", f"{found}, not {expected}")


def _edge_faults(shard: Shard) -> Iterator[Fault]:
    if shard.schema.edges == "none":
        return
    table = shard.schema.edges == "neighbor"
    key, row_ptr = (NEIGHBOR, shard.node_ptr) if table else (EDGE_INDEX, shard.edge_ptr)
    sizes = np.diff(shard.node_ptr)

    def outside(block: NDArray[Any], start: int) -> NDArray[np.bool_]:
        rows = np.arange(start, start + block.shape[-1 if key == EDGE_INDEX else 0])
        limits = sizes[np.searchsorted(row_ptr, rows, side="right") - 1]
        return block >= (limits if key == EDGE_INDEX else limits[:, None])

    yield from _faults(shard, key, row_ptr, outside, "indices inside their graph")


def column_faults(shard: Shard, column: Column) -> Iterator[Fault]:
    """Yield a fault for every promise of the schema that values of one column break."""
    pointers = {"graph": np.arange(shard.graphs + 1), "node": shard.node_ptr, "edge": shard.edge_ptr}
    row_ptr, low, high = pointers[column.level], column.low, column.most
    if column.finite and np.dtype(column.stored).kind == "f":
        yield from _faults(shard, column.key, row_ptr, lambda block, _: ~np.isfinite(block), "finite values")
    if low is not None:
        yield from _faults(shard, column.key, row_ptr, lambda block, _: block < low, f"at least {low}")
    if high is not None:
        yield from _faults(shard, column.key, row_ptr, lambda block, _: block > high, f"at most {high}")


def _faults(
    shard: Shard,
    key: str,
    row_ptr: I64,
    wrong: Callable[[NDArray[Any], int], NDArray[np.bool_]],
    expected: str,
) -> Iterator[Fault]:
    """Yield a fault if ``wrong(rows, first row)`` is true of any value of a dataset."""
    count, first = 0, -1
    for start, block in _blocks(shard, key, int(row_ptr[-1])):
        bad = wrong(block, start)
        if bad.any():
            count += int(bad.sum())
            if first < 0:
                rows = bad.any(axis=0) if key == EDGE_INDEX else bad.reshape(len(bad), -1).any(axis=1)
                first = start + int(rows.argmax())
    if count:
        graph = int(np.searchsorted(row_ptr, first, side="right")) - 1
        place = f"record {shard.keys[graph]!r}, row {first - int(row_ptr[graph]):,}"
        yield f"{key} holds wrong values", expected, f"{count:,} other, the first in {place}"


def _blocks(shard: Shard, key: str, rows: int) -> Iterator[tuple[int, NDArray[Any]]]:
    view = shard.mapped(key)
    step = max(1, BLOCK_VALUES // max(1, math.prod(shard.layout[key].row)))
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        if view is None:
            yield start, shard.read(key, start, stop)
        else:
            yield start, view[:, start:stop] if key == EDGE_INDEX else view[start:stop]
