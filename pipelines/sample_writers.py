"""Write samples of raw data: part sizes, text, gzip, and PyTorch's formats without torch.

Pickles equal the output of ``pickle.dump`` with protocol 4, without frames, which only speed up reading.
"""

from __future__ import annotations

import itertools
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.pipelines.formats.tensors import STORAGE_DTYPES, STORAGE_PREFIX


def part_sizes(total: int, published: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of train, val and test in the published proportions.

    With three records or more, no part is empty.
    """
    published_total = sum(published.values())
    min_size = 1 if total >= 3 else 0
    val = max(round(total * published["val"] / published_total), min_size)
    test = max(round(total * published["test"] / published_total), min_size)
    return {"train": total - val - test, "val": val, "test": test}


def cut_into_parts(rows: I64, sizes: Mapping[str, int]) -> dict[str, I64]:
    """Cut ``rows`` (n,) into consecutive parts of these sizes."""
    ends = np.cumsum(list(sizes.values()))
    parts = np.split(rows, ends[:-1])
    return dict(zip(sizes, parts, strict=True))


def lines_bytes(lines: Iterable[str]) -> bytes:
    """Encode lines of text, each ended by a line feed on every system."""
    return "".join(f"{line}\n" for line in lines).encode()


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write :func:`lines_bytes` to a file, creating its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines_bytes(lines))


#: dtype -> module and class of its storage, as two lines of a pickle
STORAGE_NAMES = {
    np.dtype(code): name.replace(".", "\n").encode() for name, code in STORAGE_DTYPES.items()
}


def gzip_bytes(data: bytes) -> bytes:
    """Compress ``data`` to a gzip file without a timestamp, with zlib's own header.

    Since Python 3.13, ``gzip.compress`` writes another operating system into the header.
    """
    return zlib.compress(data, level=9, wbits=31)


def write_torch_file(path: Path, value: object) -> None:
    """Write lists, tuples, dicts with string keys, strings, integers and arrays (as tensors).

    ``torch.load(path, weights_only=True)`` reads the file. Equal values give equal bytes.
    """
    storages: list[Array] = []
    write_torch_zip(path, b"\x80\x02" + _pickle_opcodes(value, storages) + b".", storages)


def write_graphs(path: Path, graphs: Sequence[Mapping[str, Array]]) -> None:
    """Write a list of PyG ``Data`` objects with attributes of any shape, as ``torch.save`` does."""
    storages: list[Array] = []
    # A Data object (memo 0) has a storage, which has a mapping and refers back to the object.
    begin = b"ctorch_geometric.data.data\nData\n)\x81q\x00}(" + _pickle_opcodes("_store", [])
    begin += b"ctorch_geometric.data.storage\nGlobalStorage\n)\x81}(" + _pickle_opcodes(
        "_mapping", []
    )
    end = _pickle_opcodes("_parent", []) + b"h\x00ubub"
    items = [begin + _pickle_opcodes(dict(graph), storages) + end for graph in graphs]
    write_torch_zip(path, b"\x80\x02](" + b"".join(items) + b"e.", storages)


def write_torch_zip(path: Path, pickled: bytes, storages: Sequence[Array] = ()) -> None:
    """Write a pickle and its storages, arrays (n,), as the zip archive of ``torch.save``."""
    members = {"data.pkl": pickled, "byteorder": b"little"}
    for key, array in enumerate(storages):
        members[f"data/{key}"] = array.tobytes()
    members["version"] = b"3\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(f"archive/{name}"), data)


def _pickle_opcodes(value: object, storages: list[Array]) -> bytes:
    """Return the protocol 2 opcodes of a value; append the arrays of its tensors to ``storages``."""

    def opcodes(*values: object) -> bytes:
        return b"".join(_pickle_opcodes(value, storages) for value in values)

    if isinstance(value, int):
        return b"\x8a\x08" + struct.pack("<q", value)
    if isinstance(value, str):
        text = value.encode()
        return b"X" + struct.pack("<I", len(text)) + text
    if isinstance(value, dict):
        return b"}(" + opcodes(*itertools.chain(*value.items())) + b"u"
    if isinstance(value, list):
        return b"](" + opcodes(*value) + b"e"
    if isinstance(value, tuple):
        return b"(" + opcodes(*value) + b"t"

    array = np.asarray(value, order="C")
    storages.append(array)
    storage = opcodes(str(len(storages) - 1), "cpu", array.size)
    strides = tuple(step // array.itemsize for step in array.strides)
    return b"".join(
        [
            b"ctorch._utils\n_rebuild_tensor_v2\n((",
            opcodes("storage"),
            b"c" + STORAGE_NAMES[array.dtype] + b"\n",
            storage,
            b"tQ",
            opcodes(0, array.shape, strides),
            b"\x89ccollections\nOrderedDict\n)RtR",
        ]
    )


def write_pickle(path: Path, items: Sequence[object]) -> None:
    """Write containers of NumPy arrays and :class:`PickledTensor`. Equal values give equal bytes."""
    with path.open("wb") as file:
        pickler = _Pickler(file, protocol=4)
        pickler.framer.start_framing = lambda: None
        # torch names storages by address; consecutive numbers make the bytes reproducible.
        pickler.keys = itertools.count(94_000_000_000_001)
        pickler.dump(items)


def storage_bytes(array: Array, key: str) -> bytes:
    """Return the bytes of a tensor's storage (n,) in the older format of ``torch.save``."""
    text = b"X" + struct.pack("<I", len(key)) + key.encode()
    return b"".join(
        [
            STORAGE_PREFIX,
            STORAGE_NAMES[array.dtype],
            b"\nq\x01",
            text,
            b"q\x02X\x03\x00\x00\x00cpuq\x03",
            pickle.dumps(array.size, 2)[2:-1],
            b"Ntq\x04Q.",
            b"\x80\x02]q\x00" + text + b"q\x01a.",  # list with the only key
            struct.pack("<q", array.size),
            array.tobytes(),
        ]
    )


class _PickledName:
    """Function or class that is pickled by name and never called."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self) -> None:
        raise NotImplementedError


_NUMPY = "numpy"  #: a single object, so that the pickler memoises it
_TENSOR = _PickledName("torch._utils", "_rebuild_tensor_v2")
_STORAGE = _PickledName("torch.storage", "_load_from_bytes")
_ORDERED_DICT = _PickledName("collections", "OrderedDict")
_RECONSTRUCT = _PickledName("numpy.core.multiarray", "_reconstruct")
_NDARRAY = _PickledName(_NUMPY, "ndarray")
_DTYPE = _PickledName(_NUMPY, "dtype")


class _PickledCall:
    """Object that is pickled as a call of ``constructor``."""

    def __init__(self, constructor: _PickledName, *arguments: object) -> None:
        self.constructor = constructor
        self.arguments = arguments


class PickledTensor:
    """Array that is pickled as a torch tensor."""

    def __init__(self, array: Array) -> None:
        self.array = np.ascontiguousarray(array)


#: Pure-Python pickler, whose steps can be overridden.
_PythonPickler: Any = vars(pickle)["_Pickler"]


class _Pickler(_PythonPickler):  # type: ignore[misc]
    """Pickle tensors as torch does, and arrays as NumPy did before version 2."""

    keys: Iterator[int]

    def reducer_override(self, obj: object) -> object:
        """Return the name of an object, or the callable, arguments and state that rebuild it."""
        if isinstance(obj, _PickledName):
            return obj.name
        if isinstance(obj, _PickledCall):
            return obj.constructor, obj.arguments
        if isinstance(obj, PickledTensor):
            array = obj.array
            strides = tuple(step // array.itemsize for step in array.strides)
            storage = _PickledCall(_STORAGE, storage_bytes(array, str(next(self.keys))))
            return _TENSOR, (storage, 0, array.shape, strides, False, _PickledCall(_ORDERED_DICT))
        if isinstance(obj, np.ndarray):
            return (
                _RECONSTRUCT,
                (_NDARRAY, tuple([0]), b"b"),  # noqa: C409 -- a literal would be a single, memoised object
                (1, obj.shape, obj.dtype, False, obj.tobytes()),
            )
        if isinstance(obj, np.dtype):
            state = (3, obj.str[0], None, None, None, -1, -1, 0)
            return _DTYPE, (obj.str[1:], False, True), state
        return NotImplemented

    def save_global(self, obj: _PickledName, name: str | None = None) -> None:
        """Write a name without importing it."""
        self.save(obj.module)
        self.save(obj.name)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)
