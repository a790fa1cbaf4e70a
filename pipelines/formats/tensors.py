"""Read arrays and tensors from pickles and ``.pt`` files without torch, and without running code.

Since version 1.6, ``torch.save`` writes a zip with ``<name>/data.pkl`` and one uncompressed member
per storage. A storage becomes a numpy array, and a tensor a view of it. Importing torch would raise
a worker's start from 0.8 s and 111 MiB to 2.7 s and 295 MiB.

A pickle of tensors (``pickle.dump``) calls ``torch.storage._load_from_bytes`` for each tensor with a
file in the format before version 1.6, which torch would unpickle, running its code. Here its header
must equal the one that torch writes, and the array is a view of the numbers after it.

Arrays have plain numbers, and exactly as many bytes as their shape needs. Other values are examined
by type only, because formatting or hashing nested tuples can take exponential time.
"""

from __future__ import annotations

import math
import mmap
import re
import reprlib
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import numpy as np

from kmip_data.arrays import Array, format_shape_pattern, shape_matches
from kmip_data.columns.attribute_levels import concatenated_axis
from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.formats.pickles import (
    AllowedGlobals,
    Pending,
    PlaceholderModules,
    RefusedPickleError,
    SkippedObject,
    Value,
    read_pickle,
    refuse_calls,
    stream_list,
)

STORAGE_DTYPES: Mapping[str, str] = {
    "torch.DoubleStorage": "<f8", "torch.FloatStorage": "<f4", "torch.HalfStorage": "<f2",
    "torch.LongStorage": "<i8", "torch.IntStorage": "<i4", "torch.ShortStorage": "<i2",
    "torch.CharStorage": "i1", "torch.ByteStorage": "u1", "torch.BoolStorage": "?",
    "torch.ComplexFloatStorage": "<c8", "torch.ComplexDoubleStorage": "<c16",
    "torch.BFloat16Storage": "V2",  # numpy has no bfloat16
}  # fmt: skip
#: Storage type in a pickle of tensors -> dtype.
_DTYPE_OF_STORAGE = {
    name.removeprefix("torch.").encode(): np.dtype(code) for name, code in STORAGE_DTYPES.items()
}
_BYTES_TYPES = (bytes, bytearray, memoryview)
_EXPECTED = "a complete file written by torch.save of PyTorch 1.6 or later"
_FRAME_OPCODE = b"\x95"
#: Pickled magic number of the format before PyTorch 1.6.
_OLD_FORMAT_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
#: Maximum elements of a tensor larger than its storage: a stride of 0 can declare any size.
_MAX_REPEATED_ELEMENTS = 1 << 20
_RELEASE_INTERVAL = 1 << 26  #: bytes read from a map before its pages are released


class OldTorchFile(DamagedInput):
    """A file has the format before PyTorch 1.6."""


def read_torch_file(
    path: Path,
    extra_globals: AllowedGlobals = MappingProxyType({}),
    *,
    mapping: mmap.mmap | None = None,
) -> Value:
    """Read a ``torch.save`` file of nested containers; tensors become read-only numpy arrays.

    Accepts the data that ``torch.load(path, weights_only=True)`` accepts, and ``extra_globals``, such
    as :data:`NUMPY_GLOBALS` for saved numpy arrays. Arrays share memory like the tensors did. With
    ``mapping``, a map of the file, they are views of it. Raises ``DamagedInput`` if the file is
    damaged, compressed, in the format before PyTorch 1.6, or names anything but data.
    """
    with _open_pickle(path, mapping) as (pickled, resolve):
        return read_pickle(
            pickled,
            {**_TORCH_FILE_GLOBALS, **extra_globals},
            name=path.name,
            persistent=resolve,
        )


def stream_items(
    path: Path,
    extra_globals: AllowedGlobals,
    *,
    placeholder_modules: PlaceholderModules = frozenset(),
) -> Iterator[Value]:
    """Yield the items of a list saved by ``torch.save`` or ``pickle.dump``, or another single value.

    Arrays are views of the mapped file. One part of the list is in memory at a time. For
    ``placeholder_modules`` see :func:`~kmip_data.pipelines.formats.pickles.read_pickle`.
    """
    mapping = map_file(path)
    if mapping[:1] == b"\x80":
        if mapping[: len(_OLD_FORMAT_MAGIC)] == _OLD_FORMAT_MAGIC:
            raise OldTorchFile(
                f"{path.name} cannot be read as tensors.",
                expected=_EXPECTED,
                found="the format before PyTorch 1.6",
            )
        yield from _stream_values(
            mapping,
            {**extra_globals, **PICKLED_TENSOR_GLOBALS},
            path.name,
            None,
            placeholder_modules,
        )
        return
    with _open_pickle(path, mapping) as (pickled, resolve):
        yield from _stream_values(
            pickled,
            {**_TORCH_FILE_GLOBALS, **extra_globals},
            path.name,
            resolve,
            placeholder_modules,
        )


def _stream_values(
    pickled: bytes | mmap.mmap,
    allowed: AllowedGlobals,
    name: str,
    persistent: Callable[[Value], Value] | None,
    placeholder_modules: PlaceholderModules,
) -> Iterator[Value]:
    """Yield the items of a pickled list, or another value."""
    # Skip the protocol, and the opcode and length of a frame.
    start = 11 if pickled[2:3] == _FRAME_OPCODE else 2
    if pickled[start : start + 1] == b"]":
        for items, _ in stream_list(
            pickled,
            allowed,
            name=name,
            persistent=persistent,
            placeholder_modules=placeholder_modules,
        ):
            yield from items
        return
    value = read_pickle(
        bytes(pickled),
        allowed,
        name=name,
        persistent=persistent,
        placeholder_modules=placeholder_modules,
    )
    yield from value if isinstance(value, list) else [value]


def read_tensor(path: Path, dtype: str, shape: tuple[int | None, ...]) -> Array:
    """Read the only tensor of a file; None in ``shape`` accepts any length.

    Raises ``DamagedInput`` like :func:`read_torch_file`, or if the file has anything else.
    """
    expected = f"one {dtype} tensor of shape {format_shape_pattern(shape)}"
    tensor = read_torch_file(path)
    if not isinstance(tensor, np.ndarray):
        raise _damaged_error(path.name, f"a {type(tensor).__name__}", expected)
    if not shape_matches(tensor.shape, shape) or tensor.dtype != dtype:
        raise _damaged_error(path.name, f"{tensor.dtype} of shape {tensor.shape}", expected)
    return np.ascontiguousarray(tensor)


def _damaged_error(name: str, problem: str, expected: str = _EXPECTED) -> DamagedInput:
    return DamagedInput(
        f"{name} cannot be read as tensors.",
        expected=expected,
        found=problem,
    )


@contextmanager
def _open_pickle(
    path: Path,
    mapping: mmap.mmap | None,
) -> Iterator[tuple[bytes, Callable[[Value], Array | SkippedObject]]]:
    """Open a ``torch.save`` file; return its pickle and the function that resolves persistent ids.

    Converts any error that hostile bytes provoke to ``DamagedInput``.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            yield _open_zip_pickle(archive, path, mapping)
    except (DamagedInput, MemoryError):
        raise
    except Exception as error:
        raise _damaged_error(path.name, first_problem(error)) from error


def map_file(path: Path) -> mmap.mmap:
    """Map a raw file for reading; raises ``DamagedInput`` if it is empty."""
    if not path.stat().st_size:
        raise DamagedInput(f"{path.name} is empty.")
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def release_pages(mapping: mmap.mmap) -> None:
    """Release the pages of a map from memory; later accesses read them from disk."""
    with suppress(AttributeError, OSError):  # not available on every system
        mapping.madvise(mmap.MADV_DONTNEED)


def _open_zip_pickle(
    archive: zipfile.ZipFile,
    path: Path,
    mapping: mmap.mmap | None,
) -> tuple[bytes, Callable[[Value], Array | SkippedObject]]:
    entries = {info.filename: info for info in archive.infolist()}
    roots = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise _damaged_error(path.name, f"{len(roots)} members called data.pkl")
    if any(info.compress_type != zipfile.ZIP_STORED for info in entries.values()):
        raise _damaged_error(path.name, "a compressed member")
    # Overlapping members would let a small file become large in memory.
    if sum(info.file_size for info in entries.values()) > path.stat().st_size:
        raise _damaged_error(path.name, "overlapping members")
    root = roots[0]
    order = f"{root}byteorder"
    if order in entries and archive.read(order) != b"little":
        raise _damaged_error(path.name, "big-endian byte order")

    storages: dict[str, Array] = {}

    def resolve(pid: Value) -> Array | SkippedObject:
        """Return the cached storage of a persistent id, or a placeholder for an unknown type."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise RefusedPickleError("a reference to something outside the file")
        # ("storage", type, key, device, number of elements), and no views.
        _, storage_type, key, _, count, *views = pid
        name = getattr(storage_type, "name", "")
        dtype = STORAGE_DTYPES.get(name)
        if dtype is None and name:
            return SkippedObject(name)
        if dtype is None or not isinstance(key, str) or not _is_count(count) or any(views):
            raise RefusedPickleError("something other than a storage")
        if key not in storages:
            member = f"{root}data/{key}"
            if mapping is None:
                data: bytes | memoryview = archive.read(member)
            else:
                data = _view_member(archive, member, mapping)
            storages[key] = np.frombuffer(data, dtype)
        if len(storages[key]) != count or storages[key].dtype != dtype:
            raise RefusedPickleError(f"storage {key} of {len(storages[key])} elements, not {count}")
        return storages[key]

    return archive.read(f"{root}data.pkl"), resolve


def _view_member(archive: zipfile.ZipFile, name: str, mapping: mmap.mmap) -> memoryview:
    info = archive.getinfo(name)
    # The local header has 30 bytes, ending with the lengths of the name and extra field that follow.
    name_length, extra_length = struct.unpack_from("<26x2H", mapping, info.header_offset)
    start = info.header_offset + 30 + name_length + extra_length
    end = start + info.file_size
    view = memoryview(mapping)

    # Verify the checksum here: zipfile would copy the member, four times as slow for PATTERN.
    checksum = 0
    position = start
    while position < end:
        stop = min(end, position - position % _RELEASE_INTERVAL + _RELEASE_INTERVAL)
        checksum = zlib.crc32(view[position:stop], checksum)
        if stop % _RELEASE_INTERVAL == 0:
            release_pages(mapping)
        position = stop
    if end > len(view) or checksum != info.CRC:
        raise _damaged_error(name, "a wrong checksum")
    return view[start:end]


def _rebuild_tensor(
    storage: Value,
    offset: Value,
    size: Value,
    stride: Value,
    *_: Value,
) -> Array | SkippedObject:
    """Replacement for ``torch._utils._rebuild_tensor_v2``: return a view of the storage."""
    if type(storage) is SkippedObject:
        return storage
    is_tuples = isinstance(size, tuple) and isinstance(stride, tuple)
    if not isinstance(storage, np.ndarray) or not is_tuples:
        raise RefusedPickleError("something other than a tensor")
    counts = (offset, *size, *stride)
    if len(size) != len(stride) or len(size) > 32 or not all(map(_is_count, counts)):
        raise RefusedPickleError(f"a tensor of shape {reprlib.repr(size)}")
    if 0 in size:
        return np.empty(size, storage.dtype)

    # Most tensors are contiguous, and a slice is ten times faster than strides.
    total = 1
    has_gaps = False
    for count, step in zip(reversed(size), reversed(stride), strict=True):
        has_gaps |= step != total
        total *= count
    if not has_gaps and offset + total <= len(storage):
        piece = storage[offset : offset + total].reshape(size)
        piece.flags.writeable = False
        return piece

    if total > max(len(storage), _MAX_REPEATED_ELEMENTS):
        raise RefusedPickleError(
            f"a tensor of shape {size} that repeats its storage of {len(storage)} elements"
        )
    # The strides must stay within the storage.
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= len(storage):
        raise RefusedPickleError(
            f"a tensor of shape {size} beyond its storage of {len(storage)} elements"
        )
    steps = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(
        storage[offset:],
        size,
        steps,
        writeable=False,
    )


def _is_count(value: Value) -> bool:
    return type(value) is int and 0 <= value < 2**48


#: Globals of a pickled tensor, without its storage's.
TENSOR_GLOBALS: AllowedGlobals = {
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "collections.OrderedDict": dict,
}
_STORAGE_TYPES: AllowedGlobals = dict.fromkeys(STORAGE_DTYPES, refuse_calls("a type of storage"))
_TORCH_FILE_GLOBALS: AllowedGlobals = {**TENSOR_GLOBALS, **_STORAGE_TYPES}

#: File of a storage up to its type: three small pickles (magic number, version, machine), and the
#: beginning of the reference to the storage.
STORAGE_PREFIX = (
    _OLD_FORMAT_MAGIC + b"\x80\x02M\xe9\x03.\x80\x02}q\x00("
    b"X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03X\r\x00\x00\x00little_endianq\x02\x88"
    b"X\n\x00\x00\x00type_sizesq\x03}q\x04(X\x05\x00\x00\x00shortq\x05K\x02X\x03\x00\x00\x00intq\x06K\x04"
    b"X\x04\x00\x00\x00longq\x07K\x04uu.\x80\x02(X\x07\x00\x00\x00storageq\x00c"
)
# Then follow type, key and length of the storage, a list of the key, the length, and the numbers.
_STORAGE_PATTERN = re.compile(
    re.escape(STORAGE_PREFIX) + rb"torch\n(?P<type>[A-Z][a-z]+Storage)\nq\x01"
    rb"(?P<key>X[\x01-\x20]\x00{3}[0-9]{1,32})q\x02X\x03\x00{3}cpuq\x03(?:K.|M..|J....)Ntq\x04Q\."
    rb"\x80\x02]q\x00(?P=key)q\x01a\.(?P<count>.{8})",
    re.DOTALL,
)


def load_storage(data: Value, *rest: Value) -> Array:
    """Replacement for ``torch.storage._load_from_bytes``: return the numbers of a storage (count,)."""
    if rest or not isinstance(data, _BYTES_TYPES):
        raise RefusedPickleError("a storage that is not bytes")
    header = _STORAGE_PATTERN.match(data)
    dtype = _DTYPE_OF_STORAGE.get(header["type"]) if header else None
    if header is None or dtype is None:
        raise RefusedPickleError("a storage in a format that PyTorch does not write")
    count = int.from_bytes(header["count"], "little")
    if len(data) - header.end() != count * dtype.itemsize:
        raise RefusedPickleError(
            f"a storage of {count} numbers in {len(data) - header.end()} bytes"
        )
    return np.frombuffer(data, dtype, count, header.end())


#: Globals of a pickle of tensors.
PICKLED_TENSOR_GLOBALS: AllowedGlobals = {
    **TENSOR_GLOBALS,
    "torch.storage._load_from_bytes": load_storage,
}

_NUMBER_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")


class _DType(Pending):
    """Pending ``numpy.dtype("i8", …)``; its state has the byte order."""

    __slots__ = ("code",)

    def __init__(self, code: Value, *_: Value) -> None:
        super().__init__()
        if not isinstance(code, str) or _NUMBER_DTYPE.fullmatch(code) is None:
            raise RefusedPickleError(ascii(f"an array of dtype {reprlib.repr(code)}"))
        self.code = code.lstrip("<>|=")

    def finish(self, state: Value) -> None:
        """Set the byte order from ``(3, "<", None, None, None, -1, -1, 0)``."""
        order = state[1]
        is_valid = isinstance(order, str) and order in {"<", ">", "|", "="}
        if not is_valid or any(part is not None for part in state[2:5]):
            raise RefusedPickleError("a dtype with fields")
        self.value = np.dtype(order.replace("|", "=") + self.code)


class _Array(Pending):
    """Pending ``_reconstruct(ndarray, (0,), b"b")``; its state has shape, dtype and bytes."""

    __slots__ = ()

    def __init__(self, *_: Value) -> None:
        super().__init__()

    def finish(self, state: Value) -> None:
        """Set the array from ``(1, shape, dtype, Fortran order, bytes)``."""
        _, shape, dtype, fortran, data = state
        self.value = _array_from_bytes(data, dtype, shape, "F" if fortran else "C")


def _array_from_bytes(
    data: Value,
    dtype: Value,
    shape: Value,
    order: Value = "C",
) -> Array:
    if isinstance(dtype, _DType):  # no state followed
        dtype = np.dtype(dtype.code)
    if isinstance(data, str):  # Python 2 pickles bytes as strings
        data = data.encode("latin-1")
    if not isinstance(dtype, np.dtype) or not isinstance(data, _BYTES_TYPES):
        raise RefusedPickleError("an array without plain numbers")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(type(size) is int and size >= 0 for size in sizes) or len(sizes) > 8:
        raise ValueError("an array without a shape")
    if math.prod(sizes) * dtype.itemsize != len(data):
        raise ValueError(f"an array of shape {sizes} and {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(sizes, order="F" if order == "F" else "C")


def _encode_latin1(string: Value, encoding: Value = "utf-8") -> bytes:
    """Replacement for ``_codecs.encode``, with which protocols 0 to 2 write bytes."""
    are_strings = isinstance(string, str) and isinstance(encoding, str)
    if not are_strings or encoding not in {"latin1", "latin-1"}:
        raise RefusedPickleError("a string in an encoding other than latin-1")
    data: bytes = string.encode("latin-1")
    return data


def _empty_bytes() -> bytes:
    """Replacement for ``bytes()``, with which protocol 2 writes empty bytes."""
    return b""


_NUMPY_CORE: AllowedGlobals = {
    "multiarray._reconstruct": _Array,
    "multiarray.scalar": lambda dtype, data: _array_from_bytes(data, dtype, ())[()],
    "numeric._frombuffer": _array_from_bytes,
}

#: Globals of a pickle of numpy arrays in plain containers.
NUMPY_GLOBALS: AllowedGlobals = {
    "numpy.ndarray": refuse_calls("numpy.ndarray"),
    "numpy.dtype": _DType,
    "_codecs.encode": _encode_latin1,
    "__builtin__.bytes": _empty_bytes,
    "builtins.bytes": _empty_bytes,
    **{f"numpy.core.{name}": call for name, call in _NUMPY_CORE.items()},  # before numpy 2
    **{f"numpy._core.{name}": call for name, call in _NUMPY_CORE.items()},
}


def _require_string(value: Value) -> str:
    if type(value) is not str:
        raise RefusedPickleError("a name that is not a string")
    return value


class PickledData(Pending):
    """``Data`` object of PyTorch Geometric or its storage, read as a mapping of attributes."""

    __slots__ = ("mapping",)

    def __init__(self, *arguments: Value) -> None:
        super().__init__()
        if arguments:
            raise RefusedPickleError("a Data object with arguments")
        self.mapping: Value = None

    def finish(self, state: Value) -> None:
        """Set the attributes: ``Data`` has them in its storage, a storage in a mapping."""
        self.mapping = None
        attributes = None
        if isinstance(state, dict):
            attributes = state.get("_store", state)
        if isinstance(attributes, PickledData):
            attributes = attributes.mapping
        if isinstance(attributes, dict):
            self.mapping = attributes.get("_mapping", attributes)
            # Collated graphs store their numbers of nodes next to the mapping.
            sizes = attributes.get("_num_nodes")
            if sizes is not None and isinstance(self.mapping, dict):
                self.mapping = {**self.mapping, "_num_nodes": sizes}
        self.value = self


#: Globals of a saved ``Data`` object.
PYG_GLOBALS: AllowedGlobals = {
    "torch_geometric.data.data.Data": PickledData,
    "torch_geometric.data.storage.GlobalStorage": PickledData,
    "torch_geometric.data.storage.AttrType": _require_string,
    "torch_geometric.data.data.DataTensorAttr": refuse_calls("a class of PyTorch Geometric"),
    "torch_geometric.data.data.DataEdgeAttr": refuse_calls("a class of PyTorch Geometric"),
}


def stream_graphs(path: Path) -> Iterator[Mapping[str, Value]]:
    """Yield the attributes of each graph in a saved list of ``Data``, with tensors as numpy arrays.

    Arrays are views of the file, valid until the next iteration. Raises ``DamagedInput`` if the
    file has anything but graphs.
    """
    for index, graph in enumerate(stream_items(path, {**NUMPY_GLOBALS, **PYG_GLOBALS})):
        mapping = graph.mapping if isinstance(graph, PickledData) else None
        if not isinstance(mapping, dict):
            raise DamagedInput(
                f"{path.name}, item {index}: {type(graph).__name__} instead of a graph."
            )
        yield mapping


def stream_pickled_tensors(path: Path) -> Iterator[Value]:
    """Yield the items of a pickled list, with tensors as numpy arrays, releasing pages after use."""
    mapping = map_file(path)
    for items, _ in stream_list(
        mapping, {**NUMPY_GLOBALS, **PICKLED_TENSOR_GLOBALS}, name=path.name
    ):
        yield from items
        release_pages(mapping)


def separate_graphs(
    data: Mapping[str, Value], slices: Mapping[str, Value], file: str
) -> Iterator[dict[str, Value]]:
    """Yield the graphs of a collated ``(data, slices)`` pair."""
    axes = {name: concatenated_axis(name) for name in slices}
    bounds: dict[str, Array] = {}
    for name, ends in slices.items():
        rows = data.get(name)
        if rows is None:
            continue
        bound = np.asarray(ends)
        size = -1  # rows that cannot be sliced
        if isinstance(rows, np.ndarray) and rows.ndim:
            size = rows.shape[axes[name]]
        elif isinstance(rows, list) and len(rows) == len(np.atleast_1d(bound)) - 1:
            size = len(rows)
        if (
            bound.ndim != 1
            or bound.dtype.kind not in "iu"
            or not bound.size
            or bound[0] != 0
            or bound[-1] != size
            or (bound[1:] < bound[:-1]).any()
        ):
            raise DamagedInput(f"{file}: the slices of {name} do not fit its rows.")
        bounds[name] = bound
    lengths = {len(ends) for ends in bounds.values()}
    if len(lengths) != 1:
        raise DamagedInput(f"{file}: the slices have different lengths: {sorted(lengths)}.")
    num_graphs = lengths.pop() - 1
    num_nodes = data.get("_num_nodes")
    if isinstance(num_nodes, list) and len(num_nodes) != num_graphs:
        raise DamagedInput(f"{file}: {len(num_nodes)} numbers of nodes for {num_graphs} graphs.")
    for index in range(num_graphs):
        graph = {}
        for name, ends in bounds.items():
            rows = data[name]
            part = slice(ends[index], ends[index + 1])
            if not isinstance(rows, np.ndarray):
                graph[name] = rows[index]
            else:
                graph[name] = rows[..., part] if axes[name] else rows[part]
        if isinstance(num_nodes, list):
            graph["num_nodes"] = num_nodes[index]
        yield graph
