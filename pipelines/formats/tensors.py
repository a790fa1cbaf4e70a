"""Read numpy arrays and tensors from pickles and ``.pt`` files, without torch and without executing code.

``torch.save`` of version 1.6 and later writes a zip of ``<name>/data.pkl`` and one stored member a
storage. A storage becomes a numpy array and a tensor a view of it. A worker that imports torch
takes 2.7 s and 295 MiB to start, instead of 0.8 s and 111 MiB.

An ordinary pickle of tensors (``pickle.dump``) calls ``torch.storage._load_from_bytes`` for every
tensor with a whole file of the layout before version 1.6, which torch would load, and run. Here its
header must be the one that torch writes, and the array is a view of the numbers behind it.

Arrays are of plain numbers, and views of exactly as many bytes as their shape says. Other values
are examined by type alone: text and hash of nested tuples can take time that doubles with each
level.
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
from kmip_data.pipelines.formats.pickles import (
    Allowed,
    Libraries,
    Pending,
    RefusedError,
    Unread,
    Value,
    read_pickle,
    refuse_calls,
    stream_list,
)

STORAGES: Mapping[str, str] = {
    "torch.DoubleStorage": "<f8", "torch.FloatStorage": "<f4", "torch.HalfStorage": "<f2",
    "torch.LongStorage": "<i8", "torch.IntStorage": "<i4", "torch.ShortStorage": "<i2",
    "torch.CharStorage": "i1", "torch.ByteStorage": "u1", "torch.BoolStorage": "?",
    "torch.ComplexFloatStorage": "<c8", "torch.ComplexDoubleStorage": "<c16",
    "torch.BFloat16Storage": "V2",  # numpy has no such number
}  # fmt: skip
#: Type of a storage as a pickle of tensors names it.
_DTYPES = {name.removeprefix("torch.").encode(): np.dtype(code) for name, code in STORAGES.items()}
_BYTES = (bytes, bytearray, memoryview)
_FRAME = b"\x95"  #: opcode before the length of a frame
_BEFORE_1_6 = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  #: pickle of the magic number
#: Elements of a tensor that repeats its storage: a stride of 0 makes any size.
_REPEATED = 1 << 20
_FORGOTTEN = 1 << 26  #: bytes of a map after which its pages leave memory


def read_torch_file(
    path: Path,
    extra: Allowed = MappingProxyType({}),
    *,
    mapping: mmap.mmap | None = None,
) -> Value:
    """Return what ``torch.save`` wrote: nested lists, tuples, dicts, numbers.

    Tensors become numpy arrays.

    What ``torch.load(path, weights_only=True)`` accepts and is data. Arrays share memory where the
    tensors did and cannot be written to; the memory needed is about the size of the file, or small
    where the caller gives a ``mapping`` of it, of which arrays of a zip are then views. The pickle
    may name ``extra`` globals, such as :data:`NUMPY` where numpy arrays were saved. Raises
    ``DamagedInput`` where the file is cut, damaged, compressed, of the layout before PyTorch 1.6,
    or names anything but data.
    """
    with _open_pickle(path, mapping) as (pickled, resolve):
        return read_pickle(
            pickled,
            {**_GLOBALS, **extra},
            name=path.name,
            persistent=resolve,
        )


def stream_items(
    path: Path, extra: Allowed, *, libraries: Libraries = frozenset()
) -> Iterator[Value]:
    """Yield the items of the list that ``torch.save`` or ``pickle.dump`` wrote, or what they wrote instead.

    Arrays are views of the mapped file. Of a list, one part is in memory at a time. For
    ``libraries`` see :func:`~kmip_data.pipelines.formats.pickles.read_pickle`.
    """
    mapping = map_file(path)
    if mapping[:1] == b"\x80":
        if mapping[: len(_BEFORE_1_6)] == _BEFORE_1_6:
            raise _damaged_error(path.name, "the layout before PyTorch 1.6")
        yield from _stream_values(mapping, {**extra, **PICKLED_TENSORS}, path.name, None, libraries)
        return
    with _open_pickle(path, mapping) as (pickled, resolve):
        yield from _stream_values(pickled, {**_GLOBALS, **extra}, path.name, resolve, libraries)


def _stream_values(
    pickled: bytes | mmap.mmap,
    allowed: Allowed,
    name: str,
    persistent: Callable[[Value], Value] | None,
    libraries: Libraries,
) -> Iterator[Value]:
    """Yield the items of a pickled list, or another value."""
    start = 11 if pickled[2:3] == _FRAME else 2  # behind the protocol, and the length of a frame
    if pickled[start : start + 1] == b"]":
        for items, _ in stream_list(
            pickled, allowed, name=name, persistent=persistent, libraries=libraries
        ):
            yield from items
        return
    value = read_pickle(
        bytes(pickled), allowed, name=name, persistent=persistent, libraries=libraries
    )
    yield from value if isinstance(value, list) else [value]


def read_tensor(path: Path, dtype: str, shape: tuple[int | None, ...]) -> Array:
    """Return the one tensor of a file.

    The length of an axis is ``None`` where any will do. Raises ``DamagedInput`` as
    :func:`read_torch_file`, or where the file holds something else.
    """
    expected = f"one {dtype} tensor of shape {format_shape_pattern(shape)}"
    tensor = read_torch_file(path)
    if not isinstance(tensor, np.ndarray):
        raise _damaged_error(path.name, f"a {type(tensor).__name__}", expected)
    if not shape_matches(tensor.shape, shape) or tensor.dtype != dtype:
        raise _damaged_error(path.name, f"{tensor.dtype} of shape {tensor.shape}", expected)
    return np.ascontiguousarray(tensor)


def _damaged_error(
    name: str,
    problem: str,
    expected: str = "a whole file that torch.save of PyTorch 1.6 or later has written",
) -> DamagedInput:
    return DamagedInput(
        f"{name} cannot be read as tensors.",
        expected=expected,
        found=problem,
    )


@contextmanager
def _open_pickle(
    path: Path,
    mapping: mmap.mmap | None,
) -> Iterator[tuple[bytes, Callable[[Value], Array | Unread]]]:
    """Open a file of ``torch.save``: its pickle, and what resolves the persistent ids in it.

    Whatever hostile bytes provoke in zipfile, or in what reads the pickle, is ``DamagedInput``.
    """
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            yield _open_zip_pickle(archive, path, mapping)
    except (DamagedInput, MemoryError):
        raise
    except Exception as error:
        raise _damaged_error(path.name, str(error) or type(error).__name__) from error


def map_file(path: Path) -> mmap.mmap:
    """Return a map of a raw file, for reading; ``DamagedInput`` for an empty one, which has none."""
    if not path.stat().st_size:
        raise DamagedInput(f"{path.name} is empty.")
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def release_pages(mapping: mmap.mmap) -> None:
    """Take the pages of a map out of memory; they are read again where they must be."""
    with suppress(AttributeError, OSError):  # not on every system
        mapping.madvise(mmap.MADV_DONTNEED)


def _open_zip_pickle(
    archive: zipfile.ZipFile,
    path: Path,
    mapping: mmap.mmap | None,
) -> tuple[bytes, Callable[[Value], Array | Unread]]:
    entries = {info.filename: info for info in archive.infolist()}
    roots = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise _damaged_error(path.name, f"{len(roots)} members called data.pkl")
    if any(info.compress_type != zipfile.ZIP_STORED for info in entries.values()):
        raise _damaged_error(path.name, "a compressed member")
    # Overlapping members would let a small file become large in memory.
    if sum(info.file_size for info in entries.values()) > path.stat().st_size:
        raise _damaged_error(path.name, "members that overlap")
    root = roots[0]
    order = f"{root}byteorder"
    if order in entries and archive.read(order) != b"little":
        raise _damaged_error(path.name, "the byte order of another machine")

    storages: dict[str, Array] = {}

    def resolve(pid: Value) -> Array | Unread:
        """Return the storage of a persistent id, made once; of a type that is not allowed, a placeholder."""
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise RefusedError("a reference to something outside the file")
        # ("storage", its type, key, device, number of elements), and no view of it.
        _, storage_type, key, _, count, *views = pid
        name = getattr(storage_type, "name", "")
        dtype = STORAGES.get(name)
        if dtype is None and name:
            return Unread(name)
        if dtype is None or not isinstance(key, str) or not _is_count(count) or any(views):
            raise RefusedError("something other than a storage")
        if key not in storages:
            member = f"{root}data/{key}"
            if mapping is None:
                data: bytes | memoryview = archive.read(member)
            else:
                data = _view_member(archive, member, mapping)
            storages[key] = np.frombuffer(data, dtype)
        if len(storages[key]) != count or storages[key].dtype != dtype:
            raise RefusedError(f"storage {key} of {len(storages[key])} elements, not {count}")
        return storages[key]

    return archive.read(f"{root}data.pkl"), resolve


def _view_member(archive: zipfile.ZipFile, name: str, mapping: mmap.mmap) -> memoryview:
    info = archive.getinfo(name)
    # The local header is 30 bytes, then a name and an extra field of the lengths at its end.
    name_length, extra_length = struct.unpack_from("<26x2H", mapping, info.header_offset)
    start = info.header_offset + 30 + name_length + extra_length
    end = start + info.file_size
    view = memoryview(mapping)

    # The checksum here, not by zipfile, which copies the member: a quarter of the time for PATTERN.
    checksum = 0
    position = start
    while position < end:
        stop = min(end, position - position % _FORGOTTEN + _FORGOTTEN)
        checksum = zlib.crc32(view[position:stop], checksum)
        if stop % _FORGOTTEN == 0:
            release_pages(mapping)
        position = stop
    if end > len(view) or checksum != info.CRC:
        raise _damaged_error(name, "another checksum than the archive states")
    return view[start:end]


def _rebuild_tensor(
    storage: Value,
    offset: Value,
    size: Value,
    stride: Value,
    *_: Value,
) -> Array | Unread:
    """Stand in for ``torch._utils._rebuild_tensor_v2``: a view of the storage."""
    if type(storage) is Unread:
        return storage
    is_tuples = isinstance(size, tuple) and isinstance(stride, tuple)
    if not isinstance(storage, np.ndarray) or not is_tuples:
        raise RefusedError("something other than a tensor")
    counts = (offset, *size, *stride)
    if len(size) != len(stride) or len(size) > 32 or not all(map(_is_count, counts)):
        raise RefusedError(f"a tensor of shape {reprlib.repr(size)}")
    if 0 in size:
        return np.empty(size, storage.dtype)

    # Most tensors are contiguous: a slice is ten times faster than strides.
    total = 1
    has_gaps = False
    for count, step in zip(reversed(size), reversed(stride), strict=True):
        has_gaps |= step != total
        total *= count
    if not has_gaps and offset + total <= len(storage):
        piece = storage[offset : offset + total].reshape(size)
        piece.flags.writeable = False
        return piece

    if total > max(len(storage), _REPEATED):
        raise RefusedError(
            f"a tensor of shape {size} that repeats its storage of {len(storage)} elements"
        )
    # The last element that the strides reach must be one of the storage.
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if last >= len(storage):
        raise RefusedError(
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


#: Globals of a pickled tensor, whose storage comes by another way.
TENSORS: Allowed = {
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "collections.OrderedDict": dict,  # of arguments, dict() would take the hash
}
_TYPES: Allowed = dict.fromkeys(STORAGES, refuse_calls("a type of storage"))
_GLOBALS: Allowed = {**TENSORS, **_TYPES}

#: File of a storage up to its type: three small pickles (a magic number, a version, facts about the
#: machine), and the beginning of the reference to the storage.
STORAGE_HEAD = (
    _BEFORE_1_6 + b"\x80\x02M\xe9\x03.\x80\x02}q\x00("
    b"X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03X\r\x00\x00\x00little_endianq\x02\x88"
    b"X\n\x00\x00\x00type_sizesq\x03}q\x04(X\x05\x00\x00\x00shortq\x05K\x02X\x03\x00\x00\x00intq\x06K\x04"
    b"X\x04\x00\x00\x00longq\x07K\x04uu.\x80\x02(X\x07\x00\x00\x00storageq\x00c"
)
# Then type, key and length of the storage, a list of the one key, the length again; then the numbers.
_HEADER = re.compile(
    re.escape(STORAGE_HEAD) + rb"torch\n(?P<type>[A-Z][a-z]+Storage)\nq\x01"
    rb"(?P<key>X[\x01-\x20]\x00{3}[0-9]{1,32})q\x02X\x03\x00{3}cpuq\x03(?:K.|M..|J....)Ntq\x04Q\."
    rb"\x80\x02]q\x00(?P=key)q\x01a\.(?P<count>.{8})",
    re.DOTALL,
)


def storage_of(data: Value, *rest: Value) -> Array:
    """Stand in for ``torch.storage._load_from_bytes``: the numbers of one storage, (count,)."""
    if rest or not isinstance(data, _BYTES):
        raise RefusedError("a storage that is not given as bytes")
    header = _HEADER.match(data)
    dtype = _DTYPES.get(header["type"]) if header else None
    if header is None or dtype is None:
        raise RefusedError("a storage that PyTorch would not write so")
    count = int.from_bytes(header["count"], "little")
    if len(data) - header.end() != count * dtype.itemsize:
        raise RefusedError(f"a storage of {count} numbers in {len(data) - header.end()} bytes")
    return np.frombuffer(data, dtype, count, header.end())


#: Globals of a pickle of tensors.
PICKLED_TENSORS: Allowed = {**TENSORS, "torch.storage._load_from_bytes": storage_of}

_NUMBER = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")


class _DType(Pending):
    """``numpy.dtype("i8", …)``; the state has the byte order."""

    __slots__ = ("code",)

    def __init__(self, code: Value, *_: Value) -> None:
        super().__init__()
        if not isinstance(code, str) or _NUMBER.fullmatch(code) is None:
            raise RefusedError(ascii(f"an array of dtype {reprlib.repr(code)}"))
        self.code = code.lstrip("<>|=")

    def finish(self, state: Value) -> None:
        """Take the byte order: ``(3, "<", None, None, None, -1, -1, 0)``."""
        order = state[1]
        plain = isinstance(order, str) and order in {"<", ">", "|", "="}
        if not plain or any(part is not None for part in state[2:5]):
            raise RefusedError("a dtype with fields")
        self.value = np.dtype(order.replace("|", "=") + self.code)


class _Array(Pending):
    """``_reconstruct(ndarray, (0,), b"b")``; the state has shape, dtype and bytes."""

    __slots__ = ()

    def __init__(self, *_: Value) -> None:
        super().__init__()

    def finish(self, state: Value) -> None:
        """Take ``(1, shape, dtype, Fortran order, bytes)``."""
        _, shape, dtype, fortran, data = state
        self.value = _array_of_bytes(data, dtype, shape, "F" if fortran else "C")


def _array_of_bytes(
    data: Value,
    dtype: Value,
    shape: Value,
    order: Value = "C",
) -> Array:
    if isinstance(dtype, _DType):  # without a state
        dtype = np.dtype(dtype.code)
    if isinstance(data, str):  # as Python 2 wrote bytes
        data = data.encode("latin-1")
    if not isinstance(dtype, np.dtype) or not isinstance(data, _BYTES):
        raise RefusedError("an array that is not of plain numbers")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(type(size) is int and size >= 0 for size in sizes) or len(sizes) > 8:
        raise ValueError("an array without a shape")
    if math.prod(sizes) * dtype.itemsize != len(data):
        raise ValueError(f"an array of shape {sizes} and {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(sizes, order="F" if order == "F" else "C")


def _encode_text(text: Value, encoding: Value = "utf-8") -> bytes:
    """``_codecs.encode``: how protocols 0 to 2 write bytes."""
    texts = isinstance(text, str) and isinstance(encoding, str)
    if not texts or encoding not in {"latin1", "latin-1"}:
        raise RefusedError("a text in another encoding than latin-1")
    data: bytes = text.encode("latin-1")
    return data


def _empty_bytes() -> bytes:
    """``bytes()``, as which protocol 2 writes no bytes."""
    return b""


_CORE: Allowed = {
    "multiarray._reconstruct": _Array,
    "multiarray.scalar": lambda dtype, data: _array_of_bytes(data, dtype, ())[()],
    "numeric._frombuffer": _array_of_bytes,
}

#: Globals of a pickle of numpy arrays in plain containers.
NUMPY: Allowed = {
    "numpy.ndarray": refuse_calls("numpy.ndarray"),
    "numpy.dtype": _DType,
    "_codecs.encode": _encode_text,
    "__builtin__.bytes": _empty_bytes,
    "builtins.bytes": _empty_bytes,
    **{f"numpy.core.{name}": call for name, call in _CORE.items()},  # before numpy 2
    **{f"numpy._core.{name}": call for name, call in _CORE.items()},
}


def _require_text(value: Value) -> str:
    if type(value) is not str:
        raise RefusedError("a name that is not text")
    return value


class PickledData(Pending):
    """A ``Data`` object or its storage, whose attributes are read as data."""

    __slots__ = ("mapping",)

    def __init__(self, *arguments: Value) -> None:
        super().__init__()
        if arguments:
            raise RefusedError("a Data object made with arguments")
        self.mapping: Value = None

    def finish(self, state: Value) -> None:
        """Take the attributes: ``Data`` has them in its storage, a storage in a mapping."""
        self.mapping = None
        attributes = None
        if isinstance(state, dict):
            attributes = state.get("_store", state)
        if isinstance(attributes, PickledData):
            attributes = attributes.mapping
        if isinstance(attributes, dict):
            self.mapping = attributes.get("_mapping", attributes)
            # The numbers of nodes of collated graphs lie next to the mapping.
            sizes = attributes.get("_num_nodes")
            if sizes is not None and isinstance(self.mapping, dict):
                self.mapping = {**self.mapping, "_num_nodes": sizes}
        self.value = self


#: Classes that may be named where a ``Data`` object was saved.
PYG: Allowed = {
    "torch_geometric.data.data.Data": PickledData,
    "torch_geometric.data.storage.GlobalStorage": PickledData,
    "torch_geometric.data.storage.AttrType": _require_text,
    "torch_geometric.data.data.DataTensorAttr": refuse_calls("a class of PyTorch Geometric"),
    "torch_geometric.data.data.DataEdgeAttr": refuse_calls("a class of PyTorch Geometric"),
}


def stream_graphs(path: Path) -> Iterator[Mapping[str, Value]]:
    """Yield the attributes of each graph of a saved list of ``Data``; tensors as numpy arrays.

    Arrays are views of the file, valid until the next graph is asked for. Raises ``DamagedInput``
    where the file holds something else, or asks for anything but data.
    """
    for number, graph in enumerate(stream_items(path, {**NUMPY, **PYG})):
        mapping = graph.mapping if isinstance(graph, PickledData) else None
        if not isinstance(mapping, dict):
            raise DamagedInput(
                f"{path.name}, item {number}: {type(graph).__name__} instead of a graph."
            )
        yield mapping


def stream_pickled(path: Path) -> Iterator[Value]:
    """Yield the items of a list of ``pickle.dump``; tensors as numpy arrays, a few at a time."""
    mapping = map_file(path)
    for items, _ in stream_list(mapping, {**NUMPY, **PICKLED_TENSORS}, name=path.name):
        yield from items
        release_pages(mapping)  # pages are read once


def separate_graphs(
    data: Mapping[str, Value], slices: Mapping[str, Value], file: str
) -> Iterator[dict[str, Value]]:
    """Yield the graphs of a collated pair, whose rows are concatenated."""
    axes = {name: concatenated_axis(name) for name in slices}
    bounds: dict[str, Array] = {}
    for name, ends in slices.items():
        rows = data.get(name)
        if rows is None:
            continue
        bound = np.asarray(ends)
        size = -1  # storage without rows
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
    counts = {len(ends) for ends in bounds.values()}
    if len(counts) != 1:
        raise DamagedInput(f"{file}: slices are of {sorted(counts)} graphs.")
    graphs = counts.pop() - 1
    sizes = data.get("_num_nodes")
    if isinstance(sizes, list) and len(sizes) != graphs:
        raise DamagedInput(f"{file}: {len(sizes)} numbers of nodes for {graphs} graphs.")
    for number in range(graphs):
        item = {}
        for name, ends in bounds.items():
            rows = data[name]
            part = slice(ends[number], ends[number + 1])
            if not isinstance(rows, np.ndarray):
                item[name] = rows[number]
            else:
                item[name] = rows[..., part] if axes[name] else rows[part]
        if isinstance(sizes, list):
            item["num_nodes"] = sizes[number]
        yield item
